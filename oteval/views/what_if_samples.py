"""The answers to faults and the samples of repeated sessions: a line for each session."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.text import Text

from ..base.text import counted
from ..evaluators import Interval, pass_rate
from ..replays import SampleCount, SampledOutcome
from ..scoring import ExperimentResults
from .text import one_line, shorten

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


def recovery_view(results: ExperimentResults, keys: Collection[str]) -> Iterator[Text]:
    """Yield the runs that did not recover from their faults, then how many did.

    Args:
        results: The experiment with the faults.
        keys: The names of the evaluators of the type ``recovered``.
    """
    for key, members in results.feedback().items():
        if key not in keys:
            continue
        failed = [(row, entry) for row, entry in members if entry.passed is False]
        for row, entry in failed[:_MOST_LINES]:
            line = Text()
            line.append("✗ ", style="red")
            line.append(_question(row.example.title), style="bold")
            yield line.append(f": {one_line(entry.comment)} [{one_line(key)}]")
        if len(failed) > _MOST_LINES:
            yield Text(f"and {len(failed) - _MOST_LINES} more (--json lists all)", style="dim")
        passed = sum(entry.passed is True for _, entry in members)
        rate = pass_rate(passed, len(failed))
        share = "" if rate.interval is None else f" ({_share(rate.interval)})"
        ended = passed + len(failed)
        unknown = [entry.comment for _, entry in members if entry.status != "ok"]
        left = f"; not evaluated: {len(unknown)}" if unknown else ""
        first = f", such as: {shorten(one_line(unknown[0]), 200)}" if unknown else ""
        yield Text(
            f"{one_line(key)}: {passed} of {counted(ended, 'run')} recovered{share}{left}{first}",
            style="bold",
        )


def recovery_rows(results: ExperimentResults, keys: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON form of each run's verdict; see `recovery_view`."""
    for key, members in results.feedback().items():
        for row, entry in members if key in keys else ():
            yield {
                "row": "recovery",
                "session": row.example.id,
                "question": row.example.title,
                "key": key,
                "status": entry.status,
                "passed": entry.passed,
                "comment": entry.comment,
                "endings": entry.metadata.get("endings", {}),
            }


def samples_view(outcomes: Sequence[SampledOutcome]) -> Iterator[Text]:
    """Yield a line for the samples of each session and figure."""
    for outcome in outcomes[:_MOST_LINES]:
        recorded = {True: "passed", False: "failed", None: "no verdict"}[outcome.recorded]
        text = f"recorded {recorded}; {_count(outcome.samples)} pass"
        if outcome.unedited is not None:
            text += f", without the change {_count(outcome.unedited)}"
        p_value = "" if outcome.p_adjusted is None else f" (p {outcome.p_adjusted:.2g})"
        line = Text()
        line.append(_question(outcome.question), style="bold")
        line.append(f" [{one_line(outcome.key)}]: {text}: ")
        style = "red" if outcome.verdict == "cause" else ""
        yield line.append(f"{_WORDS[outcome.verdict]}{p_value}", style=style)
    if len(outcomes) > _MOST_LINES:
        yield Text(f"and {len(outcomes) - _MOST_LINES} more (--json lists all)", style="dim")


def _question(title: str) -> str:
    return shorten(one_line(title), _QUESTION)


def _count(count: SampleCount) -> str:
    return f"{count.passed} of {counted(count.total, 'sample')} ({_share(count.interval)})"


def _share(interval: Interval) -> str:
    return f"{interval.low:.0%} to {interval.high:.0%}"
