"""SIGKILLs of `oteval serve` under load: is every acknowledged span stored once, and scored once?

    python -m benchmarks.serve_kills                 20 kills of each process
    python -m benchmarks.serve_kills --kills 3       fewer
    python -m benchmarks.serve_kills --part storage  of one of them: listener, storage or decoder

Sends agent runs, and repeats requests that were not acknowledged, while the listening, the storage
and the decoder process are killed at random moments; the first is restarted as a service manager
would. Exit status 1 when anything acknowledged is missing or double, or scores are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.checks import check
from benchmarks.otlp_load import Sent
from benchmarks.served import Served, Sink, until
from benchmarks.under_load import RUN, fate_of, loaded
from oteval.store import Store

__all__ = ["Outcome", "survive"]

PARTS = ("listener", "storage", "decoder")
RULES = """
evaluators:
  - {name: tools, type: tool_errors}
  - {name: fast, type: latency, max: 60s}
completion: {quiet: 1s}
"""


@dataclass
class Outcome:
    """The findings after the kills.

    Attributes:
        kills: How many there were.
        acknowledged: Spans that were acknowledged.
        missing: Acknowledged spans that are not stored.
        double: Spans that are stored more than once.
        trajectories: Runs all of whose spans were acknowledged.
        unscored: Scores that they lack.
        scored_twice: Scores that they have more than once.
        not_forwarded: Acknowledged spans that were not sent on.
        forwarded_unscored: Runs whose root was sent on without its scores: they were not scored
            within the deadline (30 s) of the time in which the server ran.
    """

    kills: int = 0
    acknowledged: int = 0
    missing: int = 0
    double: int = 0
    trajectories: int = 0
    unscored: int = 0
    scored_twice: int = 0
    not_forwarded: int = 0
    forwarded_unscored: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether all is as it must be."""
        wrong = (self.missing, self.double, self.unscored, self.scored_twice, self.not_forwarded)
        return not any(wrong)


def survive(folder: Path, parts: Sequence[str], *, rate: float = 2000, seed: int = 0) -> Outcome:
    """Kill processes of a server under load, one after the other, and compare the stored spans.

    Args:
        folder: Where the database is.
        parts: The processes to kill, in this order.
        rate: Spans a second.
        seed: Of the moments.
    """
    (folder / "oteval.yaml").write_text(RULES)
    chance = random.Random(seed)
    sink = Sink()
    server = Served(folder, "--forward", sink.url)
    server.stop()
    server.start()  # the ports are known now, and stay
    try:
        with loaded(server, rate, seed) as total:
            for part in parts:
                time.sleep(chance.uniform(0.2, 1.2))
                server.kill(part)
            time.sleep(0.5)
        server.drained()
        until(lambda: not server.state()["scoring"]["open_traces"], 60)
        acknowledged = set(total.acknowledged)
        check(acknowledged, "spans are acknowledged")
        with suppress(TimeoutError):
            until(lambda: not acknowledged - sink.spans.keys(), 60)
        time.sleep(1.0)
    finally:
        server.stop()
        sink.close()
    outcome = _compare(folder / "traces.duckdb", total, len(parts))
    outcome.not_forwarded = len(acknowledged - sink.spans.keys())
    scored = {trace for trace, _ in sink.scored}
    outcome.forwarded_unscored = len({trace for trace, _ in acknowledged} - scored)
    return outcome


def _compare(path: Path, sent: Sent, kills: int) -> Outcome:
    fate = fate_of(path, sent)
    with Store(path) as store:
        scores: Counter[tuple[str, str]] = Counter()
        for batch in store.scores.export():
            table = batch.select(["trace_id", "evaluator"]).to_pydict()
            scores.update(zip(table["trace_id"], table["evaluator"], strict=True))
    acknowledged = set(sent.acknowledged)
    whole = [trace for trace, n in Counter(t for t, _ in acknowledged).items() if n == RUN]
    keys = [(trace, name) for trace in whole for name in ("tools", "fast")]
    return Outcome(
        kills=kills,
        acknowledged=fate.acknowledged,
        missing=fate.missing,
        double=fate.doubled,
        trajectories=len(whole),
        unscored=sum(1 for key in keys if not scores[key]),
        scored_twice=sum(1 for key in keys if scores[key] > 1),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, print the findings, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each process")
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="of which; of all by default"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args(arguments)
    status = 0
    for part in options.part or PARTS:
        with tempfile.TemporaryDirectory() as name:
            outcome = survive(Path(name), [part] * options.kills, seed=options.seed)
        print(json.dumps({"killed": part, **asdict(outcome)}))
        status = status or int(not outcome.is_sound)
    return status


if __name__ == "__main__":
    sys.exit(main())
