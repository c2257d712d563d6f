"""The page that compares: ``/compare?a=ID&b=ID``, two runs, or a run and its reference, aligned.

``b=pass`` selects the last run before `a` that passed where `a` failed, if possible with the same
question. ``reference=EVALUATOR`` compares with the reference that this evaluator scores by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError, NotFound
from ...evaluators import ComparedStep, in_reference_form, to_messages
from ...model import (
    LONGEST_ASKED,
    Condition,
    Message,
    RunRow,
    RunValues,
    Selection,
    SpanRef,
    Trajectory,
    column_values,
    normal_text,
)
from ...scoring import Config, align, compared_reference, first_divergence, references_of
from ...store import RunKey, Store, VerdictFilter
from ..report.details import message_details
from ..run_texts import question_line
from ..text import clean, one_line, shorten
from .responses import page, with_query
from .runs import RunItem, item_of
from .search import ListedScores, RunSearch, find_runs, run_with_id
from .shown_messages import compact
from .site import Site

__all__ = ["ComparedSide", "DifferentText", "compare_page", "compare_routes"]

_LONGEST, _TITLE = 4000, 140
# How many passing runs are searched for a run with the same question.
_PASSES = 40
# Characters of a question that are compared; a list has little more of it.
_COMPARED = 1000
_MOST_ROWS = 600
# Characters of all texts of a side, and of each at least.
_ROOM, _SHORTEST = 100_000, 120
# The most calls of one message.
_MOST_CALLS = 60
# Equal messages around a difference that are not folded.
_AROUND = 1


@dataclass(frozen=True, slots=True)
class DifferentText:
    """A text in three pieces: the middle piece differs from the other side's.

    Attributes:
        before: The beginning that both sides have.
        middle: The piece that differs.
        after: The end that both sides have.
    """

    before: str
    middle: str
    after: str


@dataclass(frozen=True, slots=True)
class ComparedMessage:
    """A message of a side.

    Attributes:
        at: Its number.
        role: Its author.
        name: The tool's or participant's name, or "".
        text: Its text; None without one.
        calls: The tools that it calls, with their arguments.
        is_failed: Whether it reports a failure.
        is_missing: Whether the trace lacks its content.
    """

    at: int
    role: str
    name: str
    text: DifferentText | None
    calls: tuple[tuple[str, DifferentText], ...]
    is_failed: bool
    is_missing: bool


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """Two messages beside each other.

    Attributes:
        left: The first side's, or None.
        right: The second side's, or None.
        is_same: Whether both have the same text and calls.
        is_first: Whether this is the first divergence.
        is_system: Whether these are system messages, which do not count.
    """

    left: ComparedMessage | None
    right: ComparedMessage | None
    is_same: bool
    is_first: bool = False
    is_system: bool = False


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One of the two.

    Attributes:
        title: The question of the run, or the name of the reference.
        link: The path of its page, or "".
        item: The run with its scores; None for a reference.
        note: The agent, or that this is a reference.
    """

    title: str
    link: str
    item: RunItem | None
    note: str


def compare_routes(site: Site) -> list[Route]:
    """The route of comparisons."""

    async def compare(request: Request) -> Response:
        query = request.query_params
        a, b = query.get("a", "").strip(), query.get("b", "").strip()
        reference = query.get("reference", "")
        if not a or not (b or reference):
            raise ConfigError("compare two runs: /compare?a=ID&b=ID, or a=ID&reference=EVALUATOR")
        if b == "pass":
            passing_id = await site.read(lambda store: last_pass(store, a))
            return RedirectResponse(with_query("/compare", a=a, b=passing_id), 303)

        def read(store: Store) -> Mapping[str, Any]:
            left = _named(store, a)
            first = _side(store, site, left)
            if b:
                right = _named(store, b)
                return compare_page(left, right, first, _side(store, site, right))
            config, problem = site.config()
            if config is None:
                raise ConfigError(problem or "the pages know no configuration: oteval view -c FILE")
            expected = reference_of(config, store, site.base, reference, left)
            note = f"the reference of {one_line(reference)}"
            return compare_page(
                left,
                expected,
                first,
                ComparedSide(title=expected.agent, link="", item=None, note=note),
            )

        comparison = await site.read(read)
        return page("compare.html.j2", section="runs", now_ns=site.clock(), compared=comparison)

    return [Route("/compare", compare)]


def _named(store: Store, name: str) -> Trajectory:
    if run := run_with_id(store, name):
        return run
    try:
        return store.trajectories.get(name)
    except NotFound as error:
        raise NotFound(str(error).partition("; oteval")[0]) from None


def _side(store: Store, site: Site, run: Trajectory) -> ComparedSide:
    scores = store.scores.of([run.id], longest=_LONGEST)[run.id]
    item = item_of(run, scores, site.prices)
    title = (
        shorten(question_line(run), _TITLE)
        or shorten(clean(run.agent or run.service), _TITLE)
        or run.id
    )
    return ComparedSide(title, f"/runs/{run.id}", item, shorten(one_line(run.agent), _TITLE))


def last_pass(store: Store, name: str) -> str:
    """The id of a run of the same agent that passes where another one fails.

    The last runs before it are searched; later runs only if none before it passes. Of the runs
    found, a run that passes wherever the other fails is preferred, then a run with the same
    question, then the nearest.

    Args:
        store: The store.
        name: The id of the run that fails.

    Raises:
        NotFound: No such run passes.
    """
    run = _named(store, name)
    scores = store.scores.of([run.id], longest=0)[run.id]
    failing = [score.evaluator for score in scores if score.passed is False]
    agent = Condition("agent", "=", run.agent)
    verdict = VerdictFilter("pass", tuple(failing))
    passing = RunSearch("", Selection(conditions=(agent,)), verdict)
    key = RunKey(run.start_ns, run.id)
    listedscores = ListedScores(store)
    matches = find_runs(store, passing, _PASSES, after=key, scores=listedscores)
    is_cut = matches.is_cut
    if not matches.keys:
        matches = find_runs(
            store, passing, _PASSES, after=key, is_forward=True, scores=listedscores
        )
        is_cut = is_cut or matches.is_cut
    case = _case(column_values(run))
    rows = store.run_list.rows(list(matches.keys), ["asked", "turn"])
    verdicts = listedscores.of([row.id for row in rows])

    def likeness(row: RunRow) -> tuple[bool, bool]:
        passed = {score.evaluator for score in verdicts[row.id] if score.passed}
        return passed.issuperset(failing), case is not None and _case(row.__getitem__) == case

    if not rows:
        agent_name = shorten(run.agent, _TITLE) or "the same agent"
        if is_cut:
            raise NotFound(
                f"no run of {agent_name} near this one passes; the search stopped before it had "
                "looked at all: choose a run in the list"
            )
        raise NotFound(f"no run of {agent_name} passes to compare with")
    # The first of the runs that are most alike.
    return max(rows, key=likeness).id


def _case(values: RunValues) -> tuple[int, str] | None:
    """The beginning of a question and its turn, by a run's columns; None without one."""
    question = normal_text((values("asked") or "")[:LONGEST_ASKED])[:_COMPARED]
    return (values("turn"), question) if question else None


def reference_of(
    config: Config, store: Store, base: Path, evaluator: str, run: Trajectory
) -> Trajectory:
    """The reference that an evaluator scores a run by, as a trajectory.

    Raises:
        NotFound: The configuration has no such evaluator, or the run has no reference.
    """
    settings = next((entry for entry in config.evaluators if entry.name == evaluator), None)
    if settings is None:
        raise NotFound(f"the configuration has no evaluator {evaluator!r}")
    reference, problem = references_of(settings, store, base).of(run)
    if reference is None:
        raise NotFound(problem or f"evaluator {evaluator!r} has no reference")
    reference = compared_reference(reference, run, evaluator, store)
    messages = to_messages(list(reference.messages), f"reference {reference.name}")
    return Trajectory("reference", SpanRef("", ""), tail=messages, agent=clean(reference.name))


def compare_page(
    left: Trajectory, right: Trajectory, first_side: ComparedSide, second_side: ComparedSide
) -> Mapping[str, Any]:
    """The page that compares two trajectories.

    Args:
        left: The first.
        right: The second.
        first_side: The first side, for the head of its column.
        second_side: The second side, for the head of its column.
    """
    ours, theirs = _steps(left.own_messages), _steps(right.own_messages)
    omitted: Sequence[str] = ()
    if second_side.item is None:
        ours, theirs, omitted = in_reference_form(left.own_messages, right.own_messages)
    pairs = align([entry.message for entry in ours], [entry.message for entry in theirs])
    first = first_divergence(pairs)
    # The rows around a late divergence instead of the first rows, which are all equal.
    begin = 0
    if first is not None and first >= _MOST_ROWS:
        begin = min(first - _MOST_ROWS // 2, len(pairs) - _MOST_ROWS)
    here = pairs[begin : begin + _MOST_ROWS]
    our_steps = [None if pair.left_at is None else ours[pair.left_at] for pair in here]
    their_steps = [None if pair.right_at is None else theirs[pair.right_at] for pair in here]
    our_texts, their_texts = _shown(left, our_steps), _shown(right, their_steps)
    rows = []
    row_texts = zip(here, our_texts, their_texts, strict=True)
    for index, (pair, our_text, their_text) in enumerate(row_texts, begin):
        rows.append(
            ComparedRow(
                left=_message(our_text, None if pair.same else their_text),
                right=_message(their_text, None if pair.same else our_text),
                is_same=pair.same,
                is_first=index == first,
                is_system=pair.is_system,
            )
        )
    counted = [pair for pair in pairs if not pair.is_system]
    return {
        "left": first_side,
        "right": second_side,
        "parts": _parts(rows),
        "differing": sum(not pair.same for pair in counted),
        "rows": len(counted),
        "first": _place(rows[first - begin]) if first is not None else "",
        "unknown": sum(not pair.is_captured for pair in counted),
        "left_out": len(pairs) - len(here),
        "omitted": ", ".join(omitted),
    }


def _steps(messages: Sequence[Message]) -> list[ComparedStep]:
    return [ComparedStep(message, at) for at, message in enumerate(messages)]


def _shown(run: Trajectory, steps: Sequence[ComparedStep | None]) -> list[Mapping[str, Any] | None]:
    """The texts of a run's shown steps; None where the run has no step."""
    own = run.own_messages
    texts = sum(1 + min(_MOST_CALLS, len(step.message.tool_calls)) for step in steps if step)
    longest = max(_SHORTEST, min(_LONGEST, _ROOM // max(1, texts)))
    return [
        None if step is None else _shown_step(own[step.at], step, run.new_from + step.at, longest)
        for step in steps
    ]


def _shown_step(
    message: Message, step: ComparedStep, number: int, longest: int
) -> Mapping[str, Any]:
    """The texts of a step, taken from the texts of its message."""
    calls = message.tool_calls[:_MOST_CALLS]
    if step.call_at is not None:
        calls = message.tool_calls[step.call_at : step.call_at + 1]
    is_call = step.message.content is None and bool(step.message.tool_calls)
    message = replace(message, tool_calls=calls, content="" if is_call else message.content)
    texts = dict(_spaced(compact(message_details(number, message, longest))))
    if is_call:
        texts.pop("text", None)
    return texts


def _spaced(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool's result with the same white space as other results, if it is JSON."""
    text = str(message.get("text", ""))
    if message["role"] != "tool" or not text.startswith(("{", "[")):
        return message
    try:
        return {**message, "text": json.dumps(json.loads(text), ensure_ascii=False)}
    except (ValueError, RecursionError):
        return message


def _place(row: ComparedRow) -> str:
    if row.left and row.right and row.left.at != row.right.at:
        return f"{row.left.at} of the first and {row.right.at} of the second"
    message = row.left or row.right
    return f"{message.at}" if message else ""


def _parts(rows: Sequence[ComparedRow]) -> tuple[tuple[bool, tuple[ComparedRow, ...]], ...]:
    """Divide rows into parts to fold, which are equal, and parts to show."""
    differing = [at for at, row in enumerate(rows) if not row.is_same]
    near = {at + step for at in differing for step in range(-_AROUND, _AROUND + 1)}
    parts: list[tuple[bool, list[ComparedRow]]] = []
    for at, row in enumerate(rows):
        is_folded = bool(differing) and at not in near
        if not parts or parts[-1][0] != is_folded:
            parts.append((is_folded, []))
        parts[-1][1].append(row)
    # One equal message takes as much space as the line that it would be folded into.
    return tuple(
        (is_folded and len(part_rows) > 1, tuple(part_rows)) for is_folded, part_rows in parts
    )


def _message(
    message: Mapping[str, Any] | None, other: Mapping[str, Any] | None
) -> ComparedMessage | None:
    if message is None:
        return None
    theirs = other or {}
    calls = []
    for at, call in enumerate(message.get("calls", ())[:_MOST_CALLS]):
        beside = theirs.get("calls", ())
        twin = beside[at] if at < len(beside) and beside[at]["name"] == call["name"] else None
        text = call.get("arguments", "arguments not captured")
        calls.append((call["name"], _different(text, twin and twin.get("arguments"))))
    text = message.get("text")
    return ComparedMessage(
        at=message["at"],
        role=message["role"],
        name=message.get("name", ""),
        text=None if text is None else _different(text, theirs.get("text") if other else None),
        calls=tuple(calls),
        is_failed=bool(message.get("failed")),
        is_missing=bool(message.get("missing")),
    )


def _different(text: str, other: str | None) -> DifferentText:
    """A text with the piece that another text does not have."""
    if other is None or text == other:
        return DifferentText(text, "", "")
    pairs = zip(text, other, strict=False)
    start = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
    while start and _is_of_word(text[start - 1]):
        start -= 1
    most = min(len(text), len(other)) - start
    ends = zip(reversed(text), reversed(other), strict=False)
    end = min(next((at for at, (a, b) in enumerate(ends) if a != b), most), most)
    while end and _is_of_word(text[-end]):
        end -= 1
    return DifferentText(text[:start], text[start : len(text) - end], text[len(text) - end :])


def _is_of_word(character: str) -> bool:
    """Whether a character is part of a word or number, which is marked as a whole."""
    return character.isalnum() or character in "._-"
