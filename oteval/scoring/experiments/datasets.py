"""Datasets from a JSON-lines file, a list of dicts, stored trajectories or references."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ...base.errors import InputError, NotFound
from ...base.jsontext import loads_exact
from ...evaluators import to_messages
from ...model import (
    CASE_ATTRIBUTES,
    Dataset,
    Example,
    Message,
    Trajectory,
    example_id,
    first_attribute,
)
from ...store import Store
from .outputs import json_form

__all__ = [
    "CASE_KEY",
    "dataset_from_references",
    "dataset_from_trajectories",
    "dataset_of",
    "dataset_with_run",
    "has_question",
    "inputs_of",
    "is_dataset_file",
    "make_dataset",
    "read_dataset",
    "read_json_lines",
]

# The attribute with a run's test case, as OpenTelemetry's conventions name it.
CASE_KEY = CASE_ATTRIBUTES[0]

_FIELDS = {
    "id": "id",
    CASE_KEY: "id",
    "inputs": "inputs",
    "input": "inputs",
    "reference_outputs": "reference_outputs",
    "outputs": "reference_outputs",
    "metadata": "metadata",
    "messages": "messages",
}


def dataset_of(data: Any, store: Store) -> Dataset:
    """Return data in any accepted form as a dataset.

    Args:
        data: A `Dataset`; the name of a stored one, optionally with a version (``name@version``);
            the path of a JSON-lines file; or a list of examples or dicts.
        store: The store with the named datasets.

    Raises:
        InputError: The file or a dict contains no examples.
        NotFound: The store has no dataset of that name.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Path) or (isinstance(data, str) and is_dataset_file(data)):
        return read_dataset(data)
    if isinstance(data, str):
        name, _, version = data.partition("@")
        return store.datasets.get(name, version or None)
    if isinstance(data, Iterable) and not isinstance(data, Mapping):
        return make_dataset(data)
    raise InputError(
        f"data is {type(data).__name__}; pass a list of dicts, a JSON-lines file or a dataset"
    )


def is_dataset_file(text: str) -> bool:
    """Whether a text names a file of examples, not a stored dataset."""
    return text.endswith((".jsonl", ".json", ".ndjson")) or Path(text).is_file()


def read_json_lines(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the value of each line of a file with its position, such as ``data.jsonl:3``.

    Empty lines are skipped.

    Raises:
        InputError: The file cannot be read, or a line is not JSON.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            position = f"{path}:{number}"
            try:
                yield loads_exact(line), position
            except ValueError as error:
                raise InputError(f"{position}: not valid JSON: {error}") from error


def read_dataset(path: str | Path, name: str | None = None) -> Dataset:
    """Read a dataset from a JSON-lines file with one example per line.

    A line has ``inputs`` and optionally ``reference_outputs`` (or ``outputs``), ``id`` and
    ``metadata``. A line may have ``messages``, a whole conversation, instead of the first two.

    Args:
        path: The file.
        name: The dataset's name; by default the file's name without its suffix.

    Raises:
        InputError: The file cannot be read, or a line is not an example.
    """
    path = Path(path)
    lines = list(read_json_lines(path))
    rows, positions = [row for row, _ in lines], [position for _, position in lines]
    return _dataset_of_rows(rows, positions, name or path.stem, str(path))


def make_dataset(
    rows: Iterable[Example | Mapping[str, Any]], name: str = "data", source: str = ""
) -> Dataset:
    """A dataset of examples, or of dicts with the keys of `read_dataset`.

    Raises:
        InputError: A dict is not an example, two have the same id, or no example is given.
    """
    examples = list(rows)
    return _dataset_of_rows(examples, [f"data[{at}]" for at in range(len(examples))], name, source)


def _dataset_of_rows(
    rows: Sequence[Any], positions: Sequence[str], name: str, source: str
) -> Dataset:
    examples: list[Example] = []
    positions_by_id: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for row, position in zip(rows, positions, strict=True):
        example, has_id = _example(row, position)
        if has_id:
            if example.id in positions_by_id:
                first = positions_by_id[example.id]
                raise InputError(f"{position}: id {example.id!r} is used at {first} already")
            positions_by_id[example.id] = position
        else:
            # Equal inputs, such as a question that is asked twice, are separate examples.
            counts[example.id] += 1
            if counts[example.id] > 1:
                number = f"{example.id}-{counts[example.id]}"
                example = Example(
                    number, example.inputs, example.reference_outputs, example.metadata
                )
        examples.append(example)
    if not examples:
        raise InputError(f"{source or name}: holds no examples")
    return Dataset(name, tuple(examples), source, time.time_ns())


def _example(row: Any, position: str) -> tuple[Example, bool]:
    """An example, and whether the row has an id."""
    if isinstance(row, Example):
        return row, True
    if not isinstance(row, Mapping):
        raise InputError(
            f"{position}: an example must be an object with 'inputs', not {_kind(row)}"
        )
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key not in _FIELDS:
            near = difflib.get_close_matches(str(key), list(_FIELDS), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_FIELDS)}"
            raise InputError(f"{position}: unknown key {key!r}; {hint}")
        fields[_FIELDS[key]] = json_form(value)
    if "messages" in fields:
        try:
            messages = to_messages(fields.pop("messages"), "messages")
        except InputError as error:
            raise InputError(f"{position}: {error}") from error
        fields = {**_fields_of(messages), **fields}
    if "inputs" not in fields:
        raise InputError(f"{position}: 'inputs' is missing")
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"{position}: 'metadata' must be an object, not {_kind(metadata)}")
    inputs, reference = fields["inputs"], fields.get("reference_outputs")
    name = fields.get("id")
    if name is None or name == "":
        return Example(example_id(inputs), inputs, reference, metadata), False
    return Example(str(name), inputs, reference, metadata), True


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def inputs_of(messages: Sequence[Message]) -> dict[str, Any]:
    """An agent's inputs: the messages before its first answer.

    A greeting before the first question is not an answer.
    """
    roles = [message.role for message in messages]
    first = roles.index("user") if "user" in roles else 0
    end = roles.index("assistant", first) if "assistant" in roles[first:] else len(roles)
    return {"messages": [message.as_dict() for message in messages[:end]]}


def has_question(messages: Sequence[Message]) -> bool:
    """Whether `inputs_of` has text of a user, so that runs can be paired by the text."""
    inputs = messages[: len(inputs_of(messages)["messages"])]
    return any(m.role == "user" and (m.content or "").strip() for m in inputs)


def _fields_of(messages: Sequence[Message]) -> dict[str, Any]:
    conversation = [message.as_dict() for message in messages]
    return {"inputs": inputs_of(messages), "reference_outputs": conversation}


def dataset_from_trajectories(trajectories: Iterable[Trajectory], name: str) -> Dataset:
    """A dataset of runs whose behaviour should not change.

    Each example has a run's inputs, and all its messages as reference outputs. Its id is the first
    of the attributes `CASE_ATTRIBUTES` that the run has. A run without a captured question keeps
    its own id.

    Raises:
        InputError: No run is given, or two have the same id.
    """
    rows = []
    for trajectory in trajectories:
        case = first_attribute(trajectory, CASE_ATTRIBUTES)
        if not case and not has_question(trajectory.own_messages):
            case = trajectory.id  # missing questions do not make two runs equal
        fields = _fields_of(trajectory.own_messages)
        rows.append({**fields, "id": case, "metadata": {"trajectory_id": trajectory.id}})
    return make_dataset(rows, name, source="trajectories")


def dataset_with_run(store: Store, name: str, run: Trajectory) -> Dataset | None:
    """The newest version of a dataset with a run as one more example.

    Args:
        store: The store that may have the dataset.
        name: The dataset's name; without one, the run is its first example.
        run: The run, which becomes an example as by `dataset_from_trajectories`.

    Returns:
        The dataset, not stored yet; None if the run is one of its examples already.
    """
    try:
        examples = store.datasets.get(name).examples
    except NotFound:
        examples = ()
    if any(stored.metadata.get("trajectory_id") == run.id for stored in examples):
        return None
    [example] = dataset_from_trajectories([run], name).examples
    ids = {stored.id for stored in examples}
    if example.id in ids:
        # Equal inputs, such as a question that is asked twice, are separate examples.
        new_ids = (f"{example.id}-{number}" for number in count(2))
        example = replace(example, id=next(new_id for new_id in new_ids if new_id not in ids))
    return make_dataset([*examples, example], name, "trajectories")


def dataset_from_references(store: Store, name: str, names: Sequence[str] = ()) -> Dataset:
    """A dataset of references that were stored with `oteval reference add`.

    Args:
        store: The store with the references.
        name: The dataset's name.
        names: The names of the references, which become the examples' ids; by default all.

    Raises:
        InputError: No reference is stored.
        NotFound: No reference has one of the names.
    """
    reference_names = list(names) or [row["name"] for row in store.references.list()]
    rows = []
    for reference_name in reference_names:
        messages = to_messages(list(store.references.get(reference_name).messages), "messages")
        rows.append({**_fields_of(messages), "id": reference_name})
    return make_dataset(rows, name, "references")
