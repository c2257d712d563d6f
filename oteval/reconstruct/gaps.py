"""Gaps: content that a trace lacks, with the reason and the remedy.

A gap never stops a reconstruction; it marks a trajectory that is not complete. Codes are stable:
people filter and alert on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Gap

__all__ = ["CODES", "gap", "with_one_missing_parent"]

CODES: dict[str, str] = {
    "attributes_dropped": (
        "the emitter dropped {count} attributes of this span; raise "
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT (default 128)"
    ),
    "calls_left_out": (
        "the emitter left {count} tool calls out of the history; load the earlier traces, "
        "which hold them"
    ),
    "calls_not_captured": (
        "only the answer is known, so that the run may have made calls; {switch}"
    ),
    "content_external": (
        "the messages were uploaded and the span holds only a reference ({where}), which oteval "
        "does not follow"
    ),
    "content_not_captured": "the span holds no {missing}; {switch}",
    "content_shortened": "{key} was cut by the emitter; {switch}",
    "content_truncated": (
        "{key} was cut and is incomplete JSON; raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    ),
    "content_unreadable": "{key} could not be read: {reason}",
    "cyclic_parents": "the span's parents form a circle; the span was taken as a root",
    "documents_not_captured": (
        "the span of a retriever does not hold the text of all documents; {switch}"
    ),
    "duplicate_span": "the trace holds this span id more than once; the first was kept",
    "handoff_summarized": (
        "the agent {agent} was handed a summary in place of the messages before it, which are shown"
    ),
    "history_compacted": (
        "the framework compacted the conversation before this; earlier messages may be missing or "
        "summarized"
    ),
    "history_missing": (
        "the conversation begins with a tool's result; load the trace before it, unless the "
        "provider keeps the history"
    ),
    "history_rewritten": (
        "this model call no longer held {count} earlier messages; both versions are kept"
    ),
    "internal_error": "oteval failed on this trace ({reason}); please report it",
    "missing_parent": "{count} parent spans are not in the trace ({parent})",
    "missing_tool_result": (
        "the trace holds no result for the call of {tool}; instrument the tool, or load the next "
        "turn"
    ),
    "model_call_failed": "the model call failed: {reason}",
    "negative_duration": "the span ends before it starts",
    "no_model_spans": (
        "no span of a model call was found; instrument the model client or the agent's framework "
        "(for instance with opentelemetry-instrumentation-genai-openai)"
    ),
    "read_by_shape": (
        "no dialect knows the span; it was read by the shape of {keys}, and may hold more"
    ),
    "redacted": "{key} was replaced by a placeholder; {switch}",
    "several_choices": (
        "the model gave {count} answers; the one that the conversation continued with is shown, "
        "otherwise the first; the others are kept as rewrites"
    ),
    "system_prompt_changed": "the system prompt differs from the one before; the first is shown",
    "too_large": "not reconstructed: {reason}",
    "unknown_dialect": "{count} spans look like model spans that no dialect reads: {marks}",
    "unmatched_tool_span": "the tool {tool} ran, but no recorded model call asked for it",
}


# Singular forms of the explanations above.
_OF_ONE = {
    "calls_left_out": (
        "the emitter left a tool call out of the history; load the earlier traces, which hold it"
    ),
    "history_rewritten": (
        "this model call no longer held 1 earlier message; both versions are kept"
    ),
    "missing_parent": "1 parent span is not in the trace ({parent})",
    "unknown_dialect": "1 span looks like a model span that no dialect reads: {marks}",
}

# Values of explanations that a caller may leave out.
_DEFAULTS = {"missing": "message content", "count": 1}


def gap(code: str, span_id: str = "", **values: object) -> Gap:
    """A gap with its explanation on one line.

    Args:
        code: One of `CODES`.
        span_id: The id of the span that lacks the content.
        **values: The values that the explanation contains.

    Raises:
        KeyError: The code, or a value that its explanation needs, is not known.
    """
    short_values = {name: _short(value) for name, value in {**_DEFAULTS, **values}.items()}
    text = _OF_ONE.get(code, CODES[code]) if values.get("count") == 1 else CODES[code]
    return Gap(code, " ".join(text.format(**short_values).split()), span_id)


def with_one_missing_parent(
    gaps: Sequence[Gap], parents: Mapping[str, str], root_id: str
) -> list[Gap]:
    """Return gaps with all missing parents combined to one gap, with their number.

    Args:
        gaps: The gaps of one trajectory.
        parents: The parents of its spans, by the spans' ids.
        root_id: The id of its root span, which gets the gap if its parent is missing.
    """
    missing = [gap for gap in gaps if gap.code == "missing_parent"]
    if len(missing) < 2:
        return list(gaps)
    first = next((reported for reported in missing if reported.span_id == root_id), missing[0])
    parent_ids = list(dict.fromkeys(parents.get(reported.span_id, "") for reported in missing))
    listed_ids = ", ".join(filter(None, parent_ids[:_MOST_PARENTS]))
    combined = gap("missing_parent", first.span_id, count=len(parent_ids), parent=listed_ids)
    replaced = [combined if gap is missing[0] else gap for gap in gaps]
    return [
        reported
        for reported in replaced
        if reported is combined or reported.code != "missing_parent"
    ]


_MOST_PARENTS = 3
# A tool's name or an error's text may be as long as an attribute.
_LONGEST = 1000


def _short(value: object) -> object:
    if not isinstance(value, str) or len(value) <= _LONGEST:
        return value
    return f"{value[:_LONGEST]}..."
