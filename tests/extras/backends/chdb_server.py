"""ClickHouse's HTTP interface, with the engine of chdb: ``python chdb_server.py PORT SETUP.sql``.

The statements of the file, each on one line, are executed first; afterwards nothing is written any
more, because the session is read-only as one of a GET request is.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chdb import session  # type: ignore[import-not-found, unused-ignore]

SESSION = session.Session()
KEY = "very-secret"
UNAUTHORIZED, FAILED = 401, 404


class Handler(BaseHTTPRequestHandler):
    """Answers queries of users with the right key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Execute the query of the URL; without one, say that the server is ready."""
        given = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "query" not in given:
            self._send(200, b"Ok.\n")
        elif self.headers.get("X-ClickHouse-Key") != KEY:
            self._send(UNAUTHORIZED, b"Code: 516. DB::Exception: Authentication failed")
        else:
            parameters = {
                name.removeprefix("param_"): values[0]
                for name, values in given.items()
                if name.startswith("param_")
            }
            try:
                found = SESSION.query(given["query"][0], "JSON", params=parameters).bytes()
            except Exception as error:
                self._send(FAILED, str(error).encode())
            else:
                self._send(200, found)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


for line in Path(sys.argv[2]).read_text().splitlines():
    SESSION.query(line)
SESSION.query("SET readonly = 1")
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
