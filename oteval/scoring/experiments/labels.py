"""People's labels from files, and repeated verdicts of a judge on the same runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import ConfigError, InputError
from ...model import Label
from ...store import Store
from ..config import Config
from ..prepared import prepare
from .datasets import read_json_lines

__all__ = ["read_labels", "repeat_verdicts"]

_WORDS = {
    "pass": True, "passed": True, "true": True, "yes": True, "good": True, "correct": True,
    "fail": False, "failed": False, "false": False, "no": False, "bad": False, "incorrect": False,
}  # fmt: skip
_KEYS = {"trajectory_id", "label", "passed", "evaluator", "person", "note", "score"}


def read_labels(path: str | Path) -> list[Label]:
    """Read labels from a JSON-lines file.

    Each line is an object with ``trajectory_id`` and ``label`` (pass or fail, true or false, 1 or
    0), and optionally ``evaluator``, ``person``, ``note`` and ``score``.

    Args:
        path: The file.

    Raises:
        InputError: The file cannot be read, or a line is not a label.
    """
    return [_label(value, source) for value, source in read_json_lines(Path(path))]


def _label(value: Any, source: str) -> Label:
    if not isinstance(value, dict):
        raise InputError(f"{source}: a label must be an object with trajectory_id and label")
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        raise InputError(
            f"{source}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(_KEYS))}"
        )
    name = value.get("trajectory_id")
    if not isinstance(name, str) or not name:
        raise InputError(f"{source}: trajectory_id is missing; oteval trajectories lists them")
    texts = {key: value.get(key) or "" for key in ("evaluator", "person", "note")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{source}: {key} must be a string")
    score = value.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
        raise InputError(f"{source}: score must be a number")
    return Label(
        name,
        _verdict(value, source),
        texts["evaluator"],
        texts["person"],
        texts["note"],
        score=score,
    )


def _verdict(value: Mapping[str, Any], source: str) -> bool:
    verdict = value.get("label", value.get("passed"))
    if isinstance(verdict, str):
        verdict = _WORDS.get(verdict.strip().lower())
    if verdict in (0, 1) and isinstance(verdict, (bool, int, float)):
        return bool(verdict)
    raise InputError(f"{source}: label must be pass or fail, true or false, 1 or 0")


def repeat_verdicts(
    store: Store,
    config: Config,
    base: Path,
    evaluator: str,
    trajectory_ids: Sequence[str],
    times: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[bool]]:
    """Evaluate runs several times, ignoring cached verdicts, and return the verdicts by run.

    Args:
        store: The store with the runs.
        config: The configuration with the evaluator.
        base: Base directory for relative paths in the configuration.
        evaluator: The evaluator's name.
        trajectory_ids: The runs.
        times: How often to evaluate each run.
        on_progress: Called with the number of evaluations done, and of all.

    Raises:
        ConfigError: The configuration has no such evaluator.
    """
    rules = [rule for rule in config.evaluators if rule.name == evaluator]
    if not rules:
        names = ", ".join(rule.name for rule in config.evaluators)
        raise ConfigError(f"no evaluator is called {evaluator!r}; the configuration has {names}")
    only = config.model_copy(update={"evaluators": rules, "gates": []})
    votes: dict[str, list[bool]] = defaultdict(list)
    runs = store.trajectories.of(trajectory_ids)
    done, total = 0, len(runs) * times
    for _ in range(times):
        (prepared,) = prepare(only, store, base, again=True)
        try:
            for name, trajectory in runs.items():
                reference, problem = prepared.references.of(trajectory)
                score = prepared.scorer.score(trajectory, reference, problem, 0)
                if score.passed is not None:
                    votes[name].append(score.passed)
                done += 1
                if on_progress:
                    on_progress(done, total)
        finally:
            prepared.close()
    return dict(votes)
