"""The source of an evaluator's references: a file, the store, or a dataset by case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..base.errors import ConfigError, InputError, NotFound
from ..base.jsontext import canonical
from ..evaluators import any_of, to_messages
from ..model import Example, Reference, Trajectory, normal_text
from .config import (
    AnyReference,
    Config,
    DatasetReference,
    EvaluatorSettings,
    ExampleReference,
    ReferenceSource,
    StoredReference,
)
from .resources import read_text

if TYPE_CHECKING:
    from ..store import Store

__all__ = [
    "References",
    "compared_reference",
    "read_json",
    "read_messages",
    "reference_of_run",
    "references_of",
]


# The key of a dataset whose cases are questions instead of values of an attribute.
QUESTION = "question"
_LONGEST_CASE = 80


class References:
    """The source of an evaluator's references for trajectories.

    Attributes:
        fingerprint: A hash of all references, part of the evaluator's version.
        possible: The references that runs may have.
        attribute: The attribute of a run that names its reference, or "".
        needs_messages: Whether a run's reference depends on its messages.
    """

    fingerprint = ""
    possible: tuple[Reference, ...] = ()
    attribute = ""
    needs_messages = False

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        """The reference, or None and the reason why it is missing."""
        del trajectory
        return None, ""

    def of_example(
        self, example: Example, trajectory: Trajectory, form: _Kind, *, own_first: bool
    ) -> tuple[Reference | None, str]:
        """The reference of a run of an experiment, or None and the reason why it is missing.

        Args:
            example: The example, whose reference outputs are its reference.
            trajectory: The run, which may have one of these references.
            form: Whether references are messages or the steps of a graph.
            own_first: Use the example's reference only if there is none of these.
        """
        value, reference = example.reference_outputs, None
        try:
            if isinstance(value, (list, Mapping)) and value:
                reference = _READ[form](example.id, value, "the example")
        except ConfigError as error:
            # Outputs other than a trajectory are for functions.
            if set(value) == {"any"}:
                return None, f"reference_outputs of example {example.id}: {error}"
        if reference is not None and not own_first:
            return reference, ""
        own, problem = self.of(trajectory)
        return (reference, "") if own is None and reference is not None else (own, problem)


class _Fixed(References):
    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.possible = reference.alternatives or (reference,)
        self.fingerprint = reference.fingerprint

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:  # noqa: ARG002
        return self.reference, ""


class _NoExample(References):
    """A run's reference from an example; experiments call `of_example`."""

    fingerprint = "example"

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:  # noqa: ARG002
        return (
            None,
            "the run belongs to no example with a reference; oteval eval --data gives examples",
        )


class _Dataset(References):
    def __init__(self, path: Path, key: str, kind: _Kind) -> None:
        self.key, self.path = key, path
        self.by_case = _read_dataset(path, key, kind)
        references = self.by_case.values()
        self.possible = tuple(
            accepted for case in references for accepted in case.alternatives or (case,)
        )
        self.attribute, self.needs_messages = key, key == QUESTION
        prints = "".join(self.by_case[case].fingerprint for case in sorted(self.by_case))
        self.fingerprint = hashlib.blake2b(prints.encode(), digest_size=8).hexdigest()

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        if self.key == QUESTION and trajectory.question is not None:
            case = trajectory.question.content
        else:
            case = trajectory.attributes.get(self.key)
        if case is None and self.key == QUESTION:
            return None, "the trace does not hold the run's question, which names its case"
        if case is None:
            return None, f"the run has no attribute {self.key!r} that names its case"
        name = _case_name(case, self.key)
        reference = self.by_case.get(name)
        return reference, "" if reference else f"{self.path.name} has no case {_shown(name)}"


class _AcceptedReferences(References):
    """Several accepted references; a run must have all of them."""

    def __init__(self, sources: Mapping[str, References]) -> None:
        self.sources = sources
        self.possible = tuple(
            reference for source in sources.values() for reference in source.possible
        )
        attributes = {source.attribute for source in sources.values()} - {""}
        self.attribute = min(attributes, default="")
        # An outline has one attribute.
        is_read = any(source.needs_messages for source in sources.values())
        self.needs_messages = is_read or len(attributes) > 1
        prints = canonical([[name, source.fingerprint] for name, source in sources.items()])
        self.fingerprint = hashlib.blake2b(prints.encode(), digest_size=8).hexdigest()

    def of(self, trajectory: Trajectory) -> tuple[Reference | None, str]:
        accepted: list[Reference] = []
        for name, source in self.sources.items():
            reference, problem = source.of(trajectory)
            if reference is None:
                return None, f"reference {name}: {problem}"
            accepted += _named(reference, name)
        return Reference("any", (), alternatives=tuple(accepted)), ""


def _named(reference: Reference, name: str) -> list[Reference]:
    """A reference, or its alternatives, under a name."""
    if not reference.alternatives:
        return [replace(reference, name=name)]
    return [
        replace(alternative, name=f"{name} {alternative.name}")
        for alternative in reference.alternatives
    ]


def _case_name(value: Any, key: str) -> str:
    """A case in the form for comparison; in a question, white space does not count."""
    return normal_text(str(value)) if key == QUESTION else str(value)


def _shown(case: str) -> str:
    return repr(case if len(case) <= _LONGEST_CASE else f"{case[:_LONGEST_CASE]}…")


def _read_dataset(path: Path, key: str, kind: _Kind) -> dict[str, Reference]:
    by_case: dict[str, Reference] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        source = f"{path}:{number}"
        case = _json(line, source)
        if not isinstance(case, dict) or key not in case or kind not in case:
            raise ConfigError(f"{source}: a case needs {key!r} and {kind!r}")
        name = _case_name(case[key], key)
        if name in by_case:
            first = by_case[name].source
            raise ConfigError(f"{source}: case {_shown(name)} occurs twice; the first is {first}")
        by_case[name] = _READ[kind](name, case[kind], source)
    if not by_case:
        raise ConfigError(f"{path}: holds no cases")
    return by_case


def read_messages(path: Path) -> Reference:
    """The reference in a JSON file of messages.

    Raises:
        ConfigError: The file cannot be read, or contains no messages.
    """
    return _reference(path.stem, read_json(path), str(path))


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        ConfigError: The file cannot be read as JSON.
    """
    return _json(read_text(path), str(path))


def _reference(name: str, value: Any, source: str) -> Reference:
    """A reference of messages; ``{"any": [...]}`` contains several."""
    return _several(name, value, source, _messages)


def _graph(name: str, value: Any, source: str) -> Reference:
    """A reference of steps; ``{"any": [...]}`` contains several."""
    return _several(name, value, source, _steps)


def _several(
    name: str, value: Any, source: str, read: Callable[[str, Any, str], Reference]
) -> Reference:
    try:
        references = any_of(value)
    except InputError as error:
        raise ConfigError(f"{source}: {error}") from error
    if references is None:
        return read(name, value, source)
    accepted = tuple(read(key, item, f"{source}: {key}") for key, item in references.items())
    return Reference(name, (), source, alternatives=accepted)


def _messages(name: str, value: Any, source: str) -> Reference:
    try:
        messages = to_messages(value, "messages")
    except InputError as error:
        raise ConfigError(f"{source}: {error}") from error
    return Reference(name, tuple(messages), source)


def _steps(name: str, value: Any, source: str) -> Reference:
    # This also imports judges.
    from ..evaluators import read_turns

    try:
        turns = read_turns(value if isinstance(value, dict) else {"steps": value}, "reference")
    except InputError as error:
        raise ConfigError(f"{source}: {error}") from error
    return Reference(name, (), source, tuple(map(tuple, turns)))


_Kind = Literal["messages", "steps"]
_READ: dict[_Kind, Callable[[str, Any, str], Reference]] = {
    "messages": _reference,
    "steps": _graph,
}


def _json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source}: not valid JSON: {error}") from error


def references_of(settings: EvaluatorSettings, store: Store | None, base: Path) -> References:
    """The sources of the references of an evaluator.

    Args:
        settings: The evaluator's settings.
        store: The store with references by name or trajectory; None without any.
        base: The folder that paths are relative to.

    Raises:
        ConfigError: A file cannot be read, or a graph that was found has no steps.
        NotFound: The store has no such reference.
    """
    source, option = settings.reference, settings.evaluator.reference
    if source is None or option is None:
        return References()
    is_whole = settings.scope == "conversation"
    if not isinstance(source, AnyReference):
        return _references_from(source, option.form, store, base, is_whole=is_whole)
    sources: dict[str, References] = {}
    for accepted in source.any:
        name = _source_name(accepted)
        if name in sources:
            raise ConfigError(f"reference: {name} is accepted twice")
        try:
            sources[name] = _references_from(accepted, option.form, store, base, is_whole=is_whole)
        except NotFound as error:
            raise ConfigError(f"reference {name}: {error}") from error
    return _AcceptedReferences(sources)


def _source_name(source: ReferenceSource) -> str:
    """The name of one of several accepted references."""
    if isinstance(source, StoredReference):
        return source.name or f"trajectory {source.trajectory}"
    return source.dataset if isinstance(source, DatasetReference) else str(source)


def _references_from(
    source: ReferenceSource, form: _Kind, store: Store | None, base: Path, *, is_whole: bool
) -> References:
    """The source of one reference.

    Raises:
        ConfigError: A file cannot be read, or a graph that was found has no steps.
        NotFound: The store has no such reference.
    """
    if isinstance(source, ExampleReference):
        return _NoExample()
    if isinstance(source, str):
        path = base / source
        return _Fixed(_READ[form](path.stem, read_json(path), str(path)))
    if isinstance(source, DatasetReference):
        return _Dataset(base / source.dataset, source.key, form)
    assert store is not None
    if form == "steps":
        return _Fixed(_stored_graph(source, store, is_whole=is_whole))
    if source.name is not None:
        return _Fixed(store.references.get(source.name))
    run = store.trajectories.get(str(source.trajectory))
    return _Fixed(Reference(run.id, run.own_messages, f"trajectory {run.id}"))


def reference_of_run(
    run: Trajectory, config: Config, store: Store, base: Path, evaluator: str = ""
) -> tuple[str, Reference]:
    """The messages that a configuration expects of a run.

    Args:
        run: The run.
        config: The configuration.
        store: The store with references by name or trajectory.
        base: The folder that paths are relative to.
        evaluator: The evaluator whose reference is wanted; by default the first with one.

    Returns:
        The name of the evaluator, and its reference.

    Raises:
        ConfigError: A file cannot be read.
        NotFound: No evaluator expects messages of this run.
    """
    reasons = []
    for settings in config.evaluators:
        option = settings.evaluator.reference
        if evaluator not in ("", settings.name) or option is None or option.form != "messages":
            continue
        if settings.reference is None or not settings.where.selection().matches(run):
            continue
        reference, reason = references_of(settings, store, base).of(run)
        if reference is not None:
            return settings.name, compared_reference(reference, run, settings.name, store)
        reasons.append(f"{settings.name}: {reason}")
    subject = f"evaluator {evaluator!r} does not compare" if evaluator else "no evaluator compares"
    raise NotFound("; ".join(reasons) or f"{subject} this run with the messages of a reference")


def compared_reference(
    reference: Reference, run: Trajectory, evaluator: str, store: Store
) -> Reference:
    """The reference that the comments on a run refer to.

    Args:
        reference: The reference of the run.
        run: The run.
        evaluator: The name of the evaluator that compares them.
        store: The store with its scores.

    Returns:
        If several references are accepted: the one in the run's score, or else the first.
    """
    if not reference.alternatives:
        return reference
    scores = store.scores.of([run.id])[run.id]
    score = next((score for score in scores if score.evaluator == evaluator), None)
    name = score.metadata.get("reference") if score is not None else None
    same_name = (alternative for alternative in reference.alternatives if alternative.name == name)
    return next(same_name, reference.alternatives[0])


def _stored_graph(source: StoredReference, store: Store, *, is_whole: bool) -> Reference:
    """The steps of a stored run, or of its whole conversation."""
    if source.trajectory is not None:
        run = store.trajectories.get(source.trajectory)
    else:
        run = _trajectory_of(str(source.name), store)
    from ..evaluators import graph_of

    turns = graph_of(run)["steps"]
    turns = turns if is_whole else turns[-1:]
    if not all(turns):
        raise ConfigError(f"the trace of trajectory {run.id} shows no nodes")
    return Reference(run.id, (), f"trajectory {run.id}", tuple(map(tuple, turns)))


def _trajectory_of(name: str, store: Store) -> Trajectory:
    """The trajectory that a stored reference was made of; the reference keeps only messages."""
    source = store.references.get(name).source
    try:
        return store.trajectories.get(source)
    except NotFound:
        raise ConfigError(
            f"reference {name!r} holds messages of {source} and no steps; "
            "give {trajectory: ID} or a file with 'steps'"
        ) from None
