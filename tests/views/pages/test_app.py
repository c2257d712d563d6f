"""Headers, files, errors and spans of the pages, and the command that serves them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from oteval.base.errors import StoreError
from oteval.cli import main
from oteval.model import Span
from oteval.scoring import load, refresh
from oteval.store import Store
from oteval.views.pages.responses import named_link
from oteval.views.pages.site import StoreThreads

from .conftest import ShowPages, put, run

DEMO = Path(__file__).parents[3] / "oteval" / "cli" / "bundled_demo"


@pytest.fixture
def traced(store: Store) -> Store:
    """Return a store with the traces of the demo."""
    load(store, sorted((DEMO / "traces").iterdir()))
    refresh(store)
    return store


def test_every_answer_has_the_headers_that_keep_a_browser_safe(shop: Store, pages: ShowPages):
    """Pages, errors, files and redirects allow only the application's own style and script."""
    client = pages(shop)
    asset = re.search(r'src="(/static/[^"]+)"', client.get("/runs").text)
    assert asset
    for path in ("/", "/runs", f"/runs/{1:016x}", "/runs/none", "/nowhere", asset[1]):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_style_and_script_are_small_and_cached_by_their_content(shop: Store, pages: ShowPages):
    """Files that a page loads have content-based addresses, and total under 100 KB."""
    client = pages(shop)
    text = client.get("/runs").text
    paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)
    files = [client.get(path) for path in paths]
    assert len(files) == 3
    assert all("immutable" in file.headers["cache-control"] for file in files)
    assert sum(len(file.content) for file in files) < 100_000
    assert client.get("/static/0000/pages.css").status_code == 404
    assert not re.search(r"(?:src|href)=\"(?!/|#|\?)", text)


def test_an_unknown_page_says_so(shop: Store, pages: ShowPages):
    """The page has the status 404 and a link back."""
    answer = pages(shop).get("/nowhere")
    assert answer.status_code == 404
    assert 'href="/runs"' in answer.text
    assert "this address has no page" in answer.text


@pytest.mark.parametrize("name", ["..", ".", "", "a\nb", "x" * 1500])
def test_a_name_that_no_path_can_hold_leads_to_the_list(name: str):
    """Browsers would take two dots for the folder above."""
    assert named_link("/conversations", name) == "/conversations"
    assert named_link("/conversations", "..a/b") == "/conversations/..a%2Fb"


def test_browsers_find_the_icon_beside_a_text(shop: Store, pages: ShowPages):
    """A text cannot name it, so they ask for it by its usual name."""
    client = pages(shop)
    answer = client.get("/favicon.ico")
    assert client.get(answer.headers["location"]).headers["content-type"] == "image/svg+xml"


def test_a_failure_of_a_page_shows_no_details(
    shop: Store, pages: ShowPages, monkeypatch: pytest.MonkeyPatch
):
    """An unexpected error is a page with the status 500, and the log has the details."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("oteval.views.pages.runs.runs_page", fail)
    answer = pages(shop).get("/runs")
    assert answer.status_code == 500
    assert "a secret" not in answer.text
    assert "content-security-policy" in answer.headers


async def test_a_lost_connection_is_opened_again():
    """A function of the store is called again with a new connection after its server was away."""
    opened: list[Store] = []

    def open_store() -> Store:
        opened.append(Store())
        return opened[-1]

    def ask(store: Store) -> int:
        if store is opened[0]:
            raise StoreError("lost the server")
        return len(opened)

    threads = StoreThreads(open_store, threads=1)
    assert await threads.run(ask) == 2
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda _: 1 // 0)
    assert await threads.run(lambda _: len(opened)) == 2
    threads.close()


def test_spans_are_a_tree_with_what_each_gave(traced: Store, pages: ShowPages):
    """The page has a bar and the attributes of each span, the dialect, and links to messages."""
    client = pages(traced)
    [name] = [
        trajectory.id
        for trajectory in traced.trajectories.read()
        if "traceloop" in trajectory.dialects
    ]
    text = client.get(f"/runs/{name}/spans").text
    assert text.count('<svg class="wave"') == 8
    assert "<code>traceloop</code>" in text
    assert f'href="/runs/{name}#m2"' in text
    assert "gen_ai.request.model" in text
    [span] = re.findall(rf'href="(/runs/{name}/spans/0+a0)"', text)
    whole = client.get(span)
    assert whole.headers["content-type"].startswith("text/plain")
    assert '"span_id": "00000000000000a0"' in whole.text
    assert client.get(f"/runs/{name}/spans/none").status_code == 404


def test_spans_name_the_switch_that_captures_missing_content(traced: Store, pages: ShowPages):
    """A gap has its remedy, on the page and at the span."""
    [name] = [trajectory.id for trajectory in traced.trajectories.read() if trajectory.gaps]
    text = pages(traced).get(f"/runs/{name}/spans").text
    assert "content_not_captured" in text
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in text


def test_a_run_without_spans_has_a_page_of_spans(store: Store, pages: ShowPages):
    """The page says that the spans are not stored."""
    put(store, run(1))
    assert "spans of this run are not stored" in pages(store).get(f"/runs/{1:016x}/spans").text


@pytest.mark.slow
def test_view_serves_trace_files_until_it_is_stopped(tmp_path: Path):
    """The command scores the files, prints its address, refuses foreign hosts, and ends with 0."""
    command = [sys.executable, "-m", "oteval", "view", "--no-open", "-c", DEMO / "oteval.yaml"]
    process = subprocess.Popen(
        [*map(str, command), *map(str, sorted((DEMO / "traces").iterdir()))],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        match = re.search(r"(http://127\.0\.0\.1:\d+)/\S+", process.stdout.readline())
        assert match
        with httpx.Client(base_url=match[1], timeout=60) as client:
            assert client.get("/runs").status_code == 401
            client.get(match[0])
            listed = client.get("/runs?q=passed%3Dfalse")
            foreign = client.get("/runs", headers={"host": "evil.example"})
        assert listed.text.count("data-id=") == 2
        assert foreign.status_code == 403
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(30)
        process.stdout.close()
    assert status == 0


def test_view_refuses_a_file_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The command names the file and exits with status 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["oteval", "view", "none.json", "--no-open"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "none.json" in capsys.readouterr().err


def test_a_trace_of_many_spans_is_shown_in_parts(
    store: Store, pages: ShowPages, monkeypatch: pytest.MonkeyPatch
):
    """Only the spans of a part are read whole; they have their depth, attributes and messages."""
    monkeypatch.setattr("oteval.views.pages.spans._MOST_EXPLAINED", 10)
    input_messages = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "big"}
    chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(input_messages)}
    first = f"{1:016x}"
    spans = [Span("a" * 32, first, name="invoke_agent", start_ns=1, end_ns=10**9, attributes=root)]
    spans.append(Span("a" * 32, f"{2:016x}", first, "chat", start_ns=2, end_ns=3, attributes=chat))
    spans += [
        Span(
            "a" * 32, f"{n:016x}", first, f"step {n}", start_ns=n, end_ns=n + 1, attributes={"n": n}
        )
        for n in range(3, 700)
    ]
    store.spans.write(spans)
    refresh(store)
    [run_id] = [trajectory.id for trajectory in store.trajectories.read()]
    client = pages(store)
    text = client.get(f"/runs/{run_id}/spans").text
    assert "699 spans" in text
    assert text.count('<svg class="wave"') == 200
    assert f'href="/runs/{run_id}#m0">message 0' in text
    assert "by <code>genai</code>" in text
    later = client.get(f"/runs/{run_id}/spans?from=600").text
    assert later.count('<svg class="wave"') == 99
    assert "step 699" in later
    assert "<dt>n</dt><dd>699</dd>" in later
