"""Trajectories and messages as rows of the table ``trajectories``, and back, without loss.

A row contains the messages after its history, the run that it follows. A trajectory is built from
its row and its history. The columns from `roles` on are the signature; see `_signature`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from ..base.jsontext import call_hash, dumps, dumps_exact, escaped, restore
from ..model import (
    Gap,
    Message,
    RetrievedDocument,
    Rewrite,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
    call_errors,
    identity_in,
)
from .query import rows_of

__all__ = [
    "READ_COLUMNS",
    "TRAJECTORY_SCHEMA",
    "build_trajectories",
    "build_trajectory",
    "call_arguments",
    "message_fields",
    "message_of",
    "trajectory_row",
]

_TEXT, _BIG, _INT = pa.string(), pa.int64(), pa.int32()
_TEXTS = pa.list_(pa.string())
# Columns that older rows lack. They count for the fingerprint only if they are not empty, so a run
# that was stored before stays the same revision.
_NEWER_COUNTS = (
    *("cache_write_tokens", "reasoning_tokens", "input_audio_tokens", "output_audio_tokens"),
)
_NEWER_LISTS = ("finish_reasons", "prompts")
_NEWER_TEXTS = ("user_id", "agent_version", "documents")
TRAJECTORY_SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXT),
        ("rev", _INT),
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("trace_ids", _TEXTS),
        ("history_id", _TEXT),
        ("conversation_id", _TEXT),
        ("turn", _INT),
        ("new_from", _INT),
        ("agent", _TEXT),
        ("service", _TEXT),
        ("parent_id", _TEXT),
        ("parent_call_id", _TEXT),
        ("start_ns", _BIG),
        ("end_ns", _BIG),
        ("models", _TEXTS),
        ("dialects", _TEXTS),
        ("input_tokens", _BIG),
        ("output_tokens", _BIG),
        ("cached_tokens", _BIG),
        ("model_calls", _INT),
        *[(name, _BIG) for name in _NEWER_COUNTS],
        *[(name, _TEXTS) for name in _NEWER_LISTS],
        *[(name, _TEXT) for name in _NEWER_TEXTS],
        *[(name, _TEXT) for name in ("messages", "steps", "tools", "gaps")],
        ("gap_codes", _TEXTS),
        *[(name, _TEXT) for name in ("rewrites", "attributes", "chain", "follows", "fingerprint")],
        ("roles", _TEXTS),
        ("call_names", _TEXTS),
        ("call_hashes", pa.list_(_BIG)),
        ("call_messages", pa.list_(_INT)),
        ("call_errors", pa.list_(pa.bool_())),
        ("strict_names", _BIG),
        ("strict_calls", _BIG),
        ("overlapping", pa.bool_()),
        ("call_keys", pa.list_(_BIG)),
        ("history_ns", _BIG),
        ("agents", _TEXTS),
        ("seq", _BIG),
    ]
)
_FINGERPRINT_COLUMNS = (
    "trajectory_id",
    "trace_id",
    "span_id",
    "trace_ids",
    "history_id",
    "conversation_id",
    "turn",
    "new_from",
    "agent",
    "service",
    "parent_id",
    "parent_call_id",
    "start_ns",
    "end_ns",
    "models",
    "dialects",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "model_calls",
    "messages",
    "steps",
    "tools",
    "gaps",
    "gap_codes",
    "rewrites",
    "attributes",
    "chain",
    "follows",
    "roles",
    "call_names",
    "call_hashes",
    "call_messages",
    "call_errors",
    "strict_names",
    "strict_calls",
    "overlapping",
    "call_keys",
)
"""The columns that `_fingerprint` hashes, in this order.

A trajectory gets a new revision, and is scored again, if its fingerprint changes. Adding a column
here changes the fingerprint of every trajectory.
"""
READ_COLUMNS = tuple(
    name
    for name in TRAJECTORY_SCHEMA.names
    if name
    not in (
        *("gap_codes", "fingerprint", "roles", "call_names", "call_hashes", "call_messages"),
        *("call_errors", "strict_names", "strict_calls", "overlapping", "seq"),
    )
)
"""The columns that a trajectory is built from, with ``history_ns``."""
_MAX_INT64 = (1 << 63) - 1


def trajectory_row(trajectory: Trajectory) -> dict[str, Any]:
    """The columns of a trajectory, except its revision and its number."""
    history = trajectory.history
    row: dict[str, Any] = {
        "trajectory_id": trajectory.id,
        "trace_id": trajectory.root_span.trace_id,
        "span_id": trajectory.root_span.span_id,
        "trace_ids": list(trajectory.trace_ids),
        "history_id": history.id if history else None,
        "conversation_id": trajectory.conversation_id,
        "turn": trajectory.turn,
        "new_from": trajectory.new_from,
        "agent": trajectory.agent,
        "service": trajectory.service,
        "parent_id": trajectory.parent_id,
        "parent_call_id": trajectory.parent_call_id,
        "start_ns": trajectory.start_ns,
        "end_ns": trajectory.end_ns,
        "models": list(trajectory.models),
        "dialects": list(trajectory.dialects),
        **{f.name: _int64(getattr(trajectory.usage, f.name)) for f in fields(Usage)},
        "finish_reasons": list(trajectory.finish_reasons),
        "prompts": list(trajectory.prompts),
        "user_id": trajectory.user,
        "agent_version": trajectory.version,
        "documents": _documents_text(trajectory.documents),
        "messages": dumps_exact([message_fields(message) for message in trajectory.tail]),
        "steps": dumps(trajectory.steps),
        "tools": dumps(trajectory.tools),
        "gaps": dumps([gap.as_dict() for gap in trajectory.gaps]),
        "gap_codes": list(dict.fromkeys(gap.code for gap in trajectory.gaps)),
        "rewrites": dumps_exact([_rewrite_fields(rewrite) for rewrite in trajectory.rewrites]),
        "attributes": dumps(trajectory.attributes),
        "chain": trajectory.chain,
        "follows": trajectory.follows,
        **_signature(trajectory.own_messages),
        "call_keys": list(trajectory.call_keys),
        "history_ns": history.start_ns if history else None,
        "agents": list(trajectory.agents) or [trajectory.agent],
    }
    return {**row, "fingerprint": _fingerprint(row)}


def _documents_text(documents: Sequence[RetrievedDocument]) -> str:
    return dumps([document.as_dict() for document in documents]) if documents else ""


def _fingerprint(row: Mapping[str, Any]) -> str:
    """A hash of a trajectory's content."""
    newer = (name for name in (*_NEWER_COUNTS, *_NEWER_LISTS, *_NEWER_TEXTS) if row[name])
    content = dumps({name: row[name] for name in (*_FINGERPRINT_COLUMNS, *newer)})
    return hashlib.blake2b(content.encode(), digest_size=12).hexdigest()


def _int64(tokens: int) -> int:
    """A count that fits a column; spans may claim any number."""
    return max(-_MAX_INT64, min(tokens, _MAX_INT64))


def _rewrite_fields(rewrite: Rewrite) -> dict[str, Any]:
    messages = [message_fields(message) for message in rewrite.messages]
    return {"at": rewrite.at, "messages": messages, "span_id": rewrite.span_id}


def _trajectory(row: Mapping[str, Any], history: Trajectory | None) -> Trajectory:
    return Trajectory(
        id=row["trajectory_id"],
        root_span=SpanRef(row["trace_id"], row["span_id"]),
        trace_ids=tuple(row["trace_ids"]),
        tail=tuple(message_of(message) for message in restore(row["messages"])),
        new_from=row["new_from"],
        history=history,
        conversation_id=row["conversation_id"],
        turn=row["turn"],
        agent=row["agent"],
        agents=tuple(row["agents"] or ()) if len(row["agents"] or ()) > 1 else (),
        service=row["service"],
        parent_id=row["parent_id"],
        parent_call_id=row["parent_call_id"],
        steps=tuple(tuple(step) for step in _items(row["steps"])),
        tools=tuple(_items(row["tools"])),
        models=tuple(row["models"]),
        dialects=tuple(row["dialects"]),
        usage=Usage(**{f.name: row[f.name] or 0 for f in fields(Usage)}),
        finish_reasons=tuple(row["finish_reasons"] or ()),
        prompts=tuple(row["prompts"] or ()),
        user=_identity(row, "user", row["user_id"]),
        version=_identity(row, "version", row["agent_version"]),
        documents=tuple(RetrievedDocument(**item) for item in _items(row["documents"] or "[]")),
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        gaps=tuple(Gap(**gap) for gap in _items(row["gaps"])),
        rewrites=tuple(
            Rewrite(r["at"], tuple(message_of(m) for m in r["messages"]), r["span_id"])
            for r in _items(row["rewrites"])
        ),
        attributes=restore(row["attributes"]),
        chain=row["chain"],
        follows=row["follows"],
        call_keys=tuple(row["call_keys"] or ()),
        rev=row["rev"],
    )


def _identity(row: Mapping[str, Any], kind: str, stored: str | None) -> str:
    """The user or version of a row, from its attributes if the row is old."""
    return identity_in(kind, restore(row["attributes"])) if stored is None else stored


def _items(text: str) -> Sequence[Any]:
    """The items of a JSON list; most are empty."""
    items: list[Any] = [] if text == "[]" else restore(text)
    return items


def build_trajectories(table: pa.Table) -> dict[str, Trajectory]:
    """The trajectories of some rows by id; their histories are among the rows."""
    rows = {row["trajectory_id"]: row for row in rows_of(table)}
    built: dict[str, Trajectory] = {}
    for name in rows:
        build_trajectory(name, rows, built)
    return built


def build_trajectory(
    name: str, rows: Mapping[str, Mapping[str, Any]], built: dict[str, Trajectory]
) -> None:
    """Build the histories of a trajectory and then itself, and add them to `built`.

    Args:
        name: Its id.
        rows: Rows by trajectory id.
        built: The trajectories built so far, by id.
    """
    lineage = []
    at: str | None = name
    while at is not None and at in rows and at not in built:
        lineage.append(at)
        at = rows[at]["history_id"]
    for member in reversed(lineage):
        row = rows[member]
        built[member] = _trajectory(row, built.get(row["history_id"] or ""))


_MESSAGE_FIELDS = (
    *("tool_call_id", "name", "is_error", "span_id", "trace_id", "is_outcome_recorded"),
)


def message_fields(message: Message) -> dict[str, Any]:
    """The fields of a message that differ from their defaults, as JSON values.

    Unlike OpenAI's form this is lossless; `message_of` reads it.
    """
    json_fields: dict[str, Any] = {"role": message.role}
    if message.content is not None:
        json_fields["content"] = message.content
    for name in _MESSAGE_FIELDS:
        if value := getattr(message, name):
            json_fields[name] = value
    if message.parts:
        json_fields["parts"] = list(message.parts)
    if message.tool_calls:
        json_fields["tool_calls"] = [_call_fields(call) for call in message.tool_calls]
    return json_fields


def _call_fields(call: ToolCall) -> dict[str, Any]:
    # Few calls are executed by the provider; other calls are stored as before the field was added.
    executed_by = {"executed_by": call.executed_by} if call.executed_by else {}
    return {
        "name": call.name,
        "arguments": call.arguments,
        "id": call.id,
        "span_id": call.span_id,
        "start_ns": call.start_ns,
        "end_ns": call.end_ns,
        **executed_by,
    }


def call_arguments(messages: str, count: int) -> list[Any] | None:
    """The arguments of the calls in the last messages of a row.

    Args:
        messages: The column ``messages``.
        count: The number of messages.

    Returns:
        The arguments in order, or None if the row has fewer messages.
    """
    all_messages = restore(messages)
    if count > len(all_messages):
        return None
    last = all_messages[len(all_messages) - count :]
    return [call["arguments"] for message in last for call in message.get("tool_calls", ())]


def message_of(json_fields: Mapping[str, Any]) -> Message:
    """The message for which `message_fields` returned these fields."""
    if "tool_calls" not in json_fields and "parts" not in json_fields:
        return Message(**json_fields)
    calls = tuple([ToolCall(**call) for call in json_fields.get("tool_calls", ())])
    parts = tuple(json_fields.get("parts", ()))
    return Message(**{**json_fields, "tool_calls": calls, "parts": parts})


def _signature(messages: Sequence[Message]) -> dict[str, Any]:
    """The columns of the signature of some messages.

    Runs with equal signatures match. A call becomes a 63-bit hash of its name and canonical
    arguments. A call without recorded arguments has no hash, and does not match any other call.

    Returns:
        ``roles`` of the messages; by call ``call_names``, ``call_hashes`` (None if its arguments
        are unknown), ``call_messages`` (the index of its message) and ``call_errors`` (None if
        unknown); ``strict_names``, a hash of the roles and, by message, the tools called;
        ``strict_calls``, the same with arguments, or None if some are unknown; and
        ``overlapping``, whether calls of different messages ran at the same time.
    """
    calls = [(at, call) for at, message in enumerate(messages) for call in message.tool_calls]
    hashes = [
        None if call.arguments is None else call_hash(call.name, call.arguments)
        for _, call in calls
    ]
    # Columns are UTF-8, which cannot encode lone surrogates.
    names = [escaped(call.name) for _, call in calls]
    positions = [at for at, _ in calls]
    roles = [message.role for message in messages]
    all_hashed = all(value is not None for value in hashes)
    return {
        "roles": roles,
        "call_names": names,
        "call_hashes": hashes,
        "call_messages": positions,
        "call_errors": list(call_errors(messages)),
        "strict_names": _strict(roles, positions, names),
        "strict_calls": _strict(roles, positions, list(map(str, hashes))) if all_hashed else None,
        "overlapping": _overlapping(calls),
    }


def _strict(roles: Sequence[str], positions: Sequence[int], calls: Sequence[str]) -> int:
    """A 63-bit hash of roles and, by message, calls."""
    grouped: list[list[str]] = [[] for _ in roles]
    for at, call in zip(positions, calls, strict=True):
        grouped[at].append(call)
    # JSON separates the names without ambiguity.
    text = dumps_exact([[role, *sorted(g)] for role, g in zip(roles, grouped, strict=True)])
    digest = hashlib.blake2b(escaped(text).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _overlapping(calls: Sequence[tuple[int, ToolCall]]) -> bool:
    timed = sorted((c.start_ns, c.end_ns, at) for at, c in calls if c.start_ns and c.end_ns)
    end_ns, message = 0, -1
    for start, end, at in timed:
        if start < end_ns and at != message:
            return True
        if end > end_ns:
            end_ns, message = end, at
    return False
