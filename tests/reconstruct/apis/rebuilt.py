"""Recorded answers, and HTTP clients whose requests are answered with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from oteval.model import Message, ToolCall, Usage
from oteval.model.recording import RecordedModelCall, RecordedRequest
from oteval.reconstruct.apis import api_of


def recorded(answer: Message | None, **fields: Any) -> RecordedModelCall:
    """Return a recorded model call without an exchange."""
    known = {"usage": Usage(11, 7, model_calls=1), "start_ns": 5, "span_id": "a1", **fields}
    return RecordedModelCall(RecordedRequest(model="m"), answer, **known)


def says(text: str, **fields: Any) -> RecordedModelCall:
    """Return a recorded model call whose answer is a text."""
    return recorded(Message("assistant", text), **fields)


def asks(*calls: ToolCall, content: str | None = None, **fields: Any) -> RecordedModelCall:
    """Return a recorded model call whose answer asks for tools."""
    return recorded(Message("assistant", content, tool_calls=calls), **fields)


@dataclass
class Rebuilt:
    """Answers each request with the next recorded call, as its API writes it.

    Attributes:
        calls: The recorded calls.
        requests: The requests as the API parsed them.
        bodies: The bodies of the answers.
    """

    calls: list[RecordedModelCall]
    requests: list[RecordedRequest] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def respond(self, method: str, url: str, content: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return the status, the headers and the body of the answer to a request."""
        api = api_of(method, url)
        assert api is not None, url
        request = api.parse_request(content, url)
        call = self.calls[min(len(self.requests), len(self.calls) - 1)]
        self.requests.append(request)
        if call.error:
            failed = api.write_error(call)
            return failed.status, dict(failed.headers), failed.body
        if request.is_stream:
            body, kind = b"".join(api.write_stream(call, request)), "text/event-stream"
        else:
            body, kind = api.write_response(call, request), "application/json"
        self.bodies.append(body)
        return 200, {"content-type": kind}, body

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        status, headers, body = self.respond(request.method, str(request.url), request.content)
        return httpx2.Response(status, headers=headers, content=body)

    async def _handle_async(self, request: httpx2.Request) -> httpx2.Response:
        return self._handle(request)

    @property
    def client(self) -> openai.OpenAI:
        """A client of OpenAI's whose requests are answered."""
        http = httpx2.Client(transport=httpx2.MockTransport(self._handle))
        return openai.OpenAI(api_key="none", base_url="http://model/v1", http_client=http)

    @property
    def async_client(self) -> openai.AsyncOpenAI:
        """An asynchronous client of OpenAI's whose requests are answered."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle_async))
        return openai.AsyncOpenAI(api_key="none", base_url="http://model/v1", http_client=http)
