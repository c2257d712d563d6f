"""The overview, alerts, variants, conversations and comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oteval.model import Message, ToolCall
from oteval.store import Store, StoredEpisode, StoredMark
from oteval.views.pages.app import create_app
from oteval.views.pages.search import FoundRuns
from oteval.views.pages.site import Site

from .conftest import SECOND, START, ShowPages, put, run, score

HOUR = 3600 * SECOND


def plain(text: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", text.split("<main")[1]).split())


def failing_calls(number: int, name: str, **fields: object):
    """Return a run that calls a tool, which fails."""
    messages = [
        Message("user", "Refund me"),
        Message("assistant", tool_calls=(ToolCall(name, {"n": number}, id="c"),)),
        Message("tool", "Error", tool_call_id="c", is_error=True),
    ]
    return run(number, messages=messages, **fields)


def test_the_overview_has_agents_by_evaluators(store: Store, pages: ShowPages):
    """A row has the pass rate with its interval and the counts; fails link to their runs."""
    runs = [run(number) for number in range(1, 11)]
    put(store, *runs, run(11, agent="", service="batch"))
    fails = {"passed": False, "score": 0.0}
    store.scores.write([score(run, "calls", **fails) for run in runs[:2]])
    store.scores.write([score(run, "calls") for run in runs[2:]])
    store.scores.write([score(runs[0], "tone", status="error", passed=None, score=None)])
    client = pages(store)
    text = client.get("/").text
    page_text = plain(text)
    assert "calls 80.0% 44.4% to 97.5% 44.4% – 97.5% 8 2 0 0" in page_text
    assert "tone nothing passed or failed 0 0 1 0" in page_text
    assert "batch service without an agent" in page_text
    assert "runs 10" in page_text
    [link] = re.findall(r'<a class="bad" href="(/runs[^"]+)">2</a>', text)
    answer = client.get(link.replace("&amp;", "&"))
    assert answer.text.count("data-id=") == 2


def test_a_score_of_a_run_that_was_scored_again_counts_once(store: Store, pages: ShowPages):
    """The newest score of an evaluator on a run counts, whatever its version."""
    put(store, run(1))
    store.scores.write([score(run(1), "calls", passed=False, score=0.0), score(run(1), "calls")])
    assert "100.0%" in plain(pages(store).get("/").text)


def test_a_period_ends_with_the_newest_run(store: Store, pages: ShowPages):
    """Runs before the period do not count; an unknown period is refused."""
    put(store, run(1, start_ns=START - 240 * HOUR, end_ns=START), run(2))
    client = pages(store)
    assert "1 run from" in plain(client.get("/").text)
    assert "2 runs from" in plain(client.get("/?period=30d").text)
    assert client.get("/?period=1y").status_code == 400


def test_a_wrong_clock_does_not_empty_the_overview(store: Store, pages: ShowPages):
    """A run in the future does not end the period, and omitted runs are counted."""
    future = START + 876_000 * HOUR
    timeless = run(4, start_ns=0, end_ns=0)
    put(store, run(1), run(2), run(3, start_ns=future, end_ns=future), timeless)
    store.scores.write([score(run(1), "calls")])
    client = pages(store)
    text = plain(client.get("/").text)
    assert "2 runs from" in text
    assert "Left out: 1 without a time, 1 that began in the future" in text
    text = plain(client.get("/?period=all").text)
    assert "3 runs from" in text
    assert "Left out: 1 without a time." in text
    assert "runs 1 passed 1" in plain(client.get("/evaluators/calls").text)


def test_runs_that_are_all_in_the_future_are_shown(store: Store, pages: ShowPages):
    """A wrong clock on this machine does not empty the overview."""
    future = START + 876_000 * HOUR
    put(store, run(1, start_ns=future, end_ns=future))
    assert "1 run from" in plain(pages(store).get("/").text)


def test_the_overview_of_an_empty_store_says_how_to_fill_it(store: Store, pages: ShowPages):
    """It names the commands that load and receive traces."""
    assert "oteval ingest FILE" in pages(store).get("/").text


async def test_figures_are_kept_until_the_store_grows(store: Store):
    """Figures are computed again only when there is a new run."""
    site = Site("test", store.sibling, patience=0)
    calls: list[int] = []

    def count(read: Store) -> int:
        calls.append(1)
        return read.trajectories.count()

    assert [await site.cached("count", count) for _ in range(3)] == [0, 0, 0]
    assert len(calls) == 1
    put(store, run(1))
    assert await site.cached("count", count) == 1
    site.close()


def episode(**fields: object) -> StoredEpisode:
    """Return an episode of a monitor of pass rates."""
    values: dict[str, object] = {
        "episode_id": "e1",
        "monitor": "rates",
        "group": json.dumps(["shop"]),
        "version": "",
        "side": "worse",
        "alarm_ns": START,
        "change_ns": START - HOUR,
        "change_from_ns": START - 2 * HOUR,
        "change_to_ns": START,
        "before": 0.9,
        "after": 0.5,
        "observations": 40,
        "opened_ns": START,
        "runs": [f"{2:016x}"],
        "runs_before": [f"{1:016x}"],
        "evidence": json.dumps(
            {
                "before_interval": [0.8, 0.95],
                "slices": [
                    {"dimension": "tool", "value": "<i>refund", "before": 0.9, "after": 0.2}
                ],
            }
        ),
    }
    return StoredEpisode(**{**values, **fields})  # type: ignore[arg-type]


def test_alerts_have_their_evidence_and_runs(shop: Store, pages: ShowPages):
    """Lasting alerts come first and are on the overview; ended ones have the reason."""
    ended = episode(episode_id="e0", monitor="old", ended_ns=START, end_reason="recovered")
    shop.monitors.put_episodes([ended, episode()])
    client = pages(shop)
    text = client.get("/alerts").text
    page_text = plain(text)
    assert page_text.index("rates got worse for shop") < page_text.index("old got worse")
    assert "0.9 (0.8 to 0.95)" in page_text
    assert "tool=&lt;i&gt;refund: 0.9 to 0.2" in page_text
    assert "recovered" in page_text
    assert f'href="/runs/{2:016x}"' in text
    assert "rates" in client.get("/").text.split("Alerts that last")[1]
    assert 'href="/alerts#e0"' not in client.get("/").text


def test_changes_without_a_new_run_or_score_are_shown(shop: Store):
    """An alert, a mark and the deletion of a run change the overview and the variants."""
    site = Site("test", shop.sibling, patience=0)
    client = TestClient(create_app(site), base_url="http://127.0.0.1")
    assert "4 runs" in plain(client.get("/").text)
    assert episode().monitor not in client.get("/").text
    assert "4 runs" in plain(client.get("/variants").text)

    shop.monitors.put_episodes([episode()])
    assert episode().monitor in client.get("/").text
    shop.monitors.add_mark(StoredMark(START + 2 * SECOND, "mark", "deploy-9", "web", "", START))
    assert "deploy-9" in client.get("/").text
    shop.deletion.delete([run(4).root_span.trace_id])
    assert "3 runs" in plain(client.get("/").text)
    assert "3 runs" in plain(client.get("/variants").text)
    site.close()


def test_the_link_of_a_service_leads_to_its_runs_without_an_agent(store: Store, pages: ShowPages):
    """A service's row counts runs without an agent, and its links list the same runs."""
    put(store, run(1, agent=""), run(2), run(3, agent=""))
    text = pages(store).get("/").text
    link = next(iter(re.findall(r'href="(/runs\?[^"]*service[^"]*)"', text)))
    listed = pages(store).get(link.replace("&amp;", "&")).text
    assert set(re.findall(r'data-id="0*(\d)"', listed)) == {"1", "3"}


def test_a_store_without_monitors_says_how_to_get_alerts(store: Store, pages: ShowPages):
    """The page names the key of the configuration and the command."""
    assert "oteval monitor check" in pages(store).get("/alerts").text


def test_variants_have_a_graph_of_tools_and_a_row_for_each_sequence(store: Store, pages: ShowPages):
    """The search filters the runs; filters by outcome are refused."""
    put(store, run(1), run(2), failing_calls(3, "refund", agent="other"))
    store.scores.write([score(run(1), "calls")])
    client = pages(store)
    text = client.get("/variants").text
    assert "2 sequences of tools in 3 runs" in plain(text)
    assert '<svg class="graph"' in text
    assert re.search(r"get_order 2 66\.7% 100\.0%", plain(text))
    page_text = plain(client.get("/variants?q=agent%3Dother").text)
    assert "1 sequence of tools in 1 run" in page_text
    assert client.get("/variants?q=passed%3Dtrue").status_code == 400


def test_conversations_are_listed_once_with_their_turns(store: Store, pages: ShowPages):
    """A conversation is listed at its latest run; its page has the turns in order."""
    first = [run(n, f"turn {n}", conversation_id="a/b c", turn=n) for n in (1, 2, 3)]
    second = run(4, "other", conversation_id="d")
    put(store, *first, second, run(5))
    store.scores.write([score(first[1], "calls", passed=False, score=0.0, comment="bad")])
    client = pages(store)
    text = client.get("/conversations").text
    assert text.count("data-id=") == 2
    assert "3 turns" in text
    assert "1 failing" in text
    [link] = re.findall(r'href="(/conversations/a[^"]*)"', text)
    turns = client.get(link).text
    assert [turns.index(f"turn {n}") for n in (1, 2, 3)] == sorted(
        turns.index(f"turn {n}") for n in (1, 2, 3)
    )
    assert client.get("/conversations/none").status_code == 404


def listed_conversations(client: TestClient, address: str) -> list[str]:
    """Return the conversations of a list, over all its pages."""
    seen: list[str] = []
    while address:
        text = client.get(address).text
        seen += re.findall(r'href="/conversations/(c\d+)"', text)
        link = re.search(r'rel="next" href="([^"]+)"', text)
        address = link[1].replace("&amp;", "&") if link else ""
    return seen


def test_conversations_have_pages(store: Store, pages: ShowPages):
    """Following the links shows each conversation once."""
    put(store, *(run(n, conversation_id=f"c{n % 100}") for n in range(1, 501)))
    seen = listed_conversations(pages(store), "/conversations")
    assert sorted(seen) == sorted(f"c{n}" for n in range(100))


@pytest.mark.parametrize("query", ["agent=two", "agent=two passed=false", "refund"])
@pytest.mark.slow
def test_a_search_lists_the_conversations_in_which_a_run_matches(
    query: str, store: Store, pages: ShowPages
):
    """Each conversation is on one page, even if its newer runs do not match the search."""
    runs = []
    for n in range(1, 901):
        is_found = n % 3 == 0
        agent, question = ("two", "a refund") if is_found else ("one", "hello")
        talk, begun = f"c{n % 200}" if n < 800 else "", START + n // 7 * SECOND
        runs.append(run(n, question, agent=agent, conversation_id=talk, start_ns=begun))
    put(store, *runs)
    store.scores.write([score(run, "calls", passed=False) for run in runs])
    seen = listed_conversations(pages(store), f"/conversations?q={query}")
    expected = {run.conversation_id for run in runs if run.agent == "two"} - {""}
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("query", ["", "?q=agent%3Dshop", "?q=turn"])
@pytest.mark.slow
def test_a_conversation_of_a_thousand_runs_hides_no_other(
    query: str, store: Store, pages: ShowPages
):
    """A constant session id is one conversation; only its latest scores are read."""
    runs = [run(n, f"turn {n}", conversation_id="c0") for n in range(1, 1001)]
    for n in range(1, 50):
        start = START + n * 20 * SECOND + 1
        runs.append(run(5000 + n, "turn", conversation_id=f"c{n}", start_ns=start))
    put(store, *runs)
    store.scores.write([score(run, "calls", passed=False) for run in runs])
    client = pages(store)
    assert sorted(listed_conversations(client, f"/conversations{query}")) == sorted(
        f"c{n}" for n in range(50)
    )
    page_text = plain(client.get(f"/conversations{query}").text)
    assert "1,000 turns" in page_text
    assert "200 failing of the latest 200" in page_text


def test_a_conversation_is_shown_by_its_latest_run_that_matches(store: Store, pages: ShowPages):
    """Turns and failures are counted over the whole conversation."""
    put(
        store,
        run(1, "about a refund", conversation_id="c1", turn=1),
        run(2, "thanks", conversation_id="c1", turn=2),
        run(3, "hello", conversation_id="c2"),
        run(4, "a refund, and no conversation"),
    )
    client = pages(store)
    text = client.get("/conversations?q=refund").text
    assert text.count("data-id=") == 1
    assert "about a refund" in text
    assert "2 turns" in text
    assert "in which a run matches refund" in plain(text)
    assert "No run of a conversation matches." in plain(client.get("/conversations?q=parrot").text)
    assert client.get("/conversations?q=nothing%3D1").status_code == 400


def compared(client: TestClient, query: str) -> str:
    """Return the text of a comparison."""
    answer = client.get(f"/compare?{query}")
    assert answer.status_code == 200
    return answer.text


def test_two_runs_are_aligned_and_the_first_divergence_is_marked(store: Store, pages: ShowPages):
    """The words that differ are marked, and equal messages far from them are folded."""
    talk = [Message("user", f"Question {n}") for n in range(6)]
    first = run(1, messages=[*talk, Message("assistant", "It costs 420.00 EUR.")])
    second = run(2, messages=[*talk, Message("assistant", "It costs 42.00 EUR.")])
    put(store, first, second)
    client = pages(store)
    text = compared(client, f"a={first.id}&b={second.id}")
    assert "1 of 7 rows differs" in plain(text)
    assert "It costs <mark>420.00</mark> EUR." in text
    assert "It costs <mark>42.00</mark> EUR." in text
    assert "5 equal messages" in text
    assert text.index('id="first"') < text.index("First divergence")
    same = compared(client, f"a={first.id}&b={first.id}")
    assert "No difference in 7 messages" in plain(same)


def test_a_failing_run_is_compared_with_the_last_one_that_passed(store: Store, pages: ShowPages):
    """A passing run with the same question is preferred; without one, the page says so."""
    runs = [run(1, "Where is it?"), run(2, "Other"), run(3, "Where is it?")]
    put(store, *runs)
    store.scores.write([score(run, "calls") for run in runs[:2]])
    store.scores.write([score(runs[2], "calls", passed=False, score=0.0)])
    client = pages(store)
    assert f"/compare?a={runs[2].id}&amp;b=pass" in client.get(f"/runs/{runs[2].id}").text
    answer = client.get(f"/compare?a={runs[2].id}&b=pass")
    assert answer.headers["location"] == f"/compare?a={runs[2].id}&b={runs[0].id}"
    put(store, run(9, agent="lonely"))
    assert client.get(f"/compare?a={run(9).id}&b=pass").status_code == 404


def test_a_run_is_compared_with_the_reference_of_an_evaluator(
    store: Store, pages: ShowPages, tmp_path: Path
):
    """The reference of the configuration is the right side; an unknown evaluator is not found."""
    reference = [{"role": "user", "content": "Where is my order?"}]
    call = {"name": "refund", "arguments": '{"id": 1}'}
    reference.append({"role": "assistant", "tool_calls": [{"id": "x", "function": call}]})  # type: ignore[dict-item]
    (tmp_path / "wanted.json").write_text(json.dumps(reference))
    path = tmp_path / "oteval.yaml"
    path.write_text(
        "evaluators: [{name: calls, type: trajectory_match, mode: strict, reference: wanted.json}]"
    )
    put(store, run(1))
    store.scores.write([score(run(1), "calls", passed=False, score=0.0, comment="wrong")])
    client = pages(store, path)
    assert "with the reference of calls" in client.get(f"/runs/{1:016x}").text
    text = compared(client, f"a={1:016x}&reference=calls")
    assert "refund" in text
    assert "the reference of calls" in text
    assert client.get(f"/compare?a={1:016x}&reference=none").status_code == 404
    assert pages(store).get(f"/compare?a={1:016x}&reference=calls").status_code == 400


def test_a_reference_of_calls_is_compared_with_the_calls_alone(
    store: Store, pages: ShowPages, tmp_path: Path
):
    """The reference has all calls in one message, and neither results nor an answer."""
    calls = [ToolCall("look", {"id": 1}, "a"), ToolCall("refund", {"amount": 42}, "b")]
    reference = [{"role": "user", "content": "Money back"}]
    reference.append(Message("assistant", tool_calls=tuple(calls)).as_dict())
    (tmp_path / "wanted.json").write_text(json.dumps(reference))
    path = tmp_path / "oteval.yaml"
    path.write_text(
        "evaluators: [{name: calls, type: trajectory_match, mode: strict, reference: wanted.json}]"
    )
    messages = [
        Message("user", "Money back"),
        Message("assistant", "I look.", (calls[0],)),
        Message("tool", "found", tool_call_id="a"),
        Message("assistant", tool_calls=(ToolCall("refund", {"amount": 420}, "b"),)),
        Message("tool", "done", tool_call_id="b"),
        Message("assistant", "Done."),
    ]
    put(store, run(1, messages=messages))
    text = compared(pages(store, path), f"a={1:016x}&reference=calls")
    assert "1 of 3 rows differs" in plain(text)
    assert "the first divergence is at message 3 of the first and 1 of the second" in plain(text)
    assert "<mark>420</mark>" in text
    assert "not compared: text beside calls, tool results, answers." in plain(text)


def test_a_comparison_needs_two_sides(shop: Store, pages: ShowPages):
    """Otherwise the page says how to name them."""
    answer = pages(shop).get(f"/compare?a={1:016x}")
    assert answer.status_code == 400
    assert "compare two runs" in answer.text
    assert pages(shop).get(f"/compare?a={1:016x}&b=nope").status_code == 404


def test_a_late_divergence_is_shown_in_a_long_comparison(store: Store, pages: ShowPages):
    """A limited comparison shows the rows around the first divergence."""
    same = [Message("user" if at % 2 else "assistant", f"same {at}") for at in range(2000)]
    put(store, run(1, messages=[*same, Message("assistant", "the one end")]))
    put(store, run(2, messages=[*same, Message("assistant", "the other end")]))

    text = pages(store).get(f"/compare?a={1:016x}&b={2:016x}").text

    assert "the <mark>one</mark> end" in text
    assert "the <mark>other</mark> end" in text
    assert "First divergence" in text
    assert "1,401 more rows" in text


def test_a_later_pass_is_compared_only_without_an_earlier_one(store: Store, pages: ShowPages):
    """A pass before the failing run comes first, even if a later one has the same question."""
    runs = [run(1, "Other"), run(2, "Where is it?"), run(3, "Where is it?")]
    put(store, *runs)
    store.scores.write([score(runs[1], "calls", passed=False, score=0.0), score(runs[2], "calls")])
    client, path = pages(store), f"/compare?a={runs[1].id}&b="
    assert client.get(path + "pass").headers["location"] == path + runs[2].id
    store.scores.write([score(runs[0], "calls")])
    assert client.get(path + "pass").headers["location"] == path + runs[0].id


def test_a_pass_wherever_a_run_failed_is_compared_first(store: Store, pages: ShowPages):
    """An earlier run that passes both evaluators is preferred to one that passes only one."""
    runs = [run(1, "Other"), run(2), run(3)]
    put(store, *runs)
    store.scores.write(
        [
            *(score(runs[2], name, passed=False, score=0.0) for name in ("calls", "tone")),
            *(score(runs[0], name) for name in ("calls", "tone")),
            score(runs[1], "calls"),
            score(runs[1], "tone", passed=False, score=0.0),
        ]
    )
    path = f"/compare?a={runs[2].id}&b="
    assert pages(store).get(path + "pass").headers["location"] == path + runs[0].id


def test_deployments_are_marks_with_a_text(store: Store, pages: ShowPages):
    """A mark of a service is on the drawings of its agents, with its name and time as text."""
    put(store, run(1), run(3601), run(2, agent="other", service="else"))
    store.scores.write([score(run(number), "calls") for number in (1, 3601)])
    when = START + HOUR // 2
    store.monitors.add_mark(StoredMark(when, "version", "web <b>2.1", "web", "<b>2.1", when))
    store.monitors.add_mark(StoredMark(START - HOUR, "mark", "too early", "", "", when))
    text = pages(store).get("/").text
    shop, other = text.split('class="agent-block"')[1:]
    assert "deployments web &lt;b&gt;2.1, 2026-11-18 11:36 UTC" in plain(f"<main{shop}")
    label = 'aria-label="pass rate over time; deployments: web &lt;b&gt;2.1, 2026-11-18 11:36 UTC"'
    assert label in shop
    assert shop.count('<path class="deployed" d="M84.0 0V24">') == 2
    assert "deployed" not in other
    assert "too early" not in text


def test_a_search_for_a_pass_that_stopped_does_not_claim_that_there_is_none(
    shop: Store, pages: ShowPages, monkeypatch: pytest.MonkeyPatch
):
    """A truncated search says so; only a complete one says that no run passes."""
    client, address = pages(shop), f"/compare?a={1:016x}&b=pass"
    monkeypatch.setattr(
        "oteval.views.pages.compare.find_runs", lambda *_, **__: FoundRuns((), is_cut=True)
    )
    assert "the search stopped" in client.get(address).text
    monkeypatch.setattr("oteval.views.pages.compare.find_runs", lambda *_, **__: FoundRuns(()))
    assert "passes to compare with" in client.get(address).text
