"""Runs the benchmarks, each part in a separate process, and writes their results.

    python -m benchmarks                     all parts, into benchmarks/RESULTS.md
    python -m benchmarks --quick             small sizes, a minute or two
    python -m benchmarks --only ingest       one part (may be repeated), only printed

The peers are agentevals (``--peer``, an interpreter that has it) and agentevals-cli
(``--peer-cli``, its command), and Phoenix for `oteval serve` (``--phoenix``). A peer that is not
here is said to be missing, in the results too. Exit status 1 when a part could not be measured; a
target that is missed is shown and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import machine, parts
from benchmarks.clock import CommandError, module, run

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
_ABOUT = (
    "Ratios are of this run: how many times better oteval is than the peer or limit that was "
    "measured beside it; below 1 it is worse. A missed target has **no**. The text "
    "under each heading says which work is measured."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks from the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parts.add_options(parser)
    parser.add_argument(
        "--only", action="append", choices=parts.PARTS, help="this part; may be repeated"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help=f"the results' file (default: {RESULTS.name} here, if all parts run)",
    )
    options = parser.parse_args(arguments)
    sections, failed = [], []
    for name in options.only or parts.PARTS:
        try:
            sections.append(section(name, options))
        except CommandError as error:
            failed.append(name)
            sections.append(f"## {name}\n\nCould not be measured: {error}")
            print(f"{name}: {error}", file=sys.stderr)
    out = options.out or (None if options.only else RESULTS)
    if out is not None:
        sections += other_sections(out.read_text("utf-8")) if out.exists() else []
        out.write_text("\n\n".join([*heading(options.quick), *sections]) + "\n", "utf-8")
        print(f"written to {out}", file=sys.stderr)
    return 1 if failed else 0


def other_sections(results: str) -> list[str]:
    """Return the sections of results that no part measures, as that of `benchmarks.fidelity`."""
    texts = (f"## {text.strip()}" for text in results.split("\n## ")[1:])
    return [text for text in texts if text.splitlines()[0][3:] not in parts.PARTS]


def section(name: str, options: argparse.Namespace) -> str:
    """Measure a part in a separate process and return its section of the results."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    found = measured(name, options)
    part = parts.load(name)
    table = parts.text(part, found)
    print(f"{table}\n\n{name}: {time.monotonic() - start:.0f} s\n", flush=True)
    return f"## {name}\n\n{(part.__doc__ or '').strip()}\n\n{table}"


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return a part's figures, measured in a separate process."""
    command = module(f"benchmarks.{name}", "--json")
    command += ["--quick"] if options.quick else []
    for name in ("peer", "peer_cli", "phoenix"):
        value = getattr(options, name, None)
        command += [f"--{name.replace('_', '-')}", value] if value else []
    found: dict[str, Any] = json.loads(run(command).output)
    return found


def heading(quick: bool) -> list[str]:
    """Return the first paragraphs of the results: when, where, and how to read them."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {"date": date, "commit": machine.commit(), **machine.describe()}
    if quick:
        facts["sizes"] = "small (--quick): figures for a first look only"
    return ["# Benchmark results", "\n".join(f"- {k}: {v}" for k, v in facts.items()), _ABOUT]


if __name__ == "__main__":
    sys.exit(main())
