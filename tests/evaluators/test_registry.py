"""Evaluators by their type: oteval's own, and those of other packages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.evaluators import registry
from oteval.evaluators.options import options_of
from oteval.scoring import prepare
from oteval.scoring.config import Config, parse_config
from oteval.store import MEMORY, Store

from ..make import run

PLUGIN = '''
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypedDict

from oteval.evaluators import EvaluationContext, EvaluationResult, Evaluator, InConfig

@dataclass(frozen=True)
class Weight:
    __pydantic_config__ = {"extra": "forbid"}
    factor: float = 1.0

@dataclass(frozen=True, kw_only=True)
class WordLimit(Evaluator):
    """Fails where the run has too many words.

    Attributes:
        most: How many words the run may have.
        copy: A name that models have, too.
        weights: Factors by word.
        words: The words that count.
    """

    type: ClassVar[str] = "word_limit"

    most: int
    copy: bool = False
    weights: Mapping[str, Weight] = field(default_factory=dict)
    words: Annotated[Sequence[str] | None, InConfig("word_list", is_file=True)] = None

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        texts = [message.content or "" for message in context.messages]
        counted = [w for w in " ".join(texts).split() if self.words is None or w in self.words]
        return EvaluationResult.of_verdict(len(counted) <= self.most)

class Undone(Evaluator):
    type: ClassVar[str] = "undone"

@dataclass(frozen=True, kw_only=True)
class Taken(WordLimit):
    type: ClassVar[str] = "taken"
    where: str = ""
'''


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Return a function that installs a package with entry points."""

    def install(name: str, entries: str) -> None:
        site = tmp_path / name
        information = site / f"{name}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        (information / "entry_points.txt").write_text(f"[oteval.evaluators]\n{entries}\n")
        (site / f"{name}.py").write_text(PLUGIN)
        monkeypatch.syspath_prepend(str(site))
        registry.announced_evaluators.cache_clear()

    yield install
    registry.announced_evaluators.cache_clear()


def fault(entry: dict[str, Any]) -> str:
    """Return what is wrong with an evaluator of oteval.yaml."""
    with pytest.raises(ConfigError) as caught:
        parse_config(json.dumps({"evaluators": [{"name": "a", **entry}]}, indent=1), "x.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_type_has_options_that_are_described() -> None:
    """Each option has a sentence in its class's docstring, and each class its type."""
    found, problems = registry.load_all()

    assert problems == []
    assert set(found) >= {"judge", "loops", "python", "trajectory_match", "graph_match", "cost"}
    for kind, evaluator in found.items():
        assert evaluator.type == kind
        for option in options_of(evaluator):
            assert option.description.endswith("."), (kind, option.name)


@pytest.mark.database
def test_another_package_adds_a_type(installed: Callable[[str, str], None], tmp_path: Path) -> None:
    """Its options are keys, its class evaluates, and a file may hold an option."""
    installed("words", "word_limit = words:WordLimit")
    (tmp_path / "list.json").write_text('["hi"]')
    entry = {"name": "a", "type": "word_limit", "most": 1, "copy": True, "word_list": "list.json"}
    config = parse_config(json.dumps({"evaluators": [entry]}))

    with Store(MEMORY) as store:
        (prepared,) = prepare(config, store, tmp_path)

    assert prepared.scorer.score(run(1), None, "", 0).status == "not_evaluated"
    assert prepared.evaluator.describe() == {
        "type": "word_limit",
        "key": "word_limit",
        "most": 1,
        "copy": True,
        "weights": {},
        "words": ("hi",),
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"type": "word_limit", "mst": 1},
            "x.yaml:6: evaluator 'a': unknown key 'mst'; did you mean 'most'?",
        ),
        ({"type": "word_limit"}, "x.yaml:3: evaluator 'a': 'most' is missing"),
        (
            {"type": "word_limit", "most": "a"},
            "x.yaml:6: evaluator 'a': most: input should be a valid integer",
        ),
        (
            {"type": "word_limit", "most": 1, "weights": {"x": {"fctor": 1}}},
            "x.yaml:9: evaluator 'a': unknown key 'fctor'; did you mean 'factor'?",
        ),
        ({"type": "word_limits", "most": 1}, "did you mean 'word_limit'?"),
        (
            {"type": "word_limit", "most": 1, "reference": "r"},
            "x.yaml:7: evaluator 'a': unknown key 'reference'",
        ),
    ],
)
def test_its_options_are_checked_like_ours(
    installed: Callable[[str, str], None], entry: dict[str, Any], expected: str
) -> None:
    """The error names the line, the key and the nearest known one."""
    installed("words", "word_limit = words:WordLimit")

    assert expected in fault(entry)


@pytest.mark.parametrize(
    ("entries", "kind", "expected"),
    [
        ("bad = nowhere:X", "bad", "type 'bad' of words: nowhere:X cannot be imported: Module"),
        ("bad = words:None_", "bad", "words:None_ cannot be imported: AttributeError"),
        ("bad = words:dataclass", "bad", "words:dataclass is not a subclass of oteval.evaluators"),
        ("undone = words:Undone", "undone", "words:Undone does not define evaluate()"),
        ("bad = words:WordLimit", "bad", "has the type 'word_limit'; name the entry point"),
        ("taken = words:Taken", "taken", "has an option 'where', which every evaluator has"),
        ("loops = words:WordLimit", "loops", "type 'loops' is defined by oteval and words"),
    ],
)
def test_a_bad_entry_point_is_named_and_harms_nobody_else(
    installed: Callable[[str, str], None], entries: str, kind: str, expected: str
) -> None:
    """Its type is an error of the file; other types, and the schema, are as before."""
    installed("words", entries)

    assert expected in fault({"type": kind, "most": 1})
    other = [{"name": "a", "type": "tool_errors"}]
    assert parse_config(json.dumps({"evaluators": other})).evaluators[0].name == "a"
    assert expected in registry.load_all()[1][0]
    assert "ToolErrors" in Config.model_json_schema()["$defs"]


def test_two_packages_with_the_same_type_are_both_named(
    installed: Callable[[str, str], None],
) -> None:
    """Neither is used in place of the other."""
    installed("words", "word_limit = words:WordLimit")
    installed("others", "word_limit = others:WordLimit")

    message = fault({"type": "word_limit", "most": 1})

    assert "is defined by others and words" in message or "by words and others" in message
    assert "uninstall one" in message


def test_the_schema_has_the_options_of_another_package(
    installed: Callable[[str, str], None],
) -> None:
    """Editors know its keys, their types and what they mean."""
    installed("words", "word_limit = words:WordLimit")

    schema = Config.model_json_schema()["$defs"]["WordLimit"]

    assert schema["required"] == ["name", "type", "most"]
    assert schema["properties"]["type"]["const"] == "word_limit"
    assert schema["properties"]["most"]["description"] == "How many words the run may have."
    assert schema["additionalProperties"] is False
