"""``oteval score`` and ``oteval scores``: evaluate trajectories and list scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from ..base.errors import InputError, NothingEvaluated
from ..base.text import counted
from ..ingest import file_size
from ..model import Score, Selection
from ..scoring import (
    Config,
    GateResult,
    ScoreCounts,
    check_gates,
    load_config,
    require_evaluators,
)
from ..views import (
    judge_summary,
    junit_report,
    list_order_notes,
    markdown_report,
    run_title,
    scores_table,
    tallies_table,
)
from .common import (
    TABLE_ROWS,
    databases_option,
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    select,
    store_in_turn,
    warn,
    write_report,
)
from .loaded_files import database_for, load_files
from .options import config_option, min_evaluated_option, report_options
from .score_spark import (
    SparkOptions,
    count_results,
    first_failures,
    require_local,
    score_on_spark,
    spark_options,
)

if TYPE_CHECKING:
    from ..store import Outcome, Store

__all__ = ["exit_status", "new_scores_of", "score", "score_selection", "scores"]

_SHOWN = 20
_PAGE = 500
# Files of at least this many bytes are loaded into a temporary database, not into memory.
_LARGE = 32 << 20


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@config_option()
@db_option
@filters
@min_evaluated_option
@report_options
@click.option("--again", is_flag=True, help="Re-run LLM judges, ignoring cached verdicts.")
@spark_options
@json_option
@click.pass_context
def score(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    config_path: str,
    db: str,
    min_evaluated: int,
    junit: str | None,
    md: str | None,
    again: bool,
    engine: str,
    master: str | None,
    settings: tuple[str, ...],
    out_path: str | None,
    overwrite: bool,
    max_judge_calls: int | None,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Score trajectories by oteval.yaml; check its gates.

    Without PATHs, this scores the database. With PATHs, it scores these trace files alone; or,
    if --db is given, loads them into that database and scores it. With --engine spark, it scores
    them on Spark, and --out has the results. Exit status: 0 all gates passed, 1 a gate failed, 2
    the configuration or a file is broken, 3 nothing could be evaluated.
    """
    on_spark = SparkOptions(master, settings, out_path, overwrite, max_judge_calls)
    config = require_evaluators(load_config(config_path), config_path)
    selection = select(**filter_options)
    base = Path(config_path).parent
    run = ScoreCounts()
    chosen = context.get_parameter_source("db") is ParameterSource.COMMANDLINE
    keep = bool(junit or md)
    scoring = _CommandScores(config, base, selection, run, as_json=as_json, keep=keep, again=again)
    if engine == "spark":
        if chosen:
            raise click.UsageError("--engine spark uses no --db; give --out DIR")
        report_scores, titles = scoring.on_spark(paths, on_spark)
    else:
        require_local(on_spark)
        report_scores, titles = scoring.here(paths, db, stores=chosen)
    gates = check_gates(config.gates, run.tallies)
    write_report(junit, lambda: junit_report(report_scores, titles))
    failures = [s for s in report_scores if s.is_complaint]
    write_report(md, lambda: markdown_report(run.tallies, gates, failures))
    if not as_json:
        _print_tallies(run)
    return exit_status(run, gates, min_evaluated)


class _CommandScores(NamedTuple):
    """A scoring with its options; `here` and `on_spark` return scores and titles of runs."""

    config: Config
    base: Path
    selection: Selection
    run: ScoreCounts
    as_json: bool
    keep: bool
    again: bool

    def here(
        self, paths: Sequence[str], db: str, *, stores: bool
    ) -> tuple[list[Score], dict[str, str]]:
        """Score a database, or files; files are stored if the database was named."""
        if not paths:
            with open_store(db) as store:
                return self._score(store)
        from ..scoring import refresh

        with _store_for(paths, db if stores else None) as store:
            report = load_files(store, tuple(paths))
            if any(file.error for file in report.files):
                raise InputError("nothing was scored, because a file could not be read")
            refresh(store)
            return self._score(store)

    def _score(self, store: Store) -> tuple[list[Score], dict[str, str]]:
        report_scores = _run(
            store,
            self.config,
            self.base,
            self.selection,
            self.run,
            as_json=self.as_json,
            keep=self.keep,
            again=self.again,
        )
        return report_scores, _titles(store, report_scores)

    def on_spark(
        self, paths: Sequence[str], options: SparkOptions
    ) -> tuple[list[Score], dict[str, str]]:
        """Score files on Spark, and read the scores to print from the results."""
        config, base, selection, run, as_json, keep, again = self
        with (
            score_on_spark(paths, config, base, selection, options, again=again) as folder,
            open_store([str(folder)]) as store,
        ):
            count_results(store, config, selection, run)
            stored_scores = store.scores.read() if as_json or keep else iter(())
            report_scores, _ = _print_scores(stored_scores, as_json=as_json, keep=keep)
            if not as_json:
                _print_failures(first_failures(store, _SHOWN), run)
            return report_scores, _titles(store, report_scores)


def score_selection(store: Store, config_path: str, selection: Selection) -> int:
    """Score some trajectories, print the result, and return the exit status.

    Raises:
        NothingEvaluated: No trajectory has a verdict.
    """
    config = require_evaluators(load_config(config_path), config_path)
    run = ScoreCounts()
    base = Path(config_path).parent
    _run(store, config, base, selection, run, as_json=False, keep=False, again=False)
    _print_tallies(run)
    return exit_status(run, check_gates(config.gates, run.tallies), 1)


def _print_tallies(run: ScoreCounts) -> None:
    out().print(tallies_table(run.tallies.values()))
    for note in list_order_notes(run):
        warn(note)
    if judge_summary(run):
        warn(f"judges: {judge_summary(run)}")


def _run(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection,
    run: ScoreCounts,
    *,
    as_json: bool,
    keep: bool,
    again: bool,
) -> list[Score]:
    """Score the selection, print failures, and return the scores that reports need."""
    yields_passes = as_json or keep
    with new_scores_of(
        store, config, base, selection, run, again=again, yields_passes=yields_passes
    ) as new_scores:
        report_scores, failures = _print_scores(new_scores, as_json=as_json, keep=keep)
    _print_failures(failures, run)
    return report_scores


@contextmanager
def new_scores_of(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection,
    run: ScoreCounts,
    *,
    again: bool,
    yields_passes: bool = True,
    reuse_all: bool = False,
) -> Iterator[Iterator[Score]]:
    """Score a selection with a progress bar, and yield the scores; see `oteval.scoring.score`.

    Args:
        store: The store.
        config: The configuration.
        base: The base folder of relative paths in the configuration.
        selection: The runs to score.
        run: The counts to update.
        again: Whether to ignore stored verdicts.
        yields_passes: Whether passes are yielded as well.
        reuse_all: Whether stored verdicts of all evaluators are used again, instead of only judges'
            verdicts.
    """
    from ..scoring import score as score_all
    from ..store import is_exact

    total = store.trajectories.count(selection) if is_exact(selection) else None
    with (
        progress("scoring", " trajectories") as update,
        closing(
            score_all(
                *(store, config, base, selection, run),
                lambda done: update(done, total, judge_summary(run)),
                again=again,
                yields_passes=yields_passes,
                reuse_all=reuse_all,
            )
        ) as new_scores,
    ):
        yield new_scores


@contextmanager
def _store_for(paths: Sequence[str], db: str | None) -> Iterator[Store]:
    """Open the database for loaded files: the named database, or one for this command."""
    from ..store import MEMORY

    if db is None:
        sizes = [file_size(path) for path in paths]
        is_small = None not in sizes and sum(filter(None, sizes)) < _LARGE
        db = MEMORY if is_small else ""
    with ExitStack() as stack:
        path = db or str(Path(stack.enter_context(TemporaryDirectory(prefix="oteval-"))) / "runs")
        yield stack.enter_context(store_in_turn(database_for(paths, path)))


def _print_scores(
    new_scores: Iterable[Score], *, as_json: bool, keep: bool
) -> tuple[list[Score], list[Score]]:
    """Print scores as JSON; return the scores for reports, and the failures to print."""
    report_scores: list[Score] = []
    failures: list[Score] = []
    for score in new_scores:
        if as_json:
            print_json(score.as_dict())
        elif score.is_complaint and len(failures) < _SHOWN:
            failures.append(score)
        if keep:
            report_scores.append(score)
    return report_scores, failures


def _print_failures(failures: Sequence[Score], run: ScoreCounts) -> None:
    """Print failures, and the number of further failures."""
    if failures:
        out().print(scores_table(failures, wraps=True))
        hidden = sum(t.failed + t.errors + t.not_evaluated for t in run.tallies.values())
        if hidden > len(failures):
            warn(f"{hidden - len(failures)} more did not pass (--json or oteval scores lists all)")
        out().print()


def _titles(store: Store, report_scores: Iterable[Score]) -> dict[str, str]:
    """Return the titles of runs by trajectory id, for the JUnit report."""
    ids = iter(dict.fromkeys(score.trajectory_id for score in report_scores))
    titles: dict[str, str] = {}
    while page := tuple(islice(ids, _PAGE)):
        runs = store.trajectories.read(Selection(ids=page))
        titles.update({run.id: run_title(run) for run in runs})
    return titles


def exit_status(run: ScoreCounts, gates: list[GateResult], min_evaluated: int) -> int:
    """Print the gates, and return the exit status of a scoring.

    Raises:
        NothingEvaluated: There are fewer verdicts than `min_evaluated`.
    """
    if not run.trajectories:
        raise NothingEvaluated("no trajectories to score; oteval trajectories lists them")
    if run.evaluated < min_evaluated:
        raise NothingEvaluated(
            f"{counted(run.evaluated, 'verdict')} on "
            f"{counted(run.trajectories, 'trajectory')}; expected at least "
            f"{min_evaluated}; --json gives the reasons"
        )
    for gate in gates:
        warn(f"gate {gate.evaluator}: {'passed' if gate.passed else 'FAILED'}: {gate.comment}")
    if not gates:
        warn("no gates are configured, so exit status 0 only means that scoring worked")
    return 0 if all(gate.passed for gate in gates) else 1


@click.command()
@databases_option
@filters
@click.option("--evaluator", multiple=True, help="Scores of this evaluator; may be repeated.")
@click.option(
    "--status",
    type=click.Choice(["pass", "fail", "error", "not_evaluated"]),
    help="Scores with this outcome.",
)
@json_option
def scores(
    db: tuple[str, ...],
    evaluator: tuple[str, ...],
    status: Outcome | None,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """List the current scores.

    Those are the newest by each evaluator on each trajectory as it is. Without --json, this lists
    the latest 1,000.
    """
    from ..store import is_exact

    selection = select(**filter_options)
    listed_scores: list[Score] = []
    with open_store(db) as store:
        ids = None
        if selection.limit or not is_exact(selection):
            pages = store.trajectories.keys(selection)
            ids = [name for page in pages for name in page["trajectory_id"].to_pylist()]
        numbers = store.scores.numbers(selection, evaluators=evaluator, outcome=status, ids=ids)
        count = len(numbers)
        if as_json:
            for score in store.scores.at(numbers):
                print_json(score.as_dict())
        else:
            listed_scores = list(store.scores.at(numbers.slice(max(0, count - TABLE_ROWS))))
    if listed_scores:
        out().print(scores_table(listed_scores))
    is_cut = not as_json and count > len(listed_scores)
    note = f", the latest {len(listed_scores):,} of them listed" if is_cut else ""
    warn(counted(count, "score") + note)
    return 0
