"""Web pages of a large store: how long each page takes, and the size of scripts and styles.

The store is that of `large_store`: runs of five agents, with two scores each. `oteval view` serves
it in another process. Each request is another one of its kind: another run, another search, or
another place in the list, so that no answer is known before. Only the overview, the variants and
the evaluators are computed ahead, as for anybody who opens them after another page.

Then `oteval serve` shows the same store, and the same requests are made again while another process
sends it spans at a rate. Filling the store and starting the commands are not measured. A kind
of page whose requests take more than 40 s together has fewer.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from . import parts
from .clock import ROOT, run
from .otlp_load import requests as load_requests
from .otlp_load import send
from .report import Row, below
from .served import Served

FULL = {"runs": 1_000_000, "requests": 50, "rate": 1000}
QUICK = {"runs": 20_000, "requests": 10, "rate": 1000}

MOST_MEDIAN, MOST_P99 = 0.3, 1.0  # seconds
MOST_KB = 100.0
_ENOUGH = 40.0  # seconds for one kind of page
_FILL = "import sys; from benchmarks.large_store import fill_file; fill_file(*sys.argv[1:])"
_SEND = "import sys; from benchmarks.pages import send_forever; send_forever(*sys.argv[1:])"
_BATCH = 100  # spans of a request
_AGENTS = ("shop", "travel", "support", "billing", "search")
_KEY = re.compile(r'href="(/runs\?[^"]*after=[^"]+)"')
_RUN = re.compile(r'href="/runs/([0-9a-f]{16})["?]')
_SECOND = 10**9
# As a browser: at the root, a server shows other clients where to send traces.
_BROWSER = {"accept": "text/html"}

Paths = Iterator[str]


def measure(
    *, runs: int, requests: int, rate: int = 0, store: Path | None = None
) -> dict[str, Any]:
    """Measure every page on one store.

    Args:
        runs: How many runs the store holds; a multiple of 2,000.
        requests: How many requests for each kind of page.
        rate: The spans a second that come in meanwhile, the second time; 0 measures only once.
        store: A database that `large_store` has filled, of which a copy is used; None fills one.

    Returns:
        ``runs``; ``pages``: by kind the ``median`` and ``p99`` seconds and the largest answer in
        ``bytes``; ``loaded``: the same while spans came in, and ``received``, how many a second
        were acknowledged; ``assets``: the bytes of scripts and styles.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "traces.duckdb"
        if store is not None:
            shutil.copy(store, path)
        else:
            run([sys.executable, "-c", _FILL, str(path), str(runs)])
        with _view(path) as link, httpx.Client(timeout=60, headers=_BROWSER) as client:
            client.base_url = httpx.URL(link).join("/")
            client.get(link)  # its token logs in
            text = client.get("/runs").text
            assets = [
                client.get(path) for path in re.findall(r'="(/static/[^"]+\.(?:c|j)s+)"', text)
            ]
            # New runs begin years later than these, which would leave few different ones.
            names = _some_runs(client)
            found = _measured_kinds(client, names, requests)
        folder = Path(name)
        loaded, received = _under_load(folder, names, requests, rate) if rate else ({}, 0.0)
    size = sum(len(one.content) for one in assets)
    return {
        "runs": runs,
        "pages": found,
        "loaded": loaded,
        "received": received,
        "rate": rate,
        "assets": size,
    }


def _measured_kinds(
    client: httpx.Client, names: Sequence[tuple[int, str]], most: int
) -> dict[str, dict[str, float]]:
    return {kind: _measured(client, paths, most) for kind, paths in _kinds(names).items()}


def _under_load(
    folder: Path, names: Sequence[tuple[int, str]], most: int, rate: int
) -> tuple[dict[str, dict[str, float]], float]:
    """Measure the pages of a server while spans come in.

    Args:
        folder: The folder of the database.
        names: The starts and ids of runs to ask for.
        most: How many requests for each kind of page.
        rate: Spans a second.

    Returns:
        The costs by kind of page, and the spans a second that the server acknowledged.
    """
    server, log = Served(folder), folder / "acknowledged"
    try:
        with log.open("w") as written:
            command = [sys.executable, "-u", "-c", _SEND, str(server.http), str(rate)]
            start = time.perf_counter()
            sender = subprocess.Popen(command, stdout=written, cwd=ROOT)
            try:
                base = f"http://127.0.0.1:{server.http}"
                with httpx.Client(timeout=60, base_url=base, headers=_BROWSER) as client:
                    client.get("/runs")  # starts the process of the pages
                    found = _measured_kinds(client, names, most)
            finally:
                sender.terminate()
                sender.wait(60)
            seconds = time.perf_counter() - start
        return found, sum(map(int, log.read_text().split())) / seconds
    finally:
        server.stop()


def send_forever(port: str, rate: str) -> None:
    """Send agent runs to a server until the process ends; print the spans of each acknowledgement.

    Args:
        port: The port of its HTTP server.
        rate: Spans a second.
    """
    begin, given = time.perf_counter(), 0
    for load in load_requests(1 << 40, batch=_BATCH):
        time.sleep(max(0.0, begin + given / int(rate) - time.perf_counter()))
        given += len(load.spans)
        print(len(send(int(port), [load], senders=1).acknowledged))


@contextmanager
def _view(path: Path) -> Iterator[str]:
    """Serve the pages of a database, and yield the link to them."""
    command = [sys.executable, "-u", "-m", "oteval", "view", "--no-open", "--db", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "oteval view did not start"
        yield found[0]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _kinds(names: Sequence[tuple[int, str]]) -> dict[str, Paths]:
    """Return the paths to ask for, by kind of page."""
    keys = [f"{ns}-{name}" for ns, name in names]
    ids = itertools.cycle([name for _, name in names])
    numbers = itertools.count(1)

    def search(text: Callable[[int], str]) -> Paths:
        return (str(httpx.URL("/runs", params={"q": text(number)})) for number in numbers)

    return {
        "runs": (f"/runs?x={number}" for number in numbers),
        "runs, deep": (f"/runs?after={key}" for key in itertools.cycle(keys)),
        "runs, failed": search(lambda at: f"passed=false calls>{at % 3}"),
        "runs, failed, deep": (
            f"/runs?q=passed%3Dfalse&after={key}" for key in itertools.cycle(keys)
        ),
        "runs of an agent": search(lambda at: f"agent={_AGENTS[at % 5]} calls>{at % 7}"),
        "runs with a failed call": search(lambda at: f"errors>{at % 2} agent={_AGENTS[at % 5]}"),
        "runs with a tool": search(lambda at: f"tool=tool_{at % 20}"),
        "runs of a time": search(lambda at: f"since=2024-0{at % 8 + 1}-1{at % 10}"),
        "runs before a time": search(lambda at: f"until=2024-0{at % 8 + 1}-1{at % 10}"),
        "runs, nothing": search(lambda at: f"agent=nobody-{at}"),
        "runs, rare failure": search(lambda at: f"evaluator=none-{at} passed=false"),
        "runs, common text": search(lambda at: f"order {at % 10}"),
        "runs, rare text": search(lambda at: f'"order {at % 2000}?" agent={_AGENTS[at % 5]}'),
        "runs, no such text": search(lambda at: f"headphones-{at}"),
        "runs, an id": (str(httpx.URL("/runs", params={"q": name})) for name in ids),
        "run": (f"/runs/{name}" for name in ids),
        "labels": (f"/labels?evaluator=quality&x={number}" for number in numbers),
        "labels, near the threshold": (
            f"/labels?evaluator=quality&queue=threshold&x={number}" for number in numbers
        ),
        "run, unknown": (f"/runs/{number:016x}" for number in numbers),
        "run, newer": (f"/runs/{name}/newer" for name in ids),
        "run, older": (f"/runs/{name}/older?q=agent%3Dshop" for name in ids),
        "run, next failure": (f"/runs/{name}/failure" for name in ids),
        "spans": (f"/runs/{name}/spans" for name in ids),
        "compare": (f"/compare?a={name}&b=pass" for name in ids),
        "overview": (f"/?period={period}" for period in itertools.cycle(("7d", "30d", "all"))),
        "variants": itertools.repeat("/variants"),
        "evaluators": (
            f"/evaluators?period={period}" for period in itertools.cycle(("7d", "30d", "all"))
        ),
        "evaluator": (
            f"/evaluators/quality?period={period}"
            for period in itertools.cycle(("7d", "30d", "all"))
        ),
        "evaluator, an agent": (
            f"/evaluators/match?q=agent%3D{agent}" for agent in itertools.cycle(_AGENTS)
        ),
        "conversations": itertools.repeat("/conversations"),
        "conversation": (f"/conversations/talk-{at % 100}-{at % 400 + 1}" for at in numbers),
        "conversations, deep": (f"/conversations?after={key}" for key in itertools.cycle(keys)),
        "conversations, a text": (
            str(httpx.URL("/conversations", params={"q": f"order {at % 10}"})) for at in numbers
        ),
        "conversations, a failure, deep": (
            f"/conversations?q=passed%3Dfalse&after={key}" for key in itertools.cycle(keys)
        ),
        "alerts": itertools.repeat("/alerts"),
    }


def _some_runs(client: httpx.Client) -> list[tuple[int, str]]:
    """Return the start and the id of some runs from the whole length of the list."""
    first = _place(client.get("/runs").text)
    last = _place(client.get("/runs?after=9000000000000000000-f").text)
    oldest = 1_700_000_000 * _SECOND
    newest = (first or last or (oldest, ""))[0]
    found = []
    for part in range(1, 60):
        # A key need not be that of a run.
        begin = newest - (newest - oldest) * (part * 37 % 60) // 60
        place = _place(client.get(f"/runs?after={begin}-f").text)
        if place is not None:
            found.append(place)
    return found


def _place(text: str) -> tuple[int, str] | None:
    """Return the key of the last run on a page of the list."""
    found = re.search(r"after=(\d+)-([0-9a-f]+)", text)
    return (int(found[1]), found[2]) if found else None


def _measured(client: httpx.Client, paths: Paths, most: int) -> dict[str, float]:
    """Ask for paths of one kind, and return the cost."""
    times: list[float] = []
    size = 0
    while len(times) < most and sum(times) < _ENOUGH:
        path = next(paths)
        start = time.perf_counter()
        answer = client.get(path)
        times.append(time.perf_counter() - start)
        assert answer.status_code in (200, 303, 404), (path, answer.status_code, answer.text[:300])
        if answer.status_code != 303:
            assert answer.headers["content-type"].startswith("text/html"), (path, answer.text[:300])
        size = max(size, len(answer.content))
    return {"median": _share(times, 0.5), "p99": _share(times, 0.99), "bytes": size}


def _share(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = _page_rows(found["pages"], "")
    if found["loaded"]:
        out.append(Row("spans acknowledged a second", f"{found['received']:.0f}"))
        out += _page_rows(found["loaded"], f", {found['rate']} spans/s coming in")
    out.append(below("scripts and styles: KB", found["assets"] / 1e3, "{:.1f}", MOST_KB))
    return out


def _page_rows(pages: dict[str, dict[str, float]], when: str) -> list[Row]:
    out = []
    for kind, cost in pages.items():
        out += [
            below(f"{kind}: median ms{when}", 1000 * cost["median"], "{:.0f}", 1000 * MOST_MEDIAN),
            below(f"{kind}: p99 ms{when}", 1000 * cost["p99"], "{:.0f}", 1000 * MOST_P99),
            Row(f"{kind}: largest answer, KB{when}", f"{cost['bytes'] / 1e3:.0f}"),
        ]
    return out


if __name__ == "__main__":
    parts.main("pages")
