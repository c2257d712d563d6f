"""The answers to faults and the samples of repeated sessions: a line for each session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.text import Text

from ..base.text import counted
from ..evaluators import Interval, pass_rate
from ..replays import AFTER_FAULT, SampleCount, SampledOutcome
from ..scoring import ExperimentResults, ResultRow
from .text import one_line, question_names, shorten

__all__ = ["recovery_rows", "recovery_view", "samples_view"]

_MOST_LINES, _QUESTION = 50, 60
_WORDS = {
    "cause": "the change is the cause",
    "chance": "the samples do not tell the change from chance",
    "repeats": "the recorded outcome repeats",
    "varies": "the recorded outcome varies by chance",
    "differs": "no sample has the recorded outcome",
    "unknown": "no verdict to compare with",
}


def recovery_rows(results: ExperimentResults, keys: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON form of how each run with faults ended.

    An agent that failed after a fault has not recovered.

    Args:
        results: The experiment with the faults.
        keys: The names of the evaluators of the type ``recovered``.
    """
    for row in results if keys else ():
        for entry in row.feedback:
            if entry.key in keys:
                yield _recovery(row, entry.key, passed=entry.passed, comment=entry.comment)
        if AFTER_FAULT in row.run.error:
            reason = row.run.error[row.run.error.index(AFTER_FAULT) :]
            for key in sorted(keys):
                yield _recovery(row, key, passed=False, comment=reason)


def _recovery(row: ResultRow, key: str, *, passed: bool | None, comment: str) -> dict[str, Any]:
    return {
        "row": "recovery",
        "session": row.example.id,
        "question": row.example.question,
        "key": key,
        "passed": passed,
        "comment": comment,
    }


def recovery_view(results: ExperimentResults, keys: Collection[str]) -> Iterator[Text]:
    """Yield the runs that did not recover from their faults, then how many did.

    Args:
        results: The experiment with the faults.
        keys: The names of the evaluators of the type ``recovered``.
    """
    rows = list(recovery_rows(results, keys))
    failed = [row for row in rows if row["passed"] is False]
    names = _names((row["session"], row["question"]) for row in rows)
    for row in failed[:_MOST_LINES]:
        line = Text()
        line.append("✗ ", style="red")
        line.append(names[row["session"]], style="bold")
        yield line.append(f": {one_line(row['comment'])} [{one_line(row['key'])}]")
    if len(failed) > _MOST_LINES:
        yield Text(f"and {len(failed) - _MOST_LINES} more (--json lists all)", style="dim")
    for key in sorted(keys):
        verdicts = [row["passed"] for row in rows if row["key"] == key]
        passed, total = verdicts.count(True), len(verdicts) - verdicts.count(None)
        rate = pass_rate(passed, total - passed)
        share = "" if rate.interval is None else f" ({_share(rate.interval)})"
        unknown = [r["comment"] for r in rows if r["key"] == key and r["passed"] is None]
        first = f", such as: {shorten(one_line(unknown[0]), 200)}" if unknown else ""
        left = f"; not evaluated: {len(unknown)}{first}" if unknown else ""
        text = f"{one_line(key)}: {passed} of {counted(total, 'run')} recovered{share}{left}"
        yield Text(text, style="bold")


def samples_view(outcomes: Sequence[SampledOutcome]) -> Iterator[Text]:
    """Yield a line for the samples of each session and figure."""
    names = _names((outcome.session, outcome.question) for outcome in outcomes)
    for outcome in outcomes[:_MOST_LINES]:
        recorded = {True: "passed", False: "failed", None: "no verdict"}[outcome.recorded]
        text = f"recorded {recorded}; {_count(outcome.samples)} pass"
        if outcome.unedited is not None:
            text += f", without the change {_count(outcome.unedited)}"
        p_value = "" if outcome.p_adjusted is None else f" (p {outcome.p_adjusted:.2g})"
        line = Text()
        line.append(names[outcome.session], style="bold")
        line.append(f" [{one_line(outcome.key)}]: {text}: ")
        style = "red" if outcome.verdict == "cause" else ""
        yield line.append(f"{_WORDS[outcome.verdict]}{p_value}", style=style)
    if len(outcomes) > _MOST_LINES:
        yield Text(f"and {len(outcomes) - _MOST_LINES} more (--json lists all)", style="dim")


def _names(questions: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The questions by session, with the session's id where a question repeats."""
    return question_names(
        {session: shorten(one_line(question), _QUESTION) for session, question in questions}
    )


def _count(count: SampleCount) -> str:
    return f"{count.passed} of {counted(count.total, 'sample')} ({_share(count.interval)})"


def _share(interval: Interval) -> str:
    return f"{interval.low:.0%} to {interval.high:.0%}"
