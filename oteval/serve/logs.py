"""Log lines on standard error, for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from ..base.text import printable, printable_json

__all__ = ["configure_logging"]


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "process": record.__dict__.get("part", ""),
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


class _ProcessFilter(logging.Filter):
    """Adds the name of the process to each record."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def filter(self, record: logging.LogRecord) -> bool:
        record.part = self._process
        return True


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def configure_logging(log_format: str, process: str) -> None:
    """Write all log records to standard error.

    Args:
        log_format: ``json`` or ``text``.
        process: The name of the process: ``listener``, ``storage`` or ``pages``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    handler.addFilter(_ProcessFilter(process))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
