"""New scores and runs for monitors, in parts of their storage order.

A monitor reads the rows of a range of `seq`, joined with their runs; `oteval.monitor.conversations`
turns them into observations, one for each conversation. This module stores the observed
conversations, so that later runs, scores and revisions of them are ignored. It also stores the runs
of conversations that are still open. Use it in a transaction, which also stores the new position.

Tables: ``monitor_open_runs``, ``monitor_conversations``; ``scores`` and ``trajectories`` are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from ..model import EVERYTHING, Selection
from .column_sql import HAS_TOKENS, TOKEN_COLUMNS, all_input, group_sql, measure_sql
from .current_scores import current_numbers
from .outlines import Outlines
from .query import column, condition_of, is_exact, number, registered, wanted
from .trajectories import Trajectories

__all__ = [
    "COST",
    "SCORE_VALUES",
    "ObservationReader",
    "ObservationSource",
    "ReadPosition",
    "accepted_runs",
    "checked_runs",
    "group_of",
    "prices_of",
    "value_of",
]

# Rows before the position are read again, because concurrent writers may commit out of order.
_OVERLAP = 1000
# The runs of new scores are searched this near to the previous scores' runs; then in a range longer
# by a factor; then everywhere.
_NEAR = 20_000
_WIDER = 8
_DEFERRED = """coalesce(contains(metadata, '"oteval.deferred"'), FALSE)"""

# The value of a score, and which scores have one.
SCORE_VALUES: Mapping[str, tuple[str, str]] = {
    "pass_rate": ("coalesce(passed::DOUBLE, score)", "status = 'ok'"),
    "score": ("score", "status = 'ok'"),
    "error_rate": ("(status = 'error')::DOUBLE", f"NOT {_DEFERRED}"),
    "not_evaluated_rate": ("(status = 'not_evaluated')::DOUBLE", f"NOT {_DEFERRED}"),
}
# The cost at the prices of the dearest of a run's models. Each of its models must have a price.
_RATED = {
    **{name: f"coalesce(t.{name}, 0)" for name in TOKEN_COLUMNS},
    "input_tokens": f"{all_input('t.')}::DOUBLE",
}
_MODELS_WITH_PRICE = "FROM prices WHERE list_contains(t.models, model)"
COST = f""", CASE WHEN len(list_distinct(t.models)) = (SELECT count(*) {_MODELS_WITH_PRICE}) THEN (
    SELECT max({" + ".join(f"prices.{name} * {tokens}" for name, tokens in _RATED.items())})
    {_MODELS_WITH_PRICE}
) END AS cost"""
_VARIANTS = ("new_variants", "variant_shift")
_RUN_COLUMNS = (
    "trajectory_id, nullif(conversation_id, '') AS conversation_id, "
    "coalesce(start_ns, end_ns) AS start_ns, end_ns"
)
_ACCEPTED_AT_ONCE = 20_000
_UNLIMITED = 1 << 62
# The columns of new runs.
_NEW = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("conversation_id", pa.string()),
        ("group", pa.string()),
        ("version", pa.string()),
        ("value", pa.float64()),
        ("variant", pa.int64()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("seq", pa.int64()),
    ]
)
# The columns of scores whose runs are searched again.
_SCORE = ["trajectory_id", "rev", "version", "value", "seq"]
# The columns of runs of open conversations.
_OPEN = pa.schema(
    [
        ("conversation", pa.uint64()),
        *[field for field in _NEW if field.name != "conversation_id"],
    ]
)
_OPEN_COLUMNS = ", ".join(f'"{name}"' for name in _OPEN.names)


@dataclass(frozen=True, slots=True)
class ObservationSource:
    """The observations of a monitor.

    Attributes:
        monitor: Its name.
        measure: One of the measures of scores or of runs.
        evaluator: The evaluator to read scores of; None for a measure of runs.
        group_by: ``agent``, ``service``, ``version``, ``model`` or ``attributes.KEY``.
        selection: Which runs are observed.
        prices: US dollars per token by model and column of tokens, for the measure ``cost``.
        values: Returns the values of runs by their ids, for a measure that a check defines; None
            for others. Runs without a value are not observed.
    """

    monitor: str
    measure: str
    evaluator: str | None = None
    group_by: tuple[str, ...] = ()
    selection: Selection = EVERYTHING
    prices: Callable[[Collection[str]], Mapping[str, Mapping[str, float]]] | None = field(
        default=None, compare=False
    )
    values: Callable[[pa.Table, Outlines, Trajectories], Mapping[str, float]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """The position of a monitor in the stored rows.

    Attributes:
        position: The number of the last score or run.
        run_seq: The number of the last run that belonged to a score.
        reached_ns: The latest time of an observation.
        first_seq: The number of the last score or run that is never read again.
    """

    position: int = 0
    run_seq: int = 0
    reached_ns: int = 0
    first_seq: int = 0

    @property
    def reread_after(self) -> int:
        """The number to read after: before the position, to include late commits."""
        return max(self.first_seq, self.position - _OVERLAP)


class ObservationReader:
    """Reads the observations of monitors from a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, trajectories: Trajectories) -> None:
        self._connection, self._trajectories = connection, trajectories

    def newest(self, source: ObservationSource) -> int:
        """The number of the newest score or run, the end of a check."""
        if source.evaluator is None:
            return self.newest_run()
        return number(self._connection, "SELECT coalesce(max(seq), 0) FROM scores")

    def newest_run(self) -> int:
        """The number of the newest run."""
        return number(self._connection, "SELECT coalesce(max(seq), 0) FROM trajectories")

    def dimensions(
        self, ids: Collection[str], attributes: Sequence[str] = ()
    ) -> dict[str, dict[str, str]]:
        """The tools, model, version and attributes of runs, by dimension and id.

        Args:
            ids: Their ids.
            attributes: The keys of attributes.
        """
        group, values = group_of(
            ["model", "version", *(f"attributes.{name}" for name in attributes)]
        )
        with wanted(self._connection, "trajectory_id", ids):
            rows = self._connection.execute(
                f"SELECT trajectory_id, array_to_string(call_names, ' > '), {group} "  # noqa: S608
                "FROM current_trajectories "
                "WHERE trajectory_id IN (SELECT trajectory_id FROM wanted)",
                values,
            ).fetchall()
        values_by_dimension: dict[str, dict[str, str]] = {}
        for name, tools, texts in rows:
            parts = zip(("model", "version", *attributes), json.loads(texts), strict=True)
            for dimension, value in (("tools", tools), *parts):
                values_by_dimension.setdefault(dimension, {})[name] = value
        return values_by_dimension

    def new_runs(
        self,
        source: ObservationSource,
        at: ReadPosition,
        upto: int,
    ) -> tuple[pa.Table, int]:
        """The next runs with their values, in no order.

        Some are returned a second time, because the last rows before the position are read again.

        Args:
            source: The observations to read.
            at: How far it was read.
            upto: The last number to read.

        Returns:
            A table with ``trajectory_id``, ``conversation_id`` (may be null), ``group``,
            ``version``, ``value``, ``variant``, ``start_ns``, ``end_ns`` and ``seq``, and the new
            `ReadPosition.run_seq`.
        """
        runs, run_seq = (
            (self._runs(source, at, upto), upto)
            if source.evaluator is None
            else self._scored_runs(source, at, upto)
        )
        runs = accepted_runs(runs, source.selection, self._trajectories)
        runs = checked_runs(runs, source, Outlines(self._connection), self._trajectories)
        return runs.select(_NEW.names).cast(_NEW), run_seq

    def _runs(self, source: ObservationSource, at: ReadPosition, upto: int) -> pa.Table:
        first = at.reread_after
        group, group_values = group_of(source.group_by)
        clause, values = condition_of(source.selection)
        value = value_of(source)
        variant = "strict_names" if source.measure in _VARIANTS else "NULL::BIGINT"
        with prices_of(self._connection, source, "seq > ? AND seq <= ?", [first, upto]):
            return self._connection.sql(
                f"""
                SELECT {_RUN_COLUMNS}, rev, {group} AS "group", '' AS version, {value} AS value,
                       {variant} AS variant, seq
                FROM (SELECT t.*{COST if source.measure == "cost" else ""} FROM trajectories t
                      WHERE seq > ? AND seq <= ?)
                     ANTI JOIN superseded USING (trajectory_id, rev)
                WHERE isfinite({value}) AND end_ns IS NOT NULL AND ({clause})
                AND NOT list_has_any(gap_codes, ['internal_error', 'too_large'])
                """,  # noqa: S608
                params=[*group_values, first, upto, *values],
            ).to_arrow_table()

    def _scored_runs(
        self, source: ObservationSource, at: ReadPosition, upto: int
    ) -> tuple[pa.Table, int]:
        """The runs of new scores, and the number of the last run."""
        from pyarrow import compute  # takes a while, and only monitors need it

        value, status = SCORE_VALUES[source.measure]
        scores = (
            f"SELECT trajectory_id, rev, version, CASE WHEN {status} THEN {value} END AS value, "  # noqa: S608
            "seq FROM scores SEMI JOIN "
            f"({current_numbers('WHERE evaluator = ? AND seq > ? AND seq <= ?')}) USING (seq) "
            "WHERE isfinite(value)"
        )
        joined = self._joined(
            source, scores, [source.evaluator, at.reread_after, upto], *_near(at, upto)
        )
        parts = [joined]
        for low, high in (_wider(at, upto), (-1, _UNLIMITED)):
            missing = joined.filter(compute.is_null(joined["run_seq"]))
            if not missing.num_rows or compute.max(missing["seq"]).as_py() <= at.position:
                break
            with registered(self._connection, "missing_scores", missing.select(_SCORE)):
                joined = self._joined(source, "FROM missing_scores", [], low, high)
            parts.append(joined)
        scored = pa.concat_tables(parts)
        run_seq = compute.max(scored["run_seq"]).as_py() or 0
        return scored.filter(scored["matches"]), max(at.run_seq, run_seq)

    def _joined(
        self, source: ObservationSource, scores: str, values: Sequence[Any], low: int, high: int
    ) -> pa.Table:
        """Return scores with their runs in a range of numbers.

        The columns of a run are NULL if it is outside of the range, or not stored. Not all of the
        runs match the selection.
        """
        group, group_values = group_of(source.group_by)
        clause, clause_values = condition_of(source.selection)
        return self._connection.sql(
            f"""
            SELECT {_RUN_COLUMNS}, rev, {group} AS "group", version, value,
                   NULL::BIGINT AS variant, s.seq, run_seq,
                   end_ns IS NOT NULL AND coalesce({clause}, FALSE) AS matches
            FROM ({scores}) s
                 LEFT JOIN (SELECT * EXCLUDE (seq), seq AS run_seq FROM trajectories
                            WHERE seq > ? AND seq <= ?)
                 USING (trajectory_id, rev)
            """,  # noqa: S608
            params=[*group_values, *clause_values, *values, low, high],
        ).to_arrow_table()

    def observed(self, monitor: str, conversations: pa.Array) -> pa.Array:
        """The hashes of conversations that are observations already."""
        keys = pa.table({"conversation": conversations})
        with registered(self._connection, "wanted_conversations", keys):
            table = self._connection.sql(
                "SELECT conversation FROM monitor_conversations "
                "SEMI JOIN wanted_conversations USING (conversation) WHERE monitor = ?",
                params=[monitor],
            ).to_arrow_table()
        return table["conversation"].combine_chunks()

    def note_observed(self, monitor: str, conversations: pa.Table) -> None:
        """Note conversations as observed: the columns ``conversation``, a hash, and ``day``."""
        with registered(self._connection, "closed", conversations):
            self._connection.execute(
                "INSERT INTO monitor_conversations SELECT ?, conversation, day FROM closed",
                [monitor],
            )

    def forget_observed(self, monitor: str, before: int) -> None:
        """Forget the conversations of the days before a day."""
        self._connection.execute(
            "DELETE FROM monitor_conversations WHERE monitor = ? AND day < ?", [monitor, before]
        )

    def open_runs(self, monitor: str) -> pa.Table:
        """The runs of conversations that are not observations yet, in their order."""
        table = self._connection.sql(
            f"SELECT {_OPEN_COLUMNS} FROM monitor_open_runs WHERE monitor = ? ORDER BY seq",  # noqa: S608
            params=[monitor],
        ).to_arrow_table()
        return table.cast(_OPEN)

    def first_close_ns(self, monitor: str, idle_ns: int, oldest_ns: int) -> int | None:
        """When (ns) the first open conversation of a monitor is over; None without any.

        Args:
            monitor: The monitor.
            idle_ns: A conversation is over after this time without runs.
            oldest_ns: A conversation of this age is over.
        """
        ((close_ns,),) = self._connection.execute(
            # Times far in the future must not overflow.
            "SELECT min(least(max_end::HUGEINT + ?, min_start::HUGEINT + ?)) FROM ("
            "SELECT max(end_ns) AS max_end, min(start_ns) AS min_start FROM monitor_open_runs "
            "WHERE monitor = ? GROUP BY conversation)",
            [idle_ns, oldest_ns, monitor],
        ).fetchall()
        return None if close_ns is None else int(close_ns)

    def put_open_runs(self, monitor: str, runs: pa.Table) -> None:
        """Replace the runs of conversations that are not observations yet."""
        self._connection.execute("DELETE FROM monitor_open_runs WHERE monitor = ?", [monitor])
        if runs.num_rows:
            with registered(self._connection, "open_runs", runs):
                self._connection.execute(
                    "INSERT INTO monitor_open_runs BY NAME "
                    "SELECT ? AS monitor, FALSE AS is_single, * FROM open_runs",
                    [monitor],
                )


def _near(at: ReadPosition, upto: int) -> tuple[int, int]:
    """The range of numbers that has the runs of most new scores."""
    size = upto - at.position
    return at.run_seq - _OVERLAP - min(size, _NEAR), at.run_seq + size + _OVERLAP


def _wider(at: ReadPosition, upto: int) -> tuple[int, int]:
    """The range to search for the other runs, before all numbers are searched."""
    (low, high), size = _near(at, upto), upto - at.position
    return low - size, high + (_WIDER - 1) * size


@contextmanager
def prices_of(
    connection: duckdb.DuckDBPyConnection,
    source: ObservationSource,
    condition: str,
    values: Sequence[Any],
) -> Iterator[None]:
    """Make the prices of the models of some runs available as the table ``prices``."""
    if source.measure != "cost" or source.prices is None:
        yield
        return
    rows = column(
        connection,
        f"SELECT DISTINCT unnest(models) FROM trajectories WHERE {condition}",  # noqa: S608
        list(values),
    )
    prices = source.prices(rows)
    table = pa.table(
        {
            "model": pa.array(list(prices), pa.string()),
            **{
                name: pa.array([rates.get(name, 0.0) for rates in prices.values()], pa.float64())
                for name in TOKEN_COLUMNS
            },
        }
    )
    with registered(connection, "prices", table):
        yield


def accepted_runs(runs: pa.Table, selection: Selection, trajectories: Trajectories) -> pa.Table:
    """The rows of runs that meet the conditions that SQL cannot test exactly."""
    if is_exact(selection) or not runs.num_rows:
        return runs
    from pyarrow import compute  # takes a while, and only monitors need it

    accepted = set[str]()
    for first in range(0, len(runs), _ACCEPTED_AT_ONCE):
        part = runs.slice(first, _ACCEPTED_AT_ONCE)
        accepted |= trajectories.matching_revisions(part, selection)
    ids = pa.array(list(accepted), pa.string())
    return runs.filter(compute.is_in(runs["trajectory_id"], value_set=ids))


def group_of(group_by: Iterable[str]) -> tuple[str, list[Any]]:
    """The expression of a run's group, a JSON list of texts, with its parameters."""
    texts = [group_sql(name) for name in group_by]
    parts = ", ".join(text for text, _ in texts)
    parameters = [parameter for _, more in texts for parameter in more]
    return f"to_json([{parts}]::VARCHAR[])::VARCHAR", parameters


def checked_runs(
    runs: pa.Table, source: ObservationSource, outlines: Outlines, trajectories: Trajectories
) -> pa.Table:
    """Return rows of runs with the values of the check that defines the measure, if one does."""
    if source.values is None or not runs.num_rows:
        return runs
    values_by_run = source.values(runs, outlines, trajectories)
    values = pa.array(
        [values_by_run.get(name) for name in runs["trajectory_id"].to_pylist()], pa.float64()
    )
    column_index = runs.schema.get_field_index("value")
    return runs.set_column(column_index, "value", values).filter(values.is_valid())


def value_of(source: ObservationSource) -> str:
    """The value of a run for a measure of runs; NULL where it has none."""
    if source.values is not None:  # `checked_runs` replaces it
        return "CASE WHEN len(call_names) > 0 THEN 0.0 END"
    if source.measure in _VARIANTS:
        return "0.0"
    if source.measure == "cost":  # tokens that the trace does not report are not free
        return f"CASE WHEN {HAS_TOKENS} THEN cost END"
    return measure_sql(source.measure)
