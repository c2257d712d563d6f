"""The scores of a run's page: the messages that each refers to, and why others are missing.

Matches list the calls that they aligned. Checks name the calls that they object to by number,
``call 2 refund({...})``, and the final answer that they compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...base.text import listed
from ...evaluators import is_drawn
from ...model import Message, Selection, Trajectory, column_values, items_of
from ...scoring import Config, EvaluatorSettings
from ..report.model import RunVerdict
from ..text import clean, clock, one_line, shorten

__all__ = ["missing_scores", "places_of", "unmet_filter"]

_CALL = re.compile(r"\bcall (\d{1,6}) ([^\s(]{1,200})\(")
_MOST_PLACES = 20


def places_of(verdict: RunVerdict, run: Trajectory) -> tuple[int, ...]:
    """The numbers of the messages that a verdict refers to, as the run counts them.

    Args:
        verdict: The verdict.
        run: The run.
    """
    if verdict.state == "pass":
        return ()
    own = run.own_messages
    calls = [(at, call.name) for at, message in enumerate(own) for call in message.tool_calls]
    indexes = [
        *_named_calls(verdict.comment, calls),
        *_extra_calls(verdict, calls),
        *_answers(verdict.metadata, own),
    ]
    return tuple(run.new_from + at for at in sorted(set(indexes))[:_MOST_PLACES])


def _named_calls(comment: str, calls: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the messages of the calls that a comment names by number."""
    for match in _CALL.finditer(comment[:20_000]):
        number = int(match[1])
        # A check of the whole conversation counts earlier calls as well, so the names may differ.
        if number < len(calls) and calls[number][1] == match[2]:
            yield calls[number][0]


def _extra_calls(verdict: RunVerdict, calls: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the messages of the calls that a match could not align with the reference."""
    alignment, extra = verdict.metadata.get("alignment"), verdict.metadata.get("extra")
    if not isinstance(alignment, (list, tuple)) or not isinstance(extra, int) or not extra:
        return
    aligned = {pair[0] for pair in alignment if isinstance(pair, (list, tuple)) and pair}
    unaligned = [call for number, call in enumerate(calls) if number not in aligned]
    if len(unaligned) != extra:
        # A match of some tools does not align the calls of others; the comment names the calls it
        # saw.
        extra_text = verdict.comment.partition("extra ")[2]
        unaligned = [call for call in unaligned if f" {call[1]}(" in extra_text]
    if len(unaligned) == extra:
        yield from (at for at, _ in unaligned)


def _answers(metadata: Mapping[str, Any], own: Sequence[Message]) -> Iterator[int]:
    """Yield the message with the answer that a check compared."""
    answer = metadata.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        return
    for at in range(len(own) - 1, -1, -1):
        if own[at].role == "assistant" and (own[at].content or "").strip().startswith(
            answer.strip()
        ):
            yield at
            return


def missing_scores(config: Config, run: Trajectory, scored: Collection[str]) -> dict[str, str]:
    """Why configured evaluators gave a run no score, by the evaluator's name.

    Args:
        config: The configuration.
        run: The run.
        scored: The names of the evaluators that gave it a score.
    """
    return {
        clean(settings.name): _reason(config, settings, run)
        for settings in config.evaluators
        if settings.name not in scored
    }


def _reason(config: Config, settings: EvaluatorSettings, run: Trajectory) -> str:
    unmet = unmet_filter(settings.where.selection(), run)
    if unmet:
        return unmet
    if not is_drawn(config.salt, settings.name, run.root_span.trace_id, settings.sample):
        return f"The trace is not in the sample: {settings.sample:.3g} of the traces are scored."
    since = f" since the run changed (revision {run.rev})" if run.rev > 1 else " yet"
    return f"Not scored{since}: oteval score, or the server once the trace has ended."


def unmet_filter(where: Selection, run: Trajectory) -> str:
    """The first part of a filter that a run does not match, as a sentence; "" if it does."""
    if where.matches(run):
        return ""
    return next(iter(_unmet(where, run)), "Its filter (where) leaves this run out.")


def _unmet(where: Selection, run: Trajectory) -> Iterator[str]:
    columns = column_values(run)
    for name, accepted in where.texts():
        actual = items_of(name, columns)
        if set(accepted).isdisjoint(actual):
            run_values = listed([_shown(value) for value in actual if value]) or "unknown"
            accepted_values = listed([*map(_shown, accepted)])
            yield f"It scores {name} {accepted_values}; this run's is {run_values}."
    if where.since_ns is not None and run.start_ns < where.since_ns:
        yield f"It scores runs from {clock(where.since_ns)} on."
    for key, values in where.attributes.items():
        if run.attributes.get(key) is None:
            yield f"It needs the attribute {_shown(key)}, which the run does not have."
        elif not Selection(attributes={key: values}).matches(run):
            run_value, allowed = _shown(str(run.attributes[key])), listed([*map(_shown, values)])
            yield f"It needs {_shown(key)} to be {allowed}; here it is {run_value}."
    for condition in where.conditions:
        if not condition.holds(run):
            text = f"{condition.name}{condition.operator}{condition.value}"
            yield f"The condition {_shown(text)} does not hold."
    if where.asked and not any(condition.holds(run) for condition in where.asked):
        yield "The question is not one of those it scores, or was not captured."
    if where.excluded is not None and where.excluded.matches(run):
        yield "Its filter (where.not) leaves this run out."


def _shown(text: str) -> str:
    return shorten(one_line(text), 80)
