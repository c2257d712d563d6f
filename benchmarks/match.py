"""Trajectory matching against agentevals: evaluations per CPU second, in one run.

Both packages see the same trajectories (a user's message, then for each call an assistant message
with JSON-text arguments and a tool message, then an answer), the peer in its own interpreter on
the same machine. Time is CPU time of the process, the best of several repetitions, so that other
load counts little. agentevals changes the messages it is given: every evaluation of either
package gets copies that are made before the clock starts and used once.

For each size and mode there are four cases, by what the output is compared with:

- ``equal``: the same trajectory again.
- ``reversed``: the calls in reverse order; strict says no to it.
- ``rewritten``: the same arguments as other JSON text, keys in another order.
- ``differs``: one argument of the last call is another.

The big case is one unordered match of 2,000 calls against the same in reverse. agentevals has
no in_order; oteval's is shown without a ratio.

    python benchmarks/match.py --peer PYTHON      an interpreter that has agentevals
    python benchmarks/match.py --json             one JSON object in place of the table
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODES = ("strict", "unordered", "subset", "superset", "in_order")
SIZES = (3, 10, 40)
CASES = ("equal", "reversed", "rewritten", "differs")
BIG = 2_000
REPEATS = 7

Messages = list[dict[str, Any]]
Factory = Callable[..., Any]


def trajectory(count: int, case: str = "equal") -> Messages:
    """Return a trajectory of so many calls, each in a message of its own."""
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


def seconds_each(evaluator: Callable[..., Any], out: Messages, ref: Messages, count: int) -> float:
    """Return the CPU seconds of one evaluation, the best of several repetitions of `count`."""
    best = float("inf")
    for _ in range(REPEATS):
        sides = [(copy.deepcopy(out), copy.deepcopy(ref)) for _ in range(count)]
        gc.collect()
        start = time.process_time()
        for outputs, reference in sides:
            evaluator(outputs=outputs, reference_outputs=reference)
        best = min(best, (time.process_time() - start) / count)
    return best


def measure_package(create: Factory, modes: tuple[str, ...], scale: int) -> dict[str, Any]:
    """Measure one package.

    Args:
        create: Its ``create_trajectory_match_evaluator``.
        modes: The trajectory modes it has.
        scale: How many calls a repetition compares; the more, the finer the clock.

    Returns:
        Evaluations per CPU second by ``mode/size/case``, and the big case's seconds.
    """
    rates = {}
    for size in SIZES:
        for case in CASES:
            out, ref = trajectory(size, case), trajectory(size)
            for mode in modes:
                evaluator = create(trajectory_match_mode=mode)
                seconds = seconds_each(evaluator, out, ref, max(1, scale // size))
                rates[f"{mode}/{size}/{case}"] = 1 / seconds
    evaluator = create(trajectory_match_mode="unordered")
    big = trajectory(BIG, "reversed"), trajectory(BIG)
    start = time.process_time()
    evaluator(outputs=big[0], reference_outputs=big[1])
    return {"rates": rates, "big_s": time.process_time() - start}


def measure(peer: str | None = None) -> dict[str, Any]:
    """Measure oteval, and agentevals where an interpreter has it.

    Args:
        peer: That interpreter; by default this one, if it has agentevals.

    Returns:
        ``oteval`` and ``agentevals`` as from `measure_package` (the latter None without a peer),
        and ``ratios`` by ``mode/size/case``, with ``big`` for the big case.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from oteval.evaluate import create_trajectory_match_evaluator

    ours = measure_package(create_trajectory_match_evaluator, MODES, 4000)
    theirs = _measure_peer(peer)
    ratios = {}
    if theirs is not None:
        ratios = {name: ours["rates"][name] / rate for name, rate in theirs["rates"].items()}
        ratios["big"] = theirs["big_s"] / ours["big_s"]
    return {"oteval": ours, "agentevals": theirs, "ratios": ratios}


def _measure_peer(peer: str | None) -> dict[str, Any] | None:
    if peer is None:
        if importlib.util.find_spec("agentevals") is None:
            return None
        peer = sys.executable
    quiet = {"LANGSMITH_TRACING": "false", "LANGSMITH_TEST_TRACKING": "false"}
    done = subprocess.run(
        [peer, str(Path(__file__).resolve()), "--measure-peer"],
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{peer} cannot measure agentevals: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(found: dict[str, Any]) -> str:
    """Return the figures for people to read."""
    lines = [f"{'mode':<10} {'calls':>5} {'case':<10} {'oteval/s':>10} {'peer/s':>8} {'ratio':>7}"]
    theirs = found["agentevals"]["rates"] if found["agentevals"] else {}
    for name, rate in found["oteval"]["rates"].items():
        mode, size, case = name.split("/")
        peer = f"{theirs[name]:8,.0f} {found['ratios'][name]:6.1f}x" if name in theirs else ""
        lines.append(f"{mode:<10} {size:>5} {case:<10} {rate:>10,.0f} {peer}")
    big = f"unordered, {BIG} calls against {BIG} reversed: {found['oteval']['big_s'] * 1e3:.1f} ms"
    if found["agentevals"]:
        big += f" (agentevals {found['agentevals']['big_s'] * 1e3:,.0f} ms)"
    return "\n".join([*lines, "", big])


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description="Measure matching against agentevals.")
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has agentevals")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--measure-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_peer:
        from agentevals.trajectory.match import create_trajectory_match_evaluator

        print(json.dumps(measure_package(create_trajectory_match_evaluator, MODES[:4], 200)))
        return
    found = measure(options.peer)
    print(json.dumps(found) if options.json else table(found))


if __name__ == "__main__":
    main()
