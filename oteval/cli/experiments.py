"""``oteval eval`` and ``oteval experiments``: run and list experiments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
from rich.text import Text

from ..base.errors import NothingEvaluated
from ..base.text import counted
from ..evaluators import load_function, load_target
from ..record import default_service, observed_targets
from ..scoring import (
    DEFAULT_PATH,
    Comparison,
    Config,
    ExperimentResults,
    Progress as ExperimentProgress,
    ScoreCounts,
    Tally,
    check_gates,
    compare as compare_experiments,
    configured,
    evaluate,
    is_dataset_file,
    load_config,
    load_experiment,
    read_dataset,
)
from ..store import Store
from ..views import (
    comparison_view,
    experiment_junit,
    experiment_markdown,
    experiments_table,
    failed_targets,
    figures_table,
    run_errors_table,
)
from . import common
from .common import (
    databases_option,
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    print_rows,
    progress,
    select,
    warn,
    write_report,
)
from .options import FUNCTION_METAVAR, report_options, run_options

__all__ = [
    "eval_",
    "experiment_progress",
    "experiments",
    "import_from_cwd",
    "print_comparison",
    "warn_regressed",
]


@click.command("eval")
@click.option(
    "--data", help="The examples: a JSON-lines file, or a dataset as NAME or NAME@VERSION."
)
@click.option(
    "--target",
    metavar=FUNCTION_METAVAR,
    help="The function to run on each example; without it, stored trajectories are evaluated.",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    help="The oteval.yaml with the evaluators.  [default: oteval.yaml, unless --call is given]",
)
@click.option(
    "--call",
    "calls",
    multiple=True,
    metavar=FUNCTION_METAVAR,
    help="An evaluator function; may be repeated.",
)
@click.option("--prefix", help="The prefix of the generated name.")
@click.option("--description", help="A description for people.")
@click.option(
    "--repetitions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The number of runs of each example.",
)
@click.option(
    "--target-timeout", type=float, metavar="SECONDS", help="The limit for each call of the target."
)
@click.option(
    "--baseline",
    metavar="EXPERIMENT",
    help="Compare with this experiment afterwards; exit 1 if a score regressed.",
)
@run_options
@db_option
@filters
@report_options
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
    **filter_options: Any,
) -> int:
    """Run an experiment on examples or stored runs.

    The target is a function from an example's inputs to outputs. Evaluators come from oteval.yaml
    or are functions (--call), which may have the parameters inputs, outputs, reference_outputs,
    run, example and trajectory. Ctrl-C keeps finished runs; --resume continues. Exit status: 0
    success, 1 the target failed on an example, a gate failed or a score regressed, 2 an error, 3
    nothing could be evaluated.
    """
    import_from_cwd()
    selection = select(**filter_options)
    config = _config(config_path, bool(calls))
    with ExitStack() as stack:
        if target:
            # Before the target is imported: it may create its agent then.
            rules = [rule.rule() for rule in config.redact] if config else []
            stack.enter_context(observed_targets(default_service(target), rules))
        function = load_target(target) if target else None
        # Read before the database is opened: a missing file leaves no empty database.
        examples = read_dataset(data) if data and is_dataset_file(data) else data
        store = stack.enter_context(open_store(db, create=bool(target)))
        evaluators = _evaluators(config, Path(config_path or DEFAULT_PATH).parent, calls, store)
        if baseline is not None:
            load_experiment(baseline, store)  # report a wrong name before the run
        with experiment_progress("evaluating") as update:
            results: ExperimentResults = evaluate(
                function or selection,
                data=examples,
                evaluators=evaluators,
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
        comparison = _compare(baseline, results, store)
    write_report(junit, lambda: experiment_junit(results))
    write_report(md, lambda: experiment_markdown(results, comparison))
    _show(results, comparison, as_json)
    return _status(results, config, comparison, bool(evaluators))


def import_from_cwd() -> None:
    """Make modules in the current folder importable, as ``python -m`` does."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _config(path: str | None, has_calls: bool) -> Config | None:
    if path is None and has_calls:
        return None
    return load_config(path or DEFAULT_PATH)


def _evaluators(config: Config | None, base: Path, calls: Sequence[str], store: Store) -> list[Any]:
    """Return the evaluators of the configuration, if any, and the functions."""
    evaluators: list[Any] = configured(config, store, base) if config else []
    return [*evaluators, *map(load_function, calls)]


def _compare(baseline: str | None, results: ExperimentResults, store: Store) -> Comparison | None:
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
        if failed := failed_targets(results):
            out().print(Text(failed, style="red"))
        if comparison is not None:
            out().print()
            out().print(comparison_view(comparison))
    warn(f"experiment {results.name}: {counted(len(results), 'run')}, {results.errors} failed")


def _status(
    results: ExperimentResults,
    config: Config | None,
    comparison: Comparison | None,
    has_evaluators: bool,
) -> int:
    figures = results.summary()
    if not len(results) or results.errors == len(results):
        raise NothingEvaluated(f"every run of {results.name} failed; --json gives the reasons")
    if has_evaluators and not sum(figure.evaluated for figure in figures):
        raise NothingEvaluated(
            f"no evaluator gave a verdict on {results.name}; --json gives the reasons"
        )
    passed = not results.errors
    for gate in check_gates(config.gates, _tally(results).tallies) if config else []:
        warn(f"gate {gate.evaluator}: {'passed' if gate.passed else 'FAILED'}: {gate.comment}")
        passed = passed and gate.passed
    return 0 if passed and not warn_regressed(comparison) else 1


def _tally(results: ExperimentResults) -> ScoreCounts:
    """Return the counts for gates; a failed run is an error of every evaluator."""
    run = ScoreCounts(trajectories=len(results))
    for key, members in results.feedback().items():
        tally = run.tallies.setdefault(key, Tally(key))
        tally.errors += results.errors
        for _, feedback in members:
            tally.add(cast("Any", feedback))  # feedback has the fields that `add` reads
    return run


def print_comparison(comparison: Comparison) -> None:
    """Print the runs that broke, all other changes, and the statistics, as JSON lines."""
    for row in comparison.changes.as_dicts():
        print_json(row)
    sides = {"a": comparison.a.name, "b": comparison.b.name}
    for difference in comparison.regressed_first:
        print_json({"row": "score", **sides, **difference.as_dict()})


def warn_regressed(comparison: Comparison | None) -> bool:
    """Print the scores that regressed or lost their verdict; return whether there are any."""
    if comparison is None:
        return False
    for difference in comparison.regressed:
        warn(f"{difference.key} REGRESSED: {difference.mean_a:.3f} to {difference.mean_b:.3f}")
    for key in comparison.unverified:
        warn(f"{key} HAS NO VERDICT in {comparison.b.name}; --json gives the reasons")
    return bool(comparison.regressed or comparison.unverified)


@click.command()
@databases_option
@json_option
def experiments(db: tuple[str, ...], as_json: bool) -> int:
    """List the stored experiments and comparisons."""
    with open_store(db) as store:
        rows = store.experiments.list()
    table = partial(experiments_table, rows, common.now_ns())
    print_rows(rows, "experiment", table, as_json=as_json)
    return 0


@contextmanager
def experiment_progress(text: str) -> Iterator[Callable[[ExperimentProgress], None]]:
    """Show progress, failures, cached answers and cost, if standard error is a terminal."""
    with progress(text) as update:
        yield lambda state: update(state.done, state.total, _progress_note(state))


def _progress_note(state: ExperimentProgress) -> str:
    """Return the nonzero figures behind the progress bar."""
    parts = [
        f"{state.resumed} resumed" if state.resumed else "",
        f"[red]{counted(state.errors, 'error')}[/red]" if state.errors else "0 errors",
        f"{state.cached} cached" if state.cached else "",
        f"${state.cost:.4f}" if state.cost else "",
    ]
    return "  ".join(part for part in parts if part)
