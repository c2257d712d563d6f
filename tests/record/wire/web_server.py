"""A small HTTP server on a real socket, whose replies a test chooses piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from ...loopback import serving


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        chunks: The pieces of the body, sent one by one.
        status: The status.
        headers: The headers.
        is_cut: Whether the connection breaks after the last piece.
    """

    chunks: Iterable[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False


@dataclass
class Arrived:
    """A request that arrived.

    Attributes:
        path: The path and query.
        headers: The headers, with lower-case names.
        body: The body.
    """

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    """The running server.

    Attributes:
        url: Its address.
        arrived: The requests, in order.
    """

    url: str = ""
    arrived: list[Arrived] = field(default_factory=list)


@contextmanager
def answering(answer: Callable[[Arrived], Answer]) -> Iterator[Web]:
    """Serve the answers of a function on a free port while the block runs."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join(self._chunks())
            else:
                body = self.rfile.read(int(headers.get("content-length", "0")))
            request = Arrived(self.path, headers, body)
            web.arrived.append(request)
            reply = answer(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for chunk in reply.chunks:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                if not reply.is_cut:
                    self.wfile.write(b"0\r\n\r\n")
            except OSError:
                reply = Answer(is_cut=True)
            self.close_connection = reply.is_cut

        def do_GET(self) -> None:
            self.do_POST()

        def _chunks(self) -> Iterator[bytes]:
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with serving(Handler) as server:
        web.url = server.url
        yield web
