"""References that files of sessions contain: the actions that a task asks for.

A session of a benchmark may have its task's own calls beside its messages, as ``reference``:
``[{"name": ..., "arguments": {...}}]``. Results of tau2-bench have them in ``tasks``.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...base.jsontext import canonical, dumps, loads
from ...base.text import counted
from ..config import parse_config
from ..references import references_of
from .evidence import is_case_name
from .learned_rules import ReferenceSource
from .run_verdicts import write_files

if TYPE_CHECKING:
    from ...store import Store

__all__ = ["recorded_references", "reference_source"]

_FILE = "references/tasks.jsonl"
_LARGEST = 64 << 20  # bytes of a line or a document
_SESSION = "id"
_MARKS = (b'"reference"', b'"simulations"')


def recorded_references(paths: Iterable[str]) -> tuple[ReferenceSource | None, str]:
    """The references in files of sessions, and a sentence about them; None and "" without any.

    Cases are named by the attribute of a session that is named like ``task_id``. If sessions of
    one case have different references, they are named by the session's id.

    Args:
        paths: The files and folders.
    """
    by_key: dict[str, dict[str, list[Any]]] = {}
    conflicts: set[str] = set()
    for session, calls in _sessions(paths):
        keys = [name for name in session if is_case_name(name)][:1]
        for key in (*keys, _SESSION):
            name = session.get(key)
            if isinstance(name, (str, int)) and str(name):
                cases = by_key.setdefault(key, {})
                first = cases.setdefault(str(name), calls)
                if canonical(first) != canonical(calls):
                    conflicts.add(key)
    key = next((key for key in by_key if key not in conflicts and key != _SESSION), "")
    if not key and _SESSION in by_key and _SESSION not in conflicts:
        key = _SESSION
    if not key:
        return None, ""
    cases = by_key[key]
    lines = [
        dumps({key: name, "messages": [{"role": "assistant", "tool_calls": calls}]})
        for name, calls in sorted(cases.items())
    ]
    files = {_FILE: "\n".join(lines) + "\n"}
    with TemporaryDirectory(prefix="oteval-") as folder:
        write_files(files, Path(folder))
        source = reference_source({"dataset": _FILE, "key": key}, Path(folder), files=files)
    return source, f"References: {counted(len(cases), 'task')} in the files, by {key}."


def reference_source(
    entry: Mapping[str, Any],
    base: Path,
    store: Store | None = None,
    *,
    files: Mapping[str, str] | None = None,
) -> ReferenceSource:
    """References of cases in a dataset.

    Args:
        entry: The value of ``reference`` in oteval.yaml.
        base: The folder that the dataset's path is relative to.
        store: The store with references by name or trajectory; None without any.
        files: The content of files that are not written beside oteval.yaml yet, by their paths.
    """
    match = {"name": "reference", "type": "trajectory_match", "reference": dict(entry)}
    settings = parse_config(dumps({"evaluators": [match]}), "the references").evaluators[0]
    return ReferenceSource(dict(entry), references_of(settings, store, base), files or {})


def _sessions(paths: Iterable[str]) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Yield sessions or tasks with the calls of their references."""
    for path in map(Path, paths):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and any(part in file.name for part in (".json", ".ndjson")):
                for document in _documents(file):
                    yield from _references_in(document)


def _documents(path: Path) -> Iterator[Any]:
    """Yield the JSON lines of a file, or its only document, if they may contain references.

    Whatever cannot be read is skipped: loading the file has reported it.
    """
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_gzip else path.open("rb") as stream:
            first = stream.readline(_LARGEST)
            if first.strip() in (b"{", b"["):  # a document of several lines
                first += stream.read(_LARGEST)
            line = first
            while line:
                if any(mark in line for mark in _MARKS):
                    yield loads(line)
                line = stream.readline(_LARGEST)
    except (OSError, EOFError, ValueError):
        return


def _references_in(document: Any) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    if isinstance(document, list):
        for item in document:
            yield from _references_in(item)
    if not isinstance(document, Mapping):
        return
    if (calls := _calls(document.get("reference"))) is not None:
        yield document, calls
    for task in document.get("tasks") or () if "simulations" in document else ():
        criteria = task.get("evaluation_criteria") if isinstance(task, Mapping) else None
        actions = criteria.get("actions") if isinstance(criteria, Mapping) else None
        if (calls := _calls(actions)) is not None:
            yield {"task_id": task.get("id")}, calls


def _calls(actions: Any) -> list[Any] | None:
    """The calls of a list of actions; None if it is not one."""
    if not isinstance(actions, list):
        return None
    calls = []
    for action in actions:
        name = action.get("name") if isinstance(action, Mapping) else None
        if not isinstance(name, str) or not isinstance(action.get("arguments"), Mapping):
            return None
        if action.get("requestor") != "user":
            calls.append({"name": name, "args": dict(action["arguments"])})
    return calls
