"""agentevals-cli: its loader and the turns that it extracts from traces."""

from __future__ import annotations

from typing import Any

from agentevals.genai.extract import extract_turns
from agentevals.genai.messages import text_of
from agentevals.loader.auto import load_telemetry
from otlp_spans import requests


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each turn, with its warnings."""
    runs, notes = [], []
    for path in (path for path in paths if any(requests([path]))):
        loaded = load_telemetry(path)
        notes += list(map(str, loaded.warnings))
        for turn in (turn for trace in loaded.traces for turn in extract_turns(trace)):
            notes += [f"{gap.code}: {gap.reason}" for gap in turn.warnings]
            runs.append(_messages(turn))
    return {"runs": runs, "notes": notes}


def _messages(turn: Any) -> list[dict[str, Any]]:
    calls = [
        {"id": call.call_id, "name": call.name, "arguments": call.arguments}
        for call in turn.tool_calls
    ]
    results = [
        {
            "role": "tool",
            "content": call.result,
            "call_id": call.call_id,
            "is_error": call.is_error,
        }
        for call in turn.tool_calls
    ]
    return [
        {"role": "user", "content": text_of(turn.user_input)},
        *([{"role": "assistant", "content": None, "calls": calls}, *results] if calls else []),
        {"role": "assistant", "content": text_of(turn.final_output)},
    ]
