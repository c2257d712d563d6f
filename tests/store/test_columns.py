"""The columns of runs: one entry each in Python and in SQL, with the same values and filters."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from oteval.model import Message, Trajectory, Usage
from oteval.model.columns import (
    COLUMNS,
    FIELDS,
    GROUPS,
    MEASURES,
    RunRow,
    column_values,
    group_text,
)
from oteval.model.selection import EVERYTHING, Condition, Selection
from oteval.store import Store
from oteval.store.column_sql import COLUMN_SQL, decoder_of, group_sql, measure_sql, transport_of

from ..make import asks, call, gap, keep, run

_SECOND = 10**9
_ATTRIBUTES = ("attributes.env", "attributes.n", "attributes.tags", "attributes.none")
# Numbers in Python; SQL does not accept some of them.
_SPELLINGS = ("\uff13", "+3", "0_3", "3e0", "1e23", "inf", "nan", "\u0663", "3 ")
_SOMETIMES_UNKNOWN = (
    *("input_tokens", "output_tokens", "cached_tokens", "seconds", "tokens", "tool_errors"),
    "asked",
)
# Columns whose value some rows do not have.
_SOMETIMES_READ = ("user", "version", "tool", "errors", "asked")


def _messages(chance: random.Random) -> Iterator[Message]:
    """Yield messages with calls that fail, repeat, have odd names or lack results."""
    if chance.random() < 0.7:
        yield Message("user", chance.choice(["Where is it?", "  ", "line\nbreak", "", None, "q"]))
    for _ in range(chance.randrange(4)):
        names = [chance.choice(["f", "g", "odd\ud800", "a b"]) for _ in range(chance.randrange(3))]
        arguments = chance.choice([{}, {"x": 1}, None])
        yield asks(*(call(name, arguments, str(at)) for at, name in enumerate(names)))
        for at in range(len(names)):
            if chance.random() < 0.8:
                yield Message("tool", "x", (), str(at), is_error=chance.random() < 0.4)
    if chance.random() < 0.2:
        yield Message("tool", "late", (), "other", is_error=chance.random() < 0.5)


def _run(number: int, chance: random.Random, history: Trajectory | None) -> Trajectory:
    start = chance.choice([0, number, number * _SECOND, -5, number * 3600 * _SECOND])
    agents = chance.choice([(), (), ("a", "b")])
    return run(
        number,
        *_messages(chance),
        agent=agents[0] if agents else chance.choice(["", "a", "o'dd \"%"]),
        agents=agents,
        service=chance.choice(["", "s"]),
        conversation_id=chance.choice(["", "c1", "c2"]),
        history=history,
        new_from=len(history.messages) if history else 0,
        turn=number % 4,
        parent_id=chance.choice(["", "p"]),
        models=chance.choice([(), ("m",), ("m", "n")]),
        dialects=("genai",) * chance.randrange(2),
        gaps=(gap(), gap("redacted"), gap())[: chance.randrange(4)],
        usage=chance.choice([Usage(), Usage(7, 3, 2, 1), Usage(0, 5, 0, 1), Usage(2**62, 2**62)]),
        finish_reasons=("stop", "length", "stop")[: chance.randrange(4)],
        prompts=("p@1", "q", "@2", "r@s@3")[: chance.randrange(5)],
        user=chance.choice(["", "u1"]),
        version=chance.choice(["", "v1"]),
        start_ns=start,
        end_ns=start + chance.choice([-7, 0, 1, _SECOND, 1_500_000_001]),
        attributes=chance.choice(
            [{}, {"env": "x", "n": 3}, {"n": 0.5, "tags": ["a"]}, {"n": "\uff13"}]
        ),
    )


@pytest.fixture(scope="module")
def runs() -> list[Trajectory]:
    """Return runs with all kinds of values, some of which continue others."""
    chance, trajectories = random.Random(11), list[Trajectory]()
    for number in range(1, 100):
        history = chance.choice(trajectories) if trajectories and chance.random() < 0.2 else None
        trajectories.append(_run(number, chance, history))
    return trajectories


@pytest.fixture(scope="module")
def filled(runs: list[Trajectory]) -> Iterator[Store]:
    """Yield a store with the runs."""
    with Store() as store:
        keep(store, *runs)
        yield store


def test_every_column_has_its_sql() -> None:
    """Python and SQL have the same columns."""
    assert list(COLUMN_SQL) == list(COLUMNS)


@pytest.mark.parametrize("name", [*COLUMNS, *_ATTRIBUTES])
def test_sql_and_python_give_the_same_value(
    name: str, filled: Store, runs: list[Trajectory]
) -> None:
    """A row has the value of its run; only columns that a row may lack are read from the run."""
    scalar, parameters = transport_of(name)
    rows = filled._connection.execute(
        f"SELECT trajectory_id, {scalar} FROM current_trajectories", list(parameters)
    ).fetchall()
    decode, by_id = decoder_of(name), {run.id: run for run in runs}
    from_rows = {key: decode(value) for key, value in rows if value is not None}

    expected = {key: column_values(by_id[key])(name) for key in from_rows}

    assert from_rows == expected
    assert len(rows) == len(runs)
    assert len(from_rows) == len(rows) or (name in _SOMETIMES_READ and from_rows)
    assert name in _ATTRIBUTES or len({*map(repr, expected.values())}) > 1


def test_listed_rows_are_those_of_the_runs(filled: Store, runs: list[Trajectory]) -> None:
    """A list has the same values, whether from a row or from the run."""
    keys = filled.run_list.keys(EVERYTHING, len(runs))

    rows = {row.id: row for row in filled.run_list.rows(keys)}

    for trajectory in runs:
        assert rows[trajectory.id].values == RunRow.of(trajectory).values


@pytest.mark.parametrize("name", [*GROUPS, *_ATTRIBUTES[:2]])
def test_sql_and_python_group_alike(name: str, filled: Store, runs: list[Trajectory]) -> None:
    """Monitors, in SQL, and reports, in Python, have the same groups."""
    group, parameters = group_sql(name)
    rows = filled._connection.execute(
        f"SELECT trajectory_id, {group} FROM current_trajectories", parameters
    ).fetchall()

    assert dict(rows) == {run.id: group_text(name, column_values(run)) for run in runs}


@pytest.mark.parametrize("measure", [*MEASURES])
def test_monitors_measure_the_value_of_a_column(
    measure: str, filled: Store, runs: list[Trajectory]
) -> None:
    """Each row has the value, or none, so that no run has to be read."""
    column = MEASURES[measure]
    rows = filled._connection.execute(
        f"SELECT trajectory_id, {measure_sql(measure)} FROM current_trajectories"
    ).fetchall()

    assert dict(rows) == {run.id: column.value(run) for run in runs}


@pytest.mark.parametrize("name", [*FIELDS, *_ATTRIBUTES])
def test_sql_and_python_filter_alike(name: str, filled: Store, runs: list[Trajectory]) -> None:
    """With each operator, the store selects the runs that meet the condition."""
    is_number = name in COLUMNS and COLUMNS[name].kind == "number"
    values = sorted({str(item) for run in runs[:60] for item in _items(run, name)})
    chosen = random.Random(name).sample(values, min(2, len(values)))
    conditions = [Condition(name, operator, "1") for operator in ("~", ">")]
    for value in [*chosen, "1"] if is_number else [*chosen, ""]:
        operators = ("=", "!=", ">", "<=") if is_number else ("=", "!=")
        conditions += [Condition(name, operator, value) for operator in operators]
    conditions += [Condition(name, "=", value) for value in _SPELLINGS]
    for condition in conditions:
        keys = filled.trajectories.key_table(Selection(conditions=(condition,)))

        expected = {run.id for run in runs if condition.holds(run)}
        assert set(keys["trajectory_id"].to_pylist()) == expected, condition


@pytest.mark.parametrize("name", FIELDS)
def test_no_comparison_with_an_unknown_value_is_true(
    name: str, filled: Store, runs: list[Trajectory]
) -> None:
    """A run whose value is not known is found by none of the operators."""
    unknown = {run.id for run in runs if COLUMNS[name].value(run) is None}
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        for value in ("0", "1", "1e300"):
            condition = Condition(name, operator, value)
            keys = filled.trajectories.key_table(Selection(conditions=(condition,)))
            assert not unknown.intersection(keys["trajectory_id"].to_pylist()), condition
    assert bool(unknown) == (name in _SOMETIMES_UNKNOWN)


def _items(trajectory: Trajectory, name: str) -> tuple[object, ...]:
    value = column_values(trajectory)(name)
    return value if isinstance(value, tuple) else (value,)
