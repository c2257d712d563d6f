"""Captures the traces of an agent, with the messages that it truly exchanged, in one command.

    python -m benchmarks.capture agent.py --name pydantic_ai_native [--python ENV/bin/python]

The agent is a Python file that is run with the questions as its arguments. It asks a server that
speaks OpenAI's chat completions (``OPENAI_BASE_URL``), runs the tools that the server calls, and
exports OTLP over HTTP (``OTEL_EXPORTER_OTLP_ENDPOINT``). Its tools are ``get_weather(city)`` and
``lookup_order(order_id)``, which raises. ``--script FILE`` names other turns, in the form of
``fidelity/script.json``: a question, and the model's replies; ``raises`` is the text of a tool that
fails.

The server is scripted, so its log and the tools' results are the truth. The capture (``NAME.json``
and ``NAME.logs.json``, OTLP/JSON) and its entry in ``truth.json`` go to the folder of ``--data``.
Only a person can say which facts the spans lack (``--lacks``), and whether they flag the failed
call (``--error-told-by``).
"""

import argparse
import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.model_server import Reply, Server, serving
from tests.otlp_endpoint import Downstream, listening

from .fidelity.__main__ import DATA

Message = dict[str, Any]

SCRIPT = Path(__file__).parent / "fidelity" / "script.json"


class ScriptedModel:
    """Answers each request with the reply that its messages ask for, and keeps what was exchanged.

    Attributes:
        turns: The messages of each turn.
        system: The text of the first system message.
        sends_history: Whether a request held the question of an earlier turn.
    """

    def __init__(self, script: Sequence[Mapping[str, Any]]) -> None:
        self.script = script
        self.turns: list[list[Message]] = [[] for _ in script]
        self.system = ""
        self.sends_history = False
        self._calls: dict[str, Mapping[str, Any]] = {}

    def __call__(self, body: Mapping[str, Any], _number: int) -> Reply:
        """Return the reply to a request for a chat completion."""
        messages = body["messages"]
        users = [(at, _text(each)) for at, each in enumerate(messages) if each["role"] == "user"]
        turns = [(turn["question"], number) for number, turn in enumerate(self.script)]
        questions = [(at, number) for at, text in users for asks, number in turns if asks in text]
        if not questions:
            return Reply({"error": {"message": "no message asks a question of the script"}}, 400)
        start, number = questions[-1]
        self.sends_history |= any(earlier != number for _, earlier in questions)
        first = messages[0]
        self.system = self.system or (_text(first) if first["role"] != "user" else "")
        exchanged = messages[start + 1 :]
        step = sum(message["role"] == "assistant" for message in exchanged)
        replies = self.script[number]["replies"]
        if step >= len(replies):
            return Reply({"error": {"message": f"the script has {len(replies)} replies"}}, 400)
        turn = self.turns[number]
        turn[:] = turn or [{"role": "user", "content": self.script[number]["question"]}]
        answered = {message.get("id") for message in turn if message["role"] == "tool"}
        results = [each for each in exchanged if each["role"] == "tool"]
        turn += [self._result(m) for m in results if m["tool_call_id"] not in answered]
        message = self._reply(replies[step])
        turn.append(message)
        return _completion(message, is_stream=bool(body.get("stream")))

    def _reply(self, reply: Mapping[str, Any]) -> Message:
        calls = []
        for call in reply.get("calls", ()):
            call_id = f"call_{len(self._calls):04}x7"
            self._calls[call_id] = call
            calls.append({"id": call_id, "name": call["name"], "args": call["args"]})
        message: Message = {"role": "assistant", "content": reply.get("content")}
        return {**message, "tool_calls": calls} if calls else message

    def _result(self, message: Mapping[str, Any]) -> Message:
        call = self._calls[message["tool_call_id"]]
        result = {"role": "tool", "id": message["tool_call_id"], "name": call["name"]}
        result["content"] = _text(message)
        if "raises" in call:
            return {**result, "is_error": True, "raised": call["raises"]}
        return {**result, "raw": result["content"]}


def capture(
    agent: Path, python: str, script: Sequence[Mapping[str, Any]]
) -> tuple[ScriptedModel, dict[str, Any]]:
    """Run an agent against a scripted model; return the model, and OTLP/JSON by suffix of its file.

    Raises:
        SystemExit: The agent failed, left the script unfinished, or exported nothing.
    """
    model = ScriptedModel(script)
    with serving(model) as server, listening() as endpoint:
        done = subprocess.run(
            [python, str(agent), *(turn["question"] for turn in script)],
            env={**os.environ, **_environment(server, endpoint)},
            capture_output=True,
            text=True,
            check=False,
        )
        documents = {
            "": _document(endpoint.bodies(), ExportTraceServiceRequest, "resourceSpans"),
            ".logs": _document(
                endpoint.bodies("/v1/logs"), ExportLogsServiceRequest, "resourceLogs"
            ),
        }
    if done.returncode:
        raise SystemExit(f"{agent}: exit status {done.returncode}: {done.stderr.strip()[-1500:]}")
    for number, (turn, planned) in enumerate(zip(model.turns, script, strict=True), 1):
        replies = sum(message["role"] == "assistant" for message in turn)
        if replies != len(planned["replies"]):
            raise SystemExit(
                f"{agent}: turn {number} took {replies} of {len(planned['replies'])} replies: "
                "ask each question that is an argument, and run the tools until the answer"
            )
    if not documents[""]["resourceSpans"]:
        raise SystemExit(f"{agent}: no spans arrived: export to $OTEL_EXPORTER_OTLP_ENDPOINT")
    return model, documents


def _environment(server: Server, endpoint: Downstream) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "scripted",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
    }


def _completion(message: Message, *, is_stream: bool) -> Reply:
    calls = [
        {
            "index": at,
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for at, call in enumerate(message.get("tool_calls", ()))
    ]
    sent = {"role": "assistant", "content": message["content"]}
    sent |= {"tool_calls": calls} if calls else {}
    kind = "chat.completion.chunk" if is_stream else "chat.completion"
    head = {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "scripted"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    choice: Message = {"index": 0, "finish_reason": "tool_calls" if calls else "stop"}
    choice["delta" if is_stream else "message"] = sent
    body = {**head, "choices": [choice], "usage": usage}
    return Reply(chunks=(body,)) if is_stream else Reply(body)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(part.get("text") or "") for part in parts)


def _document(bodies: Sequence[bytes], kind: Any, key: str) -> dict[str, Any]:
    """Return exported requests as one OTLP/JSON document, whose ids are hexadecimal."""
    documents = [
        json.loads(body)
        if body.startswith(b"{")
        else _with_hex_ids(MessageToDict(kind.FromString(body), use_integers_for_enums=True))
        for body in bodies
    ]
    return {key: [item for document in documents for item in document.get(key, [])]}


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(item).hex()
        if key in ("traceId", "spanId", "parentSpanId") and isinstance(item, str)
        else _with_hex_ids(item)
        for key, item in value.items()
    }


def _version(package: str, python: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"--package {package}: {python} does not have it")
    return done.stdout.strip()


def main() -> None:
    """Capture an agent."""
    parser = argparse.ArgumentParser(prog="benchmarks.capture", description=__doc__)
    parser.add_argument("agent", type=Path, help="a Python file")
    parser.add_argument("--name", required=True, help="the name of the capture, as crewai_native")
    parser.add_argument("--python", default=sys.executable, help="the agent's interpreter")
    parser.add_argument("--script", type=Path, default=SCRIPT, help="turns as JSON")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of captures")
    parser.add_argument("--package", action="append", default=[], help="notes its version")
    parser.add_argument("--lacks", action="append", default=[], help="a fact not in the spans")
    parser.add_argument("--error-told-by", choices=("flag", "text"), default="flag")
    options = parser.parse_args()
    script = json.loads(options.script.read_text("utf-8"))
    versions = {package: _version(package, options.python) for package in options.package}
    model, documents = capture(options.agent, options.python, script)
    entry = {
        "conversation_ids": [],
        "error_told_by": options.error_told_by,
        "framework": options.name,
        "history_sent": model.sends_history,
        "instrumentation": "",
        "lacks": options.lacks,
        "linked_by": "messages" if model.sends_history else None,
        "notes": "",
        "system": model.system,
        "turns": model.turns,
        "versions": versions,
    }
    options.data.mkdir(parents=True, exist_ok=True)
    for suffix, document in documents.items():
        if any(document.values()):
            path = options.data / f"{options.name}{suffix}.json"
            path.write_text(json.dumps(document, ensure_ascii=False) + "\n", "utf-8")
            print(path)
    path = options.data / "truth.json"
    truth = json.loads(path.read_text("utf-8")) if path.exists() else {}
    truth[options.name] = entry
    path.write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
