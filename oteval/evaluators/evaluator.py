"""The base class of all evaluators, and the context of an evaluation.

An **evaluator** is a frozen, keyword-only dataclass whose fields are its options. The class is the
``type`` of oteval.yaml and the constructor that Python users call; `oteval.evaluators.options`
describes how fields become options. `Evaluator.evaluate` gets an `EvaluationContext` and returns an
`EvaluationResult`, or raises `NotEvaluated` if the trace lacks data for a verdict.

`oteval.evaluators.registry` finds the classes by their type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from ..base.errors import InputError, JudgeError
from ..base.notebook import html_of
from ..messages import field_of
from ..model import (
    CALL_GAPS,
    CONTENT_GAPS,
    FAILURE_GAPS,
    UNREAD_MODEL_GAPS,
    EvaluationResult,
    Gap,
    Message,
    Outline,
    OutlineRequest,
    Reference,
    ToolCall,
    Trajectory,
)
from .accepted import AnyOf, BestMatch, any_of, naming
from .messages import passed_run, to_messages
from .options import PYTHON_ONLY, check_options, describe_options
from .result_listeners import observed
from .values import show

__all__ = [
    "Call",
    "EvaluationContext",
    "EvaluationResult",
    "Evaluator",
    "NotEvaluated",
    "ReferenceOption",
    "RequestLimit",
    "Resources",
    "ReturnedResult",
    "refuse_empty",
    "refuse_unseen",
    "runs_of",
]


class RequestLimit(Protocol):
    """A limit on requests to models."""

    def take(self) -> None:
        """Count a request that is about to be sent.

        Raises:
            BudgetSpent: The limit is reached.
        """
        ...


class Resources(NamedTuple):
    """Files, functions and stored answers that a configured evaluator may use.

    Attributes:
        name: The evaluator's name in oteval.yaml.
        has_reference: Whether it has a reference.
        read_text: Reads a file, whose path is relative to the configuration. Raises `ConfigError`.
        load_function: Imports ``module:function``, also from the configuration's folder.
            Raises `ConfigError`.
        environment: Environment variables.
        folder: The folder of the configuration.
        stored_calls: Returns the stored calls of language models, given the class of a call; None
            if no calls are stored.
        spent_today: Returns the cost of its model calls since midnight UTC, in US dollars.
        is_budgeted: Whether the evaluator keeps its own budget; in live scoring the server does.
        request_limit: A limit on requests to models that several processes share.
        job_budget: Returns a budget that several processes share, given its limit in US dollars.
    """

    name: str
    has_reference: bool
    read_text: Callable[[str], str]
    load_function: Callable[[str], Callable[..., Any]]
    environment: Mapping[str, str]
    folder: str = "."
    stored_calls: Callable[[Any], Any] | None = None
    spent_today: Callable[[], float] = lambda: 0.0
    is_budgeted: bool = True
    request_limit: RequestLimit | None = None
    job_budget: Callable[[float], Any] | None = None


Scope = Literal["turn", "conversation"]


class ReturnedResult(dict[str, Any]):
    """A result as callers get it: a dict that notebooks show as the report does."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The verdict and its reason, for notebooks."""
        return html_of(self)


class NotEvaluated(Exception):
    """The run cannot be evaluated; the message has the reason.

    Attributes:
        metadata: Figures of the attempt, such as the cost of answers.
    """

    metadata: Mapping[str, Any] = MappingProxyType({})

    def result(self) -> EvaluationResult:
        """The result of the evaluation."""
        return EvaluationResult(
            status="not_evaluated", comment=str(self), metadata=dict(self.metadata)
        )


def refuse_empty(run: Trajectory, messages: Sequence[Message], *, needs_messages: bool) -> None:
    """Refuse a run without messages, if an evaluator needs them or the run was not read.

    Raises:
        NotEvaluated: The messages are missing.
    """
    if messages:
        return
    failed = any(gap.code in FAILURE_GAPS for gap in run.gaps)
    if failed or needs_messages:
        reasons = "; ".join(f"{gap.code}: {gap.detail}" for gap in run.gaps[:1])
        raise NotEvaluated(reasons or "the run has no messages")


def refuse_unseen(trajectory: Trajectory, messages: Sequence[Message]) -> None:
    """Refuse a run whose calls the trace may not show completely.

    Calls may be missing if content is missing and no tool span shows a call. If spans were
    recognised by their shape, tool spans of another shape may have been overlooked. If no model
    call was read, messages that show calls show all of them, but messages without calls prove
    nothing. A call without a name was left out by the emitter.

    Raises:
        NotEvaluated: Calls may be missing.
    """
    calls = [call for message in messages for call in message.tool_calls]
    if not all(call.name for call in calls):
        raise NotEvaluated(_gap_text(trajectory, {"calls_left_out"}) or "a call has no name")
    if not calls and (text := _gap_text(trajectory, UNREAD_MODEL_GAPS)):
        raise NotEvaluated(text)
    text = _gap_text(trajectory, CALL_GAPS)
    is_guess = any(gap.code == "read_by_shape" for gap in trajectory.gaps)
    if text and (is_guess or not any(call.span_id for call in calls)):
        raise NotEvaluated(text)


def _gap_text(run: Trajectory, codes: Collection[str]) -> str:
    """The text of a run's first gap with one of the codes, or ""."""
    gap = next((gap for gap in run.gaps if gap.code in codes), None)
    return "" if gap is None else f"{gap.code}: {gap.detail}"


def runs_of(trajectory: Trajectory) -> list[Trajectory]:
    """The runs of a trajectory's conversation, oldest first; the trajectory comes last."""
    runs: list[Trajectory] = []
    run: Trajectory | None = trajectory
    while run is not None:
        runs.append(run)
        run = run.history
    return runs[::-1]


@dataclass(frozen=True)
class Call:
    """A tool call and its place in the run.

    Attributes:
        index: Its number among all calls, from 0.
        at: The number of the message that asks for it, from 0.
        call: The call.
    """

    index: int
    at: int
    call: ToolCall

    def __str__(self) -> str:
        """How a comment names the call."""
        arguments = "arguments were not captured"
        if self.call.arguments is not None:
            arguments = show(self.call.arguments, 60)
        return f"call {self.index} {self.call.name}({arguments})"


@dataclass(eq=False)
class EvaluationContext:
    """A run, its reference, and the data that an evaluator needs of both.

    Attributes:
        outputs: The messages; in a direct call, the caller's value in any form.
        trajectory: The run of the messages, or None if only messages are known.
        reference_outputs: The expected outputs, or None. They are the value that a caller passed,
            or the messages of the configured reference.
        reference: The configured reference, which also has a name and the steps of a graph; None
            in a direct call.
        scope: Whether the messages belong to the run (``turn``) or to its whole conversation.
        is_call: Whether an evaluator was called with `outputs`, rather than for a run.
        outline: The columns, if only an outline of the run is known; otherwise empty.
    """

    outputs: Any
    trajectory: Trajectory | None = None
    reference_outputs: Any = None
    reference: Reference | None = None
    scope: Scope = "turn"
    is_call: bool = False
    outline: Outline = field(default_factory=dict)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages.

        Raises:
            InputError: The caller's value cannot be read; the text names the place.
        """
        return to_messages(self.outputs, "outputs") if self.is_call else self.outputs

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The definitions of the tools that the model was offered."""
        call_tools = _tools_beside(self.outputs) if self.is_call else ()
        return (*call_tools, *(tool for run in self.runs for tool in run.tools))

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """All calls, in order."""
        pairs = [(at, call) for at, m in enumerate(self.messages) for call in m.tool_calls]
        return tuple(Call(index, at, call) for index, (at, call) in enumerate(pairs))

    @property
    def runs(self) -> tuple[Trajectory, ...]:
        """The runs that the messages belong to, oldest first; none if only messages are known."""
        if self.trajectory is None:
            return ()
        if self.scope == "conversation":
            return tuple(runs_of(self.trajectory))
        return (self.trajectory,)

    @property
    def question(self) -> str | None:
        """The first user message, or None."""
        return next((m.content for m in self.messages if m.role == "user"), None)

    def gap(self, *codes: str) -> Gap | None:
        """The first gap of the runs with one of the codes, or None."""
        return next((gap for run in self.runs for gap in run.gaps if gap.code in codes), None)

    def content_gap(self, *codes: str) -> Gap | None:
        """A gap that may hide content, or that has one of the codes; or None."""
        return self.gap(*CONTENT_GAPS, *codes)

    def require_all_calls(self) -> None:
        """Refuse a run that may have made calls which the trace does not show.

        Raises:
            NotEvaluated: Calls may be missing.
        """
        if self.runs and not self.messages:
            raise NotEvaluated("the run has no messages")
        for run in self.runs:
            own = run.own_messages if self.scope == "conversation" else self.messages
            refuse_unseen(run, own)


class ReferenceOption(NamedTuple):
    """The ``reference`` that evaluators of a type may have in oteval.yaml.

    Attributes:
        description: The values that it may have.
        is_required: Whether it must be given.
        form: Whether references are messages or the steps of a graph.
        accepts_several: Whether several references are allowed; the best match counts.
    """

    description: str
    is_required: bool = False
    form: Literal["messages", "steps"] = "messages"
    accepts_several: bool = False


@dataclass(frozen=True, kw_only=True)
class Evaluator(ABC):
    """Evaluates runs by its options.

    Subclasses are frozen, keyword-only dataclasses.

    Attributes:
        feedback_key: The score's name in results; by default the evaluator's type.
    """

    type: ClassVar[str]
    """Its ``type`` in oteval.yaml."""
    reference: ClassVar[ReferenceOption | None] = None
    """The ``reference`` it may have in oteval.yaml."""
    needs_messages: ClassVar[bool] = True
    """Whether a run without messages cannot be evaluated."""
    is_slow: ClassVar[bool] = False
    """Whether an evaluation may take long, so that a server runs it in a thread."""
    asks_models: ClassVar[bool] = False
    """Whether it asks language models. Their verdicts cost money and are reused."""
    reads_outputs: ClassVar[bool] = False
    """Whether it reads the `outputs` of a direct call itself, without making messages of them."""

    feedback_key: Annotated[str, PYTHON_ONLY] = ""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigError: A value is wrong; the text names the option.
        """
        check_options(self)
        self.check_combination()

    def check_combination(self) -> None:  # noqa: B027
        """Refuse options that do not go together.

        Raises:
            ConfigError: The options do not go together.
        """

    def check_reference(self, *, has_reference: bool) -> None:  # noqa: B027
        """Refuse options that do not fit the reference, or that need one.

        Raises:
            ConfigError: The options do not fit.
        """

    @property
    def key(self) -> str:
        """The score's name in results."""
        return self.feedback_key or self.type

    @property
    def __name__(self) -> str:
        return self.key

    @property
    def concurrency(self) -> int:
        """How many runs may be evaluated at once."""
        return 1

    @property
    def time_limit(self) -> float | None:
        """The seconds after which an evaluation ends by itself; None for no limit."""
        return None

    @property
    def cost_per_day(self) -> float | None:
        """The daily limit on the cost of its model calls, in US dollars; None for no limit."""
        return None

    def check_prices(self, limits: Sequence[str]) -> None:  # noqa: B027
        """Refuse limits on the cost if the price of a model is not known.

        Args:
            limits: The settings that limit the cost, in addition to the evaluator's options.

        Raises:
            ConfigError: A price is missing; the text shows how to set it.
        """

    def expected_cost(self, messages: Sequence[Message]) -> float | None:  # noqa: ARG002
        """The minimum cost of evaluating messages, in US dollars; None if unknown."""
        return None

    @abstractmethod
    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Evaluate a run.

        Raises:
            NotEvaluated: The trace lacks data for a verdict.
            Exception: The evaluator failed.
        """

    def outline_request(
        self,
        references: Sequence[Reference],  # noqa: ARG002
    ) -> OutlineRequest | None:
        """The columns that decide most stored runs, or None if a run is always read.

        Args:
            references: The references that runs may have.
        """
        return None

    def evaluate_outline(self, context: EvaluationContext) -> EvaluationResult:
        """Evaluate a run from the columns of `outline_request` alone.

        The result equals that of `evaluate`. By default it calls `evaluate`. Reading unknown data
        raises `oteval.evaluators.outline.Unread`, and the whole run is then read.

        Raises:
            NotEvaluated: The trace lacks data for a verdict.
        """
        return self.evaluate(context)

    def __call__(
        self,
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,  # noqa: ARG002  part of every evaluator's signature
        **extra: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Evaluate a trajectory.

        Args:
            outputs: The trajectory, in any form of `oteval.evaluators.messages`. For a
                `Trajectory`, the whole conversation counts, with its usage, times, tools and gaps.
                For a dict, ``gaps`` next to the messages count as well.
            reference_outputs: The expected outputs, for an evaluator that compares; an `AnyOf` if
                several are accepted.
            inputs: Not used.
            **extra: Not used.

        Returns:
            ``key``, ``score`` (a bool for a pass or a fail; None if the trajectory could not be
            evaluated), ``comment`` (None for a pass) and ``metadata``.

        Raises:
            InputError: The trajectory or a reference cannot be read; the text names the place.
        """
        references = None
        # A list is one reference; a test of its type takes a tenth of the time of a small match.
        if type(reference_outputs) is not list and self.reference is not None:
            references = self._accepted(reference_outputs)
        if references is None:
            return observed(self._returned(self._decided(outputs, reference_outputs)))
        best: BestMatch[EvaluationResult] = BestMatch(len(references.any))
        for name, reference in best.open(references.items()):
            with naming(name):
                best.add(name, self._decided(outputs, reference))
        return observed(self._returned(best.result()))

    def _accepted(self, reference_outputs: Any) -> AnyOf | None:
        """Several accepted references; None if there is one.

        Raises:
            InputError: The evaluator compares with one reference, or the form is wrong.
        """
        assert self.reference is not None
        if self.reference.accepts_several:
            return any_of(reference_outputs)
        if isinstance(reference_outputs, AnyOf):
            raise InputError(f"{self.key} compares with one reference; it takes no AnyOf")
        return None

    def _decided(self, outputs: Any, reference_outputs: Any) -> EvaluationResult:
        """The result of a call with one reference; see `__call__`.

        Raises:
            InputError: The trajectory or the reference cannot be read; the text names the place.
        """
        run = self._run_of(outputs)
        context = EvaluationContext(
            outputs, run, reference_outputs, scope="conversation", is_call=True
        )
        try:
            if run is not None:
                refuse_empty(run, context.messages, needs_messages=self.needs_messages)
            return self.evaluate(context)
        except NotEvaluated as reason:
            return reason.result()
        except JudgeError as error:
            metadata = {**getattr(error, "metadata", {}), "error": str(error)}
            return EvaluationResult(status="error", comment=str(error), metadata=metadata)

    def _run_of(self, outputs: Any) -> Trajectory | None:
        """The run of a call; None if only messages are known and they show the calls.

        Raises:
            InputError: The messages cannot be read; the text names the place.
        """
        if self.reads_outputs and type(outputs) is list:
            return None
        if self.reference is not None and self.reference.form == "steps":
            return None
        run = passed_run(outputs)
        return run if run.gaps or run is outputs else None

    def _returned(self, result: EvaluationResult) -> dict[str, Any]:
        """A result as callers get it."""
        metadata = result.metadata
        metadata = {**metadata} if result.status == "ok" else {**metadata, "status": result.status}
        score, comment = self.figure_of(result), result.comment or None
        fields = {"key": self.key, "score": score, "comment": comment, "metadata": metadata}
        return ReturnedResult(fields)

    def figure_of(self, result: EvaluationResult) -> float | bool | None:
        """The score that callers get: a bool if the result passes or fails."""
        return result.score if result.passed is None else result.passed

    async def acall(self, **case: Any) -> dict[str, Any]:
        """Call the evaluator without blocking the event loop."""
        return self(**case)

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        return {"type": self.type, "key": self.key, **describe_options(self)}

    def describe_verdict(self) -> dict[str, Any]:
        """The options that only verdicts on stored runs depend on, such as a threshold."""
        return {}

    def prepare(self, resources: Resources) -> Self:  # noqa: ARG002
        """The evaluator with the files and functions that its options name.

        Raises:
            ConfigError: A file or function is missing.
        """
        return self

    def close(self) -> None:  # noqa: B027
        """Close connections that were opened."""


def _tools_beside(outputs: Any) -> tuple[Mapping[str, Any], ...]:
    """The definitions next to the messages; for a `Trajectory`, the definitions of its runs."""
    if isinstance(outputs, Trajectory):
        return ()
    tools = field_of(outputs, "tools") if not isinstance(outputs, (list, tuple)) else None
    return tuple(tools) if isinstance(tools, (list, tuple)) else ()
