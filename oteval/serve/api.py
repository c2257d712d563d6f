"""The answers of the storage process to questions about /api and /metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..base.errors import NotFound, OtevalError
from ..base.jsontext import dumps
from ..base.text import printable_json
from ..model import Selection, parse_condition
from ..store import Store

__all__ = ["Api"]

_MAX_LIMIT = 1000


class Api:
    """Answers questions. Each runs in another thread, and gets its own connection.

    Args:
        store: The store.
        state: Returns the state of the process.
        metrics: Returns the metrics in Prometheus' text format.
    """

    def __init__(
        self, store: Store, state: Callable[[], dict[str, Any]], metrics: Callable[[], bytes]
    ) -> None:
        self._store = store
        self._state = state
        self._metrics = metrics
        self._lock = threading.Lock()

    def answer(self, question: Mapping[str, Any]) -> bytes:
        """The answer to a question: ``{"path": ..., "query": {...}}``.

        The answer to an invalid question is an object with ``error`` and the HTTP ``status``.
        """
        path, query = str(question.get("path", "")), dict(question.get("query") or {})
        try:
            return self._answer(path, query)
        except NotFound as error:
            return _error(404, str(error))
        except (OtevalError, ValueError) as error:
            return _error(400, str(error))

    def _answer(self, path: str, query: dict[str, Any]) -> bytes:
        if path == "metrics":
            return self._metrics()
        if path == "status":
            return orjson.dumps(self._state())
        with self._lock:
            store = self._store.sibling()
        try:
            kind, _, name = path.partition("/")
            if kind == "trajectories" and name:
                trajectory = store.trajectories.get(name)
                scores = store.scores.of([trajectory.id])[trajectory.id]
                run_fields = {
                    **trajectory.as_dict(),
                    "scores": [score.as_dict() for score in scores],
                }
                return printable_json(dumps(run_fields)).encode()
            if path == "trajectories":
                trajectories = store.trajectories.read(_selection(query))
                return _list(dumps(trajectory.as_dict()) for trajectory in trajectories)
            if path == "scores":
                return _list(dumps(s.as_dict()) for s in store.scores.read(_selection(query)))
        finally:
            store.close()
        raise NotFound(f"no /api/{path}; there are status, trajectories, trajectories/ID, scores")


def _list(texts: Any) -> bytes:
    return f"[{','.join(map(printable_json, texts))}]".encode()


def _selection(query: Mapping[str, Any]) -> Selection:
    """The selection for the values of a query string; each value is a list."""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(str(value) for value in query.get(name, ()))

    def number(name: str) -> int | None:
        values = texts(name)
        return int(values[-1]) if values else None

    return Selection(
        since_ns=number("since_ns"),
        until_ns=number("until_ns"),
        services=texts("service"),
        agents=texts("agent"),
        conversations=texts("conversation"),
        models=texts("model"),
        conditions=tuple(parse_condition(text) for text in texts("where")),
        limit=min(number("limit") or 100, _MAX_LIMIT),
    )


def _error(status: int, message: str) -> bytes:
    return orjson.dumps({"error": message, "status": status})
