from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oteval.base.errors import NotFound
from oteval.model import Message
from oteval.model.selection import Selection
from oteval.store import Store

from ..make import asks, call, keep, run, score


def test_a_score_survives_the_store(store: Store):
    """Every field of a score survives, with metadata and odd text."""
    keep(store, run(1))
    original = score(
        1,
        score=0.25,
        passed=None,
        label="so so",
        comment='"quoted" \n…',
        metadata={"a": [1, {"b": None}]},
        rev=2,
        sample_p=0.5,
        time_ns=7,
    )

    store.scores.write([original])

    assert list(store.scores.read()) == [original]
    assert store.scores.of([original.trajectory_id, "other"]) == {
        original.trajectory_id: [original],
        "other": [],
    }


def test_lists_read_the_beginning_of_comments(store: Store):
    """A limit cuts comments and leaves metadata out; the other fields are as they were."""
    keep(store, run(1))
    original = score(1, comment="because " * 1000, metadata={"large": "x" * 1000}, label="so so")
    store.scores.write([original])

    [stored] = store.scores.of([original.trajectory_id], longest=7)[original.trajectory_id]

    assert stored == replace(original, comment="because", metadata={})


def test_text_that_cannot_be_encoded_does_not_lose_the_scores(store: Store):
    """A comment with a lone surrogate is stored with a replacement character."""
    keep(store, run(1))

    store.scores.write([score(1, comment="a\ud800", metadata={"\ud800": "\ud800"})])

    (stored,) = store.scores.read()
    assert (stored.comment, stored.metadata) == ("a\ufffd", {"\ufffd": "\ufffd"})


def test_the_newest_of_an_evaluator_counts(store: Store):
    """A later score of the same evaluator replaces the one before."""
    keep(store, run(1))
    store.scores.write([score(1, comment="old"), score(1, comment="newer")])
    store.scores.write([score(1, comment="newest")])

    assert [score.comment for score in store.scores.read()] == ["newest"]


def test_evaluators_are_separate_and_their_versions_are_not(store: Store):
    """A score of another evaluator replaces nothing, one of another version does."""
    keep(store, run(1))

    store.scores.write([score(1), score(1, version="w"), score(1, evaluator="f")])

    assert [(score.evaluator, score.version) for score in store.scores.read()] == [
        ("e", "w"),
        ("f", "v"),
    ]


def test_a_score_of_the_current_revision_counts(store: Store):
    """The score of the newer revision counts, in whichever order they are written."""
    keep(store, run(1))
    keep(store, run(1, agent="b"))

    store.scores.write([score(1, rev=2, comment="late"), score(1, rev=1, comment="early")])

    assert [score.comment for score in store.scores.read()] == ["late"]


def test_scores_are_read_by_selection(store: Store):
    """Only scores of selected, current trajectories are read."""
    keep(store, run(1), run(2, agent="b"))
    store.scores.write([score(1), score(2), score(3)])

    assert [s.trajectory_id for s in store.scores.read(Selection(agents=("b",)))] == [run(2).id]
    assert len(list(store.scores.read())) == 2


def test_repeated_scores_of_many_runs(store: Store):
    """In order of storage, the newest of a run's revision and an evaluator counts, on any page."""
    keep(store, *map(run, range(40)))
    keep(store, *(run(at, agent="b") for at in range(20)))
    chance = random.Random(1)
    scores = [
        score(
            number := chance.randrange(50),
            rev=chance.randrange(1, 3) if number < 20 else 1, version=chance.choice("vw"),
            evaluator=chance.choice("ef"), passed=chance.choice([True, False, None]),
            comment=str(at), time_ns=at,
        )
        for at in range(700)
    ]  # fmt: skip
    store.scores.write(scores)
    revisions = {run(at).id: 2 if at < 20 else 1 for at in range(40)}
    newest = {
        (s.trajectory_id, s.evaluator): at
        for at, s in enumerate(scores)
        if s.rev == revisions.get(s.trajectory_id)
    }
    current_scores = [scores[at] for at in sorted(newest.values())]

    assert list(store.scores.read()) == current_scores
    some = [run(at).id for at in range(7)]
    numbers = store.scores.numbers(evaluators=["f"], outcome="fail", ids=some)
    assert list(store.scores.at(numbers)) == [
        s
        for s in current_scores
        if s.evaluator == "f" and s.passed is False and s.trajectory_id in some
    ]
    exported = store.scores.export().read_all().sort_by("seq")
    current = store._connection.sql("SELECT * FROM current_scores ORDER BY seq").to_arrow_table()
    assert exported.to_pylist() == current.to_pylist()


def test_writing_no_scores_is_allowed(store: Store):
    """An empty list of scores writes nothing."""
    store.scores.write([])

    assert list(store.scores.read()) == []


def test_a_reference_survives_the_store(store: Store):
    """Messages keep unknown arguments, times and failures."""
    messages = (
        Message("user", "x"),
        asks(call("f", {"a": 1.0}, "1", start_ns=1, end_ns=2), call("g")),
        Message("tool", "no", (), tool_call_id="1", name="f", is_error=True),
    )

    store.references.add("name", messages, "source", 1)

    stored = store.references.get("name")
    assert (stored.name, stored.messages, stored.source) == ("name", messages, "source")


@pytest.mark.parametrize("times", [(1, 2), (2, 2)])
def test_the_newest_reference_of_a_name_counts(store: Store, times: tuple[int, int]):
    """A reference added again replaces the last one, even at the same time."""
    old, new = times
    store.references.add("name", [Message("user", "old")], "first", old)
    store.references.add("name", [Message("user", "new"), Message("user", "x")], "second", new)
    store.references.add("other", [], "third", 1)

    assert store.references.get("name").messages[0] == Message("user", "new")
    assert store.references.list() == [
        {"name": "name", "source": "second", "messages": 2, "created_ns": new},
        {"name": "other", "source": "third", "messages": 0, "created_ns": 1},
    ]


def test_a_missing_reference_says_how_to_list_them(store: Store):
    """An unknown name is NotFound."""
    with pytest.raises(NotFound, match="no reference 'x'; oteval reference list shows them"):
        store.references.get("x")


def test_a_fingerprint_changes_with_the_content(store: Store):
    """Unknown and empty arguments have different fingerprints, so that the version changes."""
    store.references.add("a", [asks(call("f"))], "", 1)
    store.references.add("b", [asks(call("f", {}))], "", 1)

    first, second = store.references.get("a"), store.references.get("b")

    assert first.fingerprint != second.fingerprint
    assert replace(first, name="x").fingerprint == first.fingerprint


def test_readings_of_current_scores_agree(store: Store):
    """Pages, `after` and versions give the current scores of a store with replaced ones."""
    keep(store, *map(run, range(8)))
    keep(store, *(run(at, agent="b") for at in range(4)))
    chance = random.Random(2)
    store.scores.write([
        score(
            number := chance.randrange(8), rev=chance.randrange(1, 3) if number < 4 else 1,
            version=chance.choice("vw"), evaluator=chance.choice("efg"), comment=str(at),
        )
        for at in range(90)
    ])  # fmt: skip
    current, ids = list(store.scores.read()), [run(at).id for at in range(8)]

    paged, number = [], 0
    while number < store.scores.last_number():
        page, number = store.scores.after(number, 7)
        paged += page

    assert paged == current
    assert store.scores.of_versions(ids, ["w"]) == {
        (s.trajectory_id, s.evaluator, "w"): s for s in current if s.version == "w"
    }
    by_name = sorted(current, key=lambda s: s.evaluator)
    assert store.scores.of(ids) == {
        name: [s for s in by_name if s.trajectory_id == name] for name in ids
    }
