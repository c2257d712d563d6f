"""Experiments: the examples of a dataset, a system's output for each, and the feedback on it.

An **example** is an input, with or without the expected output. A **dataset** is a named list of
examples; its version is a hash of their content. An **experiment** is the result of one system on a
dataset: a **run** for each example and repetition, and for each run **feedback** from every
evaluator. A **vote** is one answer to the question which of several runs of an example is better.

Runs of the same **case** are compared with each other. An attribute names the case of a run, or
else the user's question does: its text without regard to white space, and its place in the
conversation. The system prompt, the tools and the model do not count: they change between the
compared runs. A run without a name and a question is a separate case: two runs with missing content
are never the same case.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from ..base.jsontext import canonical, dumps
from .score import EvaluationResult, Status
from .telemetry import record
from .trajectory import Trajectory

__all__ = [
    "CASE_ATTRIBUTES",
    "LONGEST_CASE",
    "NOT_RUN",
    "Dataset",
    "Example",
    "Experiment",
    "Feedback",
    "Run",
    "Vote",
    "case_id",
    "case_text",
    "example_id",
    "first_attribute",
    "input_hash",
    "normal_text",
    "question_of",
    "turn_case_id",
]

CASE_ATTRIBUTES = ("test.case.id", "oteval.example_id", "case_name", "example.id")
"""Attributes that name a run's case; the first one present counts."""

LONGEST_CASE = 2000
"""The longest question (characters) that alone is the text of its case; see `case_text`."""

_QUESTIONS = frozenset(
    {
        *("question", "query", "prompt", "input", "message", "text"),
        *("user_input", "user_message", "user_prompt"),
    }
)
"""Names of inputs that are a question, if it is the only input."""

_SETTINGS = frozenset({"model", "system", "system_prompt", "tools", "tool_choice"})
"""Names of inputs that describe how to answer, and are not part of the question."""


def normal_text(text: str) -> str:
    """A question as questions are compared: white space does not count, and case does."""
    return " ".join(text.split())


def first_attribute(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """The first attribute in `keys` that a run has, as text; "" if it has none."""
    values = (trajectory.attributes.get(key) for key in keys)
    return next((str(value) for value in values if value not in (None, "")), "")


def case_text(trajectory: Trajectory, keys: Sequence[str]) -> str:
    r"""The text of a run's case: exactly the runs of the same case have the same text.

    Args:
        trajectory: The run.
        keys: The attributes that name a case; the first one present counts.

    Returns:
        The name; the question, with the number of a later turn; the question and its parts, after
        ``\0``, if it is long or has parts such as images; or the run's id.
    """
    case_name = first_attribute(trajectory, keys).strip()
    user_message = trajectory.question
    if case_name or user_message is None:
        return case_name or trajectory.id
    question = normal_text(user_message.content or "")
    text = question if trajectory.turn <= 1 else f"turn {trajectory.turn}: {question}"
    if not user_message.parts and len(question) <= LONGEST_CASE:
        return text
    return f"\0{text}\0{dumps(list(user_message.parts)) if user_message.parts else ''}"


def input_hash(inputs: Any) -> str:
    """A hash of an example's inputs."""
    return hashlib.blake2b(canonical(inputs).encode(), digest_size=8).hexdigest()


def case_id(inputs: Any) -> str:
    """The hash of the question in an example's inputs.

    If the inputs are messages, only the user's messages count. Inputs without messages of a user,
    and without a question as the only input, count as they are.
    """
    return input_hash(_asked(inputs))


def turn_case_id(inputs: Any, turn: int) -> str:
    """The hash of the question of a turn, with the number of the turn from the second on."""
    return case_id(inputs) if turn <= 1 else f"{case_id(inputs)}.{turn}"


def _asked(inputs: Any) -> Any:
    if isinstance(inputs, str):
        return normal_text(inputs)
    if isinstance(inputs, (list, tuple)):
        return _user_messages(inputs) or inputs
    if not isinstance(inputs, Mapping):
        return inputs
    asking = {name: value for name, value in inputs.items() if name not in _SETTINGS}
    for name in ("messages", "input"):
        if messages := _user_messages(asking.get(name)):
            other_inputs = {key: asking[key] for key in asking if key not in (name, "instructions")}
            return {**other_inputs, "messages": messages} if other_inputs else messages
    if len(asking) == 1:
        [(name, value)] = asking.items()
        if name in _QUESTIONS and isinstance(value, str):
            return normal_text(value)
    return inputs


def _user_messages(messages: Any) -> Any:
    """The content of a user's messages: a text if there is one message, else a list.

    A message is an object with ``role`` (or LangChain's ``type``) and ``content``, or a pair of
    both. Returns "" if the value is not a list of messages, or if the user wrote nothing.
    """
    if not isinstance(messages, (list, tuple)):
        return ""
    contents = []
    for message in messages:
        if isinstance(message, Mapping):
            role = message.get("role") or message.get("type")
            content, parts = message.get("content"), message.get("parts")
        elif isinstance(message, (list, tuple)) and len(message) == 2:
            (role, content), parts = message, None
        else:
            return ""
        if role in ("user", "human") and not _is_tool_result(content):
            contents.append(_content(content, parts))
    if not any(contents):
        return ""
    return contents[0] if len(contents) == 1 else contents


def _is_tool_result(content: Any) -> bool:
    """Whether the content of a user's message is the result of a tool, as in Anthropic's API."""
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content
    )


def _content(content: Any, parts: Any) -> Any:
    """The content of a message; content with parts other than text is a list."""
    if isinstance(content, (list, tuple)):
        blocks = [block.get("text") if isinstance(block, Mapping) else block for block in content]
        texts = [text for text in blocks if isinstance(text, str)]
        if len(texts) < len(blocks):
            return [content, parts] if parts else list(content)
        content = "\n".join(texts)
    text = normal_text(content) if isinstance(content, str) else content
    return [text, parts] if parts else text


_LONGEST_QUESTION = 2000  # characters
_HASH = 16  # characters
# After the hash in an id: the number of a later turn, and the number of a repeated question.
_NUMBERS = re.compile(r"((?:\.\d+)?)(?:-\d+)?")


def example_id(inputs: Any) -> str:
    """The id of an example without an explicit one: a hash of its inputs."""
    return input_hash(inputs)


NOT_RUN = "not run: "
"""The beginning of a run's error if something else than the system failed, such as its model."""


def question_of(inputs: Any) -> str:
    """The question in an example's inputs: the last message, or the only text.

    Other inputs are returned as JSON, and no inputs as "". The question is cut to 2,000 characters.
    """
    value = inputs
    if isinstance(value, Mapping):
        value = value.get("messages") or (next(iter(value.values())) if len(value) == 1 else value)
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content") or value
    text = value if isinstance(value, str) else "" if value is None else dumps(value)
    return text[:_LONGEST_QUESTION]


@dataclass(frozen=True, slots=True)
class Example:
    """One case of a dataset.

    Attributes:
        id: Pairs the runs of several experiments.
        inputs: The input of the system.
        reference_outputs: The expected output, or None.
        metadata: Further information.
    """

    id: str
    inputs: Any
    reference_outputs: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> Any:
        """The reference outputs, under their name in LangSmith."""
        return self.reference_outputs

    @property
    def has_own_id(self) -> bool:
        """Whether the id is explicit, and not derived from the inputs."""
        hashes = (example_id(self.inputs), case_id(self.inputs))
        return self.id[:_HASH] not in hashes or _NUMBERS.fullmatch(self.id, _HASH) is None

    @property
    def case(self) -> str:
        """The hash of the question, with the number of a later turn."""
        numbers = None if self.has_own_id else _NUMBERS.fullmatch(self.id, _HASH)
        return case_id(self.inputs) + (numbers[1] if numbers else "")

    @property
    def title(self) -> str:
        """A readable name: the explicit id, or else the question."""
        return self.id if self.has_own_id else question_of(self.inputs) or self.id

    @property
    def question(self) -> str:
        """The user's question; of a session, which has all the user's messages, the first one."""
        messages = self.inputs.get("messages") if isinstance(self.inputs, Mapping) else self.inputs
        is_session = (
            isinstance(messages, list)
            and bool(messages)
            and all(
                isinstance(message, Mapping) and message.get("role") == "user"
                for message in messages
            )
        )
        text = question_of(messages[:1] if is_session and messages else self.inputs)
        return text or self.title

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, which is also a line of a dataset file."""
        return {
            "id": self.id,
            "inputs": self.inputs,
            "reference_outputs": self.reference_outputs,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True)
class Dataset:
    """A named list of examples.

    Attributes:
        name: The name.
        examples: The examples, with unique ids.
        source: The origin of the examples, such as a file.
        created_ns: The time of creation.
    """

    name: str
    examples: tuple[Example, ...]
    source: str = ""
    created_ns: int = 0

    @property
    def version(self) -> str:
        """A hash of the examples, which is independent of the name."""
        digest = hashlib.blake2b(digest_size=8)
        for example in self.examples:
            digest.update(canonical(example.as_dict()).encode() + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Experiment:
    """The result of one system on a dataset, or a comparison of several such results.

    Attributes:
        id: A unique id.
        name: A name that is unique in a store.
        prefix: The part of the name that the user chose.
        description: A description for people.
        metadata: Further information.
        dataset: The name of the dataset.
        dataset_version: The version of the dataset.
        repetitions: The number of runs of each example.
        expected: The number of runs once the experiment is complete.
        kind: ``experiment`` or ``comparison``.
        compared: The names of the compared experiments, for a comparison.
        created_ns: The time of creation.
    """

    id: str
    name: str
    prefix: str = ""
    description: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    dataset_version: str = ""
    repetitions: int = 1
    expected: int = 0
    kind: Literal["experiment", "comparison"] = "experiment"
    compared: tuple[str, ...] = ()
    created_ns: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a system on one example.

    Attributes:
        id: A unique id.
        experiment_id: The experiment.
        example_id: The example.
        repetition: The number of the repetition, from 0.
        inputs: The input of the system.
        outputs: The output of the system; None if it failed.
        error: The error if it failed, or "".
        trajectory_id: The id of the stored trajectory of the run, or "".
        trajectory: That trajectory, or a trajectory built from outputs that are messages; None
            without either.
        facts: The facts about the trajectory that its messages do not show: ``agent``, ``service``,
            ``models``, ``usage`` and ``gaps``, in the form of `Trajectory.as_dict`.
        start_ns: The start time.
        end_ns: The end time.
    """

    id: str
    experiment_id: str
    example_id: str
    repetition: int = 0
    inputs: Any = None
    outputs: Any = None
    error: str = ""
    trajectory_id: str = ""
    trajectory: Trajectory | None = None
    start_ns: int = 0
    end_ns: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def was_made(self) -> bool:
        """Whether the system ran; otherwise the run shows nothing about it."""
        return not self.error.startswith(NOT_RUN)


@record
class Feedback(EvaluationResult):
    """The result of one evaluator for one run, as it is stored.

    Attributes:
        run_id: The run; "" for a verdict on the whole experiment.
        evaluator: The name of the evaluator.
        version: A hash of its code or configuration.
        key: The name of the metric.
        latency_ns: The duration of the evaluation.
        time_ns: The time of the evaluation. All verdicts of one call have the same time.
    """

    run_id: str
    evaluator: str
    version: str
    key: str
    _: KW_ONLY
    latency_ns: int = 0
    time_ns: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "key": self.key,
            "evaluator": self.evaluator,
            "version": self.version,
            "status": self.status,
            "score": self.score,
            "passed": self.passed,
            "label": self.label or None,
            "comment": self.comment or None,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer of a pairwise evaluator.

    Attributes:
        experiment_id: The comparison.
        evaluator: The name of the evaluator.
        version: A hash of its code or configuration.
        key: The name of the metric.
        example_id: The example.
        repetition: The number of the repetition, from 0.
        shown: The ids of the runs, in the order that the evaluator saw.
        scores: The scores of the runs, in that order; empty unless `status` is ``ok``.
        status: ``ok`` or ``error``.
        comment: The reason for the answer.
        metadata: Figures that reproduce the answer.
        latency_ns: The duration of the evaluation.
        time_ns: The time of the evaluation.
    """

    experiment_id: str
    evaluator: str
    version: str
    key: str
    example_id: str
    repetition: int
    shown: tuple[str, ...]
    scores: Sequence[float] = ()
    status: Status = "ok"
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    latency_ns: int = 0
    time_ns: int = 0

    def score_of(self, run_id: str) -> float:
        """The score of a run."""
        return self.scores[self.shown.index(run_id)]
