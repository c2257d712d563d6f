"""The evidence of an episode: its figures with intervals, the worst slices, and runs that show it.

It is gathered once, when the episode begins, in the transaction of the check, and kept with the
episode. So a notification has the same content however often it is sent.

Runs before the earliest time of the change are compared with runs since its most likely time. At
most 2,000 of each are read, so that the work does not grow with the store. The interval of the mean
since a change comes from its estimate (`change_point.py`). Other intervals are exact for the
effective number of observations: their number divided by the dispersion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..base.jsontext import dumps
from ..evaluators import clopper_pearson
from ..scoring import MonitorSettings
from ..store import (
    DIMENSIONS,
    GroupRow,
    ObservationSource,
    RunWindow,
    Store,
    StoredEpisode,
)
from .autocorrelation import autocorrelation_time
from .detector import Floats, Ints
from .groups import LearnedSide, without_baseline
from .observations import Observations
from .scales import Scale
from .slices import Slice, worst_slices

__all__ = ["add_evidence", "shortened"]

_HOUR_NS = 3600 * 10**9
# Runs that are compared before and since a change.
_MOST = 2000
# How long before a change runs are read, in mean intervals between observations.
_REACH = 1000
_EXAMPLES = 5
_LONGEST = 120
_FEWEST = 10
# Episodes of one check whose runs are compared; further episodes have figures and runs since only.
_MOST_EPISODES = 20
_MOST_SERVICES = 100
_NO_RUNS = pa.table(
    {
        **{name: pa.array([], pa.string()) for name in ("trajectory_id", "conversation")},
        "value": pa.array([], pa.float64()),
        **{name: pa.array([], pa.int64()) for name in ("variant", "time_ns")},
    }
)


@dataclass(frozen=True, slots=True)
class _Period:
    """The conversations of a period.

    Attributes:
        values: Their values, lower is worse.
        runs: All their runs.
        worst: The row of the worst run of each.
        best: The row of the best run of each.
    """

    values: Floats
    runs: pa.Table
    worst: Ints
    best: Ints

    def examples(self, order: Floats, rows: Ints) -> list[str]:
        """The ids of the rows with the lowest order, the latest first."""
        times = self.runs["time_ns"].to_numpy()[rows]
        chosen = rows[np.lexsort((-times, order))[:_EXAMPLES]]
        run_ids: list[str] = self.runs["trajectory_id"].take(pa.array(chosen)).to_pylist()
        return run_ids

    def texts(self, dimension: str) -> Any:
        """A dimension of the worst run of each conversation."""
        rows = self.runs[dimension].take(pa.array(self.worst)).fill_null("").to_pylist()
        return np.array(rows, object)


def add_evidence(
    store: Store,
    settings: MonitorSettings,
    source: ObservationSource,
) -> None:
    """Gather the evidence of the episodes of a monitor that last and have none yet.

    Call this in a transaction.

    Args:
        store: The store.
        settings: The monitor.
        source: Its observations.
    """
    new = [
        episode
        for episode in store.monitors.episodes(settings.title, open_only=True)
        if episode.evidence is None and episode.ended_ns is None and episode.side != "silent"
    ]
    if not new:
        return
    rows = {(row.group, row.version): row for row in store.monitors.groups(settings.title)}
    learned_episodes = []
    for episode in new:
        row = rows.get((episode.group, episode.version))
        learned = _learned(settings, episode, row) if row else None
        if row is not None and learned is not None:
            learned_episodes.append((episode, row, learned))
    # The newest ones; if everything fails at once, the first few show why.
    learned_episodes.sort(key=lambda entry: entry[0].alarm_ns, reverse=True)
    windows = [
        window
        for episode, row, _ in learned_episodes[:_MOST_EPISODES]
        for window in _windows(episode, row)
    ]
    runs = store.run_windows.latest(source, windows, most=_MOST)
    runs += [_NO_RUNS] * 2 * len(learned_episodes[_MOST_EPISODES:])
    store.monitors.put_episodes(
        [
            _with_evidence(
                settings,
                episode,
                learned,
                _interval_since(learned, episode, row),
                _period(runs[2 * index], learned.scale),
                _period(runs[2 * index + 1], learned.scale),
            )
            for index, (episode, row, learned) in enumerate(learned_episodes)
        ]
    )


def _learned(
    settings: MonitorSettings, episode: StoredEpisode, row: GroupRow
) -> LearnedSide | None:
    """The scale and baseline of the side of an episode."""
    stored: Mapping[str, Any] = json.loads(row.detectors or "{}")
    if episode.side in stored:
        return LearnedSide.from_dict(stored[episode.side])
    return next(iter((without_baseline(settings) or {}).values()), None)


def _with_evidence(
    settings: MonitorSettings,
    episode: StoredEpisode,
    learned: LearnedSide,
    interval_since: list[float] | None,
    before: _Period,
    after: _Period,
) -> StoredEpisode:
    scale, usual = learned.scale, episode.before
    assert usual is not None
    assert episode.after is not None
    slices = _slices(learned, before, after, settings.group_by)
    # Only runs that are worse than usual are examples, runs of the worst slice first.
    shows, is_usual = after.values < usual - 1e-9, before.values >= usual - 1e-9
    order = after.values.copy()
    if slices:
        order += after.texts(slices[0].dimension) != slices[0].value
    evidence = {
        "figure": scale.figure,
        "before": scale.shown(usual),
        "after": scale.shown(episode.after),
        "before_interval": _interval(learned, usual, _size_before(learned, before)),
        "after_interval": interval_since,
        "slices": [_slice(scale, worst_slice) for worst_slice in slices],
        "doubts": list(learned.baseline.doubts) if learned.baseline is not None else [],
        "services": _services(before, after),
    }
    return replace(
        episode,
        runs=after.examples(order[shows], after.worst[shows]) or list(episode.runs),
        runs_before=before.examples(-before.values[is_usual], before.best[is_usual]),
        evidence=dumps(evidence),
    )


def _windows(episode: StoredEpisode, row: GroupRow) -> tuple[RunWindow, RunWindow]:
    """The periods before and since a change."""
    length = (row.last_ns - row.first_ns) // max(1, row.observations - 1) * _REACH
    since = episode.change_from_ns - max(length, _HOUR_NS)
    # Runs that came late may be later than the run that raised the alarm.
    until = max(episode.alarm_ns, episode.change_to_ns)
    # A new version has no runs before the change, so runs of other versions count.
    return (
        RunWindow(
            episode.group,
            since,
            episode.change_from_ns - 1,
            episode.version,
            is_of_all_versions=True,
        ),
        RunWindow(episode.group, episode.change_ns, until, episode.version),
    )


def _period(runs: pa.Table, scale: Scale) -> _Period:
    """Return runs by conversation."""
    single = scale.values(_observations(runs))
    codes = runs["conversation"].combine_chunks().dictionary_encode().indices.to_numpy()
    times = runs["time_ns"].to_numpy()
    order = np.argsort(codes, kind="stable")
    _, sizes = np.unique(codes, return_counts=True)
    firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    if not len(runs):
        nothing = np.empty(0, np.int64)
        return _Period(np.empty(0), runs, nothing, nothing)
    joined = _observations(runs.take(pa.array(order)))
    means = np.add.reduceat(joined.values, firsts) / sizes
    values = scale.values(replace(joined, values=means, sizes=sizes))
    worst = np.lexsort((-times, single, codes))[firsts]
    best = np.lexsort((-times, -single, codes))[firsts]
    ends = np.maximum.reduceat(times[order], firsts)
    by_time = np.argsort(ends, kind="stable")
    return _Period(values[by_time], runs, worst[by_time], best[by_time])


def _observations(runs: pa.Table) -> Observations:
    """Return runs as one observation each."""
    return Observations(
        values=np.asarray(runs["value"].to_numpy(), np.float64),
        times=np.asarray(runs["time_ns"].to_numpy(), np.int64),
        variants=np.asarray(runs["variant"].fill_null(0).to_numpy(), np.int64),
        sizes=np.ones(len(runs), np.int64),
        versions=np.zeros(len(runs), np.int64),
        version_names=("",),
        runs=runs["trajectory_id"].combine_chunks(),
    )


def _slices(
    learned: LearnedSide, before: _Period, after: _Period, group_by: Sequence[str]
) -> Sequence[Slice]:
    if min(len(before.values), len(after.values)) < _FEWEST:
        return ()
    names = [name for name in DIMENSIONS if name not in group_by]
    times = [autocorrelation_time(period.values) for period in (before, after)]
    if learned.baseline is not None:
        times.append(learned.baseline.autocorrelation_time)
    dimensions = {name: (before.texts(name), after.texts(name)) for name in names}
    return worst_slices(before.values, after.values, dimensions, time=max(times))


def _slice(scale: Scale, worst_slice: Slice) -> dict[str, Any]:
    return {
        "dimension": worst_slice.dimension,
        "value": shortened(worst_slice.value),
        "before": scale.shown(worst_slice.before),
        "after": scale.shown(worst_slice.after),
        "observations": worst_slice.observations,
        "p": worst_slice.p,
    }


def _size_before(learned: LearnedSide, before: _Period) -> int:
    return learned.baseline.size if learned.baseline is not None else len(before.values)


def _interval_since(
    learned: LearnedSide, episode: StoredEpisode, row: GroupRow
) -> list[float] | None:
    """The 95% interval of the mean since a change in the terms of the figure.

    A detector that estimates the change also estimates this interval, because the time of the
    change is uncertain. The windows of other rules are fixed.
    """
    stored: Mapping[str, Any] = json.loads(row.detectors or "{}")
    change = stored.get(episode.side, {}).get("state", {}).get("change")
    if change is None or change["time_ns"] != episode.change_ns:
        assert episode.after is not None
        return _interval(learned, episode.after, episode.observations)
    return _shown(learned.scale, change["low"], change["high"])


def _services(before: _Period, after: _Period) -> list[str] | None:
    """The services of the runs; None without runs, or if there are very many."""
    periods = [period.runs for period in (before, after) if len(period.runs)]
    names = {name or "" for runs in periods for name in runs["service"].unique().to_pylist()}
    return sorted(names) if 0 < len(names) <= _MOST_SERVICES else None


def _interval(learned: LearnedSide, mean: float, size: int) -> list[float] | None:
    """The 95% interval of a mean in the terms of the figure."""
    if not size:
        return None
    dispersion = learned.baseline.dispersion if learned.baseline is not None else 1.0
    effective = size / dispersion
    bounds = clopper_pearson(min(mean * effective, effective), effective)
    return _shown(learned.scale, bounds.low, bounds.high)


def _shown(scale: Scale, low: float, high: float) -> list[float]:
    """The ends of an interval in the terms of the figure."""
    return sorted(end for end in (scale.shown(low), scale.shown(high)) if end is not None)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A text cut to a length."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
