"""The groups of one monitor during a check: their observations go to baselines and detectors.

A group that is learning keeps its observations in the store. When enough have come, it learns its
baseline from the first of them, and the rest go to its detectors. A new version of the evaluator
starts a new baseline, or takes up the baseline that this version had before. Either way its
detectors start anew, so that a changed evaluator raises no alarm.

The names of groups come from senders. Beyond `max_groups` of the monitor, new groups are watched
together, as the group `OTHER_GROUPS`.

If ``version`` is among the values that a monitor groups by, a new version of an agent takes over
the baseline of the version before it, so that the two are compared. While no version has a
baseline, the observations of earlier versions count for the baseline of later versions. So
short-lived versions get a baseline too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..base.jsontext import dumps
from ..scoring import MonitorSettings
from ..store import GroupRow, Store, StoredEpisode, learning_rows
from . import episodes
from .baselines import Learning
from .groups import (
    Families,
    GroupChange,
    LearnedSide,
    WatchedSide,
    after_silence,
    allowance_of,
    family_of,
    learn_sides,
    recent_mean,
    restore,
    update,
    watch,
    with_those_of,
    without_baseline,
)
from .idle import GONE_NS
from .observations import Observations, by_group, joined
from .scales import Side

__all__ = ["OTHER_GROUPS", "Watcher"]

OTHER_GROUPS = "(other groups)"
"""The value of each field in the group for groups beyond `MonitorSettings.max_groups`."""

# A group tries to learn again when it has this many times the observations of its last attempt.
_TRY_AGAIN = 1.1
# Observations of learning groups that are read or written at once.
_LEARNED_AT_ONCE = 60_000


class Watcher:
    """The groups of a monitor in the transaction of a check.

    Args:
        store: The store.
        settings: The monitor.
        now_ns: The time of the check (ns).
        lock: Held while the store is used, because a thread reads ahead from it.

    Attributes:
        has_episodes: Whether episodes last, or began or ended since the last check.
    """

    def __init__(
        self, store: Store, settings: MonitorSettings, now_ns: int, lock: Lock | None = None
    ) -> None:
        self._store = store
        self._lock = lock or Lock()
        self._settings = settings
        self._now_ns = now_ns
        self._monitor = settings.title
        self.has_episodes = False
        self._load()

    def _load(self) -> None:
        state = self._store.monitors
        self._rows = {row.group: row for row in state.groups(self._monitor)}
        self._changed: set[str] = set()
        self._sides: dict[str, dict[Side, WatchedSide]] = {}
        self._families = Families((), ())
        self._new_baselines: list[tuple[str, str, str, str, int]] = []
        self._baselines = state.baselines(self._monitor)
        self._family_baselines = {
            (self._family(group), version): text
            for (group, version), text in self._baselines.items()
        }
        self._open: dict[tuple[str, str], StoredEpisode] = {}
        self._ended: list[StoredEpisode] = []
        self._opened: set[tuple[str, str]] = set()
        stored_episodes = state.episodes(self._monitor, open_only=True)
        self.has_episodes = self.has_episodes or bool(stored_episodes)
        for episode in stored_episodes:
            if episode.ended_ns is None:
                self._open[episode.group, episode.side] = episode
        self._allowance = allowance_of(self._settings, len(self._rows))

    def start_over(self) -> None:
        """Forget all groups, because the monitor is new or its definition changed."""
        for key in list(self._open):
            self._end(key, "the monitor was changed", self._open[key].alarm_ns)
        self._store.monitors.put_episodes(self._ended)
        self._store.monitors.forget(self._monitor)
        self._load()

    def advance(self, now_ns: int) -> None:
        """Set the time (ns) of the check."""
        self._now_ns = now_ns

    def consume(self, table: pa.Table, reached_ns: int) -> None:
        """Take the next observations.

        Args:
            table: The observations as the store returns them.
            reached_ns: The latest time of an observation of the monitor.
        """
        # Later times than the check come from a wrong clock, and count as the time of the check. If
        # the clock of the check itself has stepped back, the latest time before counts.
        latest_ns = max(self._now_ns, reached_ns)
        times = compute.min_element_wise(table["time_ns"], latest_ns)
        table = table.set_column(table.schema.get_field_index("time_ns"), "time_ns", times)
        table = self._with_fewer_groups(table)
        learning: dict[str, Observations] = {}
        detected: list[tuple[str, Observations]] = []
        groups = by_group(table)
        del table
        for group, observations in groups:
            row = self._with_version(group, observations.last_version)
            new = observations.of_version(row.version)
            row = self._counted(row, new, latest_ns)
            self._changed.add(group)
            self._rows[group] = row
            if row.detectors is None and group not in self._sides:
                learning[group] = new
            else:
                detected.append((group, new))
        if self._changed:
            self._share_budget()
        for group, new in detected:
            self._detect(group, new)
        self._learn_due(learning, reached_ns)
        self._note_progress(learning)
        self._add_learning(learning)

    def _with_fewer_groups(self, table: pa.Table) -> pa.Table:
        """Return observations where new groups beyond the limit of the monitor are one group."""
        names = table["group"].unique().cast(pa.string()).to_pylist()
        new = [name for name in names if name not in self._rows]
        room = max(0, self._settings.max_groups - len(self._rows))
        if len(new) <= room:
            return table
        other_label = dumps([OTHER_GROUPS] * len(self._settings.group_by))
        texts = table["group"].cast(pa.string())
        is_other = compute.is_in(texts, pa.array(new[room:]))
        index = table.schema.get_field_index("group")
        return table.set_column(index, "group", compute.if_else(is_other, other_label, texts))

    def _counted(self, row: GroupRow, new: Observations, latest_ns: int) -> GroupRow:
        return replace(
            after_silence(row, new.times, latest_ns),
            recent=recent_mean(row.recent, row.observations, new.values),
        )

    def _share_budget(self) -> None:
        """Share the budget among the groups that are live at the latest observation."""
        reached = max(row.last_ns for row in self._rows.values())
        live = sum(not self._is_silent(row, reached) for row in self._rows.values())
        self._allowance = allowance_of(self._settings, live)
        for sides in self._sides.values():
            for watched in sides.values():
                watched.share(self._allowance)

    def _with_version(self, group: str, version: str) -> GroupRow:
        """The row of a group that is watched with a version of the evaluator."""
        row = self._rows.get(group)
        if row is not None and row.version == version:
            return row
        if row is not None:
            for key in [key for key in self._open if key[0] == group]:
                self._end(key, "the evaluator was changed", row.last_ns)
            with self._lock:
                self._store.monitors.end_learning([row])
            self._sides.pop(group, None)
        learned = self._known(group, version)
        if learned is not None:
            self._sides[group] = watch(self._settings, learned, allowance=self._allowance)
        return GroupRow(self._monitor, group, version)

    def _known(self, group: str, version: str) -> dict[Side, LearnedSide] | None:
        """The baselines that a group has from the beginning, or None."""
        plain = without_baseline(self._settings)
        if plain is not None:
            return plain
        text = self._baselines.get((group, version)) or self._family_baselines.get(
            (self._family(group), version)
        )
        if text is None:
            return None
        stored = json.loads(text)
        return {side: LearnedSide.from_dict(stored[side]) for side in self._settings.sides}

    def _family(self, group: str) -> str:
        return family_of(group, self._settings.group_by)

    def _detect(self, group: str, new: Observations) -> None:
        row = self._rows[group]
        if group not in self._sides:
            stored = json.loads(row.detectors or "{}")
            self._sides[group] = restore(self._settings, stored, allowance=self._allowance)
        if len(new):
            silent = (group, "silent")
            if silent in self._open:
                self._end(silent, "recovered", int(new.times[0]))
            for change in update(self._sides[group], new):
                self._note(row, change)

    def _note(self, row: GroupRow, change: GroupChange) -> None:
        """Start or end an episode."""
        key = (row.group, change.side)
        if change.alarm.kind == "recovered":
            if key in self._open:
                self._end(key, "recovered", change.alarm.time_ns)
            return
        if key in self._open:
            return
        self._open[key] = episodes.opened(
            self._monitor,
            row.group,
            row.version,
            change.side,
            change.alarm,
            now_ns=self._now_ns,
            runs=change.runs,
        )
        self._opened.add(key)

    def _end(self, key: tuple[str, str], reason: str, ended_ns: int) -> None:
        self._ended.append(
            episodes.end(self._open.pop(key), reason, ended_ns=ended_ns, now_ns=self._now_ns)
        )

    def _add_learning(self, new_by_group: Mapping[str, Observations]) -> None:
        """Keep new observations of learning groups in the store."""
        part: dict[str, Observations] = {}
        size = 0
        for group, new in new_by_group.items():
            part[group] = new
            size += len(new)
            if size >= _LEARNED_AT_ONCE:
                self._write_learning(part)
                part, size = {}, 0
        if part:
            self._write_learning(part)

    def _write_learning(self, new_by_group: Mapping[str, Observations]) -> None:
        rows = [self._rows[group] for group in new_by_group]
        sizes = [len(new) for new in new_by_group.values()]
        owner = pa.array(np.repeat(np.arange(len(rows)), sizes))
        texts = {
            name: pa.array([getattr(row, name) for row in rows], pa.string()).take(owner)
            for name in ("monitor", "group", "version")
        }
        numbers = [
            np.arange(row.observations - size, row.observations)
            for row, size in zip(rows, sizes, strict=True)
        ]
        learning = learning_rows(
            {
                **texts,
                "value": np.concatenate([new.values for new in new_by_group.values()]),
                "variants": pa.concat_arrays(
                    [new.variant_lists() for new in new_by_group.values()]
                ),
                "time_ns": np.concatenate([new.times for new in new_by_group.values()]),
                "trajectory_id": pa.concat_arrays([new.runs for new in new_by_group.values()]),
                "number": np.concatenate(numbers),
            }
        )
        with self._lock:
            self._store.monitors.add_learning(learning)

    def _learn_due(self, new: dict[str, Observations], reached_ns: int) -> None:
        """Learn the baselines of groups that have enough observations for an attempt.

        Args:
            new: The new observations of learning groups, which are not in the store yet.
                Observations of groups that learned are removed.
            reached_ns: The latest time of an observation of the monitor.
        """
        learning = [row for row in self._rows.values() if self._is_learning(row)]
        self._families = Families(learning, self._settings.group_by)
        # The oldest last, which is taken first: later versions take over its baseline.
        due = sorted(
            (row for row in self._rows.values() if self._is_due(row, reached_ns)),
            key=lambda row: -row.first_ns,
        )
        while due:
            part: list[GroupRow] = []
            size = 0
            while due and (not part or size + self._stored(due[-1], new) <= _LEARNED_AT_ONCE):
                part.append(due.pop())
                size += self._stored(part[-1], new)
            stored = [row for row in part if self._stored(row, new)]
            before: dict[str, Observations] = {}
            if stored:
                with self._lock:
                    before_rows = self._store.monitors.learning(stored)
                before = dict(by_group(before_rows))
                del before_rows
            for row in part:
                parts = [groups[row.group] for groups in (before, new) if row.group in groups]
                self._learn(row.group, joined(parts), new, reached_ns)
            learned = [row for row in part if row.group in self._sides]
            for group in [group for group in new if group in self._sides]:
                del new[group]
            if stored and learned:
                with self._lock:
                    self._store.monitors.end_learning(learned)
            if learned and not due and "version" in self._settings.group_by:
                self._learn_due(new, reached_ns)

    def _stored(self, row: GroupRow, new: Mapping[str, Observations]) -> int:
        """How many observations of a learning group are in the store."""
        return row.observations - len(new.get(row.group, ()))

    def _is_due(self, row: GroupRow, reached_ns: int) -> bool:
        rules = self._settings.baseline
        if not self._is_learning(row):
            return False
        if row.group not in self._changed:
            return False
        if self._has_elder(row):
            return True
        earlier = self._families.earlier(row)
        observations = row.observations + sum(earlier_row.observations for earlier_row in earlier)
        if observations < rules.scores:
            return False
        if row.tried and observations < _TRY_AGAIN * row.tried:
            return False
        if rules.until is not None:
            return reached_ns >= rules.until
        return row.last_ns - min(member.first_ns for member in (row, *earlier)) >= rules.span * 1e9

    def _note_progress(self, learning: Mapping[str, Observations]) -> None:
        """Note the data that is missing in groups that did not try to learn yet."""
        for group in learning:
            row = self._rows[group]
            earlier = self._families.earlier(row)
            if not row.tried and (lack := self._lack(row, earlier)):
                self._rows[group] = replace(row, progress=f"{lack}{with_those_of(earlier)}")

    def _lack(self, row: GroupRow, earlier: Sequence[GroupRow]) -> str:
        """The data that a group lacks for an attempt to learn, or ""; see `_is_due`."""
        rules, rows = self._settings.baseline, (row, *earlier)
        observations = sum(member.observations for member in rows)
        if observations < rules.scores:
            return f"{observations:,} of {rules.scores:,} observations"
        if rules.until is not None:
            return "the time of the baseline is not over"
        seconds = (row.last_ns - min(member.first_ns for member in rows)) / 1e9
        if seconds >= rules.span:
            return ""
        return f"{seconds / 3600:.1f} of {rules.span / 3600:.0f} hours"

    def _has_elder(self, row: GroupRow) -> bool:
        """Whether an earlier version of a group's agent may pass on a baseline to it."""
        if "version" not in self._settings.group_by:
            return False
        return (self._family(row.group), row.version) in self._family_baselines

    def _learn(
        self,
        group: str,
        observations: Observations,
        new: Mapping[str, Observations],
        reached_ns: int,
    ) -> None:
        row = self._rows[group]
        baselines = self._known(group, row.version)
        if baselines is not None:
            self._sides[group] = watch(self._settings, baselines, allowance=self._allowance)
            self._rows[group] = replace(row, progress="")
            self._detect(group, observations)
            return
        earlier = {earlier_row.group: earlier_row for earlier_row in self._families.earlier(row)}
        before = self._observations_of(list(earlier.values()), new)
        all_observations = joined([*before.values(), observations])
        learned = learn_sides(self._settings, all_observations, reached_ns, tried=row.tried)
        if isinstance(learned, Learning):
            reason = f"{learned.reason}{with_those_of(earlier)}"
            self._rows[group] = replace(row, tried=len(all_observations), progress=reason)
            return
        sides, baseline_size = learned
        text = dumps({side: learned_side.to_dict() for side, learned_side in sides.items()})
        self._new_baselines.append((self._monitor, group, row.version, text, self._now_ns))
        self._baselines[group, row.version] = text
        self._family_baselines[self._family(group), row.version] = text
        own = max(0, baseline_size - (len(all_observations) - len(observations)))
        unlearned = {group: observations.after(own)}
        for name, observed in before.items():
            # Its observations are in the baseline, except where they overlap with later ones.
            unlearned[name] = observed.select(
                observed.times > all_observations.first(baseline_size).times.max()
            )
        for name, later in unlearned.items():
            self._sides[name] = watch(self._settings, sides, allowance=self._allowance)
            self._rows[name] = replace(self._rows[name], progress="")
            self._changed.add(name)
            self._detect(name, later)
        if earlier:
            with self._lock:
                self._store.monitors.end_learning(list(earlier.values()))

    def _observations_of(
        self, rows: Sequence[GroupRow], new: Mapping[str, Observations]
    ) -> dict[str, Observations]:
        """The observations of learning groups, stored and new, by group in order."""
        if not rows:
            return {}
        with self._lock:
            stored = dict(by_group(self._store.monitors.learning(rows)))
        parts = {
            row.group: [groups[row.group] for groups in (stored, new) if row.group in groups]
            for row in rows
        }
        return {group: joined(group_parts) for group, group_parts in parts.items() if group_parts}

    def _is_learning(self, row: GroupRow) -> bool:
        return row.detectors is None and row.group not in self._sides

    def _is_silent(self, row: GroupRow, at_ns: int) -> bool:
        after = self._settings.no_data.after
        limit = episodes.no_data_after(
            None if after is None else round(after * 1e9),
            row.longest_gap_ns,
            is_learning=self._is_learning(row),
        )
        return at_ns - row.last_ns > limit

    def end_check(self) -> None:
        """Note silent groups, when everything stored has been read."""
        families: dict[str, int] = {}
        for row in self._rows.values():
            family = self._family(row.group)
            families[family] = max(families.get(family, 0), row.first_ns)
        gone = []
        for row in self._rows.values():
            if not self._is_silent(row, self._now_ns):
                continue
            is_replaced = families[self._family(row.group)] > row.first_ns
            is_gone = self._now_ns - row.last_ns > GONE_NS
            if is_replaced and self._is_learning(row) and not is_gone:
                # Its observations count for the baseline of later versions.
                continue
            if is_replaced or is_gone:
                gone.append(row)
            elif self._settings.no_data.notify:
                key = (row.group, "silent")
                if key not in self._open:
                    self._open[key] = episodes.silence(
                        self._monitor, row.group, row.version, row.last_ns, self._now_ns
                    )
                    self._opened.add(key)
        for row in gone:
            for key in [key for key in self._open if key[0] == row.group]:
                self._end(key, "the group is gone", row.last_ns)
        self._store.monitors.remove_groups(gone)
        self._write_episodes()

    def write(self) -> None:
        """Write everything that changed."""
        state = self._store.monitors
        rows = []
        for group in sorted(self._changed):
            row = self._rows[group]
            if group in self._sides:
                sides = self._sides[group]
                row = replace(
                    row,
                    evidence=max(watched.detector.evidence for watched in sides.values()),
                    detectors=dumps({side: watched.to_dict() for side, watched in sides.items()}),
                )
            rows.append(row)
        state.put_groups(rows)
        state.add_baselines(self._new_baselines)
        self._write_episodes()

    def _write_episodes(self) -> None:
        opened = [self._open[key] for key in self._opened if key in self._open]
        self.has_episodes = self.has_episodes or bool(opened or self._ended)
        self._store.monitors.put_episodes([*self._ended, *opened])
        self._ended, self._opened = [], set()
