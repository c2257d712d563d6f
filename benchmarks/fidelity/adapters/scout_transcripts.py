"""Inspect Scout: the transcripts that its importers make of spans stored in Phoenix and Logfire.

Phoenix derives attributes when it stores spans, and the importer relies on them, so Phoenix is in
this tool's environment as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from inspect_scout.sources import _logfire, _phoenix
from otlp_spans import tool_messages
from scout_clients import logfire_client, phoenix_client


def read(paths: list[str]) -> dict[str, Any]:
    """Return a reading for each importer."""
    return {"readings": asyncio.run(_readings(paths)), "notes": []}


async def _readings(paths: list[str]) -> list[list[list[dict[str, Any]]]]:
    phoenix = _phoenix._from_project(phoenix_client(paths), "project", *[None] * 8)
    logfire = _logfire._from_project(logfire_client(paths), *[None] * 5)
    return [[run async for each in source for run in _runs(each)] for source in (phoenix, logfire)]


def _runs(transcript: Any) -> list[list[dict[str, Any]]]:
    """Return a transcript's messages, those of its model events, and those with its tool events."""
    runs, tools = [_messages(transcript.messages)], []
    for event in transcript.events:
        if event.event == "model":
            runs.append(_messages([*event.input, *filter(None, [event.output.message])]))
        if event.event == "tool":
            facts = {"name": event.function, "arguments": event.arguments, "content": event.result}
            tools += tool_messages(event.id, **facts, is_error=event.error is not None)
    asked = [each for each in runs[0] if each["role"] == "user"]
    return [*runs, [*asked[-1:], *tools, *runs[0][-1:]]]


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
