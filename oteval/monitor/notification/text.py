"""The text of a notification for people: short, as plain text and as Markdown.

It names the change with its figures before and after, its time, its place, and runs that show it.
Figures and times have their intervals. Everything comes from the payload (see
`oteval.monitor.notices`); keys that it lacks are left out:
``before_interval`` and ``after_interval`` (lists of two figures), ``runs_before`` (ids), and
``slices`` (objects with ``dimension``, ``value``, ``before``, ``after`` and ``observations``),
``doubts`` (why the budget of false alarms is not promised), and
``summary`` of a notification for many groups (``groups``, ``count``, ``left_out``, ``lasting``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.text import counted, listed, printable, shown_name
from ...base.times import datetime_of
from ...evaluators import CHECK_MEASURES
from ...model import MEASURES

__all__ = [
    "NotificationText",
    "duration",
    "escaped",
    "group_text",
    "message",
    "slice_text",
    "standard_time",
    "time_text",
]

_SHARES = frozenset({"pass_rate", "error_rate", "not_evaluated_rate", "new_variants"})
_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>#|~"})
_SHOWN_RUNS = 3
_SHOWN_SLICES = 3
_SHOWN_GROUPS = 5
_LONGEST_PLACE = 400
_LONGEST_SLICE = 120

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NotificationText:
    """A notification for people.

    Attributes:
        title: One line.
        lines: Its further lines: a label, or "", and a text.
    """

    title: str
    lines: Sequence[tuple[str, str]]

    @property
    def text(self) -> str:
        """The lines as plain text."""
        return "\n".join(f"{label}: {text}" if label else text for label, text in self.lines)

    @property
    def markdown(self) -> str:
        """The lines as a Markdown list, with labels in bold."""
        return "\n".join(
            f"- **{escaped(label)}:** {escaped(text)}" if label else f"{escaped(text)}\n"
            for label, text in self.lines
        )


def message(payload: Payload) -> NotificationText:
    """The message of a notification.

    Args:
        payload: The payload.
    """
    group = group_text(payload)
    # Cut before appending the verdict, so that the verdict is always visible.
    subject = _line(f"{payload['monitor']}" + (f" [{group}]" if group else ""), _LONGEST_PLACE)
    if summary := payload.get("summary"):
        title = _summary_title(payload, subject, summary["count"])
    elif payload["event"] == "resolved":
        is_back = payload.get("end_reason") in (None, "recovered")
        title = f"Resolved: {subject} {'recovered' if is_back else 'is no longer watched'}"
    elif payload.get("side") == "silent":
        title = f"Alert: {subject} has no data"
    else:
        title = f"Alert: {subject} got {payload['side']}"
    return NotificationText(_line(title), [(label, _line(text)) for label, text in _lines(payload)])


def _summary_title(payload: Payload, subject: str, count: int) -> str:
    if payload["event"] == "resolved":
        return f"Resolved: {subject}: an alert about {counted(count, 'group')} ended"
    change = "have no data" if payload.get("side") == "silent" else f"got {payload['side']}"
    return f"Alert: {subject}: {counted(count, 'group')} {change}"


def _lines(payload: Payload) -> Iterator[tuple[str, str]]:
    is_silent = payload.get("side") == "silent"
    if summary := payload.get("summary"):
        group_texts = [group_text({"group": group}) for group in summary["groups"][:_SHOWN_GROUPS]]
        left_out = summary["count"] - len(group_texts)
        yield "Groups", "; ".join(group_texts) + (f"; and {left_out:,} more" if left_out else "")
        if "lasting" in summary:
            yield "Lasting", counted(summary["lasting"], "alert")
        yield "", "The rest is about the first of them."
    if not is_silent:
        yield "", _change(payload)
    yield ("Silent since" if is_silent else "Since"), _since(payload)
    if payload["event"] == "resolved":
        yield "Ended", _end(payload)
    if slices := payload.get("slices"):
        yield "Where", "; ".join(slice_text(payload, row) for row in slices[:_SHOWN_SLICES])
    if doubts := payload.get("doubts"):
        yield "The budget is not promised", "; ".join(doubts)
    if marks := payload.get("marks"):
        mark_texts = [
            f"{shown_name(mark['name'])} ({time_text(mark['time_ns'])})" for mark in marks
        ]
        yield "Deployed around then", listed(mark_texts, 3)
    if runs := payload.get("runs"):
        yield "Runs since", listed(runs, _SHOWN_RUNS)
    if runs := payload.get("runs_before"):
        yield "Runs before", listed(runs, _SHOWN_RUNS)
    version = payload.get("version")
    judged = f"; {payload.get('evaluator')} version {version}" if version else ""
    yield "Episode", f"{payload['episode']}{judged}"


def _change(payload: Payload) -> str:
    before, after = payload.get("before"), payload.get("after")
    figure = str(payload.get("figure") or payload["measure"])
    if before is None or after is None:
        return f"{figure} changed"
    verb = "fell" if after < before else "rose"
    count = payload.get("observations")
    count_text = f", in {counted(count, 'conversation')}" if count else ""
    was = _with_interval(payload, before, payload.get("before_interval"))
    now = _with_interval(payload, after, payload.get("after_interval"))
    return f"{figure} {verb} from {was} to {now}{count_text}"


def _with_interval(payload: Payload, value: float, interval: Sequence[float] | None) -> str:
    figure = _figure(payload, value)
    if not interval:
        return figure
    return f"{figure} ({_figure(payload, interval[0])} to {_figure(payload, interval[1])})"


def _figure(payload: Payload, value: float) -> str:
    figure = str(payload.get("figure") or "")
    measure = str(payload.get("measure"))
    column = MEASURES.get(measure)
    is_share = measure in (*_SHARES, *CHECK_MEASURES) or (column is not None and column.is_share)
    if figure.startswith("share") or is_share:
        return f"{value:.1%}"
    if column is not None and column.unit == "s":
        return f"{value:.3g} s"
    if measure == "cost":
        return f"${value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def slice_text(payload: Payload, worst_slice: Payload) -> str:
    """A slice: ``tools=look > refund: 95.0% to 41.0% (52 conversations)``."""
    name = f"{worst_slice['dimension']}={shown_name(str(worst_slice['value']), _LONGEST_SLICE)}"
    figures = " to ".join(_figure(payload, worst_slice[moment]) for moment in ("before", "after"))
    return f"{name}: {figures} ({counted(worst_slice['observations'], 'conversation')})"


def _since(payload: Payload) -> str:
    at, low, high = (payload[name] for name in ("since_ns", "since_from_ns", "since_to_ns"))
    if low == high:
        return time_text(at)
    return f"{time_text(at)} (between {time_text(low)} and {time_text(high)})"


def _end(payload: Payload) -> str:
    ended = payload.get("ended_ns")
    if ended is None:
        return str(payload.get("end_reason") or "unknown")
    reason = payload.get("end_reason") or "recovered"
    lasted = duration(max(0, ended - payload["since_ns"]))
    return f"{time_text(ended)} after {lasted}" + ("" if reason == "recovered" else f": {reason}")


def group_text(payload: Payload) -> str:
    """The group of a payload: ``agent=support, version=2``; "" without groups."""
    return ", ".join(f"{name}={shown_name(value)}" for name, value in payload["group"].items())


def time_text(time_ns: int) -> str:
    """A time (ns) as ``2026-11-20 14:05 UTC``."""
    return f"{datetime_of(time_ns):%Y-%m-%d %H:%M} UTC"


def duration(length_ns: int) -> str:
    """A length (ns) in its largest unit: ``40 min``, ``3.5 h``, ``2 d``."""
    length = length_ns / 1e9
    if length < 3600:
        return f"{length / 60:.0f} min"
    return f"{length / 3600:.3g} h" if length < 2 * 86400 else f"{length / 86400:.3g} d"


def _line(text: str, longest: int = 500) -> str:
    """Return one printable line; names of groups come from agents and may contain anything."""
    return " ".join(printable(text).split())[:longest]


def escaped(text: str) -> str:
    """Return plain text as Markdown."""
    return text.translate(_SPECIAL)


def standard_time(time_ns: int) -> str:
    """A time (ns) by RFC 3339, in milliseconds."""
    when = datetime_of(time_ns)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
