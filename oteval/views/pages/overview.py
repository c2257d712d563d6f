"""The overview: ``/``, agents by evaluators with pass rates, volume, cost and time, and alerts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...evaluators import pass_rate
from ...model import EVERYTHING, Prices, Selection
from ...store import AgentRuns, AgentVerdicts, Store, StoredMark
from ..run_texts import mean_cost_text, total_cost_text
from ..text import clock, duration, one_line, shorten
from .alerts import open_alerts
from .responses import page, with_query
from .site import Site

__all__ = [
    "DEFAULT_PERIOD",
    "PERIODS",
    "AgentItem",
    "Deployments",
    "EvaluatorItem",
    "agent_words",
    "chosen_period",
    "extent_of",
    "latest_start",
    "overview",
    "overview_figures",
    "overview_routes",
    "periods_in_order",
    "read_deployments",
    "search_word",
]

_PLACES, _MOST_AGENTS, _MOST_ALERTS = 28, 60, 8
# The height of a drawing over time, and the width of one of its places.
_HEIGHT, _STEP = 24, 6
_NAME = 80
_DAY_NS = 86_400 * 10**9
PERIODS: Final[Mapping[str, int | None]] = {
    "1d": _DAY_NS,
    "7d": 7 * _DAY_NS,
    "30d": 30 * _DAY_NS,
    "all": None,
}
"""The length (ns) of each period; None for the period with all runs."""
DEFAULT_PERIOD: Final = "7d"
_MOST_MARKS, _MARK_NAME = 8, 60


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
    deployments: tuple[tuple[float, str], ...]
    marks: str


def overview_routes(site: Site) -> list[Route]:
    """The route of the overview."""

    async def show(request: Request) -> Response:
        period = chosen_period(request)
        figures = await site.cached(*_read(site, period))
        # Alerts come and go while the store is the same.
        alerts = await site.read(lambda store: open_alerts(store)[:_MOST_ALERTS])
        return page(
            "overview.html.j2",
            section="overview",
            now_ns=site.clock(),
            overview={**figures, "alerts": alerts},
        )

    return [Route("/", show)]


def overview_figures(site: Site) -> list[tuple[Hashable, Callable[[Store], Mapping[str, Any]]]]:
    """The keys of the overview's periods, with the functions that read them."""
    return [_read(site, period) for period in periods_in_order()]


def _read(site: Site, period: str) -> tuple[Hashable, Callable[[Store], Mapping[str, Any]]]:
    return ("overview", period), lambda store: overview(store, period, site.prices, site.clock())


def overview(store: Store, period: str, prices: Prices, now_ns: int) -> Mapping[str, Any]:
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
    return {
        "agents": tuple(
            _agent(agent, prices, clock(first) if length else "", deployments) for agent in agents
        ),
        "period": period,
        "periods": tuple((name, with_query("/", period=name)) for name in PERIODS),
        "since": clock(first) if extent else "",
        "until": clock(last) if extent else "",
        "runs": sum(agent.runs for agent in agents),
        "untimed": untimed,
        "future": future if length else 0,
        "width": _PLACES * _STEP,
        "height": _HEIGHT,
    }


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
    cost = prices.total(agent_runs.tokens, agent_runs.runs)
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
        marks="".join(f"M{share * _PLACES * _STEP:.1f} 0V{_HEIGHT}" for share, _ in deployed),
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


def periods_in_order() -> list[str]:
    """The periods, beginning with the default period."""
    return sorted(PERIODS, key=lambda period: period != DEFAULT_PERIOD)


def chosen_period(request: Request) -> str:
    """The period of a request.

    Raises:
        ConfigError: It is none of the `PERIODS`.
    """
    period = request.query_params.get("period", DEFAULT_PERIOD)
    if period not in PERIODS:
        raise ConfigError(f"period={period[:40]}: write one of {', '.join(PERIODS)}")
    return period


def latest_start(now_ns: int) -> int:
    """The time (ns) when the future begins: clocks may differ by a day."""
    return now_ns + _DAY_NS


def extent_of(
    store: Store, period: str, now_ns: int, selection: Selection = EVERYTHING
) -> tuple[int, int] | None:
    """When a period begins and ends (ns since the epoch); None without runs.

    A run in the future does not end the period. Otherwise, a single run of a machine whose clock is
    wrong would be all that the period shows.

    Args:
        store: The store.
        period: One of `PERIODS`.
        now_ns: The current time.
        selection: The filter for runs, whose times narrow the period.
    """
    length = PERIODS[period]
    extent = store.agent_figures.extent(latest_start(now_ns) if length else None)
    if extent is None:
        return None
    first, last = extent
    if length is not None:
        first = max(first, last - length)
    if selection.since_ns is not None:
        first = max(first, selection.since_ns)
    if selection.until_ns is not None:
        last = min(last, selection.until_ns - 1)
    return (first, last) if first <= last else None


@dataclass(frozen=True, slots=True)
class Deployments:
    """The deployments of a period.

    Attributes:
        first_ns: When the period begins (ns since the epoch).
        last_ns: When it ends.
        marks: The marks, the latest first.
        services: The services of each agent; "" has the services of runs without an agent.
    """

    first_ns: int = 0
    last_ns: int = 0
    marks: Sequence[StoredMark] = ()
    services: Mapping[str, AbstractSet[str]] | None = None

    def of(self, agent: str, service: str) -> tuple[tuple[float, str], ...]:
        """The latest deployments of an agent, or of a service for runs without one.

        Args:
            agent: The agent, or "".
            service: The service of runs without an agent.
        """
        own = (self.services or {}).get(agent, frozenset()) if agent else {service}
        extent = max(1, self.last_ns - self.first_ns)
        own_marks = [mark for mark in self.marks if not mark.service or mark.service in own]
        return tuple(
            (
                (mark.time_ns - self.first_ns) / extent,
                f"{shorten(one_line(mark.name), _MARK_NAME)}, {clock(mark.time_ns)[:16]} UTC",
            )
            for mark in own_marks[:_MOST_MARKS]
        )


def read_deployments(store: Store, first_ns: int, last_ns: int) -> Deployments:
    """The deployments in a period, seen by monitors or marked by somebody.

    Args:
        store: The store.
        first_ns: When the period begins (ns since the epoch).
        last_ns: When it ends.
    """
    marks = [mark for mark in store.monitors.marks(first_ns) if mark.time_ns <= last_ns]
    if not marks:
        return Deployments()
    services = store.agent_figures.services(first_ns, last_ns)
    return Deployments(first_ns, last_ns, marks[::-1], services)
