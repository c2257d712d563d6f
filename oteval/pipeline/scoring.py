"""What a store holds, scored as a configuration says, and the gates over the scores."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config, DatasetReference, MatchRule, PythonRule, StoredReference
from ..errors import ConfigError, InputError, OtevalError
from ..evaluate import create_trajectory_match_evaluator, to_messages
from ..evaluate.functions import code_version, load_function
from ..evaluate.gates import GateResult, Tally, check_gate
from ..evaluate.scorer import FunctionJudge, Judge, MatchJudge, Scorer, version_of
from ..model import Reference, Score, Trajectory
from ..selection import EVERYTHING, Selection
from ..store import Store

__all__ = ["ScoreRun", "check_gates", "prepare", "read_messages", "score", "variants"]

_PAGE = 1000


class _References:
    """Where an evaluator's reference for a trajectory comes from.

    Attributes:
        fingerprint: A hash of all of them, part of the evaluator's version.
    """

    fingerprint = ""

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        """Return the reference, or None and why there is none though there should be."""
        del trajectory  # nothing was asked for, so nothing is missing
        return None, ""


class _One(_References):
    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.fingerprint = reference.fingerprint

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:  # noqa: ARG002
        return self.reference, ""


class _Dataset(_References):
    def __init__(self, path: Path, key: str) -> None:
        self.key, self.path = key, path
        self.by_case = _read_dataset(path, key)
        prints = "".join(self.by_case[case].fingerprint for case in sorted(self.by_case))
        self.fingerprint = hashlib.blake2b(prints.encode(), digest_size=8).hexdigest()

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        case = trajectory.attributes.get(self.key)
        if case is None:
            return None, f"the run has no attribute {self.key!r} that names its case"
        found = self.by_case.get(str(case))
        return found, "" if found else f"{self.path.name} has no case {case!r}"


def _read_dataset(path: Path, key: str) -> dict[str, Reference]:
    found: dict[str, Reference] = {}
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        case = _json(line, place)
        if not isinstance(case, dict) or key not in case or "messages" not in case:
            raise ConfigError(f"{place}: a case needs {key!r} and 'messages'")
        name = str(case[key])
        if name in found:
            raise ConfigError(f"{place}: case {name!r} stands there already: {found[name].source}")
        found[name] = _reference(name, case["messages"], place)
    if not found:
        raise ConfigError(f"{path}: holds no cases")
    return found


def read_messages(path: Path) -> Reference:
    """Return the reference that a JSON file of messages holds.

    Raises:
        ConfigError: The file cannot be read, or holds no messages.
    """
    return _reference(path.stem, _json(_text(path), str(path)), str(path))


def _reference(name: str, value: Any, place: str) -> Reference:
    try:
        messages = to_messages(value, "messages")
    except InputError as error:
        raise ConfigError(f"{place}: {error}") from error
    return Reference(name, tuple(messages), place)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{place}: not valid JSON: {error}") from error


@dataclass(frozen=True)
class Prepared:
    """A scorer and where its references come from."""

    scorer: Scorer
    references: _References


def prepare(config: Config, store: Store, base: Path) -> list[Prepared]:
    """Return the scorers of a configuration, their references read.

    Args:
        config: The configuration.
        store: Where references by name or trajectory are.
        base: The folder that paths of the configuration are relative to.

    Raises:
        ConfigError: A reference or function cannot be had, or an argument is wrong.
    """
    prepared = []
    for rule in config.evaluators:
        try:
            references = _references(rule.reference, store, base)
            judge, description = _judge(rule, base)
        except OtevalError as error:
            raise ConfigError(f"evaluator {rule.name!r}: {error}") from error
        described = {**description, "reference": references.fingerprint, "scope": rule.scope}
        scorer = Scorer(
            name=rule.name,
            version=version_of(described),
            judge=judge,
            where=rule.where.selection(),
            sample=rule.sample,
            scope=rule.scope,
        )
        prepared.append(Prepared(scorer, references))
    return prepared


def _references(
    source: str | StoredReference | DatasetReference | None, store: Store, base: Path
) -> _References:
    if source is None:
        return _References()
    if isinstance(source, str):
        return _One(read_messages(base / source))
    if isinstance(source, DatasetReference):
        return _Dataset(base / source.dataset, source.key)
    if source.name is not None:
        return _One(store.references.get(source.name))
    assert source.trajectory is not None
    found = store.trajectories.get(source.trajectory)
    return _One(Reference(found.id, found.own_messages, f"trajectory {found.id}"))


def _judge(rule: MatchRule | PythonRule, base: Path) -> tuple[Judge, Mapping[str, Any]]:
    """Return what judges, and the description that its version is made of."""
    if isinstance(rule, PythonRule):
        _make_importable(base)
        function = load_function(rule.call)
        timeout = None if rule.timeout is None else float(rule.timeout)
        return FunctionJudge(function, timeout), {
            "type": rule.type,
            "call": rule.call,
            "code": code_version(function),
        }
    evaluator = create_trajectory_match_evaluator(
        trajectory_match_mode=rule.mode,
        tool_args_match_mode=rule.tool_args,
        tool_args_match_overrides=rule.overrides or None,
        view=rule.view,
        effect_tools=rule.effect_tools or None,
        error_pattern=rule.error_pattern,
        score_type=rule.score_type,
        strict_order=rule.strict_order,
        missing_ok=rule.missing_ok,
    )
    description = {**evaluator.describe(), "threshold": rule.threshold}
    return MatchJudge(evaluator, rule.threshold), description


def _make_importable(folder: Path) -> None:
    """Let functions be imported that stand beside the configuration, as ``python -m`` would."""
    name = str(folder.resolve())
    if name not in sys.path:
        sys.path.insert(0, name)


@dataclass
class ScoreRun:
    """What scoring came to, filled in while it goes on.

    Attributes:
        tallies: The counts by evaluator, in the configuration's order.
        trajectories: How many trajectories were looked at.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    trajectories: int = 0

    @property
    def evaluated(self) -> int:
        """How many scores have a verdict."""
        return sum(counted.evaluated for counted in self.tallies.values())


def score(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection = EVERYTHING,
    run: ScoreRun | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Score]:
    """Score trajectories, keep the scores in the store, and yield them.

    Args:
        store: The store.
        config: What to evaluate.
        base: The folder that paths of the configuration are relative to.
        selection: Which trajectories.
        run: Counts what happens.
        on_progress: Called with the number of trajectories done.

    Raises:
        ConfigError: A reference or function cannot be had, or an argument is wrong.
    """
    prepared = prepare(config, store, base)
    run = run if run is not None else ScoreRun()
    run.tallies.update({one.scorer.name: Tally(one.scorer.name) for one in prepared})
    fresh: list[Score] = []
    try:
        for trajectory in store.trajectories.read(selection):
            run.trajectories += 1
            for one in prepared:
                if one.scorer.wants(trajectory, config.salt):
                    found = _score_one(one, trajectory)
                    run.tallies[found.evaluator].add(found)
                    fresh.append(found)
                    yield found
            if len(fresh) >= _PAGE:
                store.scores.write(fresh)
                fresh = []
            if on_progress:
                on_progress(run.trajectories)
    finally:
        # What came before Ctrl-C is kept.
        store.scores.write(fresh)


def _score_one(one: Prepared, trajectory: Trajectory) -> Score:
    reference, problem = one.references.of(trajectory)
    return one.scorer.score(trajectory, reference, problem, time.time_ns())


def check_gates(config: Config, run: ScoreRun) -> list[GateResult]:
    """Return whether each gate of a configuration held."""
    return [
        check_gate(
            run.tallies.get(gate.evaluator, Tally(gate.evaluator)),
            min_pass_rate=gate.min_pass_rate,
            min_score=gate.min_score,
            min_evaluated=gate.min_evaluated,
            max_errors=gate.max_errors,
        )
        for gate in config.gates
    ]


def variants(
    store: Store, selection: Selection = EVERYTHING, evaluator: str | None = None
) -> list[dict[str, Any]]:
    """Return the tool sequences that runs took, most frequent first.

    Args:
        store: The store.
        selection: Which trajectories.
        evaluator: The evaluator whose pass rate to add; all of them when None.

    Returns:
        A row per sequence: ``tools``, ``count``, ``share``, ``errors`` (runs with a failed call),
        ``passed`` and ``judged`` (the newest score of each evaluator), ``example`` (an id).
    """
    newest: dict[str, dict[str, bool | None]] = {}
    for found in store.scores.read(selection):
        if evaluator in (None, found.evaluator):
            newest.setdefault(found.trajectory_id, {})[found.evaluator] = found.passed
    counts: Counter[tuple[str, ...]] = Counter()
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for trajectory in store.trajectories.read(selection):
        own = trajectory.own_messages
        tools = tuple(call.name for message in own for call in message.tool_calls)
        row = rows.setdefault(
            tools,
            {"tools": list(tools), "errors": 0, "passed": 0, "judged": 0, "example": trajectory.id},
        )
        counts[tools] += 1
        outcomes = newest.get(trajectory.id, {}).values()
        verdicts = [passed for passed in outcomes if passed is not None]
        row["errors"] += any(message.is_error for message in own)
        row["passed"] += sum(verdicts)
        row["judged"] += len(verdicts)
    total = sum(counts.values())
    return [
        {**rows[tools], "count": count, "share": count / total}
        for tools, count in counts.most_common()
    ]
