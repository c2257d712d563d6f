"""Replayed sessions: tables and divergences in the terminal, JUnit XML and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..base.text import counted
from ..replays import Coverage, Divergence, VerifiedSession, WhatIfRow
from .ci_formats import JUnitCase, Outcome, junit, markdown_table
from .columns import Column, Columns, one_row
from .text import clean, short_ids

__all__ = [
    "replay_junit",
    "replay_markdown",
    "replay_summary",
    "replays_table",
    "replays_view",
    "what_if_summary",
    "what_if_table",
]

_STYLES = {"passed": "green", "not_replayed": "yellow", "unverified": "yellow"}
_FAILED = "red"
# How many sessions are shown with their divergences; --json has all of them.
_SHOWN = 20
# How many lines of an agent's output a divergence is shown with.
_OUTPUT_LINES = 10
_JUNIT: Mapping[str, Outcome] = {"not_replayed": "skipped", "diverged": "failure"}


def replays_table(sessions: Sequence[VerifiedSession]) -> Columns:
    """Return verified sessions, one a line; sessions that did not pass come last."""
    table = Columns(
        Column("session"),
        Column("result"),
        Column("fidelity", rank=1),
        Column("model calls", rank=3, right=True),
        Column("tools", rank=4, right=True),
        Column("time", rank=5, right=True),
        Column("why", rank=2, least=20, optional=True),
    )
    ids = short_ids(session.session for session in sessions)
    for session in sorted(sessions, key=_rank):
        replay = session.result
        table.add_row(
            ids[session.session],
            Text(session.status.replace("_", " "), style=_STYLES.get(session.status, _FAILED)),
            session.fidelity or "-",
            f"{replay.served}/{replay.model_calls}" if replay else "-",
            f"{replay.served_tools}/{replay.tool_calls}" if replay else "-",
            f"{session.seconds:.2f} s",
            one_row(_why(session)),
        )
    return table


def _rank(session: VerifiedSession) -> int:
    """0 for sessions that passed, so that the others are next to their divergences."""
    return 0 if session.status == "passed" else 1


def _why(session: VerifiedSession) -> str:
    """Return in one line why a session did not pass, or how it is less than a full replay."""
    if session.divergences:
        first = session.divergences[0]
        return f"{first.kind}: {first.summary}"
    if session.detail:
        return session.detail
    return session.result.reasons[0] if session.result and session.result.reasons else ""


def replays_view(sessions: Sequence[VerifiedSession]) -> RenderableType:
    """The table of verified sessions, then the divergences of failed sessions."""
    failed = [session for session in sessions if session.failed or session.status == "unverified"]
    parts: list[RenderableType] = [replays_table(sessions)]
    if lines := _answering_functions(sessions):
        parts += [Text(""), *(Text(clean(line), style="dim") for line in lines)]
    ids = short_ids(session.session for session in sessions)
    for session in failed[:_SHOWN]:
        parts += [Text(""), *_details(session, ids[session.session])]
    if len(failed) > _SHOWN:
        more = counted(len(failed) - _SHOWN, "more failed session")
        parts += [Text(""), Text(f"{more}: --json has all of them", style="dim")]
    return Group(*parts)


def _answering_functions(sessions: Sequence[VerifiedSession]) -> list[str]:
    """A line for each tool that is answered in place of one of the agent's own functions."""
    tools = {
        name: line
        for session in sessions
        if session.result
        for name, line in session.result.tools.items()
        if ".py:" in line
    }
    return [f"{name}: {line}" for name, line in tools.items()]


def _details(session: VerifiedSession, name: str) -> Iterator[RenderableType]:
    fidelity = f" (fidelity {session.fidelity})" if session.fidelity else ""
    yield Text(f"{name} {session.status.replace('_', ' ')}{fidelity}", style=f"bold {_FAILED}")
    for divergence in session.divergences:
        yield Padding(divergence_view(divergence), (0, 0, 0, 2))
    if session.detail:
        yield Text(f"  {clean(session.detail)}")
    for reason in (*session.result.unguarded, *session.result.reasons) if session.result else ():
        if reason == session.detail:
            continue
        yield Text(f"  {clean(reason)}", style="dim")
    lines = session.output.splitlines()[-_OUTPUT_LINES:]
    if lines and session.status != "diverged":
        yield Text("  the end of the agent's output:", style="dim")
        yield Padding(Text(clean("\n".join(lines)), style="dim"), (0, 0, 0, 4))


def divergence_view(divergence: Divergence) -> Text:
    """A divergence: its summary, the difference, the line of code, a suggestion."""
    head, *further_lines = clean(divergence.text()).split("\n")
    text = Text(head, style="bold")
    for line in further_lines:
        text.append("\n").append(line, style=_style(line.strip()))
    return text


def _style(line: str) -> str:
    if line.startswith(("recorded:", "-")):
        return "red"
    if line.startswith(("actual:", "+")):
        return "green"
    return "cyan" if line.startswith("at ") else "dim"


def replay_summary(sessions: Sequence[VerifiedSession]) -> str:
    """The counts in one line: ``500 sessions: 498 passed, 2 diverged (fidelity wire)``."""
    by_status = Counter(session.status for session in sessions)
    counts = ", ".join(
        f"{number} {status.replace('_', ' ')}" for status, number in by_status.most_common()
    )
    fidelities = Counter(session.fidelity for session in sessions if session.fidelity).most_common()
    fidelity_text = ", ".join(
        name if len(fidelities) == 1 else f"{number} {name}" for name, number in fidelities
    )
    head = f"{counted(len(sessions), 'session')}: {counts}"
    return f"{head} (fidelity {fidelity_text})" if fidelity_text else head


def replay_junit(sessions: Sequence[VerifiedSession]) -> str:
    """Return verified sessions as JUnit XML: one suite with a case for each session."""
    cases = [
        JUnitCase(
            name=session.session,
            outcome="" if session.status == "passed" else _JUNIT.get(session.status, "error"),
            message=_why(session) or session.status,
            text="\n\n".join(divergence.text() for divergence in session.divergences)
            or session.output,
            seconds=session.seconds,
        )
        for session in sessions
    ]
    return junit({"replay": cases})


def replay_markdown(sessions: Sequence[VerifiedSession]) -> str:
    """Return verified sessions as Markdown: counts, and a table of sessions that did not pass."""
    parts = ["# Replay", f"{replay_summary(sessions)}."]
    rows = [
        (
            session.session,
            session.status.replace("_", " "),
            session.fidelity or "-",
            _why(session),
            session.divergences[0].line if session.divergences else "",
        )
        for session in sessions
        if session.status != "passed"
    ]
    if rows:
        parts.append(markdown_table(("session", "result", "fidelity", "why", "line"), rows))
    return "\n\n".join(parts) + "\n"


def what_if_table(rows: Sequence[WhatIfRow]) -> Columns:
    """Return repeated sessions, one a line; failed sessions come last."""
    table = Columns(
        Column("session"),
        Column("result"),
        Column("coverage of tools", rank=1),
        Column("model calls", rank=2, right=True),
        Column("tool calls", rank=3, right=True),
        Column("tokens", rank=4, right=True),
        Column("why", rank=1, least=20, optional=True),
    )
    ids = short_ids(row.session for row in rows)
    for row in sorted(rows, key=lambda row: bool(row.error)):
        usage = [side.get("usage", {}) for side in (row.recorded, row.new)]
        table.add_row(
            ids[row.session],
            Text(row.status, style="red" if row.error else "green"),
            _coverage(row.coverage),
            _change([side.get("model_calls") for side in usage]),
            _change([side.get("tool_calls") for side in (row.recorded, row.new)]),
            _change([_tokens(side) for side in usage]),
            one_row(row.error or row.new.get("ended") or _note(row.coverage)),
        )
    return table


def _coverage(coverage: Coverage | None) -> Text:
    if coverage is None:
        return Text("-")
    return Text(coverage.text, style="" if coverage.is_full else "yellow")


def _note(coverage: Coverage | None) -> str:
    if coverage is None:
        return ""
    if coverage.blocked:
        return f"blocked: {coverage.blocked[0]}"
    return f"{counted(coverage.ran, 'tool call')} ran for real" if coverage.ran else ""


def _change(pair: Sequence[int | None]) -> str:
    """A recorded and a new figure as ``3 -> 4``."""
    return " -> ".join("-" if value is None else f"{value:,}" for value in pair)


def _tokens(usage: Mapping[str, Any]) -> int | None:
    total = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return total or None


def what_if_summary(rows: Sequence[WhatIfRow]) -> str:
    """The counts in one line: ``200 runs, 3 failed; tools: 390 exact, 7 missing``."""
    failed = sum(bool(row.error) for row in rows)
    total = Coverage.total(row.coverage for row in rows if row.coverage)
    partly = sum(not row.coverage.is_full for row in rows if row.coverage)
    parts = [f"{counted(len(rows), 'run')}, {failed} failed", f"tools: {total.text}"]
    if partly:
        parts.append(f"{counted(partly, 'run')} only partly covered by the recording")
    return "; ".join(parts)
