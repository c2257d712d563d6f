"""The verdicts of proposed evaluators on stored runs, and the gates that these runs hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...base.files import make_folder, write_private
from ...base.jsontext import dumps
from ...evaluators import Scorer, Tally, pass_rate
from ...model import Trajectory
from ..config import parse_config
from ..prepared import PreparedEvaluator
from ..references import references_of
from .learned_rules import LEARNED, ReferenceSource
from .proposal import Counts, Proposal

__all__ = ["gate_proposals", "with_counts", "write_files"]

_FEWEST = 5
_LEAST_RATE = 0.5
_LONGEST_REASON = 160


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write files by their paths in a folder."""
    for name, text in files.items():
        path = folder / name
        make_folder(path.parent)
        write_private(path, text)


def with_counts(
    proposals: Sequence[Proposal],
    files: Mapping[str, str],
    runs: Iterable[Trajectory],
    source: ReferenceSource | None = None,
) -> list[Proposal]:
    """Proposals of evaluators with their verdicts on runs.

    Args:
        proposals: The proposals, also those that would be written as comments.
        files: The references that they name.
        runs: The runs.
        source: References that exist already, for the proposals that name them.
    """
    if not proposals:
        return []
    evaluators = _prepared(proposals, files, source)
    counts = [Counts(Tally(proposal.name)) for proposal in proposals]
    for run in runs:
        for evaluator, counted in zip(evaluators, counts, strict=True):
            if evaluator.scorer.wants(run, ""):
                score = evaluator.score(run, 0)
                counted.tally.add(score)
                if score.passed is False and not counted.failing_run:
                    counted.failing_run = run.id
                    counted.failure = " ".join(score.comment.split())[:_LONGEST_REASON]
    return [
        replace(proposal, counts=counted)
        for proposal, counted in zip(proposals, counts, strict=True)
    ]


def _prepared(
    proposals: Sequence[Proposal], files: Mapping[str, str], source: ReferenceSource | None
) -> list[PreparedEvaluator]:
    """The evaluators of entries, with references that are not written yet."""
    entries = [dict(proposal.entry) for proposal in proposals]
    config = parse_config(dumps({"evaluators": entries}), "the proposals")
    evaluators = []
    with TemporaryDirectory(prefix="oteval-") as folder:
        write_files(files, Path(folder))
        for entry, settings in zip(entries, config.evaluators, strict=True):
            if source is not None and entry.get("reference") == source.entry:
                references = source.references
            else:
                references = references_of(settings, None, Path(folder))
            scorer = Scorer(
                settings.name,
                "",
                settings.evaluator,
                where=settings.where.selection(),
                scope=settings.scope,
            )
            evaluators.append(PreparedEvaluator(scorer, references))
    return evaluators


def gate_proposals(proposals: Sequence[Proposal]) -> Iterator[Proposal]:
    """Yield gates that the stored runs hold: the low end of the interval of each pass rate."""
    for proposal in proposals:
        is_renewed = proposal.is_learned and proposal.name != LEARNED
        if proposal.counts is None or not proposal.is_active or is_renewed:
            continue
        tally = proposal.counts.tally
        rate = pass_rate(tally.passed, tally.failed, tally.errors)
        if rate.value is None or tally.evaluated < _FEWEST or rate.value < _LEAST_RATE:
            continue
        least = math.floor(rate.low * 100) / 100
        total = tally.passed + tally.failed + tally.errors
        reason = (
            f"{tally.passed:,} of {total:,} pass: {rate.value:.3f} (95% interval {rate.low:.3f} to "
            f"{rate.high:.3f}); the gate is its low end."
        )
        entry = {"evaluator": proposal.name, "min_pass_rate": least}
        yield Proposal(proposal.name, entry, (reason,), is_gate=True)
