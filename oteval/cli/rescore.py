"""``oteval rescore``: run new evaluators over stored sessions, and compare with earlier scores."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..base.errors import NotFound
from ..base.text import counted
from ..model import Score, Selection
from ..scoring import (
    ScoreCounts,
    check_gates,
    load_config,
    refresh,
    require_evaluators,
)
from ..store import Store
from ..views import scores_table, tallies_table
from .common import (
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    select,
    warn,
)
from .options import config_option, min_evaluated_option
from .score import exit_status, new_scores_of

__all__ = ["rescore"]

_SHOWN = 20


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@config_option()
@db_option
@filters
@min_evaluated_option
@click.option("--again", is_flag=True, help="Run every evaluator again, ignoring stored verdicts.")
@json_option
def rescore(
    sessions: tuple[str, ...],
    config_path: str,
    db: str,
    min_evaluated: int,
    again: bool,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Run new evaluators on stored runs; list the changes.

    SESSION is the id of a trajectory or trace, or a prefix of one; without any, all that the
    filters select. A verdict that the store has of the same version of an evaluator is used again,
    so an interrupted command continues where it stopped. For each evaluator that an earlier version
    scored, this lists the runs whose outcome changed. With --json, prints a score per line, and
    `previous` in those whose outcome changed. Exit status: as of oteval score.
    """
    config = require_evaluators(load_config(config_path), config_path)
    selection = select(**filter_options)
    run = ScoreCounts()
    with open_store(db) as store:
        refresh(store)
        selection = _named(store, sessions, selection)
        base = Path(config_path).parent
        with new_scores_of(
            store, config, base, selection, run, again=again, reuse_all=True
        ) as new_scores:
            scores = list(new_scores)
        changed = _changes(store, run, {score.trajectory_id for score in scores})
        if as_json:
            previous = {(now.trajectory_id, now.evaluator): before for before, now in changed}
            for score in scores:
                print_json(_line(score, previous.get((score.trajectory_id, score.evaluator))))
        else:
            _print(store, run, changed)
    gates = check_gates(config.gates, run.tallies)
    return exit_status(run, gates, min_evaluated)


def _named(store: Store, sessions: tuple[str, ...], selection: Selection) -> Selection:
    """Return a selection that is limited to the named sessions."""
    ids: list[str] = []
    for name in sessions:
        matching_ids = store.trajectories.ids_with_prefix(name)
        if not matching_ids:
            raise NotFound(f"{name}: no such session; oteval trajectories lists them")
        ids += matching_ids
    return replace(selection, ids=tuple(dict.fromkeys(ids))) if ids else selection


def _changes(store: Store, run: ScoreCounts, ids: set[str]) -> list[tuple[Score, Score]]:
    """Return the earlier and the current scores of the scored runs with a changed outcome."""
    return [
        (before, now)
        for evaluator, version in run.versions.items()
        for before, now in store.scores.changes(evaluator, version)
        if now.trajectory_id in ids
    ]


def _line(score: Score, previous: Score | None) -> dict[str, Any]:
    line = score.as_dict()
    if previous is not None:
        compared_fields = ("version", "score", "label", "passed", "status", "comment")
        line["previous"] = {name: getattr(previous, name) for name in compared_fields}
    return line


def _print(store: Store, run: ScoreCounts, changed: list[tuple[Score, Score]]) -> None:
    out().print(tallies_table(run.tallies.values()))
    table = Table("evaluator", "runs compared", "now pass", "now fail", "other changes", box=None)
    for evaluator, version in run.versions.items():
        compared, _ = store.scores.compared(evaluator, version)
        if compared:
            mine = [pair for pair in changed if pair[1].evaluator == evaluator]
            fixed = sum(now.passed is True for _, now in mine)
            broken = sum(now.passed is False for _, now in mine)
            counts = (compared, fixed, broken, len(mine) - fixed - broken)
            table.add_row(evaluator, *map(str, counts))
    if table.row_count:
        out().print()
        out().print(table)
    listed_scores = [now for _, now in islice(changed, _SHOWN)]
    if listed_scores:
        out().print()
        out().print(scores_table(listed_scores, wraps=True))
        if len(changed) > len(listed_scores):
            warn(f"{counted(len(changed) - len(listed_scores), 'more change')}; --json lists all")
    if run.reused:
        warn(f"{counted(run.reused, 'stored verdict')} used again (--again runs them anew)")
