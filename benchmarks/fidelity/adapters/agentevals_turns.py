"""agentevals-cli: the conversation that it extracts from the traces and logs of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentevals.genai.extract import extract_conversation
from agentevals.genai.messages import text_of, tool_calls_of, tool_responses_of
from agentevals.loader.auto import load_telemetry_text
from tool_runs import tool_messages, tool_run


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a run for each turn, and for each of its model calls, with the warnings."""
    lines = [json.dumps(json.loads(Path(path).read_text("utf-8"))) for path in paths]
    loaded = load_telemetry_text("\n".join(lines))
    turns = extract_conversation(loaded.traces).turns
    notes = [*map(str, loaded.warnings)]
    notes += [f"{gap.code}: {gap.reason}" for turn in turns for gap in turn.warnings]
    runs = [run for turn in turns for run in _runs(turn)]
    yield {"runs": runs, "notes": notes}


def _runs(turn: Any) -> list[list[dict[str, Any]]]:
    tools = []
    for at, call in enumerate(turn.tool_calls):
        facts = {"name": call.name, "arguments": call.arguments, "content": call.result}
        tools += tool_messages(call.call_id or str(at), **facts, is_error=call.is_error)
    chats = list(map(_model_call, turn.llm_calls))
    question, answer = text_of(turn.user_input), text_of(turn.final_output)
    return [tool_run(question, tools, answer, []), tool_run(None, tools, None, chats), *chats]


def _model_call(call: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for message in (*call.input_messages, *call.output_messages):
        calls, text = tool_calls_of([message]), text_of([message])
        if calls or text:
            messages.append({"role": message.get("role"), "content": text, "calls": calls})
        messages += [
            {"role": "tool", "content": each["response"], "call_id": each["id"]}
            for each in tool_responses_of([message])
        ]
    return messages
