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
        found = store.trajectories.get(trajectory)
        given = Label(found.id, verdict == "pass", evaluator, person, note, score)
        store.labels.add([given], time.time_ns())
    warn(f"{found.id} labelled {verdict}")
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
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="The confidence level of intervals.",
)
@click.option("--min-kappa", type=float, help="Exit 1 if kappa is below this.")
@json_option
def calibrate(
    evaluator: str,
    db: tuple[str, ...],
    path: str | None,
    version: str | None,
    repeat: int | None,
    config_path: str,
    confidence: float,
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
        scores = store.scores.by(evaluator, chosen, {one.trajectory_id for one in labels})
        verdicts = store.scores.verdicts(evaluator, chosen)
        votes = None
        if repeat:
            config, base = load_config(config_path), Path(config_path).parent
            names = list(dict.fromkeys(one.trajectory_id for one in labels))
            with progress("judging again", " questions") as update:
                votes = repeat_verdicts(store, config, base, evaluator, names, repeat, update)
            for name, score in scores.items():
                if name in votes and score.passed is not None:
                    votes[name].append(score.passed)
    try:
        found = calibrate_judge(
            evaluator, chosen, labels, scores, verdicts, confidence=confidence, votes=votes
        )
    except ValueError as error:
        raise NothingEvaluated(f"{error}; use oteval judge label or --labels FILE") from None
    if as_json:
        print_json(found.as_dict())
    else:
        out().print(calibration_view(found))
    return 1 if min_kappa is not None and found.kappa.kappa < min_kappa else 0


def _add_labels(store: Store, labels: list[Label]) -> None:
    names = {label.trajectory_id for label in labels}
    exact = store.trajectories.of(list(names))
    known = {name: name if name in exact else _run_of(store, name) for name in names}
    unknown = [one.trajectory_id for one in labels if not known[one.trajectory_id]]
    if unknown:
        runs = "a run" if len(unknown) == 1 else "runs"
        count = counted(len(unknown), "label")
        warn(f"{count} for {runs} that the database does not have, such as {unknown[0]}")
    kept = [
        replace(one, trajectory_id=known[one.trajectory_id])
        for one in labels
        if known[one.trajectory_id]
    ]
    store.labels.add(kept, time.time_ns())


def _run_of(store: Store, name: str) -> str:
    """Return the id of the run whose id starts with a prefix, or "".

    Raises:
        NotFound: Several runs match.
    """
    found = store.trajectories.ids_with_prefix(name)
    if len(found) > 1:
        raise NotFound(f"{name!r} is ambiguous: {listed(found)}")
    return found[0] if found else ""


def _version(store: Store, evaluator: str, wanted: str | None) -> str:
    """Return the evaluator's version that has a prefix, or the newest."""
    versions = store.scores.versions(evaluator)
    if not versions:
        raise NotFound(f"no scores of {evaluator!r}; run oteval score -c oteval.yaml first")
    if wanted is None:
        return versions[0]
    found = [version for version in versions if version.startswith(wanted)]
    if len(found) != 1:
        raise NotFound(
            f"{evaluator!r} has no unique version {wanted!r}; its versions: {', '.join(versions)}"
        )
    return found[0]
