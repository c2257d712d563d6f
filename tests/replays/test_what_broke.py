"""``oteval whatif`` names what broke: planted regressions among 20 recorded sessions."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest

from oteval import Store

from ..commands import Done, Run, oteval
from ..model_server import Body, Reply, Script, Server, serving
from ..views.pages.conftest import ShowPages, pages
from .refund_desk import calls_of, desk, desk_files, is_confirmed, order_of, reply_of, write_desk

__all__ = ["oteval", "pages"]

ORDERS = range(11, 31)

BROKEN = {
    "13": ("called refund_order(", 'before the user wrote "Yes, please."', "; message 6"),
    "17": ("message 8: refund_order: amount is ", "420.0", ", recorded 42.0"),
    "21": ("called check_policy before get_order, recorded in the other order", "; message 2"),
    "24": ("called get_order(", " 5 times, recorded once", "; message 4"),
    "28": ("answered without calling refund_order(", "; message 8"),
}
"""The orders whose sessions break, and the words about each."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a live model; the current folder has the agent."""
    write_desk(tmp_path)
    with serving(desk) as model_server:
        monkeypatch.setenv("MODEL_URL", model_server.url)
        yield model_server


WhatIf = Callable[..., Done]


@pytest.fixture
def whatif(oteval: Run, server: Server, tmp_path: Path) -> WhatIf:
    """Return a function that repeats the sessions of all orders, with a script of the model."""

    def run(script: Script, *arguments: str, orders: range = ORDERS) -> Done:
        server.script = script
        files = desk_files(tmp_path, orders)
        options = ("--target", "refund_desk:target", "--workers", "1", "--name", "now")
        return oteval("whatif", *files, *options, *arguments)

    return run


def planted(body: Body, number: int) -> Reply:
    """Script: five sessions break, each in another way."""
    order, calls, confirmed = order_of(body), calls_of(body), is_confirmed(body)
    if order == "13":  # no confirmation
        if len(calls) == 2 and not confirmed:
            return reply_of(body, "refund_order", amount=42.0)
        return reply_of(body, text="It is done.") if confirmed or calls[2:] else desk(body)
    if order == "17" and confirmed and not calls:
        return reply_of(body, "refund_order", amount=420.0)
    if order == "21" and not confirmed and len(calls) < 2:
        return reply_of(body, ("check_policy", "get_order")[len(calls)])
    if order == "24" and not confirmed and len(calls) < 5:
        return reply_of(body, "get_order")
    if order == "24" and not confirmed and len(calls) == 5:
        return reply_of(body, "check_policy")
    if order == "28" and confirmed:
        return reply_of(body, text="It is refunded.")
    return desk(body, number)


def reworded(script: Script, seed: int) -> Script:
    """A script whose answers and notation vary at random, and whose calls are the same."""
    chance = random.Random(seed)

    def vary(body: Body, number: int) -> Reply:
        reply = script(body, number)
        message = reply.body["choices"][0]["message"]
        if not message.get("tool_calls"):
            openings = ("Certainly. ", "", "Of course! ", "All right: ")
            endings = ("", " Anything else?", " I hope this helps you.", f" Number {number}.")
            message["content"] = chance.choice(openings) + message["content"].upper()
            message["content"] += chance.choice(endings)
        else:
            message["content"] = chance.choice((None, "One moment.", "Let me look.", ""))
            function = message["tool_calls"][0]["function"]
            arguments = json.loads(function["arguments"])
            if "amount" in arguments and chance.random() < 0.5:
                arguments["amount"] = str(arguments["amount"])
            function["arguments"] = json.dumps(dict(reversed(arguments.items())))
        return reply

    return vary


def assert_names_what_broke(done: Done) -> None:
    """Check that the first five lines name the five sessions, and no line another one."""
    lines = done.out.splitlines()
    for line, (order, words) in zip(lines, BROKEN.items(), strict=False):
        assert line.startswith(f"✗ Please refund order {order}: ")
        assert all(word in line for word in words), line
    assert {line[:24] for line in lines if line[0:1] == "✗"} == {
        f"✗ Please refund order {order}" for order in BROKEN
    }
    assert "5 of 20 runs broke, 15 did not change." in lines


def test_each_broken_session_is_named_first(whatif: WhatIf, oteval: Run) -> None:
    """Without an oteval.yaml, the recorded calls are expected: five lines name five regressions."""
    done = whatif(planted)
    again = oteval("compare", "now-recorded", "now")

    assert_names_what_broke(done)
    assert done.out.startswith(again.out)
    assert done.status == 1
    assert "no oteval.yaml: calls are compared with the recorded runs" in done.err


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))]
)
def test_answers_in_other_words_hide_nothing(whatif: WhatIf, seed: int) -> None:
    """The same five sessions are named if the model's answers and notation vary at random."""
    done = whatif(reworded(planted, seed))

    assert_names_what_broke(done)
    assert done.status == 1


def test_answers_in_other_words_break_nothing(whatif: WhatIf) -> None:
    """The wording of answers, and the notation of arguments, are not the agent's behaviour."""
    done = whatif(reworded(desk, seed=5))

    assert done.out.startswith("None of 20 runs broke, 20 did not change.\n")
    assert done.status == 0


def test_every_surface_shows_the_same_rows(
    whatif: WhatIf, oteval: Run, tmp_path: Path, pages: ShowPages
) -> None:
    """The text, JSON, the report, Markdown and the page name the same runs in the same order."""
    done = whatif(planted, orders=range(13, 22))
    sides = ("--experiments", "now-recorded", "--experiments", "now")
    written = oteval("report", *sides, "--html", "r.html", "--md", "r.md")
    rows = oteval("compare", "now-recorded", "now", "--json").rows
    with Store("oteval.duckdb") as store:
        page = pages(store).get("/experiments/now?baseline=now-recorded").text

    assert written.status == 0, written.err
    broken = ["13", "17", "21"]
    assert [row["question"][-2:] for row in rows if row["row"] == "broke"] == broken
    assert rows[0]["first_difference"]["now"]["tool_calls"][0]["function"]["name"] == "refund_order"
    texts = [done.out, (tmp_path / "r.html").read_text(), (tmp_path / "r.md").read_text(), page]
    for text in texts:
        start = text[: text.index("3 of 9 runs broke, 6 did not change.") + 20_000]
        questions = re.findall(r"Please refund order (\d+)", start)
        assert list(dict.fromkeys(questions))[:3] == broken
        assert "called check_policy before get_order" in unescape(text).replace("\\_", "_")


def test_evaluators_give_their_reasons(whatif: WhatIf, tmp_path: Path) -> None:
    """A rule of oteval.yaml comes with its reason; figures without a verdict are named."""
    (tmp_path / "oteval.yaml").write_text(
        "evaluators:\n"
        "  - {name: confirmed, type: tool_order, rules: [get_order before check_policy]}\n"
        "  - {name: fast, type: latency, max: 60s}\n"
    )

    done = whatif(planted, orders=range(20, 23))
    lines = done.out.splitlines()

    assert lines[0].startswith(
        "✗ Please refund order 21: 'get_order before check_policy' does not hold: "
    )
    assert lines[0].endswith("[confirmed, same_calls]; message 2")
    assert any(line.startswith("? fast: not evaluated on 3 examples of now: ") for line in lines)
    assert done.status == 1


def test_a_match_of_the_configuration_decides_about_calls(whatif: WhatIf, tmp_path: Path) -> None:
    """Whoever writes a trajectory_match says which calls may differ."""
    (tmp_path / "oteval.yaml").write_text(
        "evaluators:\n"
        "  - {name: calls, type: trajectory_match, mode: unordered, reference: {example: true}}\n"
    )

    done = whatif(planted, orders=range(20, 23))

    assert done.out.startswith("None of 3 runs broke, 3 did not change.\n")
    assert done.status == 0
