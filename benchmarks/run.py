"""Runs the benchmarks, each part in a separate process, and writes their results.

    python -m benchmarks                     all parts, into benchmarks/RESULTS.md
    python -m benchmarks ingest match        these parts: their sections there are renewed
    python -m benchmarks --quick             small sizes, a minute or two; only printed

Each section has its date and commit, and is written as soon as its part is measured. Other sections
stay as they are. The peers are agentevals (``--peer``, an interpreter that has it) and
agentevals-cli (``--peer-cli``, its command), and Phoenix for `oteval serve` (``--phoenix``). A peer
that is not here is said to be missing, in the results too. Exit status 1 when a figure could not be
measured; a target that is missed is shown and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine, parts
from benchmarks.checks import failures, figures_or_failure
from benchmarks.clock import module, run

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
_ABOUT = (
    "Ratios are of one run: how many times better oteval is than the peer or limit that was "
    "measured beside it; below 1 it is worse. A missed target has **no**, and so has a figure that "
    "could not be measured. The text under each heading says which work is measured."
)


@dataclass
class Results:
    """The results' file: facts about the machine, and a section for each part.

    Attributes:
        facts: The facts, by name.
        sections: The texts below the headings, by name of the part.
    """

    facts: dict[str, str]
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the results in a text."""
        head, *sections = text.split("\n## ")
        facts = (line[2:].partition(": ") for line in head.splitlines() if line.startswith("- "))
        named = (section.partition("\n") for section in sections)
        return cls(
            {name: value for name, _, value in facts},
            {name: section.strip() for name, _, section in named},
        )

    def __str__(self) -> str:
        others = [name for name in self.sections if name not in parts.PARTS]
        names = [name for name in (*parts.PARTS, *others) if name in self.sections]
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        sections = [f"## {name}\n\n{self.sections[name]}" for name in names]
        return "\n\n".join(["# Benchmark results", facts, _ABOUT, *sections]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks from the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parts.add_options(parser)
    parser.add_argument(
        "parts", nargs="*", metavar="NAME", help=f"parts to measure: {', '.join(parts.PARTS)}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help=f"the results' file (default: {RESULTS.name} here, without --quick)",
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(parts.PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    out = options.out or (None if options.quick else RESULTS)
    reasons: list[str] = []
    for name in options.parts or parts.PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        figures = figures_or_failure(lambda name=name: measured(name, options))
        seconds = time.monotonic() - start
        part = parts.load(name)
        table = parts.text(part, figures)
        print(f"{table}\n\n{name}: {seconds:.0f} s\n", flush=True)
        reasons += [f"{name}: {reason}" for reason in failures(figures)]
        if out is not None:
            about = (part.__doc__ or "").strip()
            renew(out, name, f"{about}\n\n{table}", seconds=seconds, is_quick=options.quick)
    print(*reasons, sep="\n", file=sys.stderr)
    return 1 if reasons else 0


def renew(out: Path, name: str, text: str, *, seconds: float, is_quick: bool = False) -> None:
    """Write one section of the results, and leave the others as they are.

    Args:
        out: The results' file.
        name: The part.
        text: Its description and its table.
        seconds: How long it took.
        is_quick: Whether the sizes were small.
    """
    facts = machine.describe()
    results = Results.parse(out.read_text("utf-8")) if out.exists() else Results(facts)
    results.sections[name] = f"- {measurement(facts, results.facts, seconds, is_quick)}\n\n{text}"
    out.write_text(str(results), "utf-8")


def measurement(
    facts: Mapping[str, str], usual: Mapping[str, str], seconds: float, is_quick: bool
) -> str:
    """Return when, on which commit and where a section was measured.

    Args:
        facts: The facts about this machine.
        usual: Those at the head of the results; only others are told.
        seconds: How long it took.
        is_quick: Whether the sizes were small.
    """
    date = datetime.now(UTC).strftime("%Y-%m-%d at %H:%M UTC")
    text = f"measured on {date} on commit {machine.commit()} in {max(1, round(seconds)):,} s"
    text += "; small sizes (--quick): figures for a first look only" if is_quick else ""
    others = (f"{name}: {value}" for name, value in facts.items() if usual.get(name) != value)
    return "; ".join([text, *others])


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return a part's figures, measured in a separate process."""
    command = module(f"benchmarks.{name}", "--json")
    command += ["--quick"] if options.quick else []
    for peer in parts.PEERS:
        value = getattr(options, peer, None)
        command += [f"--{peer.replace('_', '-')}", value] if value else []
    figures: dict[str, Any] = json.loads(run(command).output)
    return figures


if __name__ == "__main__":
    sys.exit(main())
