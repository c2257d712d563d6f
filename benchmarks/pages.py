"""Web pages of a large store: how long each page takes, and the size of scripts and styles.

The store is that of `large_store`: runs of five agents, with two scores each. `oteval view` serves
it in another process. Each request is another one of its kind: another run, another search, or
another place in the list, so that no answer is known before. Only the overview, the variants and
the evaluators are computed ahead, as for anybody who opens them after another page.

Then `oteval serve` shows the same store, and the same requests are made again while another process
sends it spans at a rate. Filling the store and starting the commands are not measured. A kind
of page whose requests take more than 40 s together has fewer. Each answer is checked: its status,
that it is HTML, and that it has the rows, messages or figures of its kind.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from . import parts
from .checks import FAILED, check, figures_or_failure
from .clock import ROOT, run
from .otlp_load import requests as load_requests, send
from .page_kinds import Kind, Place, check_answer, kinds
from .report import Row, below, not_measured
from .served import Served, check_messages

FULL = {"runs": 1_000_000, "requests": 50, "rate": 1000}
QUICK = {"runs": 20_000, "requests": 10, "rate": 1000}

MOST_MEDIAN, MOST_P99 = 0.3, 1.0  # seconds
MOST_KB = 100.0
_ENOUGH = 40.0  # seconds for one kind of page
_FILL = "import sys; from benchmarks.large_store import fill_file; fill_file(*sys.argv[1:])"
_SEND = "import sys; from benchmarks.pages import send_forever; send_forever(*sys.argv[1:])"
_BATCH = 100  # spans of a request
_SECOND = 10**9
# As a browser: at the root, a server shows other clients where to send traces.
_BROWSER = {"accept": "text/html"}


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
        ``bytes``; ``loaded``: ``pages`` again, while spans came in, and ``received``, how many a
        second were acknowledged; ``assets``: the bytes of scripts and styles.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "traces.duckdb"
        if store is not None:
            shutil.copy(store, path)
        else:
            run([sys.executable, "-c", _FILL, str(path), str(runs)])
        with _view(path) as link, httpx.Client(timeout=60, headers=_BROWSER) as client:
            client.base_url = httpx.URL(link).join("/")
            client.get(link)  # its token logs in
            # New runs begin years later than these, which would leave few different ones.
            places = _some_places(client)
            conversations = _some_conversations(client, places)
            figures = {
                "runs": runs,
                "pages": _measured_kinds(client, kinds(places, conversations), requests),
                "assets": _size_of_assets(client),
            }
        loaded: dict[str, Any] = {}
        if rate:
            # The last days have only runs that no evaluator has scored.
            requested = kinds(places, conversations, periods=("all",))
            loaded = figures_or_failure(lambda: _under_load(folder, requested, requests, rate))
    return {**figures, "loaded": loaded, "rate": rate}


def _size_of_assets(client: httpx.Client) -> int:
    """Return the bytes of the scripts and styles of a page."""
    paths = re.findall(r'="(/static/[^"]+\.(?:c|j)s+)"', client.get("/runs").text)
    size = 0
    for path in paths:
        answer = client.get(path)
        content = answer.headers.get("content-type", "")
        is_asset = answer.status_code == 200 and ("css" in content or "javascript" in content)
        check(is_asset and answer.content, f"{path} is a script or a style", content)
        size += len(answer.content)
    check({path.rpartition(".")[2] for path in paths} == {"css", "js"}, "there are both", paths)
    return size


def _under_load(folder: Path, requested: dict[str, Kind], most: int, rate: int) -> dict[str, Any]:
    """Measure the pages of a server while spans come in.

    Args:
        folder: The folder of the database.
        requested: The kinds of pages.
        most: How many requests for each kind of page.
        rate: Spans a second.

    Returns:
        ``pages``, the costs by kind of page, and ``received``, the spans a second that the server
        acknowledged.

    Raises:
        CheckError: Far fewer spans came in, or the server reported an error.
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
                    pages = _measured_kinds(client, requested, most)
            finally:
                sender.terminate()
                sender.wait(60)
            seconds = time.perf_counter() - start
        received = sum(map(int, log.read_text().split())) / seconds
        check(received > rate / 2, f"{rate} spans a second come in", round(received))
    finally:
        server.stop()
    server.check_log()
    return {"pages": pages, "received": received}


def send_forever(port: str, rate: str) -> None:
    """Send agent runs to a server until the process ends; print the spans of each acknowledgement.

    Args:
        port: The port of its HTTP server.
        rate: Spans a second.
    """
    begin, count = time.perf_counter(), 0
    for load in load_requests(1 << 40, batch=_BATCH):
        time.sleep(max(0.0, begin + count / int(rate) - time.perf_counter()))
        count += len(load.spans)
        print(len(send(int(port), [load], senders=1).acknowledged))


@contextmanager
def _view(path: Path) -> Iterator[str]:
    """Serve the pages of a database, and yield the link to them.

    Raises:
        CheckError: The command did not start, or reported an error.
    """
    command = [sys.executable, "-u", "-m", "oteval", "view", "--no-open", "--db", str(path)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        try:
            link = re.search(r"http://\S+", process.stdout.readline())
            check(link, "oteval view starts")
            assert link is not None
            yield link[0]
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()
        errors.seek(0)
        check_messages(errors.read())


def _some_places(client: httpx.Client) -> list[Place]:
    """Return places from the whole length of the list of runs."""
    first = _last_place(client.get("/runs").text)
    again = _last_place(client.get("/runs?after=9000000000000000000-f").text)
    oldest = 1_700_000_000 * _SECOND
    newest = (first or again or (oldest, ""))[0]
    places = []
    for part in range(1, 60):
        # A key need not be that of a run.
        begin = newest - (newest - oldest) * (part * 37 % 60) // 60
        last = _last_place(client.get(f"/runs?after={begin}-f").text)
        if last is not None:
            places.append(last)
    check(len(places) > 1, "the list of runs has pages", len(places))
    return places


def _last_place(text: str) -> Place | None:
    """Return the key of the last run on a page of the list."""
    match = re.search(r"after=(\d+)-([0-9a-f]+)", text)
    return (int(match[1]), match[2]) if match else None


def _some_conversations(client: httpx.Client, places: Sequence[Place]) -> list[str]:
    """Return the paths of conversations, a few from each place."""
    pages = (client.get(f"/conversations?after={ns}-{name}").text for ns, name in places[:10])
    paths = [path for page in pages for path in re.findall(r'="(/conversations/[^"?]+)"', page)[:5]]
    check(paths, "the store has conversations")
    return paths


def _measured_kinds(
    client: httpx.Client, requested: dict[str, Kind], most: int
) -> dict[str, dict[str, Any]]:
    return {
        name: figures_or_failure(partial(_measured, client, kind, most))
        for name, kind in requested.items()
    }


def _measured(client: httpx.Client, kind: Kind, most: int) -> dict[str, float]:
    """Ask for paths of one kind, and return the cost.

    Raises:
        CheckError: An answer is not the page that its path names.
    """
    times: list[float] = []
    size = 0
    while len(times) < most and sum(times) < _ENOUGH:
        path = next(kind.paths)
        start = time.perf_counter()
        answer = client.get(path, follow_redirects=kind.follows)
        times.append(time.perf_counter() - start)
        check_answer(kind, path, answer)
        size = max(size, len(answer.content))
    return {"median": _share(times, 0.5), "p99": _share(times, 0.99), "bytes": size}


def _share(times: Sequence[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = _page_rows(figures["pages"], "")
    loaded, when = figures["loaded"], f", {figures['rate']} spans/s coming in"
    if FAILED in loaded:
        out.append(not_measured(f"all pages{when}", loaded[FAILED]))
    elif loaded:
        out.append(Row("spans acknowledged a second", f"{loaded['received']:.0f}"))
        out += _page_rows(loaded["pages"], when)
    out.append(below("scripts and styles: KB", figures["assets"] / 1e3, "{:.1f}", MOST_KB))
    return out


def _page_rows(pages: dict[str, dict[str, Any]], when: str) -> list[Row]:
    out = []
    for kind, cost in pages.items():
        if FAILED in cost:
            out.append(not_measured(f"{kind}{when}", cost[FAILED]))
            continue
        out += [
            below(f"{kind}: median ms{when}", 1000 * cost["median"], "{:.0f}", 1000 * MOST_MEDIAN),
            below(f"{kind}: p99 ms{when}", 1000 * cost["p99"], "{:.0f}", 1000 * MOST_P99),
            Row(f"{kind}: largest answer, KB{when}", f"{cost['bytes'] / 1e3:.0f}"),
        ]
    return out


if __name__ == "__main__":
    parts.main("pages")
