"""How well a match agrees with the reward, on real sessions whose outcome is known.

Each session of the airline sample is matched with the actions that its task asks for, and the
verdict is compared with ``reward == 1``. The reference is one assistant message that holds those
actions as calls, the output the session's messages as they are.

    python benchmarks/sessions_table.py ../shared/sessions

Prints a line for each recipe: accuracy, phi (the correlation of two yes/no answers), and how often
verdict and reward were yes/yes, yes/no, no/yes and no/no (TP, FP, FN, TN).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oteval.evaluators import create_trajectory_match_evaluator

SAMPLE = "tau_airline_gpt4o.sample.jsonl.gz"
WRITES = [
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
]
RECIPES: dict[str, dict[str, Any]] = {
    "raw messages, superset, exact arguments": {"trajectory_match_mode": "superset"},
    "all calls, unordered": {"trajectory_match_mode": "unordered"},
    "writes only, superset": {"trajectory_match_mode": "superset", "view": "writes"},
    "writes only, unordered": {"trajectory_match_mode": "unordered", "view": "writes"},
    "writes whose result was no error, unordered": {
        "trajectory_match_mode": "unordered",
        "view": "effects",
    },
}


class Agreement(NamedTuple):
    """Counts of verdicts by reward."""

    tp: int
    fp: int
    fn: int
    tn: int

    @property
    def accuracy(self) -> float:
        """The share of sessions on which the two agree."""
        return (self.tp + self.tn) / sum(self)

    @property
    def phi(self) -> float:
        """The correlation of the two."""
        tp, fp, fn, tn = self
        scale = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        return (tp * tn - fp * fn) / scale if scale else 0.0

    def row(self, recipe: str) -> str:
        """Return the line of the table."""
        accuracy, phi = (f"{value:.3f}".removeprefix("0") for value in (self.accuracy, self.phi))
        return f"| {recipe} | {accuracy} | {phi} | {self.tp} {self.fp} {self.fn} {self.tn} |"


def load(folder: Path) -> list[dict[str, Any]]:
    """Return the sessions of the airline sample."""
    with gzip.open(folder / SAMPLE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def agreement(sessions: list[dict[str, Any]], **options: Any) -> Agreement:
    """Match every session and count how verdict and reward go together.

    Args:
        sessions: The sessions, as from `load`.
        **options: Arguments of `create_trajectory_match_evaluator`.

    Returns:
        The four counts.
    """
    evaluator = create_trajectory_match_evaluator(effect_tools=WRITES, **options)
    counts = {(verdict, solved): 0 for verdict in (True, False) for solved in (True, False)}
    for session in sessions:
        calls = [{"name": a["name"], "args": a["arguments"]} for a in session["reference"]]
        result = evaluator(
            outputs=session["messages"],
            reference_outputs=[{"role": "assistant", "tool_calls": calls}],
        )
        counts[result["score"], session["reward"] == 1] += 1
    return Agreement(
        *(counts[key] for key in ((True, True), (True, False), (False, True), (False, False)))
    )


def table(folder: Path) -> list[str]:
    """Return the table's rows for the sample in a folder."""
    sessions = load(folder)
    return [agreement(sessions, **options).row(name) for name, options in RECIPES.items()]


def main() -> None:
    """Print the table from the command line."""
    parser = argparse.ArgumentParser(description="Agreement of matches with the reward.")
    parser.add_argument("folder", type=Path, help=f"the folder that holds {SAMPLE}")
    print("| recipe | accuracy | phi | TP FP FN TN |", "|---|---|---|---|", sep="\n")
    print(*table(parser.parse_args().folder), sep="\n")


if __name__ == "__main__":
    main()
