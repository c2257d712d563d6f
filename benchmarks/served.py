"""A running `oteval serve`, for measurements and tests: started, watched, stopped or killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .checks import check

__all__ = ["Served", "Sink", "check_messages", "memory", "until"]

ROOT = Path(__file__).parents[1]
_ERROR = re.compile(r"Traceback|\b(?:\w*error|\w*exception|failed|lost|refused)\b", re.I)


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return a condition's value once it is true; raise TimeoutError if it stays false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := holds():
            return value
        time.sleep(0.05)
    raise TimeoutError(f"not true within {seconds} s")


class Served:
    """A server in separate processes.

    Attributes:
        db: Its database.
        http: The port of its HTTP server.
        grpc: The port of its gRPC server.
        log: Its standard error so far.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.db = folder / "traces.duckdb"
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self._arguments = list(arguments)
        self.http = self.grpc = 0
        self.log: list[str] = []
        self.start()

    def start(self) -> None:
        """Start; on the ports it had before, if it had any."""
        command = [sys.executable, "-m", "oteval", "serve", "--db", str(self.db)]
        ports = ["--http", f"127.0.0.1:{self.http}", "--grpc", f"127.0.0.1:{self.grpc}"]
        self.process = subprocess.Popen(
            [*command, *ports, *self._arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env=self._environment,
        )
        heard = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(heard,), daemon=True)
        self._reader.start()
        if not heard.wait(40) or self.process.poll() is not None:
            self.process.kill()
            raise RuntimeError("the server did not start: " + "".join(self.log))

    def _read(self, heard: threading.Event) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if ports := re.search(r"listening on https?://[^:]+:(\d+), [^:]+:(\d+)", line):
                    self.http, self.grpc = int(ports[1]), int(ports[2])
                    heard.set()
        heard.set()

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, timeout: float = 120
    ) -> tuple[int, bytes]:
        """Return the status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=timeout)
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(
        self, path: str, body: bytes, content: str = "application/x-protobuf", **headers: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return the status, body and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=120)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("POST", path, body, {"content-type": content, **fields})
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        """Return the answer of /readyz."""
        return dict(json.loads(self.get("/readyz")[1]))

    def pids(self) -> list[list[int]]:
        """Return the processes that listen, store and decode."""
        return [[self.pid("listener")], [self.pid("storage")], self.state()["decoder_pids"]]

    def pid(self, part: str) -> int:
        """Return the process of a part: listener, storage or decoder."""
        if part == "listener":
            return self.process.pid
        if part == "storage":
            return int(until(lambda: self.state().get("pid")))
        return int(until(lambda: self.state().get("decoder_pids"))[0])

    def kill(self, part: str) -> None:
        """SIGKILL a part; the listener is started again, as a service manager would."""
        try:
            os.kill(self.pid(part), signal.SIGKILL)
        except ProcessLookupError:
            return
        if part == "listener":
            self.process.wait()
            self._reader.join()
            self.start()

    def drained(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until all that is spooled is stored, and return the state."""

        def is_drained() -> dict[str, Any] | None:
            state = self.state()
            return state if state.get("left_bytes") == 0 and state["is_storing"] else None

        return dict(until(is_drained, seconds))

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the server's database."""
        command = [sys.executable, "-m", "oteval", *arguments, "--db", str(self.db)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=self._environment,
            timeout=60,
            check=False,
        )

    def check_log(self) -> None:
        """Check that the log so far reports no error.

        Raises:
            CheckError: It does.
        """
        check_messages("".join(self.log))

    def stop(self, seconds: float = 60.0) -> int:
        """End it as a service manager does; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(seconds)
        self._reader.join()
        return status


def check_messages(text: str) -> None:
    """Check that the messages of a command report no error.

    Raises:
        CheckError: They do.
    """
    errors = [line for line in text.splitlines() if _ERROR.search(line)]
    check(not errors, "no error is reported", "; ".join(errors))


def memory(pids: Sequence[int]) -> int:
    """Return the resident bytes of some processes."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/statm").read_text().split()
        except OSError:
            continue
        total += int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


class Sink:
    """Where traces are sent on to; knows which spans came, and how judged.

    Attributes:
        url: Its base URL.
        spans: How often each span came.
        scored: The spans that came with a score.
        mode: Its behaviour: ``takes`` all, is ``busy`` (503, to be tried again in a second), leaves
            requests ``hanging``, or is ``away``: nothing listens.
    """

    def __init__(self) -> None:
        self.spans: Counter[tuple[str, str]] = Counter()
        self.scored: set[tuple[str, str]] = set()
        self.mode = "takes"
        self._changed = threading.Event()
        self._serve(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def become(self, mode: str) -> None:
        """Do something else from now on."""
        before, self.mode = self.mode, mode
        self._changed.set()
        if mode == "away":
            self.close()
        elif before == "away":
            self._serve(self._server.server_port)

    def _serve(self, port: int) -> None:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sink._changed.clear()
                body = self.rfile.read(int(self.headers["content-length"]))
                if sink.mode == "hanging":
                    sink._changed.wait(60)
                if sink.mode in ("hanging", "away"):
                    self.close_connection = True
                    return
                if sink.mode == "takes":
                    sink._take(body)
                self.send_response(503 if sink.mode == "busy" else 200)
                if sink.mode == "busy":
                    self.send_header("retry-after", "1")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    key = (span.trace_id.hex(), span.span_id.hex())
                    self.spans[key] += 1
                    if any(item.key.startswith("oteval.score") for item in span.attributes):
                        self.scored.add(key)

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()
