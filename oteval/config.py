"""oteval.yaml: what is scored, how, against what, and which gates must hold.

Strict: a key that is not known is an error that names its line and the nearest known key. The
JSON schema of the file is ``oteval config schema``.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from .errors import ConfigError
from .selection import Condition, Selection, parse_condition

__all__ = [
    "Config",
    "DatasetReference",
    "Gate",
    "MatchRule",
    "PythonRule",
    "Rule",
    "StoredReference",
    "Where",
    "load_config",
    "parse_config",
]

DEFAULT_PATH = "oteval.yaml"
ArgsMode = Literal["exact", "ignore", "subset", "superset", "tolerant"]
Texts = str | list[str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _texts(value: Texts | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


class Where(_Strict):
    """Which trajectories an evaluator looks at; all that is given must hold."""

    agent: Texts | None = Field(None, description="Agent name, or a list of them.")
    service: Texts | None = Field(None, description="service.name of the resource, or a list.")
    model: Texts | None = Field(None, description="Model that answered, or a list.")
    conversation: Texts | None = Field(None, description="Conversation id, or a list.")
    attributes: dict[str, str | int | float | bool | list[str]] = Field(
        default_factory=dict, description="Attributes of the root span or its resource."
    )
    conditions: list[str] = Field(
        default_factory=list, description="Comparisons such as 'errors>0' or 'tool=refund'."
    )
    not_: Where | None = Field(None, alias="not", description="What must not hold.")

    @field_validator("conditions")
    @classmethod
    def _check_conditions(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_condition(text)
        return value

    def selection(self) -> Selection:
        """Return the selection it spells out."""
        conditions: tuple[Condition, ...] = tuple(parse_condition(text) for text in self.conditions)
        return Selection(
            agents=_texts(self.agent),
            services=_texts(self.service),
            models=_texts(self.model),
            conversations=_texts(self.conversation),
            attributes={
                key: tuple(value) if isinstance(value, list) else (str(value),)
                for key, value in self.attributes.items()
            },
            conditions=conditions,
            excluded=self.not_.selection() if self.not_ else None,
        )


class StoredReference(_Strict):
    """A reference kept in the store: a trajectory, or a name given by `oteval reference add`."""

    trajectory: str | None = Field(None, description="A trajectory's id.")
    name: str | None = Field(None, description="A name given by `oteval reference add`.")

    @model_validator(mode="after")
    def _one(self) -> StoredReference:
        if (self.trajectory is None) == (self.name is None):
            raise ValueError("give either trajectory or name")
        return self


class DatasetReference(_Strict):
    """References by case: a JSON-lines file, each line with the key's value and messages."""

    dataset: str = Field(description="A JSON-lines file: {KEY: value, messages: [...]} a line.")
    key: str = Field("test.case.id", description="The attribute that names a run's case.")


def _reference_kind(value: Any) -> str:
    if isinstance(value, (DatasetReference, StoredReference)):
        return type(value).__name__
    if isinstance(value, dict):
        return "DatasetReference" if {"dataset", "key"} & set(value) else "StoredReference"
    return "str"


# Told apart by its shape, so that an error is about what was meant.
ReferenceSource = Annotated[
    Annotated[str, Tag("str")]
    | Annotated[StoredReference, Tag("StoredReference")]
    | Annotated[DatasetReference, Tag("DatasetReference")],
    Discriminator(_reference_kind),
]


class _Rule(_Strict):
    name: str = Field(min_length=1, description="Unique; the score's name.")
    where: Where = Field(Where(), description="Which trajectories it looks at.")
    sample: float = Field(1.0, ge=0.0, le=1.0, description="The share of traces that is scored.")
    scope: Literal["turn", "conversation"] = Field(
        "turn", description="Whether it sees the run's own messages or the whole conversation."
    )


class MatchRule(_Rule):
    """Holds a trajectory against a reference."""

    type: Literal["trajectory_match"]
    mode: Literal["strict", "unordered", "superset", "subset", "in_order"] = Field(
        "strict", description="How the calls are compared."
    )
    tool_args: ArgsMode = Field("exact", description="How arguments are compared.")
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Per tool: a mode, a list of the fields to compare, or a regex mapping.",
    )
    view: Literal["all", "writes", "effects"] = Field(
        "all", description="Which calls count: all, those that change something, those that did."
    )
    effect_tools: list[str] = Field(
        default_factory=list, description="The tools that change something."
    )
    error_pattern: str | None = Field(
        None, description="A regular expression: results that match it are errors."
    )
    score_type: Literal["bool", "f1", "recall", "precision"] = Field(
        "bool", description="What the score is."
    )
    strict_order: bool = Field(False, description="Compare the order inside a message too.")
    missing_ok: bool = Field(False, description="A compared field missing on both sides is equal.")
    threshold: float = Field(
        1.0, ge=0.0, le=1.0, description="From which score on it passes, unless score_type is bool."
    )
    reference: ReferenceSource = Field(
        description="A JSON file of messages, {trajectory: ID}, {name: NAME}, or {dataset, key}."
    )


class PythonRule(_Rule):
    """Calls a function of the user's."""

    type: Literal["python"]
    call: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="package.module:function, importable from the folder of this file.",
    )
    timeout: str | float | None = Field(None, description="Seconds, or a text such as '5s'.")
    reference: ReferenceSource | None = Field(
        None, description="What the function gets as reference_outputs."
    )

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, value: str | float | None) -> float | None:
        return None if value is None else seconds(value)


Rule = Annotated[MatchRule | PythonRule, Field(discriminator="type")]


class Gate(_Strict):
    """What must hold of an evaluator's scores for `oteval score` to exit 0."""

    evaluator: str = Field(description="The name of one of the evaluators.")
    min_pass_rate: float | None = Field(
        None, ge=0.0, le=1.0, description="The least share of evaluated runs that pass."
    )
    min_score: float | None = Field(None, description="The least mean score of evaluated runs.")
    min_evaluated: int = Field(1, ge=1, description="The least number of runs to be evaluated.")
    max_errors: int | None = Field(None, ge=0, description="The most evaluations that may fail.")


class Config(_Strict):
    """The whole file."""

    evaluators: list[Rule] = Field(min_length=1, description="What is evaluated.")
    gates: list[Gate] = Field(default_factory=list, description="What must hold.")
    salt: str = Field("oteval", description="Changes which traces a sample draws.")


def seconds(value: str | float) -> float:
    """Return a duration in seconds: a number, or a text such as ``500ms``, ``5s``, ``2m``, ``1h``.

    Raises:
        ValueError: The text is no duration.
    """
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    text = str(value).strip()
    for unit, factor in units.items():
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * factor
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{value!r} is no duration; write for instance 5s or 2m") from None


def load_config(path: str | Path) -> Config:
    """Return the configuration of a file.

    Raises:
        ConfigError: The file is missing, no YAML, or says what is not known; with its line.
    """
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; oteval config schema describes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = DEFAULT_PATH) -> Config:
    """Return the configuration that a text spells out.

    Args:
        text: YAML.
        source: Its name, for messages.

    Raises:
        ConfigError: It is no YAML, or says what is not known; with its line.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: no valid YAML: {problem}") from error
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{source}:1: the file must be a mapping; begin it with 'evaluators:'")
    if not value:
        raise ConfigError(f"{source}: empty; begin with a line 'evaluators:'")
    _refuse_repeated_keys(root, source)
    try:
        config = Config.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(_explain(first, root, source)) from error
    _check_names(config, root, source)
    return config


def _refuse_repeated_keys(node: yaml.Node | None, source: str) -> None:
    """Refuse a mapping that has a key twice, of which YAML readers keep one silently."""
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise ConfigError(
                    f"{source}:{line}: {key.value!r} stands on line {seen[key.value]} already"
                )
            seen[key.value] = line
            _refuse_repeated_keys(value, source)
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value, source)


def _check_names(config: Config, root: yaml.Node | None, source: str) -> None:
    """Refuse evaluators of the same name, and gates of none."""
    names: list[str] = []
    for index, rule in enumerate(config.evaluators):
        if rule.name in names:
            line, _ = _line(root, ["evaluators", index, "name"])
            raise ConfigError(f"{source}:{line}: two evaluators are called {rule.name!r}")
        names.append(rule.name)
    for index, gate in enumerate(config.gates):
        if gate.evaluator not in names:
            line, _ = _line(root, ["gates", index, "evaluator"])
            near = difflib.get_close_matches(gate.evaluator, names, 1) or names
            raise ConfigError(
                f"{source}:{line}: no evaluator is called {gate.evaluator!r}; "
                f"did you mean {near[0]!r}?"
            )


def _explain(error: Any, root: yaml.Node | None, source: str) -> str:
    """Return one line that names the line, the key and what to do."""
    path = [step for step in error["loc"] if step not in _TAGS]
    line, known_path = _line(root, path)
    place = f"{source}:{line}"
    key = ".".join(str(step) for step in known_path) or "the file"
    if error["type"] == "extra_forbidden":
        near = _nearest(error["loc"])
        return f"{place}: unknown key {str(path[-1])!r}{near}"
    if error["type"] == "missing":
        return f"{place}: {path[-1]!r} is missing in {'.'.join(map(str, path[:-1])) or 'the file'}"
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        known = " or ".join(sorted(_TYPES))
        return f"{place}: {key}: 'type' must be {known}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {key}: {message[:1].lower()}{message[1:]}"


_TYPES: dict[str, type[BaseModel]] = {"trajectory_match": MatchRule, "python": PythonRule}
# What pydantic puts into an error's place beside the keys of the file.
_TAGS = {*_TYPES, "str", "StoredReference", "DatasetReference", "list[str]", "int", "float", "bool"}


def _line(root: yaml.Node | None, path: list[Any]) -> tuple[int, list[Any]]:
    """Return the line of a path in the file, and as much of the path as the file has."""
    node, line, found = root, 1, []
    for step in path:
        below = _child(node, step)
        if below is None:
            break
        key, node = below
        line = (key if key is not None else node).start_mark.line + 1
        found.append(step)
    return line, found


def _child(node: yaml.Node | None, step: Any) -> tuple[yaml.Node | None, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None


def _nearest(place: tuple[Any, ...]) -> str:
    """Return the known key that is nearest to an unknown one, or all of them."""
    model: type[BaseModel] = Config
    for step in place[:-1]:
        model = _TYPES.get(str(step)) or _MODELS.get(str(step), model)
    known = [field.alias or name for name, field in model.model_fields.items()]
    near = difflib.get_close_matches(str(place[-1]), known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(known)}"


_MODELS: dict[str, type[BaseModel]] = {
    "where": Where,
    "not": Where,
    "gates": Gate,
    "StoredReference": StoredReference,
    "DatasetReference": DatasetReference,
}
