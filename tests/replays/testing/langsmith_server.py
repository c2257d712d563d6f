"""A stand-in for LangSmith's API on loopback: it takes everything, and remembers the feedback."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler
from typing import Any

from ...loopback import LoopbackServer

__all__ = ["LangSmithServer", "langsmith_server"]

_NOW = "2026-01-01T00:00:00+00:00"


class LangSmithServer(LoopbackServer):
    """Answers what the client asks for while tests run.

    Attributes:
        feedback: The bodies of feedback that arrived.
        requests: The methods and paths that were asked for.
    """

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.feedback: list[dict[str, Any]] = []
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: LangSmithServer

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        status, value = self._value(path, body)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815  the names the base class looks for

    def _value(self, path: str, body: bytes) -> tuple[int, Any]:
        if path.endswith("/info"):
            return 200, {"version": "0.13.0", "batch_ingest_config": None}
        if "/feedback" in path and self.command == "POST":
            posted = json.loads(body)
            self.server.feedback += posted if isinstance(posted, list) else [posted]
            return 200, {}
        if "/examples" in path and self.command == "GET":
            return 404, {"detail": "not found"}
        if "/runs" in path:
            self.server.feedback += self._sent_along(body)
            return 202, {}
        return self._made(body)

    def _sent_along(self, body: bytes) -> list[dict[str, Any]]:
        """Return the feedback among the parts of a request for runs."""
        kind = self.headers.get("Content-Type") or ""
        if not kind.startswith("multipart/"):
            return []
        message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
        return [
            json.loads(part.get_payload(decode=True))
            for part in message.get_payload()
            if str(part.get_param("name", header="content-disposition")).startswith("feedback.")
        ]

    def _made(self, body: bytes) -> tuple[int, Any]:
        if self.command == "GET":
            return 200, []
        posted = json.loads(body) if body[:1] == b"{" else {}
        record = {"id": str(uuid.uuid4()), "created_at": _NOW, "modified_at": _NOW, "name": "n"}
        more = {"start_time": _NOW, "tenant_id": str(uuid.uuid4()), "reference_dataset_id": None}
        return 200, {**record, **more, "dataset_id": str(uuid.uuid4()), **posted}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def langsmith_server() -> Iterator[LangSmithServer]:
    """Serve inside the block."""
    with LangSmithServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
