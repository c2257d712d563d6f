"""The process that has the database: ``python -m oteval.live.back``.

Its settings are the first line of standard input: other users see arguments, and a URL among them
may hold a password. It stores what is spooled, has it scored, and answers those who look at it. Its
state goes to standard output, a line of JSON each half second; when standard input ends, its parent
is gone, and it ends at once. On SIGTERM what is spooled is stored before, for a time of grace.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..attach import Attach
from ..config import Config
from ..errors import OtevalError, StoreLocked
from ..store import Store, is_short_of_memory
from .api import Api
from .checkpoints import Checkpoints
from .clock import SteadyClock
from .evaluator_rules import EvaluatorRules
from .keeping import Keeper
from .logs import set_up
from .publisher import open_attach
from .room import shortage
from .scoring_loop import ScoringLoop
from .settings import Settings
from .writer import Writer

__all__ = ["Back", "main"]

_log = logging.getLogger(__name__)
_TELL = 0.5
_PAUSE, _LONGEST_PAUSE = 0.1, 0.4
# Times as long as a turn took: what turns cost by themselves is shared by more traces then.
_REST = 4
_BACKLOG = 16 << 20  # bytes of the spool
_PATIENCE = 5.0  # seconds that scoring waits for storing at the most
# Exit statuses that its parent tells apart.
FAILED, REFUSED = 1, 2


class Back:
    """All that runs in the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SteadyClock()
        self._stop = threading.Event()
        self._is_orphaned = False
        self._store = Store(settings.db, served=False, checkpoints=False)
        self._store.use_memory(f"{settings.memory}MB")
        try:
            self._own = self._store.sibling()
            self._rules = self._load_rules()
            self._attach = open_attach(
                self._rules.config,
                settings.queues,
                forward_url=settings.forward or None,
                clock=self._clock,
            )
        except BaseException:
            self._store.close()
            raise
        self._scoring = ScoringLoop(
            self._own, self._rules, self._attach, self._clock, wall=time.time_ns
        )
        self._writer = Writer(self._store, settings.spool, self._stored, self._attach.forward)
        self._api = Api(self._store, self.state, self.metrics)
        self._serving = self._store.serve(self._api.answer, settings.notice)
        beside = Path(settings.config or settings.db).absolute().parent
        self._checkpoints = Checkpoints(self._store)
        self._keeper = Keeper(
            *(self._store, lambda: self._rules.config.retention, beside),
            settled=lambda: self._scoring.settled,
            backfill=lambda: self._rules.config.completion.backfill,
        )

    @property
    def attach(self) -> Attach:
        """Where scores go beside the store."""
        return self._attach

    def stop(self, *, orphaned: bool = False) -> None:
        """Have `run` end; any thread, and a signal handler, may.

        Args:
            orphaned: Whether the parent is gone: then the next one's process goes on at once.
        """
        self._is_orphaned = orphaned
        self._stop.set()

    def reload(self) -> None:
        """Have the rules read again; any thread, and a signal handler, may."""
        self._scoring.reload()

    def run(self) -> int:
        """Work until told to stop; return the exit status."""
        threading.Thread(target=self._tell, name="tell", daemon=True).start()
        _log.info("storing in %s", self._settings.db)
        try:
            scored = 0.0
            while not self._stop.is_set() and self._writer.error is None:
                if self._writer.left() > _BACKLOG and time.monotonic() - scored < _PATIENCE:
                    # A burst is stored first; scoring waits, but never for long.
                    self._stop.wait(_PAUSE)
                    continue
                begun = time.monotonic()
                has_more = self._tick()
                scored = time.monotonic()
                if not has_more:
                    rest = _REST * (scored - begun)
                    self._stop.wait(min(max(_PAUSE, rest), _LONGEST_PAUSE))
            return self._end()
        finally:
            self._serving.close()

    def _tick(self) -> bool:
        """Score, where what comes of it can be written down; return whether there is more."""
        return not shortage(self._settings.db) and self._scoring.tick()

    def _end(self) -> int:
        until = time.monotonic() + (0 if self._is_orphaned else self._settings.grace)
        while self._writer.left() and self._writer.error is None and time.monotonic() < until:
            self._tick()
            time.sleep(0.02)
        self._writer.close()
        error = self._writer.error
        if error is None and not shortage(self._settings.db):
            self._scoring.drain(max(0.0, until - time.monotonic()))
        if error is not None:
            _fail("cannot store", error)
        try:
            self._keeper.close()
            self._checkpoints.close()
            self._scoring.close()
            self._attach.close(max(0.1, until - time.monotonic()))
            self._own.close()
            self._store.close()
        except Exception:
            if error is None:
                raise
        left = self._writer.left()
        if left:
            _log.warning("%d bytes wait in %s for the next start", left, self._settings.spool)
        return FAILED if error else 0

    def state(self) -> dict[str, Any]:
        """Return how it stands."""
        writer = self._writer
        return {
            "stored": asdict(writer.figures),
            "position": list(writer.position),
            "above": writer.stored.segment,
            "losses": writer.losses,
            "left_bytes": writer.left(),
            "error": self._error(),
            "socket": self._serving.path,
            "pid": os.getpid(),
            "decoder_pids": writer.decoder_pids,
            "scoring": self._scoring.state(),
        }

    def _error(self) -> str:
        writer = self._writer
        missing = writer.missing()
        return str(writer.error or writer.problem or missing or shortage(self._settings.db))

    def metrics(self) -> bytes:
        """Return the scoring side's metrics as Prometheus has them."""
        return self._attach.metrics.text()

    def _stored(self, trace_ids: Sequence[str]) -> None:
        self._scoring.notify(trace_ids, self._clock())

    def _load_rules(self) -> EvaluatorRules:
        if self._settings.config:
            return EvaluatorRules(
                self._settings.config,
                self._own,
                copy=self._settings.config_copy,
                is_optional=self._settings.may_lack_config,
            )
        return EvaluatorRules("", self._own, Config.model_construct(evaluators=[]))

    def _tell(self) -> None:
        while True:
            with suppress(Exception):
                self._serving.repair()
            with suppress(Exception):
                _say(state=self.state())
            if self._stop.wait(_TELL):
                time.sleep(_TELL)


def _say(**said: Any) -> None:
    """Tell the parent, in one piece: several threads do."""
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()


def _fail(what: str, error: BaseException) -> int:
    """Say why the process ends, in the log and to the parent; return its exit status."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    _log.error("%s: %s", what, first)
    with suppress(OSError):
        _say(failed=first, is_short=is_short_of_memory(error))
    return FAILED


def _watch_parent(back: Back) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    back.stop(orphaned=True)


def main() -> int:
    """Run until told to stop; return the exit status."""
    settings = Settings.of(sys.stdin.readline())
    set_up(settings.log_format, "back")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    # Each call of DuckDB gives the interpreter away; waiting to have it back makes commits slow.
    sys.setswitchinterval(0.001)
    try:
        back = Back(settings)
    except StoreLocked as error:
        _say(failed=str(error))
        return FAILED
    except OtevalError as error:
        _say(refused=str(error), is_short=is_short_of_memory(error))
        return REFUSED
    except Exception as error:
        return _fail("cannot begin", error)
    signal.signal(signal.SIGTERM, lambda *_: back.stop())
    signal.signal(signal.SIGHUP, lambda *_: back.reload())
    threading.Thread(target=_watch_parent, args=(back,), daemon=True).start()
    try:
        return back.run()
    except OtevalError as error:
        return _fail("cannot go on", error)
    except Exception as error:
        _log.exception("cannot go on")
        return _fail("cannot go on", error)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Threads that wait for a judge or a client are not waited for.
    os._exit(status)
