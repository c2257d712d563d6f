"""``oteval eval`` and ``oteval experiments``: run experiments, keep and list them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..config import DEFAULT_PATH, Config, load_config
from ..errors import InputError, NothingEvaluated
from ..evaluators.functions import load_function
from ..experiments import (
    Comparison,
    ExperimentResults,
    configured,
    evaluate,
    load_experiment,
)
from ..experiments import Progress as Going
from ..experiments import compare as compare_experiments
from ..pipeline import ScoreRun, Tally, check_gates
from ..show import (
    comparison_view,
    experiment_junit,
    experiment_markdown,
    experiments_table,
    figures_table,
    run_errors_table,
)
from ..store import Store
from ..text import counted
from . import common
from .common import db_option, filters, json_option, open_store, out, print_json, select, warn

__all__ = [
    "FUNCTION",
    "eval_",
    "experiments",
    "importable",
    "live",
    "regressed",
    "reports",
    "running",
    "write",
]

Command = Callable[..., Any]

FUNCTION = "PKG.MODULE:FUNCTION"


def reports(command: Command) -> Command:
    """Give a command the options of report files."""
    for option in (
        click.option("--md", type=click.Path(dir_okay=False), help="Write Markdown to this file."),
        click.option(
            "--junit", type=click.Path(dir_okay=False), help="Write JUnit XML to this file."
        ),
    ):
        command = option(command)
    return command


def running(command: Command) -> Command:
    """Give a command the options of what runs for a while."""
    for option in (
        click.option("--resume", is_flag=True, help="Go on with what that name has begun."),
        click.option(
            "--timeout",
            type=float,
            default=120.0,
            show_default=True,
            metavar="SECONDS",
            help="Give up on an evaluator after this long.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            help="How many at a time.",
        ),
        click.option("--name", help="The name to keep it by; by default one is made."),
    ):
        command = option(command)
    return command


@click.command("eval")
@click.option(
    "--data", help="The examples: a JSON-lines file, or a dataset's NAME or NAME@VERSION."
)
@click.option(
    "--target",
    metavar=FUNCTION,
    help="What to run on each example's inputs; without it the stored trajectories are judged.",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    help="The evaluators: an oteval.yaml.  [default: oteval.yaml, unless --call is given]",
)
@click.option(
    "--call",
    "calls",
    multiple=True,
    metavar=FUNCTION,
    help="An evaluator that is a function; may be repeated.",
)
@click.option("--prefix", help="What the name is made of, in place of --name.")
@click.option("--description", help="What it is, for people.")
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often each example is run.",
)
@click.option(
    "--target-timeout", type=float, metavar="SECONDS", help="Give up on the target after this long."
)
@click.option(
    "--baseline",
    metavar="EXPERIMENT",
    help="Compare with this one afterwards; exit 1 when something regressed.",
)
@running
@db_option
@filters
@reports
@json_option
def eval_(
    data: str | None,
    target: str | None,
    config_path: str | None,
    calls: tuple[str, ...],
    prefix: str | None,
    description: str | None,
    repetitions: int,
    target_timeout: float | None,
    baseline: str | None,
    name: str | None,
    concurrency: int,
    timeout: float,
    resume: bool,
    db: str,
    junit: str | None,
    md: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Run an experiment: a target on examples, or stored trajectories, judged and kept.

    The target is a function from an example's inputs to outputs; evaluators are those of an
    oteval.yaml, or functions (--call) that name what they want of inputs, outputs,
    reference_outputs, run, example and trajectory. Ctrl-C keeps what is done; --resume goes on.
    Exit status: 0 fine, 1 a gate of the configuration failed or something regressed, 2 something
    is broken, 3 nothing could be evaluated.
    """
    importable()
    function = load_function(target) if target else None
    selection = select(**given)
    config = _config(config_path, bool(calls))
    with open_store(db, create=bool(target)) as store:
        judges = _judges(config, Path(config_path or DEFAULT_PATH).parent, calls, store)
        if baseline is not None:
            load_experiment(baseline, store)  # a wrong name is said before the work, not after
        with live("evaluating") as update:
            results: ExperimentResults = evaluate(
                function or selection,
                data=data,
                evaluators=judges,
                experiment_prefix=prefix,
                description=description,
                max_concurrency=concurrency,
                num_repetitions=repetitions,
                name=name,
                resume=resume,
                timeout=timeout,
                target_timeout=target_timeout,
                store=store,
                on_progress=update,
            )
        comparison = _against(baseline, results, store)
    write(junit, lambda: experiment_junit(results))
    write(md, lambda: experiment_markdown(results, comparison))
    _show(results, comparison, as_json)
    return _status(results, config, comparison, bool(judges))


def importable() -> None:
    """Let functions of modules in this folder be imported, as ``python -m`` would."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _config(path: str | None, has_calls: bool) -> Config | None:
    if path is None and has_calls:
        return None
    return load_config(path or DEFAULT_PATH)


def _judges(config: Config | None, base: Path, calls: Sequence[str], store: Store) -> list[Any]:
    """Return the evaluators of a configuration, if there is one, and functions."""
    judges: list[Any] = configured(config, store, base) if config else []
    return [*judges, *map(load_function, calls)]


def _against(baseline: str | None, results: ExperimentResults, store: Store) -> Comparison | None:
    if baseline is None:
        return None
    return compare_experiments(load_experiment(baseline, store), results)


def _show(results: ExperimentResults, comparison: Comparison | None, as_json: bool) -> None:
    if as_json:
        for row in results.to_dicts():
            print_json(row)
    else:
        failures = run_errors_table(results)
        if failures is not None:
            out().print(failures)
            out().print()
        out().print(figures_table(results))
        if comparison is not None:
            out().print()
            out().print(comparison_view(comparison))
    warn(f"experiment {results.name}: {counted(len(results), 'run')}, {results.errors} failed")


def _status(
    results: ExperimentResults, config: Config | None, comparison: Comparison | None, judged: bool
) -> int:
    figures = results.summary()
    if not len(results) or results.errors == len(results):
        raise NothingEvaluated(f"every run of {results.name} failed; --json says why")
    if judged and not sum(figure.evaluated for figure in figures):
        raise NothingEvaluated(f"no evaluator gave a verdict on {results.name}; --json says why")
    held = True
    for gate in check_gates(config.gates, _tallied(results).tallies) if config else []:
        warn(f"gate {gate.evaluator}: {'passed' if gate.passed else 'FAILED'}: {gate.comment}")
        held = held and gate.passed
    return 0 if held and not regressed(comparison) else 1


def _tallied(results: ExperimentResults) -> ScoreRun:
    """Return the counts that gates look at; a run that failed is an error of every evaluator."""
    run = ScoreRun(trajectories=len(results))
    for key, members in results.feedback().items():
        tally = run.tallies.setdefault(key, Tally(key))
        tally.errors += results.errors
        for _, one in members:
            tally.add(cast("Any", one))  # what it looks at, feedback and scores have alike
    return run


def regressed(comparison: Comparison | None) -> bool:
    """Say what regressed, and return whether anything did."""
    if comparison is None:
        return False
    for one in comparison.regressed:
        warn(f"{one.key} REGRESSED: {one.mean_a:.3f} to {one.mean_b:.3f}")
    return bool(comparison.regressed)


@click.command()
@db_option
@json_option
def experiments(db: str, as_json: bool) -> int:
    """List the experiments and comparisons that are kept."""
    with open_store(db) as store:
        rows = store.experiments.list()
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        out().print(experiments_table(rows, common.now_ns()))
    warn(counted(len(rows), "experiment"))
    return 0


@contextmanager
def live(text: str) -> Iterator[Callable[[Going], None]]:
    """Show what is done, failed, came out of the cache and cost, when people are watching."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[about]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(text, total=0, about="")

        def update(going: Going) -> None:
            bar.update(task, completed=going.done, total=going.total, about=_about(going))

        yield update


def _about(going: Going) -> str:
    """Return a live line's figures, those that are not 0."""
    parts = [
        f"{going.resumed} resumed" if going.resumed else "",
        f"[red]{counted(going.errors, 'error')}[/red]" if going.errors else "0 errors",
        f"{going.cached} cached" if going.cached else "",
        f"${going.cost:.4f}" if going.cost else "",
    ]
    return "  ".join(part for part in parts if part)


def write(path: str | None, content: Callable[[], str]) -> None:
    """Write a report, if one is wanted."""
    if path is None:
        return
    try:
        Path(path).write_text(content(), "utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
