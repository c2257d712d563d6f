"""Matching stored trajectories in SQL: rows per CPU second of `Store.matching.match`.

The store holds trajectories of ten calls of five kinds in turn: the four cases of `match` and one
with different arguments. The clock covers the whole call, from the reference's messages to the
table of verdicts with a row per trajectory, but not filling the store. The Python evaluator gives
the expected number of passes from one trajectory of each kind, which is checked.

The peer is agentevals on trajectories of ten calls in memory, measured in the same run as in
`match`: the harmonic mean of its four cases, in the same mode.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from oteval.evaluators import create_trajectory_match_evaluator, to_messages
from oteval.model import Message, SpanRef, Trajectory, trajectory_id
from oteval.store import Store
from oteval.store.matcher import ArgumentMode, MatchMode

from . import match, parts
from .clock import Spent, median, spent
from .report import Row, compared

FULL = {"trajectories": 200_000, "repeats": 3, "peer_repeats": 3, "peer_scale": 200}
QUICK = {"trajectories": 20_000, "repeats": 1, "peer_repeats": 1, "peer_scale": 100}

CALLS = 10
AT_LEAST = 300
KINDS = (*match.CASES, "other")
_BATCH = 2000


def messages_of(number: int) -> list[dict[str, Any]]:
    """Return the messages of the stored trajectory with a number."""
    kind = KINDS[number % len(KINDS)]
    if kind != "other":
        return match.trajectory(CALLS, kind)
    messages = match.trajectory(CALLS)
    for message in messages:
        for call in message.get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"])
            arguments["city"] = f"city {number}"
            call["function"]["arguments"] = json.dumps(arguments)
    return messages


def generated(count: int) -> Iterator[Trajectory]:
    """Yield trajectories, each in a separate trace."""
    shared = {kind: _messages(at) for at, kind in enumerate(KINDS)}
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        tail = _messages(number) if kind == "other" else shared[kind]
        root = SpanRef(f"{number:032x}", f"{number:016x}")
        yield Trajectory(
            id=trajectory_id(root.trace_id, root.span_id),
            root_span=root,
            trace_ids=(root.trace_id,),
            tail=tail,
            agent="weather",
            service="weather-bot",
            start_ns=number,
            end_ns=number + 1,
        )


def _messages(number: int) -> tuple[Message, ...]:
    return tuple(to_messages(messages_of(number), "messages"))


def fill(store: Store, count: int) -> None:
    """Write trajectories to a store through its own writer."""
    held: list[Trajectory] = []
    for trajectory in generated(count):
        held.append(trajectory)
        if len(held) == _BATCH:
            store.trajectories.write(held, [one.root_span.trace_id for one in held])
            held = []
    if held:
        store.trajectories.write(held, [one.root_span.trace_id for one in held])


def expected(count: int, mode: str, arguments: str) -> int:
    """Return how many of so many trajectories pass, as the Python evaluator has it."""
    evaluator = create_trajectory_match_evaluator(
        trajectory_match_mode=mode, tool_args_match_mode=arguments
    )
    reference = match.trajectory(CALLS)
    passing = 0
    for at in range(min(count, len(KINDS))):
        found = evaluator(outputs=messages_of(at), reference_outputs=reference)
        alike = (count - at + len(KINDS) - 1) // len(KINDS)
        passing += alike if found["score"] else 0
    return passing


def match_stored(store: Store, mode: MatchMode, arguments: ArgumentMode, count: int) -> Spent:
    """Match all trajectories of a store and return its cost."""
    reference = _messages(0)
    with spent() as cost:
        verdicts = store.matching.match(reference, mode, arguments)
    assert verdicts.num_rows == count
    passed = sum(verdicts.column("passed").to_pylist())
    wanted = expected(count, mode, arguments)
    assert passed == wanted, f"{mode}, {arguments}: {passed} pass, {wanted} should"
    return cost


def measure(
    *,
    trajectories: int,
    repeats: int,
    peer_repeats: int,
    peer_scale: int,
    peer: str | None = None,
) -> dict[str, Any]:
    """Measure matching in SQL, and agentevals where an interpreter has it.

    Args:
        trajectories: How many the store holds.
        repeats: How often each query is measured.
        peer_repeats: How often each of the peer's cases is measured.
        peer_scale: How many calls such a repetition compares.
        peer: The interpreter; by default this one, if it has agentevals.

    Returns:
        ``trajectories``; ``rates`` with the rows per CPU second by ``mode/arguments``; ``wall``
        with the same per second on the wall; ``peer`` with the peer's rates, None without one.
    """
    found: dict[str, Any] = {"trajectories": trajectories, "rates": {}, "wall": {}, "peer": None}
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "t.duckdb") as store:
        fill(store, trajectories)
        match_stored(store, "strict", "exact", trajectories)
        for arguments in get_args(ArgumentMode):
            for mode in get_args(MatchMode):
                costs = [match_stored(store, mode, arguments, trajectories) for _ in range(repeats)]
                cost, name = median(costs), f"{mode}/{arguments}"
                found["rates"][name] = trajectories / cost.cpu
                found["wall"][name] = trajectories / cost.wall
    peer = parts.find_peer(peer)
    if peer is None:
        return {**found, "missing": [parts.MISSING_PEER]}
    found["peer"] = {}
    for arguments in get_args(ArgumentMode):
        theirs = match.measure_peer(
            peer, sizes=[CALLS], repeats=peer_repeats, scale=peer_scale, arguments=arguments
        )["rates"]
        for mode in match.PEER_MODES:
            cases = [theirs[f"{mode}/{CALLS}/{case}"] for case in match.CASES]
            found["peer"][f"{mode}/{arguments}"] = statistics.harmonic_mean(cases)
    return found


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for name, rate in found["rates"].items():
        mode, arguments = name.split("/")
        figure = f"{mode}, {arguments} arguments: rows per CPU second"
        if mode not in match.PEER_MODES:
            out.append(Row(figure, f"{rate:,.0f}", "agentevals has no such mode"))
            continue
        other = (found["peer"] or {}).get(name)
        out.append(compared(figure, rate, other, "agentevals", "{:,.0f}", at_least=AT_LEAST))
    return out


if __name__ == "__main__":
    parts.main("stored_matching")
