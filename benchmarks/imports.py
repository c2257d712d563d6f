"""CPU time of importing the package, less that of starting the interpreter.

Each figure is the CPU time of ``python -c "..."`` from start to end, the median of several, less
the median of ``python -c pass`` of the same interpreter, all in turns. The files are in the page
cache and compiled: one start of each comes before the clock.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from . import parts
from .checks import check
from .clock import alternate, run
from .report import Row, compared

FULL = {"repeats": 9}
QUICK = {"repeats": 3}

AT_LEAST = 10
OURS = {
    "import": "import oteval",
    "match": "from oteval.evaluators import create_trajectory_match_evaluator",
}
THEIRS = "from agentevals.trajectory.match import create_trajectory_match_evaluator"
_PRINT = "import sys; print(*sys.modules)"
_QUIET = {"LANGSMITH_TRACING": "false"}


def measure(*, repeats: int, peer: str | None = None) -> dict[str, Any]:
    """Measure imports.

    Args:
        repeats: How often each is started.
        peer: An interpreter with agentevals; by default this one, if it has it.

    Returns:
        CPU seconds: ``import`` (``import oteval``), ``match`` (importing the evaluator's factory
        from it) and ``peer`` (importing that of agentevals, None without one); ``bare`` is the
        interpreter alone, which the others are less.
    """
    peer = parts.find_peer(peer)
    commands = {"bare": [sys.executable, "-c", "pass"]}
    commands |= {name: [sys.executable, "-c", code] for name, code in OURS.items()}
    if peer is not None:
        commands["peer_bare"] = [peer, "-c", "pass"]
        commands["peer"] = [peer, "-c", THEIRS]
    works = {name: partial(run, command, environment=_QUIET) for name, command in commands.items()}
    for name, command in commands.items():
        code = f"{command[-1]}\n{_PRINT}"
        modules = run([*command[:-1], code], environment=_QUIET).output.split()
        package = {"import": "oteval", "match": "oteval.evaluators", "peer": "agentevals"}.get(name)
        check(package is None or package in modules, f"{command[-1]!r} imports {package}")
        works[name]()
    costs = {name: cost.cpu for name, cost in alternate(repeats, **works).items()}
    figures: dict[str, Any] = {"bare": costs["bare"], "peer": None}
    figures |= {name: max(0.0, costs[name] - costs["bare"]) for name in OURS}
    if peer is None:
        return {**figures, "missing": [parts.MISSING_PEER]}
    figures["peer"] = costs["peer"] - costs["peer_bare"]
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = [Row("the interpreter alone, CPU ms", f"{figures['bare'] * 1e3:,.0f}")]
    peer = None if figures["peer"] is None else figures["peer"] * 1e3
    for name, code in OURS.items():
        out.append(
            compared(
                f"`{code}`, CPU ms",
                max(figures[name] * 1e3, 0.1),
                peer,
                "agentevals",
                "{:,.1f}",
                at_least=AT_LEAST,
                smaller_is_better=True,
            )
        )
    return out


if __name__ == "__main__":
    parts.main("imports")
