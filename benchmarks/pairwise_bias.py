"""How often a biased judge calls one of two equal systems better, asked in one order and in both.

Two systems are equal by construction. The judge is scripted: of two outputs it prefers the one
shown first with probability 0.5 + bias, whatever they are, and never says that they are alike.
Each simulated comparison asks it about every example by way of `evaluate_comparative`, as a user
would, and takes the p-value that the result shows. Of equal systems no more than 5% of
comparisons should be significant at .05. No clock is involved, and no peer.

    python -m benchmarks.pairwise_bias           exit status 1 when both orders exceed 6%
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

from oteval.scoring.experiments import (
    Dataset,
    Example,
    Experiment,
    ExperimentResults,
    ResultRow,
    Run,
)
from oteval.scoring.experiments.comparative import aevaluate_comparative
from oteval.store import Store

from . import parts
from .checks import FAILED, check, figures_or_failure
from .report import Row, below

FULL = {"comparisons": 1000, "examples": 100, "bias": 0.10}
QUICK = {"comparisons": 60, "examples": 100, "bias": 0.10}

ALPHA = 0.05
LIMIT = 0.06


def measure(*, comparisons: int, examples: int, bias: float, seed: int = 1) -> dict[str, Any]:
    """Simulate comparisons of equal systems.

    Args:
        comparisons: How many.
        examples: How many examples each has.
        bias: The increase in the probability of preference by being shown first, 0 to 0.5.
        seed: Makes the simulation repeatable.

    Returns:
        ``fixed`` and ``both``: the share significant at .05 when the judge is asked in one order
        and in both; ``flips``: the mean flip rate that both orders show; and the sizes.
    """
    return asyncio.run(_measure(comparisons, examples, bias, seed))


async def _measure(comparisons: int, examples: int, bias: float, seed: int) -> dict[str, Any]:
    systems = [_system(name, examples) for name in ("a", "b")]
    chance = random.Random(seed)
    orders: Counter[tuple[str, ...]] = Counter()

    async def judge(outputs: list[Any]) -> list[float]:
        orders[tuple(outputs)] += 1
        first = chance.random() < 0.5 + bias
        return [float(first), float(not first)]

    significant = {"fixed": 0, "both": 0}
    flips = 0.0
    for _ in range(comparisons):
        with Store() as store:
            for order in significant:
                results = await aevaluate_comparative(
                    systems, [judge], order=order, store=store, max_concurrency=1, timeout=None
                )
                (pair,) = results.pairs()
                significant[order] += pair.p_value <= ALPHA
                flips += pair.flip_rate or 0.0
    # In one order once, and once in each of both.
    expected = 3 * comparisons * examples
    check(orders.total() == expected, f"the judge is asked {expected:,} times", orders)
    check(len(orders) == 2, "the judge sees the outputs in two orders", list(orders))
    shares = {order: count / comparisons for order, count in significant.items()}
    sizes = {"comparisons": comparisons, "examples": examples, "bias": bias}
    return {**shares, "flips": flips / comparisons, **sizes}


def _system(name: str, examples: int) -> ExperimentResults:
    data = tuple(Example(str(number), number) for number in range(examples))
    rows = tuple(
        ResultRow(Run(f"{name}{example.id}", name, example.id, outputs=name), example)
        for example in data
    )
    return ExperimentResults(Experiment(name, name), Dataset("equal", data), rows)


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    about = f"{figures['comparisons']} comparisons of {figures['examples']} examples, "
    about += f"bias +{figures['bias']:.2f}"
    return [
        Row(f"significant at .05, fixed order ({about})", f"{figures['fixed']:.1%}"),
        below("significant at .05, both orders", figures["both"], "{:.1%}", LIMIT),
        Row("flip rate shown", f"{figures['flips']:.1%}"),
    ]


def main() -> int:
    """Run the simulation from the command line and return the exit status."""
    arguments = sys.argv[1:]
    sizes = QUICK if "--quick" in arguments else FULL
    figures = figures_or_failure(lambda: measure(**sizes))
    if "--json" in arguments:  # the whole run shows a target that is missed, and goes on
        print(json.dumps(figures))
        return 0
    print(parts.text(sys.modules[__name__], figures))
    if FAILED in figures:
        return 1
    return 0 if figures["both"] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
