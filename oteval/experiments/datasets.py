"""Datasets: out of a JSON-lines file, a list of dicts, stored trajectories or references."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..evaluators import to_messages
from ..model import Dataset, Example, Message, Trajectory, example_id
from ..store import Store
from .lines import json_lines
from .plain import plain

__all__ = [
    "CASE_KEY",
    "asked",
    "dataset_from_references",
    "dataset_from_trajectories",
    "dataset_of",
    "is_question_known",
    "make_dataset",
    "read_dataset",
]

# The attribute that names a run's case, as OpenTelemetry has it.
CASE_KEY = "test.case.id"

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
    """Return the dataset that is meant.

    Args:
        data: A `Dataset`; the name of a stored one, perhaps with a version (``name@version``); the
            path of a JSON-lines file; or a list of examples or dicts.
        store: Where datasets by name are.

    Raises:
        InputError: The file or a dict holds no examples.
        NotFound: The store has no dataset of the name.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Path) or (isinstance(data, str) and _is_path(data)):
        return read_dataset(data)
    if isinstance(data, str):
        name, _, version = data.partition("@")
        return store.datasets.get(name, version or None)
    if isinstance(data, Iterable) and not isinstance(data, Mapping):
        return make_dataset(data)
    raise InputError(
        f"data is {type(data).__name__}: give a list of dicts, a JSON-lines file or a dataset"
    )


def _is_path(text: str) -> bool:
    return text.endswith((".jsonl", ".json", ".ndjson")) or Path(text).is_file()


def read_dataset(path: str | Path, name: str | None = None) -> Dataset:
    """Return the dataset that a JSON-lines file holds, one example a line.

    A line has ``inputs`` and, as far as they are known, ``reference_outputs`` (or ``outputs``),
    ``id`` and ``metadata``; or ``messages`` in place of the first two: a whole conversation.

    Args:
        path: The file.
        name: The dataset's name; by default the file's without its ending.

    Raises:
        InputError: It cannot be read, or a line is no example; the text names the line.
    """
    path = Path(path)
    lines = list(json_lines(path))
    rows, places = [row for row, _ in lines], [place for _, place in lines]
    return _made(rows, places, name or path.stem, str(path))


def make_dataset(
    rows: Iterable[Example | Mapping[str, Any]], name: str = "data", source: str = ""
) -> Dataset:
    """Return a dataset of examples, or of dicts with the keys of `read_dataset`.

    Raises:
        InputError: A dict is no example, two have one id, or there are none.
    """
    known = list(rows)
    return _made(known, [f"data[{at}]" for at in range(len(known))], name, source)


def _made(rows: Sequence[Any], places: Sequence[str], name: str, source: str) -> Dataset:
    examples: list[Example] = []
    given: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for row, place in zip(rows, places, strict=True):
        example, has_id = _example(row, place)
        if has_id:
            if example.id in given:
                raise InputError(
                    f"{place}: id {example.id!r} stands at {given[example.id]} already"
                )
            given[example.id] = place
        else:
            # Equal inputs, such as a question asked twice, are examples of their own.
            seen[example.id] += 1
            if seen[example.id] > 1:
                number = f"{example.id}-{seen[example.id]}"
                example = Example(
                    number, example.inputs, example.reference_outputs, example.metadata
                )
        examples.append(example)
    if not examples:
        raise InputError(f"{source or name}: holds no examples")
    return Dataset(name, tuple(examples), source, time.time_ns())


def _example(row: Any, place: str) -> tuple[Example, bool]:
    """Return an example, and whether it came with an id."""
    if isinstance(row, Example):
        return row, True
    if not isinstance(row, Mapping):
        raise InputError(f"{place}: an example is an object with 'inputs', not {_kind(row)}")
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key not in _FIELDS:
            near = difflib.get_close_matches(str(key), list(_FIELDS), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_FIELDS)}"
            raise InputError(f"{place}: unknown key {key!r}; {hint}")
        fields[_FIELDS[key]] = plain(value)
    if "messages" in fields:
        try:
            messages = to_messages(fields.pop("messages"), "messages")
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        fields = {**_fields_of(messages), **fields}
    if "inputs" not in fields:
        raise InputError(f"{place}: 'inputs' is missing")
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"{place}: 'metadata' is an object, not {_kind(metadata)}")
    inputs, reference = fields["inputs"], fields.get("reference_outputs")
    name = fields.get("id")
    if name is None or name == "":
        return Example(example_id(inputs), inputs, reference, metadata), False
    return Example(str(name), inputs, reference, metadata), True


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def asked(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what an agent was given: the messages before its first answer, as ``inputs``.

    A greeting before the first question is no answer.
    """
    roles = [message.role for message in messages]
    first = roles.index("user") if "user" in roles else 0
    end = roles.index("assistant", first) if "assistant" in roles[first:] else len(roles)
    return {"messages": [message.as_dict() for message in messages[:end]]}


def is_question_known(messages: Sequence[Message]) -> bool:
    """Return whether `asked` holds the text of a user's message, by which runs can be paired."""
    given = messages[: len(asked(messages)["messages"])]
    return any(m.role == "user" and (m.content or "").strip() for m in given)


def _fields_of(messages: Sequence[Message]) -> dict[str, Any]:
    whole = [message.as_dict() for message in messages]
    return {"inputs": asked(messages), "reference_outputs": whole}


def dataset_from_trajectories(
    trajectories: Iterable[Trajectory], name: str, source: str = "trajectories"
) -> Dataset:
    """Return a dataset of runs as they should be again.

    What a run was given are its inputs, all its messages its reference outputs. Its id is the
    attribute ``test.case.id``, where it has one; without a captured question, the run's own.

    Raises:
        InputError: There are none, or two have one id.
    """
    rows = []
    for one in trajectories:
        case = one.attributes.get(CASE_KEY)
        if case is None and not is_question_known(one.own_messages):
            case = one.id  # missing questions are not equal questions
        fields = _fields_of(one.own_messages)
        rows.append({**fields, "id": case, "metadata": {"trajectory_id": one.id}})
    return make_dataset(rows, name, source)


def dataset_from_references(store: Store, name: str, names: Sequence[str] = ()) -> Dataset:
    """Return a dataset of references that `oteval reference add` has kept.

    Args:
        store: Where they are.
        name: The dataset's name.
        names: The references' names, which become the examples' ids; by default all.

    Raises:
        InputError: There are none.
        NotFound: No reference has one of the names.
    """
    wanted = list(names) or [row["name"] for row in store.references.list()]
    rows = []
    for each in wanted:
        messages = to_messages(list(store.references.get(each).messages), "messages")
        rows.append({**_fields_of(messages), "id": each})
    return make_dataset(rows, name, "references")
