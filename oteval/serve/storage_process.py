"""The process that owns the database: ``python -m oteval.serve.storage_process``.

It stores the spooled requests, scores traces, checks monitors, and serves the database to other
commands.

Its configuration is the first line of its standard input. It is not in the arguments because other
users can see them, and the URL to forward to may contain a password. Every half second, and after
commits, the process writes its state to standard output as a line of JSON. When standard input
ends, the listening process is gone, and the storage process ends at once. On SIGTERM it first
stores the spooled requests, for a limited time.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from ..base.errors import NotFound, OtevalError, StoreLocked
from ..base.files import private_umask
from ..base.jsontext import dumps
from ..base.text import printable_json
from ..model import Selection, parse_condition
from ..scoring import Config
from ..store import Store, is_short_of_memory
from .destinations import open_destinations
from .evaluator_rules import EvaluatorRules
from .monitor_worker import MonitorWorker
from .scoring_loop import ScoringLoop
from .server_config import EXIT_FAILED, EXIT_REFUSED, ServerConfig, configure_logging
from .store_writer import StoreWriter
from .upkeep import CheckpointWorker, RetentionWorker, shortage

__all__ = [
    "Api",
    "StorageProcess",
    "main",
]

_log = logging.getLogger(__name__)

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


# Seconds between two reports of the state: without a commit, and at least.
_STATE_INTERVAL, _MIN_STATE_INTERVAL = 0.5, 0.05
# After a tick, scoring pauses for a multiple of the tick's duration, so that more traces share its
# fixed cost.
_PAUSE_FACTOR = 4
_MIN_PAUSE, _MAX_PAUSE = 0.1, 0.4  # seconds
# While more bytes than this are spooled, scoring waits for storing, but not longer than this (s).
# At a high rate, fewer bytes are spooled all the time: a stretch that fills up, a stretch that is
# decoded, and a stretch that is stored.
_BACKLOG, _MAX_WAIT = 64 << 20, 5.0
# Seconds that a running delivery may go on after the grace.
_LAST_DELIVERY = 1.0


def _steady_clock() -> Callable[[], int]:
    """The time of day (ns) at the start, advanced by a clock that is never set.

    So ages and deadlines do not change when somebody sets the time of day. If that happens between
    the starts of two processes, their times differ. So stored times use the time of day.
    """
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: offset + time.monotonic_ns()


class StorageProcess:
    """The database and everything that uses it."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._clock = _steady_clock()
        self._stopping = threading.Event()
        self._has_stored = threading.Event()
        self._is_orphaned = False
        self._store = Store(config.db, served=False, checkpoints=False)
        self._store.set_memory_limit(f"{config.memory}MB")
        try:
            self._scoring_store = self._store.sibling()
            self._rules = self._load_rules()
            self._attach = open_destinations(
                self._rules.config,
                config.queues,
                forward_url=config.forward or None,
                clock=self._clock,
            )
        except BaseException:
            self._store.close()
            raise
        self._scoring = ScoringLoop(
            self._scoring_store, self._rules, self._attach, self._clock, wall=time.time_ns
        )
        self._writer = StoreWriter(
            self._store, config.spool, self._notify_scoring, self._attach.forward
        )
        self._api = Api(self._store, self.state, self.metrics)
        self._serving = self._store.serve(self._api.answer, config.notice)
        self._checkpoints = CheckpointWorker(self._store)
        self._retention = RetentionWorker(
            self._store,
            lambda: self._rules.config.retention,
            Path(config.config or config.db).absolute().parent,
            progress=lambda: self._scoring.progress,
            backfill=lambda: self._rules.config.completion.backfill,
        )
        self._monitors = MonitorWorker(
            self._store,
            lambda: self._rules.config,
            self._attach.metrics.registry,
            interval=self._config.monitor_interval,
        )

    def stop(self, *, orphaned: bool = False) -> None:
        """Make `run` return. Safe in any thread and in a signal handler.

        Args:
            orphaned: Whether the listening process is gone. The storage process of the next
                listening process then continues at once.
        """
        self._is_orphaned = orphaned
        self._stopping.set()
        self._has_stored.set()

    def reload(self) -> None:
        """Make the rules be reloaded. Safe in any thread and in a signal handler."""
        self._scoring.reload()

    def run(self) -> int:
        """Work until `stop` is called, or storing fails; return the exit status."""
        threading.Thread(target=self._report_state, name="state", daemon=True).start()
        _log.info("storing in %s", self._config.db)
        try:
            scored = 0.0
            while not self._stopping.is_set() and self._writer.error is None:
                self._serving.file.require()
                if self._writer.left() > _BACKLOG and time.monotonic() - scored < _MAX_WAIT:
                    self._stopping.wait(_MIN_PAUSE)
                    continue
                begun = time.monotonic()
                has_more = self._score()
                scored = time.monotonic()
                if not has_more:
                    pause = _PAUSE_FACTOR * (scored - begun)
                    self._stopping.wait(min(max(_MIN_PAUSE, pause), _MAX_PAUSE))
            return self._shut_down()
        finally:
            self._serving.close()

    def state(self) -> dict[str, Any]:
        """The state for the listening process and for /api/status."""
        writer = self._writer
        problem = writer.error or writer.problem or writer.missing() or shortage(self._config.db)
        return {
            "stored": asdict(writer.statistics),
            "position": list(writer.position),
            "above": writer.stored.segment,
            "losses": writer.losses,
            "left_bytes": writer.left(),
            "error": str(problem),
            "socket": self._serving.path,
            "pid": os.getpid(),
            "decoder_pids": writer.decoder_pids,
            "scoring": self._scoring.state(),
            "monitors": self._monitors.state(),
        }

    def metrics(self) -> bytes:
        """The metrics of scoring in Prometheus' text format."""
        return self._attach.metrics.text()

    def _score(self) -> bool:
        """Tick the scoring loop if scores can be written; return whether there is more to do."""
        return not shortage(self._config.db) and self._scoring.tick()

    def _shut_down(self) -> int:
        until = time.monotonic() + (0 if self._is_orphaned else self._config.grace)
        self._monitors.stop()
        while self._writer.left() and self._writer.error is None and time.monotonic() < until:
            self._score()
            time.sleep(0.02)
        self._writer.close()
        error = self._writer.error
        if error is None and not shortage(self._config.db):
            self._scoring.drain(max(0.0, until - time.monotonic()))
        if error is not None:
            _report_failure("cannot store", error)
        try:
            self._monitors.close(max(_LAST_DELIVERY, until - time.monotonic()))
            self._retention.close()
            self._checkpoints.close()
            self._scoring.close()
            self._attach.close(max(0.1, until - time.monotonic()))
            self._scoring_store.close()
            self._store.close()
        except Exception:
            if error is None:
                raise
        left = self._writer.left()
        if left:
            _log.warning("%d bytes in %s are stored at the next start", left, self._config.spool)
        return EXIT_FAILED if error else 0

    def _notify_scoring(self, trace_ids: Sequence[str]) -> None:
        self._scoring.notify(trace_ids, self._clock())
        self._has_stored.set()

    def _load_rules(self) -> EvaluatorRules:
        if self._config.config:
            return EvaluatorRules(
                self._config.config,
                self._scoring_store,
                copy=self._config.config_copy,
                is_optional=self._config.may_lack_config,
            )
        return EvaluatorRules("", self._scoring_store, Config.model_construct(evaluators=[]))

    def _report_state(self) -> None:
        while True:
            with suppress(Exception):
                self._serving.repair()
            with suppress(Exception):
                _report(state=self.state())
            self._has_stored.wait(_STATE_INTERVAL)
            self._has_stored.clear()
            time.sleep(_STATE_INTERVAL if self._stopping.is_set() else _MIN_STATE_INTERVAL)


def _report(**message: Any) -> None:
    """Write a message to the listening process, in one call: several threads write."""
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


def _report_failure(problem: str, error: BaseException) -> int:
    """Report why the process ends, to the log and the listening process; return the exit status."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    _log.error("%s: %s", problem, first)
    with suppress(OSError):
        _report(failed=first, is_short=is_short_of_memory(error))
    return EXIT_FAILED


def _watch_parent(process: StorageProcess) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    process.stop(orphaned=True)


def main() -> int:
    """Run the storage process until it is stopped; return the exit status."""
    config = ServerConfig.from_json(sys.stdin.readline())
    configure_logging(config.log_format, "storage")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    # Each call of DuckDB releases the interpreter's lock; long waits for it slow commits down.
    sys.setswitchinterval(0.001)
    try:
        process = StorageProcess(config)
    except StoreLocked as error:
        _report(failed=str(error))
        return EXIT_FAILED
    except OtevalError as error:
        _report(refused=str(error), is_short=is_short_of_memory(error))
        return EXIT_REFUSED
    except Exception as error:
        return _report_failure("cannot start", error)
    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    signal.signal(signal.SIGHUP, lambda *_: process.reload())
    threading.Thread(target=_watch_parent, args=(process,), daemon=True).start()
    try:
        return process.run()
    except OtevalError as error:
        return _report_failure("cannot continue", error)
    except Exception as error:
        _log.exception("cannot continue")
        return _report_failure("cannot continue", error)


if __name__ == "__main__":
    with private_umask():
        status = main()
    sys.stderr.flush()
    # Do not wait for threads that wait for a judge or a client.
    os._exit(status)
