"""The pages of conversations: ``/conversations``, and ``/conversations/ID`` with its turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import NotFound
from ..evaluators.judge.costs import Prices
from ..selection import Condition, Selection
from ..show.html.model import State
from ..show.text import duration, one_line, shorten
from ..store import RunKey, Store
from .responses import conversation_link, page, with_query
from .runs import RunItem, items_of, key_of, key_text
from .site import Site

__all__ = ["ConversationItem", "conversation_items", "conversations_routes"]

_PAGE, _LOOKED_AT, _TURNS = 40, 400, 500
_NAME = 80


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """A conversation.

    Attributes:
        name: Its id, shortened.
        link: The path of its page.
        last: Its latest run.
        turns: The number of runs in it.
        failing: The number of runs that fail.
        state: ``fail`` if one of its runs fails, else the verdict on the latest.
        lasted: From the start of the first run to that of the last.
    """

    name: str
    link: str
    last: RunItem
    turns: int
    failing: int
    state: State
    lasted: str


def conversations_routes(site: Site) -> list[Route]:
    """Return the routes of conversations."""

    async def conversations(request: Request) -> Response:
        after = key_of(request.query_params.get("after", ""))

        def read(store: Store) -> tuple[Sequence[ConversationItem], RunKey | None]:
            return conversation_items(store, site.prices, after)

        items, older = await site.read(read)
        return page(
            "conversations.html.j2",
            section="conversations",
            now_ns=site.clock(),
            conversations=items,
            older=with_query("/conversations", after=key_text(older)) if older else "",
            newest="/conversations" if after else "",
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


def conversation_items(
    store: Store, prices: Prices, after: RunKey | None = None
) -> tuple[Sequence[ConversationItem], RunKey | None]:
    """Return the conversations of the latest runs, and the key at which the next page begins.

    A conversation is listed by its latest run, so that it is on one page only.

    Args:
        store: The store.
        prices: The prices of models.
        after: The run after which the page begins, or None for the newest.
    """
    selection = Selection(conditions=(Condition("conversation", "!=", ""),))
    keys = store.run_list.keys(selection, _LOOKED_AT, after=after)
    rows = store.run_list.rows(keys)
    names = list(dict.fromkeys(row.conversation_id for row in rows if row.conversation_id))
    members = store.run_list.of_conversations(names)
    latest = {name: found[-1] for name, found in members.items()}
    shown = [row for row in rows if latest.get(row.conversation_id) == row.key][:_PAGE]
    older = None
    if len(shown) == _PAGE:
        older = shown[-1].key
    elif len(keys) == _LOOKED_AT:
        older = keys[-1]
    every = [key for row in shown for key in members[row.conversation_id]]
    scores = store.scores.of([key.id for key in every], longest=0)
    failing = {name for name, found in scores.items() if any(s.passed is False for s in found)}
    items = {item.id: item for item in items_of(store, [row.key for row in shown], prices)}
    found = []
    for row in shown:
        runs = members[row.conversation_id]
        fails = sum(key.id in failing for key in runs)
        last = items[row.id]
        found.append(
            ConversationItem(
                name=shorten(one_line(row.conversation_id), _NAME),
                link=conversation_link(row.conversation_id),
                last=last,
                turns=len(runs),
                failing=fails,
                state="fail" if fails else last.state,
                lasted=duration(runs[-1].start_ns - runs[0].start_ns) if len(runs) > 1 else "",
            )
        )
    return found, older
