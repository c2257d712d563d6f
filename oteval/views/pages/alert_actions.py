"""Acting on alerts: acknowledge one, or snooze its monitor for its group."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...store import AuditEntry, Store, StoredEpisode
from .access import VISITOR
from .login import acting_form
from .site import Site

__all__ = ["SNOOZES", "alert_action_routes", "snoozed_until"]

_HOUR = 3600 * 10**9
SNOOZES = {"1h": _HOUR, "8h": 8 * _HOUR, "1d": 24 * _HOUR, "7d": 168 * _HOUR, "0": 0}
"""How long alerts can be snoozed (ns); 0 ends it."""


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
