"""Scores, and the labels that people gave.

Tables: ``scores`` and ``human_labels``. Rows are appended. `current_scores` defines which score
counts. The newest label of each trajectory, evaluator and person counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, fields
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_type_hints

import duckdb
import pyarrow as pa

from ..base.jsontext import dumps, restore
from ..model import EVERYTHING, Label, Score, Selection, Status
from .arrow_rows import table_of
from .current_scores import (
    current_numbers,
    current_scores,
    latest,
    replaced_scores,
    withdrawn_numbers,
)
from .memory import fetch
from .query import (
    column,
    condition_of,
    first_row,
    insert,
    next_number,
    reader,
    registered,
    rows_of,
    wanted,
)

__all__ = [
    "HAS_UNKNOWN_COST",
    "REPORTED_COST",
    "SCORE_ROWS",
    "HumanLabels",
    "Outcome",
    "Scores",
    "TalliedScores",
    "outcome_condition",
    "score_of",
    "score_rows",
]

Outcome = Literal["pass", "fail", "error", "not_evaluated"]

# The columns of ``scores`` are the fields of `Score`; metadata is JSON text.
_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    Status: pa.string(),
    Mapping[str, Any]: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    float | None: pa.float64(),
    bool | None: pa.bool_(),
}
_IDENTITY = ("trajectory_id", "rev", "trace_id", "span_id", "evaluator", "version")
_HINTS = get_type_hints(Score)
SCORE_ROWS = pa.schema(
    (name, pa.int32() if name == "rev" else _TYPES[_HINTS[name]])
    for name in dict.fromkeys([*_IDENTITY, *(field.name for field in fields(Score))])
)
# Rows from before a column was added have no value in it.
_DEFAULTS = {
    field.name: field.default
    for field in fields(Score)
    if field.default is not MISSING and field.default is not None
}
# The score of a version of an evaluator on each run, and the newest score of other versions.
_PAIRS = f"""
    WITH of_version AS NOT MATERIALIZED (
        SELECT * FROM scores WHERE evaluator = ? AND version = ?
    ),
    of_others AS NOT MATERIALIZED (SELECT * FROM scores WHERE evaluator = ? AND version <> ?),
    now AS (SELECT * FROM {current_scores("of_version")}),
    before AS (SELECT * FROM {current_scores("of_others")})
"""  # noqa: S608
_OUTCOME = """row(
    {0}.status, {0}.passed,
    CASE WHEN {0}.passed IS NULL THEN {0}.score END,
    CASE WHEN {0}.passed IS NULL THEN {0}.label END
)"""
_CHANGES = (
    f"{_PAIRS} SELECT now, before FROM now JOIN before USING (trajectory_id) "  # noqa: S608
    f"WHERE {_OUTCOME.format('now')} IS DISTINCT FROM {_OUTCOME.format('before')} "
    "ORDER BY now.trajectory_id"
)
_COMPARED = (
    f"{_PAIRS} SELECT count(*), "  # noqa: S608
    "list(DISTINCT before.version ORDER BY before.version) "
    "FROM now JOIN before USING (trajectory_id)"
)
_NUMBERS = """
    WITH chosen AS NOT MATERIALIZED (SELECT * FROM scores WHERE {chosen})
    SELECT seq FROM {current} {joins} WHERE {scored} ORDER BY seq
"""
# The scores of a stretch, and later scores of the same runs, which may have replaced them. A join
# with the evaluators as well takes ten times as long.
_SINCE = """
    SEMI JOIN (SELECT trajectory_id FROM scores WHERE seq > ? AND seq <= ?) USING (trajectory_id)
    WHERE seq > ?
"""
_SELECTED = """
    SEMI JOIN (SELECT trajectory_id FROM current_trajectories WHERE {clause}) USING (trajectory_id)
"""
# A run may be deleted while it is scored. One join with both lists is faster than two joins.
_UNCOUNTED = f"""(
    SELECT seq FROM {replaced_scores("chosen")}
    UNION ALL SELECT seq FROM scores ANTI JOIN trajectories USING (trajectory_id)
)"""  # noqa: S608
# The cost that a score reports, as `oteval.model.reported_cost`: the first of the two that is a
# number. Metadata is only parsed if it may have a cost.
REPORTED_COST = """
    CASE WHEN contains(metadata, '"cost') THEN list_filter(
        list_transform(
            json_extract(metadata, ['$.cost_usd', '$.cost']),
            lambda found: TRY_CAST(found::VARCHAR AS DOUBLE)
        ),
        lambda found: found IS NOT NULL
    )[1] END
"""
# As `oteval.model.has_unknown_cost`.
HAS_UNKNOWN_COST = (
    """(contains(metadata, '"cost_usd"') AND json_type(metadata, '$.cost_usd') = 'NULL')"""
)
_OUTCOMES: dict[Outcome, str] = {
    "pass": "passed",
    "fail": "NOT passed",
    "error": "status = 'error'",
    "not_evaluated": "status = 'not_evaluated'",
}
_LABEL = "trajectory_id, passed, evaluator, person, note, score, created_ns"
# The number of scores on the first page, and on the largest.
_FIRST_PAGE, _MAX_PAGE = 256, 8192
_COLUMNS = [name for name in SCORE_ROWS.names if name != "metadata"]


def outcome_condition(outcome: Outcome) -> str:
    """The condition on ``scores`` for an outcome."""
    return _OUTCOMES[outcome]


def score_of(row: Mapping[str, Any]) -> Score:
    """The score of a row of ``scores``."""
    values = {name: row[name] for name in _COLUMNS}
    for name, default in _DEFAULTS.items():
        if values[name] is None:
            values[name] = default
    return Score(**values, metadata=restore(row["metadata"]))


def score_rows(scores: Sequence[Score]) -> pa.Table:
    """Return scores as rows of ``scores``, without their numbers."""
    rows = [
        [
            dumps(score.metadata) if name == "metadata" else getattr(score, name)
            for name in SCORE_ROWS.names
        ]
        for score in scores
    ]
    return table_of(rows, SCORE_ROWS)


class TalliedScores(NamedTuple):
    """Scores that count alike.

    Attributes:
        evaluator: The evaluator's name.
        status: ``ok``, ``error`` or ``not_evaluated``.
        passed: Whether they are passes; None without a pass or fail.
        score: The number.
        metadata: The metadata, where it names lists in another order; else empty.
        runs: The number of scores.
        asked: The number of scores from language models.
        cached: The number of these that are cached answers.
        cost: Their cost in US dollars, as far as it is known.
    """

    evaluator: str
    status: str
    passed: bool | None
    score: float | None
    metadata: dict[str, Any]
    runs: int
    asked: int
    cached: int
    cost: float


class Scores:
    """The scores of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def write(self, scores: Sequence[Score]) -> None:
        """Append scores."""
        if scores:
            self.append(score_rows(scores))

    def append(self, rows: pa.Table) -> None:
        """Append rows of scores, in their order; see `score_rows`."""
        if not len(rows):
            return
        start = next_number(self._connection, "scores")
        numbers = pa.array(range(start, start + len(rows)), pa.int64())
        insert(self._connection, "scores", rows.append_column("seq", numbers))

    def read(self, selection: Selection = EVERYTHING) -> Iterator[Score]:
        """Yield the current scores of the selected trajectories in the order of storage.

        Only `condition_of` of the selection is applied, which may select more: see `is_exact`.
        """
        yield from self.at(self.numbers(selection))

    def numbers(
        self,
        selection: Selection = EVERYTHING,
        *,
        evaluators: Sequence[str] = (),
        outcome: Outcome | None = None,
        ids: Iterable[str] | None = None,
    ) -> pa.Table:
        """The numbers of current scores in the order of storage, to be read with `at`.

        Args:
            selection: The trajectories, as for `read`.
            evaluators: Only scores by these evaluators; by all when empty.
            outcome: Only scores with this outcome.
            ids: Only scores of these trajectories.

        Returns:
            A table with the column ``seq``.
        """
        clause, values = condition_of(selection)
        if evaluators:
            values = [list(evaluators), *values]
        current, joins = current_scores("chosen", replaced=_UNCOUNTED), ""
        if clause != "TRUE":
            current, joins = current_scores("chosen"), _SELECTED.format(clause=clause)
        if ids is not None:
            joins += "SEMI JOIN wanted USING (trajectory_id)"
        query = _NUMBERS.format(
            current=current,
            chosen="list_contains(?::VARCHAR[], evaluator)" if evaluators else "TRUE",
            joins=joins,
            scored="TRUE" if outcome is None else _OUTCOMES[outcome],
        )
        with ExitStack() as stack:
            if ids is not None:
                stack.enter_context(wanted(self._connection, "trajectory_id", ids))
            return fetch(self._connection, query, values)

    def at(self, numbers: pa.Table) -> Iterator[Score]:
        """Yield scores by a table of `numbers`, page by page, except scores deleted since."""
        start, size = 0, _FIRST_PAGE
        while start < len(numbers):
            page = numbers.slice(start, size)
            start, size = start + size, min(_MAX_PAGE, 4 * size)
            yield from map(score_of, self._rows(page))

    def _rows(self, numbers: pa.Table, columns: str = "*") -> Iterable[dict[str, Any]]:
        """The rows with some numbers, in their order, which is the order of storage."""
        if not len(numbers):
            return ()
        first, last = numbers["seq"][0].as_py(), numbers["seq"][len(numbers) - 1].as_py()
        # If all rows are wanted, the join would take more time than reading them.
        join = "" if len(numbers) == last - first + 1 else "SEMI JOIN wanted USING (seq)"
        with registered(self._connection, "wanted", numbers):
            table = fetch(
                self._connection,
                f"SELECT {columns} FROM scores {join} "  # noqa: S608
                f"WHERE seq BETWEEN {first} AND {last} ORDER BY seq",
            )
        return rows_of(table)

    def _current(
        self, chosen: str, values: Sequence[Any], scored: str = "TRUE", columns: str = "*"
    ) -> Iterable[dict[str, Any]]:
        """The rows of current scores, without reading the texts of other scores.

        Args:
            chosen: The joins and conditions that choose scores, as `current_scores` allows.
            values: The parameters.
            scored: The condition on aggregates of a run's scores by an evaluator.
            columns: The columns to return.
        """
        query = f"{current_numbers(chosen)} HAVING {scored} ORDER BY seq"
        return self._rows(fetch(self._connection, query, values), columns)

    def last_number(self) -> int:
        """The number of the score that was stored last; 0 without scores."""
        return next_number(self._connection, "scores") - 1

    def after(self, number: int, limit: int) -> tuple[list[Score], int]:
        """The current scores among the scores stored after a number, in this order.

        Args:
            number: The number of the score before them.
            limit: The most scores to examine.

        Returns:
            The scores, and the number of the last score examined; `number` without any.
        """
        ((last,),) = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM scores WHERE seq > ? ORDER BY seq LIMIT ?)",
            [number, limit],
        ).fetchall()
        if last is None:
            return [], number
        rows = self._current(_SINCE, [number, last, number, last], scored="max(seq) <= ?")
        return [score_of(row) for row in rows], last

    def versions(self, evaluator: str) -> list[str]:
        """The versions of an evaluator with scores, newest first."""
        return column(
            self._connection,
            "SELECT version FROM scores WHERE evaluator = ? "
            "GROUP BY version ORDER BY max(seq) DESC",
            [evaluator],
        )

    def by(self, evaluator: str, version: str, trajectory_ids: Collection[str]) -> dict[str, Score]:
        """The current scores of some runs by a version of an evaluator.

        Returns:
            The scores by trajectory id; runs without a score are left out.
        """
        with wanted(self._connection, "trajectory_id", trajectory_ids):
            rows = self._current(
                "SEMI JOIN wanted USING (trajectory_id) WHERE evaluator = ? AND version = ?",
                [evaluator, version],
            )
        return {row["trajectory_id"]: score_of(row) for row in rows}

    def verdicts(self, evaluator: str, version: str) -> tuple[int, int]:
        """How many runs a version of an evaluator passes, and how many it fails."""
        ((passes, fails),) = self._connection.execute(
            "SELECT count(*) FILTER (passed), count(*) FILTER (NOT passed) "  # noqa: S608
            f"FROM scores SEMI JOIN ({current_numbers('WHERE evaluator = ? AND version = ?')}) "
            "USING (seq)",
            [evaluator, version],
        ).fetchall()
        return int(passes), int(fails)

    def tallied(self) -> Iterator[TalliedScores]:
        """Yield the current scores, counted by equal evaluator, status, pass and score."""
        table = self._connection.sql(
            f"""
            SELECT evaluator, status, passed, score,
                CASE WHEN contains(metadata, '"reordered"') THEN metadata END AS metadata,
                count(*), count(*) FILTER (contains(metadata, '"asked_as"')),
                count(*) FILTER (json_extract(metadata, '$.cached') = true),
                coalesce(sum({REPORTED_COST}), 0)
            FROM {current_scores()} GROUP BY 1, 2, 3, 4, 5 ORDER BY ALL
            """  # noqa: S608
        )
        for evaluator, status, passed, score, metadata, *counts, cost in table.fetchall():
            shown_metadata = restore(metadata) if metadata else {}
            runs, judged, cached = counts
            yield TalliedScores(
                evaluator, status, passed, score, shown_metadata, runs, judged, cached, float(cost)
            )

    def export(self) -> pa.RecordBatchReader:
        """The current scores batch by batch."""
        return reader(self._connection, f"FROM {current_scores()}")

    def of(
        self, trajectory_ids: Sequence[str], longest: int | None = None
    ) -> dict[str, list[Score]]:
        """The current score of each evaluator by trajectory.

        Args:
            trajectory_ids: The trajectories.
            longest: The most characters of a comment; metadata is then left out. Both may be
                large, so lists of runs use this. None reads scores as they are.

        Returns:
            The scores by trajectory id, with every id of `trajectory_ids`.
        """
        return self._newest("trajectory_id", trajectory_ids, longest)

    def on_traces(self, trace_ids: Sequence[str]) -> dict[str, list[Score]]:
        """The current score of each evaluator on each trajectory, by trace.

        Returns:
            The scores by the trace id of their span, with every id of `trace_ids`.
        """
        return self._newest("trace_id", trace_ids)

    def withdrawn(self, trajectory_ids: Sequence[str]) -> list[Score]:
        """Return verdicts on trajectories that no longer count, and that no verdict replaced.

        If an evaluator has no verdict now, this is the last verdict of each of its versions.
        """
        query = withdrawn_numbers("SEMI JOIN wanted USING (trajectory_id)")
        with wanted(self._connection, "trajectory_id", trajectory_ids):
            numbers = fetch(self._connection, query)
        return list(self.at(numbers))

    def _newest(
        self, column: str, ids: Sequence[str], longest: int | None = None
    ) -> dict[str, list[Score]]:
        scores_by_id: dict[str, list[Score]] = {name: [] for name in ids}
        columns = "*"
        if longest is not None:
            columns = f"* REPLACE (left(comment, {int(longest)}) AS comment, '{{}}' AS metadata)"
        with wanted(self._connection, column, scores_by_id):
            rows = self._current(f"SEMI JOIN wanted USING ({column})", [], columns=columns)
        for row in sorted(rows, key=itemgetter("evaluator")):
            scores_by_id[row[column]].append(score_of(row))
        return scores_by_id

    def of_versions(
        self, trajectory_ids: Sequence[str], versions: Sequence[str]
    ) -> dict[tuple[str, str, str], Score]:
        """The current scores of some trajectories by some versions of evaluators.

        A score that another version has replaced is left out.

        Returns:
            The scores by trajectory id, evaluator and version.
        """
        with wanted(self._connection, "trajectory_id", trajectory_ids):
            rows = self._current(
                "SEMI JOIN wanted USING (trajectory_id)",
                [list(versions)],
                f"list_contains(?::VARCHAR[], {latest('version')})",
            )
        scores = map(score_of, rows)
        return {(score.trajectory_id, score.evaluator, score.version): score for score in scores}

    def changes(self, evaluator: str, version: str) -> Iterator[tuple[Score, Score]]:
        """Yield the runs whose outcome differs between a version of an evaluator and earlier ones.

        A run's earlier score is its newest score by any other version of the evaluator. An outcome
        is the status and whether the run passed. For verdicts without a pass or fail, it is the
        score and the label.

        Args:
            evaluator: The evaluator's name.
            version: The version to compare with earlier versions.

        Yields:
            The earlier score and the score of `version`, by the run's id.
        """
        batches = reader(self._connection, _CHANGES, [evaluator, version] * 2)
        for batch in batches:
            for row in batch.to_pylist():
                yield score_of(row["before"]), score_of(row["now"])

    def compared(self, evaluator: str, version: str) -> tuple[int, tuple[str, ...]]:
        """How many runs `changes` compares, and the earlier versions that scored them."""
        row = first_row(self._connection, _COMPARED, [evaluator, version] * 2)
        assert row is not None
        return row[0], tuple(row[1] or ())


class HumanLabels:
    """The labels that people gave the trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, labels: Sequence[Label], created_ns: int) -> None:
        """Append labels.

        Args:
            labels: The labels.
            created_ns: The time (ns).
        """
        if not labels:
            return
        self._connection.executemany(
            f"INSERT INTO human_labels ({_LABEL}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            [
                [
                    *(label.trajectory_id, label.passed, label.evaluator, label.person, label.note),
                    *(label.score, created_ns),
                ]
                for label in labels
            ],
        )

    def of(self, evaluator: str) -> list[Label]:
        """The current labels for one evaluator or for all evaluators, by time."""
        rows = self._connection.execute(
            f"SELECT {_LABEL} FROM current_labels WHERE evaluator IN (?, '') "  # noqa: S608
            "ORDER BY created_ns, trajectory_id",
            [evaluator],
        ).fetchall()
        return [_label_of(row) for row in rows]

    def read(self) -> list[Label]:
        """The current labels for all evaluators, by time."""
        rows = self._connection.execute(
            f"SELECT {_LABEL} FROM current_labels ORDER BY created_ns, trajectory_id, evaluator"  # noqa: S608
        ).fetchall()
        return [_label_of(row) for row in rows]

    def on(self, trajectory_id: str) -> list[Label]:
        """The current labels of a trajectory for all evaluators, the newest first."""
        rows = self._connection.execute(
            f"SELECT {_LABEL} FROM current_labels WHERE trajectory_id = ? "  # noqa: S608
            "ORDER BY created_ns DESC, evaluator, person",
            [trajectory_id],
        ).fetchall()
        return [_label_of(row) for row in rows]


def _label_of(row: Sequence[Any]) -> Label:
    name, passed, evaluator, person, note, score, time_ns = row
    return Label(name, passed, evaluator, person, note or "", score, time_ns or 0)
