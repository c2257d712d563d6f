"""A JSON API on loopback that answers as a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...loopback import serving

Query = dict[str, list[str]]
Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass
class JsonServer:
    """A scripted server.

    Attributes:
        url: Its base URL.
        answers: Returns status, body and perhaps headers for a method, path, query and body. A body
            of bytes is sent as it is, any other as JSON.
        requests: The method, path, query and headers of each request.
    """

    answers: Callable[[str, str, Query, Any], Answer]
    url: str = ""
    requests: list[tuple[str, str, Query, dict[str, str]]] = field(default_factory=list)


@contextmanager
def answering(answers: Callable[[str, str, Query, Any], Answer]) -> Iterator[JsonServer]:
    """Serve on a free port while the block runs."""
    state = JsonServer(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # The body follows the headers at once.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_PATCH(self) -> None:
            self._answer("PATCH")

        def do_DELETE(self) -> None:
            self._answer("DELETE")

        def _answer(self, method: str) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            state.requests.append((method, parts.path, query, dict(self.headers)))
            found = state.answers(method, parts.path, query, json.loads(sent) if sent else None)
            status, body, *rest = found
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in (rest[0] if rest else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as server:
        state.url = server.url
        yield state
