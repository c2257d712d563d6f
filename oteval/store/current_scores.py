"""The current scores: which score is an evaluator's verdict on a run, defined here alone.

Scores are rows that are only appended. Of an evaluator's scores of a run, the **current** one is
the last stored score of the run's current revision. Consequences:

- a score of a superseded revision does not count, whenever it was stored: late spans may
  change the verdict. The run has no score until it is scored again;
- the **version in force** on a run is the version of its current score. A new version replaces the
  scores of the runs that it has scored; other runs keep their scores;
- the last attempt counts: an error or a ``not_evaluated`` replaces a pass. That is so even if live
  scoring only postponed the evaluation;
- after a deletion, the score before the deleted one counts again.

Every query of verdicts reads from `current_scores`, or from the view of this name, meant for
queries by people. `tests/test_current_verdict.py` tests all surfaces.
"""

from __future__ import annotations

__all__ = ["current_numbers", "current_scores", "latest", "replaced_scores", "withdrawn_numbers"]


def replaced_scores(rows: str = "scores") -> str:
    """A query of the rows that are not current.

    Only rows that share the hash of their run and evaluator with others are sorted: few, unless
    runs were scored again.

    Args:
        rows: See `current_scores`.

    Returns:
        The query, in parentheses, with the columns ``seq`` and ``is_outdated``. An outdated score
        is not even current among the scores of its version of the evaluator.
    """
    key = "trajectory_id, evaluator"
    return f"""(
        WITH repeated AS (SELECT hash({key}) AS key FROM {rows} GROUP BY key HAVING count(*) > 1)
        SELECT seq, TRUE AS is_outdated FROM {rows} SEMI JOIN superseded USING (trajectory_id, rev)
        UNION ALL
        SELECT seq, row_number() OVER (PARTITION BY {key}, version ORDER BY seq DESC) > 1
        FROM {rows} SEMI JOIN repeated ON hash({key}) = key
        ANTI JOIN superseded USING (trajectory_id, rev)
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY seq DESC) > 1
    )"""  # noqa: S608


def current_scores(
    rows: str = "scores", *, replaced: str | None = None, of_versions: bool = False
) -> str:
    """A query of the current scores among some rows.

    Args:
        rows: A table or a query in parentheses, with columns of ``scores``. For each
            run and evaluator (or chosen versions of it), it has all rows or none; never filter by
            outcome.
        replaced: The name of a table with the rows of `replaced_scores`, to find them once.
        of_versions: Whether every version has its current scores, whichever is in force.

    Returns:
        The query, in parentheses.
    """
    replaced = replaced or replaced_scores(rows)
    if of_versions:
        replaced = f"(SELECT seq FROM {replaced} WHERE is_outdated)"  # noqa: S608
    return f"(SELECT * FROM {rows} ANTI JOIN {replaced} AS replaced USING (seq))"  # noqa: S608


def current_numbers(chosen: str) -> str:
    """A query of the numbers of the current scores among few rows of many.

    It reads no texts, which may be large, and is planned in half the time of `current_scores`.

    Args:
        chosen: The joins and conditions that choose rows of ``scores``, as `current_scores` allows.

    Returns:
        The query, with the column ``seq``; callers may append a condition on aggregates.
    """
    return f"""
        SELECT max(seq) AS seq FROM (
            SELECT seq, trajectory_id, rev, evaluator, version FROM scores {chosen}
        ) ANTI JOIN superseded USING (trajectory_id, rev) GROUP BY trajectory_id, evaluator
    """  # noqa: S608


def withdrawn_numbers(chosen: str) -> str:
    """A query of verdicts, among few rows, that no longer count and that no verdict has replaced.

    The run has changed since, or the last attempt returned no verdict.

    Args:
        chosen: As for `current_numbers`.

    Returns:
        The query, with the number of the last verdict of each version of an evaluator: ``seq``.
    """
    return f"""
        WITH rows AS (
            SELECT seq, trajectory_id, evaluator, version, status, rev FROM scores {chosen}
        ), judged AS (
            SELECT trajectory_id, evaluator FROM rows
            ANTI JOIN superseded USING (trajectory_id, rev)
            GROUP BY ALL HAVING {latest("status")} = 'ok'
        )
        SELECT max(seq) AS seq FROM rows ANTI JOIN judged USING (trajectory_id, evaluator)
        WHERE status = 'ok' GROUP BY trajectory_id, evaluator, version ORDER BY seq
    """  # noqa: S608


def latest(value: str) -> str:
    """The aggregate that takes a value from the score that was stored last, even if it is NULL."""
    return f"arg_max_null({value}, seq)"
