"""The trajectory match evaluators, with the names and call shapes of agentevals.

An evaluator is called with keywords, ``(*, outputs, reference_outputs, inputs=None, **extra)``,
and returns a dict with exactly ``key``, ``score``, ``comment`` and ``metadata``. The score is a
bool unless `score_type` names a figure; the comment is None exactly for a pass. Unknown keywords
are ignored. `oteval.compare` returns the same verdict without the dict.

The fixed functions (`trajectory_unordered_match` and so on) ignore arguments, except
`trajectory_strict_match`, which compares them by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from ..base.errors import ConfigError
from ..model import (
    CONTENT_GAPS,
    EvaluationResult,
    Fact,
    Message,
    OutlineRequest,
    Reference,
    ToolCall,
    Trajectory,
)
from .comparison import FunctionAnswers, Unanswered, Verdict, compare, compare_calls
from .evaluator import (
    EvaluationContext,
    Evaluator,
    NotEvaluated,
    ReferenceOption,
    Resources,
    refuse_unseen,
)
from .factories import AsyncEvaluator, as_async, async_variant, fixed, with_options_of
from .messages import passed_run, to_messages
from .options import InConfig, Share
from .outline import HashedCalls, OutlinedCalls, Unread, call_hashes, compares_hashes
from .rules import Custom, Rule
from .spec import ArgsMatch, MatchSpec, Mode, View, make_spec

__all__ = [
    "SCORE_TYPES",
    "FigureMatch",
    "ScoreType",
    "TrajectoryMatch",
    "create_async_trajectory_match_evaluator",
    "create_trajectory_match_evaluator",
    "trajectory_strict_match",
    "trajectory_strict_match_async",
    "trajectory_subset",
    "trajectory_subset_async",
    "trajectory_superset",
    "trajectory_superset_async",
    "trajectory_unordered_match",
    "trajectory_unordered_match_async",
]

ScoreType = Literal["bool", "f1", "recall", "precision"]
SCORE_TYPES: tuple[ScoreType, ...] = ("bool", "f1", "recall", "precision")

# The most calls of references that outlines distinguish: each is compared with every call.
_TOLD_APART = 64

_ArgsInConfig = Literal["exact", "ignore", "subset", "superset", "tolerant"] | dict[str, Any]


class FigureMatch(Evaluator):
    """A comparison with a reference: it passes or fails, or one of its figures is the score.

    Attributes:
        score_type: The score: ``bool``, or a figure.
        threshold: The lowest figure with which a stored run passes.
    """

    score_type: ScoreType
    threshold: float

    def figure_of(self, result: EvaluationResult) -> float | bool | None:
        """The score that callers get: the figure that `score_type` names."""
        return result.passed if self.score_type == "bool" else result.score

    def result_of(self, verdict: Verdict, **figures: Any) -> EvaluationResult:
        """A verdict as a result, with more figures in its metadata."""
        passed, metadata = verdict.passed, verdict.metadata()
        score = 1.0 if passed else 0.0
        if self.score_type != "bool":
            score = float(getattr(verdict, self.score_type))
            passed = score >= self.threshold
        if figures:
            metadata.update(figures)
        label, comment = "pass" if passed else "fail", verdict.comment or ""
        return EvaluationResult(
            score=score, label=label, passed=passed, comment=comment, metadata=metadata
        )

    def describe_verdict(self) -> dict[str, Any]:
        """The threshold: only verdicts on stored runs depend on it."""
        return {"threshold": self.threshold}


@dataclass(frozen=True, kw_only=True)
class TrajectoryMatch(FigureMatch):
    """Compares a trajectory's tool calls with a reference's.

    Attributes:
        trajectory_match_mode: How the calls are compared: ``strict``, ``unordered``, ``subset``,
            ``superset`` or ``in_order``.
        tool_args_match_mode: How arguments are compared: a mode, or
            ``{tolerant: {sets: [field]}}``; `oteval.evaluators.spec` lists the forms.
        tool_args_match_overrides: Per tool, the form to use instead: a mode, a list of the fields
            to compare, or a mapping.
        view: Which calls count: ``all``; ``writes``, the calls to tools that change something;
            ``effects``, the same without the output's failed writes.
        effect_tools: The tools that change something. Tool definitions of a trajectory that carry
            ``readOnlyHint`` are used as well.
        error_pattern: A regular expression. Only results whose text it matches, or that are
            flagged, are errors. By default a result must report an error or begin like one.
        score_type: The score: ``bool``, or the figure ``f1``, ``recall`` or ``precision``.
        strict_order: Whether strict also compares the order inside a message.
        missing_ok: Whether a compared field counts as equal if both sides lack it.
        threshold: The lowest score with which a stored run passes, unless `score_type` is ``bool``.
        judge: The language model that compares fields that are ``judged``: ``model`` and more
            options of ``type: judge``, such as ``max_cost``. In Python also with
            ``api_key``, or a judge of `create_llm_as_judge`.
        spec: The comparison that these options describe.
    """

    type: ClassVar[str] = "trajectory_match"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "A JSON file of messages, {trajectory: ID}, {name: NAME}, {dataset, key}, or "
        "{any: [...]} of these, of which the best match counts.",
        is_required=True,
        accepts_several=True,
    )
    reads_outputs: ClassVar[bool] = True
    awaits_functions: ClassVar[bool] = False
    """Whether functions among the argument forms may be coroutine functions."""

    trajectory_match_mode: Annotated[Mode, InConfig("mode")] = "strict"
    tool_args_match_mode: Annotated[ArgsMatch, InConfig("tool_args", _ArgsInConfig)] = "exact"
    tool_args_match_overrides: Annotated[
        Mapping[str, Any] | None, InConfig("overrides", dict[str, Any] | None)
    ] = None
    view: View = "all"
    effect_tools: Annotated[Iterable[str] | None, InConfig(form=list[str] | None)] = None
    error_pattern: Annotated[str | re.Pattern[str] | None, InConfig(form=str | None)] = None
    score_type: ScoreType = "bool"
    strict_order: bool = False
    missing_ok: bool = True
    threshold: Share = 1.0
    judge: Annotated[Any, InConfig(form=dict[str, Any] | None)] = None
    spec: MatchSpec = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the comparison of the options.

        Raises:
            ConfigError: A value is wrong; the text names the option and the values to use.
        """
        if self.judge is not None:
            object.__setattr__(self, "judge", _field_judge(self.judge))
        spec = make_spec(
            trajectory_match_mode=self.trajectory_match_mode,
            tool_args_match_mode=self.tool_args_match_mode,
            tool_args_match_overrides=self.tool_args_match_overrides or None,
            view=self.view,
            effect_tools=self.effect_tools or None,
            error_pattern=self.error_pattern,
            strict_order=self.strict_order,
            missing_ok=self.missing_ok,
            is_async=self.awaits_functions and self.judge is None,
            judge=self.judge,
        )
        object.__setattr__(self, "spec", spec)
        if spec.asks_model != (self.judge is not None):
            raise ConfigError("judge: no field is judged; write overrides: {TOOL: {FIELD: judged}}")
        if self.judge is not None:
            object.__setattr__(self, "is_slow", True)
            object.__setattr__(self, "asks_models", True)
        if self.score_type not in SCORE_TYPES:
            score_types = ", ".join(SCORE_TYPES)
            raise ConfigError(
                f"score_type: unknown value {self.score_type!r}; known: {score_types}"
            )

    @cached_property
    def key(self) -> str:
        """The score's name in results."""
        return self.feedback_key or f"trajectory_{self.spec.mode}_match"

    @property
    def concurrency(self) -> int:
        """How many runs may be evaluated at once."""
        return 1 if self.judge is None else int(self.judge.concurrency)

    @property
    def cost_per_day(self) -> float | None:
        """The daily limit on the cost of judged fields, in US dollars; None for no limit."""
        cost: float | None = None if self.judge is None else self.judge.cost_per_day
        return cost

    def check_prices(self, limits: Sequence[str]) -> None:
        """Refuse limits on the cost if the price of a model is not known."""
        if self.judge is not None:
            self.judge.check_prices(limits)

    def prepare(self, resources: Resources) -> Self:
        """The evaluator with its judge created."""
        return self if self.judge is None else replace(self, judge=self.judge.prepare(resources))

    def close(self) -> None:
        """Close the connections that the judge opened."""
        if self.judge is not None:
            self.judge.close()

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare a run with its reference, both in any form of `oteval.evaluators.messages`."""
        if self.judge is None:
            return self._compared(context)
        run = context.trajectory
        with self.judge.evaluation("" if run is None else run.id) as questions:
            result = self._compared(context)
        return replace(result, metadata={**result.metadata, **questions.metadata()})

    def _compared(self, context: EvaluationContext) -> EvaluationResult:
        run, expected = context.trajectory, context.reference_outputs
        if run is None:
            if not context.is_call:
                raise NotEvaluated("the run is not known")
            verdict = compare(context.outputs, expected, self.spec)
            if not verdict.matched + verdict.extra:
                refuse_unseen(passed_run(context.outputs), context.messages)
            return self.result_of(verdict)
        if expected is None and not context.is_call:
            raise NotEvaluated("there is no reference")
        result = self._compare_run(run, context.messages, expected, self.spec)
        context.require_all_calls()
        if not result.passed:
            reference = to_messages(expected, "reference_outputs")
            self._refuse_unknown(run, context.messages, reference)
        return result

    def _compare_run(
        self,
        run: Trajectory,
        messages: Sequence[Message],
        reference: Any,
        spec: MatchSpec,
    ) -> EvaluationResult:
        outputs: Any = messages
        if spec.view != "all":
            # The tool definitions are passed on: they may name the tools that change something.
            outputs = replace(run, tail=tuple(messages), history=None, new_from=0)
        return self.result_of(compare(outputs, reference, spec))

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:
        """The columns of the calls, unless arguments are compared by more than equality."""
        rules = [self.spec.args, *self.spec.overrides.values()]
        if self.spec.view != "all" or not all(map(compares_hashes, rules)):
            return None
        facts: set[Fact] = set() if all(rule.blind for rule in rules) else {"call_hashes"}
        if self.spec.mode == "strict":
            facts.add("overlapping")
        reference_messages = [
            to_messages(list(reference.messages), "reference_outputs") for reference in references
        ]
        hashes = {
            call_hash
            for messages in reference_messages
            for call_hash in call_hashes(messages)
            if call_hash is not None
        }
        calls = tuple(sorted(hashes)) if len(hashes) <= _TOLD_APART else None
        return OutlineRequest(frozenset(facts), calls)

    def evaluate_outline(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the calls of an outline with the reference, by their hashes."""
        run, expected = context.trajectory, context.reference_outputs
        if run is None or expected is None:
            raise NotEvaluated("there is no reference")
        context.require_all_calls()
        out = OutlinedCalls(context.messages)
        ref = HashedCalls(to_messages(expected, "reference_outputs"))
        if self.spec.mode == "strict" and context.outline["overlapping"]:
            raise Unread("times")
        result = self.result_of(compare_calls(out, ref, self.spec))
        if not result.passed and None in (*out.raw, *ref.raw):
            raise Unread("arguments")  # unknown ones might have matched
        return result

    def _refuse_unknown(
        self, run: Trajectory, messages: Sequence[Message], reference: Sequence[Message]
    ) -> None:
        """Refuse a failure that would pass if the missing arguments were as expected."""
        unseen, unsaid = _tools_without_arguments(messages), _tools_without_arguments(reference)
        if not unseen and not unsaid:
            return
        overrides = {tool: _lenient(rule) for tool, rule in self.spec.overrides.items()}
        spec = replace(self.spec, args=_lenient(self.spec.args), overrides=overrides)
        if not self._compare_run(run, _marked(messages), _marked(reference), spec).passed:
            return
        lost = next((gap for gap in run.gaps if gap.code in CONTENT_GAPS), None)
        why = f" ({lost.code}: {lost.detail})" if lost and unseen else ""
        where = "trace" if unseen else "reference"
        raise NotEvaluated(
            f"the arguments of {', '.join(unseen or unsaid)} are not in the {where}{why}"
        )

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        return {
            "type": self.type,
            "key": self.key,
            "score_type": self.score_type,
            **self.spec.describe(),
            **({} if self.judge is None else {"judge": self.judge.describe()}),
        }


class AsyncTrajectoryMatch(TrajectoryMatch):
    """A `TrajectoryMatch` whose argument forms may contain coroutine functions."""

    awaits_functions: ClassVar[bool] = True
    answers: ClassVar[FunctionAnswers | None] = None
    """The answers of the functions while a call awaits them."""

    async def acall(self, **case: Any) -> dict[str, Any]:
        """Compare outputs with the reference, awaiting functions that are asynchronous."""
        if self.judge is not None:  # its questions would block the event loop
            import asyncio

            return await asyncio.to_thread(self, **case)
        waiting, answers = copy(self), FunctionAnswers()
        object.__setattr__(waiting, "spec", answers.spec(self.spec))
        object.__setattr__(waiting, "answers", answers)
        while True:
            try:
                return waiting(**case)
            except Unanswered:
                await answers.answer()

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare a run with its reference.

        Raises:
            Unanswered: A function was not called for a pair that matters.
        """
        result = super().evaluate(context)
        if self.answers is not None and self.answers.open:
            raise Unanswered
        return result


def _tools_without_arguments(messages: Sequence[Message]) -> list[str]:
    calls = [call for message in messages for call in message.tool_calls]
    return list(dict.fromkeys(call.name for call in calls if call.arguments is None))


# Marks arguments that were not captured, when they are assumed to be as expected.
_UNKNOWN: dict[str, Any] = {}


def _marked(messages: Sequence[Message]) -> list[Message]:
    def marked(call: ToolCall) -> ToolCall:
        return replace(call, arguments=_UNKNOWN) if call.arguments is None else call

    return [replace(m, tool_calls=tuple(marked(call) for call in m.tool_calls)) for m in messages]


def _lenient(rule: Rule) -> Rule:
    """A rule that also accepts arguments that were not captured."""
    return Custom(lambda out, ref: out is _UNKNOWN or ref is _UNKNOWN or rule.matches(out, ref))


@with_options_of(TrajectoryMatch)
def create_trajectory_match_evaluator(**options: Any) -> TrajectoryMatch:
    """Create an evaluator that compares a trajectory's tool calls with a reference's.

    Args:
        **options: The options of `TrajectoryMatch`.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return TrajectoryMatch(**options)


@with_options_of(AsyncTrajectoryMatch)
def create_async_trajectory_match_evaluator(**options: Any) -> AsyncEvaluator[TrajectoryMatch]:
    """Create a coroutine function that compares a trajectory's tool calls with a reference's.

    Functions among the argument forms may be coroutine functions; they are awaited.

    Args:
        **options: The options of `TrajectoryMatch`.

    Returns:
        The evaluator; its ``evaluator`` attribute contains the configuration.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return as_async(AsyncTrajectoryMatch(**options))


def _field_judge(value: Any) -> Any:
    """The judge of an option; imported only when needed, because judges take long to import."""
    from .judge.field_judge import field_judge

    return field_judge(value)


def _ignoring(mode: Mode, key: str) -> TrajectoryMatch:
    return TrajectoryMatch(
        trajectory_match_mode=mode, tool_args_match_mode="ignore", feedback_key=key
    )


_STRICT = TrajectoryMatch()
_STRICT_IGNORE = _ignoring("strict", "trajectory_strict_match")
_UNORDERED = _ignoring("unordered", "trajectory_unordered_match")
_SUBSET = _ignoring("subset", "trajectory_subset")
_SUPERSET = _ignoring("superset", "trajectory_superset")


@fixed(_STRICT)
def trajectory_strict_match(
    *,
    outputs: Any,
    reference_outputs: Any = None,
    inputs: Any = None,
    tool_call_args_exact_match: bool = True,
    **extra: Any,
) -> dict[str, Any]:
    """Compare messages one by one: roles, and the calls with their arguments.

    Args:
        outputs: The trajectory.
        reference_outputs: The expected trajectory.
        inputs: Not used.
        tool_call_args_exact_match: False to ignore the arguments.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side cannot be read as a trajectory; the text names the place.
    """
    chosen = _STRICT if tool_call_args_exact_match else _STRICT_IGNORE
    return chosen(outputs=outputs, reference_outputs=reference_outputs, inputs=inputs, **extra)


@fixed(_UNORDERED)
def trajectory_unordered_match(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Check that the same tools are called equally often, in any order."""
    return _UNORDERED(outputs=outputs, reference_outputs=reference_outputs, **extra)


@fixed(_SUBSET)
def trajectory_subset(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Check that no tool is called more often than in the reference."""
    return _SUBSET(outputs=outputs, reference_outputs=reference_outputs, **extra)


@fixed(_SUPERSET)
def trajectory_superset(*, outputs: Any, reference_outputs: Any = None, **extra: Any) -> Any:
    """Check that each tool is called at least as often as in the reference."""
    return _SUPERSET(outputs=outputs, reference_outputs=reference_outputs, **extra)


trajectory_strict_match_async = async_variant(trajectory_strict_match)
trajectory_unordered_match_async = async_variant(trajectory_unordered_match)
trajectory_subset_async = async_variant(trajectory_subset)
trajectory_superset_async = async_variant(trajectory_superset)
