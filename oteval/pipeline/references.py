"""Where an evaluator's references come from: a file, the store, or a dataset by case."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..config import DatasetReference, StoredReference
from ..errors import ConfigError, InputError
from ..evaluate import to_messages
from ..model import Reference, Trajectory
from ..store import Store

__all__ = ["References", "read_messages", "references_of"]


class References:
    """Where an evaluator's reference for a trajectory comes from.

    Attributes:
        fingerprint: A hash of all of them, part of the evaluator's version.
    """

    fingerprint = ""

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        """Return the reference, or None and why there is none though there should be."""
        del trajectory  # nothing was asked for, so nothing is missing
        return None, ""


class _One(References):
    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.fingerprint = reference.fingerprint

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:  # noqa: ARG002
        return self.reference, ""


class _Dataset(References):
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


def references_of(
    source: str | StoredReference | DatasetReference | None, store: Store, base: Path
) -> References:
    """Return where the references of an evaluator come from.

    Args:
        source: What the configuration says of them.
        store: Where references by name or trajectory are.
        base: The folder that paths are relative to.

    Raises:
        ConfigError: A file cannot be read.
        NotFound: The store has no such reference.
    """
    if source is None:
        return References()
    if isinstance(source, str):
        return _One(read_messages(base / source))
    if isinstance(source, DatasetReference):
        return _Dataset(base / source.dataset, source.key)
    if source.name is not None:
        return _One(store.references.get(source.name))
    assert source.trajectory is not None
    found = store.trajectories.get(source.trajectory)
    return _One(Reference(found.id, found.own_messages, f"trajectory {found.id}"))
