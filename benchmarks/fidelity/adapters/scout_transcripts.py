"""Inspect Scout: the transcripts that its importers make of spans stored in Phoenix and Logfire.

Phoenix derives attributes when it stores spans, and the importer relies on them, so Phoenix is in
this tool's environment as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from inspect_scout.sources import _logfire, _phoenix
from scout_clients import logfire_client, phoenix_client
from tool_runs import tool_messages, tool_run


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a reading for each importer."""
    phoenix = _phoenix._from_project(phoenix_client(paths), "project", *[None] * 8)
    yield {"runs": asyncio.run(_all_runs(phoenix)), "notes": []}
    logfire = _logfire._from_project(logfire_client(paths), *[None] * 5)
    yield {"runs": asyncio.run(_all_runs(logfire)), "notes": []}


async def _all_runs(transcripts: Any) -> list[list[dict[str, Any]]]:
    return [run async for transcript in transcripts for run in _runs(transcript)]


def _runs(transcript: Any) -> list[list[dict[str, Any]]]:
    """Return a transcript's messages, those of its model events, and those with its tool events."""
    chats: list[Any] = []
    tools: list[dict[str, Any]] = []
    for event in transcript.events:
        if event.event == "model":
            chats.append(_messages([*event.input, *filter(None, [event.output.message])]))
        if event.event == "tool":
            facts = {"name": event.function, "arguments": event.arguments, "content": event.result}
            tools += tool_messages(event.id, **facts, is_error=event.error is not None)
    messages = _messages(transcript.messages)
    return [messages, *chats, tool_run(None, tools, None, chats or [messages])]


def _messages(messages: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": message.role,
            "content": message.text,
            "calls": [
                {"id": call.id, "name": call.function, "arguments": call.arguments}
                for call in getattr(message, "tool_calls", None) or []
            ],
            "call_id": getattr(message, "tool_call_id", "") or "",
            "is_error": bool(getattr(message, "error", None)),
        }
        for message in messages
    ]
