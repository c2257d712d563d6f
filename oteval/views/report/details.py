"""The details of a run, as the JSON value that the page's panel shows.

They contain only the run's own messages: earlier turns are separate runs, so that a long
conversation takes linear space. Control characters and bidirectional marks are made visible here,
and long texts are cut with a note on how much was left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.text import counted
from ...model import Gap, Message, ToolCall, unusual_reasons
from ..run_texts import tokens_text
from ..text import (
    clean,
    clock,
    duration,
    indented,
    ran_in_parallel,
    size_of,
    spans_by_gap,
)
from .model import ReportRun, RunVerdict

__all__ = ["details", "message_details", "shown_messages"]

_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", re.ASCII)
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)
# The largest image in a report, in characters of base64: some 190 KB.
_MOST_IMAGE = 256_000
# Characters of a name, an id, or a list of names.
_LONGEST_NAME = 300


def shown_messages(item: ReportRun) -> tuple[Message, ...]:
    """The messages that are shown and aligned for a run."""
    return item.trajectory.own_messages if item.trajectory else ()


def details(item: ReportRun, longest: int, *, has_messages: bool = True) -> dict[str, Any]:
    """The details of a run.

    Args:
        item: The run.
        longest: How many characters of a text to show.
        has_messages: Whether the messages are among them.
    """
    run = item.trajectory
    fields: dict[str, Any] = {
        "id": item.id,
        "title": _cut(item.label, 200),
        "group": clean(item.group),
        "facts": [[name, _cut(value, _LONGEST_NAME)] for name, value in _facts(item) if value],
        "scores": [_verdict(verdict, longest) for verdict in item.verdicts],
    }
    if item.error:
        fields["error"] = _cut(item.error, longest)
    if item.inputs is not None:
        fields["inputs"] = _cut(indented(item.inputs), longest)
    if item.outputs is not None:
        fields["outputs"] = _cut(indented(item.outputs), longest)
    if run is None:
        return {**fields, "messages": []}
    own = run.own_messages if has_messages else ()
    messages = [
        message_details(at, message, longest) for at, message in enumerate(own, run.new_from)
    ]
    return {
        **fields,
        "earlier": run.new_from,
        "before": run.history.id if run.history else "",
        "messages": messages,
        "gaps": _gaps(run.gaps),
        "steps": [[clean(name) for name in step[:200]] for step in run.steps],
        "rewrites": [[rewrite.at, len(rewrite.messages)] for rewrite in run.rewrites],
    }


def _facts(item: ReportRun) -> list[tuple[str, str]]:
    """The known facts of a run, by name."""
    run = item.trajectory
    if run is None:
        took = duration(item.end_ns - item.start_ns) if item.end_ns else ""
        return [("started", clock(item.start_ns) if item.start_ns else ""), ("took", took)]
    turn = f"{run.conversation_id}, turn {run.turn}" if run.conversation_id else ""
    return [
        ("agent", run.agent),
        ("service", run.service),
        ("models", ", ".join(run.models)),
        ("started", f"{clock(run.start_ns)} UTC" if run.start_ns else ""),
        ("took", duration(run.end_ns - run.start_ns) if run.end_ns else ""),
        ("tokens", tokens_text(run.usage)),
        ("stopped by", ", ".join(unusual_reasons(run.finish_reasons))),
        ("prompts", ", ".join(run.prompts)),
        ("retrieved", counted(len(run.documents), "document") if run.documents else ""),
        ("conversation", turn),
        ("user", run.user),
        ("version", run.version),
        ("called by", run.parent_id),
        ("read as", ", ".join(run.dialects)),
        ("trace", run.root_span.trace_id),
        ("root span", run.root_span.span_id),
        ("revision", str(run.rev) if run.rev > 1 else ""),
    ]


def message_details(at: int, message: Message, longest: int) -> dict[str, Any]:
    """The details of a message.

    Args:
        at: Its number.
        message: The message.
        longest: How many characters of a text to show.
    """
    fields: dict[str, Any] = {"at": at, "role": _cut(message.role, _LONGEST_NAME)}
    if message.content is not None:
        fields["text"] = _cut(message.content, longest)
    elif not message.tool_calls and not message.parts:
        fields["missing"] = True
    if message.name:
        fields["name"] = _cut(message.name, _LONGEST_NAME)
    if message.tool_call_id:
        fields["answers"] = _cut(message.tool_call_id, _LONGEST_NAME)
    if message.is_error:
        fields["failed"] = True
    if message.tool_calls:
        fields["calls"] = [_call(c, message.tool_calls, longest) for c in message.tool_calls]
    if message.parts:
        fields["parts"] = [_part(part, longest) for part in message.parts]
    return fields


def _call(call: ToolCall, calls: Sequence[ToolCall], longest: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": _cut(call.name, _LONGEST_NAME)}
    if call.arguments is None:
        fields["missing"] = True
    else:
        fields["arguments"] = _cut(indented(call.arguments), longest)
    if call.id:
        fields["id"] = _cut(call.id, _LONGEST_NAME)
    if call.start_ns and call.end_ns:
        fields["took"] = duration(call.end_ns - call.start_ns)
    if ran_in_parallel(call, calls):
        fields["parallel"] = True
    return fields


def _part(part: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """A part that is not text: an embedded image as a picture, anything else as JSON."""
    fields = {"kind": _cut(str(part.get("type", "part")), _LONGEST_NAME)}
    image = _image(part)
    if image:
        return {**fields, "image": image}
    text = part.get("content") if part.get("type") in ("reasoning", "thinking") else None
    return {**fields, "text": _cut(indented(part if text is None else text), min(longest, 4000))}


def _image(part: Mapping[str, Any]) -> str:
    """A part's image as a data URL, if it contains one that is small enough, or ""."""
    url: Any = part.get("image_url") or part.get("url") or part.get("uri")
    if isinstance(url, Mapping):
        url = url.get("url")
    if isinstance(url, str) and len(url) <= _MOST_IMAGE and _IMAGE.fullmatch(url):
        return url
    source = part.get("source") if isinstance(part.get("source"), Mapping) else part
    assert isinstance(source, Mapping)
    kind = source.get("mime_type") or source.get("media_type")
    body = source.get("content") or source.get("data")
    if kind not in _IMAGE_TYPES or not isinstance(body, str) or len(body) > _MOST_IMAGE:
        return ""
    return f"data:{kind};base64,{body}" if _BASE64.fullmatch(body) else ""


def _verdict(verdict: RunVerdict, longest: int) -> dict[str, Any]:
    name = _cut(verdict.evaluator, _LONGEST_NAME)
    fields: dict[str, Any] = {"evaluator": name, "state": verdict.state}
    if verdict.score is not None:
        fields["score"] = f"{verdict.score:.4g}"
    if verdict.label:
        fields["label"] = _cut(verdict.label, 200)
    if verdict.comment:
        fields["comment"] = _cut(verdict.comment, longest)
    if verdict.metadata:
        fields["metadata"] = _cut(indented(dict(verdict.metadata)), min(longest, 8000))
    if verdict.version:
        fields["version"] = _cut(verdict.version, _LONGEST_NAME)
    return fields


def _gaps(gaps: Sequence[Gap]) -> list[dict[str, str]]:
    """The gaps; equal gaps appear once, with their spans."""
    return [
        {"code": clean(code), "detail": _cut(detail, 1000), "where": clean(size_of(ids))}
        for (code, detail), ids in spans_by_gap(gaps).items()
    ]


def _cut(text: str, longest: int) -> str:
    # Cut before cleaning: nobody reads a megabyte, and cleaning it takes time.
    left_out = len(text) - longest
    if left_out <= 0:
        return clean(text)
    return f"{clean(text[:longest]).rstrip()} … ({counted(left_out, 'more character')})"
