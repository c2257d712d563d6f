"""The rule that agrees best with labels, and its agreement with labels that it was not chosen by.

A **rule** is one evaluator, or a conjunction of up to three. A run passes if all of them pass,
fails if one fails, and is otherwise not evaluated, which agrees with no label. Of all candidates
whose agreement differs from the best only by chance (sign test), the most natural one is chosen
(`rule_candidates`).

The agreement is measured by cross-validation. The runs of a case are in one fold, so a rule is
never chosen by a run of the case that it is measured on. Without references, the good runs of
a case are the references of its other runs; no run is compared with itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.jsontext import dumps
from ...base.text import counted
from ...evaluators import Interval, Scorer, clopper_pearson, mean_interval, sign_test, to_messages
from ...model import Reference, Trajectory
from ..references import References
from .evidence import Evidence, RunFacts
from .proposal import Proposal
from .references_of_runs import MatchForm, messages_of, reference_lines, without_failed_calls
from .rule_candidates import RuleCandidate, rule_candidates

__all__ = ["FewLabels", "LabelAgreement", "LearnedRule", "ReferenceSource", "learn_rule"]

FEWEST_LABELS = 8
FEWEST_OF_A_KIND = 2
MOST_LABELS = 500
_FOLDS = 10
_MOST_PARTS = 3
_MOST_ALTERNATIVES, _MOST_GOOD = 4, 20  # references of a case, runs that they are chosen from
# Two rules differ by more than chance if the two-sided sign test of their agreement is below this:
# from 4 labels on which only one of them agrees, none the other way.
_CHANCE = 0.2
LEARNED = "learned"
"""The name of the first evaluator of the rule; it stays when the rule is renewed."""

Verdict = bool | None


class FewLabels(Exception):
    """There are too few labels to choose a rule by; the text has the numbers."""


@dataclass(frozen=True)
class ReferenceSource:
    """References of cases that exist already.

    Attributes:
        entry: The value of ``reference`` in oteval.yaml.
        references: The references.
        files: The content of the files that the entry names and that are not written yet, by their
            paths beside oteval.yaml.
    """

    entry: Any
    references: References
    files: Mapping[str, str] = field(default_factory=dict)


class LabelAgreement(NamedTuple):
    """How verdicts agree with labels of runs that the rule was not chosen by.

    Attributes:
        good_passed: Good runs that pass.
        bad_passed: Bad runs that pass.
        good_failed: Good runs that fail.
        bad_failed: Bad runs that fail.
        not_evaluated: Runs without a verdict; they do not agree.
        interval: The 95% interval of the share that agrees.
        constant: The share that agrees with the same verdict for all runs.
        folds: The number of folds.
        cases: The number of cases.
        chosen: The number of folds whose other runs give the same rule as all runs.
    """

    good_passed: int
    bad_passed: int
    good_failed: int
    bad_failed: int
    not_evaluated: int
    interval: Interval
    constant: float
    folds: int
    cases: int
    chosen: int

    @property
    def total(self) -> int:
        """The number of labelled runs."""
        return sum(self[:5])

    @property
    def agreed(self) -> int:
        """The number of labelled runs on which verdict and label agree."""
        return self.good_passed + self.bad_failed

    @property
    def share(self) -> float:
        """The share of the labelled runs on which they agree."""
        return self.agreed / self.total

    @property
    def evaluated_share(self) -> float | None:
        """The share of the runs with a verdict on which they agree; None without any."""
        evaluated = self.total - self.not_evaluated
        return self.agreed / evaluated if evaluated else None


@dataclass(frozen=True)
class LearnedRule:
    """The rule that agrees best with the labels.

    Attributes:
        parts: Its evaluators; a run is good if all pass.
        agreement: Its agreement with labels that it was not chosen by.
        in_sample: Its agreement with the labels that it was chosen by.
        source: The references that exist already, or None if they are of good runs.
        key: The attribute that names cases.
        accepted: The good runs that are references, by case.
    """

    parts: tuple[RuleCandidate, ...]
    agreement: LabelAgreement
    in_sample: float
    source: ReferenceSource | None
    key: str
    accepted: Mapping[str, Sequence[RunFacts]]

    @property
    def is_useful(self) -> bool:
        """Whether it agrees with more labels than the same verdict for all runs."""
        return self.agreement.share > self.agreement.constant

    @property
    def summary(self) -> str:
        """The figure, with all that is needed to trust it or not."""
        agreement = self.agreement
        low, high = agreement.interval
        evaluated = agreement.evaluated_share
        of_others = (
            f" (it agrees with {evaluated:.3f} of the others)"
            if agreement.not_evaluated and evaluated is not None
            else ""
        )
        text = (
            f"Agrees with {agreement.agreed:,} of {agreement.total:,} labels that it was not "
            f"chosen by: {agreement.share:.3f} (95% interval {low:.3f} to {high:.3f}), "
            f"cross-validated in {agreement.folds} folds over {counted(agreement.cases, 'case')}. "
            f"Good runs: {agreement.good_passed:,} pass, {agreement.good_failed:,} fail; bad runs: "
            f"{agreement.bad_passed:,} pass, {agreement.bad_failed:,} fail; "
            f"{agreement.not_evaluated:,} not evaluated{of_others}. The same verdict for all runs "
            f"would agree with {agreement.constant:.3f}."
        )
        if self.is_useful:
            return text
        return f"No rule agrees with the labels better than chance. The best one: {text}"

    def proposals(self) -> list[Proposal]:
        """The entries of its parts; the first one has the figure."""
        rows = []
        for at, part in enumerate(self.parts):
            name = f"{LEARNED}-{at + 1}" if at else LEARNED
            entry = {"name": name, **part.entry}
            if part.needs_reference:
                entry["reference"] = (
                    self.source.entry
                    if self.source
                    else {"dataset": part.reference_file, "key": self.key}
                )
            reasons = [self.summary] if at == 0 else []
            if len(self.parts) > 1:
                reasons.append(f"Part {at + 1} of {len(self.parts)}: a run is good if all pass.")
            rows.append(Proposal(name, entry, tuple(reasons), is_learned=True))
        return rows

    def files(self) -> dict[str, str]:
        """The content of the files that the entries refer to, by their paths."""
        files: dict[str, str] = {}
        for part in self.parts:
            if part.needs_reference and self.source is not None:
                files |= self.source.files
            elif part.needs_reference:
                ways = {
                    case: _distinct(runs, shows_effects=part.shows_effects)
                    for case, runs in self.accepted.items()
                }
                files[part.reference_file] = reference_lines(self.key, ways, is_strict=True)
            if part.fixed is not None:
                files[str(part.entry["reference"])] = dumps(list(part.fixed.messages)) + "\n"
        return files

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval learn --json`` prints."""
        agreement = self.agreement
        evaluated = agreement.evaluated_share
        return {
            "kind": "rule",
            "agreement": round(agreement.share, 6),
            "interval": [round(value, 6) for value in agreement.interval],
            "agreement_evaluated": evaluated if evaluated is None else round(evaluated, 6),
            "constant": round(agreement.constant, 6),
            "in_sample": round(self.in_sample, 6),
            "labels": agreement.total,
            "cases": agreement.cases,
            "folds": agreement.folds,
            "chosen_in_folds": agreement.chosen,
            "good_passed": agreement.good_passed,
            "good_failed": agreement.good_failed,
            "bad_passed": agreement.bad_passed,
            "bad_failed": agreement.bad_failed,
            "not_evaluated": agreement.not_evaluated,
            "useful": self.is_useful,
            "evaluators": [dict(proposal.entry) for proposal in self.proposals()],
        }


def learn_rule(
    evidence: Evidence,
    read: Callable[[], Iterable[Trajectory]],
    source: ReferenceSource | None = None,
) -> LearnedRule:
    """Choose the rule that agrees best with the labels.

    Args:
        evidence: The facts about the runs, with their labels.
        read: Reads the runs.
        source: The references of cases; None to take the good runs of a case.

    Raises:
        FewLabels: There are too few labels, or too few good or bad runs among them.
    """
    runs = [run for run in evidence.runs if run.label is not None][-MOST_LABELS:]
    _require_labels(runs)
    cases = [run.case(evidence.key) or run.id for run in runs]
    if len({*cases}) < FEWEST_OF_A_KIND:
        raise FewLabels("All labelled runs are about the same case, so no rule can be tested.")
    accepted = {} if source else _accepted_runs(evidence, runs)
    if source is not None:
        evidence.offered.update(dict.fromkeys(_referenced_tools(source.references), 0))
    candidates = rule_candidates(evidence, runs, has_references=bool(source or accepted))
    verdicts = _verdicts(candidates, runs, read, source, accepted, evidence.key)
    labels = [bool(run.label) for run in runs]
    everything = range(len(runs))
    choose = _Choice(verdicts, labels)
    parts = choose.rule(everything)
    predictions: list[Verdict] = [None] * len(runs)
    folds = _folds(cases)
    same = 0
    for fold in folds:
        other_runs = [at for at in everything if at not in fold]
        fold_rule = choose.rule(other_runs)
        same += fold_rule == parts
        for at in fold:
            predictions[at] = choose.verdict(fold_rule, at)
    agreement = _agreement(predictions, labels, cases, len(folds), same)
    return LearnedRule(
        parts=tuple(candidates[part] for part in parts),
        agreement=agreement,
        in_sample=sum(choose.agrees(parts, at) for at in everything) / len(runs),
        source=source,
        key=evidence.key,
        accepted=accepted,
    )


def _referenced_tools(references: References) -> set[str]:
    """The tools that references call, and that no run may have called yet."""
    messages = [
        to_messages(list(reference.messages), "reference") for reference in references.possible
    ]
    return {call.name for turn in messages for message in turn for call in message.tool_calls}


def _require_labels(runs: Sequence[RunFacts]) -> None:
    good = sum(bool(run.label) for run in runs)
    bad = len(runs) - good
    if len(runs) < FEWEST_LABELS or min(good, bad) < FEWEST_OF_A_KIND:
        raise FewLabels(
            f"{counted(good, 'run')} labelled good and {bad:,} bad; a rule needs {FEWEST_LABELS} "
            f"labels, {FEWEST_OF_A_KIND} of each kind (oteval judge label RUN pass|fail)."
        )


def _accepted_runs(evidence: Evidence, runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """The newest good runs of each case; none if each case has only one labelled run."""
    by_case = evidence.by_case(runs)
    if all(len(case_runs) < 2 for case_runs in by_case.values()):
        return {}
    accepted = {}
    for case, case_runs in sorted(by_case.items()):
        good = [run for run in case_runs if run.label and run.is_comparable]
        if good:
            accepted[case] = good[-_MOST_GOOD:]
    return accepted


def _distinct(runs: Sequence[RunFacts], *, shows_effects: bool) -> list[RunFacts]:
    """Runs as references, the newest one of each set of calls."""
    form = MatchForm("unordered", "all")
    references = [without_failed_calls(run) if shows_effects else run for run in runs]
    by_signature = {form.signature(run, ()): run for run in references}
    return list(by_signature.values())[-_MOST_ALTERNATIVES:]


def _verdicts(
    candidates: Sequence[RuleCandidate],
    runs: Sequence[RunFacts],
    read: Callable[[], Iterable[Trajectory]],
    source: ReferenceSource | None,
    accepted: Mapping[str, Sequence[RunFacts]],
    key: str,
) -> list[list[Verdict]]:
    """The verdict of each candidate on each run."""
    scorers = [Scorer("candidate", "", candidate.evaluator) for candidate in candidates]
    index_by_id = {run.id: at for at, run in enumerate(runs)}
    verdicts: list[list[Verdict]] = [[None] * len(runs) for _ in candidates]
    for run in read():
        at = index_by_id.get(run.id)
        if at is None:
            continue
        if source is not None:
            by_effects = dict.fromkeys((True, False), source.references.of(run))
        else:
            good = [other for other in accepted.get(runs[at].case(key), ()) if other.id != run.id]
            by_effects = {
                shows_effects: _reference_of(_distinct(good, shows_effects=shows_effects))
                for shows_effects in (True, False)
            }
        for candidate, scorer, row in zip(candidates, scorers, verdicts, strict=True):
            reference, problem = by_effects[candidate.shows_effects]
            if candidate.needs_reference:
                score = scorer.score(run, reference, problem, 0)
            else:
                score = scorer.score(run, candidate.fixed, "", 0)
            row[at] = score.passed
    return verdicts


def _reference_of(runs: Sequence[RunFacts]) -> tuple[Reference | None, str]:
    """The reference of the case of some good runs."""
    alternatives = tuple(Reference(run.id, tuple(messages_of(run, is_strict=True))) for run in runs)
    if not alternatives:
        return None, "no other run of its case is known to be good"
    if len(alternatives) == 1:
        return alternatives[0], ""
    return Reference("any", (), alternatives=alternatives), ""


class _Choice:
    """Chooses rules by their agreement with the labels of some runs.

    Args:
        verdicts: The verdicts by candidate and run.
        labels: The labels by run.
    """

    def __init__(self, verdicts: Sequence[Sequence[Verdict]], labels: Sequence[bool]) -> None:
        self._verdicts, self._labels = verdicts, labels

    def verdict(self, rule: tuple[int, ...], at: int) -> Verdict:
        """The verdict of a rule on a run."""
        parts = [self._verdicts[part][at] for part in rule]
        if False in parts:
            return False
        return None if None in parts else True

    def agrees(self, rule: tuple[int, ...], at: int) -> bool:
        """Whether the verdict of a rule on a run is the label."""
        return self.verdict(rule, at) is self._labels[at]

    def rule(self, runs: Sequence[int]) -> tuple[int, ...]:
        """The rule that agrees best with the labels of some runs.

        A part is added only for the verdicts that it corrects: a part that fails runs without a
        verdict would agree with the labels of bad runs by chance.
        """
        rule = self._preferred([(part,) for part in range(len(self._verdicts))], runs)
        while len(rule) < _MOST_PARTS:
            evaluated = [at for at in runs if self.verdict(rule, at) is not None]
            longer = [(*rule, part) for part in range(len(self._verdicts)) if part not in rule]
            best = self._preferred([rule, *longer], evaluated)
            if best == rule:
                break
            rule = best
        return rule

    def _preferred(self, rules: Sequence[tuple[int, ...]], runs: Sequence[int]) -> tuple[int, ...]:
        """The first rule that the best one does not beat by more than chance."""
        rows = [[self.agrees(rule, at) for at in runs] for rule in rules]
        best = max(rows, key=sum)
        for rule, row in zip(rules, rows, strict=True):
            wins = sum(b and not a for a, b in zip(row, best, strict=True))
            losses = sum(a and not b for a, b in zip(row, best, strict=True))
            if wins <= losses or sign_test(wins, losses) >= _CHANCE:
                return rule
        raise AssertionError("the best rule is not worse than itself")


def _folds(cases: Sequence[str]) -> list[set[int]]:
    """The runs of each fold; the runs of a case are in the same fold."""
    ordered = sorted({*cases}, key=lambda case: hashlib.blake2b(case.encode()).digest())
    fold_of = {case: at % _FOLDS for at, case in enumerate(ordered)}
    folds: dict[int, set[int]] = defaultdict(set)
    for at, case in enumerate(cases):
        folds[fold_of[case]].add(at)
    return [folds[fold] for fold in sorted(folds)]


def _agreement(
    predictions: Sequence[Verdict],
    labels: Sequence[bool],
    cases: Sequence[str],
    folds: int,
    chosen: int,
) -> LabelAgreement:
    counts = Counter(zip(predictions, labels, strict=True))
    agreed_by_case: dict[str, list[bool]] = defaultdict(list)
    for verdict, label, case in zip(predictions, labels, cases, strict=True):
        agreed_by_case[case].append(verdict is label)
    agreed = counts[True, True] + counts[False, False]
    total, good = len(labels), sum(labels)
    interval = clopper_pearson(agreed, total)
    if len(agreed_by_case) < total:
        # Runs of a case are not independent, so the cases are the sample.
        shares = [sum(values) / len(values) for values in agreed_by_case.values()]
        by_case = mean_interval(shares) or Interval(0.0, 1.0)
        share = agreed / total
        interval = Interval(min(by_case.low, share), max(by_case.high, share))
    return LabelAgreement(
        good_passed=counts[True, True],
        bad_passed=counts[True, False],
        good_failed=counts[False, True],
        bad_failed=counts[False, False],
        not_evaluated=counts[None, True] + counts[None, False],
        interval=interval,
        constant=max(good, total - good) / total,
        folds=folds,
        cases=len(agreed_by_case),
        chosen=chosen,
    )
