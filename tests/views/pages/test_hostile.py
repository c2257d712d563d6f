"""Hostile texts stay text on every page, and no page grows with the content of a trace."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from oteval.model import Trajectory
from oteval.store import Store

from . import hostile
from .conftest import ShowPages, put, run, score

MOST = 900_000  # bytes of a page
FORBIDDEN = {"style", "iframe", "object", "embed", "base", "math", "foreignobject"}
LINK = re.compile(r'href="(/[^"#]*)')
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Elements(HTMLParser):
    """The elements of a page that could do something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that runs, loads or sends something it should not."""
        self.scripts += tag == "script"
        if tag in FORBIDDEN:
            self.faults.append(tag)
        for name, value in attrs:
            target = name in ("href", "src", "action", "formaction", "xlink:href")
            is_own = (value or "").startswith(("/", "#", "?"))
            is_own = is_own and not (value or "").startswith("//")
            is_picture = (value or "").startswith("data:image/png;base64,") and tag == "img"
            if name.startswith("on") or name == "style" or (target and not (is_own or is_picture)):
                self.faults.append(f"{tag} {name}={(value or '')[:80]}")
            if name == "http-equiv":
                self.faults.append(name)


@pytest.fixture
def corpus(store: Store) -> Iterator[list[Trajectory]]:
    """Return the runs of the corpus."""
    return hostile.fill(store)


def paths(client: TestClient, runs: list[Trajectory]) -> list[str]:
    """Return the paths of all pages about some runs."""
    addresses = ["/", "/runs", "/runs?q=passed%3Dfalse", "/variants", "/conversations", "/alerts"]
    addresses += ["/evaluators", "/evaluators?period=all", "/experiments"]
    for trajectory in runs:
        addresses += [f"/runs/{trajectory.id}", f"/runs/{trajectory.id}/spans"]
    addresses += [f"/compare?a={runs[0].id}&b={trajectory.id}" for trajectory in runs[1:]]
    listed = client.get("/conversations").text
    links = re.findall(r'href="(/conversations/[^"]+)"', listed)
    # The test client decodes a path twice.
    return addresses + [link.replace("&amp;", "&") for link in links if "%25" not in link]


@pytest.mark.slow
def test_hostile_texts_do_nothing_and_pages_stay_small(
    store: Store, pages: ShowPages, corpus: list[Trajectory]
):
    """No element or attribute comes from a trace, nothing is invisible, and no page is large."""
    client = pages(store)
    for at, corpu in enumerate(corpus[:3]):
        store.spans.write(hostile.spans(corpu, 30, is_large=at == 0))
    for path in paths(client, corpus):
        answer = client.get(path)
        assert answer.status_code == 200, path
        elements = Elements()
        elements.feed(answer.text)
        assert elements.faults == [], path
        assert elements.scripts == 1, path
        assert len(answer.content) < MOST, path
        match = HIDDEN.search(answer.text.replace("\n", ""))
        assert match is None, (path, answer.text[max(0, match.start() - 80) : match.end() + 20])
        assert answer.headers.get_list("set-cookie") == []


def test_searches_and_addresses_are_hostile_as_well(store: Store, pages: ShowPages):
    """A text in the search field, a path or a parameter is escaped, and never causes an error."""
    put(store, run(1))
    client = pages(store)
    for text in hostile.TEXTS:
        plain = text.encode("utf-8", "replace").decode()
        for answer in (
            client.get("/runs", params={"q": plain}),
            client.get("/runs", params={"q": f'"{plain}"', "after": plain}),
            client.get("/compare", params={"a": plain, "b": plain}),
            client.get(f"/runs/{1:016x}", params={"q": plain, "from": plain, "end": plain}),
            client.get(f"/runs/{1:016x}/newer", params={"q": plain}),
        ):
            assert answer.status_code in (200, 303, 400, 404), text
            elements = Elements()
            elements.feed(answer.text)
            assert elements.faults == []


@pytest.mark.slow
def test_a_message_of_thousands_of_calls_shows_the_first(store: Store, pages: ShowPages):
    """The page counts the calls it leaves out, and links to all of them."""
    [trajectory, *_] = [
        trajectory for trajectory in hostile.fill(store) if len(trajectory.tail[1].tool_calls) > 60
    ]
    client = pages(store)
    text = client.get(f"/runs/{trajectory.id}").text
    assert text.count('<div class="call">') == 60
    assert "4,940 more calls" in text
    whole = client.get(f"/runs/{trajectory.id}/messages/1").text
    assert whole.count("→ tool_") == hostile.CALLS


def test_the_list_shows_questions_with_half_a_surrogate_pair(store: Store, pages: ShowPages):
    """JSON that DuckDB refuses is still read, with the broken character escaped."""
    put(store, run(1, "before \ud83d after"), run(2, "a pair \U0001f600, \\ud800 escaped"))
    text = pages(store).get("/runs").text
    assert "before \\ud83d after" in text
    assert "a pair \U0001f600, \\ud800 escaped" in text


def test_the_attributes_of_a_span_are_counted_and_cut(store: Store, pages: ShowPages):
    """A span with a thousand attributes, some of them large, has a link to all of them."""
    trajectory = run(1)
    put(store, trajectory)
    store.spans.write(hostile.spans(trajectory, 3, is_large=True))
    client = pages(store)
    text = client.get(f"/runs/{trajectory.id}/spans").text
    assert "more attributes" in text
    [link] = set(re.findall(rf'href="([^"]+/spans/{trajectory.root_span.span_id})"', text))
    assert len(client.get(link).text) > 900_000


@pytest.mark.slow
def test_links_to_the_parts_of_a_long_run_stay_few(store: Store, pages: ShowPages):
    """A run of 5,001 messages has links to its first, last and near parts only."""
    [trajectory] = [
        trajectory for trajectory in hostile.fill(store) if len(trajectory.tail) > hostile.CALLS
    ]
    text = pages(store).get(f"/runs/{trajectory.id}?from=2400").text
    parts = set(re.findall(r"from=(\d+)\"", text))
    assert {"5000", "2600", "1400", "3400"} <= parts
    assert len(parts) < 15


@pytest.mark.slow
def test_links_of_hostile_names_lead_to_their_runs(store: Store, pages: ShowPages):
    """A search by a name with quotes, spaces or marks finds it, and is shown as harmless text."""
    # Conditions leave out spaces at the ends of values, as on the command line.
    names = [text.strip()[:300] for text in hostile.TEXTS]
    runs = [hostile.with_text(number, name) for number, name in enumerate(names, 1)]
    put(store, *runs)
    store.scores.write(
        [
            score(trajectory, name, passed=False)
            for trajectory, name in zip(runs, names, strict=True)
        ]
    )
    client = pages(store)

    def links(path: str, part: str) -> set[str]:
        return {html.unescape(link) for link in LINK.findall(client.get(path).text) if part in link}

    evaluators = links("/evaluators?period=all", "/evaluators/")
    assert len(evaluators) >= len(names) - 3
    starts = ["/?period=all", *evaluators]
    searches = {link for start in starts for link in links(start, "/runs?q=")}
    assert len(searches) >= 2 * len(names)
    for link in searches:
        answer = client.get(link)
        assert answer.status_code == 200, (link, answer.text)
        assert "No run matches" not in answer.text, link
        visible_text = re.sub(r'="[^"]*"', "", answer.text).replace("\n", "")
        assert HIDDEN.search(visible_text) is None, link
