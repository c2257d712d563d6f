"""People's labels out of files, and a judge's verdicts on the same runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import ConfigError, InputError
from ..model import Label
from ..pipeline import prepare
from ..store import Store
from .lines import json_lines

__all__ = ["ask_again", "read_labels"]

_WORDS = {
    "pass": True, "passed": True, "true": True, "yes": True, "good": True, "correct": True,
    "fail": False, "failed": False, "false": False, "no": False, "bad": False, "incorrect": False,
}  # fmt: skip
_KEYS = {"trajectory_id", "label", "passed", "evaluator", "person", "note"}


def read_labels(path: str | Path) -> list[Label]:
    """Return the labels of a JSON-lines file.

    Each line is an object with ``trajectory_id`` and ``label`` (pass or fail, true or false, 1 or
    0), and perhaps ``evaluator``, ``person`` and ``note``.

    Args:
        path: The file.

    Raises:
        InputError: The file cannot be read, or a line holds no label; with its number.
    """
    return [_label(value, place) for value, place in json_lines(Path(path))]


def _label(value: Any, place: str) -> Label:
    if not isinstance(value, dict):
        raise InputError(f"{place}: a label is an object with trajectory_id and label")
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        raise InputError(
            f"{place}: unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}"
        )
    name = value.get("trajectory_id")
    if not isinstance(name, str) or not name:
        raise InputError(f"{place}: trajectory_id is missing; oteval trajectories lists them")
    texts = {key: value.get(key) or "" for key in ("evaluator", "person", "note")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"{place}: {key} must be a text")
    return Label(name, _verdict(value, place), **texts)


def _verdict(value: Mapping[str, Any], place: str) -> bool:
    found = value.get("label", value.get("passed"))
    if isinstance(found, str):
        found = _WORDS.get(found.strip().lower())
    if found in (0, 1) and isinstance(found, (bool, int, float)):
        return bool(found)
    raise InputError(f"{place}: label must be pass or fail, true or false, 1 or 0")


def ask_again(
    store: Store,
    config: Config,
    base: Path,
    evaluator: str,
    trajectory_ids: Sequence[str],
    times: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[bool]]:
    """Ask an evaluator again about some runs, past its cache, and return its verdicts by run.

    Args:
        store: Where the runs are.
        config: The configuration that has the evaluator.
        base: The folder that the configuration's paths are relative to.
        evaluator: Its name.
        trajectory_ids: The runs.
        times: How often each.
        on_progress: Called with the questions asked and to ask.

    Raises:
        ConfigError: The configuration has no such evaluator.
    """
    rules = [rule for rule in config.evaluators if rule.name == evaluator]
    if not rules:
        known = ", ".join(rule.name for rule in config.evaluators)
        raise ConfigError(f"no evaluator is called {evaluator!r}; there are {known}")
    only = config.model_copy(update={"evaluators": rules, "gates": []})
    votes: dict[str, list[bool]] = defaultdict(list)
    runs = store.trajectories.of(trajectory_ids)
    done, total = 0, len(runs) * times
    for _ in range(times):
        (prepared,) = prepare(only, store, base, again=True)
        try:
            for name, trajectory in runs.items():
                reference, problem = prepared.references.of(trajectory)
                found = prepared.scorer.score(trajectory, reference, problem, 0)
                if found.passed is not None:
                    votes[name].append(found.passed)
                done += 1
                if on_progress:
                    on_progress(done, total)
        finally:
            prepared.close()
    return dict(votes)
