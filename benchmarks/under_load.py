"""A server under load and the spans that it stored; used by the fault and kill runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.otlp_load import Sent, requests, send
from benchmarks.served import Served
from oteval.store import Store

__all__ = ["RUN", "Kept", "fate_of", "loaded"]

RUN = 8
"""How many spans an agent run has."""


@dataclass
class Kept:
    """The fate of acknowledged spans.

    Attributes:
        acknowledged: How many were.
        missing: How many of them are not stored.
        doubled: How many spans are stored more than once.
    """

    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0


@contextmanager
def loaded(server: Served, rate: float, seed: int) -> Iterator[Sent]:
    """Send agent runs until the block ends, and repeat requests that were not acknowledged.

    Args:
        server: Where to.
        rate: Spans a second.
        seed: Of ids and words.
    """
    total, stop = Sent(), threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            batch = list(requests(50, RUN, batch=100, seed=seed * 10_000 + number))
            sent = send(server.http, batch, rate=rate, retry=60)
            total.acknowledged += sent.acknowledged
            total.answers.update(sent.answers)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        yield total
    finally:
        stop.set()
        loader.join()


def fate_of(database: Path, sent: Sent) -> Kept:
    """Compare acknowledged with stored spans."""
    stored: Counter[tuple[str, str]] = Counter()
    with Store(database) as store:
        for batch in store.spans.export():
            table = batch.select(["trace_id", "span_id"]).to_pydict()
            stored.update(zip(table["trace_id"], table["span_id"], strict=True))
    acknowledged = set(sent.acknowledged)
    return Kept(
        acknowledged=len(acknowledged),
        missing=sum(1 for span in acknowledged if not stored[span]),
        doubled=sum(1 for count in stored.values() if count > 1),
    )
