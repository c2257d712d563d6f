"""The page of alerts: ``/alerts``, the episodes of monitors with their evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...store import Store, StoredEpisode
from ..text import clean, clock, one_line, shorten
from .alert_actions import SNOOZES, snoozed_until
from .responses import page
from .site import Site

__all__ = ["Alert", "alerts_of", "alerts_routes", "open_alerts"]

_MOST = 200
_RUNS = 12
_SIDES = {"worse": "got worse", "better": "got better", "silent": "went silent"}


@dataclass(frozen=True, slots=True)
class Alert:
    """An episode of a monitor.

    Attributes:
        id: The episode's id.
        monitor: The monitor.
        group: The group that it is about, or "".
        side: How the figure changed, in words.
        is_open: Whether it lasts.
        alarm_ns: When it was raised (ns since the epoch).
        changed: The estimated time of the change, with its plausible range.
        ended: When and why it ended, or "".
        before: The figure before the change, or "".
        after: The figure since, or "".
        observations: The number of observations since the change.
        acknowledged: Who acknowledged it, and when, or "".
        slices: Where it changed most, in words.
        runs: Ids of runs that show it.
        runs_before: Ids of usual runs before it.
    """

    id: str
    monitor: str
    group: str
    side: str
    is_open: bool
    alarm_ns: int
    changed: str
    ended: str
    before: str
    after: str
    observations: int
    acknowledged: str
    slices: tuple[str, ...]
    runs: tuple[str, ...]
    runs_before: tuple[str, ...]


def alerts_routes(site: Site) -> list[Route]:
    """The route of alerts."""

    async def alerts(request: Request) -> Response:  # noqa: ARG001
        found = await site.read(lambda store: alerts_of(store.monitors.episodes()))
        checked = await site.read(lambda store: store.monitors.last_check_ns())
        return page(
            "alerts.html.j2",
            section="alerts",
            now_ns=site.clock(),
            alerts=found[:_MOST],
            count=len(found),
            checked_ns=checked,
            snoozed=await site.read(lambda store: snoozed_until(store, site.clock())),
            snoozes=SNOOZES,
        )

    return [Route("/alerts", alerts)]


def open_alerts(store: Store) -> Sequence[Alert]:
    """The alerts that last, the newest first."""
    return [one for one in alerts_of(store.monitors.episodes(open_only=True)) if one.is_open]


def alerts_of(episodes: Sequence[StoredEpisode]) -> Sequence[Alert]:
    """Return episodes as alerts: those that last first, then the newest."""
    found = [_alert(one) for one in episodes]
    return sorted(found, key=lambda one: (not one.is_open, -one.alarm_ns))


def _alert(one: StoredEpisode) -> Alert:
    evidence: Mapping[str, Any] = {}
    with suppress(ValueError):
        read = json.loads(one.evidence or "{}")
        evidence = read if isinstance(read, dict) else {}
    ended = ""
    if one.ended_ns is not None:
        ended = f"{clock(one.ended_ns)} UTC, {clean(one.end_reason or 'ended')}"
    acknowledged = ""
    if one.acknowledged_ns:
        acknowledged = f"{clean(one.acknowledged_by or 'somebody')}, {clock(one.acknowledged_ns)}"
    return Alert(
        id=one.episode_id,
        monitor=shorten(one_line(one.monitor), 80),
        group=_group(one.group),
        side=_SIDES.get(one.side, clean(one.side)),
        is_open=one.ended_ns is None,
        alarm_ns=one.alarm_ns,
        changed=f"{clock(one.change_ns)} UTC (between {clock(one.change_from_ns)} "
        f"and {clock(one.change_to_ns)})",
        ended=ended,
        before=_figure(one.before, evidence.get("before_interval")),
        after=_figure(one.after, evidence.get("after_interval")),
        observations=one.observations,
        acknowledged=acknowledged,
        slices=tuple(_slices(evidence.get("slices"))),
        runs=tuple(one.runs[:_RUNS]),
        runs_before=tuple(one.runs_before[:_RUNS]),
    )


def _group(text: str) -> str:
    """A group's values, a JSON list, as text."""
    try:
        values = json.loads(text)
    except ValueError:
        values = [text]
    shown = values if isinstance(values, list) else [values]
    return shorten(
        one_line(" · ".join(str(value) for value in shown if value not in (None, ""))), 160
    )


def _figure(value: float | None, interval: Any) -> str:
    if value is None:
        return ""
    ends = ""
    if isinstance(interval, list) and len(interval) == 2:
        with suppress(TypeError, ValueError):
            ends = f" ({float(interval[0]):.3g} to {float(interval[1]):.3g})"
    return f"{value:.3g}{ends}"


def _slices(found: Any) -> list[str]:
    """The slices in which a figure changed most, in words."""
    if not isinstance(found, list):
        return []
    texts = []
    for one in found[:5]:
        if isinstance(one, dict):
            name = f"{one.get('dimension', '')}={one.get('value', '')}"
            figures = [one.get("before"), one.get("after")]
            if all(isinstance(figure, (int, float)) for figure in figures):
                name += f": {figures[0]:.3g} to {figures[1]:.3g}"
            texts.append(shorten(one_line(name), 200))
    return texts
