"""The pages of evaluators: the list, and the scores of one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from oteval.store import Store

from . import hostile
from .conftest import SECOND, START, ShowPages, put, run, score

HOUR = 3600 * SECOND
FAIL = {"passed": False, "score": 0.0}
ERROR = {"status": "error", "passed": None, "score": None}
CONFIG = (
    "evaluators:\n"
    "  - {name: calls, type: forbidden_tools, forbidden: [refund]}\n"
    "  - {name: never, type: forbidden_tools, forbidden: [refund]}\n"
)


def plain(text: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", text.split("<main")[1]).split())


def links(text: str) -> list[str]:
    """Return the addresses that a page links to."""
    return [link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', text)]


@pytest.fixture
def judged(store: Store) -> Store:
    """Return a store with ten runs: two fail, one has an error, one is not evaluated."""
    runs = [run(number) for number in range(1, 11)]
    put(store, *runs)
    store.scores.write(
        [
            score(runs[0], "calls", comment="<b>no refund</b>", **FAIL),
            score(runs[1], "calls", comment="too late", **FAIL),
            score(runs[2], "calls", comment="broken", **ERROR),
            score(runs[3], "calls", status="not_evaluated", passed=None, score=None),
            *(score(one, "calls", metadata={"cost_usd": 0.5}) for one in runs[4:]),
        ]
    )
    return store


def test_the_list_has_the_figures_of_each_evaluator(judged: Store, pages: ShowPages):
    """An error is in the denominator and never a score; runs not evaluated are in neither."""
    found = plain(pages(judged).get("/evaluators").text)
    # runs, pass rate (6 of 9), interval, mean of eight scores, failed, errors, not evaluated, cost
    assert re.search(r"calls – 1 10 66\.7% .*? 0\.75 2 1 1 \$3\.00", found), found


def test_a_configured_evaluator_without_scores_is_listed(
    judged: Store, pages: ShowPages, tmp_path: Path
):
    """It has no pass rate, and its page says how to score runs."""
    config = tmp_path / "oteval.yaml"
    config.write_text(CONFIG)
    client = pages(judged, config)
    found = plain(client.get("/evaluators").text)
    assert "calls forbidden_tools 1 10" in found
    assert "never forbidden_tools – 0 no scores – 0 0 0 – none" in found
    answer = client.get("/evaluators/never")
    assert answer.status_code == 200
    assert "oteval score -c oteval.yaml" in answer.text


def test_evaluators_that_are_not_configured_are_marked(
    judged: Store, pages: ShowPages, tmp_path: Path
):
    """Their scores are shown all the same."""
    config = tmp_path / "oteval.yaml"
    config.write_text("evaluators: [{name: other, type: forbidden_tools, forbidden: [refund]}]")
    assert "calls not configured 1 10" in plain(pages(judged, config).get("/evaluators").text)


def test_an_unknown_evaluator_is_not_found(judged: Store, pages: ShowPages):
    """The page says so, and where all are listed."""
    answer = pages(judged).get("/evaluators/nobody")
    assert answer.status_code == 404
    assert "no evaluator" in answer.text
    assert "/evaluators lists all" in answer.text


def test_an_empty_store_says_how_to_get_evaluators(store: Store, pages: ShowPages):
    """The list names the file and the command."""
    assert "oteval score -c oteval.yaml" in pages(store).get("/evaluators").text


def test_the_page_of_an_evaluator_links_to_its_runs(judged: Store, pages: ShowPages):
    """Fails, errors and runs not evaluated lead to exactly these runs in the list."""
    client = pages(judged)
    text = client.get("/evaluators/calls").text
    assert "66.7%" in plain(text)
    expected = {"passed%3Dfalse": 2, "status%3Derror": 1, "status%3Dnot_evaluated": 1}
    for word, count in expected.items():
        [link] = {one for one in links(text.split("Versions")[0]) if one.endswith(word)}
        assert client.get(link).text.count("data-id=") == count, word


def test_the_worst_runs_have_the_comment_and_lead_to_the_run(judged: Store, pages: ShowPages):
    """Only runs whose newest score does not pass are listed; comments are text."""
    judged.scores.write([score(run(2), "calls")])
    text = pages(judged).get("/evaluators/calls").text.split("Worst runs")[1]
    assert re.findall(r'data-id="0*([0-9a-f]+)"', text) == ["1"]
    assert "score 0: &lt;b&gt;no refund&lt;/b&gt;" in text
    assert f'href="/runs/{1:016x}"' in text


def test_an_error_is_not_a_worst_run(store: Store, pages: ShowPages):
    """An evaluator that only failed has neither a pass rate nor a score."""
    put(store, run(1))
    store.scores.write([score(run(1), "calls", **ERROR)])
    found = plain(pages(store).get("/evaluators/calls").text)
    assert "nothing passed or failed" in found
    assert "None of these runs failed." in found
    assert "mean score –" in found


def test_versions_have_their_own_figures_and_times(store: Store, pages: ShowPages):
    """A run scored by two versions is in both rows, and counts once in the whole."""
    runs = [run(number) for number in range(1, 5)]
    put(store, *runs)
    old = [score(one, "calls", **FAIL) for one in runs]
    new = [replace(score(one, "calls"), version="v2", time_ns=START + HOUR) for one in runs[:2]]
    store.scores.write([*old, *new])
    text = plain(pages(store).get("/evaluators/calls").text)
    whole, versions = text.split(" Versions ")[0], text.split(" Versions ")[1].split(" Agents ")[0]
    assert "50.0% passed" in whole
    assert re.search(r"v2 newest 2026-11-18 12:06 2026-11-18 12:06 2 100\.0%", versions), versions
    assert re.search(r"v1 2026-11-18 11:06 2026-11-18 11:06 4 0\.0%", versions), versions


def test_scores_have_a_distribution_unless_all_are_0_or_1(
    judged: Store, store: Store, pages: ShowPages
):
    """The chart counts passes and fails apart."""
    client = pages(judged)
    assert "Distribution of scores" not in client.get("/evaluators/calls").text
    shares = [score(run(n), "quality", score=n / 10, passed=n > 3) for n in range(1, 11)]
    store.scores.write(shares)
    text = client.get("/evaluators/quality").text
    assert "Distribution of scores" in text
    assert "<title>fail: 1 run, 0.1 – 0.15</title>" in text
    assert "<title>pass: 1 run, 0.95 – 1</title>" in text


def test_scores_outside_0_to_1_have_a_distribution(store: Store, pages: ShowPages):
    """The ranges cover them; scores that are not finite are left out."""
    runs = [run(number) for number in range(1, 5)]
    put(store, *runs)
    values = (-10.0, 3.0, 30.0, float("inf"))
    store.scores.write(
        [
            score(one, "cost", score=value, passed=None)
            for one, value in zip(runs, values, strict=True)
        ]
    )
    text = pages(store).get("/evaluators/cost").text
    assert "1 run, -10 – -8" in text
    assert "1 run, 28 – 30" in text
    assert "mean score 7.67" in plain(text)


def test_the_period_and_the_search_choose_the_runs(store: Store, pages: ShowPages):
    """A period ends with the newest run; since in the search replaces it; agents are links."""
    before = run(1, start_ns=START - 240 * HOUR, end_ns=START, agent="old")
    put(store, before, run(2), run(3, agent="greeter"))
    store.scores.write([score(one, "calls") for one in (before, run(2), run(3, agent="greeter"))])
    client = pages(store)

    def runs(query: str) -> int:
        text = plain(client.get(f"/evaluators/calls{query}").text)
        [found] = re.findall(r"runs (\d+) passed", text)
        return int(found)

    assert runs("") == 2
    assert runs("?period=all") == 3
    assert runs("?q=since%3D2026-11-01") == 3
    assert runs("?q=agent%3Dgreeter") == 1
    for path in ("/evaluators", "/evaluators/calls"):
        text = plain(client.get(f"{path}?q=since%3D2026-11-15").text)
        assert "matching since=2026-11-15 from 2026-11-15 00:00:00" in text
        assert "· scores" not in text
        assert client.get(f"{path}?q=since%3D2100-01-01").status_code == 200
    text = client.get("/evaluators/calls").text
    [link] = [one for one in links(text) if "greeter" in one and one.startswith("/evaluators")]
    assert "runs 1 passed" in plain(client.get(link).text)


@pytest.mark.parametrize("query", ["period=1y", "q=passed%3Dtrue", "q=headphones"])
@pytest.mark.parametrize("path", ["/evaluators", "/evaluators/calls"])
def test_a_filter_that_cannot_be_used_is_refused(
    judged: Store, pages: ShowPages, path: str, query: str
):
    """The page has the status 400 and says what can be used."""
    answer = pages(judged).get(f"{path}?{query}")
    assert answer.status_code == 400
    assert re.search("write one of|cannot be searched", answer.text)


def test_names_of_evaluators_are_hostile_as_well(store: Store, pages: ShowPages):
    """They are escaped in both pages, and lead to their own page."""
    put(store, run(1))
    names = [text.encode("utf-8", "replace").decode() for text in hostile.TEXTS]
    store.scores.write([score(run(1), name, comment=name, **FAIL) for name in names])
    client = pages(store)
    answer = client.get("/evaluators")
    assert answer.status_code == 200
    assert "<script>document" not in answer.text
    # The test client decodes a path twice.
    own = {one for one in links(answer.text) if "/evaluators/" in one and "%25" not in one}
    assert len(own) > 5
    for link in own:
        shown = client.get(link)
        assert shown.status_code == 200, link
        assert "<script>document" not in shown.text


def test_huge_scores_do_not_break_a_page(store: Store, pages: ShowPages):
    """Sums beyond the largest double, and neighbours of it, are shown like any score."""
    runs = [run(number) for number in range(1, 5)]
    put(store, *runs)
    largest = 1.7976931348623157e308
    store.scores.write(
        [
            score(one, "size", score=value, passed=None)
            for one, value in zip(runs, (largest, largest, -largest, 5e-324), strict=True)
        ]
    )
    client = pages(store)
    paths = ["/", "/runs", "/evaluators", "/evaluators/size", f"/runs/{runs[0].id}"]
    assert [client.get(path).status_code for path in paths] == [200] * 5
