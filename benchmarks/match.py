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

The verdict of each case is checked, for both packages.

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
from functools import partial
from typing import Any

from . import parts
from .checks import FAILED, check, figures_or_failure
from .clock import run
from .report import Row, below, compared, not_measured

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
    evaluator: Callable[..., Any],
    out: Messages,
    ref: Messages,
    count: int,
    repeats: int,
    *,
    passes: bool,
) -> float:
    """Return the CPU seconds of one evaluation, the best of several repetitions.

    Args:
        evaluator: The evaluator.
        out: The output.
        ref: The reference.
        count: How many evaluations a repetition has.
        repeats: How many repetitions.
        passes: The verdict that the evaluator must give.

    Raises:
        CheckError: It gives another verdict.
    """
    best = float("inf")
    for _ in range(repeats):
        sides = [(copy.deepcopy(out), copy.deepcopy(ref)) for _ in range(count)]
        gc.collect()
        start = time.process_time()
        for outputs, reference in sides:
            result = evaluator(outputs=outputs, reference_outputs=reference)
        best = min(best, (time.process_time() - start) / count)
        check(result["score"] is passes, f"the verdict is {passes}", result["score"])
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
        ``rates`` (evaluations per CPU second as ``rate``, by ``mode/size/case``), and ``big`` with
        the ``seconds`` of the big case; ``failed`` where the verdict is wrong.
    """
    rates = {}
    for size in sizes:
        for case in CASES:
            out, ref = trajectory(size, case), trajectory(size)
            for mode in modes:
                evaluator = create(trajectory_match_mode=mode, tool_args_match_mode=arguments)
                count, passed = max(1, scale // size), passes(mode, size, case)
                measure_case = partial(
                    seconds_each, evaluator, out, ref, count, repeats, passes=passed
                )
                rates[f"{mode}/{size}/{case}"] = figures_or_failure(
                    lambda measure_case=measure_case: {"rate": 1 / measure_case()}
                )
    evaluator = create(trajectory_match_mode="unordered")
    out, ref = trajectory(BIG, "reversed"), trajectory(BIG)
    big = figures_or_failure(
        lambda: {"seconds": seconds_each(evaluator, out, ref, 1, 1, passes=True)}
    )
    return {"rates": rates, "big": big}


def passes(mode: str, size: int, case: str) -> bool:
    """Return the verdict on a case."""
    is_in_order = mode not in ("strict", "in_order") or size == 1
    return case in ("equal", "rewritten") or (case == "reversed" and is_in_order)


def measure_peer(peer: str, **arguments: Any) -> dict[str, Any]:
    """Measure agentevals in an interpreter that has it.

    Args:
        peer: The interpreter.
        **arguments: Arguments of `measure_package`.

    Raises:
        CommandError: The interpreter cannot measure it.
    """
    command = [peer, "-m", "benchmarks.match", "--measure-peer", json.dumps(arguments)]
    figures: dict[str, Any] = json.loads(run(command, environment=_QUIET).output)
    return figures


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
        ``oteval`` and ``agentevals`` as from `measure_package` (the latter None without a peer).
    """
    from oteval.evaluators import create_trajectory_match_evaluator

    ours = measure_package(create_trajectory_match_evaluator, MODES, sizes, repeats, scale)
    peer = parts.find_peer(peer)
    if peer is None:
        missing = [parts.MISSING_PEER]
        return {"oteval": ours, "agentevals": None, "missing": missing}
    theirs = measure_peer(peer, sizes=sizes, repeats=repeats, scale=peer_scale)
    return {"oteval": ours, "agentevals": theirs}


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    ours, theirs = figures["oteval"], figures["agentevals"] or {"rates": {}, "big": {}}
    table = []
    for name, case_figures in ours["rates"].items():
        mode, size, case = name.split("/")
        figure = f"{mode}, {size} calls, {case}: evaluations per CPU second"
        least = PASSING if passes(mode, int(size), case) else FAILING
        if FAILED in case_figures:
            table.append(not_measured(figure, case_figures[FAILED]))
        elif mode not in PEER_MODES:
            rate = f"{case_figures['rate']:,.0f}"
            table.append(Row(figure, rate, "agentevals has no such mode"))
        else:
            peer_figures = theirs["rates"].get(name, {})
            row = compared(
                *(figure, case_figures["rate"], peer_figures.get("rate"), "agentevals", "{:,.0f}"),
                at_least=least if size == "10" else None,
                reason=peer_figures.get(FAILED, ""),
            )
            table.append(row)
    return [*table, *_big_rows(ours["big"], theirs["big"])]


def _big_rows(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Row]:
    figure = f"{BIG:,} calls against {BIG:,} reversed, unordered, ms"
    if FAILED in ours:
        return [not_measured(figure, ours[FAILED])]
    milliseconds = ours["seconds"] * 1e3
    table = [below(figure, milliseconds, "{:,.1f}", 50)]
    if theirs:
        peer = theirs["seconds"] * 1e3 if "seconds" in theirs else None
        row = compared(
            *(figure, milliseconds, peer, "agentevals", "{:,.1f}"),
            smaller_is_better=True,
            reason=theirs.get(FAILED, ""),
        )
        table.append(row)
    return table


def _print_peer(arguments: str) -> None:
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    create = create_trajectory_match_evaluator
    print(json.dumps(measure_package(create, PEER_MODES, **json.loads(arguments))))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure-peer"]:
        _print_peer(sys.argv[2])
    else:
        parts.main("match")
