"""The list of runs: verdicts with reasons, filters, pages, and runs that arrive."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from markupsafe import escape

from oteval.base.errors import ConfigError
from oteval.model import Message, ToolCall
from oteval.model.selection import Selection
from oteval.store import RunKey, Store, VerdictFilter
from oteval.views.pages.events import StoreChanges
from oteval.views.pages.overview import search_word
from oteval.views.pages.search import RunSearch, find_runs, narrowed, parse_search
from oteval.views.run_texts import cost_text

from .conftest import SECOND, ShowPages, put, run, score


def ids(text: str) -> list[int]:
    """Return the numbers of the runs of a page, in its order."""
    return [int(name, 16) for name in re.findall(r'data-id="([0-9a-f]+)"', text)]


def test_the_newest_run_comes_first_with_its_verdicts_and_sizes(shop: Store, pages: ShowPages):
    """A line has the agent, the question, a mark for each evaluator, and the sizes of the run."""
    text = pages(shop).get("/runs").text
    assert ids(text) == [4, 3, 2, 1]
    line = text[text.index('data-id="0000000000000002"') :].split("</li>")[0]
    assert "Refund my &lt;b&gt;headphones&lt;/b&gt;" in line
    assert re.search(r'mark fail"[^>]*><b[^>]*>✗</b><span class="sr">fail: </span>calls', line)
    assert re.search(r'mark pass"[^>]*><b[^>]*>✓</b><span class="sr">pass: </span>tone', line)
    assert "calls: call 0 get_order" in line
    assert "<dd>500 ms</dd>" in line
    assert "<dd>1,100</dd>" in line
    assert re.search(r"<dd>\$0\.000\d+</dd>", line)


def test_a_line_has_the_failures_that_a_search_counts(store: Store, pages: ShowPages):
    """A failed result of an earlier turn's call counts, although no call of the run failed."""
    late = Message("tool", "refused", (), "call-of-the-turn-before", is_error=True)
    trajectory = run(1)
    put(store, replace(trajectory, tail=(late, *trajectory.tail)))
    client = pages(store)

    assert ids(client.get("/runs", params={"q": "errors=1"}).text) == [1]
    assert "1 failed" in client.get("/runs").text


def test_a_run_that_was_not_evaluated_is_neither_passed_nor_failed(shop: Store, pages: ShowPages):
    """The mark of the evaluator is a question mark, and the line has the reason."""
    text = pages(shop).get("/runs").text
    line = text[text.index('data-id="0000000000000003"') :].split("</li>")[0]
    assert "not evaluated: </span>calls" in line
    assert "calls: cut" in line
    assert "pass" not in line


@pytest.mark.parametrize(
    ("search", "numbers"),
    [
        ("agent=greeter", [4]),
        ("passed=false", [2]),
        ("passed=true", [2, 1]),
        ("passed=true evaluator=calls", [1]),
        ("status=not_evaluated", [3]),
        ("evaluator=calls", [3, 2, 1]),
        ("HEADPHONES", [2]),
        ('"refund my" passed=false', [2]),
        ('"refund my" passed=true evaluator=calls', []),
        ("gap=redacted", [3]),
        ("since=2026-11-18T11:06:43", [4, 3]),
        ("until=2026-11-18T11:06:42", [1]),
        ("tool=get_order calls>0 agent!=greeter", [3, 2, 1]),
        ("asked~^C", [3]),
        ("<b>", [2]),
    ],
)
def test_the_search_takes_the_filters_of_the_command_line(
    shop: Store, pages: ShowPages, search: str, numbers: list[int]
):
    """Conditions, times, outcomes and words can be combined; all of them must hold."""
    answer = pages(shop).get("/runs", params={"q": search})
    assert answer.status_code == 200
    assert ids(answer.text) == numbers


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        ("color=red", "unknown field"),
        ("errors>many", "compares with a number"),
        ("asked~(", "invalid regular expression"),
        ("passed=maybe", "write passed=true or passed=false"),
        ("since=soon", "write a date"),
        ("since>1d", "write since=..."),
        ("since=", "give a time"),
        ("calls=abc", "compares with a number"),
        ("errors!=nan", "compares with a number"),
        ("passed=false status=error", "a search has one outcome"),
        ("since=1d since=2d", "a search has one since=..."),
        ('agent="shop', "a quote in the search has no end"),
        ('5" screen', "a quote in the search has no end"),
        ("x" * 3000, "more than 2,000 characters"),
    ],
)
def test_a_wrong_search_is_answered_with_its_reason(
    shop: Store, pages: ShowPages, search: str, reason: str
):
    """The page has the status 400, the reason, and the search to correct."""
    answer = pages(shop).get("/runs", params={"q": search})
    assert answer.status_code == 400
    assert reason in answer.text
    assert f'value="{escape(search[:5])}' in answer.text
    with pytest.raises(ConfigError):
        parse_search(search)


def test_pages_follow_each_other_without_gaps(store: Store, pages: ShowPages):
    """Following the links to older runs shows every run once, even runs of the same instant."""
    put(store, *(run(number, start_ns=10**18 + number // 7) for number in range(1, 121)))
    client, address = pages(store), "/runs"
    seen: list[int] = []
    while address:
        text = client.get(address).text
        seen += ids(text)
        link = re.search(r'rel="next" href="([^"]+)"', text)
        address = link[1].replace("&amp;", "&") if link else ""
    assert sorted(seen) == list(range(1, 121))
    assert len(client.get("/runs").text) > 0
    assert '<span id="count">120</span>' in client.get("/runs").text


@pytest.mark.parametrize("is_forward", [False, True])
def test_runs_that_began_far_from_each_other_are_all_listed(store: Store, is_forward: bool):
    """Long pauses and a run without a time neither hide a run nor change the order."""
    starts = [0, 5, *(10**18 + 10 ** (number % 15) for number in range(40)), 2 * 10**18]
    put(store, *(run(number, start_ns=start) for number, start in enumerate(starts, 1)))
    listed, after = [], None
    while keys := store.run_list.keys(Selection(), 7, after=after, is_forward=is_forward):
        listed += keys
        after = keys[-1]
    assert listed == sorted(listed, reverse=not is_forward)
    assert sorted(key.start_ns for key in listed) == sorted(starts)


@pytest.mark.parametrize("is_forward", [False, True])
@pytest.mark.parametrize("most", [3, 9, 300])
@pytest.mark.slow
def test_rare_runs_are_listed_in_their_order_wherever_they_are(
    store: Store, is_forward: bool, most: int
):
    """Each searched period adds its runs once, even runs of the same instant."""
    chance = random.Random(most)
    rare = set(chance.sample(range(1, 3001), 40))
    agents = {number: "rare" if number in rare else "common" for number in range(1, 3001)}
    put(
        store,
        *(run(at, start_ns=10**18 + at // 7, agent=agent) for at, agent in agents.items()),
    )
    listed, after = [], None
    chosen = Selection(agents=("rare",))
    while keys := store.run_list.keys(chosen, most, after=after, is_forward=is_forward):
        listed += keys
        after = keys[-1]
    assert [int(key.id, 16) for key in listed] == sorted(rare, reverse=not is_forward)


def test_a_run_that_was_reconstructed_again_counts_once(store: Store):
    """The number of runs leaves out earlier revisions."""
    put(store, *(run(number) for number in range(1, 6)))
    put(store, run(2, "another question"), run(3, "another question"))
    assert store.run_list.count(Selection(), 10) == 5
    assert store.run_list.count(Selection(agents=("shop",)), 10) == 5


@pytest.mark.parametrize("few", [2, 10_000])
def test_runs_with_a_verdict_are_the_same_however_many_have_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
):
    """The same runs match whether few or many have a verdict; times and agents apply."""
    monkeypatch.setattr("oteval.store.run_list._FEW_SCORED", few)
    runs = [run(at, agent="shop" if at % 2 else "desk") for at in range(1, 41)]
    put(store, *runs)
    store.scores.write([score(run, "calls", passed=at % 3 > 0) for at, run in enumerate(runs, 1)])
    failing = VerdictFilter("fail", ("calls", "other"))

    def failing_ids(**chosen: Any) -> list[int]:
        after = chosen.pop("after", None)
        keys = store.run_list.keys(Selection(**chosen), 5, after=after, verdict=failing)
        return [int(key.id, 16) for key in keys]

    assert failing_ids() == [39, 36, 33, 30, 27]
    assert failing_ids(agents=("shop",)) == [39, 33, 27, 21, 15]
    assert failing_ids(since_ns=runs[32].start_ns) == [39, 36, 33]
    assert failing_ids(after=RunKey(runs[8].start_ns, runs[8].id)) == [6, 3]
    assert failing_ids(agents=("nobody",)) == []


def test_counting_ends_at_a_limit(store: Store):
    """A search is counted up to a limit; all runs always are."""
    put(store, *(run(number) for number in range(1, 31)))
    assert store.run_list.count(Selection(agents=("shop",)), 10) == 10
    assert store.run_list.count(Selection(agents=("none",)), 10) == 0
    assert store.run_list.count(Selection(), 10) == 30


def test_a_search_that_reads_runs_stops_after_a_while_and_continues(store: Store):
    """Each result has the key for the next page, and the pages contain every run."""
    put(store, *(run(number, f"question {number}") for number in range(1, 1001)))
    search, ticks = parse_search("asked~question.*1$"), iter(range(10_000))
    numbers, after, pages = [], None, 0
    while True:
        part = find_runs(store, search, 50, after=after, clock=lambda: float(next(ticks)))
        numbers += [int(key.id, 16) for key in part.keys]
        pages, after = pages + 1, part.after
        if after is None:
            break
        assert part.is_cut
    assert numbers == list(range(991, 0, -10))
    assert pages > 1


def test_words_are_found_whatever_they_are(store: Store, pages: ShowPages):
    """Braces, quotes, backslashes and letters beyond ASCII are text, in any case."""
    questions = ["It's {first} 100%", 'say "hi" now', "back\\slash", "Grüße an ALLE", "plain"]
    put(store, *(run(number, text) for number, text in enumerate(questions, 1)))
    client = pages(store)
    for number, word in enumerate(["it's {FIRST}", "say", "back\\slash", "GRÜSSE", "PLAIN"], 1):
        numbers = ids(client.get("/runs", params={"q": f'"{word}"'}).text)
        assert numbers == ([number] if word != "GRÜSSE" else [])
    assert ids(client.get("/runs", params={"q": "grüße"}).text) == [4]
    assert ids(client.get("/runs", params={"q": "get_order"}).text) == []


def test_quotes_in_a_text_are_found(store: Store, pages: ShowPages):
    """A search for a quote matches although JSON escapes it."""
    put(store, run(1, 'Refund "my" headphones'), run(2, "Refund my headphones"))
    assert ids(pages(store).get("/runs", params={"q": '"refund ""my"" head"'}).text) == [1]


def test_a_word_that_most_runs_say_is_found_page_by_page(store: Store):
    """Runs filtered by the store and runs filtered after reading have one order."""
    put(store, *(run(n, "common" if n % 3 else "other") for n in range(1, 1501)))
    search, numbers, after = parse_search("common"), [], None
    while True:
        part = find_runs(store, search, 70, after=after, patience=60)
        numbers += [int(key.id, 16) for key in part.keys]
        if (after := part.after) is None:
            break
    assert numbers == [n for n in range(1500, 0, -1) if n % 3]


def test_an_earlier_fail_does_not_count_after_a_run_was_scored_again(shop: Store, pages: ShowPages):
    """passed=false finds runs by their newest score of each evaluator."""
    shop.scores.write([score(run(2), "calls")])
    assert ids(pages(shop).get("/runs?q=passed%3Dfalse").text) == []


def test_the_id_of_a_run_or_trace_leads_to_the_run(shop: Store, pages: ShowPages):
    """A search of an id alone redirects to the page of the run."""
    answer = pages(shop).get("/runs", params={"q": f"{2:032x}"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{2:016x}")


def test_links_of_filters_replace_one_that_cannot_hold_as_well():
    """Another outcome or time replaces the previous one; conditions are added."""
    assert narrowed("agent=shop passed=false", "status=error") == "agent=shop status=error"
    assert narrowed('since=2h "since=x" errors>0', "since=1d") == '"since=x" errors>0 since=1d'
    assert narrowed("agent=shop", "errors>0") == "agent=shop errors>0"


def test_a_relative_time_moves():
    """The results of a search since an hour ago change a minute later."""
    now, later = (RunSearch("since=1h", Selection(since_ns=ns * SECOND)) for ns in (6000, 6060))
    assert now.key != later.key
    assert parse_search("since=2026-11-01").key == parse_search("since=2026-11-01").key


def test_a_wrong_key_is_refused(shop: Store, pages: ShowPages):
    """A page with an invalid start has the status 400."""
    answer = pages(shop).get("/runs?after=yesterday")
    assert answer.status_code == 400
    assert "not the key of a run" in answer.text


def test_an_empty_store_says_how_to_fill_it(store: Store, pages: ShowPages):
    """The list names the commands that load and receive traces."""
    assert "oteval ingest FILE" in pages(store).get("/runs").text


def test_many_passes_are_counted_in_one_mark(store: Store, pages: ShowPages):
    """With more than three verdicts, only non-passing ones are named."""
    trajectory = run(1)
    put(store, trajectory)
    store.scores.write([score(trajectory, f"check-{number}") for number in range(5)])
    store.scores.write([score(trajectory, "tone", passed=False, score=0.0, comment="rude")])
    text = pages(store).get("/runs").text
    assert "5 passed" in text
    assert "fail: </span>tone" in text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0.0, "$0"),
        (2e-9, "< $0.000001"),
        (0.00005, "$0.00005"),
        (0.0123, "$0.0123"),
        (1234.5, "$1,234.50"),
    ],
)
def test_costs_have_a_few_digits(dollars: float, text: str):
    """Nothing is $0, and a tiny cost is not nothing."""
    assert cost_text(dollars) == text


def test_the_rows_alone_can_be_asked_for(shop: Store, pages: ShowPages):
    """A live page requests the rows and the count of the same search."""
    answer = pages(shop).get("/runs?q=agent%3Dshop&rows=1")
    assert ids(answer.text) == [3, 2, 1]
    assert "<html" not in answer.text
    assert '<span id="count">3</span>' in answer.text


async def test_listeners_are_told_of_each_change_once():
    """A listener that has seen the current state waits; others are notified at once."""
    states: asyncio.Queue[str] = asyncio.Queue()
    changes = StoreChanges(states.get, interval=0)
    early, late = changes.after("0.0"), changes.after("1.0")
    states.put_nowait("1.0")
    assert await anext(early) == "1.0"
    waiting = asyncio.create_task(anext(late))
    states.put_nowait("1.0")
    states.put_nowait("2.5")
    assert await anext(early) == "2.5"
    assert await waiting == "2.5"
    await early.aclose()
    await late.aclose()


async def test_lines_end_when_the_server_stops():
    """A listener that waits is released."""
    changes = StoreChanges(asyncio.Queue[str]().get)
    lines = changes.after("")
    waiting = asyncio.create_task(anext(lines, "ended"))
    await asyncio.sleep(0)
    changes.close()
    assert await waiting in ("", "ended")
    assert await anext(lines, "ended") == "ended"


async def test_lines_end_when_the_listener_may_no_longer_read(monkeypatch: pytest.MonkeyPatch):
    """A revoked token ends open event streams, even while no event is sent."""
    monkeypatch.setattr("oteval.views.pages.events._CHECK_INTERVAL", 0.0)
    states: asyncio.Queue[str] = asyncio.Queue()
    changes = StoreChanges(states.get, interval=0)
    answers = iter([True, True, True, False])
    lines = changes.after("", lambda: next(answers, False))
    states.put_nowait("1.0")
    assert [state async for state in lines] in (["1.0"], [])
    states.put_nowait("2.0")
    assert await anext(changes.after("", lambda: False), "ended") == "ended"


def test_a_search_that_stops_says_how_far_it_looked(
    store: Store, pages: ShowPages, monkeypatch: pytest.MonkeyPatch
):
    """The page names the time of the last searched run, and links to the rest."""
    monkeypatch.setattr("oteval.views.pages.runs._PATIENCE", -1.0)
    put(store, *(run(number, f"question {number}") for number in range(1, 301)))
    client, address, numbers, stops = pages(store), "/runs?q=asked~question.%5B57%5D%24", [], 0
    while address:
        text = client.get(address).text
        numbers += ids(text)
        link = re.search(r'rel="next" href="([^"]+)">([^<]+)<', text)
        address = link[1].replace("&amp;", "&") if link else ""
        if link and "search further back" in link[2]:
            stops += 1
            assert re.search(r"searched back to 2026-11-18 \d\d:\d\d:\d\d; earlier runs", text)
            assert "No run matches.<" not in text
    assert numbers == [7, 5]
    assert stops >= 1


def test_failed_calls_that_no_call_explains_are_found(store: Store, pages: ShowPages):
    """errors>0 counts results that report a failure, including results without a call."""
    orphan = (Message("user", "Refund me"), Message("tool", "Error", is_error=True))
    call = ToolCall("refund", {"id": 1}, id="c")
    failed = (
        Message("user", "Refund me"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "Error", tool_call_id="c", is_error=True),
    )
    put(store, run(1), run(2, messages=failed), run(3, messages=orphan), run(4))
    client = pages(store)
    assert ids(client.get("/runs?q=errors%3E0").text) == [3, 2]
    assert ids(client.get("/runs?q=errors%3E1").text) == []
    assert ids(client.get("/runs?q=errors%3E0+refund+agent%3Dshop").text) == [3, 2]


@pytest.mark.parametrize(
    "name", ['"', 'a "b" c', '""', "two  spaces", "a\u2028line", "a\xa0b", "x"]
)
def test_a_name_is_found_by_the_word_that_pages_write(name: str):
    """Quotes are doubled, and spaces of any kind stay as they are."""
    [condition] = parse_search(search_word("agent", name)).selection.conditions
    assert condition.value == name
    assert (
        parse_search(f"{search_word('agent', name)} calls>1").selection.conditions[0] == condition
    )
