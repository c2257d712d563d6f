"""The pages of conversations: ``/conversations``, and ``/conversations/ID`` with its turns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import NotFound
from ...model import Condition, Prices, RunRow, Selection
from ...store import ConversationRuns, RunKey, Store
from ..report.model import State
from ..text import duration, one_line, shorten
from .responses import conversation_link, page, with_query
from .runs import RunItem, items_of, key_of, key_text, listed_item, note_of, row_columns
from .search import ListedScores, RunSearch, find_runs, parse_search, suggestions
from .site import Site

__all__ = ["ConversationItem", "conversations_page", "conversations_routes"]

_PAGE, _LOOKED_AT, _TURNS = 40, 160, 500
# The latest runs of a conversation whose scores are looked at for the list.
_SCORED = 200
# More runs make a conversation long.
_LONG = 50
# A page stops looking after this many seconds.
_PATIENCE = 0.1
_NAME = 80


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """A conversation.

    Attributes:
        name: Its id, shortened.
        link: The path of its page.
        last: Its latest run that matches the search.
        turns: The number of runs in it.
        failing: The number of failing runs among the latest 200.
        state: ``fail`` if one of its runs fails, else the verdict on its latest matching run.
        lasted: From the start of the first run to the start of the last.
        scored: The number of runs that were looked at for `failing`.
    """

    name: str
    link: str
    last: RunItem
    turns: int
    failing: int
    state: State
    lasted: str
    scored: int


def conversations_routes(site: Site) -> list[Route]:
    """The routes of conversations."""

    async def conversations(request: Request) -> Response:
        after = key_of(request.query_params.get("after", ""))
        search = parse_search(request.query_params.get("q", ""))
        conversation_list = await site.read(
            lambda store: conversations_page(store, search, after, site.prices)
        )
        return page(
            "conversations.html.j2",
            section="conversations",
            now_ns=site.clock(),
            conversations=conversation_list,
            suggestions=suggestions(),
        )

    async def conversation(request: Request) -> Response:
        name = request.path_params["name"]

        def read(store: Store) -> Sequence[RunItem]:
            selection = Selection(conversations=(name,))
            keys = store.run_list.keys(selection, _TURNS, is_forward=True)
            return items_of(store, keys, site.prices)

        turns = await site.read(read)
        if not turns:
            raise NotFound(f"no conversation {name[:200]!r}")
        return page(
            "conversation.html.j2",
            section="conversations",
            now_ns=site.clock(),
            name=shorten(one_line(name), _NAME),
            turns=turns,
            most=_TURNS,
        )

    return [
        Route("/conversations", conversations),
        Route("/conversations/{name:path}", conversation),
    ]


def conversations_page(
    store: Store, search: RunSearch, after: RunKey | None, prices: Prices
) -> Mapping[str, Any]:
    """A page of the conversations with a matching run, the latest first.

    A conversation is listed by its latest run that matches, so that it is on one page only.

    Args:
        store: The store.
        search: The search.
        after: The run after which the page begins, or None for the newest.
        prices: The prices of models.
    """
    scores, until = ListedScores(store), time.monotonic() + _PATIENCE
    members: dict[str, ConversationRuns] = {}
    rows: list[RunRow] = []
    next_after = after
    while True:
        matches = find_runs(
            store,
            _in_other_conversations(search, members),
            _LOOKED_AT,
            after=next_after,
            scores=scores,
            patience=_PATIENCE,
        )
        latest: dict[str, RunRow] = {}
        for row in store.run_list.rows(matches.keys, row_columns()):
            if row["conversation"] not in members:
                latest.setdefault(row["conversation"], row)
        runs = store.run_list.of_conversations(list(latest), _SCORED)
        listed = _on_earlier_pages(store, search, runs, after)
        rows += [row for name, row in latest.items() if name in runs and name not in listed]
        members |= runs
        next_after = matches.after
        is_over = matches.is_cut or time.monotonic() > until
        if len(rows) > _PAGE or next_after is None or is_over:
            break
    page_rows = rows[:_PAGE]
    if len(rows) > _PAGE:
        next_after = RunKey.of(page_rows[-1])
    older = ""
    if next_after:
        older = with_query("/conversations", q=search.text, after=key_text(next_after))
    return {
        "search": search,
        "rows": _items(page_rows, members, prices, scores),
        "older": older,
        "newest": with_query("/conversations", q=search.text) if after else "",
        "note": note_of(matches) if len(rows) <= _PAGE else "",
    }


def _in_other_conversations(search: RunSearch, listed: Mapping[str, ConversationRuns]) -> RunSearch:
    """A search for runs in conversations, without the long conversations that were seen already."""
    # The runs of the other conversations are too few to fill a page.
    names = ["", *(name for name, runs in listed.items() if runs.count > _LONG)]
    excluded = tuple(Condition("conversation", "!=", name) for name in names)
    selection = search.selection
    conditions = (*selection.conditions, *excluded)
    return replace(search, selection=replace(selection, conditions=conditions))


def _on_earlier_pages(
    store: Store,
    search: RunSearch,
    members: Mapping[str, ConversationRuns],
    after: RunKey | None,
) -> set[str]:
    """The conversations that are listed before this page, by a newer run that matches."""
    if after is None:
        return set()
    newer = {name for name, runs in members.items() if runs.latest[0] >= after}
    if not search.text:
        return newer
    listed = set[str]()
    while newer:
        # From the run `after` itself on: without an id, a key is before all runs of its time.
        matches = find_runs(
            store,
            replace(search, selection=replace(search.selection, conversations=tuple(newer))),
            _LOOKED_AT,
            after=RunKey(after.start_ns, ""),
            is_forward=True,
            patience=_PATIENCE,
        )
        rows = store.run_list.rows([key for key in matches.keys if key >= after], ["conversation"])
        names = {row["conversation"] for row in rows}
        listed |= names
        # A long conversation may be all that was found: then the others are looked for.
        newer = newer - names if names and matches.after else set()
    return listed


def _items(
    rows: Sequence[RunRow],
    members: Mapping[str, ConversationRuns],
    prices: Prices,
    scores: ListedScores,
) -> tuple[ConversationItem, ...]:
    """The lines of the conversations of some runs."""
    run_keys = [key for row in rows for key in members[row["conversation"]].latest]
    scores_by_run = scores.of([key.id for key in run_keys])
    failing = {
        name
        for name, run_scores in scores_by_run.items()
        if any(s.passed is False for s in run_scores)
    }
    row_scores = scores.of([row.id for row in rows])
    return tuple(
        _item(
            row, listed_item(row, row_scores[row.id], prices), members[row["conversation"]], failing
        )
        for row in rows
    )


def _item(
    row: RunRow, last: RunItem, runs: ConversationRuns, failing: Set[str]
) -> ConversationItem:
    fails = sum(key.id in failing for key in runs.latest)
    lasted = runs.latest[0].start_ns - runs.first_ns
    return ConversationItem(
        name=shorten(one_line(row["conversation"]), _NAME),
        link=conversation_link(row["conversation"]),
        last=last,
        turns=runs.count,
        failing=fails,
        state="fail" if fails else last.state,
        lasted=duration(lasted) if runs.count > 1 else "",
        scored=len(runs.latest),
    )
