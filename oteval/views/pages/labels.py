"""The page of labels: ``/labels``, the runs worth labelling, and how far people and judge agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...evaluators import Interval
from ...model import Label, Score
from ...scoring import Calibration, Disagreement, GrowthPoint, agreement_growth, calibrate
from ...store import QUEUES, LabelledEvaluator, Queue, RunKey, Store
from ..text import one_line, shorten
from .access import VISITOR
from .responses import page, with_query
from .runs import RunItem, items_of
from .search import ListedScores
from .site import Site

__all__ = ["Agreement", "labels_routes", "next_link"]

_SHOWN, _FOUND, _REFRESH = 25, 100, 25
_MOST_DIFFERING, _MOST_EVALUATORS = 30, 60
# The drawing of the agreement, in its own units.
_WIDTH, _HEIGHT = 320.0, 96.0

_TITLES: dict[Queue, tuple[str, str]] = {
    "sample": (
        "random sample",
        "Drawn at random from the runs with a verdict, as estimates of the pass rate need it.",
    ),
    "disagreements": (
        "disagreements",
        "People disagree with each other or with the evaluator, or its verdict has changed.",
    ),
    "threshold": (
        "near the threshold",
        "Scores between those that pass and those that fail: the verdicts that are least certain.",
    ),
    "variants": (
        "new variants",
        "The newest sequences of tools without any label, one run of each.",
    ),
    "failing": ("failing", "The newest runs that fail, without a label."),
}


@dataclass(frozen=True, slots=True)
class Tab:
    """A choice of the page.

    Attributes:
        text: Its text.
        link: The path that chooses it.
        is_chosen: Whether it is chosen.
        note: A number beside it, or "".
    """

    text: str
    link: str
    is_chosen: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far people and an evaluator agree.

    Attributes:
        labelled: How many runs have a label and a verdict.
        share: The share of them with equal verdicts, with its interval.
        kappa: The agreement in excess of chance, with its interval.
        counts: The runs by the verdicts of people and evaluator: both pass, people only, evaluator
            only, both fail.
        needed: How many more labels an estimate of the pass rate needs.
        unjudged: How many labelled runs have no verdict.
        tied: How many labelled runs have a tie between people.
        line: The share as labels were added, as points of a drawing.
        band: Its interval, as points of a drawing.
        begin: The number of labelled runs at the beginning of the drawing.
    """

    labelled: int
    share: tuple[float, Interval]
    kappa: tuple[float, Interval]
    counts: tuple[int, int, int, int]
    needed: int
    unjudged: int
    tied: int
    line: str
    band: str
    begin: int


def labels_routes(site: Site) -> list[Route]:
    """The routes of labels."""

    async def labels(request: Request) -> Response:
        queue, (evaluators, counts) = _queue(request), await _evaluators(site)
        chosen = _chosen(request, evaluators, counts)
        keys = await _runs(site, queue, chosen, counts) if chosen else []
        listed = await site.read(
            lambda store: labels_page(store, site, queue, chosen, evaluators, counts, keys)
        )
        return page("labels.html.j2", section="labels", now_ns=site.clock(), labels=listed)

    async def following(request: Request) -> Response:
        queue, (evaluators, counts) = _queue(request), await _evaluators(site)
        chosen = _chosen(request, evaluators, counts)
        keys = await _runs(site, queue, chosen, counts) if chosen else []
        ids = [key.id for key in keys]
        after, at = request.query_params.get("after", ""), _place(request)
        index = ids.index(after) + 1 if after in ids else at
        back = with_query("/labels", evaluator=chosen, queue=queue)
        done = "labelled" if "done" in request.query_params else ""
        is_end = index >= len(ids)
        path = back if is_end else _run_link(queue, chosen, index, ids[index], done=done)
        return RedirectResponse(path, 303)

    return [Route("/labels", labels), Route("/labels/next", following)]


def next_link(request: Request, run_id: str) -> str:
    """The path to the next run of the queue that a run was opened from, or ""."""
    if request.query_params.get("queue") not in QUEUES:
        return ""
    return with_query(
        "/labels/next",
        evaluator=request.query_params.get("evaluator"),
        queue=_queue(request),
        at=str(_place(request)),
        after=run_id,
    )


async def _evaluators(site: Site) -> tuple[list[LabelledEvaluator], Mapping[str, int]]:
    """The evaluators with verdicts, and the number of labelled runs of each."""
    evaluators = await site.cached(
        ("labelled evaluators",), lambda store: store.label_queue.evaluators()
    )
    counts = await site.read(lambda store: store.label_queue.counts())
    return evaluators[:_MOST_EVALUATORS], counts


async def _runs(
    site: Site, queue: Queue, evaluator: str, counts: Mapping[str, int]
) -> list[RunKey]:
    """The runs of a queue, without runs that have been labelled since the queue was found."""
    person = VISITOR.get().name
    labelled = counts.get(evaluator, 0) + counts.get("", 0)
    labels = await site.read(lambda store: store.labels.of(evaluator))
    is_own = queue == "disagreements"
    # Every label may be a new disagreement; the other queues only lose runs by labels.
    labels_hash = hash(
        frozenset((label.trajectory_id, label.person, label.passed) for label in labels)
    )
    age = labels_hash if is_own else labelled // _REFRESH
    run_keys = await site.cached(
        ("label queue", queue, evaluator, person, age),
        lambda store: store.label_queue.runs(queue, evaluator, person, _FOUND),
    )
    done = {label.trajectory_id for label in labels if not is_own or label.person == person}
    return [key for key in run_keys if key.id not in done]


def labels_page(
    store: Store,
    site: Site,
    queue: Queue,
    evaluator: str,
    evaluators: Sequence[LabelledEvaluator],
    counts: Mapping[str, int],
    keys: Sequence[RunKey],
) -> Mapping[str, Any]:
    """The page of labels.

    Args:
        store: The store.
        site: The site, for the prices of models.
        queue: The queue.
        evaluator: The evaluator, or "".
        evaluators: All evaluators that gave verdicts.
        counts: The number of labelled runs of each.
        keys: The runs of the queue.
    """
    labels = store.labels.of(evaluator) if evaluator else []
    names = list(dict.fromkeys(label.trajectory_id for label in labels))
    scores = _newest(store.scores.of(names), evaluator)
    calibration = _calibration(evaluator, labels, scores)
    differing = calibration.disagreements[-_MOST_DIFFERING:] if calibration else ()
    # Both lists are read together, because one read looks at all runs.
    differing_keys = store.label_queue.keys(
        [disagreement.trajectory_id for disagreement in differing]
    )
    listed = list(dict.fromkeys([*keys[:_SHOWN], *differing_keys]))
    listed_scores = ListedScores(store)
    items = {item.id: item for item in items_of(store, listed, site.prices, scores=listed_scores)}
    shown_items = [items[key.id] for key in keys[:_SHOWN] if key.id in items]
    judged = _newest(listed_scores.of([item.id for item in shown_items]), evaluator)
    if queue == "failing":
        # The queue is found by all scores, and a run may have been scored again.
        shown_items = [
            item for item in shown_items if item.id in judged and judged[item.id].passed is False
        ]
    reasons = _reasons(queue, evaluator, labels, judged)
    return {
        "evaluator": evaluator,
        "evaluators": _evaluator_tabs(queue, evaluator, evaluators, counts),
        "queues": _queue_tabs(queue, evaluator),
        "about": _TITLES[queue][1],
        "runs": tuple(
            replace(
                item,
                link=_run_link(queue, evaluator, at, item.id),
                reason=reasons.get(item.id, item.reason),
            )
            for at, item in enumerate(shown_items)
        ),
        "more": len(keys) > _SHOWN,
        "agreement": _agreement(calibration, agreement_growth(labels, scores))
        if calibration
        else None,
        "differing": _differing(evaluator, differing, items),
    }


def _calibration(
    evaluator: str, labels: Sequence[Label], scores: Mapping[str, Score]
) -> Calibration | None:
    try:
        return calibrate(evaluator, "", labels, scores)
    except ValueError:  # no labelled run has a verdict
        return None


def _newest(scores: Mapping[str, Sequence[Score]], evaluator: str) -> dict[str, Score]:
    """The newest score of an evaluator on each run, by its id."""
    return {
        name: score
        for name, run_scores in scores.items()
        for score in run_scores
        if score.evaluator == evaluator
    }


def _agreement(calibration: Calibration, growth: Sequence[GrowthPoint]) -> Agreement:
    kappa = calibration.kappa
    upper = [(point.labelled, point.interval[1]) for point in growth]
    lower = [(point.labelled, point.interval[0]) for point in reversed(growth)]
    begin, end = growth[0].labelled, growth[-1].labelled
    return Agreement(
        labelled=calibration.labelled,
        share=(kappa.agreement, growth[-1].interval),
        kappa=(kappa.kappa, kappa.interval),
        counts=(
            calibration.count(True, True),
            calibration.count(True, False),
            calibration.count(False, True),
            calibration.count(False, False),
        ),
        needed=calibration.needed,
        unjudged=calibration.unjudged,
        tied=calibration.tied,
        line=_points([(point.labelled, point.agreement) for point in growth], begin, end),
        band=_points([*upper, *lower], begin, end),
        begin=begin,
    )


def _points(values: Sequence[tuple[int, float]], begin: int, end: int) -> str:
    """Return points of a drawing as SVG writes them; "" if they have no extent."""
    if end <= begin:
        return ""
    width = _WIDTH / (end - begin)
    return " ".join(f"{(x - begin) * width:.1f},{(1 - y) * _HEIGHT:.1f}" for x, y in values)


def _differing(
    evaluator: str, disagreements: Sequence[Disagreement], items: Mapping[str, RunItem]
) -> tuple[RunItem, ...]:
    """The runs that people and the evaluator differ on, with both reasons."""
    judge = shorten(one_line(evaluator), 60)
    differing_items = []
    for disagreement in disagreements:
        if disagreement.trajectory_id not in items:
            continue
        note = f": {shorten(one_line(disagreement.note), 200)}" if disagreement.note else ""
        reason = f"people {_word(disagreement.people)}{note}; {judge} {_word(disagreement.judge)}"
        if disagreement.comment:
            reason += f": {shorten(one_line(disagreement.comment), 200)}"
        differing_items.append(replace(items[disagreement.trajectory_id], reason=reason))
    return tuple(differing_items)


def _reasons(
    queue: Queue, evaluator: str, labels: Sequence[Label], scores: Mapping[str, Score]
) -> dict[str, str]:
    """Why runs are in a queue, by their ids, where the queue alone does not show it."""
    if queue not in ("disagreements", "threshold"):
        return {}
    reasons = {}
    for name, score in scores.items():
        if queue == "threshold":
            reason = f"score {score.score:.3g}" if score.score is not None else ""
        else:
            people = [label for label in labels if label.trajectory_id == name]
            verdict_texts = [
                f"{label.person or 'somebody'}: {_word(label.passed)}" for label in people
            ]
            reason = "; ".join([*verdict_texts, f"{evaluator}: {_word(score.passed)}"])
        if reason:
            reasons[name] = shorten(one_line(reason), 240)
    return reasons


def _word(passed: bool | None) -> str:
    return "no verdict" if passed is None else "pass" if passed else "fail"


def _evaluator_tabs(
    queue: Queue,
    chosen: str,
    evaluators: Sequence[LabelledEvaluator],
    counts: Mapping[str, int],
) -> tuple[Tab, ...]:
    return tuple(
        Tab(
            shorten(one_line(evaluator.name), 60),
            with_query("/labels", evaluator=evaluator.name, queue=queue),
            evaluator.name == chosen,
            f"{counts.get(evaluator.name, 0) + counts.get('', 0):,}",
        )
        for evaluator in evaluators
    )


def _queue_tabs(chosen: Queue, evaluator: str) -> tuple[Tab, ...]:
    return tuple(
        Tab(title, with_query("/labels", evaluator=evaluator, queue=queue), queue == chosen)
        for queue, (title, _) in _TITLES.items()
    )


def _run_link(queue: Queue, evaluator: str, index: int, run_id: str, *, done: str = "") -> str:
    values = {"evaluator": evaluator, "queue": queue, "at": str(index), "done": done}
    return with_query(f"/runs/{run_id}", **values) + "#labels"


def _queue(request: Request) -> Queue:
    name = request.query_params.get("queue") or QUEUES[0]
    for queue in QUEUES:
        if queue == name:
            return queue
    raise ConfigError(f"queue={name[:40]}: write one of {', '.join(QUEUES)}")


def _place(request: Request) -> int:
    text = request.query_params.get("at", "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0


def _chosen(
    request: Request, evaluators: Sequence[LabelledEvaluator], counts: Mapping[str, int]
) -> str:
    """The chosen evaluator; by default the one with the most labels, else the first."""
    evaluator_name, names = (
        request.query_params.get("evaluator", ""),
        [evaluator.name for evaluator in evaluators],
    )
    if evaluator_name and evaluator_name not in names:
        raise ConfigError(f"evaluator={evaluator_name[:60]}: it has given no verdict yet")
    return evaluator_name or max(names, key=lambda name: counts.get(name, 0), default="")
