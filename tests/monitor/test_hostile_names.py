"""Names that come from agents reach people as names: they neither format, forge nor control."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.base.text import shown_name
from oteval.monitor.monitor_checks import check
from oteval.monitor.notification.apprise import send_by_apprise
from oteval.monitor.notification.formats import (
    alert_body,
    alert_labels,
    log_event_request,
    webhook_body,
)
from oteval.monitor.notification.text import message
from oteval.store import Store
from oteval.views.monitors import change_line, monitors_table

from ..otlp_endpoint import listening
from .histories import History, config
from .notices import NOW, payload

NAMES = {
    "markup": "<script>x()</script> [bold]b[/bold] **b** {{ .Labels }} {0} %s ${HOME}",
    "forged": "good] recovered, agent=other; tools=x: 1% to 2%",
    "controls": "\x1b[31mred\x07\nb: ok\r\nc\td\x00",
    "direction": "abc\u202egnp.exe\u2066x\u200f",
    "long": "L" * 10_000,
    "wide": "漢" * 5_000,
    "quotes": "\"'`\\",
    "empty": "",
}
SEEN = ("\x1b", "\x07", "\x00", "\u202e", "\u2066", "\u200f")


def hostile(name: str) -> dict[str, Any]:
    """Return a payload whose names from agents are all hostile."""
    one = {"dimension": "tools", "value": name, "before": 0.9, "after": 0.1, "observations": 9}
    mark = {"time_ns": NOW, "kind": "version", "name": name}
    return payload(group={"agent": name, "model": name}, slices=[one], marks=[mark])


@pytest.mark.parametrize("kind", NAMES)
def test_a_message_keeps_its_shape(kind: str):
    """Each line is one short printable line, and the verdict is at the end of the title."""
    shown = message(hostile(NAMES[kind]))

    assert shown.title.startswith("Alert: refund-policy [agent=")
    assert shown.title.endswith("] got worse")
    assert len(shown.title) < 250
    assert shown.text.count("\n") == 5
    assert max(map(len, shown.text.splitlines())) <= 510
    assert not any(mark in shown.title + shown.text for mark in SEEN)


def test_a_name_cannot_pass_for_another_part_of_a_message():
    """Names with the marks that separate names are quoted."""
    shown = message(hostile(NAMES["forged"]))

    assert 'agent="good] recovered, agent=other; tools=x: 1% to 2%", model=' in shown.title
    assert shown_name("-") == '"-"'
    assert shown_name("") == "-"
    assert shown_name("look_up > refund") == "look_up > refund"


@pytest.mark.parametrize("kind", NAMES)
def test_programs_get_valid_requests(kind: str):
    """JSON and protobuf hold every name; labels have no control characters and stay different."""
    # As a check queues it: long values are cut.
    found = hostile(NAMES[kind][:300])

    json.loads(webhook_body(found, "k"))
    (alert,) = json.loads(alert_body(found, key="k", now_ns=NOW, resolve_timeout=60.0))
    assert log_event_request(found, key="k", now_ns=NOW)
    texts = [*alert["labels"].values(), *alert["annotations"].values()]
    assert not any(mark in text for text in texts for mark in SEEN)
    assert not any(mark in alert["labels"]["agent"] for mark in "\n\t")
    two = [alert_labels(payload(group={"agent": text})) for text in ("a\nb", "a b")]
    assert two[0] != two[1]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_a_name_calls_nobody_and_links_to_nothing_in_a_chat():
    """Mentions and links by names of agents do not work in messages by Apprise."""
    name = "@everyone <!channel> http://evil.example [x](http://evil.example)"
    with listening() as there:
        url = there.url.replace("http", "json") + "/a"
        assert send_by_apprise(url, message(hostile(name)), is_alert=True).is_delivered
        ((_, _, body),) = there.requests

    sent = json.loads(body)
    for text in (sent["title"], sent["message"]):
        assert "everyone" in text
        for active in ("@everyone", "!channel", "://evil"):
            assert active not in text


def test_states_of_hostile_groups_are_one_line_each():
    """Tables and lines about changes neither widen nor break, whatever a group is called."""
    rule = "{type: threshold, below: 0.8, window: 1d}"
    with Store() as store:
        watched = config(f"{{evaluator: e, group_by: agent, detector: {rule}, notify: [ops]}}")
        for number, name in enumerate(NAMES.values()):
            history = History(store, name, first=1 + 1000 * number)
            history.scored(12, 0.0)

        found = check(store, watched, history.now)

        assert len(found) == len(NAMES)
        assert {one.state for one in found} == {"alert"}
        for one in found:
            line = change_line(one)
            assert len(line) < 250
            assert "\n" not in line
        for width in (80, 200):
            lines = rendered(monitors_table(found, history.now), width)
            assert len(lines) == 1 + len(NAMES)
            assert max(map(len, lines)) <= width
            assert not any(mark in line for line in lines for mark in SEEN)


def rendered(table: Any, width: int) -> list[str]:
    """Return the lines of a table at a width."""
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue().splitlines()
