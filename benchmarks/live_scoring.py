"""Live scoring: whether `oteval serve` scores spans as fast as they come, for as long as they come.

Agent runs of 8 spans (some 2 KB each) are sent over HTTP at 15,000 spans a second to a server with
three matches and two checks; a trace has ended two seconds after its last span. Requests are
prepared: each is one of a few, with other ids and texts. The measurement ends when the last run is
scored, and the two seconds are taken off all times. *Scored a second* counts from the first span to
the last score. *Late* is the time from the acknowledgement of a span to its score. *CPU* is that of
the server's processes and of the sender; both cores of a machine with two have 133 microseconds for
a span at this rate. Thirds are those of the work from the first span to the last score, where half
of the work on a span is done when it is acknowledged: figures that stay equal do not grow with the
store.

    python -m benchmarks.live_scoring --long       5 million spans: six minutes, if scores keep up
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from oteval.store import Store

from . import parts
from .checks import check
from .otlp_load import Load, requests
from .report import Row, below
from .served import Served, memory

FULL = {"spans": 600_000, "rate": 15_000.0}
QUICK = {"spans": 16_384, "rate": 2_000.0}
LONG_SPANS = 5_000_000

CORES, MOST_GROWTH, MOST_LATE = 2, 1.2, 10.0
# The rates that count as keeping up, and as sending at the rate.
_KEEPING_UP, _SENDING = 0.95, 0.97
_QUIET = 2.0
_REQUEST = 512
_RUN = 8
_TEMPLATES = 40
_PATIENCE = 600.0
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
# The beginnings of texts and the ids of calls: the same one must stay the same in each span.
_TEXT = re.compile(rb'(?<=["_])[0-9a-f]{16}')
_SCORED = re.compile(rb'^oteval_scores_total\{.*evaluator="errors".*\} (\S+)', re.MULTILINE)
_MATCHES: list[dict[str, Any]] = [
    {"name": "subset", "mode": "subset", "tool_args": "ignore"},
    {"name": "order", "mode": "in_order", "tool_args": "ignore"},
    {"name": "exact", "mode": "superset", "tool_args": "exact"},
]
_RULES = {
    "evaluators": [
        *({**rule, "type": "trajectory_match", "reference": "reference.json"} for rule in _MATCHES),
        {"name": "errors", "type": "tool_errors"},
        {"name": "fast", "type": "latency", "max": "60s"},
    ],
    "completion": {"quiet": f"{_QUIET}s"},
}
_REFERENCE = [
    {"role": "assistant", "tool_calls": [{"name": "get_order", "args": {"order": "1"}}]},
    {"role": "assistant", "content": "done"},
]


class Template:
    """A request that is sent many times, each time with other ids and texts."""

    def __init__(self, load: Load) -> None:
        self._body = load.body
        ids = {bytes.fromhex(text) for pair in load.spans for text in pair}
        self._ids = [
            (match.start(), int.from_bytes(span_id[:8], "little"))
            for span_id in ids
            for match in re.finditer(re.escape(span_id), self._body)
        ]
        self._texts = [(match.start(), int(match[0], 16)) for match in _TEXT.finditer(self._body)]

    def request(self, number: int) -> bytes:
        """Return the request as it is sent for the `number`-th time."""
        key = number * _GOLDEN & _MASK
        body = bytearray(self._body)
        for at, number in self._ids:
            body[at : at + 8] = (number ^ key).to_bytes(8, "little")
        for at, number in self._texts:
            body[at : at + 16] = b"%016x" % (number ^ key)
        return bytes(body)


@dataclass(frozen=True)
class Sample:
    """The state of the server at a time.

    Attributes:
        seconds: The seconds since sending began.
        sent: The spans that were acknowledged.
        scored: The spans of the runs that every evaluator has scored.
        cpu: The CPU seconds of the server.
        bytes: Its resident memory.
    """

    seconds: float
    sent: int
    scored: int
    cpu: float
    bytes: int


@dataclass
class Sender:
    """Sends requests at a rate, over four connections.

    Attributes:
        port: The server's port.
        rate: Spans a second.
        requests: How many requests are sent.
        sent: The spans that were acknowledged.
    """

    port: int
    rate: float
    requests: int
    sent: int = 0
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, templates: list[Template]) -> None:
        """Send until all requests are acknowledged."""
        self._begin = time.perf_counter()
        threads = [threading.Thread(target=self._send, args=(templates,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, templates: list[Template]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while True:
            with self._lock:
                number = self._next
                self._next += 1
            if number >= self.requests:
                break
            turn, index = divmod(number, len(templates))
            body = templates[index].request(turn + 1)
            due = self._begin + number * _REQUEST / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            while not self._is_acknowledged(connection, body):
                time.sleep(0.1)
            with self._lock:
                self.sent += _REQUEST
        connection.close()

    @staticmethod
    def _is_acknowledged(connection: http.client.HTTPConnection, body: bytes) -> bool:
        headers = {"content-type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200


class _Watch:
    """Takes samples of a server; remembers the CPU time of processes that have ended."""

    def __init__(self, server: Served, sender: Sender) -> None:
        self._server, self._sender = server, sender
        self._cpu: dict[int, float] = {}
        self._begin = time.perf_counter()
        self.samples: list[Sample] = []

    def take(self) -> Sample:
        pids = [pid for group in self._server.pids() for pid in group]
        for pid in pids:
            self._cpu[pid] = max(self._cpu.get(pid, 0.0), _cpu(pid))
        counts = _SCORED.findall(self._server.get("/metrics")[1])
        sample = Sample(
            time.perf_counter() - self._begin,
            self._sender.sent,
            _RUN * int(sum(map(float, counts))),
            sum(self._cpu.values()),
            memory(pids),
        )
        self.samples.append(sample)
        return sample


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def measure(spans: int, rate: float) -> dict[str, Any]:
    """Measure, and return the figures.

    Args:
        spans: How many spans are sent; at least 1,536.
        rate: Spans a second.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "oteval.yaml").write_text(json.dumps(_RULES))
        (folder / "reference.json").write_text(json.dumps(_REFERENCE))
        loads = requests(_TEMPLATES * _REQUEST // _RUN, _RUN, batch=_REQUEST, seed=1)
        templates = [Template(load) for load in loads]
        server = Served(folder, "--quota", "40GB")
        try:
            figures = _sustained(server, Sender(server.http, rate, spans // _REQUEST), templates)
        finally:
            server.stop()
        server.check_log()
        check_scores(server.db, figures["spans"] - figures["unscored"])
        return figures


def check_scores(database: Path, spans: int) -> None:
    """Check that each evaluator gave its verdict on each run, of which some passed.

    Args:
        database: The server's database.
        spans: How many spans were scored.

    Raises:
        CheckError: A verdict is missing, or doubled, or wrong.
    """
    with Store(database, create=False) as store:
        rows = store._connection.execute(
            "SELECT evaluator, count(DISTINCT trajectory_id), count(passed), count_if(passed) "
            "FROM scores GROUP BY evaluator"
        ).fetchall()
    runs = spans // _RUN
    passes = {"subset": 0, "order": runs, "exact": 0, "errors": runs, "fast": runs}
    expected = {name: [runs, runs, count] for name, count in passes.items()}
    counts = {name: figures for name, *figures in rows}
    check(counts == expected, f"runs, verdicts and passes are {expected}", counts)


def _sustained(server: Served, sender: Sender, templates: list[Template]) -> dict[str, Any]:
    watch = _Watch(server, sender)
    before = watch.take()
    own = time.process_time()
    thread = threading.Thread(target=sender.run, args=(templates,))
    thread.start()
    while thread.is_alive():
        thread.join(1.0)
        watch.take()
    sending = watch.samples[-1].seconds
    while (last := watch.take()).scored < last.sent and last.seconds < sending + _PATIENCE:
        time.sleep(0.5)
    own = time.process_time() - own
    total = sender.sent
    return {
        "rate": sender.rate,
        "spans": total,
        "sent": total / sending,
        "scored": last.scored / max(sending, last.seconds - _QUIET),
        "unscored": last.sent - last.scored,
        "late": max(0.0, _latest(watch.samples) - _QUIET),
        "server_us": 1e6 * (last.cpu - before.cpu) / total,
        "sender_us": 1e6 * own / total,
        "thirds": _thirds(watch.samples),
    }


def _latest(samples: list[Sample]) -> float:
    """Return the most seconds from the acknowledgement of a span to its score.

    Spans are taken to be scored in the order in which they were acknowledged.
    """
    latest, index = 0.0, 0
    for sample in samples:
        while samples[index + 1].sent <= sample.scored and index + 1 < len(samples) - 1:
            index += 1
        begin, end = samples[index], samples[index + 1]
        if sample.scored < sample.sent:
            share = (sample.scored - begin.sent) / max(1, end.sent - begin.sent)
            sent = begin.seconds + share * (end.seconds - begin.seconds)
            latest = max(latest, sample.seconds - sent)
    return latest


def _thirds(samples: list[Sample]) -> list[dict[str, float]]:
    """Return the server's CPU for a span and its memory in each third of the work."""
    done = [(sample.sent + sample.scored) / 2 for sample in samples]
    marks = [bisect_left(done, done[-1] * n / 3) for n in range(4)]
    thirds = []
    for begin, end in pairwise(marks):
        # A clock tick at least, which a short measurement may not reach.
        cpu = max(0.01, samples[end].cpu - samples[begin].cpu)
        most = max(sample.bytes for sample in samples[begin : end + 1])
        thirds.append({"us": 1e6 * cpu / max(1.0, done[end] - done[begin]), "bytes": most})
    return thirds


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    rate, thirds = figures["rate"], figures["thirds"]
    costs, sizes = ([third[name] for third in thirds] for name in ("us", "bytes"))
    cost_of_each = ", ".join(f"{cost:.0f}" for cost in costs)
    size_of_each = ", ".join(f"{size / 1e6:,.0f}" for size in sizes)
    total = figures["server_us"] + figures["sender_us"]
    return [
        _at_least(
            f"{figures['spans']:,} spans at {rate:,.0f} a second: acknowledged a second",
            figures["sent"],
            _SENDING * rate,
        ),
        _at_least("scored a second", figures["scored"], _KEEPING_UP * rate),
        below("seconds that scores are late at most", figures["late"], "{:.1f}", MOST_LATE),
        below("spans not scored at the end", figures["unscored"], "{:,}", 0),
        below("CPU microseconds a span", total, "{:.0f}", CORES * 1e6 / rate),
        Row("of these the server", f"{figures['server_us']:.0f}"),
        below(
            f"CPU a span, last third beside the first ({cost_of_each} microseconds)",
            costs[-1] / costs[0], "{:.2f}", MOST_GROWTH,
        ),
        below(
            f"memory, last third beside the first ({size_of_each} MB)",
            sizes[-1] / sizes[0], "{:.2f}", MOST_GROWTH,
        ),
    ]  # fmt: skip


def _at_least(figure: str, ours: float, limit: float) -> Row:
    """Return the row of a rate that has a lowest value."""
    return Row(figure, f"{ours:,.0f}", target=f"at least {limit:,.0f}", held=ours >= limit)


def main() -> None:
    """Measure with the number of spans that the command line names, and print the table."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--spans", type=int)
    options, rest = parser.parse_known_args()
    if options.long or options.spans:
        # `parts` imports this module anew: here it is `__main__`.
        parts.load("live_scoring").FULL["spans"] = options.spans or LONG_SPANS
    sys.argv[1:] = rest
    parts.main("live_scoring")


if __name__ == "__main__":
    main()
