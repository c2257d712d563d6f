"""Long conversations: whether the work grows as the input does, and no faster.

A model call repeats the earlier messages, so that the input grows with the square of the
conversation's length unless the emitter cuts it. Time is compared with the bytes of input, not the
number of messages; the ``slope`` is that of the line through log seconds against log bytes: 1.0
is linear, 2.0 quadratic. There are two shapes, each at several sizes:

- ``turns``: one conversation of so many messages. A turn is a trace of an agent with two calls of
  the model and one of a tool, four messages; a call holds the last 100 messages at most.
- ``run``: one run of so many calls of the model, each with all that was said before.

Inside the clock is `oteval.reconstruct.reconstruct` alone, CPU time, on spans that are in memory
before; as in the pipeline, the interpreter seldom searches for cycles. Bytes are those of the
attributes' text. Each size runs in a separate process; the peak is its highest resident set, beside
that of a process that only makes the spans.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from . import parts
from .checks import check
from .clock import module, run, spent
from .report import Row, below

FULL = {"turns": [1_200, 2_400, 5_000, 10_000], "calls": [120, 250, 500, 1_000], "repeats": 3}
QUICK = {"turns": [500, 1_000, 2_000], "calls": [50, 100, 200], "repeats": 1}
STEEPEST = 1.15
"""Above this the work is not linear; caches that hold less of a longer input are some 0.05."""

_WINDOW = 100
_TURN = 4
_TEXT = "The order was shipped on Monday and is now with the carrier; it may take two more days. "


def text_message(role: str, text: str) -> dict[str, Any]:
    """Return a message of text, in OpenTelemetry's form of parts."""
    return {"role": role, "parts": [{"type": "text", "content": f"{text}: {_TEXT * 3}"}]}


def rounds(count: int) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Yield the new messages before each model call, and the model's answer.

    Calls come in pairs: the first asks for a tool, the second has its result and answers.
    """
    for number in range(0, count, 2):
        call_id, arguments = f"call_{number}", {"order_id": f"W{number:07}"}
        call = {"type": "tool_call", "id": call_id, "name": "get_order", "arguments": arguments}
        result = {"type": "tool_call_response", "id": call_id, "response": f"{number}: {_TEXT * 5}"}
        question = text_message("user", f"question {number}")
        yield [question], {"role": "assistant", "parts": [call]}
        yield [{"role": "tool", "parts": [result]}], text_message("assistant", f"answer {number}")


def spans_of(calls: int, *, window: int | None) -> Iterator[Any]:
    """Yield the spans of model calls of one conversation, each with the earlier messages.

    Args:
        calls: How many.
        window: How many messages a call holds at most, each pair of calls in a separate trace;
            None for all messages, and all calls in one trace.
    """
    history: list[str] = []
    for number, (new, answer) in enumerate(rounds(calls)):
        turn, at = number // 2 if window else 0, 100 * number + 1
        if number == 0 or (window and number % 2 == 0):
            yield _span(turn, 0, at, at + 100 * (2 if window else calls) - 5, _AGENT)
        history += map(json.dumps, new)
        # A window begins with a question, as emitters that cut by turns have it.
        start = max(0, len(history) - window) // _TURN * _TURN if window else 0
        yield _span(turn, at, at + 1, at + 41, _chat(history[start:], answer))
        history.append(json.dumps(answer))
        part = answer["parts"][0]
        if part["type"] == "tool_call":
            yield _span(turn, at + 1, at + 51, at + 91, _tool(part, number))


_AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "support-agent",
    "gen_ai.conversation.id": "conv",
}
_RESOURCE = {"service.name": "support-bot"}


def _span(turn: int, number: int, start: int, end: int, attributes: dict[str, Any]) -> Any:
    """Return a span of a turn; number 0 is its root."""
    from oteval.model import Span

    root = f"{turn + (1 << 60):016x}"
    return Span(
        f"{turn + 1:032x}",
        f"{number:016x}" if number else root,
        root if number else "",
        start_ns=start,
        end_ns=end,
        attributes=attributes,
        resource=_RESOURCE,
    )


def _chat(history: list[str], answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.input.messages": f"[{','.join(history)}]",
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _tool(call: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call["id"],
        "gen_ai.tool.call.arguments": json.dumps(call["arguments"]),
        "gen_ai.tool.call.result": f"{number}: {_TEXT * 5}",
    }


def do(shape: str, size: int, repeats: int) -> dict[str, Any]:
    """Reconstruct one conversation in this process.

    Args:
        shape: ``turns`` or ``run``.
        size: The number of messages, in fours, or of model calls, in pairs.
        repeats: How often; 0 only makes the spans.

    Returns:
        ``bytes``, ``spans``, and the best ``cpu_s`` of the repetitions.
    """
    from oteval.base.machine import infrequent_gc
    from oteval.reconstruct import reconstruct

    if shape == "turns":
        spans = list(spans_of(size // 2, window=_WINDOW))
        expected = size
    else:
        spans = list(spans_of(size, window=None))
        expected = 2 * size
    texts = (v for span in spans for v in span.attributes.values())
    figures = {"bytes": sum(map(len, texts)), "spans": len(spans), "cpu_s": math.inf}
    for _ in range(repeats):
        with infrequent_gc(), spent() as cost:
            trajectories = reconstruct(spans)
        messages = sum(len(t.own_messages) for t in trajectories)
        check(messages == expected, f"the runs have {expected:,} messages", messages)
        gaps = [gap for t in trajectories for gap in t.gaps]
        check(not gaps, "the runs have no gaps", gaps[:3])
        figures["cpu_s"] = min(figures["cpu_s"], cost.cpu)
    return figures


def slope(points: list[dict[str, Any]]) -> float:
    """Return the slope of the line through log seconds against log bytes."""
    xs = [math.log(point["bytes"]) for point in points]
    ys = [math.log(point["cpu_s"]) for point in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return rise / sum((a - x) ** 2 for a in xs)


def measure(*, turns: list[int], calls: list[int], repeats: int) -> dict[str, Any]:
    """Measure the reconstruction of long conversations.

    Args:
        turns: How many messages the conversations of ``turns`` have.
        calls: How many model calls the runs of ``run`` have.
        repeats: How often each is measured; the best counts.

    Returns:
        For each shape, ``points`` (``size``, ``bytes``, ``spans``, ``cpu_s``, ``peak`` and
        ``spans_peak`` by size) and their ``slope``.
    """
    figures: dict[str, Any] = {}
    for shape, sizes in (("turns", turns), ("run", calls)):
        points = []
        for size in sizes:
            bare = run(module("benchmarks.conversations", "--do", shape, size, 0))
            whole = run(module("benchmarks.conversations", "--do", shape, size, 1))
            timed = run(module("benchmarks.conversations", "--do", shape, size, repeats))
            point = {"size": size, "peak": whole.peak, "spans_peak": bare.peak}
            points.append({**point, **json.loads(timed.output)})
        figures[shape] = {"points": points, "slope": slope(points)}
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    names = {"turns": "one conversation, {:,} messages", "run": "one run, {:,} model calls"}
    out = []
    for shape, name in names.items():
        for point in figures[shape]["points"]:
            size = f"{name.format(point['size'])}, {point['bytes'] / 1e6:,.1f} MB"
            speed = point["bytes"] / 1e6 / point["cpu_s"]
            out.append(Row(f"{size}: CPU seconds", f"{point['cpu_s']:.2f} ({speed:,.0f} MB/s)"))
            peaks = f"{point['peak'] / 1e6:,.0f} ({point['spans_peak'] / 1e6:,.0f})"
            out.append(Row(f"{size}: peak MB (the spans alone)", peaks))
        figure = f"{shape}: slope of log seconds against log bytes"
        out.append(below(figure, figures[shape]["slope"], "{:.2f}", STEEPEST))
    return out


if __name__ == "__main__":
    if sys.argv[1:2] == ["--do"]:
        print(json.dumps(do(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        parts.main("conversations")
