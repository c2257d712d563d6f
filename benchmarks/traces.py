"""Generated traces of an agent with a tool: as many as wanted, the same for the same seed.

A trace has four spans as the OpenTelemetry GenAI conventions have them: ``invoke_agent``, a
``chat`` that asks for a tool, its ``execute_tool``, and a ``chat`` that answers. Ids, times and
texts differ from trace to trace; a span takes some 2.7 KB as OTLP/JSON. A line is a request
of 64 spans, as the Collector's file exporter writes them. Nothing is kept: a million spans need
no more memory than a hundred.

One call in ten looks up the order of the `reference`, and three tool calls in a hundred fail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

SPANS_PER_TRACE = 4
SPANS_PER_LINE = 64
AGENT = "support-agent"
TOOL = "get_order"
ORDERS = 10
CASE_ID = "agentevals.eval.case.id"
CASE = "order"
"""Where agentevals-cli looks for a trace's test case, and the case that it finds."""

_MODEL = "gpt-4o-mini"
_START_NS = 1_760_000_000_000_000_000
_STEP_NS = 10_000_000
_BETWEEN_NS = 1_000_000
_FAILS = 0.03
_WORDS = (
    "account address agent amount booking cancel confirm customer delivery error flight index "
    "invoice item latency order payment plan policy refund retry schema seat shipping status "
    "ticket tool upgrade vector weather"
)
_RESOURCE = {
    "service.name": "support-bot",
    "service.version": "1.4.2",
    "deployment.environment.name": "prod",
    "telemetry.sdk.language": "python",
    "telemetry.sdk.name": "opentelemetry",
    "telemetry.sdk.version": "1.39.0",
    CASE_ID: CASE,
}
_SCOPE = {"name": "opentelemetry.instrumentation.openai_v2", "version": "2.3b0"}

Object = dict[str, Any]


def reference() -> list[Object]:
    """Return the reference of a run: one call, for the first of the orders."""
    arguments = orjson.dumps({"order_id": _order(0)}).decode()
    function = {"name": TOOL, "arguments": arguments}
    call = {"id": "call_0", "type": "function", "function": function}
    return [
        {"role": "user", "content": "Where is my order?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


def write(path: Path, spans: int, seed: int = 1) -> int:
    """Write traces to a file of OTLP/JSON lines.

    Args:
        path: The file.
        spans: How many spans, a multiple of four.
        seed: The same seed gives the same traces.

    Returns:
        The file's size in bytes.
    """
    with path.open("wb") as file:
        for line in lines(spans, seed):
            file.write(line)
    return path.stat().st_size


def lines(spans: int, seed: int = 1) -> Iterator[bytes]:
    """Yield OTLP/JSON requests, each a line of up to 64 spans.

    Args:
        spans: How many spans in all, a multiple of four.
        seed: The same seed gives the same traces.
    """
    maker = _Maker(seed)
    resource = {"attributes": _attributes(_RESOURCE)}
    line: list[Object] = []
    for number in range(spans // SPANS_PER_TRACE):
        line += maker.trace(_START_NS + number * _BETWEEN_NS)
        if len(line) == SPANS_PER_LINE or number == spans // SPANS_PER_TRACE - 1:
            group = {"resource": resource, "scopeSpans": [{"scope": _SCOPE, "spans": line}]}
            yield orjson.dumps({"resourceSpans": [group]}) + b"\n"
            line = []


def count_of_reference(file: Path) -> int:
    """Return how many traces of a file make the call of the `reference`."""
    arguments = orjson.dumps(reference()[1]["tool_calls"][0]["function"]["arguments"])
    call = b'"gen_ai.tool.call.arguments","value":{"stringValue":' + arguments
    with file.open("rb") as lines:
        return sum(line.count(call) for line in lines)


def _order(number: int) -> str:
    return f"W{number:07}"


class _Maker:
    """Makes traces; texts are cut from a long one, which is quick and leaves them different."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pool = " ".join(self._random.choices(_WORDS.split(), k=200_000))

    def trace(self, start_ns: int) -> list[Object]:
        trace_id, root = self._hex(128), self._hex(64)
        question, answer, note = self._text(500), self._text(450), self._text(300)
        system, result = self._text(450), self._text(1150)
        call_id = f"call_{self._hex(48)}"
        arguments = {"order_id": _order(self._random.randrange(ORDERS))}
        request = {"type": "tool_call", "id": call_id, "name": TOOL, "arguments": arguments}
        response = {"type": "tool_call_response", "id": call_id, "response": result}
        prompt = [_message("system", _text_part(system)), _message("user", _text_part(question))]
        calling = _message("assistant", _text_part(note), request)
        history = [*prompt, calling, _message("tool", response)]
        answering = _message("assistant", _text_part(answer))
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": AGENT,
            "gen_ai.agent.id": "asst_5j66UpCp",
            "gen_ai.conversation.id": f"conv_{self._hex(64)}",
            "gen_ai.provider.name": "openai",
            "gen_ai.input.messages": _json(prompt[1:]),
            "gen_ai.output.messages": _json([{**answering, "finish_reason": "stop"}]),
        }
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": TOOL,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": _json(arguments),
            "gen_ai.tool.call.result": result,
        }
        spans = [
            (f"invoke_agent {AGENT}", 1, agent),
            (f"chat {_MODEL}", 3, self._chat(prompt, calling, "tool_call")),
            (f"execute_tool {TOOL}", 1, tool),
            (f"chat {_MODEL}", 3, self._chat(history, answering, "stop")),
        ]
        out: list[Object] = []
        for index, (name, kind, attributes) in enumerate(spans):
            begin = start_ns + index * _STEP_NS
            end = begin + _STEP_NS if index else start_ns + len(spans) * _STEP_NS
            out.append(
                {
                    "traceId": trace_id,
                    "spanId": self._hex(64) if index else root,
                    "parentSpanId": root if index else "",
                    "name": name,
                    "kind": kind,
                    "startTimeUnixNano": str(begin),
                    "endTimeUnixNano": str(end),
                    "attributes": _attributes(attributes),
                    "status": {},
                }
            )
        if self._random.random() < _FAILS:
            out[2]["status"] = {"code": 2, "message": "tool failed"}
        return out

    def _chat(self, sent: list[Object], received: Object, reason: str) -> Object:
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": _MODEL,
            "gen_ai.response.model": f"{_MODEL}-2024-07-18",
            "gen_ai.response.id": f"chatcmpl-{self._hex(96)}",
            "gen_ai.request.temperature": 0.2,
            "gen_ai.request.max_tokens": 1024,
            "gen_ai.response.finish_reasons": [reason],
            "gen_ai.usage.input_tokens": self._random.randrange(200, 4000),
            "gen_ai.usage.output_tokens": self._random.randrange(10, 800),
            "server.address": "api.openai.com",
            "server.port": 443,
            "gen_ai.input.messages": _json(sent),
            "gen_ai.output.messages": _json([{**received, "finish_reason": reason}]),
        }

    def _hex(self, bits: int) -> str:
        return f"{self._random.getrandbits(bits):0{bits // 4}x}"

    def _text(self, length: int) -> str:
        start = self._random.randrange(len(self._pool) - length)
        return self._pool[start : start + length]


def _text_part(text: str) -> Object:
    return {"type": "text", "content": text}


def _message(role: str, *parts: Object) -> Object:
    return {"role": role, "parts": parts}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _attributes(values: Object) -> list[Object]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items()]


def _any_value(value: Any) -> Object:
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    if isinstance(value, int):
        return {"intValue": str(value)}  # OTLP/JSON writes 64-bit integers as text
    return {"stringValue": value} if isinstance(value, str) else {"doubleValue": value}
