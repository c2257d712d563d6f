"""The overview: ``/``, agents by evaluators with pass rates, volume, cost and time, and alerts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...evaluators import pass_rate
from ...model import Prices
from ...store import AgentRuns, AgentVerdicts, Store
from ..run_cells import mean_cost_text, total_cost_text
from ..text import clock, duration, one_line, shorten
from .alerts import Alert, open_alerts
from .deployments import DeploymentMark, Deployments, read_deployments
from .periods import PERIODS, chosen_period, extent_of, latest_start, periods_in_order
from .responses import page, with_query
from .site import Site

__all__ = [
    "AgentItem",
    "EvaluatorItem",
    "Overview",
    "agent_words",
    "overview",
    "overview_figures",
    "overview_routes",
    "search_word",
]

_PLACES, _MOST_AGENTS, _MOST_ALERTS = 28, 60, 8
# The height of a drawing over time, and the width of one of its places.
_HEIGHT, _STEP = 24, 6
_NAME = 80


@dataclass(frozen=True, slots=True)
class EvaluatorItem:
    """An evaluator's verdicts on the runs of an agent.

    Attributes:
        name: The evaluator.
        rate: The pass rate, None without a verdict.
        low: The lower end of its 95% interval.
        high: The upper end of it.
        passed: The number of passes.
        failed: The number of fails.
        errors: The number of runs on which the evaluator failed.
        not_evaluated: The number of runs that it could not judge.
        mean: The mean of scores that neither pass nor fail, or "".
        trend: The pass rate over time, as the points of a line; "" with fewer than two.
        failures: The link to the runs that fail.
    """

    name: str
    rate: float | None
    low: float
    high: float
    passed: int
    failed: int
    errors: int
    not_evaluated: int
    mean: str
    trend: str
    failures: str


@dataclass(frozen=True, slots=True)
class AgentItem:
    """An agent.

    Attributes:
        name: Its name, or the name of the service of runs without an agent.
        kind: ``agent`` or ``service``.
        link: The link to its runs.
        last_ns: When its latest run began (ns since the epoch).
        runs: The number of runs.
        volume: The number of runs over time, as the path of bars.
        seconds: The median duration, or "".
        slow: The 95% quantile of the durations, or "".
        cost: The mean cost of a run at list prices, or "".
        total: The cost of all runs; "at least" if the cost of some is unknown, "" if the cost of
            all is unknown.
        failing: The share of runs with a failed call.
        failed_calls: The link to the runs with a failed call.
        with_gaps: The share of runs with a gap.
        evaluators: Its evaluators.
        deployments: Its latest deployments.
        marks: The same as the path of lines on drawings over time.
    """

    name: str
    kind: str
    link: str
    last_ns: int
    runs: int
    volume: str
    seconds: str
    slow: str
    cost: str
    total: str
    failing: float
    failed_calls: str
    with_gaps: float
    evaluators: tuple[EvaluatorItem, ...]
    deployments: tuple[DeploymentMark, ...]
    marks: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that the page shows.

    Attributes:
        agents: The agents, the most runs first.
        alerts: The alerts that last, which the route adds.
        period: The chosen period.
        periods: The periods to choose from, with their links.
        since: When the period begins, as text.
        until: When the newest run began, as text.
        runs: The number of runs.
        untimed: The number of runs without a time, which are left out.
        future: The number of runs in the future, which are left out.
        width: The width of drawings over time.
        height: Their height.
    """

    agents: tuple[AgentItem, ...]
    alerts: Sequence[Alert]
    period: str
    periods: tuple[tuple[str, str], ...]
    since: str
    until: str
    runs: int
    untimed: int = 0
    future: int = 0
    width: int = _PLACES * _STEP
    height: int = _HEIGHT


def overview_routes(site: Site) -> list[Route]:
    """The route of the overview."""

    async def show(request: Request) -> Response:
        period = chosen_period(request)
        figures = await site.cached(*_read(site, period))
        # Alerts come and go while the store is the same.
        alerts = await site.read(lambda store: open_alerts(store)[:_MOST_ALERTS])
        figures = replace(figures, alerts=alerts)
        return page("overview.html.j2", section="overview", now_ns=site.clock(), overview=figures)

    return [Route("/", show)]


def overview_figures(site: Site) -> list[tuple[Hashable, Callable[[Store], Overview]]]:
    """The keys of the overview's periods, with the functions that read them."""
    return [_read(site, period) for period in periods_in_order()]


def _read(site: Site, period: str) -> tuple[Hashable, Callable[[Store], Overview]]:
    return ("overview", period), lambda store: overview(store, period, site.prices, site.clock())


def overview(store: Store, period: str, prices: Prices, now_ns: int) -> Overview:
    """The overview of a period that ends with the newest run.

    Args:
        store: The store.
        period: One of ``1d``, ``7d``, ``30d`` and ``all``.
        prices: The prices of models.
        now_ns: The current time (ns since the epoch).
    """
    extent, length = extent_of(store, period, now_ns), PERIODS[period]
    untimed, future = store.agent_figures.outside(latest_start(now_ns))
    agents: tuple[AgentRuns, ...] = ()
    deployments = Deployments()
    first, last = extent or (0, 0)
    if extent:
        agents = store.agent_figures.of(first, last, _PLACES, _MOST_AGENTS)
        deployments = read_deployments(store, first, last)
    return Overview(
        agents=tuple(
            _agent(agent, prices, clock(first) if length else "", deployments) for agent in agents
        ),
        alerts=(),
        period=period,
        periods=tuple((name, with_query("/", period=name)) for name in PERIODS),
        since=clock(first) if extent else "",
        until=clock(last) if extent else "",
        runs=sum(agent.runs for agent in agents),
        untimed=untimed,
        future=future if length else 0,
    )


def search_word(name: str, value: str, operator: str = "=") -> str:
    """A word of the search field, in quotes if its value needs them."""
    if not value or '"' in value or any(character.isspace() for character in value):
        doubled = value.replace('"', '""')
        value = f'"{doubled}"'
    return f"{name}{operator}{value}"


def agent_words(agent: str, service: str) -> str:
    """The search for the runs of an agent, or for the runs of a service without an agent."""
    if agent:
        return search_word("agent", agent)
    return f"{search_word('service', service)} {search_word('agent', '')}"


def _agent(
    agent_runs: AgentRuns, prices: Prices, since: str, deployments: Deployments
) -> AgentItem:
    deployed = deployments.of(agent_runs.agent, agent_runs.service)
    kind, name = (
        ("agent", agent_runs.agent) if agent_runs.agent else ("service", agent_runs.service)
    )
    words = [agent_words(agent_runs.agent, agent_runs.service)]
    words += [f"since={since.replace(' ', 'T')}"] if since else []
    usages = ((tokens.model, tokens.runs, tokens.usage) for tokens in agent_runs.tokens)
    cost = prices.total(usages, agent_runs.runs)
    seconds = [duration(round(value * 1e9)) for value in agent_runs.seconds or ()]
    return AgentItem(
        name=shorten(one_line(name), _NAME) or "(no name)",
        kind=kind,
        link=_runs(words),
        last_ns=agent_runs.last_ns,
        runs=agent_runs.runs,
        volume=_bars(agent_runs.places),
        seconds=seconds[0] if seconds else "",
        slow=seconds[1] if seconds else "",
        cost=mean_cost_text(cost.mean, cost.priced, cost.runs),
        total=total_cost_text(cost.dollars if cost.priced else None, cost.runs - cost.priced),
        failing=agent_runs.failing / agent_runs.runs,
        failed_calls=_runs([*words, "errors>0"]),
        with_gaps=agent_runs.with_gaps / agent_runs.runs,
        evaluators=tuple(_evaluator(verdict, words) for verdict in agent_runs.verdicts),
        deployments=deployed,
        marks="".join(
            f"M{deployment.share * _PLACES * _STEP:.1f} 0V{_HEIGHT}" for deployment in deployed
        ),
    )


def _evaluator(verdicts: AgentVerdicts, words: Sequence[str]) -> EvaluatorItem:
    rate = pass_rate(verdicts.passed, verdicts.failed, verdicts.errors)
    failures = [*words, search_word("evaluator", verdicts.evaluator), "passed=false"]
    return EvaluatorItem(
        name=shorten(one_line(verdicts.evaluator), _NAME),
        rate=rate.value,
        low=rate.low,
        high=rate.high,
        passed=verdicts.passed,
        failed=verdicts.failed,
        errors=verdicts.errors,
        not_evaluated=verdicts.not_evaluated,
        mean="" if verdicts.mean is None else f"{verdicts.mean:.3g}",
        trend=_line(verdicts.places),
        failures=_runs(failures),
    )


def _runs(words: Sequence[str]) -> str:
    return with_query("/runs", q=" ".join(words))


def _bars(counts: Sequence[int]) -> str:
    """Return counts over time as the path of bars."""
    most = max(counts, default=0) or 1
    drawn = []
    for index, count in enumerate(counts):
        if count:
            high = max(1.5, count / most * _HEIGHT)
            x, y = index * _STEP, round(_HEIGHT - high, 1)
            drawn.append(f"M{x} {_HEIGHT}V{y}h{_STEP - 1}V{_HEIGHT}z")
    return "".join(drawn)


def _line(places: Sequence[tuple[int, int]]) -> str:
    """Return pass rates over time as the points of a line, 100% at the top."""
    points = [
        f"{index * _STEP + _STEP / 2:g},{round(1.5 + (1 - passed / judged) * (_HEIGHT - 3), 1)}"
        for index, (passed, judged) in enumerate(places)
        if judged
    ]
    return " ".join(points) if len(points) > 1 else ""
