from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oteval import Dataset, Example, InputError, NotFound, Store, make_dataset, read_dataset
from oteval.model import Message
from oteval.scoring.experiments import (
    dataset_from_references,
    dataset_from_trajectories,
    dataset_of,
)

from ...make import asks, call, keep, run

ROWS = [
    {"inputs": {"q": "1+1"}, "reference_outputs": "2", "metadata": {"level": 1}},
    {"id": "two", "inputs": {"q": "2+2"}, "outputs": "4"},
]
CHAT = [
    {"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "fine"},
]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_json_lines_file_is_a_dataset(tmp_path: Path):
    """Each line is an example, and the file names the dataset; `outputs` are the reference."""
    found = read_dataset(write(tmp_path / "sums.jsonl", *ROWS))

    assert found.name == "sums"
    assert [example.inputs["q"] for example in found.examples] == ["1+1", "2+2"]
    assert [example.outputs for example in found.examples] == ["2", "4"]
    assert found.examples[0].metadata == {"level": 1}
    assert found.examples[1].id == "two"


def test_a_conversation_is_an_example():
    """Messages before the agent's first answer are the inputs; all messages are the reference."""
    (found,) = make_dataset([{"messages": CHAT, "test.case.id": "w"}]).examples

    assert found.id == "w"
    assert found.inputs == {"messages": CHAT[:1]}
    assert found.reference_outputs == CHAT


def test_the_version_depends_only_on_the_content():
    """Equal content has the same version under any name; any change makes another."""
    one, two = make_dataset(ROWS, "a"), make_dataset(ROWS, "b", "elsewhere")
    changed = make_dataset([{**ROWS[0], "reference_outputs": "3"}, ROWS[1]])

    assert one.version == two.version != changed.version
    assert [e.id for e in one.examples] == [e.id for e in changed.examples]


def test_a_question_asked_twice_is_two_examples():
    """Equal inputs get different ids; the first keeps the usual one."""
    found = make_dataset([{"inputs": 1}, {"inputs": 1}, {"inputs": 2}]).examples

    assert found[1].id == f"{found[0].id}-2"
    assert len({example.id for example in found}) == 3


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"inputs": 1', "x.jsonl:2: not valid JSON"),
        ("[1]", "x.jsonl:2: an example must be an object with 'inputs', not a list"),
        ('{"outputs": 1}', "x.jsonl:2: 'inputs' is missing"),
        ('{"inputs": 1, "outptus": 2}', "x.jsonl:2: unknown key 'outptus'; did you mean 'outputs'"),
        ('{"inputs": 1, "metadata": 2}', "x.jsonl:2: 'metadata' must be an object, not a int"),
        ('{"id": "a", "inputs": 1}', "x.jsonl:2: id 'a' is used at"),
        ('{"messages": [{"role": "king"}]}', "x.jsonl:2: messages"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(tmp_path: Path, line: str, why: str):
    """The error has the line number and the reason, on one line."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "a", "inputs": 0}\n' + line)

    with pytest.raises(InputError) as caught:
        read_dataset(path)

    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_invalid_datasets_are_refused(tmp_path: Path, store: Store):
    """A missing file, an empty file, an unknown name and a dict each have their error."""
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no such file"):
        dataset_of(str(tmp_path / "none.jsonl"), store)
    with pytest.raises(InputError, match="holds no examples"):
        dataset_of(tmp_path / "empty.jsonl", store)
    with pytest.raises(NotFound, match="no dataset 'sums'"):
        dataset_of("sums", store)
    with pytest.raises(InputError, match="data is dict"):
        dataset_of({"inputs": 1}, store)


def test_a_store_keeps_every_version(store: Store):
    """A name means the newest version unless one is given; equal content is stored once."""
    old, new = make_dataset(ROWS, "sums"), make_dataset(ROWS[:1], "sums")

    assert store.datasets.add(old)
    assert not store.datasets.add(old)
    assert store.datasets.add(new)

    assert dataset_of("sums", store).examples == new.examples
    assert dataset_of(f"sums@{old.version[:6]}", store).examples == old.examples
    assert [row["examples"] for row in store.datasets.list()] == [2, 1]
    with pytest.raises(NotFound, match="of version 'zz'"):
        store.datasets.get("sums", "zz")


def test_a_dataset_survives_the_store(store: Store):
    """Examples are read back unchanged, whatever JSON they hold."""
    examples = (Example("a", {"x": [1, None, "é"]}, [{"k": 1.5}], {"m": True}), Example("b", "t"))
    store.datasets.add(Dataset("d", examples, "here", 7))

    found = store.datasets.get("d")

    assert (found.examples, found.source, found.created_ns) == (examples, "here", 7)


def test_stored_trajectories_are_a_dataset(store: Store):
    """A run's case is its example's id; without a case, the inputs determine the id."""
    asked = Message("user", "weather?")
    keep(
        store,
        run(1, asked, asks(call("look", {"at": "sky"})), attributes={"test.case.id": "c1"}),
        run(2, asked, Message("assistant", "fine")),
    )

    found = dataset_from_trajectories(store.trajectories.read(), "runs")

    assert found.examples[0].id == "c1"
    assert found.examples[1].inputs == {"messages": [{"role": "user", "content": "weather?"}]}
    assert found.examples[0].reference_outputs[1]["tool_calls"][0]["function"]["name"] == "look"


def test_references_are_a_dataset(store: Store):
    """References become examples by name; an unknown name is an error."""
    store.references.add("r1", [Message("user", "hi"), Message("assistant", "ho")], "x", 1)
    store.references.add("r2", [Message("user", "he")], "x", 1)

    found = dataset_from_references(store, "refs")

    assert [example.id for example in found.examples] == ["r1", "r2"]
    assert found.examples[0].reference_outputs[1]["content"] == "ho"
    assert len(dataset_from_references(store, "refs", ["r2"]).examples) == 1
    with pytest.raises(NotFound):
        dataset_from_references(store, "refs", ["r3"])
