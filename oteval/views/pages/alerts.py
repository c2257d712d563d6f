"""The page of alerts, ``/alerts``: episodes of monitors with evidence, and the actions on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...store import AuditEntry, Store, StoredEpisode
from ..text import clean, clock, one_line, shorten
from .access import VISITOR
from .login import acting_form
from .responses import page
from .site import Site

__all__ = [
    "SNOOZES",
    "Alert",
    "alert_action_routes",
    "alerts_of",
    "alerts_routes",
    "open_alerts",
    "snoozed_until",
]

_MOST = 200
_RUNS = 12
_SIDES = {"worse": "got worse", "better": "got better", "silent": "went silent"}
_HOUR = 3600 * 10**9
SNOOZES = {"1h": _HOUR, "8h": 8 * _HOUR, "1d": 24 * _HOUR, "7d": 168 * _HOUR, "0": 0}
"""How long alerts can be snoozed (ns); 0 ends it."""


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
        listed = await site.read(lambda store: alerts_of(store.monitors.episodes()))
        checked = await site.read(lambda store: store.monitors.last_check_ns())
        return page(
            "alerts.html.j2",
            section="alerts",
            now_ns=site.clock(),
            alerts=listed[:_MOST],
            count=len(listed),
            checked_ns=checked,
            snoozed=await site.read(lambda store: snoozed_until(store, site.clock())),
            snoozes=SNOOZES,
        )

    return [Route("/alerts", alerts)]


def open_alerts(store: Store) -> Sequence[Alert]:
    """The alerts that last, the newest first."""
    return [alert for alert in alerts_of(store.monitors.episodes(open_only=True)) if alert.is_open]


def alerts_of(episodes: Sequence[StoredEpisode]) -> Sequence[Alert]:
    """Return episodes as alerts: lasting episodes first, then the newest."""
    alerts_to_sort = [_alert(episode) for episode in episodes]
    return sorted(alerts_to_sort, key=lambda alert: (not alert.is_open, -alert.alarm_ns))


def _alert(episode: StoredEpisode) -> Alert:
    evidence: Mapping[str, Any] = {}
    with suppress(ValueError):
        read = json.loads(episode.evidence or "{}")
        evidence = read if isinstance(read, dict) else {}
    ended = ""
    if episode.ended_ns is not None:
        ended = f"{clock(episode.ended_ns)} UTC, {clean(episode.end_reason or 'ended')}"
    acknowledged = ""
    if episode.acknowledged_ns:
        acknowledged = (
            f"{clean(episode.acknowledged_by or 'somebody')}, {clock(episode.acknowledged_ns)}"
        )
    return Alert(
        id=episode.episode_id,
        monitor=shorten(one_line(episode.monitor), 80),
        group=_group(episode.group),
        side=_SIDES.get(episode.side, clean(episode.side)),
        is_open=episode.ended_ns is None,
        alarm_ns=episode.alarm_ns,
        changed=f"{clock(episode.change_ns)} UTC (between {clock(episode.change_from_ns)} "
        f"and {clock(episode.change_to_ns)})",
        ended=ended,
        before=_figure(episode.before, evidence.get("before_interval")),
        after=_figure(episode.after, evidence.get("after_interval")),
        observations=episode.observations,
        acknowledged=acknowledged,
        slices=tuple(_slices(evidence.get("slices"))),
        runs=tuple(episode.runs[:_RUNS]),
        runs_before=tuple(episode.runs_before[:_RUNS]),
    )


def _group(text: str) -> str:
    """A group's values, a JSON list, as text."""
    try:
        values = json.loads(text)
    except ValueError:
        values = [text]
    shown_values = values if isinstance(values, list) else [values]
    return shorten(
        one_line(" · ".join(str(value) for value in shown_values if value not in (None, ""))), 160
    )


def _figure(value: float | None, interval: Any) -> str:
    if value is None:
        return ""
    ends = ""
    if isinstance(interval, list) and len(interval) == 2:
        with suppress(TypeError, ValueError):
            ends = f" ({float(interval[0]):.3g} to {float(interval[1]):.3g})"
    return f"{value:.3g}{ends}"


def _slices(slices: Any) -> list[str]:
    """The slices where a figure changed most, in words."""
    if not isinstance(slices, list):
        return []
    texts = []
    for worst_slice in slices[:5]:
        if isinstance(worst_slice, dict):
            name = f"{worst_slice.get('dimension', '')}={worst_slice.get('value', '')}"
            figures = [worst_slice.get("before"), worst_slice.get("after")]
            if all(isinstance(figure, (int, float)) for figure in figures):
                name += f": {figures[0]:.3g} to {figures[1]:.3g}"
            texts.append(shorten(one_line(name), 200))
    return texts


def alert_action_routes(site: Site) -> list[Route]:
    """The routes of the actions on alerts."""

    async def acknowledge(request: Request) -> Response:
        await acting_form(request)
        name, actor, now = request.path_params["name"], VISITOR.get().name, site.clock()

        def act(store: Store) -> None:
            episode = _episode(store, name)
            store.monitors.acknowledge(name, actor, now)
            _note(store, now, actor, "acknowledge", episode)

        await site.write(act)
        return RedirectResponse(f"/alerts#{name}", 303)

    async def snooze(request: Request) -> Response:
        form = await acting_form(request)
        name, actor, now = request.path_params["name"], VISITOR.get().name, site.clock()
        chosen = form.get("time", "")
        if chosen not in SNOOZES:
            raise ConfigError(f"time: choose one of {', '.join(SNOOZES)}")

        def act(store: Store) -> None:
            episode = _episode(store, name)
            until = now + SNOOZES[chosen]
            store.monitors.snooze(episode.monitor, episode.group, until, actor, now)
            _note(store, now, actor, "snooze", episode, time=chosen)

        await site.write(act)
        return RedirectResponse(f"/alerts#{name}", 303)

    return [
        Route("/alerts/{name}/acknowledge", acknowledge, methods=["POST"]),
        Route("/alerts/{name}/snooze", snooze, methods=["POST"]),
    ]


def snoozed_until(store: Store, now_ns: int) -> dict[str, int]:
    """Return until when (ns) lasting alerts are snoozed, by the id of their episode."""
    snoozes = store.monitors.snoozes(now_ns)
    until_by_episode = {}
    for episode in store.monitors.episodes(open_only=True) if snoozes else ():
        until = [snoozes.get((episode.monitor, group), 0) for group in (None, episode.group)]
        if max(until):
            until_by_episode[episode.episode_id] = max(until)
    return until_by_episode


def _episode(store: Store, name: str) -> StoredEpisode:
    """The lasting episode with an id.

    Raises:
        HTTPException: No episode has the id, or it has ended.
    """
    for episode in store.monitors.episodes(open_only=True):
        if episode.episode_id == name and episode.ended_ns is None:
            return episode
    raise HTTPException(404, "this alert does not last any more")


def _note(
    store: Store, now_ns: int, actor: str, action: str, episode: StoredEpisode, **more: str
) -> None:
    chosen = {"episode": episode.episode_id, "monitor": episode.monitor, **more}
    store.audit.add(AuditEntry(now_ns, actor, action, {"chosen": chosen}))
