"""The pages of experiments: ``/experiments``, and ``/experiments/NAME`` with one or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...base.errors import ConfigError
from ...base.text import counted
from ...evaluators import PassRate, pass_rate
from ...store import KeyCounts, ListedExperiment
from ..run_texts import total_cost_text
from ..text import one_line, shorten
from .experiment_comparison import comparison_page
from .experiment_matrix import experiment_page
from .responses import named_link, page, with_query
from .site import Site

__all__ = [
    "ExperimentItem",
    "experiment_item",
    "experiment_link",
    "experiments_routes",
]

_MOST = 200
_MOST_KEYS = 12
_NAME, _ABOUT = 120, 200  # characters
_SHOWN = ("all", "failing")


@dataclass(frozen=True, slots=True)
class ExperimentItem:
    """An experiment in the list.

    Attributes:
        name: Its name, shortened.
        link: The path of its page.
        about: Its description, or the names that it compares.
        dataset: The dataset and the start of its version.
        created_ns: When it was made (ns since the epoch).
        done: Its runs, of how many; for a comparison, its votes.
        errors: The number of failed runs.
        keys: The keys with their counts, and the pass rate over examples.
        more_keys: The number of keys that are not shown.
        cost: The cost that evaluators report, or "".
    """

    name: str
    link: str
    about: str
    dataset: str
    created_ns: int
    done: str
    errors: int
    keys: tuple[tuple[str, KeyCounts, PassRate], ...]
    more_keys: int
    cost: str


def experiments_routes(site: Site) -> list[Route]:
    """The routes of experiments."""

    async def experiments(_: Request) -> Response:
        # Another process may add experiments without a run of the store.
        state = await site.read(lambda store: store.experiment_figures.state())
        items = await site.cached(
            ("experiments", state),
            lambda store: [
                experiment_item(listed) for listed in store.experiment_figures.newest(_MOST)
            ],
        )
        return page(
            "experiments.html.j2",
            section="experiments",
            now_ns=site.clock(),
            experiments=items,
            left_out=max(0, state.experiments - len(items)),
        )

    async def experiment(request: Request) -> Response:
        name, baseline = request.path_params["name"], request.query_params.get("baseline", "")
        view, first = _shown(request)
        state = await site.read(lambda store: store.experiment_figures.state())
        matrix = await site.cached(
            ("experiment", name, state, view, first),
            lambda store: experiment_page(store, name, is_failing=view == "failing", first=first),
        )
        compared = None
        if baseline:
            compared = await site.cached(
                ("compared experiments", name, baseline, state),
                lambda store: comparison_page(store, name, baseline),
            )
        names = await site.read(lambda store: store.experiment_figures.names(_MOST))
        chosen = compared["baseline"] if compared else ""
        link = experiment_link(matrix["name"], matrix["id"])
        return page(
            "experiment.html.j2",
            section="experiments",
            now_ns=site.clock(),
            experiment=matrix,
            title=shorten(one_line(matrix["name"]), _NAME),
            cost=total_cost_text(matrix["cost"], matrix["unpriced"]),
            compared=compared,
            baseline=shorten(one_line(chosen), _NAME),
            baseline_link=experiment_link(chosen, compared["baseline_id"]) if compared else "",
            choices=_choices(names, matrix["name"], matrix["dataset"], chosen),
            action=link,
            shown=view,
            views=[
                (choice, with_query(link, baseline=chosen, show="" if choice == "all" else choice))
                for choice in _SHOWN
            ],
            steps=_steps(
                link, chosen, view, matrix["first"], matrix["rows_in_all"], matrix["per_part"]
            ),
        )

    return [Route("/experiments", experiments), Route("/experiments/{name:path}", experiment)]


def experiment_link(name: str, experiment_id: str) -> str:
    """The path of an experiment's page: by its name, else by its id."""
    path = named_link("/experiments", name)
    is_path = path != "/experiments" and name.strip("./") != ""
    return path if is_path else named_link("/experiments", experiment_id)


def _shown(request: Request) -> tuple[str, int]:
    """Which rows a request selects, and the first of them.

    Raises:
        ConfigError: A parameter is wrong.
    """
    view = request.query_params.get("show", "all")
    if view not in _SHOWN:
        raise ConfigError(f"show={view[:40]}: write one of {', '.join(_SHOWN)}")
    first = request.query_params.get("from", "0")
    if not (first.isascii() and first.isdecimal() and len(first) < 10):
        raise ConfigError(f"from={first[:40]}: write the number of a row")
    return view, int(first)


def _choices(
    names: Sequence[tuple[str, str]], own: str, dataset: str, chosen: str
) -> list[tuple[str, str, bool]]:
    """The experiments to compare an experiment with, beginning with its own dataset.

    Each has its name, its name as it is shown, and whether it is chosen.
    """
    choices = [choice for choice in names if choice[0] != own]
    if chosen and chosen not in {name for name, _ in choices}:
        choices.append((chosen, dataset))
    choices.sort(key=lambda choice: choice[1] != dataset)
    return [
        (
            name,
            shorten(one_line(name), _NAME)
            + ("" if data == dataset else f" (dataset {shorten(one_line(data), 40) or 'unnamed'})"),
            name == chosen,
        )
        for name, data in choices
    ]


def _steps(
    link: str, baseline: str, chosen_view: str, first: int, count: int, step: int
) -> list[tuple[str, str]]:
    """The links to the rows before and after the shown rows."""
    view = "" if chosen_view == "all" else chosen_view

    def part(start: int) -> str:
        values = {"baseline": baseline, "show": view, "from": str(start) if start else ""}
        return with_query(link, **values)

    steps = []
    if first:
        steps.append(("earlier rows", part(max(0, first - step))))
    if first + step < count:
        steps.append(("further rows", part(first + step)))
    return steps


def experiment_item(experiment: ListedExperiment) -> ExperimentItem:
    """An experiment as the list shows it."""
    is_comparison = experiment.kind == "comparison"
    done = (
        f"{experiment.runs:,} of {experiment.expected:,}"
        if experiment.runs < experiment.expected
        else f"{experiment.runs:,}"
    )
    return ExperimentItem(
        name=shorten(one_line(experiment.name), _NAME) or "(no name)",
        link=experiment_link(experiment.name, experiment.id),
        about=shorten(one_line(experiment.description or " vs ".join(experiment.compared)), _ABOUT),
        dataset=" ".join(
            part
            for part in (shorten(one_line(experiment.dataset), 40), experiment.dataset_version[:8])
            if part
        ),
        created_ns=experiment.created_ns,
        done=counted(experiment.votes, "vote") if is_comparison else done,
        errors=experiment.errors,
        keys=tuple(
            (
                shorten(one_line(counts.key), 60) or "(no name)",
                counts,
                pass_rate(counts.passed_share, counts.failed_share),
            )
            for counts in experiment.keys[:_MOST_KEYS]
        ),
        more_keys=max(0, len(experiment.keys) - _MOST_KEYS),
        cost=_cost(experiment.keys),
    )


def _cost(keys: Sequence[KeyCounts]) -> str:
    """The reported cost; several keys of one call report the same cost."""
    costs: dict[str, float] = {}
    for key in keys:
        if key.cost is not None:
            costs[key.evaluator] = max(costs.get(key.evaluator, 0.0), key.cost)
    unknown = sum(key.unpriced for key in keys)
    return total_cost_text(sum(costs.values()) if costs else None, unknown)
