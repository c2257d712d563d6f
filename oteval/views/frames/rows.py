"""The rows of each table of `oteval.model.TABLES`, read from a store page by page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...base.errors import NotFound
from ...model import (
    EVERYTHING,
    TABLES,
    CallRow,
    Experiment,
    ExperimentResultRow,
    Feedback,
    Label,
    MessageRow,
    RowColumn,
    RunRow,
    Score,
    Selection,
    TableName,
    call_results,
    cell,
    is_list,
)
from ...store import RunKey, Store

__all__ = ["count_rows", "read_rows", "schema_of"]

# The runs whose columns are read at once.
_PAGE = 500
# Questions are whole, as in the table of messages.
_LONGEST_QUESTION = (1 << 31) - 1
_TYPES = {
    "text": pa.string(),
    "content": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
    "flag": pa.bool_(),
}


def schema_of(table: TableName) -> pa.Schema:
    """The columns of a table, with their types in Arrow."""
    return pa.schema([(column.name, _type_of(column)) for column in TABLES[table]])


def _type_of(column: RowColumn) -> pa.DataType:
    if column.kind == "number":
        return pa.int64() if column.is_integer else pa.float64()
    if column.kind == "texts":
        return pa.list_(pa.string()) if is_list(column) else pa.string()
    return _TYPES[column.kind]


def read_rows(
    store: Store, table: TableName, selection: Selection = EVERYTHING, names: Sequence[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, each with a cell for every column.

    Args:
        store: The store.
        table: The table.
        selection: Only rows of these runs.
        names: Only scores of these evaluators, or results of these experiments; all when empty.

    Raises:
        NotFound: No evaluator or experiment has one of the names.
    """
    columns = TABLES[table]
    if table == "runs":
        for row in _runs(store, selection):
            yield tuple(cell(column, row[column.name]) for column in columns)
        return
    for item in _ITEMS[table](store, selection, names):
        yield tuple(cell(column, column.value(item)) for column in columns)


def count_rows(
    store: Store, table: TableName, selection: Selection = EVERYTHING, names: Sequence[str] = ()
) -> int:
    """The number of rows that `read_rows` yields."""
    if table == "runs":
        return len(store.trajectories.key_table(selection))
    if table in ("messages", "calls"):
        messages, calls = store.trajectories.own_counts(selection)
        return messages if table == "messages" else calls
    if table == "scores":
        return len(_score_numbers(store, selection, names))
    return sum(1 for _ in _ITEMS[table](store, selection, names))


def _runs(store: Store, selection: Selection) -> Iterator[RunRow]:
    names = [column.name for column in TABLES["runs"]]
    for page in store.trajectories.keys(selection, _PAGE):
        ids, starts = (page[name].to_pylist() for name in ("trajectory_id", "start_ns"))
        keys = [RunKey(start, run) for run, start in zip(ids, starts, strict=True)]
        yield from store.run_list.rows(keys, names, longest=_LONGEST_QUESTION)


def _messages(store: Store, selection: Selection, _names: Sequence[str]) -> Iterator[MessageRow]:
    for run in store.trajectories.read(selection):
        for number, message in enumerate(run.own_messages, run.new_from):
            yield MessageRow(run, number, message)


def _calls(store: Store, selection: Selection, _names: Sequence[str]) -> Iterator[CallRow]:
    for run in store.trajectories.read(selection):
        results = iter(call_results(run.own_messages))
        number = 0
        for at, message in enumerate(run.own_messages, run.new_from):
            for call in message.tool_calls:
                yield CallRow(run, at, number, call, next(results))
                number += 1


def _score_numbers(store: Store, selection: Selection, names: Sequence[str]) -> pa.Table:
    for name in names:
        if not store.scores.versions(name):
            raise NotFound(f"no evaluator {name!r} has scores; oteval scores lists them")
    return store.scores.numbers(evaluators=names, ids=_ids(store, selection))


def _scores(store: Store, selection: Selection, names: Sequence[str]) -> Iterator[Score]:
    yield from store.scores.at(_score_numbers(store, selection, names))


def _experiments(
    store: Store, selection: Selection, names: Sequence[str]
) -> Iterator[ExperimentResultRow]:
    chosen = [store.experiments.get(name) for name in names]
    runs = _ids(store, selection)
    for experiment in chosen or reversed(store.experiments.read()):
        yield from _results(store, experiment, runs)


def _results(
    store: Store, experiment: Experiment, runs: Collection[str] | None
) -> Iterator[ExperimentResultRow]:
    examples = {
        example.id: example for example in store.datasets.examples(experiment.dataset_version)
    }
    by_run: dict[str, list[Feedback]] = {}
    for feedback in store.experiments.feedback(experiment.id):
        by_run.setdefault(feedback.run_id, []).append(feedback)
    for run in store.experiments.runs(experiment.id):
        if runs is None or run.trajectory_id in runs:
            for result in by_run.get(run.id) or (None,):
                yield ExperimentResultRow(experiment, examples.get(run.example_id), run, result)


def _labels(store: Store, selection: Selection, _names: Sequence[str]) -> Iterator[Label]:
    runs = _ids(store, selection)
    for label in store.labels.read():
        if runs is None or label.trajectory_id in runs:
            yield label


def _ids(store: Store, selection: Selection) -> set[str] | None:
    """The ids of the selected runs; None if all rows are selected, also those without a run."""
    if selection == EVERYTHING:
        return None
    return set(store.trajectories.key_table(selection)["trajectory_id"].to_pylist())


_ITEMS: Mapping[str, Callable[[Store, Selection, Sequence[str]], Iterator[Any]]] = {
    "messages": _messages,
    "calls": _calls,
    "scores": _scores,
    "experiments": _experiments,
    "labels": _labels,
}
