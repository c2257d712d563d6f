"""Tables of monitors and lines about their changes, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from ..base.text import listed, shown_name
from .columns import Column, Columns, one_row
from .text import ago, clock

if TYPE_CHECKING:
    from ..monitor import Estimate, GroupSimulation, MeasuredChange, MonitorStatus, PastEpisode
    from ..store import StoredEpisode

__all__ = [
    "change_line",
    "changes_table",
    "doubt_lines",
    "episodes_table",
    "evidence_text",
    "group_text",
    "monitors_table",
    "simulations_table",
]

_SHOWN_EPISODES = 5
_STYLES = {"alert": "bold red", "warn": "yellow", "no_data": "magenta", "ok": "green"}


def group_text(group: Mapping[str, str]) -> str:
    """A group's values as text: ``agent=refunds version=2``."""
    return " ".join(f"{name}={shown_name(value)}" for name, value in group.items())


def monitors_table(states: Iterable[MonitorStatus], now_ns: int) -> Columns:
    """Return monitors, one line for each group.

    Args:
        states: Their states.
        now_ns: The current time (ns).
    """
    table = Columns(
        Column("monitor", least=16, most=40),
        Column("group", least=8, most=60),
        Column("state"),
        Column("since", rank=2),
        Column("now", rank=1, right=True),
        Column("baseline", rank=1, right=True),
        Column("observations", rank=3, right=True),
        Column("note", rank=4, least=10, most=60),
    )
    for status in states:
        table.add_row(
            one_row(status.monitor),
            one_row(group_text(status.group)),
            Text(status.state.replace("_", " "), _STYLES.get(status.state, "")),
            ago(status.since_ns, now_ns) if status.since_ns else "",
            _figure(status.recent),
            _baseline(status),
            f"{status.observations:,}",
            one_row(_note(status)),
        )
    return table


def evidence_text(states: Iterable[MonitorStatus]) -> str:
    """The alerts of lasting episodes as text, each with its figures, slices and runs.

    Args:
        states: The states of groups.
    """
    episodes = [(status, episode) for status in states for episode in status.episodes]
    texts = [_evidence(status, episode) for status, episode in episodes[:_SHOWN_EPISODES]]
    if len(episodes) > _SHOWN_EPISODES:
        texts.append(f"and {len(episodes) - _SHOWN_EPISODES:,} more; --json has all")
    return "\n\n".join(texts)


def _evidence(status: MonitorStatus, episode: StoredEpisode) -> str:
    # Imported when needed, because it imports the clients of all destinations.
    from ..monitor import message

    payload = {
        "event": "alert",
        "episode": episode.episode_id,
        "monitor": status.monitor,
        "measure": status.measure,
        "group": status.group,
        "side": episode.side,
        "since_ns": episode.change_ns,
        "since_from_ns": episode.change_from_ns,
        "since_to_ns": episode.change_to_ns,
        "observations": episode.observations,
        **json.loads(episode.evidence or "{}"),
        "runs": list(episode.runs),
        "runs_before": list(episode.runs_before),
    }
    alert = message(payload)
    return "\n".join([alert.title, *(f"  {line}" for line in alert.text.splitlines())])


def doubt_lines(groups: Iterable[MonitorStatus | GroupSimulation]) -> list[str]:
    """Why the budget of false alarms is not promised, one line for all groups with the same reason.

    Args:
        groups: The states or the simulations of groups.
    """
    groups_by_doubts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for state in groups:
        if state.doubts:
            names = groups_by_doubts.setdefault((state.monitor, tuple(state.doubts)), [])
            names += [name for name in [group_text(state.group)] if name not in names]
    return [
        f"{' '.join(filter(None, (shown_name(monitor, 200), listed(names, 3))))}: "
        f"the budget of false alarms is not promised: {'; '.join(doubts)}"
        for (monitor, doubts), names in groups_by_doubts.items()
    ]


def episodes_table(episodes: Iterable[PastEpisode]) -> Columns:
    """Return past episodes, one line each."""
    table = Columns(
        Column("monitor", least=12, most=40),
        Column("group", least=8, most=60),
        Column("alert (UTC)"),
        Column("ended (UTC)", rank=2),
        Column("changed (UTC)", rank=1),
        Column("between", rank=3),
        Column("before", rank=1, right=True),
        Column("after", rank=1, right=True),
        Column("figure", rank=4, least=10, most=60),
    )
    for past in episodes:
        episode = past.episode
        table.add_row(
            one_row(past.monitor),
            one_row(group_text(past.group)),
            clock(episode.alarm_ns),
            clock(episode.ended_ns) if episode.ended_ns else "lasts",
            clock(episode.change_ns),
            f"{clock(episode.change_from_ns)} and {clock(episode.change_to_ns)}",
            _figure(past.before),
            _figure(past.after),
            one_row(past.figure),
        )
    return table


def simulations_table(simulations: Iterable[GroupSimulation]) -> Columns:
    """Return simulations, one line for each rule and size of drop."""
    table = Columns(
        Column("monitor", least=12, most=40),
        Column("group", least=8, most=60),
        Column("rule"),
        Column("false alarms in 30 days", right=True),
        Column("drop", right=True),
        Column("found", right=True),
        Column("after scores", rank=1, right=True),
        Column("after", rank=1, right=True),
    )
    for simulation in simulations:
        for rule in simulation.rules:
            for drop in rule.drops:
                table.add_row(
                    one_row(simulation.monitor),
                    one_row(group_text(simulation.group)),
                    rule.name,
                    f"{rule.per_30_days:,.2f}",
                    f"{drop.size:g}",
                    f"{drop.found:.0%}",
                    "" if drop.observations is None else f"{drop.observations:,.0f}",
                    "" if drop.time_ns is None else f"{drop.time_ns / 3.6e12:,.1f} h",
                )
    return table


def changes_table(changes: Iterable[MeasuredChange]) -> Columns:
    """Return changes, one line each, and one for each slice that got worse."""
    table = Columns(
        Column("monitor", least=12, most=40),
        Column("group", least=8, most=80),
        Column("before", right=True),
        Column("after", right=True),
        Column("change", rank=1, right=True),
        Column("verdict"),
        Column("p", rank=2, right=True),
        Column("figure", rank=3, least=10, most=60),
        Column("runs", rank=1, least=16, most=80),
    )
    for change in changes:
        table.add_row(
            one_row(change.monitor),
            one_row(group_text(change.group)),
            _estimate(change.before),
            _estimate(change.after),
            _difference(change.change),
            change.verdict,
            "" if change.p is None else f"{change.p:.2g}",
            one_row(change.figure),
            one_row(" ".join(change.runs_after) if change.verdict == "worse" else ""),
        )
        for part in change.slices:
            table.add_row(
                "",
                one_row(f"{part.dimension}: {shown_name(part.value)}"),
                _figure(part.before),
                _figure(part.after),
                "",
                "worse",
                f"{part.p:.2g}",
                "",
                "",
            )
    return table


def _estimate(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]" if estimate else ""


def _difference(change: tuple[float, float, float] | None) -> str:
    return "{:+.3g} [{:+.3g}, {:+.3g}]".format(*change) if change else ""


def change_line(status: MonitorStatus) -> str:
    """Return one line about a group whose state changed."""
    group, title = group_text(status.group), shown_name(status.monitor, 200)
    name = f"{title} [{group}]" if group else title
    line = f"{name}: {status.state.replace('_', ' ')}"
    if status.state == "alert" and status.episodes:
        episode = status.episodes[0]
        line += (
            f" since {clock(episode.change_ns)} UTC"
            f" (between {clock(episode.change_from_ns)} and {clock(episode.change_to_ns)})"
        )
    return line


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _baseline(status: MonitorStatus) -> str:
    learned = status.baselines.get("worse") or status.baselines.get("better")
    if learned is None or learned.baseline is None:
        return ""
    if learned.scale.limit is not None:
        return f"{'>=' if learned.scale.is_least else '<='} {learned.scale.limit:.4g}"
    return _figure(learned.scale.shown(learned.baseline.mean))


def _note(status: MonitorStatus) -> str:
    if status.episodes:
        episode = status.episodes[0]
        by = (
            f", acknowledged by {shown_name(episode.acknowledged_by)}"
            if episode.acknowledged_by
            else ""
        )
        return f"episode {episode.episode_id}{by}"
    if status.snoozed_until_ns is not None:
        return "snoozed"
    return status.progress or ("budget not promised" if status.doubts else "")
