"""Runs as files that other tools read: examples for fine-tuning, and ATIF trajectories.

A run is left out of the examples if some of its content was not captured, or was cut or redacted: a
model would learn from text that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..base.files import make_folder, write_private
from ..base.jsontext import dumps
from ..base.text import printable_json
from ..model import (
    CONTENT_GAPS,
    EVERYTHING,
    FAILURE_GAPS,
    Message,
    Score,
    Selection,
    ToolCall,
    Trajectory,
    Usage,
)
from ..store import Store
from .exporter import scored_trajectories

__all__ = ["ExportCount", "Verdicts", "as_atif", "as_example", "export_atif", "export_sft"]

_ATIF_VERSION = "ATIF-v1.7"  # the first with `trajectory_id`
_SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_MEDIA = frozenset({"image_url", "input_audio", "file"})


@dataclass(frozen=True)
class Verdicts:
    """Which runs to export, by their newest scores.

    Attributes:
        passed: Evaluators that the run passes.
        failed: Evaluators that the run fails.
    """

    passed: Sequence[str] = ()
    failed: Sequence[str] = ()

    def hold(self, scores: Sequence[Score]) -> bool:
        """Whether the scores of a run have all these verdicts."""
        verdicts = {score.evaluator: score.passed for score in scores}
        return all(verdicts.get(name) is True for name in self.passed) and all(
            verdicts.get(name) is False for name in self.failed
        )


@dataclass
class ExportCount:
    """How many runs were exported.

    Attributes:
        written: The runs in the file.
        incomplete: The runs that were left out, because content is missing from them.
    """

    written: int = 0
    incomplete: int = 0


def export_sft(
    store: Store, out: IO[str], selection: Selection = EVERYTHING, verdicts: Verdicts = Verdicts()
) -> ExportCount:
    """Write runs as examples for supervised fine-tuning, one JSON object a line; see `as_example`.

    Args:
        store: The store.
        out: The text stream to write to.
        selection: The runs.
        verdicts: The verdicts that the runs must have.
    """
    count = ExportCount()
    for trajectory, scores in scored_trajectories(store, selection):
        if not verdicts.hold(scores):
            continue
        if not _is_complete(trajectory):
            count.incomplete += 1
            continue
        out.write(printable_json(dumps(as_example(trajectory))) + "\n")
        count.written += 1
    return count


def _is_complete(trajectory: Trajectory) -> bool:
    codes = {gap.code for gap in trajectory.gaps}
    answers = (message.role == "assistant" for message in trajectory.messages)
    return codes.isdisjoint(CONTENT_GAPS | FAILURE_GAPS) and any(answers)


def as_example(trajectory: Trajectory) -> dict[str, Any]:
    """A run as an example in OpenAI's chat form: ``messages``, and ``tools`` if it had any.

    The messages are the messages of the whole conversation up to the end of the run. Reasoning is
    left out, as in the requests of a chat.
    """
    example: dict[str, Any] = {
        "messages": [_chat_message(message) for message in trajectory.messages]
    }
    if trajectory.tools:
        example["tools"] = [_chat_tool(tool) for tool in trajectory.tools]
    return example


def _chat_message(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": message.content}
    media = [dict(part) for part in message.parts if part.get("type") in _MEDIA]
    if media:
        text = [{"type": "text", "text": message.content}] if message.content else []
        chat["content"] = [*text, *media]
    if message.tool_calls:
        chat["tool_calls"] = [call.as_dict() for call in message.tool_calls]
    if message.role == "tool":
        chat["tool_call_id"] = message.tool_call_id
        chat["content"] = chat["content"] or ""
    return chat


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(tool.get("function"), Mapping):
        return {"type": "function", "function": dict(tool["function"])}
    schemas = (tool.get(key) for key in ("parameters", "input_schema", "inputSchema"))
    schema = next(
        (schema_of_tool for schema_of_tool in schemas if isinstance(schema_of_tool, Mapping)), {}
    )
    function = {"name": tool.get("name"), "description": tool.get("description") or ""}
    return {"type": "function", "function": {**function, "parameters": dict(schema)}}


def export_atif(
    store: Store, folder: Path, selection: Selection = EVERYTHING, verdicts: Verdicts = Verdicts()
) -> ExportCount:
    """Write each run to a file ``ID.json`` of a folder; see `as_atif`.

    Args:
        store: The store.
        folder: The folder, which is made.
        selection: The runs.
        verdicts: The verdicts that the runs must have.

    Raises:
        OSError: A file cannot be written.
    """
    make_folder(folder)
    count = ExportCount()
    for trajectory, scores in scored_trajectories(store, selection):
        if verdicts.hold(scores) and trajectory.messages:
            text = printable_json(dumps(as_atif(trajectory)))
            write_private(folder / f"{trajectory.id}.json", text + "\n")
            count.written += 1
    return count


def as_atif(trajectory: Trajectory) -> dict[str, Any]:
    """A run in the Agent Trajectory Interchange Format.

    A step is a message; the results of an agent's calls are its observation. Messages of earlier
    turns are copied context. Gaps are listed in ``extra.gaps``. See
    https://harborframework.com/docs/trajectory-format.
    """
    usage = trajectory.usage
    tools = [_chat_tool(tool) for tool in trajectory.tools]
    extra = {
        "gaps": [gap.as_dict() for gap in trajectory.gaps],
        "parent_id": trajectory.parent_id,
        "turn": trajectory.turn,
    }
    return {
        "schema_version": _ATIF_VERSION,
        "session_id": trajectory.conversation_id or trajectory.id,
        "trajectory_id": trajectory.id,
        "agent": {
            "name": trajectory.agent or trajectory.service or "agent",
            "version": str(trajectory.attributes.get("service.version") or "unknown"),
            **({"model_name": trajectory.models[0]} if trajectory.models else {}),
            **({"tool_definitions": tools} if tools else {}),
        },
        "steps": list(_steps(trajectory)),
        **({"final_metrics": _metrics(usage)} if usage.is_known else {}),
        "extra": {name: value for name, value in extra.items() if value},
    }


def _metrics(usage: Usage) -> dict[str, int]:
    return {
        "total_prompt_tokens": usage.input_tokens,
        "total_completion_tokens": usage.output_tokens,
        "total_cached_tokens": usage.cached_tokens,
    }


def _steps(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield a step for each message; a result goes into the step of its call."""
    steps: list[tuple[int, Message, list[Message]]] = []
    for message_index, message in enumerate(trajectory.messages):
        results = _results_of(steps, message) if message.role == "tool" else None
        if results is None:
            steps.append((message_index, message, []))
        else:
            results.append(message)
    for number, (message_index, message, results) in enumerate(steps, start=1):
        step = {"step_id": number, **_step(message, results, number)}
        yield step | ({"is_copied_context": True} if message_index < trajectory.new_from else {})


def _results_of(
    steps: Sequence[tuple[int, Message, list[Message]]], result: Message
) -> list[Message] | None:
    """Where a result belongs: with its call, or else with the calls directly before it."""
    for _, message, results in reversed(steps):
        if result.tool_call_id in {call.id for call in message.tool_calls if call.id}:
            return results
    if steps and steps[-1][1].tool_calls:
        return steps[-1][2]
    return None


def _step(message: Message, results: Sequence[Message], number: int) -> dict[str, Any]:
    if message.role == "tool":  # a result without a call
        return {"source": "system", "message": "", "observation": _observation([message], [])}
    step: dict[str, Any] = {
        "source": _SOURCES.get(message.role, "system"),
        "message": message.content or "",
    }
    if message.role != "assistant":
        return step
    texts = (part.get("content") or part.get("text") for part in message.parts if _reasons(part))
    reasoning = "\n".join(text for text in texts if isinstance(text, str))
    calls = [
        _atif_call(call, number, call_index) for call_index, call in enumerate(message.tool_calls)
    ]
    step |= {"reasoning_content": reasoning} if reasoning else {}
    step |= {"tool_calls": calls} if calls else {}
    names = [call["tool_call_id"] for call in calls]
    return step | ({"observation": _observation(results, names)} if results else {})


def _reasons(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("reasoning", "thinking")


def _atif_call(call: ToolCall, number: int, call_index: int) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    if not arguments and call.arguments:
        arguments = {"arguments": call.arguments}
    name = call.id or f"step-{number}-call-{call_index}"
    return {"tool_call_id": name, "function_name": call.name, "arguments": arguments}


def _observation(results: Sequence[Message], names: Sequence[str]) -> dict[str, Any]:
    return {"results": [_result(result, names) for result in results]}


def _result(result: Message, names: Sequence[str]) -> dict[str, Any]:
    name = result.tool_call_id
    fields = {"source_call_id": name} if name in names else {}
    extra = {"extra": {"is_error": True}} if result.is_error else {}
    return {**fields, "content": result.content or "", **extra}
