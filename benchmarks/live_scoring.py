"""Live scoring: whether `oteval serve` scores spans as fast as they come, for as long as they come.

Agent runs of 8 spans (some 2 KB each) are sent over HTTP at 15,000 spans a second to a server with
three matches and two checks; a trace has ended two seconds after its last span. Requests are
prepared: each is one of a few, with other ids, times and texts. *CPU* is that of all processes of
the server from the first request until the last score, beside that of the sender; both cores of a
machine with two have 133 microseconds for a span at this rate. *Behind* is how long the scores are
behind the acknowledged spans, by their number, without the two seconds. Thirds are thirds of the
time of sending: figures that stay equal do not grow with the store.

    python -m benchmarks.live_scoring --spans 5000000        some six minutes
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import parts
from .otlp_load import Load, requests
from .report import Row, below
from .served import Served, memory

FULL = {"spans": 600_000, "rate": 15_000.0}
QUICK = {"spans": 16_384, "rate": 2_000.0}

CORES, MOST_GROWTH, MOST_BEHIND = 2, 1.2, 10.0
_QUIET = 2.0
_REQUEST = 512
_RUN = 8
_TEMPLATES = 40
_PATIENCE = 600.0
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_TEXT = re.compile(rb'"content": "|"order": "')
_SCORED = re.compile(rb'^oteval_scores_total\{.*evaluator="errors".*\} (\S+)', re.MULTILINE)
_MATCHES: list[dict[str, Any]] = [
    {"name": "subset", "mode": "subset", "tool_args": "ignore"},
    {"name": "order", "mode": "in_order", "tool_args": "ignore"},
    {"name": "exact", "mode": "superset", "tool_args": "exact"},
]
_RULES = {
    "evaluators": [
        *({**one, "type": "trajectory_match", "reference": "reference.json"} for one in _MATCHES),
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
        ids = {bytes.fromhex(one) for pair in load.spans for one in pair}
        self._ids = [
            (found.start(), int.from_bytes(one[:8], "little"))
            for one in ids
            for found in re.finditer(re.escape(one), self._body)
        ]
        self._texts = [found.end() for found in _TEXT.finditer(self._body)]

    def request(self, number: int) -> bytes:
        """Return the request as it is sent for the `number`-th time."""
        key = number * _GOLDEN & _MASK
        body = bytearray(self._body)
        for at, one in self._ids:
            body[at : at + 8] = (one ^ key).to_bytes(8, "little")
        for at in self._texts:
            body[at : at + 16] = b"%016x" % ((key ^ at * _GOLDEN) & _MASK)
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
    _given: int = 0
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
                number = self._given
                self._given += 1
            if number >= self.requests:
                break
            turn, place = divmod(number, len(templates))
            body = templates[place].request(turn + 1)
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
        found = _SCORED.findall(self._server.get("/metrics")[1])
        sample = Sample(
            time.perf_counter() - self._begin,
            self._sender.sent,
            _RUN * int(sum(map(float, found))),
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
        server = Served(folder, "--quota", "8GB")
        try:
            return _sustained(server, Sender(server.http, rate, spans // _REQUEST), templates)
        finally:
            server.stop()


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
    own = time.process_time() - own
    while (last := watch.take()).scored < last.sent and last.seconds < sending + _PATIENCE:
        time.sleep(0.2)
    total = sender.sent
    thirds = _thirds([one for one in watch.samples if one.seconds <= sending], total)
    return {
        "rate": sender.rate,
        "spans": total,
        "sent": total / sending,
        "unscored": last.sent - last.scored,
        "behind_at_the_end": max(0.0, last.seconds - sending - _QUIET),
        "behind": max(0.0, _behind(watch.samples, sender.rate) - _QUIET),
        "server_us": 1e6 * (last.cpu - before.cpu) / total,
        "sender_us": 1e6 * own / total,
        **thirds,
    }


def _behind(samples: list[Sample], rate: float) -> float:
    """Return the most seconds of spans that were acknowledged and not scored."""
    return max((one.sent - one.scored) / rate for one in samples)


def _thirds(samples: list[Sample], total: int) -> dict[str, float]:
    """Return CPU for a span and memory in the first and in the last third of sending."""
    marks = [min(samples, key=lambda one: abs(one.sent - total * n / 3)) for n in range(4)]
    parts_ = {"first": (marks[0], marks[1]), "last": (marks[2], marks[3])}
    found = {}
    for name, (begin, end) in parts_.items():
        spans = max(1, end.sent - begin.sent)
        # A clock tick at least, which a short measurement may not reach.
        found[f"us_{name}"] = 1e6 * max(0.01, end.cpu - begin.cpu) / spans
        found[f"bytes_{name}"] = max(
            one.bytes for one in samples if begin.seconds <= one.seconds <= end.seconds
        )
    return found


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    rate = found["rate"]
    title = f"{found['spans']:,} spans at {rate:,.0f} a second"
    total = found["server_us"] + found["sender_us"]
    return [
        Row(
            f"{title}: acknowledged a second",
            f"{found['sent']:,.0f}",
            target=f"at least {0.97 * rate:,.0f}",
            held=found["sent"] >= 0.97 * rate,
        ),
        below("spans not scored at the end", found["unscored"], "{:,}", 0),
        below("seconds that scores are behind at most", found["behind"], "{:.1f}", MOST_BEHIND),
        below(
            "CPU microseconds a span, server and sender", total, "{:.0f}", CORES * 1e6 / rate
        ),
        Row("of these the server", f"{found['server_us']:.0f}"),
        below(
            "CPU a span, last third beside the first",
            found["us_last"] / found["us_first"], "{:.2f}", MOST_GROWTH,
        ),
        below(
            "memory, last third beside the first "
            f"({found['bytes_first'] / 1e6:,.0f} MB)",
            found["bytes_last"] / found["bytes_first"], "{:.2f}", MOST_GROWTH,
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure with the number of spans that the command line names, and print the table."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--spans", type=int, default=FULL["spans"])
    known, rest = parser.parse_known_args()
    FULL["spans"] = known.spans
    sys.argv[1:] = rest
    parts.main("live_scoring")


if __name__ == "__main__":
    main()
