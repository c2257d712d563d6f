"""The configuration of `oteval serve`, from its command line, and the logs of its processes."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..base.text import printable, printable_json
from ..ingest import QUOTA

__all__ = [
    "EXIT_FAILED",
    "EXIT_REFUSED",
    "ServerConfig",
    "configure_logging",
]

# The exit statuses of the storage process: it failed, or it refused its configuration or database.
EXIT_FAILED, EXIT_REFUSED = 1, 2


@dataclass(frozen=True)
class ServerConfig:
    """The configuration of a server; only `forward` and `notice` may contain secrets.

    Attributes:
        db: The database.
        config: The path of oteval.yaml; "" to score nothing.
        may_lack_config: Whether that file may be missing; until it exists, nothing is scored.
        http: The ``host:port`` of the HTTP server; port 0 takes any free port.
        grpc: The ``host:port`` of the gRPC server; "" for none.
        forward: The URL to forward traces to; "" for the URL in oteval.yaml.
        quota: How many bytes may wait to be stored.
        limit: The largest request (bytes), decompressed.
        grace: The seconds to store spooled requests in when the server stops.
        log_format: ``json`` or ``text``.
        memory: The memory of the database (MB), doubled when it is not enough.
        monitor_interval: The seconds between two checks of monitors.
        tokens: The path of the tokens file; "" for none.
        notice: The content of the file through which other commands find the server.
    """

    db: str
    config: str = ""
    may_lack_config: bool = False
    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    forward: str = ""
    quota: int = QUOTA
    limit: int = 64 << 20
    grace: float = 10.0
    log_format: str = "text"
    memory: int = 256
    monitor_interval: float = 60.0
    tokens: str = ""
    notice: dict[str, Any] = field(default_factory=dict)

    @property
    def spool(self) -> Path:
        """The folder of requests that are not stored yet."""
        return Path(f"{self.db}.spool")

    @property
    def config_copy(self) -> Path:
        """A copy of the last valid oteval.yaml, for a storage process that is started again."""
        return self.spool / "oteval.yaml"

    @property
    def queues(self) -> Path:
        """The folder of requests that are not forwarded yet."""
        return Path(f"{self.db}.forward")

    def to_json(self) -> str:
        """The configuration as a line of JSON for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServerConfig:
        """The configuration that `to_json` wrote."""
        return cls(**json.loads(text))


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(" ".join(record.getMessage().splitlines()))
        text = f"{_time(record.created)} {record.levelname.lower()} {message}"
        if not record.exc_info:
            return text
        return f"{text}\n{printable(self.formatException(record.exc_info))}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def configure_logging(log_format: str, process: str) -> None:
    """Write all log records to standard error.

    Args:
        log_format: ``json`` or ``text``.
        process: The name of the process: ``listener``, ``storage`` or ``pages``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if log_format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
