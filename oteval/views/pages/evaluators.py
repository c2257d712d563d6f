"""The pages of evaluators: ``/evaluators``, and ``/evaluators/NAME`` with the scores of one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import ConfigError, NotFound
from ...evaluators import pass_rate
from ...model import Prices, Selection
from ...store import EvaluatorVerdicts, Store, VerdictCounts, is_exact
from ..report.charts import bar_chart
from ..report.histograms import plain, time_labels
from ..report.model import Bars, Histogram
from ..run_texts import total_cost_text
from ..text import clock, one_line, shorten
from .overview import PERIODS, agent_words, chosen_period, extent_of, periods_in_order, search_word
from .responses import named_link, page, with_query
from .runs import RunItem, items_of
from .search import RunSearch, narrowed, parse_search
from .site import Site

__all__ = [
    "EvaluatorRow",
    "VerdictFigures",
    "evaluator_page",
    "evaluators_figures",
    "evaluators_page",
    "evaluators_routes",
]

_PLACES, _BINS = 12, 20
# How many of the worst runs are shown, and how many are read, as some may pass by now.
_WORST, _CANDIDATES = 20, 80
_MOST_VERSIONS, _MOST_AGENTS, _MOST_EVALUATORS = 50, 100, 500
_NAME, _COMMENT, _READ_COMMENT = 80, 220, 4000  # characters


@dataclass(frozen=True, slots=True)
class VerdictFigures:
    """Counted verdicts as a page shows them.

    Attributes:
        counts: The counts.
        rate: The pass rate, None if nothing passed or failed.
        low: The lower end of its 95% interval.
        high: The upper end of it.
        mean: The mean score, or "".
        cost: The reported cost, or "".
    """

    counts: VerdictCounts
    rate: float | None
    low: float
    high: float
    mean: str
    cost: str

    @classmethod
    def of(cls, counts: VerdictCounts) -> VerdictFigures:
        """Return counts with their pass rate: an error is in its denominator, never a 0 score."""
        rate = pass_rate(counts.passed, counts.failed, counts.errors)
        return cls(
            counts=counts,
            rate=rate.value,
            low=rate.low,
            high=rate.high,
            mean="" if counts.mean is None else f"{counts.mean:.3g}",
            cost=total_cost_text(counts.cost, counts.unpriced),
        )


@dataclass(frozen=True, slots=True)
class EvaluatorRow:
    """An evaluator in the list.

    Attributes:
        name: Its name.
        link: The path of its page.
        kind: Its type in the configuration, or "" if it is not there.
        versions: The number of its versions that gave scores in the period.
        figures: Its figures.
        last_ns: When it gave its newest score (ns since the epoch), 0 if never.
    """

    name: str
    link: str
    kind: str
    versions: int
    figures: VerdictFigures
    last_ns: int


def evaluators_routes(site: Site) -> list[Route]:
    """The routes of evaluators."""

    async def evaluators(request: Request) -> Response:
        search, period = _filters(request)
        extent, names, verdicts = await site.cached(*_all(site, search, period))
        listing = evaluators_page(
            extent, names, verdicts, _kinds(site), search=search, period=period
        )
        return page(
            "evaluators.html.j2", section="evaluators", now_ns=site.clock(), evaluators=listing
        )

    async def evaluator(request: Request) -> Response:
        name, kinds = request.path_params["name"], _kinds(site)
        search, period = _filters(request)
        has_scores = await site.read(lambda store: store.evaluator_figures.has_scores(name))
        if not has_scores and name not in (kinds or {}):
            raise NotFound(
                f"no evaluator {name[:200]!r}: it has no scores and is not in the configuration; "
                "/evaluators lists all"
            )
        details = await site.cached(*_one(site, name, search, period))
        return page(
            "evaluator.html.j2",
            section="evaluators",
            now_ns=site.clock(),
            evaluator=details,
            kind=(kinds or {}).get(name, ""),
            is_configured=kinds is not None,
            search=search,
            action=named_link("/evaluators", name),
            period=period,
            periods=_periods(named_link("/evaluators", name), search),
        )

    return [Route("/evaluators", evaluators), Route("/evaluators/{name:path}", evaluator)]


def evaluators_figures(
    site: Site, names: Sequence[str]
) -> list[tuple[Hashable, Callable[[Store], object]]]:
    """The figures of the list and of some evaluators: their keys, and how they are read.

    Args:
        site: The site.
        names: The evaluators.
    """
    periods, all_runs = periods_in_order(), parse_search("")
    figures: list[tuple[Hashable, Callable[[Store], object]]] = [
        _all(site, all_runs, period) for period in periods
    ]
    return figures + [_one(site, name, all_runs, period) for name in names for period in periods]


def _one(
    site: Site, name: str, search: RunSearch, period: str
) -> tuple[Hashable, Callable[[Store], Mapping[str, Any]]]:
    """The key of the page of an evaluator, and the function that reads it."""
    return (
        ("evaluator", name, *search.key, period),
        lambda store: evaluator_page(store, name, search, period, site.prices, now_ns=site.clock()),
    )


def _all(site: Site, search: RunSearch, period: str) -> tuple[Hashable, Callable[[Store], _Found]]:
    """The key of the list of evaluators, and the function that reads it."""
    return (
        ("evaluators", *search.key, period),
        lambda store: _read_all(store, search.selection, period, site.clock()),
    )


def _filters(request: Request) -> tuple[RunSearch, str]:
    """The filter for runs and the period of a request.

    Raises:
        ConfigError: They are wrong, or have no column.
    """
    search = parse_search(request.query_params.get("q", ""))
    if search.verdict is not None:
        raise ConfigError("evaluators cannot be searched by passed, status or evaluator")
    if not is_exact(search.selection):
        raise ConfigError(
            "evaluators cannot be searched by text, regular expressions or attributes; "
            "agent=, service=, model=, tool=, since= and until= can be used"
        )
    period = chosen_period(request)
    times = (search.selection.since_ns, search.selection.until_ns)
    return search, period if times == (None, None) else "all"


def _periods(path: str, search: RunSearch) -> tuple[tuple[str, str], ...]:
    return tuple((name, with_query(path, q=search.text, period=name)) for name in PERIODS)


def _kinds(site: Site) -> Mapping[str, str] | None:
    """The types of the configured evaluators by name; None without a configuration."""
    config, _ = site.config()
    return (
        None
        if config is None
        else {evaluator.name: evaluator.type for evaluator in config.evaluators}
    )


_Found = tuple[tuple[int, int] | None, Mapping[str, int], Sequence[EvaluatorVerdicts]]


def _read_all(store: Store, selection: Selection, period: str, now_ns: int) -> _Found:
    """The period, the newest score of each evaluator, and the verdicts in the period."""
    extent = extent_of(store, period, now_ns, selection)
    names = store.evaluator_figures.names()
    if extent is None:
        return None, names, ()
    first, last = extent
    return extent, names, store.evaluator_figures.all(first, last, places=1, selection=selection)


def evaluators_page(
    extent: tuple[int, int] | None,
    names: Mapping[str, int],
    verdicts: Sequence[EvaluatorVerdicts],
    kinds: Mapping[str, str] | None,
    *,
    search: RunSearch,
    period: str,
) -> Mapping[str, Any]:
    """The list of evaluators.

    Args:
        extent: The period (ns since the epoch), None without runs.
        names: When each evaluator with scores gave its newest one.
        verdicts: The verdicts of evaluators in the period.
        kinds: The types of the configured evaluators, or None without a configuration.
        search: The filter for runs.
        period: The name of the period.
    """
    by_name = {v.evaluator: v for v in verdicts}
    rows = [
        EvaluatorRow(
            name=shorten(one_line(name), _NAME),
            link=with_query(named_link("/evaluators", name), q=search.text, period=period),
            kind=(kinds or {}).get(name, ""),
            versions=len(by_name[name].versions) if name in by_name else 0,
            figures=VerdictFigures.of(by_name[name].counts if name in by_name else VerdictCounts()),
            last_ns=names.get(name, 0),
        )
        for name in {**dict.fromkeys(kinds or {}), **names}
    ]
    rows.sort(key=lambda row: (row.figures.rate is None, row.figures.rate or 0.0, row.name))
    return {
        "rows": tuple(rows[:_MOST_EVALUATORS]),
        "left_out": max(0, len(rows) - _MOST_EVALUATORS),
        "search": search,
        "period": period,
        "periods": _periods("/evaluators", search),
        "since": clock(extent[0]) if extent else "",
        "until": clock(extent[1]) if extent else "",
        "is_configured": kinds is not None,
    }


def evaluator_page(
    store: Store, name: str, search: RunSearch, period: str, prices: Prices, *, now_ns: int
) -> Mapping[str, Any]:
    """The page of an evaluator.

    Args:
        store: The store.
        name: The evaluator.
        search: The filter for runs.
        period: One of ``1d``, ``7d``, ``30d`` and ``all``.
        prices: The prices of models.
        now_ns: The current time (ns since the epoch).
    """
    selection = search.selection
    extent = extent_of(store, period, now_ns, selection)
    first, last = extent or (0, 0)
    evaluator_figures = store.evaluator_figures.of(
        name, first, last, _PLACES, bins=_BINS, selection=selection
    )
    ids = store.evaluator_figures.worst(name, first, last, most=_CANDIDATES, selection=selection)
    since = f"since={clock(first).replace(' ', 'T')}" if PERIODS[period] and extent else ""
    about = f"{_since(search.text, since)} {search_word('evaluator', name)}".strip()
    return {
        "name": shorten(one_line(name), _NAME),
        "figures": VerdictFigures.of(evaluator_figures.counts),
        "charts": tuple(
            (chart, bar_chart(chart)) for chart in _charts(evaluator_figures, first, last)
        ),
        "versions": tuple(_versions(evaluator_figures)),
        "more_versions": max(0, len(evaluator_figures.versions) - _MOST_VERSIONS),
        "agents": tuple(_agents(evaluator_figures, name, search, period, since)),
        "more_agents": max(0, len(evaluator_figures.agents) - _MOST_AGENTS),
        "worst": _worst(store, name, ids, prices),
        "failures": with_query("/runs", q=f"{about} passed=false"),
        "errors": with_query("/runs", q=f"{about} status=error"),
        "not_evaluated": with_query("/runs", q=f"{about} status=not_evaluated"),
        "since": clock(first) if extent else "",
        "until": clock(last) if extent else "",
    }


def _charts(verdicts: EvaluatorVerdicts, first: int, last: int) -> list[Bars | Histogram]:
    """The charts worth drawing: rates of at least two times, scores other than 0 and 1."""
    charts: list[Bars | Histogram] = []
    rates = [_rate(counts) for counts in verdicts.places]
    if sum(rate is not None for rate in rates) > 1:
        step = (last - first) / _PLACES
        labels = time_labels([first + step * at for at in range(_PLACES)])
        charts.append(Bars("Pass rate over time", labels, (("pass rate", tuple(rates)),)))
    filled = [at for at, score_bin in enumerate(verdicts.bins) if score_bin.counts.scored]
    if set(filled) - {0, len(verdicts.bins) - 1}:
        charts.append(_histogram(verdicts))
    return charts


def _rate(counts: VerdictCounts) -> tuple[float, float, float, int] | None:
    verdictfigures = VerdictFigures.of(counts)
    return (
        None
        if verdictfigures.rate is None
        else (verdictfigures.rate, verdictfigures.low, verdictfigures.high, counts.judged)
    )


def _histogram(verdicts: EvaluatorVerdicts) -> Histogram:
    kinds = {
        "pass": tuple(score_bin.counts.passed for score_bin in verdicts.bins),
        "fail": tuple(score_bin.counts.failed for score_bin in verdicts.bins),
        "neither": tuple(score_bin.counts.unjudged for score_bin in verdicts.bins),
    }
    series = tuple((name, counts) for name, counts in kinds.items() if any(counts))
    labels = tuple(
        f"{plain(score_bin.low)} – {plain(score_bin.high)}" for score_bin in verdicts.bins
    )
    return Histogram("Distribution of scores", labels, series)


def _versions(verdicts: EvaluatorVerdicts) -> list[tuple[str, str, str, VerdictFigures]]:
    """The versions, the newest first: the name, the times of the first and last score, figures."""
    return [
        (
            shorten(one_line(version), 24) or "(none)",
            clock(counts.first_ns)[:16],
            clock(counts.last_ns)[:16],
            VerdictFigures.of(counts),
        )
        for version, counts in verdicts.versions[:_MOST_VERSIONS]
    ]


def _since(text: str, since: str) -> str:
    """A search for its runs since the beginning of a period, if there is one."""
    return narrowed(text, since) if since else text


def _agents(
    verdicts: EvaluatorVerdicts, name: str, search: RunSearch, period: str, since: str
) -> list[tuple[str, str, str, VerdictFigures]]:
    """The agents: the name, the links to the page with their runs and to failing runs, figures."""
    rows = []
    for agent, service, counts in verdicts.agents[:_MOST_AGENTS]:
        word = agent_words(agent, service)
        text = search.text if word in search.text else f"{search.text} {word}".strip()
        words = f"{_since(text, since)} {search_word('evaluator', name)} passed=false"
        rows.append(
            (
                shorten(one_line(agent or service), _NAME) or "(no name)",
                with_query(named_link("/evaluators", name), q=text, period=period),
                with_query("/runs", q=words),
                VerdictFigures.of(counts),
            )
        )
    return rows


def _worst(store: Store, name: str, ids: Sequence[str], prices: Prices) -> tuple[RunItem, ...]:
    """The first of some runs that do not pass now, with the comments of the evaluator."""
    scores = {
        run_id: score
        for run_id, run_scores in store.scores.of(ids, longest=_READ_COMMENT).items()
        for score in run_scores
        if score.evaluator == name and score.status == "ok" and not score.passed
    }
    # A run that was scored again may pass now.
    worst_ids = [run_id for run_id in ids if run_id in scores][:_WORST]
    items = items_of(store, store.label_queue.keys(worst_ids), prices)
    worst_items = []
    for item in items:
        score = scores[item.id]
        value = f"score {score.score:.3g}" if score.score is not None else one_line(score.label)
        comment = shorten(one_line(score.comment), _COMMENT)
        reason = ": ".join(text for text in (value, comment) if text)
        worst_items.append(replace(item, reason=reason))
    return tuple(worst_items)
