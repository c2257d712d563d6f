"""``oteval score --engine spark``: score files on a Spark cluster, into a folder of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ..base.text import counted
from ..model import Score, Selection
from ..scoring import Config, ScoreCounts, Tally
from .common import warn

if TYPE_CHECKING:
    from ..extras import FileProblems
    from ..store import Outcome, Store

__all__ = ["SparkOptions", "require_local", "score_on_spark", "spark_options"]

_NAMED = 20
_OUTCOMES: tuple[Outcome, ...] = ("fail", "error", "not_evaluated")


class SparkOptions(NamedTuple):
    """The options of ``oteval score`` that apply only to Spark.

    Attributes:
        master: The address of the master.
        settings: Settings of Spark, each as ``KEY=VALUE``.
        out: The folder of results.
        overwrite: Whether to replace the results of the folder.
        max_judge_calls: The most requests to language models of the whole job.
    """

    master: str | None
    settings: tuple[str, ...]
    out: str | None
    overwrite: bool
    max_judge_calls: int | None


_OPTIONS = (
    click.option(
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help="Where to score: in this process, or on Spark, with PATHs and --out.",
    ),
    click.option(
        "--master",
        help="Spark's master, such as spark://HOST:7077.  [default: that of spark-submit or "
        "spark.master, or this machine]",
    ),
    click.option(
        "--conf",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    ),
    click.option(
        "--out",
        "out_path",
        type=click.Path(),
        help="The folder of Spark's results, read with --db FOLDER; or an address, such as "
        "s3a://BUCKET/out.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the results in --out."),
    click.option(
        "--max-judge-calls",
        type=click.IntRange(min=0),
        help="The most requests to judges by all tasks of Spark together.",
    ),
)


def spark_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of Spark to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def require_local(options: SparkOptions) -> None:
    """Refuse options of Spark in a command that does not use it.

    Raises:
        click.UsageError: One was given.
    """
    names = {"master": "--master", "settings": "--conf", "out": "--out"}
    names |= {"overwrite": "--overwrite", "max_judge_calls": "--max-judge-calls"}
    for field, option in names.items():
        value = getattr(options, field)
        if value is not None and value is not False and value != ():
            raise click.UsageError(f"{option} needs --engine spark")


@contextmanager
def score_on_spark(
    paths: Sequence[str],
    config: Config,
    base: Path,
    selection: Selection,
    options: SparkOptions,
    *,
    again: bool,
) -> Iterator[Path]:
    """Run the job, write its results, and print the parts of the files that could not be read.

    The block receives a folder of this machine with the results.

    Args:
        paths: The files of traces.
        config: The configuration.
        base: The base folder of relative paths in the configuration.
        selection: The runs to score.
        options: The options of Spark.
        again: Whether to ask judges again, ignoring the answers in the folder.

    Raises:
        click.UsageError: An option is missing, or cannot be used with Spark.
    """
    if not paths:
        raise click.UsageError("--engine spark scores files; name them as PATHs")
    if options.out is None:
        raise click.UsageError("--engine spark needs --out DIR for its results")
    if selection.limit is not None:
        raise click.UsageError("--limit does not go with --engine spark; use --since")
    from ..extras import local_results, parse_settings, require_free, score_files, spark_session

    # Check before Spark starts, which takes seconds.
    settings = parse_settings(options.settings)
    require_free(options.out, overwrite=options.overwrite)
    with spark_session(options.master, settings) as session, ExitStack() as stack:
        problems = score_files(
            session,
            paths,
            config,
            options.out,
            base=base,
            selection=selection,
            overwrite=options.overwrite,
            again=again,
            max_judge_calls=options.max_judge_calls,
        )
        folder = stack.enter_context(local_results(options.out, session))
        cleanup = stack.pop_all()
    with cleanup:
        _print_problems(problems)
        yield folder


def _print_problems(problems: Sequence[FileProblems]) -> None:
    """Print which parts of the files could not be read."""
    for problem in problems[:_NAMED]:
        warn(f"{problem.file}: {counted(problem.parts, 'problem')}, such as: {problem.reason}")
    if len(problems) > _NAMED:
        rest = sum(problem.parts for problem in problems[_NAMED:])
        warn(f"{counted(rest, 'problem')} in {len(problems) - _NAMED} more files")


def count_results(store: Store, config: Config, selection: Selection, run: ScoreCounts) -> None:
    """Count the scores of a folder of results, and the runs that were selected.

    Args:
        store: The folder, opened.
        config: The configuration.
        selection: The runs that were scored.
        run: The counts to update.
    """
    from ..store import is_exact

    run.tallies.update({evaluator.name: Tally(evaluator.name) for evaluator in config.evaluators})
    run.add_stored(store)
    if is_exact(selection):
        run.trajectories = store.trajectories.count(selection)
    else:
        run.trajectories = sum(map(len, store.trajectories.keys(selection)))


def first_failures(store: Store, count: int) -> list[Score]:
    """Return the first scores that did not pass: failed, then errors, then not evaluated."""
    failures: list[Score] = []
    for outcome in _OUTCOMES:
        numbers = store.scores.numbers(outcome=outcome)
        failures += store.scores.at(numbers.slice(0, count))
    return failures[:count]
