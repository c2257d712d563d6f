"""The columns of the list of runs, chosen by the address."""

from __future__ import annotations

import re

from oteval.model.columns import COLUMNS, LISTED
from oteval.store import Store

from .conftest import ShowPages, put, run


def heads(text: str) -> list[str]:
    """Return the heads of the columns of the first run on a page."""
    line = text[text.index('data-id="') :].split("</li>")[0]
    return re.findall(r"<dt>([^<]+)</dt>", line)


def test_the_usual_columns_are_shown_unless_others_are_chosen(shop: Store, pages: ShowPages):
    """Columns are in the order of the list, whatever the order in the address."""
    client = pages(shop)
    assert heads(client.get("/runs").text) == ["calls", "time", "tokens", "cost", "gaps"]
    chosen = client.get("/runs?columns=model,cost,calls").text
    assert heads(chosen) == ["calls", "cost", "model"]
    assert "gpt-5-mini" in chosen


def test_every_column_of_a_run_can_be_chosen(shop: Store, pages: ShowPages):
    """The list has a choice for each column that is not always shown, and the cost."""
    names = [name for name in LISTED if name not in ("id", "started", "agent", "asked")]
    text = pages(shop).get("/runs?columns=" + ",".join([*names, "cost"])).text
    assert sorted(heads(text)) == sorted(["cost", *(COLUMNS[name].head for name in names)])


def test_the_form_sends_a_value_for_each_column(shop: Store, pages: ShowPages):
    """Without a ticked column, the form's value chooses no column."""
    client = pages(shop)
    assert heads(client.get("/runs?columns=none&columns=time&columns=gaps").text) == [
        "time",
        "gaps",
    ]
    text = client.get("/runs?columns=none").text
    assert heads(text) == []
    assert 'value="none"' in text
    assert not re.search(r'name="columns" value="\w+" checked', text)


def test_the_links_and_the_search_keep_the_columns(store: Store, pages: ShowPages):
    """Older runs, quick filters, the rows alone and the search field have the same columns."""
    put(store, *(run(number) for number in range(1, 61)))
    client = pages(store)
    text = client.get("/runs?columns=model").text
    [older] = re.findall(r'rel="next" href="([^"]+)"', text)
    assert heads(client.get(older.replace("&amp;", "&")).text) == ["model"]
    quick = re.findall(r'href="(/runs\?q=[^"]+)"', text)
    assert quick
    assert all("columns=model" in link for link in quick)
    form = text.split('role="search"')[1].split("</form>")[0]
    assert '<input type="hidden" name="columns" value="model">' in form
    assert heads(client.get("/runs?columns=model&rows=1").text) == ["model"]


def test_an_unknown_column_is_refused(shop: Store, pages: ShowPages):
    """The page names the existing columns, and escapes the unknown one."""
    answer = pages(shop).get("/runs", params={"columns": "calls,<b>"})
    assert answer.status_code == 400
    assert "&lt;b&gt;: there are service, conversation" in answer.text


def test_the_way_back_from_a_run_keeps_the_columns(store: Store, pages: ShowPages):
    """A run, its spans, and the runs before and after it lead back to the chosen columns."""
    put(store, run(1), run(2), run(3))
    client = pages(store)
    link = re.findall(rf'href="(/runs/{2:016x}[^"]*)"', client.get("/runs?columns=model").text)[0]
    page = client.get(link).text
    assert 'href="/runs?columns=model"' in page
    for way in ("newer", "older"):
        [step] = re.findall(rf'href="(/runs/\w+/{way}[^"]*)"', page)
        there = client.get(step).headers["location"]
        assert 'href="/runs?columns=model"' in client.get(there).text
    [spans] = set(re.findall(r'href="(/runs/\w+/spans[^"]*)"', page))
    assert f'href="/runs/{2:016x}?columns=model"' in client.get(spans).text
    assert client.get(f"/runs/{2:016x}?columns=colour").status_code == 400
