"""The most informative runs to label for an evaluator, selected by columns.

Except for disagreements, queries use all scores of the evaluator, including replaced scores. The
caller leaves out runs whose current score differs; few runs are scored again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import duckdb

from .current_scores import current_scores, latest
from .memory import with_memory
from .query import wanted
from .run_list import RunKey
from .variants import TOOL_SEQUENCE

__all__ = ["QUEUES", "LabelQueue", "LabelledEvaluator", "Queue"]

Queue = Literal["sample", "disagreements", "threshold", "variants", "failing"]
QUEUES: tuple[Queue, ...] = get_args(Queue)
# The verdicts of the evaluator, and the labels for it.
_GIVEN = """
    given AS (
        SELECT trajectory_id, passed, score, seq FROM scores
        WHERE evaluator = $evaluator AND passed IS NOT NULL
    ),
    labels AS (
        SELECT trajectory_id, person, passed FROM current_labels
        WHERE evaluator IN ($evaluator, '')
    )
"""
# Only the newest 200,000 scores are searched for changes of a verdict. A score is near the
# threshold if it is within 15% of the range of all scores. Variants are as in `variants`: runs
# with the same tools and different messages have the same one.
_QUERIES: dict[Queue, str] = {
    "sample": """
        SELECT trajectory_id, min(number) AS place FROM (
            SELECT trajectory_id, hash(trajectory_id, 'labels') AS number
            FROM given ANTI JOIN labels USING (trajectory_id)
            ORDER BY number LIMIT $wide
        ) GROUP BY trajectory_id
    """,
    "failing": """
        SELECT trajectory_id, -max(seq) AS place FROM (
            SELECT trajectory_id, seq FROM given ANTI JOIN labels USING (trajectory_id)
            WHERE NOT passed ORDER BY seq DESC LIMIT $wide
        ) GROUP BY trajectory_id
    """,
    "disagreements": f"""
        WITH own AS (SELECT trajectory_id FROM labels WHERE person = $person),
        labelled AS (
            SELECT trajectory_id, bool_and(passed) AS all_pass, bool_or(passed) AS some_pass
            FROM labels GROUP BY trajectory_id
        ),
        scored AS MATERIALIZED (
            SELECT trajectory_id, evaluator, version, rev, seq, passed FROM scores
            SEMI JOIN labelled USING (trajectory_id) WHERE evaluator = $evaluator
        ),
        judged AS (SELECT trajectory_id, passed FROM {current_scores("scored")}),
        by_label AS (
            SELECT trajectory_id, 0 AS place FROM labelled LEFT JOIN judged USING (trajectory_id)
            WHERE (passed IS NOT NULL AND passed <> some_pass) OR all_pass <> some_pass
        ),
        by_version AS (
            SELECT trajectory_id, 1 AS place FROM given
            WHERE seq > (SELECT max(seq) FROM scores) - 200_000
            GROUP BY trajectory_id HAVING bool_or(passed) AND NOT bool_and(passed)
        )
        SELECT trajectory_id, min(place) AS place FROM (
            SELECT * FROM by_label UNION ALL SELECT * FROM by_version
        ) ANTI JOIN own USING (trajectory_id) GROUP BY trajectory_id
        ORDER BY place LIMIT $wide
    """,  # noqa: S608
    "threshold": """
        WITH scored AS (SELECT * FROM given WHERE isfinite(score)),
        bounds AS (
            SELECT (max(score) FILTER (NOT passed) + min(score) FILTER (passed)) / 2 AS threshold,
                max(score) - min(score) AS extent FROM scored
        )
        SELECT trajectory_id, min(distance) AS place FROM (
            SELECT trajectory_id, abs(score - threshold) AS distance
            FROM scored ANTI JOIN labels USING (trajectory_id), bounds
            WHERE abs(score - threshold) <= 0.15 * extent AND extent > 0
            ORDER BY distance LIMIT $wide
        ) GROUP BY trajectory_id
    """,
    "variants": f"""
        WITH shapes AS (
            SELECT strict_names AS shape, min(start_ns) AS first, max(seq) AS seq,
                max(struct_pack(start_ns := start_ns, id := trajectory_id)) AS newest
            FROM trajectories WHERE strict_names IS NOT NULL GROUP BY shape
        ),
        sequences AS (
            SELECT shape, first, newest, {TOOL_SEQUENCE} AS tools
            FROM trajectories JOIN shapes USING (seq)
        ),
        known AS (
            SELECT tools FROM sequences WHERE shape IN (
                SELECT strict_names FROM trajectories SEMI JOIN labels USING (trajectory_id)
            )
        )
        SELECT max(newest).id AS trajectory_id, -min(first) AS place
        FROM sequences ANTI JOIN known USING (tools) GROUP BY tools
        ORDER BY place LIMIT $wide
    """,  # noqa: S608
}
_FIND = """
    WITH {given}
    SELECT start_ns, trajectory_id FROM trajectories t
    JOIN ({query}) found USING (trajectory_id)
    ANTI JOIN superseded USING (trajectory_id, rev)
    ORDER BY place, start_ns DESC, trajectory_id LIMIT $most
"""


class LabelledEvaluator(NamedTuple):
    """An evaluator that labels can be compared with.

    Attributes:
        name: Its name.
        verdicts: The number of its passes and fails, earlier versions included.
        version: The version of its newest score.
    """

    name: str
    verdicts: int
    version: str


class LabelQueue:
    """Finds the runs of a store that are worth labelling."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def evaluators(self) -> list[LabelledEvaluator]:
        """The evaluators that returned verdicts, by name."""
        rows = self._connection.execute(
            f"SELECT evaluator, count(passed), {latest('version')} FROM scores "  # noqa: S608
            "GROUP BY evaluator HAVING count(passed) > 0 ORDER BY evaluator"
        ).fetchall()
        return [LabelledEvaluator(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """The number of runs with a label by evaluator, under "" for all evaluators."""
        rows = self._connection.execute(
            "SELECT evaluator, count(DISTINCT trajectory_id) FROM current_labels GROUP BY evaluator"
        ).fetchall()
        return dict(rows)

    def keys(self, names: Sequence[str]) -> list[RunKey]:
        """The keys of the current trajectories with some ids, in the order of these."""
        with wanted(self._connection, "trajectory_id", names):
            rows = self._connection.execute(
                "SELECT start_ns, trajectory_id FROM trajectories SEMI JOIN wanted "
                "USING (trajectory_id) ANTI JOIN superseded USING (trajectory_id, rev)"
            ).fetchall()
        keys_by_id = {name: RunKey(start, name) for start, name in rows}
        return [keys_by_id[name] for name in names if name in keys_by_id]

    def runs(self, queue: Queue, evaluator: str, person: str, most: int) -> list[RunKey]:
        """Return runs that are worth labelling, the most useful first.

        Args:
            queue: Which runs: a random ``sample`` of runs with a verdict; ``disagreements`` of
                labels with each other, with the evaluator, or of the evaluator's versions; scores
                near the ``threshold`` between pass and fail; a run of each of the newest
                ``variants`` without a label; or the newest ``failing`` ones.
            evaluator: The evaluator.
            person: The person who labels. A run in disagreement is not shown to the same person
                again; other queues only have runs without any label.
            most: The most runs.
        """
        query = _FIND.format(given=_GIVEN, query=_QUERIES[queue])
        values: dict[str, str | int] = {"evaluator": evaluator, "most": most, "wide": 4 * most}
        if queue == "disagreements":
            values["person"] = person
        rows: Iterable[tuple[int, str]] = with_memory(
            self._connection, lambda: self._connection.execute(query, values).fetchall()
        )
        return [RunKey(*row) for row in rows]
