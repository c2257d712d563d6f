"""Conversations become observations in the order of storage, however reading is cut."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oteval.monitor import monitor_checks as checks, run_reader
from oteval.monitor.conversations import close, conversation_hashes, text_hashes
from oteval.monitor.monitor_checks import check, check_backlog
from oteval.monitor.watcher import Watcher
from oteval.store import Store

from .histories import HOUR, MINUTE, SECOND, START, History, config

PERIOD = "{scores: 40, from: 2026-09-21, until: 2026-09-22T12:00}"
COLUMNS = {
    "trajectory_id": pa.string(),
    "conversation_id": pa.string(),
    "group": pa.string(),
    "version": pa.string(),
    "value": pa.float64(),
    "variant": pa.int64(),
    "start_ns": pa.int64(),
    "end_ns": pa.int64(),
    "seq": pa.int64(),
}


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Return runs as `close` takes them."""
    found = pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in COLUMNS.items()}
    )
    for name in ("group", "version"):
        place = found.schema.get_field_index(name)
        found = found.set_column(place, name, found[name].combine_chunks().dictionary_encode())
    return found


def read(rows: list[dict[str, Any]], cuts: list[int], *, waits: bool = False) -> list[Any]:
    """Return the observations of runs that are read in parts, and the open runs at the end."""
    observed: set[int] = set()
    open_runs = table([]).drop_columns("conversation_id")
    open_runs = open_runs.append_column("conversation", pa.array([], pa.uint64()))
    reached, found = 0, []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = table(rows[start:end])
        hashes = conversation_hashes(part)
        closed = close(
            part,
            hashes,
            np.array([one in observed for one in hashes.tolist()], bool),
            open_runs,
            reached_ns=reached,
            now_ns=START + 1000 * HOUR,
            is_last=False,
            waits=waits,
        )
        observed |= set(closed.conversations["conversation"].to_pylist())
        found += closed.observations.to_pylist()
        open_runs, reached = closed.open, closed.reached_ns
    return [found, sorted(open_runs["seq"].to_pylist())]


def history(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """Return runs of agents, some in conversations, some late, and some scored again."""
    rows: list[dict[str, Any]] = []
    for seq in range(size):
        again = chance.choice(rows) if rows and chance.random() < 0.1 else None
        late = chance.choice([0, 0, 0, 5 * MINUTE, HOUR])
        end = START + seq * MINUTE - late
        row = {
            "trajectory_id": f"run {seq}",
            "conversation_id": f"talk {chance.randrange(size // 5)}",
            "group": chance.choice(['["a"]', '["b"]']),
            "version": "v",
            "start_ns": end - chance.randrange(MINUTE),
            "end_ns": end,
        }
        if chance.random() < 0.5:
            row["conversation_id"] = None
        rows.append(
            {**(again or row), "value": chance.random(), "variant": seq % 7, "seq": seq + 1}
        )
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_cuts_change_no_observation(seed: int):
    """Read in parts of any size, the same observations come in the same order."""
    chance = random.Random(seed)
    rows = history(chance, 70)
    waits = seed % 3 == 0
    whole = read(rows, [], waits=waits)

    assert len(whole[0]) > 15
    assert read(rows, list(range(1, len(rows))), waits=waits) == whole
    for _ in range(2):
        cuts = sorted(chance.sample(range(1, len(rows)), 8))
        assert read(rows, cuts, waits=waits) == whole


def test_an_observation_is_the_mean_of_the_runs_before_its_conversation_was_over():
    """Runs after ten idle minutes are ignored, and a run scored again counts with its last."""

    def row(seq: int, name: str, talk: str | None, minute: int, value: float) -> dict[str, Any]:
        at = START + minute * MINUTE
        return {
            **dict.fromkeys(COLUMNS),
            "trajectory_id": name,
            "conversation_id": talk,
            "group": "[]",
            "version": "v",
            "value": value,
            "start_ns": at,
            "end_ns": at + SECOND,
            "seq": seq,
        }

    rows = [
        row(1, "r1", "talk", 0, 0.0),
        row(2, "r1", "talk", 0, 1.0),
        row(3, "r2", "talk", 5, 0.5),
        row(4, "other", None, 20, 0.0),
        row(5, "r3", "talk", 21, 0.0),
    ]

    (talk, other), still_open = read(rows, [])

    assert (talk["value"], talk["trajectory_id"]) == (0.75, "r2")
    assert talk["time_ns"] == START + 5 * MINUTE + SECOND
    assert (other["value"], still_open) == (0.0, [])


def test_hashes_of_texts_do_not_depend_on_their_neighbours():
    """A text has one hash, in slices and beside long texts, and stays the same for ever."""
    texts = ["", "a", "b", "ab", "0123456789abcdef", "0123456789abcdeg", "é" * 50, "x" * 3000]
    hashes = text_hashes(pa.array(texts))

    assert len(set(hashes.tolist())) == len(texts)
    for place in range(len(texts)):
        assert text_hashes(pa.array(texts).slice(place, 1)).tolist() == [hashes[place]]
    assert text_hashes(pa.array([None, "a"])).tolist() == [hashes[0], hashes[1]]
    assert hashes[:2].tolist() == [0, 10344442265473872065]
    assert text_hashes(pa.array([], pa.string())).tolist() == []


def close_to(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal but for rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close_to(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close_to, one, other))
    return (
        one == pytest.approx(other, rel=1e-9, abs=1e-12) if isinstance(one, float) else one == other
    )


def test_random_cuts_of_checks_and_parts_give_the_same_state(monkeypatch: pytest.MonkeyPatch):
    """Checks at any times, reading and committing parts of any size, learn and detect the same."""

    def state(seed: int | None) -> list[Any]:
        chance = random.Random(seed)
        for module, name in (
            (run_reader, "_PART"),
            (run_reader, "_CLOSED_AT_ONCE"),
            (checks, "_TRANSACTION"),
            (checks, "_AT_ONCE"),
            (checks, "_REST"),
        ):
            size = 10**6 if seed is None else chance.randrange(20, 90)
            monkeypatch.setattr(module, name, size)
        watched = config(f"{{evaluator: e, group_by: agent, baseline: {PERIOD}}}")
        with Store() as store:
            good = History(store, "good", step=10 * MINUTE)
            bad = History(store, "bad", step=10 * MINUTE, first=100_000)
            for step in range(8):
                talk = f"talk {step}" if step == 4 else None
                good.scored(30, 0.9, conversation_id=talk)
                bad.scored(30, 0.9 if step < 6 else 0.2, conversation_id=talk)
                if seed is not None and chance.random() < 0.3:
                    check(store, watched, good.now)
                if seed is not None and chance.random() < 0.3:
                    check_backlog(store, watched, good.now)
            check(store, watched, good.now + HOUR)
            check(store, watched, good.now + HOUR)
            rows = store.monitors.groups("e")
            return [
                [[row.group, row.observations, row.longest_gap_ns, row.recent] for row in rows],
                [json.loads(row.detectors or "{}") for row in rows],
                [[one.episode_id, one.change_ns] for one in store.monitors.episodes()],
            ]

    whole = state(None)

    assert len(whole[2]) == 1
    for seed in (1, 2):
        assert close_to(state(seed), whole)


def test_a_backlog_in_several_transactions_gives_the_same_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Observations, baselines and episodes do not depend on what is committed together."""
    found = []
    for rows in (10**6, 120):
        monkeypatch.setattr(checks, "_TRANSACTION", rows)
        with Store() as store:
            history = History(store)
            history.scored(400, 0.95)
            history.scored(60, 0.3)
            states = check(store, config("{evaluator: e, group_by: agent}"), history.now)
            # A moving average, whose rounding depends on the parts.
            found.append([replace(one, recent=round(one.recent or 0, 9)) for one in states])
            assert states[0].state == "alert"
    assert found[0] == found[1]


def test_an_error_while_a_thread_reads_ahead_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check that failed in the middle is rolled back, and the next one sees everything."""
    watched = config("{evaluator: e, group_by: agent}")
    consume = Watcher.consume

    def fail(self: Watcher, table: Any, reached_ns: int) -> None:
        consume(self, table, reached_ns)
        raise RuntimeError("in the middle")

    found = []
    with Store() as store, Store() as other:
        for one in (store, other):
            history = History(one)
            history.scored(400, 0.95)
            monkeypatch.setattr(checks, "_AT_ONCE", 20)
            if one is store:
                monkeypatch.setattr(Watcher, "consume", fail)
                with pytest.raises(RuntimeError, match="in the middle"):
                    check(one, watched, history.now)
                monkeypatch.setattr(Watcher, "consume", consume)
            found.append(check(one, watched, history.now))
    assert found[0] == found[1]
