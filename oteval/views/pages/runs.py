"""The page of runs: ``/runs``, a page of the list for a search, with the reason of each failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError, NotFound
from ...model import EVERYTHING, EvaluationResult, Prices, RunRow, Score, Trajectory
from ...store import RunKey, Store
from ..report.model import State
from ..run_texts import CHOICES, cell_text, check_choices, head_of
from ..text import SIGNS, clean, clock, failures_first, one_line, shorten
from .events import state_text
from .just_ended import Preview, previews_text
from .responses import page, with_query
from .search import (
    FoundRuns,
    ListedScores,
    RunSearch,
    find_runs,
    narrowed,
    parse_search,
    suggestions,
)
from .site import Site

__all__ = [
    "DEFAULT_COLUMNS",
    "Mark",
    "RunItem",
    "RunsPage",
    "chosen_columns",
    "columns_text",
    "item_of",
    "items_of",
    "kept_columns",
    "listed_item",
    "marks_of",
    "note_of",
    "row_columns",
    "runs_routes",
]

_PAGE = 50
# A page of a search stops looking after this many seconds, and offers to go on.
_PATIENCE = 0.15
# The most runs of a search that are counted.
_COUNTED = 100_001
_REASON, _QUESTION, _NAME, _LOOKED_AT = 220, 240, 60, 4000  # characters
_ALWAYS_READ = ("agent", "service", "conversation", "turn", "model", "errors", "gap", "asked")
# A search of only such a word looks for the run with this id first.
_SHORTEST_ID, _LONGEST_ID = 8, 32
# Passes are named where there are at most so many verdicts; failures always are.
_MOST_NAMED = 3
# The most verdicts that are named.
_MARKS = 12

DEFAULT_COLUMNS = ("calls", "seconds", "tokens", "cost", "gap")
# Their names in addresses of older versions.
_OLDER_NAMES = {
    "time": "seconds",
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "gaps": "gap",
}
_ORDERED = tuple(dict.fromkeys((*DEFAULT_COLUMNS, *CHOICES)))
# The form sends it together with the ticked columns, so that a person can also choose none.
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Mark:
    """The verdict of an evaluator, or of several that pass, as a sign with a name.

    Attributes:
        state: The verdict in a word.
        sign: A sign, or the score of a verdict that neither passes nor fails.
        name: The evaluator.
        note: The verdict and its reason in one line.
    """

    state: State
    sign: str
    name: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunItem:
    """A line of the list.

    Attributes:
        id: The run's id.
        link: The path of its page.
        start_ns: When it began (ns since the epoch).
        started: The same as text.
        agent: Its agent or service.
        question: The beginning of the question, or "".
        marks: The verdicts, failures first.
        state: The worst verdict: the state of the run.
        reason: Why it failed or was not evaluated, with the evaluator's name, or "".
        cells: The texts of its columns, by name.
        failures: The number of tool results that are failures.
        gaps: The codes of its gaps.
    """

    id: str
    link: str
    start_ns: int
    started: str
    agent: str
    question: str
    marks: tuple[Mark, ...]
    state: State
    reason: str
    cells: Mapping[str, str]
    failures: int
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Everything that the page shows.

    Attributes:
        search: The search.
        items: The runs.
        count: How many runs match, as text, or "" where counting would read them.
        older: The path of the next page, or "".
        newest: The path of the first page, or "" if this is the first page.
        note: How far the search looked if it stopped before its end, or "".
        state: How far the store had grown.
        columns: The columns, with their heads.
        kept: The value of the parameter that chooses them, for links; "" for the usual columns.
        ended: The runs that just ended, which are not stored yet.
        hides_ended: Whether there are such runs that a filter on scores hides.
    """

    search: RunSearch
    items: tuple[RunItem, ...]
    count: str
    older: str
    newest: str
    note: str
    state: str
    columns: tuple[tuple[str, str], ...]
    kept: str
    ended: tuple[RunItem, ...] = ()
    hides_ended: bool = False


def runs_routes(site: Site) -> list[Route]:
    """The routes of the list."""

    async def runs(request: Request) -> Response:
        text = request.query_params.get("q", "")
        after = key_of(request.query_params.get("after", ""))
        search = parse_search(text)
        columns = chosen_columns(request.query_params.getlist("columns"))
        if run_id := await site.read(lambda store: _named(store, search)):
            return RedirectResponse(with_query(f"/runs/{run_id}"), 303)
        if "rows" in request.query_params:
            # All browsers send this request at the same moment, when a run has arrived.
            listing = await site.cached(
                ("rows", *search.key, after, columns_text(columns)),
                lambda store: runs_page(store, search, after, site.prices, columns=columns),
                patience=0,
            )
            listing = await site.read(lambda store: _with_previews(store, listing, site, after))
            return page("run_rows.html.j2", now_ns=site.clock(), runs=listing, is_fragment=True)
        listing = await site.read(
            lambda store: _with_previews(
                store,
                runs_page(store, search, after, site.prices, columns=columns),
                site,
                after,
            )
        )
        return page(
            "runs.html.j2",
            section="runs",
            now_ns=site.clock(),
            runs=listing,
            suggestions=suggestions(),
            every_column={name: head_of(name) for name in CHOICES},
            narrowed=narrowed,
        )

    return [Route("/runs", runs)]


def runs_page(
    store: Store,
    search: RunSearch,
    after: RunKey | None,
    prices: Prices,
    *,
    columns: Sequence[str] = DEFAULT_COLUMNS,
) -> RunsPage:
    """A page of the list.

    Args:
        store: The store.
        search: The search.
        after: The run after which the page begins, or None for the newest.
        prices: The prices of models.
        columns: The columns to show.
    """
    state = store.run_list.state()
    scores = ListedScores(store)
    matches = find_runs(store, search, _PAGE, after=after, scores=scores, patience=_PATIENCE)
    column_choice, older = columns_text(columns), ""
    items = items_of(store, matches.keys, prices, search.text, columns, scores)
    if matches.after:
        older = with_query(
            "/runs", q=search.text, after=key_text(matches.after), columns=column_choice
        )
    return RunsPage(
        search=search,
        items=items,
        count=_count(store, search, matches) if after is None else "",
        older=older,
        newest=with_query("/runs", q=search.text, columns=column_choice) if after else "",
        note=note_of(matches),
        state=state_text(state),
        columns=tuple((name, head_of(name)) for name in columns),
        kept=column_choice,
    )


def _with_previews(store: Store, listing: RunsPage, site: Site, after: RunKey | None) -> RunsPage:
    """The newest page, with the runs that just ended and match.

    They have no scores yet, so a filter on scores never matches them. They are read after the
    stored runs, so that no run is shown twice. If many traces just ended, a search does not wait
    for them: `events` reconstructs them, and the list is then loaded again.
    """
    if after is not None:
        return listing
    previews = site.previews.newest(store, is_patient=not listing.search.text)
    state = listing.state + previews_text(previews)
    if listing.search.verdict is not None:
        return replace(listing, state=state, hides_ended=bool(previews))
    matching = [preview for preview in previews if listing.search.selection.matches(preview.run)]
    items = tuple(_preview_item(preview, site.prices, listing) for preview in matching)
    # Without a number, because only the newest of them are here.
    count = (
        f"{listing.count} and runs that just ended" if items and listing.count else listing.count
    )
    return replace(listing, ended=items, state=state, count=count)


def _preview_item(preview: Preview, prices: Prices, listed: RunsPage) -> RunItem:
    item = item_of(
        preview.run,
        (),
        prices,
        search=listed.search.text,
        columns=[name for name, _ in listed.columns],
        name=preview.trace.trace_id,
    )
    return replace(item, marks=(Mark("absent", "…", "just ended; scores follow"),))


def items_of(
    store: Store,
    keys: Sequence[RunKey],
    prices: Prices,
    search: str = "",
    columns: Sequence[str] = DEFAULT_COLUMNS,
    scores: ListedScores | None = None,
) -> tuple[RunItem, ...]:
    """The lines of some runs.

    Args:
        store: The store.
        keys: The runs.
        prices: The prices of models.
        search: The search that their pages continue.
        columns: The columns that their pages lead back to.
        scores: Where their scores were read, if they were.
    """
    scores_by_run = (scores or ListedScores(store)).of([key.id for key in keys])
    rows = store.run_list.rows(keys, row_columns(columns))
    return tuple(
        listed_item(row, scores_by_run.get(row.id, ()), prices, search, columns) for row in rows
    )


def item_of(
    run: Trajectory,
    scores: Sequence[Score],
    prices: Prices,
    *,
    search: str = "",
    columns: Sequence[str] = DEFAULT_COLUMNS,
    name: str = "",
) -> RunItem:
    """The line of a run that was read already.

    Args:
        run: The run.
        scores: The newest score of each evaluator.
        prices: The prices of models.
        search: The search that its page continues.
        columns: The columns that its page leads back to.
        name: The id by which its page is found, if not its own.
    """
    row = RunRow.of(run, row_columns(columns))
    if name:
        row = replace(row, values={**row.values, "id": name, "turn": 0})
    return listed_item(row, scores, prices, search, columns)


def row_columns(columns: Sequence[str] = DEFAULT_COLUMNS) -> tuple[str, ...]:
    """The columns to read for lines that show some columns."""
    names = [name for name in columns if name != "cost"]
    return (*dict.fromkeys((*_ALWAYS_READ, *names)),)


def listed_item(
    row: RunRow,
    scores: Sequence[Score],
    prices: Prices,
    search: str = "",
    columns: Sequence[str] = DEFAULT_COLUMNS,
) -> RunItem:
    """The line of a run of the list.

    Args:
        row: The run, with `row_columns`.
        scores: The newest score of each evaluator.
        prices: The prices of models.
        search: The search that its page continues.
        columns: The columns that its page leads back to.
    """
    verdicts = failures_first(scores)
    cells = {name: cell_text(row, name, prices) for name in columns}
    if "turn" in cells and not (row["conversation"] and row["turn"]):
        cells["turn"] = ""
    return RunItem(
        id=row.id,
        link=with_query(f"/runs/{row.id}", q=search, columns=columns_text(columns)),
        start_ns=row["started"],
        started=clock(row["started"]),
        agent=_name(row.agent),
        question=shorten(one_line(row["asked"] or ""), _QUESTION),
        marks=marks_of(verdicts),
        state=verdicts[0].state if verdicts else "absent",
        reason=_reason(verdicts),
        cells=cells,
        failures=row["errors"],
        gaps=tuple(map(clean, row["gap"])),
    )


def marks_of(verdicts: Sequence[Score]) -> tuple[Mark, ...]:
    """Return marks for verdicts, in their order; many passes are counted in one mark."""
    passes = [verdict for verdict in verdicts if verdict.state == "pass"]
    shown_verdicts = (
        verdicts
        if min(len(verdicts) - _MOST_NAMED, len(passes) - 1) <= 0
        else [v for v in verdicts if v not in passes]
    )
    marks = [
        Mark(verdict.state, sign_of(verdict), _name(verdict.evaluator), _said(verdict))
        for verdict in shown_verdicts
    ]
    if len(marks) > _MARKS:
        hidden_marks = marks[_MARKS:]
        names = shorten(", ".join(mark.name for mark in hidden_marks[:_MARKS]), _REASON)
        marks = [*marks[:_MARKS], Mark("absent", "+", f"{len(hidden_marks)} more", names)]
    if len(shown_verdicts) < len(verdicts):
        names = shorten(", ".join(_name(verdict.evaluator) for verdict in passes[:_MARKS]), _REASON)
        marks.append(Mark("pass", SIGNS["pass"], f"{len(passes)} passed", names))
    return tuple(marks)


def sign_of(verdict: EvaluationResult) -> str:
    """The sign of a verdict; for a verdict that neither passes nor fails, its score."""
    if sign := SIGNS[verdict.state]:
        return sign
    return f"{verdict.score:.3g}" if verdict.score is not None else shorten(verdict.label, 12)


def _said(verdict: EvaluationResult) -> str:
    words = {"none": "not evaluated", "score": "score"}.get(verdict.state, verdict.state)
    return one_line(f"{words}: {shorten(verdict.comment, _REASON)}" if verdict.comment else words)


def _reason(verdicts: Sequence[Score]) -> str:
    """The first reason why a run did not pass, in one line."""
    for verdict in verdicts:
        if verdict.is_complaint and verdict.comment:
            reason = shorten(one_line(verdict.comment[:_LOOKED_AT]), _REASON)
            return f"{_name(verdict.evaluator)}: {reason}"
    return ""


def _name(text: str) -> str:
    return shorten(one_line(text), _NAME)


def _count(store: Store, search: RunSearch, matches: FoundRuns) -> str:
    if matches.after is None:
        return f"{len(matches.keys):,}"
    if search.verdict is not None or matches.looked_at:
        return ""
    count = store.run_list.count(search.selection, _COUNTED)
    is_all = count < _COUNTED or search.selection == EVERYTHING
    return f"{count:,}" if is_all else f"over {_COUNTED - 1:,}"


def note_of(matches: FoundRuns) -> str:
    """How far a search looked if it stopped before its end, or ""."""
    if not matches.is_cut or matches.after is None:
        return ""
    return f"searched back to {clock(matches.after.start_ns)}; earlier runs may match too"


def _named(store: Store, search: RunSearch) -> str:
    """The id of the run whose id or trace id is the search, or ""."""
    text = search.text
    if not _SHORTEST_ID <= len(text) <= _LONGEST_ID or set(text) - set("0123456789abcdef"):
        return ""
    try:
        return store.trajectories.get(text).id
    except NotFound:
        return ""


def key_text(key: RunKey) -> str:
    """A key as text for a URL."""
    return f"{key.start_ns}-{key.id}"


def key_of(text: str) -> RunKey | None:
    """The key of `key_text`, or None for "".

    Raises:
        ConfigError: The text is not a key.
    """
    if not text:
        return None
    start, dash, name = text.partition("-")
    if not dash or not start.isdecimal() or len(start) > 19:
        raise ConfigError(f"after={text[:60]}: not the key of a run; follow the links of the page")
    return RunKey(int(start), name)


def chosen_columns(parameter_values: Sequence[str]) -> tuple[str, ...]:
    """The columns that an address chooses, in the order of the list.

    Args:
        parameter_values: Names of columns, separated by commas. No value chooses the usual
            columns, and ``none`` alone chooses no column.

    Raises:
        ConfigError: A name is unknown.
    """
    names = {
        _OLDER_NAMES.get(name, name)
        for text in parameter_values
        for name in text.split(",")
        if name
    }
    check_choices(names - {_NONE}, "columns")
    if not names:
        return DEFAULT_COLUMNS
    return tuple(name for name in _ORDERED if name in names)


def kept_columns(request: Request) -> str:
    """The parameter of an address that chooses columns, for the way back to the list.

    Raises:
        ConfigError: A name is unknown.
    """
    return columns_text(chosen_columns(request.query_params.getlist("columns")))


def columns_text(columns: Sequence[str]) -> str:
    """The value of the parameter that chooses columns; "" for the usual columns."""
    if tuple(columns) == DEFAULT_COLUMNS:
        return ""
    return ",".join(columns) or _NONE
