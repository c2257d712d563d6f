"""Trajectory matching against agentevals: evaluations per CPU second, in one run.

Both packages see the same trajectories (a user's message, then for each call an assistant message
with JSON-text arguments and a tool message, then an answer), the peer in its own interpreter on
the same machine. Time is CPU time of the process, the best of several repetitions, so that other
load counts little. agentevals changes the messages it is given: every evaluation of either
package gets copies that are made before the clock starts and used once.

For each size and mode there are four cases, by the reference of the comparison:

- ``equal``: the same trajectory again.
- ``reversed``: the calls in reverse order; strict says no to it.
- ``rewritten``: the same arguments as other JSON text, keys in another order.
- ``differs``: one argument of the last call is another; every mode says no to it.

The big case is one unordered match of 2,000 calls against the same in reverse. agentevals has
no in_order; oteval's is shown without a ratio.

    python -m benchmarks.match --peer PYTHON      an interpreter that has agentevals
    python -m benchmarks.match --json             one JSON object in place of the table

The peer's interpreter runs this file too, so that it imports nothing but the standard library
until it knows which package to measure.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import parts
from .clock import run
from .report import Row, below, compared

MODES = ("strict", "unordered", "subset", "superset", "in_order")
SIZES = (3, 10, 40)
CASES = ("equal", "reversed", "rewritten", "differs")
BIG = 2_000
PEER_MODES = MODES[:4]
# How many times agentevals' rate is wanted at ten calls.
PASSING, FAILING = 40, 30

FULL = {"sizes": SIZES, "repeats": 7, "scale": 4000, "peer_scale": 200}
QUICK = {"sizes": (10,), "repeats": 3, "scale": 1000, "peer_scale": 100}

_QUIET = {"LANGSMITH_TRACING": "false", "LANGSMITH_TEST_TRACKING": "false"}

Messages = list[dict[str, Any]]
Factory = Callable[..., Any]


def trajectory(count: int, case: str = "equal") -> Messages:
    """Return a trajectory of so many calls, each in a separate message."""
    order = range(count - 1, -1, -1) if case == "reversed" else range(count)
    messages: Messages = [{"role": "user", "content": "What will the weather be?"}]
    for call in order:
        day = -1 if case == "differs" and call == count - 1 else call
        arguments: dict[str, Any] = {"city": "San Francisco", "day": day, "units": "metric"}
        if case == "rewritten":
            arguments = dict(reversed(arguments.items()))
        function = {"name": f"tool_{call % 4}", "arguments": json.dumps(arguments)}
        calls = [{"id": f"call_{call}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{call}", "content": "It is sunny."})
    messages.append({"role": "assistant", "content": "It will be sunny."})
    return messages


def seconds_each(
    evaluator: Callable[..., Any], out: Messages, ref: Messages, count: int, repeats: int
) -> float:
    """Return the CPU seconds of one evaluation, the best of several repetitions of `count`."""
    best = float("inf")
    for _ in range(repeats):
        sides = [(copy.deepcopy(out), copy.deepcopy(ref)) for _ in range(count)]
        gc.collect()
        start = time.process_time()
        for outputs, reference in sides:
            evaluator(outputs=outputs, reference_outputs=reference)
        best = min(best, (time.process_time() - start) / count)
    return best


def measure_package(
    create: Factory,
    modes: Sequence[str],
    sizes: Sequence[int],
    repeats: int,
    scale: int,
    arguments: str = "exact",
) -> dict[str, Any]:
    """Measure one package.

    Args:
        create: Its ``create_trajectory_match_evaluator``.
        modes: The trajectory modes it has.
        sizes: How many calls the trajectories have.
        repeats: How often each is measured.
        scale: How many calls a repetition compares; the more, the finer the clock.
        arguments: How arguments are compared.

    Returns:
        Evaluations per CPU second by ``mode/size/case``, and the big case's seconds.
    """
    rates = {}
    for size in sizes:
        for case in CASES:
            out, ref = trajectory(size, case), trajectory(size)
            for mode in modes:
                evaluator = create(trajectory_match_mode=mode, tool_args_match_mode=arguments)
                seconds = seconds_each(evaluator, out, ref, max(1, scale // size), repeats)
                rates[f"{mode}/{size}/{case}"] = 1 / seconds
    evaluator = create(trajectory_match_mode="unordered")
    big = trajectory(BIG, "reversed"), trajectory(BIG)
    start = time.process_time()
    evaluator(outputs=big[0], reference_outputs=big[1])
    return {"rates": rates, "big_s": time.process_time() - start}


def measure_peer(peer: str, **wanted: Any) -> dict[str, Any]:
    """Measure agentevals in an interpreter that has it.

    Args:
        peer: The interpreter.
        **wanted: Arguments of `measure_package`.

    Raises:
        CommandError: The interpreter cannot measure it.
    """
    command = [peer, "-m", "benchmarks.match", "--measure-peer", json.dumps(wanted)]
    found: dict[str, Any] = json.loads(run(command, environment=_QUIET).output)
    return found


def measure(
    *,
    sizes: Sequence[int],
    repeats: int,
    scale: int,
    peer_scale: int,
    peer: str | None = None,
) -> dict[str, Any]:
    """Measure oteval, and agentevals where an interpreter has it.

    Args:
        sizes: How many calls the trajectories have.
        repeats: How often each is measured.
        scale: How many calls a repetition of oteval compares.
        peer_scale: How many calls one of agentevals compares.
        peer: The interpreter; by default this one, if it has agentevals.

    Returns:
        ``oteval`` and ``agentevals`` as from `measure_package` (the latter None without a peer),
        and ``ratios`` by ``mode/size/case``, with ``big`` for the big case.
    """
    from oteval.evaluators import create_trajectory_match_evaluator

    ours = measure_package(create_trajectory_match_evaluator, MODES, sizes, repeats, scale)
    peer = parts.find_peer(peer)
    if peer is None:
        missing = [parts.MISSING_PEER]
        return {"oteval": ours, "agentevals": None, "ratios": {}, "missing": missing}
    theirs = measure_peer(peer, sizes=sizes, repeats=repeats, scale=peer_scale)
    ratios = {name: ours["rates"][name] / rate for name, rate in theirs["rates"].items()}
    ratios["big"] = theirs["big_s"] / ours["big_s"]
    return {"oteval": ours, "agentevals": theirs, "ratios": ratios}


def _passes(mode: str, case: str) -> bool:
    return case in ("equal", "rewritten") or (case == "reversed" and mode != "strict")


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    theirs = found["agentevals"]["rates"] if found["agentevals"] else {}
    out = []
    for name, rate in found["oteval"]["rates"].items():
        mode, size, case = name.split("/")
        figure = f"{mode}, {size} calls, {case}: evaluations per CPU second"
        if mode not in PEER_MODES:
            out.append(Row(figure, f"{rate:,.0f}", "agentevals has no such mode"))
            continue
        least = (PASSING if _passes(mode, case) else FAILING) if size == "10" else None
        out.append(
            compared(figure, rate, theirs.get(name), "agentevals", "{:,.0f}", at_least=least)
        )
    big = found["oteval"]["big_s"] * 1e3
    figure = f"{BIG:,} calls against {BIG:,} reversed, unordered, ms"
    out.append(below(figure, big, "{:,.1f}", 50))
    if found["agentevals"]:
        peer = found["agentevals"]["big_s"] * 1e3
        out.append(compared(figure, big, peer, "agentevals", "{:,.1f}", smaller_is_better=True))
    return out


def _print_peer(wanted: str) -> None:
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    found = measure_package(create_trajectory_match_evaluator, PEER_MODES, **json.loads(wanted))
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure-peer"]:
        _print_peer(sys.argv[2])
    else:
        parts.main("match")
