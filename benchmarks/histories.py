"""Long histories said again and again: from a file to trajectories, and what repetition costs.

The file has agent runs of many model calls, as OTLP/JSON lines. Each call repeats the system
prompt, the definitions of 12 tools, and all that was said before, so that most of the file is
repetition. A process loads it into a new database and reconstructs the trajectories; its CPU time,
with that of the processes that it starts, is compared with the CPU time of parsing the lines with
orjson. The peak is the highest resident set of any of these processes. The database holds the
spans and the trajectories.

``repeating`` is the CPU time of `oteval.reconstruct.reconstruct` alone, for a run whose calls each
repeat the history, beside that of a run whose calls hold only the new messages; for JSON text, for
arrays of OTLP values, and for OpenInference's flat attributes. Spans are in memory before the
clock starts.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from . import parts
from .checks import check
from .clock import module, run, spent
from .conversations import rounds
from .report import Row, below

FULL = {"runs": 100, "calls": 40, "repeating": 1_000, "repeats": 3}
QUICK = {"runs": 10, "calls": 20, "repeating": 200, "repeats": 1}
ENCODINGS = ("text", "values", "flat")

MOST_TIMES_PARSING = 10
MOST_TIMES_NEW = 3
MOST_BYTES = 400_000_000
LEAST_TIMES_DATABASE = 30

_TOOLS = 12
_SPANS_PER_LINE = 20
_STEP_NS = 1_000_000_000
_START_NS = 1_760_000_000_000_000_000
_WORDS = (
    "account address amount booking cancel carrier confirm customer delivery error flight index "
    "invoice item order parcel payment plan policy refund return schedule seat shipping status"
)

Object = dict[str, Any]


class _Writer:
    """Makes the runs of the file; the same seed gives the same ones."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._words = _WORDS.split()
        self._system = json.dumps([{"type": "text", "content": self._text(400)}])
        self._tools = json.dumps([self._tool(number) for number in range(_TOOLS)])

    def _text(self, words: int) -> str:
        """Return words, some with a number, so that no text is another's."""
        chosen = self._random.choices(self._words, k=words)
        return " ".join(
            f"{word}{self._random.randrange(10_000)}" if self._random.random() < 0.2 else word
            for word in chosen
        )

    def _tool(self, number: int) -> Object:
        names = self._random.sample(self._words, 5)
        fields = {name: {"type": "string", "description": self._text(8)} for name in names}
        return {
            "type": "function",
            "name": f"tool_{number}",
            "description": self._text(40),
            "parameters": {"type": "object", "properties": fields},
        }

    def lines(self, runs: int, calls: int) -> Iterator[bytes]:
        for number in range(runs):
            spans = list(self._run(number, calls))
            for start in range(0, len(spans), _SPANS_PER_LINE):
                group = {
                    "resource": {"attributes": _attributes({"service.name": "support"})},
                    "scopeSpans": [
                        {
                            "scope": {"name": "opentelemetry.util.genai.handler"},
                            "spans": spans[start : start + _SPANS_PER_LINE],
                        }
                    ],
                }
                yield orjson.dumps({"resourceSpans": [group]}) + b"\n"

    def _run(self, number: int, calls: int) -> Iterator[Object]:
        trace_id, start = f"{number + 1:032x}", _START_NS + 1_000 * number * _STEP_NS
        root = f"{number + 1:08x}00000000"
        history: list[Object] = [_text_message("user", self._text(60))]
        for call in range(calls):
            at = start + (2 * call + 1) * _STEP_NS
            name, call_id = f"tool_{call % _TOOLS}", f"call_{number}_{call}"
            arguments = {"query": self._text(5), "page": call}
            request = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
            is_last = call == calls - 1
            answer = {"role": "assistant", "parts": [request]}
            if is_last:
                answer = _text_message("assistant", self._text(80))
            chat = self._chat(history, answer, 1_000 + 500 * call)
            yield _span(trace_id, f"{root[:8]}{2 * call + 1:08x}", root, at, "chat", chat)
            history.append(answer)
            if is_last:
                break
            result = self._text(250)
            tool = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.call.arguments": json.dumps(arguments),
                "gen_ai.tool.call.result": result,
            }
            later = at + _STEP_NS
            yield _span(trace_id, f"{root[:8]}{2 * call + 2:08x}", root, later, "tool", tool)
            response = {"type": "tool_call_response", "id": call_id, "response": result}
            history.append({"role": "tool", "parts": [response]})
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "support",
            "gen_ai.conversation.id": f"conversation-{number}",
        }
        yield _span(trace_id, root, "", start, "invoke_agent", agent, 2 * calls + 1)

    def _chat(self, history: list[Object], answer: Object, tokens: int) -> Object:
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.system_instructions": self._system,
            "gen_ai.tool.definitions": self._tools,
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": json.dumps([answer]),
            "gen_ai.usage.input_tokens": tokens,
            "gen_ai.usage.output_tokens": 50,
        }


def _text_message(role: str, text: str) -> Object:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _span(
    trace_id: str,
    span_id: str,
    parent: str,
    start: int,
    name: str,
    attributes: Object,
    steps: int = 1,
) -> Object:
    return {
        "traceId": trace_id,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + steps * _STEP_NS - 1),
        "attributes": _attributes(attributes),
    }


def _attributes(values: Object) -> list[Object]:
    return [
        {"key": k, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for k, v in values.items()
    ]


def write(path: Path, runs: int, calls: int) -> int:
    """Write the file, and return its size in bytes."""
    with path.open("wb") as file:
        for line in _Writer().lines(runs, calls):
            file.write(line)
    return path.stat().st_size


def spans_of(calls: int, encoding: str, *, repeats: bool) -> list[Any]:
    """Return the spans of one run.

    Args:
        calls: How many model calls, an even number.
        encoding: One of `ENCODINGS`.
        repeats: Whether each call holds the history; else it holds only the new messages.
    """
    from oteval.model import Span

    trace_id, resource = "1" * 32, {"service.name": "support"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
    root = "f" * 16
    end = 100 * calls
    spans = [Span(trace_id, root, end_ns=end, attributes=agent, resource=resource)]
    history: list[Object] = []
    for number, (new, answer) in enumerate(rounds(calls)):
        history += new
        encoded = _flat if encoding == "flat" else _text if encoding == "text" else _values
        attributes = encoded(list(history) if repeats else new, answer)
        history.append(answer)
        spans.append(
            Span(
                trace_id,
                f"{number + 1:016x}",
                root,
                start_ns=100 * number + 1,
                end_ns=100 * number + 50,
                attributes=attributes,
                resource=resource,
            )
        )
    return spans


def _values(sent: list[Object], answer: Object) -> Object:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": orjson.loads(orjson.dumps(sent)),
        "gen_ai.output.messages": [answer],
    }


def _text(sent: list[Object], answer: Object) -> Object:
    content = {"gen_ai.input.messages": sent, "gen_ai.output.messages": [answer]}
    return {
        "gen_ai.operation.name": "chat",
        **{key: json.dumps(value) for key, value in content.items()},
    }


def _flat(sent: list[Object], answer: Object) -> Object:
    attributes: Object = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5-mini"}
    for side, messages in (("input", sent), ("output", [answer])):
        for index, message in enumerate(messages):
            prefix, (part,) = f"llm.{side}_messages.{index}.message", message["parts"]
            attributes[f"{prefix}.role"] = message["role"]
            if part["type"] == "tool_call":
                call = f"{prefix}.tool_calls.0.tool_call"
                attributes[f"{call}.id"] = part["id"]
                attributes[f"{call}.function.name"] = part["name"]
                attributes[f"{call}.function.arguments"] = json.dumps(part["arguments"])
            else:
                attributes[f"{prefix}.content"] = part.get("content", part.get("response"))
            if part["type"] == "tool_call_response":
                attributes[f"{prefix}.tool_call_id"] = part["id"]
    return attributes


def convert(file: str, database: str, runs: str, calls: str) -> None:
    """Load a file of so many runs of so many calls, and reconstruct them in this process."""
    from oteval.scoring import load, refresh
    from oteval.store import Store

    with Store(database) as store:
        report, spans = load(store, [file]), 2 * int(runs) * int(calls)
        check((report.stored, report.bad) == (spans, 0), f"{spans:,} spans are stored", report)
        count = refresh(store)
        check(count == int(runs), f"the spans are {runs} runs", count)


def check_messages(database: str, runs: str, calls: str) -> None:
    """Check that the runs of a database have all of their messages.

    Raises:
        CheckError: A message is missing, or doubled.
    """
    from oteval.store import Store

    with Store(database, create=False) as store:
        sizes = [len(run.own_messages) for run in store.trajectories.read()]
    # The system prompt and the question; each call, and the result of all but the last.
    expected = [2 * int(calls) + 1] * int(runs)
    check(sizes == expected, f"{runs} runs have 2 * {calls} + 1 messages each", sizes)


def parse(file: str) -> float:
    """Return the CPU seconds of parsing a file's lines in this process."""
    count, start = 0, time.process_time()
    with Path(file).open("rb") as lines:
        for line in lines:
            count += "resourceSpans" in orjson.loads(line)
    seconds = time.process_time() - start
    check(count, "the lines are OTLP requests")
    return seconds


def reconstruct_run(calls: int, encoding: str, repeats: int) -> dict[str, float]:
    """Return the best CPU seconds of reconstructing a run, repeating its history and not."""
    from oteval.base.machine import infrequent_gc
    from oteval.reconstruct import reconstruct

    seconds: dict[str, float] = {}
    for name, is_repeating in (("new", False), ("repeating", True)):
        spans = spans_of(calls, encoding, repeats=is_repeating)
        seconds[name] = math.inf
        for _ in range(repeats):
            with infrequent_gc(), spent() as cost:
                (trajectory,) = reconstruct(spans)
            count = len(trajectory.messages)
            check(count == 2 * calls, f"the run has {2 * calls:,} messages", count)
            seconds[name] = min(seconds[name], cost.cpu)
    return seconds


def measure(*, runs: int, calls: int, repeating: int, repeats: int) -> dict[str, Any]:
    """Measure long histories.

    Args:
        runs: The runs of the file.
        calls: The model calls of each.
        repeating: The model calls of the run that is only reconstructed.
        repeats: How often each is measured; the best counts.

    Returns:
        ``bytes``, ``database`` (bytes), ``spans``, ``parse_s``, ``cpu_s``, ``peak``, and by
        encoding the CPU seconds ``new`` and ``repeating``.
    """
    figures: dict[str, Any] = {"spans": runs * 2 * calls, "calls": repeating}
    figures |= {"parse_s": math.inf, "cpu_s": math.inf, "peak": 0}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "histories.jsonl"
        figures["bytes"] = write(file, runs, calls)
        for number in range(repeats):
            parsed = run(module("benchmarks.histories", "--do", "parse", file))
            figures["parse_s"] = min(figures["parse_s"], float(parsed.output))
            database = Path(name) / f"{number}.duckdb"
            size = (runs, calls)
            cost = run(module("benchmarks.histories", "--do", "convert", file, database, *size))
            run(module("benchmarks.histories", "--do", "check", database, *size))
            figures["cpu_s"] = min(figures["cpu_s"], cost.cpu)
            figures["peak"] = max(figures["peak"], cost.peak)
            figures["database"] = database.stat().st_size
    for encoding in ENCODINGS:
        command = module("benchmarks.histories", "--do", "read", repeating, encoding, repeats)
        figures[encoding] = json.loads(run(command).output)
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    size = f"{figures['bytes'] / 1e6:,.0f} MB, {figures['spans']:,} spans"
    times = figures["cpu_s"] / figures["parse_s"]
    smaller = figures["bytes"] / figures["database"]
    out = [
        Row(f"parsing with orjson, {size}: CPU seconds", f"{figures['parse_s']:.2f}"),
        Row("file to trajectories: CPU seconds", f"{figures['cpu_s']:.2f}"),
        below("file to trajectories: times parsing", times, "{:.1f}", MOST_TIMES_PARSING),
        below("file to trajectories: peak MB", figures["peak"] / 1e6, "{:,.0f}", MOST_BYTES / 1e6),
        Row(
            "the file's size, times the database's",
            f"{smaller:.1f} ({figures['database'] / 1e6:,.1f} MB)",
            target=f"at least {LEAST_TIMES_DATABASE}",
            held=smaller >= LEAST_TIMES_DATABASE,
        ),
    ]
    for encoding in ENCODINGS:
        seconds = figures[encoding]
        figure = f"{figures['calls']:,} calls that repeat their history, {encoding}: times new ones"
        times = seconds["repeating"] / seconds["new"]
        out.append(below(figure, times, "{:.1f}", MOST_TIMES_NEW))
    return out


def _do(work: str, *arguments: str) -> None:
    if work == "parse":
        print(parse(arguments[0]))
    elif work == "convert":
        convert(*arguments)
    elif work == "check":
        check_messages(*arguments)
    else:
        print(json.dumps(reconstruct_run(int(arguments[0]), arguments[1], int(arguments[2]))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--do"]:
        _do(*sys.argv[2:])
    else:
        parts.main("histories")
