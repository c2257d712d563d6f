"""One check of monitors: read new observations, detect changes, queue notifications.

Observations are consumed in the order of storage. All changes of a check are committed together:
how far it has read, the detectors, the episodes, and the notifications in the outbox. A process
that is killed therefore loses nothing and repeats nothing. A long backlog is committed in several
parts; notifications are queued with the last part, for the episodes that last until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import pyarrow as pa

from ..base.jsontext import canonical
from ..base.machine import return_freed_memory
from ..evaluators import CHECK_MEASURES, CheckMeasure, Scorer, version_of
from ..model import EvaluationResult, make_prices
from ..scoring import Config, Decider, MonitorSettings, PreparedEvaluator, References, StoredPage
from ..store import (
    ObservationSource,
    Outlines,
    ReadPages,
    ReadPosition,
    Store,
    StoredMonitor,
    Trajectories,
    repeated,
    small_arrow,
)
from .evidence import add_evidence
from .idle import idle_statuses
from .notices import end_removed, queue_events
from .run_reader import RunReader
from .scales import VARIANT_MEASURES
from .status import MonitorStatus, statuses
from .watcher import Watcher

__all__ = [
    "check",
    "check_backlog",
    "check_values",
    "little_memory",
    "source_of",
]

# Rows read in one transaction, and runs whose versions are noted in one. With 2 million rows, a
# check of 10 million scores takes as long, and 533 MB instead of 492.
_TRANSACTION = 1_200_000
_NOTED_AT_ONCE = 5_000_000
# The most rows that `check` reads after `check_backlog`.
_REST = 50_000
# Rows handed to the groups at a time: each hand-over costs time per group.
_AT_ONCE = 400_000
# Rows in the first part of a transaction, during which no other part is processed.
_FIRST = 150_000
# DuckDB's memory limit for checks. In addition, DuckDB keeps the metadata of all rows that it has
# read, 240 MB of 10 million scores, until the database is closed.
_MEMORY_LIMIT = "100MB"
# The name that stores the position of the last run whose version is noted.
_VERSIONS = ""


def check(
    store: Store,
    config: Config,
    now_ns: int,
    wait: Callable[[float], object] = time.sleep,
) -> list[MonitorStatus]:
    """Check all monitors of a configuration once.

    Args:
        store: The store.
        config: The configuration.
        now_ns: The time (ns), used to close conversations and to detect silent groups.
        wait: Waits for some seconds while another process checks.

    Returns:
        The state of every group of every monitor.
    """
    monitors = store.monitors.monitors()
    if config.monitors:
        while _runs_to_note(store, monitors):
            repeated(partial(_note_versions, store, now_ns), wait)
            monitors = store.monitors.monitors()
    if end_removed(store, config, monitors, now_ns, wait):
        monitors = store.monitors.monitors()
    all_statuses: list[MonitorStatus] = []
    for settings in config.monitors:
        stored = monitors.get(settings.title)
        monitor_statuses = _idle(store, config, settings, stored, now_ns) if stored else None
        if monitor_statuses is None:
            while not repeated(partial(_advance, store, config, settings, now_ns), wait):
                pass
            monitor_statuses = statuses(store, settings, now_ns)
        all_statuses += monitor_statuses
    return all_statuses


def check_backlog(
    store: Store,
    config: Config,
    now_ns: int,
    wait: Callable[[float], object] = time.sleep,
) -> bool:
    """Check a part of a long backlog, in one transaction.

    Call it until it returns False, and reopen the database each time: this keeps the memory of a
    first check low. Then call `check` for the rest.

    Args:
        store: The store.
        config: The configuration.
        now_ns: The time (ns).
        wait: Waits for some seconds while another process checks.

    Returns:
        Whether there was a long backlog.
    """
    monitors = store.monitors.monitors()
    if config.monitors and _runs_to_note(store, monitors) > _REST:
        repeated(partial(_note_versions, store, now_ns), wait)
        return True
    for settings in config.monitors:
        remaining = store.observations.newest(source_of(settings))
        stored = monitors.get(settings.title)
        if stored is not None and stored.definition == _definition(settings):
            remaining -= stored.at.position
        if remaining > _REST:
            # `check` reads the last row, because the end of a check needs memory too.
            most = min(_TRANSACTION, remaining - 1)
            repeated(partial(_advance, store, config, settings, now_ns, most), wait)
            return True
    return False


def _idle(
    store: Store,
    config: Config,
    settings: MonitorSettings,
    stored: StoredMonitor,
    now_ns: int,
) -> list[MonitorStatus] | None:
    """The states of a monitor's groups if a check has nothing to do, else None."""
    if stored.definition != _definition(settings):
        return None
    return idle_statuses(store, config, settings, source_of(settings), stored, now_ns)


def _noted(monitors: Mapping[str, StoredMonitor]) -> int:
    """The number of the last run whose version is noted."""
    return monitors[_VERSIONS].at.position if _VERSIONS in monitors else 0


def _runs_to_note(store: Store, monitors: Mapping[str, StoredMonitor]) -> int:
    """The number of runs whose versions are not noted."""
    return max(0, store.observations.newest_run() - _noted(monitors))


@contextmanager
def little_memory(store: Store) -> Iterator[None]:
    """Limit the memory of the checks in a block; a check may raise DuckDB's share.

    The process returns freed memory to the system from then on.
    """
    return_freed_memory()
    with store.reduced_memory(_MEMORY_LIMIT), small_arrow():
        yield


def source_of(settings: MonitorSettings) -> ObservationSource:
    """The observations of a monitor."""
    measured = CHECK_MEASURES.get(settings.measure)
    return ObservationSource(
        monitor=settings.title,
        measure=settings.measure,
        evaluator=settings.evaluator,
        group_by=tuple(settings.group_by),
        selection=settings.where.selection(),
        prices=_prices,
        values=None if measured is None else partial(check_values, measured),
    )


def _prices(models: Collection[str]) -> Mapping[str, Mapping[str, float]]:
    """The US dollars per token, by column of tokens, of the models with a known price."""
    table = make_prices(own=None)
    prices = {}
    for model in models:
        price = table.of(model)
        if price is not None:
            prices[model] = price.surcharges
    return prices


def _definition(settings: MonitorSettings) -> str:
    """The settings that determine the state of a monitor, as text."""
    names = ("evaluator", "measure", "where", "group_by", "detector", "baseline", "direction")
    values = settings.model_dump(mode="json", include=set(names), by_alias=True)
    if measured := CHECK_MEASURES.get(settings.measure):
        values["check"] = version_of(measured.check.describe())
    if settings.measure in VARIANT_MEASURES:
        # Baselines that were measured in sample alert on usual traffic, so the monitor starts over.
        values["baseline_values"] = "out of sample"
    return canonical(values)


def _note_versions(store: Store, now_ns: int) -> None:
    with store.monitors.check(now_ns):
        after = _noted(store.monitors.monitors())
        newest = min(store.observations.newest_run(), after + _NOTED_AT_ONCE)
        if newest > after:
            store.monitors.note_versions(after, newest, now_ns)
            store.monitors.put_monitor(StoredMonitor(_VERSIONS, "", ReadPosition(newest)))


def _advance(
    store: Store,
    config: Config,
    settings: MonitorSettings,
    now_ns: int,
    most: int = _TRANSACTION,
) -> bool:
    """Check a monitor in one transaction; return whether it has read everything."""
    source = source_of(settings)
    definition = _definition(settings)
    with store.monitors.check(now_ns):
        lock = Lock()
        watcher = Watcher(store, settings, now_ns, lock)
        stored = store.monitors.monitors().get(settings.title)
        if stored is None or stored.definition != definition:
            watcher.start_over()
            stored = StoredMonitor(settings.title, definition)
        reader = RunReader(store, source, stored.at, now_ns=now_ns, lock=lock)
        newest = store.observations.newest(source)
        end = min(newest, stored.at.position + most)
        is_last = end >= newest
        # After an error, the thread has ended before the transaction is rolled back.
        with closing(_read_ahead(reader, end, newest)) as parts:
            for part in parts:
                # The only reference, so that the groups can free it before they learn.
                watcher.consume(part.pop(), part.pop())
                # Arrow keeps freed memory otherwise.
                pa.default_memory_pool().release_unused()
        reader.write()
        watcher.write()
        if is_last:
            watcher.end_check()
        if is_last and watcher.has_episodes:
            add_evidence(store, settings, source)
            queue_events(store, settings, config.notify, now_ns)
        store.monitors.put_monitor(
            replace(stored, at=reader.at, missing_ns=None, configuration=config.path)
        )
    return is_last


def _read_ahead(reader: RunReader, end: int, newest: int) -> Generator[list[Any], None, None]:
    """Yield the next observations, part by part, while a thread reads the next part.

    Args:
        reader: The reader.
        end: The number of the last row to read.
        newest: The number of the newest row.

    Yields:
        The latest time (ns) of a run read so far, and the observations.
    """

    def read(upto: int) -> list[Any]:
        observations = reader.read(upto, is_last=upto >= newest)
        return [reader.at.reached_ns, observations]

    ends = [*range(reader.at.position + _FIRST, end, _AT_ONCE), end]
    with ThreadPoolExecutor(1, "oteval-monitor-reader") as thread:
        following = thread.submit(read, ends[0])
        for upto in ends[1:]:
            part = following.result()
            following = thread.submit(read, upto)
            yield part
        yield following.result()


def exit_status(group_statuses: Sequence[MonitorStatus]) -> int:
    """The exit status of a check: 1 if a group alerts, 3 if none could be judged, else 0."""
    states = {status.state for status in group_statuses}
    if "alert" in states:
        return 1
    return 0 if states & {"ok", "warn", "recovered"} else 3


# Runs whose outlines are grouped at a time, to limit memory.
_DECIDED_AT_ONCE = 20_000


def check_values(
    measure: CheckMeasure, runs: pa.Table, outlines: Outlines, trajectories: Trajectories
) -> dict[str, float]:
    """The values of runs by their ids; a run that is not evaluated has none.

    Args:
        measure: The measure.
        runs: The ``trajectory_id`` and ``start_ns`` of current runs.
        outlines: Reads their outlines.
        trajectories: Reads runs that their outlines do not decide.
    """
    scorer = Scorer(name="", version="", evaluator=measure.check)
    prepared, reading = PreparedEvaluator(scorer, References()), ReadPages()
    decider = Decider(prepared, salt="")
    keys = runs.select(["trajectory_id", "start_ns"]).sort_by("start_ns")
    results: dict[str, EvaluationResult] = {}
    for first in range(0, len(keys), _DECIDED_AT_ONCE):
        page = keys.slice(first, _DECIDED_AT_ONCE)
        decided = decider.decide(StoredPage(outlines, page, reading), time_ns=0)
        names, codes = decided.rows["trajectory_id"].to_pylist(), decided.codes.to_pylist()
        for name, code in zip(names, codes, strict=True):
            results[name] = decided.results[code]
        undecided = pa.array(sorted(decided.undecided), pa.int64())
        for run in trajectories.at(page.take(undecided)):
            results[run.id] = prepared.score(run, time_ns=0)
    return {
        name: measure.value(result) for name, result in results.items() if result.status == "ok"
    }
