"""The page: one file, safe whatever traces say, readable without a script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from justhtml import Element, JustHTML

from oteval.store import Store
from oteval.views.report import ReportOptions, ReportRun, RunVerdict, build, render
from oteval.views.report.charts import bar_chart
from oteval.views.report.model import Bars, Histogram
from oteval.views.report.page import safe_json
from oteval.views.report.sources import BY

from . import sample

# What makes a browser fetch or run something.
LOADING = {"src", "srcset", "data", "action", "formaction", "poster", "background", "ping"}


def parse(text: str) -> Element:
    """Return a page as a browser reads it; that it must mend anything is an error."""
    document = JustHTML(text, sanitize=False, collect_errors=True)
    assert not document.errors, document.errors[:3]
    return document.root


def inside(element: Element) -> str:
    """Return the text of an element that holds nothing else."""
    return "".join(str(child.data) for child in element.children)


def words(element: Element) -> str:
    """Return all text in an element that people read."""
    if element.name in ("script", "style"):
        return ""
    if element.name == "#text":
        return str(element.data)
    return "".join(words(child) for child in element.children or ())


def page_of(store: Store, *, compared: bool = True) -> str:
    """Return the page on a store."""
    items = sample.read(store, BY["version"] if compared else None)
    options = ReportOptions(is_grouped=compared, title=sample.HOSTILE, static=1000)
    return render(build(items, options, made_ns=sample.START_NS))


@pytest.fixture
def hostile(store: Store) -> Element:
    """Return the page on a store with a hostile run, parsed."""
    sample.fill(store, 5, evil=True)
    return parse(page_of(store))


def scripts(root: Element, kind: str | None) -> list[Element]:
    """Return the script elements of a type; None is what runs."""
    return [element for element in root.query("script") if element.attrs.get("type") == kind]


def test_hostile_text_adds_no_element(hostile: Element) -> None:
    """Whatever traces say, one script runs, no image is fetched, and no handler is there."""
    assert len(scripts(hostile, None)) == 1
    assert {script.attrs.get("type") for script in hostile.query("script")} == {
        None,
        "application/json",
    }
    for element in hostile.query("*"):
        assert not [name for name in element.attrs if name.lower().startswith("on")]
        assert "style" not in element.attrs
        for name in LOADING & set(element.attrs):
            assert element.attrs[name].startswith("data:image/")
        for name in ("href", "xlink:href"):
            assert element.attrs.get(name, "#").startswith(("#", "data:,"))
    assert not hostile.query("iframe, object, embed, base, form")


def test_hostile_text_is_shown_as_text(hostile: Element) -> None:
    """The text is there to read, its control and bidirectional characters made visible."""
    text = words(hostile)

    assert "</script><script>document.title='owned'</script>" in text
    assert "{{ 7*7 }}" in text
    assert "\\u202e" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


def test_the_policy_allows_its_own_script_and_style_alone(hostile: Element) -> None:
    """The hashes in the Content-Security-Policy are those of the page's script and style."""
    (meta,) = hostile.query("meta[http-equiv=Content-Security-Policy]")
    policy = meta.attrs["content"]
    (script,), (style,) = scripts(hostile, None), hostile.query("style")

    for name, element in (("script-src", script), ("style-src", style)):
        digest = hashlib.sha256(inside(element).encode()).digest()
        assert f"{name} 'sha256-{base64.b64encode(digest).decode()}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_every_cell_leads_to_a_run_in_the_file(store: Store) -> None:
    """Each link is to a run whose details are in the file, and the details say the same run."""
    sample.fill(store, 10)
    root = parse(page_of(store))

    json_by_id = {
        script.attrs["id"]: inside(script) for script in scripts(root, "application/json")
    }
    links = [anchor.attrs.get("href", "") for anchor in root.query("a")]
    runs = {link.removeprefix("#run-") for link in links if link.startswith("#run-")}

    assert len(runs) == 20
    for run in runs:
        details = json.loads(json_by_id[f"data-{run}"])
        assert details["id"] == run
        assert details["messages"][1]["role"] == "user"


def test_details_hold_all_that_a_run_has(store: Store) -> None:
    """Messages, calls, results, errors, parts, gaps, scores, steps, usage and times are there."""
    sample.fill(store, 30, evil=True)
    root = parse(page_of(store, compared=False))
    details_by_id = {
        element.attrs["id"]: json.loads(inside(element))
        for element in scripts(root, "application/json")
    }

    values = list(details_by_id.values())
    messages = [message for value in values for message in value["messages"]]
    evil = next(value for value in values if len(value["messages"]) == 5)
    assert any(message.get("failed") for message in messages)
    assert any(c.get("parallel") and c["took"] for m in messages for c in m.get("calls", []))
    assert {gap["code"] for value in values for gap in value["gaps"]} >= {"content_truncated"}
    assert any(score["state"] == "error" for value in values for score in value["scores"])
    assert values[0]["steps"] == [["agent", "tools", "agent"]]
    assert {"took", "tokens", "started"} <= {name for name, _ in values[0]["facts"]}
    image, other, remote = evil["messages"][3]["parts"]
    assert image["image"] == f"data:image/png;base64,{sample.PIXEL}"
    assert "image" not in other
    assert "evil.example" in remote["text"]
    assert "280,000 more characters" in evil["messages"][3]["text"]
    assert evil["messages"][1]["calls"][1] == {"name": "unseen", "missing": True}
    assert evil["messages"][4]["missing"]


def test_a_page_is_readable_without_its_script(store: Store) -> None:
    """Runs that did not pass stand in the page in full, and cells link to them."""
    sample.fill(store, 5)
    root = parse(page_of(store))

    articles = root.query("article.run")
    text = "".join(map(words, articles))
    assert len(articles) == 10
    assert "refund_order" in text
    assert '"order_id": "4711"' in text


@pytest.mark.parametrize("text", [sample.HOSTILE, "<!--<script>", "]]>", "\u2029&lt;"])
def test_json_in_a_page_cannot_end_its_script(text: str) -> None:
    """No character that a parser of HTML acts on is left, and the value is the same."""
    value = json.dumps({text: [text]}, ensure_ascii=False)

    safe = safe_json(value)

    assert not set("<>&\u2028\u2029") & set(safe)
    assert json.loads(safe) == json.loads(value)


def svg_of(chart: Bars | Histogram) -> str:
    """Return the first chart of a page that shows one chart."""
    item = ReportRun("r", "", "r", "x", (RunVerdict("e", score=0.5),))
    page = render(replace(build([item], ReportOptions()), charts=(chart,)))
    return re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL)[0]


def test_a_chart_has_neither_script_nor_style() -> None:
    """A chart is shapes and texts; hostile names stay text."""
    bars = Bars("rate", ("<script>x</script>", "v2"), (("e", ((0.5, 0.4, 0.6, 10), None)),))

    svg = svg_of(bars)

    assert not re.search(r"<script|<style|<!--|href|style=|http://", svg)
    assert "e: 50.0% of 10 (40.0% to 60.0%)" in svg
    assert "&lt;script&gt;" in svg


def test_a_bar_is_as_high_as_its_value() -> None:
    """Bars and intervals use the scale of the axis, and no bar leaves the plot."""
    rates = ((0.5, 0.4, 0.6, 10), (1.0, 0.9, 1.0, 10), (0.0, 0.0, 0.1, 10))
    chart = bar_chart(Bars("rate", ("a", "b", "c"), (("e", rates), ("f", rates))))
    axis_bottom, axis_top = chart.y_ticks[0][0], chart.y_ticks[-1][0]

    assert [text for _, text in chart.y_ticks] == ["0%", "25%", "50%", "75%", "100%"]
    for bar, (rate, low, high, _) in zip(chart.bars, rates * 2, strict=True):
        assert bar.height == pytest.approx(rate * (axis_bottom - axis_top), abs=0.2)
        assert bar.y + bar.height == pytest.approx(axis_bottom, abs=0.2)
        top, bottom = bar.interval or (0, 0)
        assert (axis_bottom - top) == pytest.approx(high * (axis_bottom - axis_top), abs=0.2)
        assert (axis_bottom - bottom) == pytest.approx(low * (axis_bottom - axis_top), abs=0.2)
        assert chart.left <= bar.x < bar.x + bar.width <= chart.right
    edges = sorted((bar.x, bar.x + bar.width) for bar in chart.bars)
    assert all(left[1] <= right[0] for left, right in pairwise(edges))


def test_a_histogram_names_its_bins() -> None:
    """Each bar says how many runs of which group lie in which range."""
    svg = svg_of(Histogram("time", ("1 s – 2 s", "2 s – 3 s"), (("v1", (3, 0)), ("v2", (1, 4)))))

    assert "v2: 4 runs, 2 s – 3 s" in svg


def test_equal_values_have_a_chart_of_one_bin() -> None:
    """Runs that all took the same time do not break the chart."""
    items = [
        ReportRun(
            f"r{n}", "", f"r{n}", "x", (RunVerdict("e", score=0.5),), start_ns=1, end_ns=1_000_001
        )
        for n in range(3)
    ]

    page = render(build(items, ReportOptions()))

    assert "Time per run" in page


def test_the_same_report_is_the_same_page(store: Store) -> None:
    """Nothing but the time of making differs between two reports on the same runs."""
    sample.fill(store, 3)

    assert page_of(store) == page_of(store)
