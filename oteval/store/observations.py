"""New observations of monitors, read from scores and trajectories in the order of storage.

An observation is one conversation of one group: the mean over its runs. A run without a
conversation is one. A conversation's runs stay open until it was idle for a while or is old; then
it is closed, and later runs, scores and revisions of it are ignored.

Reading goes in parts of a range of `seq`, so that memory stays bounded. Each part is joined with
its runs, then with the open runs of earlier parts, all in DuckDB; only closed observations are
returned. The caller has begun a transaction, in which it also notes the new position.

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

from ..selection import EVERYTHING, Selection
from .query import condition_of, number, registered, wanted

__all__ = [
    "COST",
    "RUN_VALUES",
    "SCORE_VALUES",
    "ObservationReader",
    "ObservationSource",
    "ReadPosition",
    "group_of",
    "matching",
    "needs_python",
    "prices_of",
    "text_of",
]

_IDLE_NS = 600 * 10**9
_OLDEST_NS = 3600 * 10**9
_DAY_NS = 86_400 * 10**9
# Conversations are remembered for so many days; runs that are older than that are ignored.
_REMEMBERED_DAYS = 30
# Rows before the position are read again, because concurrent writers may commit out of order.
_OVERLAP = 1000
# The most open runs of a monitor; beyond it, the oldest conversations are closed early.
_MAX_OPEN = 100_000
# How many more runs than new scores are looked through before all are.
_SLACK = 4
_DEFERRED = """coalesce(contains(metadata, '"oteval.deferred"'), FALSE)"""

# The value of a score, and which scores have one.
SCORE_VALUES: Mapping[str, tuple[str, str]] = {
    "pass_rate": ("coalesce(passed::DOUBLE, score)", "status = 'ok'"),
    "score": ("score", "status = 'ok'"),
    "error_rate": ("(status = 'error')::DOUBLE", f"NOT {_DEFERRED}"),
    "not_evaluated_rate": ("(status = 'not_evaluated')::DOUBLE", f"NOT {_DEFERRED}"),
}
# The value of a run; NULL where it has none.
RUN_VALUES: Mapping[str, str] = {
    "latency": "(end_ns - start_ns) / 1e9",
    "tokens": "nullif(input_tokens + output_tokens, 0)::DOUBLE",
    "cost": "cost",
    "tool_errors": "CASE WHEN len(call_names) > 0 "
    "THEN len(list_filter(call_errors, lambda e: e)) / len(call_names) END",
    "loops": "CASE WHEN len(call_hashes) > 0 THEN (len(list_filter("
    "range(1, len(call_hashes) - 1), lambda i: call_hashes[i] = call_hashes[i + 1] "
    "AND call_hashes[i] = call_hashes[i + 2])) > 0)::DOUBLE END",
    "length": "len(roles)::DOUBLE",
    "new_variants": "0.0",
    "variant_shift": "0.0",
}
# The cost at the prices of the dearest of a run's models.
COST = (
    ", (SELECT max(per_input * t.input_tokens + per_output * t.output_tokens) FROM prices "
    "WHERE list_contains(t.models, model)) AS cost"
)
_ERROR_MEASURES = ("error_rate", "not_evaluated_rate")
_VARIANTS = ("new_variants", "variant_shift")
_GROUP_COLUMNS = {
    "agent": "coalesce(agent, '')",
    "service": "coalesce(service, '')",
    "model": "coalesce(models[1], '')",
}
_VERSION_KEYS = ("service.version", "gen_ai.agent.version", "version", "deployment.id")
_RUN_COLUMNS = "nullif(conversation_id, '') AS conversation_id, start_ns, end_ns"
_ATTRIBUTE = "json_extract_string(attributes, ?)"
# An attribute equals a text; numbers equal as numbers.
_EQUAL = (
    f"lower({_ATTRIBUTE}) = lower(?) OR (json_type(attributes, ?) NOT IN ('VARCHAR', 'BOOLEAN') "
    f"AND try_cast({_ATTRIBUTE} AS DOUBLE) = try_cast(? AS DOUBLE))"
)
_UNLIMITED = 1 << 62
_OPEN_COLUMNS = (
    'conversation, "group", is_single, trajectory_id, version, '
    "value, variant, start_ns, end_ns, seq"
)


@dataclass(frozen=True, slots=True)
class ObservationSource:
    """The observations of a monitor.

    Attributes:
        monitor: Its name.
        measure: One of the measures of scores or of runs.
        evaluator: The evaluator whose scores are read; None for a measure of runs.
        group_by: ``agent``, ``service``, ``version``, ``model`` or ``attributes.KEY``.
        selection: Which runs are observed.
        prices: US dollars per input and output token by model, for the measure ``cost``.
    """

    monitor: str
    measure: str
    evaluator: str | None = None
    group_by: tuple[str, ...] = ()
    selection: Selection = EVERYTHING
    prices: Callable[[Collection[str]], Mapping[str, tuple[float, float]]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """How far a monitor has read.

    Attributes:
        position: The number of the last score or run.
        run_seq: The number of the last run that belonged to a score.
        reached_ns: The latest time of an observation.
    """

    position: int = 0
    run_seq: int = 0
    reached_ns: int = 0


class ObservationReader:
    """Reads the observations of monitors from a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def newest(self, source: ObservationSource) -> int:
        """Return the number of the newest score or run, up to which a check reads."""
        if source.evaluator is None:
            return self.newest_run()
        return number(self._connection, "SELECT coalesce(max(seq), 0) FROM scores")

    def newest_run(self) -> int:
        """Return the number of the newest run."""
        return number(self._connection, "SELECT coalesce(max(seq), 0) FROM trajectories")

    def dimensions(
        self, ids: Collection[str], attributes: Sequence[str] = ()
    ) -> dict[str, dict[str, str]]:
        """Return the tools, model, version and attributes of runs, by dimension and id.

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
        found: dict[str, dict[str, str]] = {}
        for name, tools, texts in rows:
            parts = zip(("model", "version", *attributes), json.loads(texts), strict=True)
            for dimension, value in (("tools", tools), *parts):
                found.setdefault(dimension, {})[name] = value
        return found

    def read(
        self,
        source: ObservationSource,
        at: ReadPosition,
        *,
        upto: int,
        is_last: bool,
        now_ns: int,
        accepts: Callable[[Collection[str]], Collection[str]] | None = None,
    ) -> tuple[pa.Table, ReadPosition]:
        """Return the observations that are closed by the next rows, in the order of storage.

        Args:
            source: The observations to read.
            at: How far it was read.
            upto: The last number to read.
            is_last: Whether no later rows are stored, so that idle conversations are closed by the
                clock instead of by the times of later runs.
            now_ns: The time (ns).
            accepts: Returns those of some trajectories that match conditions which SQL cannot
                check; None without such conditions.

        Returns:
            A table with ``group``, ``version``, ``value``, ``variants``, ``time_ns``, ``seq`` and
            ``trajectory_id``, and the new position.
        """
        run_seq = self._collect(source, at, upto)
        if accepts is not None:
            self._reject(accepts)
        return self._close(source, at, upto, run_seq, is_last=is_last, now_ns=now_ns)

    def _collect(self, source: ObservationSource, at: ReadPosition, upto: int) -> int:
        """Fill ``temp.fresh`` with new runs and their values; return the last run's number."""
        first = max(0, at.position - _OVERLAP)
        group, group_values = group_of(source.group_by)
        clause, values = matching(source.selection)
        if source.evaluator is None:
            value = RUN_VALUES[source.measure]
            with prices_of(self._connection, source, "seq > ? AND seq <= ?", [first, upto]):
                self._connection.execute(
                    f"""
                    CREATE OR REPLACE TEMP TABLE fresh AS
                    SELECT trajectory_id, rev, '' AS version, {value} AS value,
                           strict_names AS variant, seq, {_RUN_COLUMNS}, {group} AS "group"
                    FROM (SELECT t.*{COST if source.measure == "cost" else ""} FROM trajectories t
                          WHERE seq > ? AND seq <= ?)
                    WHERE isfinite({value}) AND ({clause})
                    AND NOT list_has_any(gap_codes, ['internal_error', 'too_large'])
                    """,  # noqa: S608
                    [*group_values, first, upto, *values],
                )
                self._connection.execute(
                    "DELETE FROM fresh WHERE (trajectory_id, rev) IN (SELECT trajectory_id, rev "
                    "FROM superseded)"
                )
            return upto
        value, status = SCORE_VALUES[source.measure]
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE fresh_scores AS
            SELECT trajectory_id, rev, version, {value} AS value, seq FROM scores
            WHERE evaluator = ? AND seq > ? AND seq <= ? AND {status} AND isfinite({value})
            """,  # noqa: S608
            [source.evaluator, first, upto],
        )
        join = f"""
            SELECT s.trajectory_id, s.rev, version, value, NULL::BIGINT AS variant, s.seq,
                   {_RUN_COLUMNS}, {group} AS "group", ({clause}) AS matches, run_seq
            FROM fresh_scores s JOIN (
                SELECT * EXCLUDE (seq), seq AS run_seq FROM trajectories
                WHERE seq > ? AND seq <= ?
            ) t ON s.trajectory_id = t.trajectory_id AND s.rev = t.rev
            """  # noqa: S608
        low = max(0, at.run_seq - _OVERLAP - (upto - first))
        near = [*group_values, *values, low, low + _SLACK * (upto - first) + _OVERLAP]
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE found_runs AS {join}", near)
        missing = number(
            self._connection,
            "SELECT count(*) FROM fresh_scores ANTI JOIN found_runs USING (trajectory_id, rev) "
            "WHERE seq > ?",
            [at.position],
        )
        if missing:
            everywhere = [*group_values, *values, -1, _UNLIMITED]
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE found_runs AS {join}", everywhere
            )
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE fresh AS SELECT * EXCLUDE (matches, run_seq) "
            "FROM found_runs WHERE matches"
        )
        last = number(self._connection, "SELECT coalesce(max(run_seq), 0) FROM found_runs")
        for name in ("fresh_scores", "found_runs"):
            self._connection.execute(f"DROP TABLE temp.{name}")
        return max(at.run_seq, last)

    def _reject(self, accepts: Callable[[Collection[str]], Collection[str]]) -> None:
        """Delete the new runs that conditions in Python do not accept."""
        rows = self._connection.execute("SELECT DISTINCT trajectory_id FROM fresh").fetchall()
        accepted = accepts([name for (name,) in rows])
        with wanted(self._connection, "trajectory_id", accepted):
            self._connection.execute(
                "DELETE FROM fresh WHERE trajectory_id NOT IN (SELECT trajectory_id FROM wanted)"
            )

    def _close(
        self,
        source: ObservationSource,
        at: ReadPosition,
        upto: int,
        run_seq: int,
        *,
        is_last: bool,
        now_ns: int,
    ) -> tuple[pa.Table, ReadPosition]:
        """Return the closed observations, and keep the open runs."""
        newest = number(self._connection, "SELECT coalesce(max(end_ns), 0) FROM fresh")
        reached = max(at.reached_ns, min(newest, now_ns))
        horizon = now_ns if is_last else reached
        forgotten = reached // _DAY_NS - _REMEMBERED_DAYS
        # A failed evaluation is tried again, and the last attempt counts.
        waits = "TRUE" if source.measure in _ERROR_MEASURES else "conversation_id IS NOT NULL"
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE monitor_runs AS
            WITH incoming AS (
                SELECT md5_number_lower(concat("group", chr(0), coalesce(conversation_id,
                       trajectory_id))) AS conversation, "group", NOT ({waits}) AS is_single,
                       trajectory_id, version, value, variant, start_ns, end_ns, seq
                FROM fresh WHERE end_ns >= ?
            ), known AS (
                SELECT * FROM incoming ANTI JOIN (
                    SELECT conversation FROM monitor_conversations WHERE monitor = ?
                ) USING (conversation)
                UNION ALL BY NAME
                SELECT {_OPEN_COLUMNS} FROM monitor_open_runs WHERE monitor = ?
            )
            SELECT * FROM known QUALIFY row_number() OVER (
                PARTITION BY conversation, trajectory_id ORDER BY seq DESC) = 1
            """,  # noqa: S608
            [forgotten * _DAY_NS, source.monitor, source.monitor],
        )
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE closed AS
            SELECT conversation, any_value("group") AS "group", arg_max(version, seq) AS version,
                   avg(value) AS value, {_variants_of(source.measure)} AS variants,
                   max(end_ns) AS time_ns, max(seq) AS seq,
                   arg_min(trajectory_id, value) AS trajectory_id
            FROM monitor_runs GROUP BY conversation
            HAVING bool_and(is_single) OR max(end_ns) <= $horizon - {_IDLE_NS}
            OR min(start_ns) <= $horizon - {_OLDEST_NS}
            OR min(end_ns) <= coalesce((SELECT end_ns FROM monitor_runs ORDER BY end_ns DESC
                                        LIMIT 1 OFFSET {_MAX_OPEN}), {-_UNLIMITED})
            """,  # noqa: S608
            {"horizon": horizon},
        )
        self._note_closed(source.monitor, forgotten)
        found = self._connection.sql(
            'SELECT * EXCLUDE (conversation) FROM closed ORDER BY seq, "group"'
        ).to_arrow_table()
        for name in ("fresh", "monitor_runs", "closed"):
            self._connection.execute(f"DROP TABLE temp.{name}")
        return found, ReadPosition(upto, run_seq, reached)

    def _note_closed(self, monitor: str, forgotten: int) -> None:
        """Note the conversations of ``temp.closed`` as observed, and the other runs as open."""
        self._connection.execute(
            f"INSERT INTO monitor_conversations SELECT ?, conversation, "  # noqa: S608
            f"least(greatest(time_ns // {_DAY_NS}, 0), 1000000)::INTEGER FROM closed",
            [monitor],
        )
        self._connection.execute(
            "DELETE FROM monitor_conversations WHERE monitor = ? AND day < ?", [monitor, forgotten]
        )
        self._connection.execute("DELETE FROM monitor_open_runs WHERE monitor = ?", [monitor])
        self._connection.execute(
            f"INSERT INTO monitor_open_runs SELECT ?, {_OPEN_COLUMNS} FROM monitor_runs "  # noqa: S608
            "WHERE conversation NOT IN (SELECT conversation FROM closed)",
            [monitor],
        )


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
    rows = connection.execute(
        f"SELECT DISTINCT unnest(models) FROM trajectories WHERE {condition}",  # noqa: S608
        list(values),
    ).fetchall()
    known = source.prices([name for (name,) in rows])
    table = pa.table(
        {
            "model": pa.array(list(known), pa.string()),
            "per_input": pa.array([price[0] for price in known.values()], pa.float64()),
            "per_output": pa.array([price[1] for price in known.values()], pa.float64()),
        }
    )
    with registered(connection, "prices", table):
        yield


def _variants_of(measure: str) -> str:
    # Only these measures look at variants, and lists take much memory.
    return "list(variant ORDER BY seq)" if measure in _VARIANTS else "NULL::BIGINT[]"


def group_of(group_by: Iterable[str]) -> tuple[str, list[Any]]:
    """Return the expression of a run's group, a JSON list of texts, with its parameters."""
    found = [text_of(name) for name in group_by]
    parts = ", ".join(part for part, _ in found)
    return f"to_json([{parts}]::VARCHAR[])::VARCHAR", [one for _, more in found for one in more]


def text_of(name: str) -> tuple[str, list[Any]]:
    """Return one of a run's values, by its name in `group_by`, as an expression with parameters."""
    if name in _GROUP_COLUMNS:
        return _GROUP_COLUMNS[name], []
    if name == "version":
        keys = [_pointer(key) for key in _VERSION_KEYS]
        return f"coalesce({', '.join([_ATTRIBUTE] * len(keys))}, '')", keys
    return f"coalesce({_ATTRIBUTE}, '')", [_pointer(name.removeprefix("attributes."))]


def _pointer(key: str) -> str:
    """Return the JSON pointer of an attribute."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def matching(selection: Selection) -> tuple[str, list[Any]]:
    """Return a selection as a condition on runs, without its comparisons and questions."""
    clause, values = condition_of(selection)
    parts = [clause]
    for key, accepted in selection.attributes.items():
        alternatives = []
        for text in accepted:
            alternatives.append(_EQUAL)
            values += [_pointer(key), text, _pointer(key), _pointer(key), text]
        parts.append(f"coalesce({' OR '.join(alternatives)}, FALSE)")
    if selection.excluded is not None and not needs_python(selection.excluded):
        excluded, more = matching(selection.excluded)
        parts.append(f"NOT coalesce({excluded}, FALSE)")
        values += more
    return " AND ".join(f"({part})" for part in parts), values


def needs_python(selection: Selection) -> bool:
    """Return whether a selection has conditions that `ObservationReader` cannot check itself."""
    excluded = selection.excluded
    return bool(selection.conditions or selection.asked) or (
        excluded is not None and needs_python(excluded)
    )
