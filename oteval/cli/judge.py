"""``oteval judge``: people's labels, and how far a judge agrees with them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from ..config import DEFAULT_PATH, load_config
from ..errors import NotFound, NothingEvaluated
from ..experiments.calibration import calibrate as calibrate_judge
from ..experiments.labels import read_labels, repeat_verdicts
from ..model import Label
from ..show.calibration import calibration_view
from ..store import Store
from ..text import counted, listed
from .common import db_option, json_option, open_store, out, print_json, progress, warn

__all__ = ["judge"]


@click.group()
def judge() -> None:
    """Hold judges against what people say."""


@judge.command()
@click.argument("trajectory")
@click.argument("verdict", type=click.Choice(["pass", "fail"]))
@db_option
@click.option("--evaluator", default="", help="The evaluator it is for; any, when left out.")
@click.option("--person", default="", help="Who says so.")
@click.option("--note", default="", help="Why.")
def label(trajectory: str, verdict: str, db: str, evaluator: str, person: str, note: str) -> int:
    """Label a run: whether it passes for a person."""
    with open_store(db) as store:
        found = store.trajectories.get(trajectory)
        given = Label(found.id, verdict == "pass", evaluator, person, note)
        store.labels.add([given], time.time_ns())
    warn(f"{found.id} labelled {verdict}")
    return 0


@judge.command()
@click.argument("evaluator")
@db_option
@click.option(
    "--labels",
    "path",
    type=click.Path(dir_okay=False),
    help="A JSON-lines file of {trajectory_id, label, evaluator?, person?, note?}; its labels are "
    "kept in the database.",
)
@click.option("--version", help="The evaluator's version; the newest when left out.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    help="Ask the judge this often again about the labelled runs, for its self-consistency.",
)
@click.option(
    "-c", "--config", "config_path", default=DEFAULT_PATH, show_default=True, help="For --repeat."
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999),
    default=0.95,
    show_default=True,
    help="Of the intervals.",
)
@click.option("--min-kappa", type=float, help="Exit 1 when kappa is below this.")
@json_option
def calibrate(
    evaluator: str,
    db: str,
    path: str | None,
    version: str | None,
    repeat: int | None,
    config_path: str,
    confidence: float,
    min_kappa: float | None,
    as_json: bool,
) -> int:
    """Say how far EVALUATOR agrees with people.

    Of the labelled runs that it has scored: agreement, kappa with its interval and the base rates,
    the confusion matrix and where they differ; and the pass rate that people would find over all
    scored runs. Exit status 3 when no labelled run has a verdict.
    """
    with open_store(db) as store:
        if path is not None:
            _keep(store, read_labels(path))
        chosen = _version(store, evaluator, version)
        labels = store.labels.of(evaluator)
        scores = store.scores.by(evaluator, chosen)
        votes = None
        if repeat:
            config, base = load_config(config_path), Path(config_path).parent
            names = list(dict.fromkeys(one.trajectory_id for one in labels))
            with progress("asking again", " questions") as update:
                votes = repeat_verdicts(store, config, base, evaluator, names, repeat, update)
            for name, score in scores.items():
                if name in votes and score.passed is not None:
                    votes[name].append(score.passed)
    try:
        found = calibrate_judge(
            evaluator, chosen, labels, scores, confidence=confidence, votes=votes
        )
    except ValueError as error:
        raise NothingEvaluated(f"{error}; oteval judge label, or --labels FILE") from None
    if as_json:
        print_json(found.as_dict())
    else:
        out().print(calibration_view(found))
    return 1 if min_kappa is not None and found.kappa.kappa < min_kappa else 0


def _keep(store: Store, labels: list[Label]) -> None:
    names = {label.trajectory_id for label in labels}
    exact = store.trajectories.of(list(names))
    known = {name: name if name in exact else _run_of(store, name) for name in names}
    unknown = [one.trajectory_id for one in labels if not known[one.trajectory_id]]
    if unknown:
        verb = "is of a run" if len(unknown) == 1 else "are of runs"
        count = counted(len(unknown), "label")
        warn(f"{count} {verb} not stored here, such as {unknown[0]}")
    kept = [
        replace(one, trajectory_id=known[one.trajectory_id])
        for one in labels
        if known[one.trajectory_id]
    ]
    store.labels.add(kept, time.time_ns())


def _run_of(store: Store, name: str) -> str:
    """Return the id of the run whose id begins so, or "".

    Raises:
        NotFound: Several do.
    """
    found = store.trajectories.beginning(name)
    if len(found) > 1:
        raise NotFound(f"{name!r} means several trajectories: {listed(found)}")
    return found[0] if found else ""


def _version(store: Store, evaluator: str, wanted: str | None) -> str:
    """Return the version of the evaluator to look at."""
    versions = store.scores.versions(evaluator)
    if not versions:
        raise NotFound(f"no scores of {evaluator!r}; oteval score -c oteval.yaml gives them")
    if wanted is None:
        return versions[0]
    found = [version for version in versions if version.startswith(wanted)]
    if len(found) != 1:
        raise NotFound(
            f"no one version {wanted!r} of {evaluator!r}; there are {', '.join(versions)}"
        )
    return found[0]
