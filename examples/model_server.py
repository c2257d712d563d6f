"""A scripted model server for the examples: no key, no network beyond this machine.

It speaks OpenAI's chat completions and responses, as JSON or as a stream. The model behind it is a
short script: it tracks every order that the user mentions, refunds those that are lost, and then
summarises the results. Every exchange is appended to a log, from which tests know the messages that
the agent and the model truly exchanged.

`python model_server.py` prints the address to put into OPENAI_BASE_URL.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_ORDER = re.compile(r"\b[A-Z]\d{3}\b")


def decide(messages: list[Json]) -> Json:
    """Return the model's answer to a conversation, as an assistant message.

    Args:
        messages: The conversation in the form of chat completions.
    """
    last_user = max(at for at, message in enumerate(messages) if message["role"] == "user")
    question = messages[last_user]["content"]
    results = [m["content"] for m in messages[last_user:] if m["role"] == "tool"]
    calls = [c for m in messages[last_user:] for c in m.get("tool_calls") or ()]
    if not calls:
        orders = sorted(set(_ORDER.findall(question.split("Question:")[-1])))
        if orders:
            return _calls(len(messages), [("track_parcel", {"order_id": one}) for one in orders])
    lost = [text[:4] for text in results if "lost" in text]
    if lost and not any("refunded" in text for text in results):
        reason = "the carrier lost it"
        return _calls(len(messages), [("refund", {"order_id": o, "reason": reason}) for o in lost])
    text = "Here is the status. " + " ".join(f"{one}." for one in results)
    return {"role": "assistant", "content": text.strip()}


def _calls(number: int, calls: list[tuple[str, Json]]) -> Json:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(calls)
        ],
    }


def messages_of_responses(body: Json) -> list[Json]:
    """Return the conversation of a request to the Responses API as chat messages."""
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages: list[Json] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append({"role": item["role"], "content": _text(item["content"])})
        elif kind == "function_call":
            call = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": call}
            if messages and messages[-1].get("tool_calls"):
                messages[-1]["tool_calls"].append(call)
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "function_call_output":
            text = _text(item["output"])
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text})
    return messages


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def chat_completion(body: Json, answer: Json) -> Json:
    """Return the body of a chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": answer,
                "finish_reason": "tool_calls" if answer.get("tool_calls") else "stop",
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def chat_events(body: Json, answer: Json) -> Iterator[Json]:
    """Yield the events of a streamed chat completion."""
    whole = chat_completion(body, answer)
    base = {key: whole[key] for key in ("id", "created", "model")}
    base["object"] = "chat.completion.chunk"

    def event(delta: Json, finish: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield event({"role": "assistant", "content": "" if answer["content"] else None})
    text = answer["content"] or ""
    for at in range(0, len(text), 9):
        yield event({"content": text[at : at + 9]})
    for at, call in enumerate(answer.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        head = {**call, "index": at, "function": {**call["function"], "arguments": ""}}
        yield event({"tool_calls": [head]})
        for begin in range(0, len(arguments), 7):
            piece = {"arguments": arguments[begin : begin + 7]}
            yield event({"tool_calls": [{"index": at, "function": piece}]})
    yield event({}, whole["choices"][0]["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**base, "choices": [], "usage": whole["usage"]}


def response(body: Json, answer: Json, status: str = "completed") -> Json:
    """Return the body of a response of the Responses API."""
    output: list[Json] = []
    for at, call in enumerate(answer.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        item = {"type": "function_call", "id": f"fc_{at}", "call_id": call["id"]}
        output.append({**item, **function, "status": "completed"})
    if answer["content"] is not None:
        part = {"type": "output_text", "text": answer["content"], "annotations": []}
        item = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed"}
        output.append({**item, "content": [part]})
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    return {
        "id": f"resp_{zlib.crc32(json.dumps(body).encode()):08x}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "model": body["model"],
        "output": output if status == "completed" else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "usage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, **details}
        if status == "completed"
        else None,
    }


def response_events(body: Json, answer: Json) -> Iterator[Json]:
    """Yield the events of a streamed response of the Responses API."""
    whole = response(body, answer)
    yield {"type": "response.created", "response": response(body, answer, "in_progress")}
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        is_call = item["type"] == "function_call"
        empty = {"arguments": ""} if is_call else {"content": []}
        added = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": at, "item": added}
        if is_call:
            kind, text = "response.function_call_arguments", item["arguments"]
            done = {"arguments": text, "name": item["name"]}
        else:
            kind, text = "response.output_text", item["content"][0]["text"]
            place["content_index"] = 0
            done = {"text": text, "logprobs": []}
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **place, "part": part}
        more = {} if is_call else {"logprobs": []}
        for begin in range(0, len(text), 9):
            yield {"type": f"{kind}.delta", **place, "delta": text[begin : begin + 9], **more}
        yield {"type": f"{kind}.done", **place, **done}
        if not is_call:
            yield {"type": "response.content_part.done", **place, "part": item["content"][0]}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": "response.completed", "response": whole}


class ModelServer:
    """The scripted model server.

    Attributes:
        exchanges: The exchanges so far: API, messages, answer and tools of each request.
    """

    def __init__(self, port: int = 0, log: Path | None = None) -> None:
        self.exchanges: list[Json] = []
        self._log, self._lock = log, threading.Lock()
        owner = self

        class Handler(_Handler):
            server_of_examples = owner

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def serve(self) -> None:
        """Answer requests until `stop` is called."""
        self._http.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        """Stop answering, and close the socket."""
        self._http.shutdown()
        self._http.server_close()

    def add(self, exchange: Json) -> None:
        """Record an exchange."""
        with self._lock:
            self.exchanges.append(exchange)
            if self._log is not None:
                with self._log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(exchange) + "\n")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_examples: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_chat = self.path.endswith("/chat/completions")
        messages = body["messages"] if is_chat else messages_of_responses(body)
        messages = [{**m, "content": _text(m.get("content") or "")} for m in messages]
        answer = decide(messages)
        api = "chat_completions" if is_chat else "responses"
        tools = [tool.get("function", tool)["name"] for tool in body.get("tools", ())]
        self.server_of_examples.add(
            {"api": api, "messages": messages, "answer": answer, "tools": tools}
        )
        if body.get("stream"):
            self._stream(body, answer, is_chat=is_chat)
        else:
            write = chat_completion if is_chat else response
            self._send(json.dumps(write(body, answer)).encode())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body: Json, answer: Json, *, is_chat: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        events = chat_events(body, answer) if is_chat else response_events(body, answer)
        for number, event in enumerate(events):
            if is_chat:
                self._chunk(f"data: {json.dumps(event)}\n\n")
            else:
                event = {**event, "sequence_number": number}
                self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
        if is_chat:
            self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing."""


@contextmanager
def running(log: Path | None = None) -> Iterator[ModelServer]:
    """Run a server in a thread of this process."""
    server = ModelServer(log=log)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def main() -> None:
    """Run the server until it is interrupted."""
    parser = argparse.ArgumentParser(description="A scripted model server for the examples.")
    parser.add_argument("--port", type=int, default=0, help="The port; 0 for any free one.")
    parser.add_argument("--log", type=Path, help="A file to append the exchanges to.")
    options = parser.parse_args()
    server = ModelServer(options.port, options.log)
    print(server.url, flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
