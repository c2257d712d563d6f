"""The pages of experiments: the list, the matrix, and the comparison with a baseline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from oteval import ExperimentResults, evaluate, evaluate_comparative
from oteval.model.selection import Selection
from oteval.store import Store

from . import hostile
from .conftest import ShowPages, put, run
from .test_evaluators import links, plain


def right(outputs: Any) -> dict[str, Any]:
    """Pass the answer 1; fail any other with a comment, and break on an answer of None."""
    if outputs is None:
        raise ValueError("<b>no answer</b>")
    return {"key": "right", "score": outputs == 1, "comment": f"<i>answer {outputs}</i>"}


def make(store: Store, name: str, outputs: Sequence[Any], **options: Any) -> ExperimentResults:
    """Store an experiment whose outputs are given, one for each example."""

    def target(inputs: int) -> Any:
        if isinstance(outputs[inputs], Exception):
            raise outputs[inputs]
        return outputs[inputs]

    data = [{"id": f"e{n}", "inputs": n} for n in range(len(outputs))]
    arguments: dict[str, Any] = {"name": name, "data": data, "store": store, **options}
    return evaluate(target, evaluators=[right], **arguments)


@pytest.fixture
def compared(store: Store) -> Store:
    """Return a store with two experiments of ten examples; the second fails the first eight."""
    make(store, "first", [1] * 10)
    make(store, "second", [0] * 8 + [1, 1])
    return store


def test_the_list_has_the_figures_of_each_experiment(store: Store, pages: ShowPages):
    """Runs, failed runs and pass rates are counted; errors of an evaluator are beside its key."""
    make(store, "mixed", [1, 0, None, ValueError("broken"), 1], description="a try")
    page_text = plain(pages(store).get("/experiments").text)
    assert re.search(r"mixed a try .* 5 1 right 66\.7% .* 1 error ", page_text), page_text


def test_an_empty_store_says_how_to_make_an_experiment(store: Store, pages: ShowPages):
    """The list names the command."""
    assert "oteval eval --data" in pages(store).get("/experiments").text


def test_an_experiment_of_another_connection_appears(store: Store, pages: ShowPages):
    """A cached list is not shown after a new experiment, with or without runs."""
    client = pages(store)
    assert "one" not in plain(client.get("/experiments").text).split()
    make(store, "one", [1])
    assert "one" in plain(client.get("/experiments").text).split()
    make(store, "two", [1])
    assert "two" in plain(client.get("/experiments").text).split()


def test_the_matrix_has_the_reason_of_each_failure(store: Store, pages: ShowPages):
    """Comments of fails and messages of errors in evaluators and targets are shown as text."""
    make(store, "mixed", [1, 0, None, ValueError("<u>broken</u>")])
    text = pages(store).get("/experiments/mixed").text
    assert "&lt;i&gt;answer 0&lt;/i&gt;" in text
    assert "&lt;i&gt;answer 1&lt;/i&gt;" not in text
    assert "&lt;b&gt;no answer&lt;/b&gt;" in text
    assert "&lt;u&gt;broken&lt;/u&gt;" in text
    rows = plain(text).split("Examples ")[1]
    assert [word for word in ("e0", "e1", "e2", "e3") if word in rows] == ["e0", "e1", "e2", "e3"]


def test_only_failing_rows_can_be_shown(store: Store, pages: ShowPages):
    """A link counts the failed examples, and leads to them."""
    make(store, "mixed", [1, 0, 1])
    client = pages(store)
    [link] = [
        link for link in links(client.get("/experiments/mixed").text) if "show=failing" in link
    ]
    rows = plain(client.get(link).text).split("all 3 failing 1")[1].split()
    assert "e1" in rows
    assert "e0" not in rows


def test_a_long_experiment_is_shown_in_parts(store: Store, pages: ShowPages):
    """Each example is in one part; links lead on and back."""
    make(store, "long", [1] * 130)
    client = pages(store)
    first = client.get("/experiments/long").text
    assert "e99<" in first
    assert "e100<" not in first
    [link] = [link for link in links(first) if "from=100" in link]
    second = client.get(link).text
    assert "e129<" in second
    assert "/experiments/long" in links(second)


def test_a_row_leads_to_the_run(store: Store, pages: ShowPages):
    """An example links to the page of its run, if the trace is in the store."""
    put(store, run(1), run(2))

    def fine() -> bool:
        return True

    evaluate(Selection(), evaluators=[fine], name="stored", store=store)
    client = pages(store)
    run_links = {link for link in links(client.get("/experiments/stored").text) if "/runs/" in link}
    assert run_links == {f"/runs/{1:016x}", f"/runs/{2:016x}"}
    assert all(client.get(link).status_code == 200 for link in run_links)


def test_a_comparison_says_what_changed(compared: Store, pages: ShowPages):
    """The verdict, the means, the numbers of examples, and the examples that got worse."""
    client = pages(compared)
    text = client.get("/experiments/second?baseline=first").text
    page_text = plain(text)
    assert re.search(r"right regressed 1\.000 0\.200 -0\.800 \[.*?\] 0 8 2 0\.008", page_text), (
        page_text
    )
    assert "8 of 10 runs broke, 2 did not change." in page_text
    assert page_text.count("✗ broke right 1 → 0") == 8
    assert "&lt;i&gt;answer 0&lt;/i&gt;" in text
    back = plain(client.get("/experiments/first?baseline=second").text)
    assert "right improved 0.200 1.000" in back


def test_the_baseline_is_chosen_in_a_form(compared: Store, pages: ShowPages):
    """The form sends the name of another experiment; the chosen one is selected."""
    text = pages(compared).get("/experiments/second?baseline=first").text
    form = text.split('<form class="baseline"')[1].split("</form>")[0]
    assert 'action="/experiments/second"' in form
    assert '<option value="first" selected>' in form
    assert 'value="second"' not in form


def test_experiments_without_common_examples_have_no_figures(store: Store, pages: ShowPages):
    """The page shows the error, and still shows the experiment."""
    make(store, "one", [1])
    make(store, "two", [1], data=[{"id": "other", "inputs": 0}])
    answer = pages(store).get("/experiments/one?baseline=two")
    assert answer.status_code == 200
    assert "no scores of the same example in common" in answer.text


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/experiments/nobody", 404, "no experiment"),
        ("/experiments/first?baseline=nobody", 404, "no experiment"),
        ("/experiments/first?baseline=first", 400, "cannot be compared with itself"),
        ("/experiments/first?show=none", 400, "write one of all, failing"),
        ("/experiments/first?from=-1", 400, "write the number of a row"),
    ],
)
def test_addresses_that_cannot_be_shown_are_refused(
    compared: Store, pages: ShowPages, path: str, status: int, reason: str
):
    """The page has the status and the reason."""
    answer = pages(compared).get(path)
    assert answer.status_code == status
    assert reason in answer.text


def test_a_pairwise_comparison_shows_preferences(compared: Store, pages: ShowPages):
    """The list counts its votes; its page has wins and ties of both sides."""

    def higher(outputs: Sequence[Any]) -> list[float]:
        return [float(output) for output in outputs]

    evaluate_comparative(["first", "second"], evaluators=[higher], name="duel", store=compared)
    client = pages(compared)
    listed = plain(client.get("/experiments").text)
    assert re.search(r"duel first vs second .*? \d+ votes", listed), listed
    page_text = plain(client.get("/experiments/duel").text)
    assert re.search(r"higher first second 8 0 2 0 90\.0% .* first", page_text), page_text


@pytest.mark.slow
def test_names_of_experiments_are_hostile_as_well(store: Store, pages: ShowPages):
    """Names are escaped on all pages and link to their page, even names that paths cannot hold."""
    names = [text.encode("utf-8", "replace").decode() for text in hostile.TEXTS]
    names = [*dict.fromkeys(name[:3000] for name in names), "..", "a/b", "a?b#c", "a\nb", "/x/"]
    for name in names:
        make(store, name, [0, 1], data=[{"id": name, "inputs": 0}, {"id": "b", "inputs": 1}])
    client = pages(store)
    listed = client.get("/experiments")
    assert listed.status_code == 200
    # The test client decodes a path twice.
    own = {link for link in links(listed.text) if "/experiments/" in link and "%25" not in link}
    assert len(own) > 8
    for link in own:
        for address in (link, f"{link}?baseline=a%2Fb"):
            answer = client.get(address)
            assert answer.status_code in ((200,) if address == link else (200, 400)), address
            assert "<script>document" not in answer.text
            assert "<i>answer" not in answer.text
