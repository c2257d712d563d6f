"""The page in a browser: Chromium without a head, the file opened from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.store import Store
from oteval.views.report import ReportOptions, build, from_experiments, pairwise_of, render
from oteval.views.report.sources import BY

from . import sample

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SHOWN = "#rows > tr.on"


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


class Opened:
    """A page, and what it did that it should not have done."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._requested)
        self.failures: list[str] = []
        self.page.on("requestfailed", lambda request: self.failures.append(request.failure))
        self.page.goto(path.as_uri())

    def _requested(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.faults.append(request.url)

    def text(self, selector: str) -> str:
        """Return the text that an element shows."""
        return str(self.page.inner_text(selector))

    def count(self, selector: str) -> int:
        """Return how many elements there are."""
        return int(self.page.locator(selector).count())


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that opens a page; that any of them made a fault is an error."""
    pages: list[Opened] = []

    def open_page(text: str, **options: Any) -> Opened:
        path = tmp_path / f"report-{len(pages)}.html"
        path.write_text(text, "utf-8")
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield open_page
    for number, page in enumerate(pages):
        page.page.screenshot(path=tmp_path / f"{number}.png")
        page.context.close()
    assert [page.faults for page in pages] == [[] for _ in pages]


def compared(store: Store, cases: int = 40, *, evil: bool = False) -> str:
    """Return the page that compares two versions of an agent."""
    sample.fill(store, cases, evil=evil)
    items = sample.read(store, BY["version"])
    return render(build(items, ReportOptions(is_grouped=True, baseline="v1")))


def test_a_cell_opens_its_own_run(store: Store, opened: Any) -> None:
    """A click on a failed cell shows that run's verdicts and messages; Escape closes it."""
    page = opened(compared(store))
    cell = page.page.locator(f"{SHOWN} td.cell.fail a").first
    run = cell.get_attribute("href").removeprefix("#run-")

    cell.click()

    assert page.page.locator("#panel").is_visible()
    assert page.text("#panel-id") == run
    assert page.count("#panel .state.fail") >= 1
    assert page.count("#panel .message.user") == 1
    assert "refund_order" in page.text("#panel-body")
    assert page.page.url.endswith(f"#run-{run}")
    page.page.keyboard.press("Escape")
    assert not page.page.locator("#panel").is_visible()
    assert page.page.evaluate("document.activeElement.getAttribute('href')") == f"#run-{run}"


def test_a_case_opens_side_by_side(store: Store, opened: Any) -> None:
    """The name of a case opens both runs in columns, the first divergence marked once."""
    page = opened(compared(store))

    page.page.click(f"{SHOWN}[data-c=regressed] th.case a >> nth=0")

    assert page.count("#panel .pair.first") == 1
    assert "first divergence" in page.text("#panel .pair.first").lower()
    assert page.count("#panel .pair.heads h3") == 2
    page.page.keyboard.press("j")
    assert page.page.locator("#panel").is_visible()
    page.page.click("#panel-tabs [role=tab] >> nth=1")
    assert page.count("#panel .pair") == 0


def test_rows_are_filtered_searched_and_sorted(store: Store, opened: Any) -> None:
    """Only changed, regressed and searched rows are shown; regressions come first."""
    page = opened(compared(store))
    total = page.count(SHOWN)

    first = page.page.locator(SHOWN).first.get_attribute("data-c")
    page.page.click("[data-filter=changed]")
    changed = page.count(SHOWN)
    page.page.click("[data-filter=regressed]")
    regressed = page.count(SHOWN)

    assert (total, first) == (40, "regressed")
    assert 0 < regressed < changed < total
    assert page.count(f"{SHOWN}:not([data-c=regressed])") == 0
    page.page.click("[data-filter=all]")
    page.page.keyboard.press("/")
    page.page.keyboard.type("voucher case-31")
    page.page.wait_for_timeout(400)
    assert page.count(SHOWN) == 1
    page.page.fill("#search", "")
    page.page.wait_for_timeout(400)
    page.page.click("th[data-sort=tokens] button")
    tokens = page.page.locator(f"{SHOWN} td:nth-last-child(3)").evaluate_all(
        "cells => cells.map(cell => Number(cell.dataset.v))"
    )
    assert tokens == sorted(tokens, reverse=True)


def test_an_evaluator_can_be_looked_at_alone(store: Store, opened: Any) -> None:
    """Choosing one hides the others' columns, and filters hold for it alone."""
    page = opened(compared(store))
    rows = page.count(f"{SHOWN}:has(td.cell.regressed[data-e='2'])")

    page.page.select_option("#evaluator", label="tool-errors")
    page.page.click("[data-filter=regressed]")

    assert page.page.locator("td.cell[data-e='0'] >> nth=0").is_hidden()
    assert page.count(SHOWN) == rows


def test_hostile_text_does_nothing(store: Store, opened: Any) -> None:
    """Opening every run of a page with hostile text runs nothing and asks for nothing."""
    page = opened(compared(store, 2, evil=True))
    title = page.page.title()

    for number in range(page.count(f"{SHOWN} th.case a")):
        page.page.locator(f"{SHOWN} th.case a").nth(number).click()
        page.page.wait_for_timeout(50)
        page.page.keyboard.press("Escape")

    assert page.page.title() == title == "oteval report"
    sources = page.page.evaluate("Array.from(document.images).map(image => image.src)")
    assert {source.partition(",")[0] for source in sources} == {"data:image/png;base64"}
    assert "<script>" in page.text("#rows")


def test_the_policy_refuses_other_scripts_and_styles(store: Store, opened: Any) -> None:
    """A script, a handler, a style and a request that were let in all the same do nothing."""
    page = opened(compared(store, 2))

    page.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
            document.body.insertAdjacentHTML("beforeend",
                "<img src='https://evil.invalid/x.png'><b id=b style='color: rgb(1, 2, 3)'>x</b>" +
                "<i id=i onclick=\\"document.title = 'owned'\\">x</i>");
            document.getElementById("i").click();
        }"""
    )
    page.page.wait_for_timeout(200)

    assert page.page.title() == "oteval report"
    assert page.page.evaluate("getComputedStyle(document.getElementById('b')).color") != (
        "rgb(1, 2, 3)"
    )
    told = [fault for fault in page.faults if "Content Security Policy" in fault]
    assert len(told) == 4
    assert set(page.faults) - set(told) <= {"https://evil.invalid/x.png"}
    assert page.failures == ["csp"]
    page.faults.clear()


def test_the_pairwise_view_shows_flips(store: Store, opened: Any) -> None:
    """Both orders stand beside each other, flips have a badge, and a case opens both runs."""
    sample.experiments(store, 12)
    experiments, items = from_experiments(store, ["baseline", "candidate"])
    options = ReportOptions(is_grouped=True, baseline="baseline")
    page = opened(render(build(items, options, pairwise_of(store, experiments))))

    flips = page.count(".chip.flip")
    page.page.click(".duels tbody tr:has(.flip) a >> nth=0")

    assert flips > 0
    assert page.count(".duels tbody tr:has(.flip) .asked") == 2 * flips
    assert page.count("#panel .pair.heads h3") == 2


def test_a_page_works_without_scripts(store: Store, opened: Any) -> None:
    """With JavaScript off all rows and the runs in full are there, and no dead controls."""
    page = opened(compared(store, 10), java_script_enabled=False)

    assert page.page.locator("#rows > tr").count() == 10
    assert page.page.locator("article.run").first.is_visible()
    assert not page.page.locator("#search").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(store: Store, opened: Any, scheme: str) -> None:
    """The marks of every state have a contrast of 4.5 or more with what is behind them."""
    page = opened(compared(store), color_scheme=scheme)

    ratios = page.page.evaluate(
        """() => {
            const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
            const light = (colour) => {
                const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
                return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
            };
            return Array.from(document.querySelectorAll(".key-line .state, .chip")).map((one) => {
                const style = getComputedStyle(one);
                const [a, b] = [light(style.color), light(style.backgroundColor)];
                return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            });
        }"""
    )

    assert len(ratios) >= 5
    assert min(ratios) >= 4.5


def test_ten_thousand_runs_stay_usable(store: Store, opened: Any) -> None:
    """A page of 10,000 runs shows its first rows, filters, and opens a run within seconds."""
    sample.fill(store, 5000)
    page = opened(render(build(sample.read(store), ReportOptions())))

    page.page.set_default_timeout(20_000)
    assert page.count(SHOWN) == 200
    page.page.click("[data-filter=bad]")
    assert page.count(SHOWN) == 200
    page.page.click("#more")
    assert page.count(SHOWN) == 400
    page.page.click(f"{SHOWN} td.cell.fail a >> nth=0")
    assert page.count("#panel .message.user") == 1
