"""The pages in a browser: Chromium without a head, driven over HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base.web_guard import LocalRequests
from oteval.ingest.receiver.http import HttpServer
from oteval.store import Store
from oteval.views.pages.app import create_app
from oteval.views.pages.site import Site

from . import hostile
from .conftest import SECOND, START
from .test_experiments import make

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SERIOUS = ("serious", "critical")
# Whether all tables that become cards on narrow screens fit.
UNSCROLLED = """[...document.querySelectorAll(".cards")].every(
    (one) => one.parentElement.scrollWidth <= one.parentElement.clientWidth)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium, or skip where it or playwright is not installed."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; make test-browser does"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def served(store: Store) -> Iterator[str]:
    """Return the address of the pages of a store, served in a thread."""
    site = Site("test", store.sibling, None, clock=lambda: START + 60 * SECOND)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(LocalRequests(create_app(site)))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = server.force_exit = True
        thread.join()
    site.close()


class Visit:
    """A tab, and whatever it did that it should not have done."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.faults: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", self._requested)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:image/png")):
            self.faults.append(request.url)

    def open(self, path: str) -> Any:
        """Open a page, and return the tab."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page


@pytest.fixture
def visit(browser: Any, served: str) -> Iterator[Any]:
    """Return a function that opens a tab; that any of them made a fault is an error."""
    visits: list[Visit] = []

    def start(**options: Any) -> Visit:
        visits.append(Visit(browser, served, **options))
        return visits[-1]

    yield start
    for one in visits:
        one.context.close()
    assert [one.faults for one in visits] == [[] for _ in visits]


def every_page(run: str, other: str) -> list[str]:
    """Return the paths of the kinds of pages."""
    return [
        *("/", "/runs", "/runs?q=passed%3Dfalse", "/runs?q=nothing", "/runs?q=color%3Dred"),
        "/runs?columns=calls,input,output,cached,model,service,conversation,turn",
        *(f"/runs/{run}", f"/runs/{run}/spans", f"/compare?a={run}&b={other}"),
        *("/variants", "/conversations", "/alerts", "/labels", "/nowhere"),
        *("/evaluators", "/evaluators?period=all", "/evaluators/calls", "/evaluators/tone"),
        *("/experiments", "/experiments/second?baseline=first", "/experiments/first"),
    ]


def unlogged(visited: Visit) -> None:
    """Forget that Chromium logs the status of pages that are not found or refused."""
    visited.faults[:] = [one for one in visited.faults if "Failed to load resource" not in one]


def test_hostile_texts_run_nothing(store: Store, visit: Any) -> None:
    """No script of a trace runs, no other host is asked, and the console stays empty."""
    runs = hostile.fill(store)
    for one in runs[:5]:
        store.spans.write(hostile.spans(one, 20))
    visited = visit()
    paths = ["/", "/runs", "/variants", "/conversations"]
    for one in runs:
        paths += [f"/runs/{one.id}"]
    paths += [f"/runs/{one.id}/spans" for one in runs[:5]]
    for path in paths:
        page = visited.open(path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.title() != "owned", path
        assert page.evaluate("document.scripts.length") == 1, path


def test_runs_are_reached_by_keys(shop: Store, visit: Any) -> None:
    """Keys move in the list, Enter opens, f leads to a failure, and / to the search field."""
    page = visit().open("/runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    focused = page.evaluate("document.activeElement.closest('li').dataset.id")
    assert focused == f"{3:016x}"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{3:016x}*")
    page.keyboard.press("k")
    page.wait_for_url(f"**/runs/{4:016x}*")
    page.keyboard.press("f")
    page.wait_for_url(f"**/runs/{2:016x}*")
    page.keyboard.press("j")
    page.wait_for_url(f"**/runs/{1:016x}*")
    page.keyboard.press("/")
    page.keyboard.type("agent=greeter")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=agent*")
    assert page.locator("#runs .item").count() == 1


def test_everything_can_be_read_without_scripts(shop: Store, visit: Any) -> None:
    """With JavaScript off, the list, the search and a run work, and no key is promised."""
    page = visit(java_script_enabled=False).open("/runs")
    assert page.locator("#runs .item").count() == 4
    page.fill("#q", "passed=false")
    page.press("#q", "Enter")
    page.wait_for_url("**/runs?q=*")
    page.locator("#runs .to").first.click()
    page.wait_for_url(f"**/runs/{2:016x}*")
    assert "must not be made" in page.inner_text("main")
    assert not page.locator(".keys").first.is_visible()


def test_a_baseline_is_chosen_without_scripts(shop: Store, visit: Any) -> None:
    """With JavaScript off, the form of an experiment leads to the comparison."""
    make(shop, "first", [1] * 10)
    make(shop, "second", [0] * 8 + [1, 1])
    page = visit(java_script_enabled=False).open("/experiments")
    page.click("th a[href='/experiments/second']")
    page.select_option("#baseline", "first")
    page.click(".baseline button")
    page.wait_for_url("**/experiments/second?baseline=first")
    assert "8 of 10 runs broke, 2 did not change." in page.inner_text("main")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(shop: Store, visit: Any, scheme: str, width: int) -> None:
    """The tool axe finds no serious fault on any page, wide or narrow, in light and dark."""
    make(shop, "first", [1] * 10)
    make(shop, "second", [0] * 7 + [None, 1, ValueError("a long reason " * 30)])
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    visited = visit(color_scheme=scheme)
    found = []
    for path in every_page(f"{2:016x}", f"{1:016x}"):
        page = visited.open(path)
        page.set_viewport_size({"width": width, "height": 900})
        for fault in axe.Axe().run(page).response["violations"]:
            if fault["impact"] in SERIOUS:
                where = [node["target"] for node in fault["nodes"][:3]]
                found.append((path, fault["id"], where))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        if width < 760:
            assert page.evaluate(UNSCROLLED), path
    unlogged(visited)
    assert not found, found
