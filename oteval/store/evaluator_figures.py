"""Figures of evaluators: their verdicts on the runs of a stretch of time, counted in SQL.

In the figures of a version, its own current score on a run counts, whichever version is in force.

Tables: ``scores``, ``trajectories`` and ``superseded`` are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from ..model import EVERYTHING, Selection
from .current_scores import current_scores, replaced_scores
from .memory import fetch
from .query import condition_of, first_row, rows_of
from .scores import HAS_UNKNOWN_COST, REPORTED_COST

__all__ = ["EvaluatorFigures", "EvaluatorVerdicts", "ScoreBin", "VerdictCounts"]

_RUNS = """
    runs AS (
        SELECT trajectory_id, coalesce(agent, '') AS agent,
            CASE WHEN coalesce(agent, '') = '' THEN coalesce(service, '') ELSE '' END AS service,
            least(((start_ns::HUGEINT - {first}) // {step})::INTEGER, {places} - 1) AS place
        FROM trajectories ANTI JOIN superseded USING (trajectory_id, rev)
        WHERE start_ns BETWEEN {first} AND {last} AND {clause}
    )
"""
_SCORED = f"""
    WITH {_RUNS},
    scored AS MATERIALIZED (
        SELECT s.trajectory_id, s.evaluator, s.version, s.rev, s.seq, s.status, s.passed, s.time_ns,
            CASE WHEN isfinite(s.score) THEN s.score END AS score, {REPORTED_COST} AS cost,
            {HAS_UNKNOWN_COST} AS has_unknown_cost,
            r.agent, r.service, r.place
        FROM scores s JOIN runs r USING (trajectory_id) WHERE {{wanted}}
    ),
    replaced AS MATERIALIZED {replaced_scores("scored")},
    newest AS NOT MATERIALIZED {current_scores("scored", replaced="replaced")}
"""  # noqa: S608
_COUNTS = """
    count(*) FILTER (status = 'ok' AND passed) AS passed,
    count(*) FILTER (status = 'ok' AND NOT passed) AS failed,
    count(*) FILTER (status = 'ok' AND passed IS NULL) AS unjudged,
    count(*) FILTER (status = 'error') AS errors,
    count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
    count(score) FILTER (status = 'ok') AS scored,
    sum(score) FILTER (status = 'ok') AS total,
    sum(cost) FILTER (cost >= 0 AND isfinite(cost)) AS cost,
    count(*) FILTER (has_unknown_cost) AS unpriced,
    min(time_ns) FILTER (time_ns > 0) AS first_ns, max(time_ns) AS last_ns
"""
_LIST = f"""
    {_SCORED}
    SELECT evaluator, 'place' AS kind, place::VARCHAR AS name, '' AS service, {_COUNTS}
    FROM newest GROUP BY evaluator, place
    UNION ALL BY NAME
    SELECT evaluator, 'version' AS kind, version AS name, '' AS service, {_COUNTS}
    FROM {current_scores("scored", replaced="replaced", of_versions=True)}
    GROUP BY evaluator, version
"""  # noqa: S608
_ONE = f"""
    {_LIST}
    UNION ALL BY NAME
    SELECT evaluator, 'agent' AS kind, agent AS name, service, {_COUNTS}
    FROM newest GROUP BY evaluator, agent, service
    UNION ALL BY NAME
    SELECT evaluator, 'bin' AS kind,
        greatest(0, least(
            TRY_CAST(floor((score - ?::DOUBLE) / ?::DOUBLE) AS INTEGER), {{bins}} - 1
        ))::VARCHAR
            AS name, '' AS service, {_COUNTS}
    FROM newest WHERE status = 'ok' AND score IS NOT NULL GROUP BY ALL
"""  # noqa: S608
# Fails first, then scores without a pass or fail, the lowest first.
_WORST = f"""
    WITH {_RUNS}
    SELECT trajectory_id FROM scores s SEMI JOIN runs USING (trajectory_id)
    WHERE {{wanted}} AND status = 'ok' AND passed IS NOT TRUE
    ORDER BY passed IS NULL, score ASC NULLS LAST, seq DESC LIMIT {{most}}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Verdicts of an evaluator, counted.

    Attributes:
        passed: The number of passes.
        failed: The number of fails.
        unjudged: The number of scores or labels without a pass or fail.
        errors: The number of runs that made the evaluator fail.
        not_evaluated: The number of runs that it could not judge.
        scored: The number of verdicts with a number.
        total: The sum of these numbers.
        cost: The reported cost in US dollars; None if no score reports any.
        unpriced: The number of verdicts whose cost is not known.
        first_ns: The time of the first verdict (ns since the epoch), 0 if unknown.
        last_ns: The time of the last verdict.
    """

    passed: int = 0
    failed: int = 0
    unjudged: int = 0
    errors: int = 0
    not_evaluated: int = 0
    scored: int = 0
    total: float = 0.0
    cost: float | None = None
    unpriced: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @classmethod
    def summed(cls, parts: Iterable[VerdictCounts]) -> VerdictCounts:
        """The counts of several parts together."""
        counts = list(parts)
        costs = [part.cost for part in counts if part.cost is not None]
        return cls(
            passed=sum(part.passed for part in counts),
            failed=sum(part.failed for part in counts),
            unjudged=sum(part.unjudged for part in counts),
            errors=sum(part.errors for part in counts),
            not_evaluated=sum(part.not_evaluated for part in counts),
            scored=sum(part.scored for part in counts),
            total=sum(part.total for part in counts),
            cost=sum(costs) if costs else None,
            unpriced=sum(part.unpriced for part in counts),
            first_ns=min((part.first_ns for part in counts if part.first_ns), default=0),
            last_ns=max((part.last_ns for part in counts), default=0),
        )

    @property
    def runs(self) -> int:
        """The number of runs with any outcome, including errors and `not_evaluated`."""
        return self.passed + self.failed + self.unjudged + self.errors + self.not_evaluated

    @property
    def judged(self) -> int:
        """The number of passes, fails and errors; 0 if nothing passed or failed."""
        return self.passed + self.failed + self.errors if self.passed or self.failed else 0

    @property
    def mean(self) -> float | None:
        """The mean of the scores that are numbers; None without any."""
        return self.total / self.scored if self.scored else None


@dataclass(frozen=True, slots=True)
class ScoreBin:
    """The scores in a range.

    Attributes:
        low: The lower end of the range.
        high: The upper end.
        counts: Their verdicts.
    """

    low: float
    high: float
    counts: VerdictCounts


@dataclass(frozen=True, slots=True)
class EvaluatorVerdicts:
    """The verdicts of an evaluator on some runs.

    Attributes:
        evaluator: Its name.
        counts: All of them.
        places: The verdicts of each stretch of time, by when the runs began.
        versions: The verdicts of each version, the version with the newest score first.
        agents: The verdicts of each agent, or of a service for runs without an agent (agent,
            service, counts), the most runs first; only for a single evaluator.
        bins: Its scores by range; only for a single evaluator.
    """

    evaluator: str
    counts: VerdictCounts
    places: tuple[VerdictCounts, ...]
    versions: tuple[tuple[str, VerdictCounts], ...]
    agents: tuple[tuple[str, str, VerdictCounts], ...] = ()
    bins: tuple[ScoreBin, ...] = ()


class EvaluatorFigures:
    """Counts the verdicts of each evaluator in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def has_scores(self, evaluator: str) -> bool:
        """Whether an evaluator has returned any score."""
        query = "SELECT 1 FROM scores WHERE evaluator = ? LIMIT 1"
        return first_row(self._connection, query, [evaluator]) is not None

    def names(self) -> dict[str, int]:
        """The evaluators with scores, with the time (ns) of the newest score of each."""
        rows = self._connection.execute(
            "SELECT evaluator, max(time_ns) FROM scores GROUP BY evaluator ORDER BY evaluator"
        ).fetchall()
        return {name: last or 0 for name, last in rows}

    def all(
        self, first_ns: int, last_ns: int, places: int, selection: Selection = EVERYTHING
    ) -> tuple[EvaluatorVerdicts, ...]:
        """The verdicts of every evaluator on some runs, by name.

        Args:
            first_ns: The earliest start of a run (ns since the epoch).
            last_ns: The latest start of a run.
            places: The number of stretches of time to count by.
            selection: The runs, by filters that have a column.
        """
        query, values = _query(_LIST, first_ns, last_ns, places, selection)
        rows = self._rows(query.replace("{wanted}", "TRUE"), values)
        by_name: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_name.setdefault(row["evaluator"], []).append(row)
        return tuple(_verdicts(name, by_name[name], places) for name in sorted(by_name))

    def of(
        self,
        evaluator: str,
        first_ns: int,
        last_ns: int,
        places: int,
        *,
        bins: int,
        selection: Selection = EVERYTHING,
    ) -> EvaluatorVerdicts:
        """The verdicts of one evaluator on some runs.

        Args:
            evaluator: The evaluator.
            first_ns: The earliest start of a run (ns since the epoch).
            last_ns: The latest start of a run.
            places: The number of stretches of time to count by.
            bins: The number of ranges of scores to count by.
            selection: The runs, by filters that have a column.
        """
        low, width = self._range(evaluator, bins)
        query, values = _query(_ONE, first_ns, last_ns, places, selection)
        query = query.replace("{wanted}", "s.evaluator = ?").replace("{bins}", str(int(bins)))
        rows = self._rows(query, [*values, evaluator, low, width])
        edges = [low + at * width for at in range(bins + 1)]
        return _verdicts(evaluator, rows, places, edges)

    def worst(
        self,
        evaluator: str,
        first_ns: int,
        last_ns: int,
        *,
        most: int,
        selection: Selection = EVERYTHING,
    ) -> list[str]:
        """The ids of the runs with the worst scores, replaced scores included.

        Args:
            evaluator: The evaluator.
            first_ns: The earliest start of a run (ns since the epoch).
            last_ns: The latest start of a run.
            most: The most scores to look at.
            selection: The runs, by filters that have a column.
        """
        query, values = _query(_WORST, first_ns, last_ns, 1, selection)
        query = query.replace("{wanted}", "s.evaluator = ?").replace("{most}", str(int(most)))
        rows = self._rows(query, [*values, evaluator])
        return list(dict.fromkeys(row["trajectory_id"] for row in rows))

    def _range(self, evaluator: str, bins: int) -> tuple[float, float]:
        """The lower end and the width of the first range: 0 to 1 if it contains all scores."""
        score_range = first_row(
            self._connection,
            "SELECT min(score), max(score) FROM scores "
            "WHERE evaluator = ? AND status = 'ok' AND isfinite(score)",
            [evaluator],
        )
        low, high = score_range if score_range and score_range[0] is not None else (0.0, 1.0)
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        width = high / bins - low / bins  # the difference of large numbers may be infinite
        return low, width if width > 0 else 1.0 / bins

    def _rows(self, query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        return list(rows_of(fetch(self._connection, query, values)))


def _query(
    form: str, first_ns: int, last_ns: int, places: int, selection: Selection
) -> tuple[str, list[Any]]:
    """A query with its stretch of time and runs, and the parameters for the runs."""
    clause, values = condition_of(selection)
    step = max(1, -(-(last_ns - first_ns + 1) // places))
    numbers = {"first": first_ns, "last": last_ns, "step": step, "places": places}
    for name, number in numbers.items():
        form = form.replace(f"{{{name}}}", str(int(number)))
    return form.replace("{clause}", f"({clause})"), values


def _verdicts(
    evaluator: str,
    rows: Sequence[Mapping[str, Any]],
    places: int,
    edges: Sequence[float] = (),
) -> EvaluatorVerdicts:
    kinds: dict[str, dict[tuple[str, str], VerdictCounts]] = {}
    for row in rows:
        counts_of_kind = kinds.setdefault(row["kind"], {})
        counts_of_kind[row["name"], row["service"]] = _counts(row)
    by_place = kinds.get("place", {})
    versions = [(name, counts) for (name, _), counts in kinds.get("version", {}).items()]
    agents = [(name, service, counts) for (name, service), counts in kinds.get("agent", {}).items()]
    by_bin = kinds.get("bin", {})
    nothing = VerdictCounts()
    return EvaluatorVerdicts(
        evaluator=evaluator,
        counts=VerdictCounts.summed(by_place.values()),
        places=tuple(by_place.get((str(index), ""), nothing) for index in range(places)),
        versions=tuple(sorted(versions, key=lambda row: (-row[1].last_ns, row[0]))),
        agents=tuple(sorted(agents, key=lambda row: (-row[2].runs, row[0], row[1]))),
        bins=tuple(
            ScoreBin(edges[at], edges[at + 1], by_bin.get((str(at), ""), nothing))
            for at in range(len(edges) - 1)
        ),
    )


def _counts(row: Mapping[str, Any]) -> VerdictCounts:
    names = ("passed", "failed", "unjudged", "errors", "not_evaluated", "scored")
    return VerdictCounts(
        **{name: row[name] for name in names},
        total=row["total"] or 0.0,
        cost=row["cost"],
        unpriced=row["unpriced"],
        first_ns=row["first_ns"] or 0,
        last_ns=row["last_ns"] or 0,
    )
