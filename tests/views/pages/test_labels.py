"""The queue of runs worth labelling, and the agreement of people with an evaluator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from oteval.cli import main
from oteval.model import Label, Message
from oteval.scoring.experiments.calibration import calibrate
from oteval.store import Store
from oteval.views.pages.access import PageAccess

from .conftest import START, ShowPages, put, run, score

ORIGIN = {"origin": "http://127.0.0.1"}
ME = "ada"

Enter = Callable[[Store], TestClient]


@pytest.fixture
def enter(pages: ShowPages) -> Enter:
    """Return a function that returns a browser that may act."""

    def log_in(store: Store) -> TestClient:
        access = PageAccess.for_one_user(ME)
        client = pages(store, access=access)
        client.get(f"/login?code={access.link_code()}")
        return client

    return log_in


@pytest.fixture
def judged(store: Store) -> Store:
    """Return a store with 12 runs that "quality" scored 0.0 to 1.1, and passed from 0.6 on."""
    runs = [run(number, f"Question {number}") for number in range(12)]
    put(store, *runs)
    store.scores.write(
        [
            score(one, "quality", score=number / 10, passed=number >= 6, comment=f"reason {number}")
            for number, one in enumerate(runs)
        ]
    )
    return store


def name_of(number: int) -> str:
    """Return the id of a run."""
    return f"{number:016x}"


def label(store: Store, number: int, passed: bool, person: str = "bob", **fields: str) -> None:
    """Store a label for "quality"."""
    given = Label(name_of(number), passed, fields.pop("evaluator", "quality"), person, **fields)
    store.labels.add([given], START + number)


def queue(client: TestClient, name: str, evaluator: str = "quality") -> list[int]:
    """Return the numbers of the runs of a queue, as the page lists them."""
    text = client.get("/labels", params={"queue": name, "evaluator": evaluator}).text
    part = text.partition('id="queue"')[2].partition("</ol>")[0]
    return [int(found, 16) for found in re.findall(r'data-id="(\w+)"', part)]


def test_the_sample_is_random_and_has_no_labelled_runs(judged: Store, enter: Enter):
    """It has every run with a verdict in an order of its own; a label takes a run out of it."""
    client = enter(judged)
    first = queue(client, "sample")
    assert sorted(first) == list(range(12))
    assert first not in (sorted(first), sorted(first)[::-1])
    label(judged, first[3], True)
    label(judged, first[5], False, evaluator="")
    assert queue(client, "sample") == [one for at, one in enumerate(first) if at not in (3, 5)]


def test_failing_runs_come_newest_first(judged: Store, enter: Enter):
    """Only runs that this evaluator fails, without a label, are in the queue."""
    client = enter(judged)
    label(judged, 4, True)
    label(judged, 3, False, evaluator="tone")
    assert queue(client, "failing") == [5, 3, 2, 1, 0]


def test_a_run_that_passes_by_now_does_not_fail(judged: Store, enter: Enter):
    """A run that was scored again leaves the queue of failing runs."""
    again = run(5, "Question 5")
    judged.scores.write([score(again, "quality", score=0.9, passed=True, comment="better")])
    assert queue(enter(judged), "failing") == [4, 3, 2, 1, 0]


def test_scores_near_the_threshold_come_first(judged: Store, enter: Enter):
    """The threshold lies between the worst pass and the best fail."""
    assert queue(enter(judged), "threshold") == [6, 5, 7, 4]


def test_an_evaluator_without_degrees_has_no_threshold(shop: Store, enter: Enter):
    """Scores of 0 and 1 are all equally far from it."""
    text = enter(shop).get("/labels?queue=threshold&evaluator=calls").text
    assert "No run is in this queue" in text


def test_disagreements_are_shown_to_others_until_they_labelled_them(judged: Store, enter: Enter):
    """A label against the verdict, and a verdict that changed, ask for a second opinion."""
    client = enter(judged)
    label(judged, 2, False)  # as the evaluator says
    label(judged, 3, True)
    label(judged, 7, True)
    label(judged, 7, False, person="eve")
    judged.scores.write([score(run(9), "quality", passed=False, score=0.0)])
    assert sorted(queue(client, "disagreements")) == [3, 7, 9]
    label(judged, 3, True, person=ME)
    assert sorted(queue(client, "disagreements")) == [7, 9]


def test_a_new_disagreement_is_shown_at_once(judged: Store, enter: Enter):
    """The queue does not wait for further labels, runs or scores."""
    client = enter(judged)
    label(judged, 3, passed=True)
    assert queue(client, "disagreements") == [3]
    label(judged, 7, passed=False)
    assert sorted(queue(client, "disagreements")) == [3, 7]


def test_new_variants_without_a_label_have_a_run_each(judged: Store, enter: Enter):
    """One run of each unlabelled sequence of tools, the newest sequence first."""
    put(judged, run(20, "Hello", messages=run(20).messages[:1]), run(21, "x"))
    assert queue(enter(judged), "variants") == [20, 21]
    label(judged, 0, True)
    assert queue(enter(judged), "variants") == [20]
    asked_twice = (Message("user", "Hello?"), *run(22).messages)
    put(judged, run(22, messages=asked_twice))
    assert queue(enter(judged), "variants") == [20]


def test_the_run_after_a_label_says_that_it_is_stored(judged: Store, enter: Enter):
    """The message is about the run before, and not in the form of the next one."""
    client = enter(judged)
    path = "/labels/next?evaluator=quality&queue=failing&at=0&after=&done=label"
    shown = client.get(client.get(path).headers["location"]).text
    assert "The label of the run before is stored" in shown.partition('id="labels"')[0]


def test_labelling_leads_through_the_queue(judged: Store, enter: Enter):
    """A label leads to the next run of the queue, skipping leads past a run, the end back."""
    client = enter(judged)
    listed = client.get("/labels?queue=failing&evaluator=quality").text
    [first] = re.findall(r'href="(/runs/[^"#]+)#labels">Begin', listed)
    shown = client.get(first.replace("&amp;", "&")).text
    assert '<option value="quality" selected>' in shown
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', shown))
    data = {
        "form_token": fields["form_token"],
        "next": fields["next"].replace("&amp;", "&"),
        "verdict": "pass",
        "evaluator": "quality",
    }
    answer = client.post(f"/runs/{name_of(5)}/label", data=data, headers=ORIGIN)
    second = client.get(answer.headers["location"]).headers["location"]
    assert second.startswith(f"/runs/{name_of(4)}?")

    skip = re.search(r'href="(/labels/next[^"]*)">skip', client.get(second).text)
    assert skip
    third = client.get(skip[1].replace("&amp;", "&")).headers["location"]
    assert third.startswith(f"/runs/{name_of(3)}?")
    end = client.get(f"/labels/next?queue=failing&evaluator=quality&at=4&after={name_of(0)}")
    assert end.headers["location"] == "/labels?evaluator=quality&queue=failing"
    assert judged.labels.on(name_of(5))[0].person == ME


def test_a_form_leads_to_our_own_queue_only(judged: Store, enter: Enter):
    """The next page of a form cannot be another address."""
    client = enter(judged)
    found = re.search(r'form_token" value="(\w+)"', client.get(f"/runs/{name_of(1)}").text)
    assert found
    data = {"form_token": found[1], "verdict": "pass", "next": "https://evil.example/"}
    answer = client.post(f"/runs/{name_of(1)}/label", data=data, headers=ORIGIN)
    assert answer.headers["location"].startswith(f"/runs/{name_of(1)}")


def test_the_agreement_is_that_of_the_command(judged: Store, enter: Enter):
    """Share, kappa and the table equal those of `oteval judge calibrate`; the drawing grows."""
    verdicts = {0: False, 1: False, 2: True, 7: True, 8: True, 9: False, 10: True}
    for number, passed in verdicts.items():
        label(judged, number, passed, note=f"note <b>{number}</b>")
    labels = judged.labels.of("quality")
    names = [one.trajectory_id for one in labels]
    scores = judged.scores.by("quality", "v1", names)
    found = calibrate("quality", "v1", labels, scores)
    text = enter(judged).get("/labels?evaluator=quality").text

    assert f"{found.kappa.agreement:.1%}" in text
    assert f"<dd>{found.kappa.kappa:.2f} " in text
    table = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert re.findall(r'<td class="num[^"]*">(\d+)</td>', table) == ["3", "1", "1", "2"]
    assert 'class="trend" points="' in text
    differing = text.partition("Where they differ")[2]
    assert sorted(re.findall(r'data-id="(\w+)"', differing)) == [name_of(2), name_of(9)]
    assert "people pass: note &lt;b&gt;2&lt;/b&gt;; quality fail: reason 2" in differing


def test_the_page_without_verdicts_says_how_to_get_some(store: Store, enter: Enter):
    """An empty store, and an evaluator without labels, have a page."""
    assert "oteval score" in enter(store).get("/labels").text
    put(store, run(1))
    store.scores.write([score(run(1), "quality")])
    assert "has a label yet" in enter(store).get("/labels").text


@pytest.mark.parametrize("query", ["queue=none", "evaluator=nobody"])
def test_an_unknown_choice_is_refused(judged: Store, enter: Enter, query: str):
    """The page names the choices."""
    for path in ("/labels", "/labels/next"):
        assert enter(judged).get(f"{path}?{query}").status_code == 400


def test_hostile_names_are_text(judged: Store, enter: Enter):
    """Names of evaluators and people, and reasons, are escaped everywhere."""
    evil = '"><script>alert(1)</script>\u202e'
    judged.scores.write([score(run(1), evil, passed=True)])
    given = Label(name_of(1), False, evil, evil, evil)
    judged.labels.add([given], START)
    for path in (
        path_of("/labels", evaluator=evil),
        path_of("/labels", evaluator=evil, queue="disagreements"),
        path_of(f"/runs/{name_of(1)}", evaluator=evil, queue="sample"),
    ):
        answer = enter(judged).get(path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "\u202e" not in re.sub(r'<option value="[^"]*"', "", answer.text)


def path_of(path: str, **values: str) -> str:
    """Return a path with a query."""
    return f"{path}?{urlencode(values)}"


def test_labels_of_the_page_count_for_the_command(
    tmp_path: Path,
    enter: Enter,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """`oteval judge calibrate` uses labels from the browser as it does its own."""
    path = tmp_path / "runs.duckdb"
    with Store(path) as store:
        runs = [run(number) for number in range(3)]
        put(store, *runs)
        store.scores.write([score(one, "quality") for one in runs])
        client = enter(store)
        for number, verdict in enumerate(("pass", "pass", "fail")):
            shown = client.get(f"/runs/{name_of(number)}").text
            token = re.search(r'form_token" value="(\w+)"', shown)
            assert token
            data = {"form_token": token[1], "verdict": verdict, "evaluator": "quality"}
            client.post(f"/runs/{name_of(number)}/label", data=data, headers=ORIGIN)
    command = ["oteval", "judge", "calibrate", "quality", "--db", str(path), "--json"]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["labelled"] == 3
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["disagreements"][0]["trajectory_id"] == name_of(2)
