"""Reviews of a baseline, once a week, from later observations.

`ReviewedDetector` keeps the newest observations of the state ok for an e-detector. A week after
the baseline, and every week from then on, `review` gets at least 1,000 of them, and chooses the
length of blocks. An alert discards them; evidence for an alert postpones the review by a day.

It also keeps the sums of the hours of four weeks. From them, `review_hours` learns the pattern of
hours and weekdays: daily in the first week, and weekly from then on. It does so a day later while
there is an alert or evidence for one.

When reviews take place depends only on the observations in order, not on how checks divided them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .baselines import Baseline, review, review_hours
from .detector import Alarm, Floats, Ints
from .e_detector import EDetector
from .hours import STEPS, HourlySums

__all__ = ["ReviewedDetector"]

_DAY_NS = 86_400 * 10**9
_WEEK_NS = 7 * _DAY_NS
_LEAST, _MOST = 1000, 5000
_CALM = 0.5
# Times are kept in seconds: precise enough, and small.
_SECOND_NS = 10**9


class ReviewedDetector(EDetector):
    """An e-detector whose baseline is reviewed."""

    def __init__(self, baseline: Baseline, *, spending: float) -> None:
        super().__init__(baseline, spending=spending)
        self._due_ns = baseline.end_ns + _WEEK_NS
        self._is_due = False
        self._seen = 0
        self._values = np.empty(0, np.uint8)
        self._seconds = np.empty(0, np.int64)
        self._sums = HourlySums()
        self._hours_due_ns = baseline.end_ns + 2 * _DAY_NS

    def update(self, values: Any, times_ns: Any) -> list[Alarm]:
        """Add observations, and review the baseline if that is due."""
        new, times = np.asarray(values, np.float64), np.asarray(times_ns, np.int64)
        alarms: list[Alarm] = []
        while True:
            count = min(self._until_review(times), self._until_hours(times))
            was_alerting, first = self.alerting, self._index
            new_alarms = super().update(new[:count], times[:count])
            is_quiet = _quiet(new_alarms, first, count, is_alerting=was_alerting)
            self._sums.add(new[:count], times[:count], is_quiet)
            self._keep(new[:count], times[:count], new_alarms)
            alarms += new_alarms
            self._review(times[:count])
            self._review_hours(times[:count])
            new, times = new[count:], times[count:]
            if not len(new):
                return alarms

    def state(self) -> dict[str, Any]:
        """The state of the detector, and the observations for the next review."""
        return {
            **super().state(),
            "review": {
                "due_ns": self._due_ns,
                "is_due": self._is_due,
                "seen": self._seen,
                "values": _packed(self._values),
                "seconds": _packed(np.diff(self._seconds, prepend=0)),
                "hours_due_ns": self._hours_due_ns,
                "hours": self._sums.state(),
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        super().restore(state)
        review: Mapping[str, Any] | None = state.get("review")
        if review is None:
            # It was written before there were reviews; the first is after the next week's end.
            weeks = max(0, self._last_ns - self.baseline.end_ns) // _WEEK_NS
            self._due_ns = self.baseline.end_ns + (weeks + 1) * _WEEK_NS
            self._hours_due_ns = self._last_ns + _WEEK_NS
            return
        self._due_ns, self._is_due = review["due_ns"], review["is_due"]
        self._seen = review["seen"]
        self._values = np.frombuffer(_unpacked(review["values"]), np.uint8)
        self._seconds = np.cumsum(np.frombuffer(_unpacked(review["seconds"]), np.int64))
        if "hours" in review:
            self._hours_due_ns = review["hours_due_ns"]
            self._sums.restore(review["hours"])
        else:
            self._hours_due_ns = self._last_ns + _WEEK_NS

    def _until_review(self, times: Ints) -> int:
        """How many of the next observations come up to and including the next review."""
        if self.alerting:
            # Not more, since after a recovery the next review is at least so many away.
            return min(len(times), _LEAST)
        late = np.flatnonzero(times >= self._due_ns)
        if not late.size and not self._is_due:
            return len(times)
        first = 0 if self._is_due else int(late[0])
        return min(len(times), max(first + 1, _LEAST - len(self._values)))

    def _until_hours(self, times: Ints) -> int:
        """How many of the next observations come up to and including the next review of hours."""
        late = np.flatnonzero(times >= self._hours_due_ns)
        return int(late[0]) + 1 if late.size else len(times)

    def _review_hours(self, times: Ints) -> None:
        """Review the pattern of hours if the last observation makes that due."""
        last = int(times[-1]) if len(times) else 0
        if last < self._hours_due_ns:
            return
        if self.evidence >= _CALM:
            self._hours_due_ns = last + _DAY_NS
            return
        is_young = last < self.baseline.end_ns + _WEEK_NS
        self.baseline = review_hours(self.baseline, self._sums, self._values / STEPS)
        self._hours_due_ns = last + (_DAY_NS if is_young else _WEEK_NS)

    def _keep(self, values: Floats, times: Ints, alarms: Sequence[Alarm]) -> None:
        """Keep the newest observations since the last recovery."""
        first = self._seen
        self._seen += len(values)
        if alarms:
            after = max(0, alarms[-1].index + 1 - first)
            values, times = values[after:], times[after:]
            self._discard()
        if not self.alerting:
            steps = np.round(values * STEPS).astype(np.uint8)
            self._values = np.concatenate([self._values, steps])[-_MOST:]
            self._seconds = np.concatenate([self._seconds, times // _SECOND_NS])[-_MOST:]

    def _review(self, times: Ints) -> None:
        """Review the baseline if the last observation makes that due."""
        self._is_due |= bool((times >= self._due_ns).any())
        if self.alerting or len(self._values) < _LEAST or not self._is_due:
            return
        self._is_due = False
        if self.evidence >= _CALM:
            self._due_ns += _DAY_NS
            return
        self.baseline = review(self.baseline, self._values / STEPS, self._seconds * _SECOND_NS)
        self._due_ns += _WEEK_NS
        self._discard()

    def _discard(self) -> None:
        self._values, self._seconds = np.empty(0, np.uint8), np.empty(0, np.int64)


def _quiet(
    alarms: Sequence[Alarm], first: int, count: int, *, is_alerting: bool
) -> npt.NDArray[np.bool_]:
    """Which of the next observations, from an index on, are outside of episodes."""
    turns = np.zeros(count, np.int64)
    for alarm in alarms:
        turns[max(0, alarm.index - first)] += 1
    is_quiet: npt.NDArray[np.bool_] = (np.cumsum(turns) + is_alerting) % 2 == 0
    return is_quiet


def _packed(values: Any) -> str:
    return base64.b64encode(zlib.compress(values.tobytes(), 1)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
