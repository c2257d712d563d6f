"""The page of a run: its conversation, its scores, and why others are missing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oteval.model import Gap, Message, ToolCall
from oteval.store import Store

from .conftest import ShowPages, put, run, score

HUGE = 0xABC << 48
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m'\"<svg onload=x>"


def attributes_of(text: str) -> set[str]:
    """Return the names of all attributes in a page."""
    names: set[str] = set()

    class Names(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("style", "iframe", "object")
            names.update(name for name, _ in attrs)

    Names().feed(text)
    return names


def test_the_reason_of_a_fail_is_beside_the_message_it_speaks_of(shop: Store, pages: ShowPages):
    """A check that names a call by number is shown at the message that made the call."""
    text = pages(shop).get(f"/runs/{2:016x}").text
    line = text[text.index('id="m1"') :].split("</article>")[0]
    assert "→" not in line
    assert "get_order" in line
    assert "must not be made" in line
    assert "must not be made" not in text[text.index('id="m2"') :].split("</article>")[0]
    assert 'at <a href="#m1">message 1</a>' in text


def test_the_extra_call_of_a_match_is_marked_where_it_was_made(store: Store, pages: ShowPages):
    """A match's alignment identifies the call that the reference lacks."""
    calls = tuple(ToolCall(name, {}) for name in ("read", "refund"))
    trajectory = run(1, messages=[Message("user", "Hi"), Message("assistant", tool_calls=calls)])
    put(store, trajectory)
    metadata = {"alignment": [[0, 0]], "extra": 1, "missing": 0, "matched": 1}
    fail = {"passed": False, "score": 0.0, "comment": "extra 1 call: refund({})"}
    store.scores.write([score(trajectory, "match", metadata=metadata, **fail)])
    text = pages(store).get(f"/runs/{trajectory.id}").text
    assert "extra 1 call" in text[text.index('id="m1"') :].split("</article>")[0]


def test_the_conversation_has_calls_arguments_results_and_errors(store: Store, pages: ShowPages):
    """A failed result is marked in words and named after its tool; gaps have their remedy."""
    call = ToolCall("refund", {"amount": 42}, id="c9")
    trajectory = run(
        1,
        messages=[
            Message("system", "Be kind."),
            Message("user", "Refund me"),
            Message("assistant", tool_calls=(call,)),
            Message("tool", "Error: no money", tool_call_id="c9", is_error=True),
            Message("assistant"),
        ],
        gaps=(Gap("content_not_captured", "set CAPTURE=1", "0" * 16),),
    )
    put(store, trajectory)
    text = pages(store).get(f"/runs/{trajectory.id}").text
    assert "{ &#34;amount&#34;: 42 }" in text
    result = text[text.index('id="m3"') :].split("</article>")[0]
    assert "Error: no money" in result
    assert "failed" in result
    assert '<span class="fn">refund</span>' in result
    assert "content not captured" in text[text.index('id="m4"') :]
    assert "set CAPTURE=1" in text


def test_each_configured_evaluator_without_a_score_has_a_reason(
    shop: Store, pages: ShowPages, tmp_path: Path
):
    """The reason for a missing score is the filter, the attribute, the sample or the time."""
    path = tmp_path / "oteval.yaml"
    path.write_text(
        """
evaluators:
  - {name: calls, type: tool_errors}
  - {name: elsewhere, type: tool_errors, where: {agent: support}}
  - {name: gold, type: tool_errors, where: {attributes: {tier: gold}}}
  - {name: failing, type: tool_errors, where: {conditions: ["errors>0"]}}
  - {name: sampled, type: tool_errors, sample: 0}
  - {name: late, type: tool_errors}
"""
    )
    text = pages(shop, path).get(f"/runs/{1:016x}").text
    reasons = dict(
        re.findall(r"<dt>([\w-]+)</dt><dd>([^<]*)</dd>", text.split("Without a score")[1])
    )
    assert reasons["elsewhere"] == "It scores agent support; this run&#39;s is shop."
    assert reasons["gold"] == "It needs the attribute tier, which the run does not have."
    assert reasons["failing"] == "The condition errors&gt;0 does not hold."
    assert reasons["sampled"].startswith("The trace is not in the sample")
    assert reasons["late"].startswith("Not scored yet")
    assert "calls" not in reasons


def test_a_broken_configuration_is_named_and_the_run_still_shown(
    shop: Store, pages: ShowPages, tmp_path: Path
):
    """The page names the error and its line in the file; a fixed file is read again."""
    path = tmp_path / "oteval.yaml"
    path.write_text("evaluators: 5\n")
    client = pages(shop, path)
    text = client.get(f"/runs/{1:016x}").text
    assert "configuration cannot be read" in text
    assert "It is on its way." in text
    path.write_text("evaluators: [{name: late, type: tool_errors}]\n")
    assert "Not scored yet" in client.get(f"/runs/{1:016x}").text


def test_hostile_text_stays_text(store: Store, pages: ShowPages):
    """Markup is escaped, and control and bidirectional characters are visible, on every page."""
    call = ToolCall(HOSTILE, {HOSTILE: HOSTILE}, id=HOSTILE)
    trajectory = run(
        1,
        HOSTILE,
        agent=HOSTILE,
        messages=[
            Message("user", HOSTILE, name=HOSTILE),
            Message("assistant", HOSTILE, tool_calls=(call,), parts=({"type": HOSTILE},)),
            Message("tool", HOSTILE, tool_call_id=HOSTILE, is_error=True),
            Message(HOSTILE, HOSTILE),
        ],
        conversation_id=HOSTILE,
        service=HOSTILE,
        models=(HOSTILE,),
        gaps=(Gap("redacted", HOSTILE, HOSTILE),),
    )
    put(store, trajectory)
    store.scores.write(
        [
            score(
                trajectory,
                HOSTILE,
                passed=False,
                label=HOSTILE,
                comment=HOSTILE,
                metadata={"a": HOSTILE},
            )
        ]
    )
    client = pages(store)
    for path in ("/runs", f"/runs/{trajectory.id}", f"/runs/{trajectory.id}/spans"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "<svg onload" not in answer.text
        assert "\u202e" not in answer.text
        assert "\x1b" not in answer.text
        attributes = attributes_of(answer.text)
        assert not {name for name in attributes if name == "style" or name.startswith("on")}


def test_a_long_message_is_cut_with_a_link_to_the_whole(store: Store, pages: ShowPages):
    """The page has the beginning; the link has all of it as plain text."""
    long = "word " * 200_000
    trajectory = run(1, messages=[Message("user", "Hi"), Message("assistant", long)])
    put(store, trajectory)
    client = pages(store)
    text = client.get(f"/runs/{trajectory.id}").text
    assert len(text) < 40_000
    [link] = re.findall(r'href="([^"]+)">the whole message', text)
    whole = client.get(link)
    assert whole.text.strip() == long.strip()
    assert whole.headers["content-type"].startswith("text/plain")
    assert client.get(f"/runs/{trajectory.id}/messages/7").status_code == 404


def test_a_run_of_many_messages_is_shown_in_parts(store: Store, pages: ShowPages):
    """Each part has 200 messages, and the link of a score leads to the part with its message."""
    calls = [Message("assistant", tool_calls=(ToolCall("step", {}),)) for _ in range(450)]
    trajectory = run(1, messages=[Message("user", "Go"), *calls])
    put(store, trajectory)
    comment = "call 300 step({}) must not be made"
    store.scores.write([score(trajectory, "calls", passed=False, score=0.0, comment=comment)])
    client = pages(store)
    first = client.get(f"/runs/{trajectory.id}").text
    assert 'id="m199"' in first
    assert 'id="m200"' not in first
    [link] = re.findall(r'href="(\?from=\d+)#m301"', first)
    assert 'id="m301"' in client.get(f"/runs/{trajectory.id}{link}").text
    assert client.get(f"/runs/{trajectory.id}?from=x").status_code == 400


@pytest.mark.parametrize(
    ("way", "start", "search", "target"),
    [
        ("newer", 2, "", 3),
        ("older", 2, "", 1),
        ("failure", 4, "", 2),
        ("newer", 3, "agent=shop", None),
        ("older", 4, "agent=greeter", None),
        ("failure", 2, "", None),
    ],
)
def test_the_runs_around_a_run_are_those_of_the_search(
    shop: Store, pages: ShowPages, way: str, start: int, search: str, target: int | None
):
    """Links to newer, older and failing runs stay in the search, and its end is shown."""
    client = pages(shop)
    answer = client.get(f"/runs/{start:016x}/{way}", params={"q": search} if search else {})
    assert answer.status_code == 303
    headers = answer.headers["location"]
    assert headers.startswith(f"/runs/{start if target is None else target:016x}")
    assert ("end=" in headers) == (target is None)
    assert client.get(headers).status_code == 200


def test_the_beginning_of_an_id_leads_to_the_run(shop: Store, pages: ShowPages):
    """A short id is redirected; an ambiguous or unknown one is not found, with the reason."""
    client = pages(shop)
    put(shop, run(HUGE, start_ns=1, end_ns=2))
    assert client.get("/runs/0abc").headers["location"] == f"/runs/{HUGE:016x}"
    ambiguous = client.get("/runs/0000")
    assert ambiguous.status_code == 404
    assert "several" in ambiguous.text
    assert client.get("/runs/zzz").status_code == 404


def test_sub_agents_are_listed_on_the_page_of_the_run_that_called_them(
    store: Store, pages: ShowPages
):
    """The sub-agent's page leads back."""
    caller = run(1)
    called = run(2, "Look it up", agent="searcher", parent_id=caller.id)
    put(store, caller, called)
    client = pages(store)
    assert "searcher" in client.get(f"/runs/{caller.id}").text.split("Sub-agents")[1]
    assert f'href="/runs/{caller.id}"' in client.get(f"/runs/{called.id}").text


def test_a_run_that_changed_says_that_it_is_not_scored(
    store: Store, pages: ShowPages, tmp_path: Path
):
    """The earlier revision's pass does not count for the new one, and the page says why."""
    config = tmp_path / "oteval.yaml"
    config.write_text("evaluators:\n  - {name: calls, type: tool_errors}\n")
    put(store, run(1))
    store.scores.write([score(run(1), "calls", comment="as it should be")])
    put(store, run(1, "Something else"))

    text = pages(store, config).get(f"/runs/{1:016x}").text

    assert "Not scored since the run changed (revision 2)" in text
    assert "as it should be" not in text


def test_messages_of_earlier_turns_are_shown_on_demand(store: Store, pages: ShowPages):
    """The page has the run's own messages and a link to the earlier ones, all numbered."""
    before = run(1, "First question")
    own = (Message("user", "Second question"), Message("assistant", "Second answer"))
    after = run(2, messages=own, history=before, new_from=4, turn=2, conversation_id="c")
    put(store, before, after)
    store.scores.write([score(after, "x", passed=False, score=0.0, metadata={"answer": "Second"})])
    client = pages(store)
    text = client.get(f"/runs/{after.id}").text
    assert "First question" not in text
    [link] = re.findall(r'href="([^"]+)">show them', text)
    whole = client.get(link).text
    assert whole.index("First question") < whole.index("This run") < whole.index('id="m4"')
    assert '<a href="#m5">message 5</a>' in whole
    assert client.get(f"/runs/{after.id}/messages/0").text == "First question\n"
