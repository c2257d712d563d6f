"""The page of a run: ``/runs/ID``, its conversation with the scores beside the messages.

It also has the routes to the runs around it: newer, older, and the next failing run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError, NotFound
from ...model import Condition, Prices, Score, Selection, Trajectory
from ...scoring import Config
from ...store import Store
from ..report.details import details
from ..report.model import ReportRun, RunVerdict, State
from ..run_texts import cost_text, question_line
from ..text import clean, failures_first, one_line, shorten
from .actions import DONE, run_actions
from .events import state_text
from .just_ended import Preview
from .labels import next_link
from .responses import conversation_link, near_parts, page, text_page, with_query
from .run_scores import missing_scores, places_of
from .runs import RunItem, items_of, kept_columns, sign_of
from .search import find_runs, parse_search, run_with_id, stored_run
from .shown_messages import LONGEST, PART_MESSAGES, conversation_part, whole_text
from .site import Site

__all__ = ["RunPage", "ShownScore", "run_page", "run_routes"]

# Characters of a trace's id.
_TRACE_ID = 32
# Characters of a title.
_TITLE = 160
# Characters of all scores' reasons, and of each at least.
_SCORE_ROOM, _SHORTEST = 60_000, 200
# The most scores, scores beside messages, and gaps.
_SCORES, _BESIDE, _GAPS = 200, 60, 50
_SUB_AGENTS = 50
# How long after the end of a run its sub-agents may begin.
_LATEST_CALL_NS = 3600 * 10**9
# Facts that have links or a place on the page.
_LINKED = ("conversation", "called by", "trace", "root span", "started")


@dataclass(frozen=True, slots=True)
class ShownScore:
    """A score on the page.

    Attributes:
        state: The verdict in a word.
        sign: Its sign.
        evaluator: The evaluator.
        value: The score or the label, or "".
        comment: Why.
        metadata: Figures, as text.
        version: The evaluator's version.
        places: The numbers of the messages that it refers to.
    """

    state: State
    sign: str
    evaluator: str
    value: str
    comment: str
    metadata: str
    version: str
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunPage:
    """Everything that the page shows.

    Attributes:
        id: The run's id.
        title: The question, or else the agent.
        agent: The agent or the service.
        start_ns: When it began (ns since the epoch).
        facts: Names and values.
        cost: Its cost at list prices, or "".
        scores: The scores, failures first.
        beside: The scores to show beside a message, by its number.
        compared: Comparisons that may explain a fail, each as text and path.
        missing: The configured evaluators without a score.
        config_problem: Why the configuration cannot be read, or "".
        messages: The messages of this part of the page.
        first: The number of the run's first message.
        last: The number after its last message.
        shown_from: The number of the first message of this part.
        parts: The first messages of all parts, if there are several.
        whole: The numbers of messages that are shown in part.
        tools: The names of tools by the ids of calls.
        earlier: The number of messages of earlier turns.
        is_whole: Whether the messages of earlier turns are shown as well.
        before: The id of the previous turn's run, or "".
        gaps: The gaps, each with its code, detail and place.
        rewrites: The places of replaced history, with the number of messages.
        conversation: The conversation's id, or "".
        turn: The number of the run in it.
        parent: The id of the run that called it, or "".
        sub_agents: The runs that it called.
        trace_id: The trace of its root span.
    """

    id: str
    title: str
    agent: str
    start_ns: int
    facts: tuple[tuple[str, str], ...]
    cost: str
    scores: tuple[ShownScore, ...]
    beside: Mapping[int, Sequence[ShownScore]]
    compared: tuple[tuple[str, str], ...]
    missing: Mapping[str, str]
    config_problem: str
    messages: Sequence[Mapping[str, Any]]
    first: int
    last: int
    shown_from: int
    parts: tuple[int, ...]
    whole: frozenset[int]
    tools: Mapping[str, str]
    earlier: int
    is_whole: bool
    before: str
    gaps: Sequence[Mapping[str, str]]
    rewrites: Sequence[tuple[int, int]]
    conversation: str
    turn: int
    parent: str
    sub_agents: Sequence[RunItem]
    trace_id: str

    @property
    def conversation_link(self) -> str:
        """The path of the page of its conversation."""
        return conversation_link(self.conversation)

    def near_parts(self) -> Sequence[int]:
        """The parts of the conversation that have links."""
        return near_parts(self.parts, self.shown_from)

    def part_of(self, number: int) -> int:
        """The first message of the part that a message is in."""
        return number - (number - self.first) % PART_MESSAGES


def run_routes(site: Site) -> list[Route]:
    """The routes of a run."""

    async def run(request: Request) -> Response:
        name, query = request.path_params["name"], request.query_params.get("q", "")
        first, is_whole = _number(request, "from"), "whole" in request.query_params
        columns = kept_columns(request)
        evaluator = request.query_params.get("evaluator", "")[:_TITLE]
        view = await site.read(
            lambda store: _read_run(
                store, site, name, first=first, is_whole=is_whole, evaluator=evaluator
            )
        )
        if isinstance(view, str):
            return RedirectResponse(with_query(f"/runs/{view}", q=query, columns=columns), 303)
        if isinstance(view, Preview):
            return await _preview_page(site, view, query, columns)
        stored_page, actions = view
        return _run_response(request, site, stored_page, actions, columns)

    async def message(request: Request) -> Response:
        name, number = request.path_params["name"], request.path_params["number"]
        trajectory = await site.read(lambda store: stored_run(store, name))
        if number >= len(trajectory.messages):
            raise HTTPException(404, f"the run has no message {number}")
        return text_page(whole_text(trajectory.messages[number]))

    return [
        Route("/runs/{name}", run),
        Route("/runs/{name}/messages/{number:int}", message),
        *(Route(f"/runs/{{name}}/{way}", partial(_step, site, way)) for way in _ENDS),
    ]


def _read_run(
    store: Store, site: Site, name: str, *, first: int, is_whole: bool, evaluator: str
) -> tuple[RunPage, Mapping[str, Any]] | Preview | str:
    """The page of a run with its actions.

    Returns:
        The page and its actions; the preview of a trace that just ended; or the id of the run if
        the name is shorter.
    """
    run = _run_or_preview(store, name, site)
    if isinstance(run, str | Preview):
        return run
    config, problem = site.config()
    scores = store.scores.of([run.id])[run.id]
    shown_page = run_page(
        run,
        scores,
        config,
        problem,
        sub_agents=_sub_agents(store, run, site.prices),
        prices=site.prices,
        first=first,
        is_whole=is_whole,
    )
    scored_by = [score.evaluator for score in scores]
    return shown_page, run_actions(store, run.id, scored_by, config, evaluator)


def _run_response(
    request: Request, site: Site, stored_page: RunPage, actions: Mapping[str, Any], columns: str
) -> Response:
    """Render the page of a stored run, with a note on the action or step that led to it."""
    end, done = (request.query_params.get(name, "") for name in ("end", "done"))
    note = DONE.get(done, "")
    return page(
        "run.html.j2",
        section="runs",
        run=stored_page,
        query=request.query_params.get("q", ""),
        columns=columns,
        now_ns=site.clock(),
        end=_ENDS.get(end, "") or (note if done == "labelled" else ""),
        labelled=note if done == "label" else "",
        done=note if done not in ("label", "labelled") else "",
        acts=actions,
        next_path=next_link(request, stored_page.id),
    )


_ENDS = {
    "newer": "This is the newest run of the search.",
    "older": "This is the oldest run of the search.",
    "failure": "No earlier run of the search fails.",
}


async def _step(site: Site, way: str, request: Request) -> Response:
    """Redirect to the next run of the search in a direction."""
    name, query = request.path_params["name"], request.query_params.get("q", "")
    search = parse_search(query)
    if way == "failure":
        search = search.failing()

    def find(store: Store) -> tuple[str, bool]:
        key = store.run_list.find(name)
        if key is None:
            raise NotFound(f"no run {name!r}")
        matches = find_runs(store, search, 1, after=key, is_forward=way == "newer")
        return (matches.keys[0].id, False) if matches.keys else (name, True)

    target, is_end = await site.read(find)
    end = way if is_end else None
    path = with_query(f"/runs/{target}", q=query, columns=kept_columns(request), end=end)
    return RedirectResponse(path, 303)


def _run_or_id(store: Store, name: str) -> Trajectory | str:
    """The run with an id, or the id of the run that a shorter name identifies."""
    if run := run_with_id(store, name):
        return run
    try:
        return store.trajectories.get(name).id
    except NotFound as error:
        raise NotFound(str(error).partition("; oteval")[0]) from None


def _run_or_preview(store: Store, name: str, site: Site) -> Trajectory | Preview | str:
    """The result of `_run_or_id`, or the preview of a trace that just ended.

    The preview is read first: if the run is stored meanwhile, the store has it.
    """
    preview = site.previews.of(store, name) if len(name) == _TRACE_ID else None
    try:
        return _run_or_id(store, name)
    except NotFound:
        if preview is None:
            raise
        return preview


async def _preview_page(site: Site, preview: Preview, query: str, columns: str) -> Response:
    """The page of a run that just ended, without scores and actions."""
    run = replace(preview.run, id=preview.trace.trace_id)
    preview_page = run_page(run, scores=(), prices=site.prices)
    return page(
        "preview.html.j2",
        section="runs",
        run=replace(preview_page, whole=frozenset()),
        query=query,
        columns=columns,
        now_ns=site.clock(),
        is_plain=preview.is_plain,
        state=await site.read(lambda store: state_text(store.run_list.state())),
    )


def _sub_agents(store: Store, run: Trajectory, prices: Prices) -> Sequence[RunItem]:
    selection = Selection(
        conditions=(Condition("parent", "=", run.id),),
        since_ns=run.start_ns,
        # This way, not every later run is looked at.
        until_ns=max(run.start_ns, run.end_ns) + _LATEST_CALL_NS,
    )
    keys = store.run_list.keys(selection, _SUB_AGENTS, is_forward=True)
    return items_of(store, keys, prices)


def run_page(
    run: Trajectory,
    scores: Sequence[Score],
    config: Config | None = None,
    config_problem: str = "",
    *,
    sub_agents: Sequence[RunItem] = (),
    prices: Prices | None = None,
    first: int = 0,
    is_whole: bool = False,
) -> RunPage:
    """The page of a run.

    Args:
        run: The run.
        scores: The newest score of each evaluator.
        config: The configuration by which runs are scored, if it is known.
        config_problem: Why it cannot be read, or "".
        sub_agents: The runs that it called.
        prices: The prices of models.
        first: The number of the message to begin with, if the run has many.
        is_whole: Whether to show the messages of earlier turns as well.
    """
    verdicts = _ordered_verdicts(scores)
    texts = _run_details(run, verdicts, is_whole=is_whole)
    shown_scores = _shown_scores(verdicts, texts["scores"], run)
    part = conversation_part(run, first, is_whole=is_whole)
    scored = {score.evaluator for score in scores}
    return RunPage(
        id=run.id,
        title=_title(run),
        agent=shorten(one_line(run.agent or run.service), _TITLE),
        start_ns=run.start_ns,
        facts=tuple((name, value) for name, value in texts["facts"] if name not in _LINKED),
        cost=_cost(run, prices),
        scores=shown_scores,
        beside=_scores_by_message(shown_scores),
        compared=tuple(_comparisons(run, verdicts, config)),
        missing=missing_scores(config, run, scored) if config else {},
        config_problem=config_problem,
        messages=part.messages,
        first=part.first,
        last=part.last,
        shown_from=part.shown_from,
        parts=part.parts,
        whole=part.partial,
        tools=part.tools,
        earlier=run.new_from,
        is_whole=is_whole,
        before=texts["before"],
        gaps=texts["gaps"][:_GAPS],
        rewrites=[(at, count) for at, count in texts["rewrites"][:_GAPS]],
        conversation=run.conversation_id,
        turn=run.turn,
        parent=run.parent_id,
        sub_agents=sub_agents,
        trace_id=run.root_span.trace_id,
    )


def _title(run: Trajectory) -> str:
    """The question of a run, else its agent or service, else its id."""
    question = shorten(question_line(run), _TITLE)
    return question or shorten(one_line(run.agent or run.service), _TITLE) or run.id


def _ordered_verdicts(scores: Sequence[Score]) -> tuple[RunVerdict, ...]:
    """The verdicts of the scores that the page shows, failures first."""
    verdicts = failures_first(map(RunVerdict.of, scores))
    return tuple(verdicts[:_SCORES])


def _run_details(
    run: Trajectory, verdicts: tuple[RunVerdict, ...], *, is_whole: bool
) -> Mapping[str, Any]:
    """The facts, scores, gaps and rewrites of a run as text."""
    item = ReportRun(
        id=run.id,
        group="",
        case="",
        label="",
        verdicts=verdicts,
        trajectory=replace(run, new_from=0) if is_whole else run,
        start_ns=run.start_ns,
        end_ns=run.end_ns,
    )
    longest = max(_SHORTEST, min(LONGEST, _SCORE_ROOM // max(1, len(verdicts))))
    return details(item, longest, has_messages=False)


def _shown_scores(
    verdicts: Sequence[RunVerdict], texts: Sequence[Mapping[str, Any]], run: Trajectory
) -> tuple[ShownScore, ...]:
    pairs = zip(verdicts, texts, strict=True)
    return tuple(_shown_score(verdict, text, run) for verdict, text in pairs)


def _scores_by_message(scores: Sequence[ShownScore]) -> Mapping[int, Sequence[ShownScore]]:
    """The scores to show beside each message."""
    by_message: dict[int, list[ShownScore]] = defaultdict(list)
    pairs = [(number, score) for score in scores for number in score.places]
    for number, score in pairs[:_BESIDE]:
        by_message[number].append(score)
    return by_message


def _shown_score(verdict: RunVerdict, text: Mapping[str, Any], run: Trajectory) -> ShownScore:
    number = "" if verdict.state in ("pass", "fail") and verdict.score in (0.0, 1.0) else None
    value = text.get("score", "") if number is None else ""
    label = text.get("label", "")
    return ShownScore(
        state=verdict.state,
        sign=sign_of(verdict),
        evaluator=text["evaluator"],
        value=" ".join(part for part in (value, "" if label == verdict.state else label) if part),
        comment=text.get("comment", ""),
        metadata=text.get("metadata", ""),
        version=text.get("version", ""),
        places=places_of(verdict, run),
    )


def _comparisons(
    run: Trajectory, verdicts: Sequence[RunVerdict], config: Config | None
) -> Iterator[tuple[str, str]]:
    """Yield comparisons with the references that a run fails by, and with a run that passed."""
    failing = {verdict.evaluator for verdict in verdicts if verdict.state == "fail"}
    for settings in config.evaluators if config else ():
        if settings.name in failing and settings.reference is not None:
            text = f"with the reference of {clean(settings.name)}"
            yield text, with_query("/compare", a=run.id, reference=settings.name)
    if failing:
        yield "with the last run that passed", with_query("/compare", a=run.id, b="pass")


def _cost(run: Trajectory, prices: Prices | None) -> str:
    cost = None if prices is None else prices.cost(run.models, run.usage)
    return "" if cost is None else cost_text(cost)


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"{name}={text[:60]}: write a number")
    return int(text)
