"""``oteval judge``: people's labels, and the agreement of judges with them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from ..base.errors import NotFound, NothingEvaluated
from ..base.text import counted, listed
from ..model import Label
from ..scoring import (
    calibrate as calibrate_judge,
    load_config,
    read_labels,
    repeat_verdicts,
)
from ..store import Store
from ..views import calibration_view
from .commands import CommandGroup
from .common import (
    databases_option,
    db_option,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    warn,
)
from .options import config_option

__all__ = ["judge"]


@click.group(cls=CommandGroup)
def judge() -> None:
    """Measure agreement between judges and people."""


@judge.command()
@click.argument("trajectory")
@click.argument("verdict", type=click.Choice(["pass", "fail"]))
@db_option
@click.option(
    "--evaluator", default="", help="The evaluator that the label is for; all by default."
)
@click.option("--person", default="", help="The person who labels.")
@click.option("--note", default="", help="The reason.")
@click.option("--score", type=float, help="A score beside the verdict.")
def label(
    trajectory: str,
    verdict: str,
    db: str,
    evaluator: str,
    person: str,
    note: str,
    score: float | None,
) -> int:
    """Label a run as passing or failing in a person's view."""
    with open_store(db) as store:
        run = store.trajectories.get(trajectory)
        new_label = Label(run.id, verdict == "pass", evaluator, person, note, score)
        store.labels.add([new_label], time.time_ns())
    warn(f"{run.id} labelled {verdict}")
    return 0


@judge.command()
@click.argument("evaluator")
@databases_option
@click.option(
    "--labels",
    "path",
    type=click.Path(dir_okay=False),
    help="A JSON-lines file of {trajectory_id, label, evaluator?, person?, note?, score?}, "
    "which is added to the database.",
)
@click.option("--version", help="The evaluator's version; the newest by default.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    help="Judge the labelled runs again this often, to measure self-consistency.",
)
@config_option("The configuration for --repeat.")
@click.option("--min-kappa", type=float, help="Exit 1 if kappa is below this.")
@json_option
def calibrate(
    evaluator: str,
    db: tuple[str, ...],
    path: str | None,
    version: str | None,
    repeat: int | None,
    config_path: str,
    min_kappa: float | None,
    as_json: bool,
) -> int:
    """Measure how well EVALUATOR agrees with people.

    For the labelled runs that it has scored, this prints the agreement, kappa with its interval,
    the base rates, the confusion matrix and the runs on which they differ; and for all scored
    runs, the pass rate that people would find. The exit status is 3 if no labelled run has a
    verdict.
    """
    if (path is not None or repeat) and len(db) > 1:
        raise click.UsageError(
            f"--labels and --repeat write to one database, and {len(db)} are given; give one "
            "--db FILE"
        )
    with open_store(db) as store:
        if path is not None:
            _add_labels(store, read_labels(path))
        chosen = _version(store, evaluator, version)
        labels = store.labels.of(evaluator)
        scores = store.scores.by(evaluator, chosen, {entry.trajectory_id for entry in labels})
        verdicts = store.scores.verdicts(evaluator, chosen)
        votes = None
        if repeat:
            config, base = load_config(config_path), Path(config_path).parent
            names = list(dict.fromkeys(entry.trajectory_id for entry in labels))
            with progress("judging again", " questions") as update:
                votes = repeat_verdicts(store, config, base, evaluator, names, repeat, update)
            for name, score in scores.items():
                if name in votes and score.passed is not None:
                    votes[name].append(score.passed)
    try:
        calibration = calibrate_judge(evaluator, chosen, labels, scores, verdicts, votes=votes)
    except ValueError as error:
        raise NothingEvaluated(f"{error}; use oteval judge label or --labels FILE") from None
    if as_json:
        print_json(calibration.as_dict())
    else:
        out().print(calibration_view(calibration))
    return 1 if min_kappa is not None and calibration.kappa.kappa < min_kappa else 0


def _add_labels(store: Store, labels: list[Label]) -> None:
    names = {label.trajectory_id for label in labels}
    exact = store.trajectories.of(list(names))
    id_by_name = {name: name if name in exact else _run_of(store, name) for name in names}
    unknown = [entry.trajectory_id for entry in labels if not id_by_name[entry.trajectory_id]]
    if unknown:
        runs = "a run" if len(unknown) == 1 else "runs"
        count = counted(len(unknown), "label")
        warn(f"{count} for {runs} that the database does not have, such as {unknown[0]}")
    known_labels = [
        replace(entry, trajectory_id=id_by_name[entry.trajectory_id])
        for entry in labels
        if id_by_name[entry.trajectory_id]
    ]
    store.labels.add(known_labels, time.time_ns())


def _run_of(store: Store, name: str) -> str:
    """Return the run id that starts with a prefix, or "".

    Raises:
        NotFound: Several runs match.
    """
    ids = store.trajectories.ids_with_prefix(name)
    if len(ids) > 1:
        raise NotFound(f"{name!r} is ambiguous: {listed(ids)}")
    return ids[0] if ids else ""


def _version(store: Store, evaluator: str, prefix: str | None) -> str:
    """Return the evaluator's version that has a prefix, or the newest."""
    versions = store.scores.versions(evaluator)
    if not versions:
        raise NotFound(f"no scores of {evaluator!r}; run oteval score -c oteval.yaml first")
    if prefix is None:
        return versions[0]
    matching = [version for version in versions if version.startswith(prefix)]
    if len(matching) != 1:
        raise NotFound(
            f"{evaluator!r} has no unique version {prefix!r}; its versions: {', '.join(versions)}"
        )
    return matching[0]
