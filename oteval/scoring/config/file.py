"""The whole of oteval.yaml: read, checked, and explained where it is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from ...base.errors import ConfigError
from ...model import IDENTITIES, name_attribute
from .base import Strict
from .error_text import explain_errors, line_of
from .evaluators import EvaluatorEntry
from .live import (
    Completion,
    EndpointOrUrl,
    ForwardOrUrl,
    Limits,
    MetricsOrUrl,
    Push,
    Redaction,
    Retention,
)
from .monitors import MonitorSettings, NotifyDestination
from .yaml_text import read_yaml

__all__ = [
    "DEFAULT_PATH",
    "Config",
    "Gate",
    "load_config",
    "parse_config",
    "read_config",
    "require_evaluators",
]

DEFAULT_PATH = "oteval.yaml"


class Gate(Strict):
    """The figures that an evaluator's scores must reach for `oteval score` to exit 0."""

    evaluator: str = Field(description="The name of one of the evaluators.")
    min_pass_rate: float | None = Field(
        None, ge=0.0, le=1.0, description="The least share of evaluated runs that pass."
    )
    min_score: float | None = Field(None, description="The least mean score of evaluated runs.")
    min_evaluated: int = Field(1, ge=1, description="The least number of runs to be evaluated.")
    max_errors: int | None = Field(None, ge=0, description="The most evaluations that may fail.")


class OwnAttribute(Strict):
    """Where the application writes an identity, such as which conversation a span belongs to."""

    attribute: str = Field(
        min_length=1,
        description="The application's attribute, such as my.thread. It counts before those that "
        "oteval knows.",
    )


class Config(Strict):
    """The whole file."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [key]} for key in ("evaluators", "monitors", "tools", *IDENTITIES)
            ]
        }
    )

    evaluators: list[EvaluatorEntry] = Field(
        default_factory=list,
        min_length=1,
        description="The evaluators; monitors of runs need none.",
    )
    gates: list[Gate] = Field(default_factory=list, description="The gates over the scores.")
    salt: str = Field("oteval", description="A text that changes the samples of traces.")
    completion: Completion = Field(
        Completion(), description="Live: when a trace counts as complete and is scored."
    )
    budgets: dict[str, Limits] = Field(
        default_factory=dict, description="Live: limits on evaluators, by their names."
    )
    forward: ForwardOrUrl | None = Field(
        None, description="Live: where to forward traces with their scores."
    )
    events: EndpointOrUrl | None = Field(
        None, description="Live: where to send scores as gen_ai.evaluation.result log events."
    )
    metrics: MetricsOrUrl | None = Field(
        None, description="Live: where to send metrics over OTLP, besides /metrics."
    )
    push: list[Push] = Field(
        default_factory=list, description="Live: the trace backends to write scores to."
    )
    redact: list[Redaction] = Field(
        default_factory=list, description="Live: the data to remove before anything is stored."
    )
    retention: Retention | None = Field(
        None, description="When spans move from the database into Parquet files."
    )
    monitors: list[MonitorSettings] = Field(
        default_factory=list, description="The measures that are watched, and who is notified."
    )
    notify: dict[str, NotifyDestination] = Field(
        default_factory=dict, description="Destinations of notifications, by name."
    )
    conversation: OwnAttribute | None = Field(
        None, description="The application's attribute for the conversation's id."
    )
    user: OwnAttribute | None = Field(
        None, description="The application's attribute for the user's id, of spans or resources."
    )
    version: OwnAttribute | None = Field(
        None,
        description="The application's attribute for the agent's version, of spans or resources.",
    )
    prompt: OwnAttribute | None = Field(
        None,
        description="The application's attribute for the prompt, as name or name@version, of spans "
        "or resources.",
    )
    tools: dict[str, str] = Field(
        default_factory=dict,
        description="Replays: the functions that run the agent's tools, as module:function, where "
        "a tool has another name than its function.",
    )
    _path: str | None = PrivateAttr(None)
    _positions: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def path(self) -> str | None:
        """The file that it was read from, as an absolute path; None if it is not known."""
        return self._path

    def position_of(self, evaluator: str) -> str:
        """The file and the line of an evaluator, before a message; "" if they are not known."""
        return self._positions.get(evaluator, "")


def load_config(path: str | Path) -> Config:
    """The configuration of a file, and use its names of the application's attributes.

    Raises:
        ConfigError: The file is missing, or wrong; the text has the line.
    """
    config = parse_config(read_config(path), str(path))
    config._path = str(Path(path).resolve())
    for kind in IDENTITIES:
        if (setting := getattr(config, kind)) is not None:
            name_attribute(kind, setting.attribute, is_default=True)
    return config


def read_config(path: str | Path) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: The file is missing or cannot be read.
    """
    try:
        return Path(path).read_text("utf-8")
    except FileNotFoundError:
        problem = "no such file; oteval init writes one that fits your runs"
        raise ConfigError(f"{path}: {problem}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def parse_config(text: str, source: str = DEFAULT_PATH) -> Config:
    """The configuration of a YAML text.

    Args:
        text: YAML.
        source: Its name, for messages.

    Raises:
        ConfigError: The text is wrong; the message has the line.
    """
    root, value = read_yaml(text, source)
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{source}:1: the file must be a mapping; begin it with 'evaluators:'")
    if not value:
        raise ConfigError(f"{source}: empty; begin with a line 'evaluators:'")
    try:
        config = Config.model_validate(value)
    except ValidationError as error:
        faults = explain_errors(error, root, source, Config, value)
        faults += _name_faults(value, root, source)
        raise ConfigError.of(_in_order(faults, source)) from error
    has_names = any(getattr(config, kind) is not None for kind in IDENTITIES)
    if not (config.evaluators or config.monitors or config.tools or has_names):
        raise ConfigError(f"{source}:1: 'evaluators' is missing in the file")
    faults = _name_faults(value, root, source)
    faults += _push_faults(config, root, source) + _monitor_faults(config, root, source)
    if faults:
        raise ConfigError.of(_in_order(faults, source))
    for index, evaluator in enumerate(config.evaluators):
        line, _ = line_of(root, ["evaluators", index])
        config._positions[evaluator.name] = f"{source}:{line}: "
    return config


def require_evaluators(config: Config, source: str | Path = DEFAULT_PATH) -> Config:
    """A configuration that has evaluators.

    Raises:
        ConfigError: It has none.
    """
    if not config.evaluators:
        raise ConfigError(f"{source}: no evaluators; add 'evaluators:' to score runs")
    return config


def _in_order(faults: list[str], source: str) -> list[str]:
    """Faults, which begin with the file and the line, in the order of their lines."""
    return sorted(faults, key=lambda fault: int(fault[len(source) + 1 :].partition(":")[0]))


def _name_faults(value: Mapping[str, Any], root: yaml.Node | None, source: str) -> list[str]:
    """Two evaluators with the same name, and gates and budgets of unknown evaluators.

    Args:
        value: The contents of the file; any part of it may have the wrong form.
        root: The nodes of the file.
        source: The file's name.
    """
    faults: list[str] = []
    names: list[str] = []
    for index, name in _names_in(value.get("evaluators"), "name"):
        if name in names:
            line, _ = line_of(root, ["evaluators", index, "name"])
            faults.append(f"{source}:{line}: two evaluators are called {name!r}")
        names.append(name)
    for index, name in _names_in(value.get("gates"), "evaluator"):
        faults += _unknown(name, names, ["gates", index, "evaluator"], root, source)
    budgets = value.get("budgets")
    for name in budgets if isinstance(budgets, Mapping) else ():
        faults += _unknown(str(name), names, ["budgets", name], root, source)
    return faults


def _names_in(entries: Any, key: str) -> list[tuple[int, str]]:
    """The names under a key of each mapping in a list, with their places in the list."""
    items = entries if isinstance(entries, list) else []
    names = [entry.get(key) if isinstance(entry, Mapping) else None for entry in items]
    return [(index, name) for index, name in enumerate(names) if isinstance(name, str)]


def _push_faults(config: Config, root: yaml.Node | None, source: str) -> list[str]:
    """Backends that are named twice, and scores of unknown evaluators."""
    faults: list[str] = []
    evaluators = [evaluator.name for evaluator in config.evaluators]
    targets: list[tuple[str, str | None]] = []
    for index, push in enumerate(config.push):
        key_path: list[Any] = ["push", index]
        if (push.backend, push.url) in targets:
            line, _ = line_of(root, [*key_path, "backend"])
            faults.append(f"{source}:{line}: push names the same {push.backend} twice")
        targets.append((push.backend, push.url))
        for name in push.evaluators:
            faults += _unknown(name, evaluators, [*key_path, "evaluators"], root, source)
    return faults


def _monitor_faults(config: Config, root: yaml.Node | None, source: str) -> list[str]:
    """Monitors with the same name, of unknown evaluators or to unknown destinations."""
    faults: list[str] = []
    evaluators = [evaluator.name for evaluator in config.evaluators]
    names: list[str] = []
    for index, monitor in enumerate(config.monitors):
        key_path: list[Any] = ["monitors", index]
        if monitor.title in names:
            line, _ = line_of(root, [*key_path, "name"])
            text = f"two monitors are called {monitor.title!r}; give one a name"
            faults.append(f"{source}:{line}: {text}")
        names.append(monitor.title)
        if monitor.evaluator is not None:
            path = [*key_path, "evaluator"]
            faults += _unknown(monitor.evaluator, evaluators, path, root, source)
        for name in monitor.notify:
            path = [*key_path, "notify"]
            kind = "destination in notify"
            faults += _unknown(name, list(config.notify), path, root, source, kind)
    return faults


def _unknown(
    name: str,
    names: list[str],
    path: list[Any],
    root: yaml.Node | None,
    source: str,
    kind: str = "evaluator",
) -> list[str]:
    """The fault of a name that is none of the names."""
    if name in names:
        return []
    line, _ = line_of(root, path)
    near = difflib.get_close_matches(name, names, 1) or names
    hint = f"; did you mean {near[0]!r}?" if near else f"; add it: notify: {{{name}: ...}}"
    return [f"{source}:{line}: no {kind} is called {name!r}{hint}"]
