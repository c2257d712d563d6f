"""The evaluator ``type: judge`` of oteval.yaml: a language model judges stored trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from annotated_types import Ge

from ...errors import ConfigError, JudgeError
from ...jsontext import dumps
from ...model import EvaluationResult, Message
from ..evaluator import (
    CONTENT_GAPS,
    EvaluationContext,
    Evaluator,
    NotEvaluated,
    ReferenceOption,
    Resources,
)
from ..options import PYTHON_ONLY, Amount, InConfig, Seconds
from .cache import JudgeCall
from .costs import Budget, Price, estimate_tokens, make_prices
from .evaluator import JudgeEvaluator
from .factory import create_trajectory_llm_as_judge
from .prompt import FEW_SHOT_EXAMPLES
from .prompts import PROMPTS, optional_variables
from .templates import closest_name, template_problem, template_variables

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["JuryMember", "LlmJudge", "VerdictMissing"]

RUN_VARIABLES = frozenset({"outputs", "reference_outputs", "thread"})
"""The variables that a run fills in, besides ``inputs`` if the prompt shows it."""

# The run that a judge is being asked about.
_EVALUATED_RUN: ContextVar[str] = ContextVar("oteval_evaluated_run", default="")


class VerdictMissing(JudgeError):
    """A judge gave no verdict.

    Attributes:
        metadata: The metadata of the calls, including their cost.
    """

    def __init__(self, message: str, metadata: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metadata = metadata


@dataclass(frozen=True, kw_only=True)
class JuryMember:
    """A judge of a jury.

    Attributes:
        model: ``openai:NAME``.
        base_url: Its server, if it is another.
        temperature: Its sampling temperature.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    model: str
    base_url: str | None = None
    temperature: Annotated[float, Ge(0)] | None = None


class _NameOrMember:
    """Tells a jury's names and members apart, so that an error is about what was meant."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        forms = {"str": core_schema.str_schema(), "JuryMember": handler(JuryMember)}
        return core_schema.tagged_union_schema(
            forms, lambda value: "JuryMember" if isinstance(value, (dict, JuryMember)) else "str"
        )


_Jury = Sequence[Annotated[str | JuryMember, _NameOrMember()]]


@dataclass(frozen=True, kw_only=True)
class LlmJudge(Evaluator):
    """Asks a language model.

    Attributes:
        model: ``openai:NAME``, for any OpenAI-compatible server.
        jury: Several models in place of one; the majority's verdict counts.
        prompt: ``trajectory_accuracy``, ``graph_trajectory_accuracy``, a file, or the text itself.
        system: A system message to put first.
        variables: More variables of the prompt, such as ``rubric``.
        instruction_variables: Variables that are instructions; all but ``rubric`` are data
            otherwise. ``few_shot_examples`` stands for `few_shot`.
        few_shot: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        continuous: Whether the score is a number from 0 to 1.
        choices: The numbers that the score may be.
        use_reasoning: Whether it gives its reasons first.
        threshold: From which score on it passes, with `continuous` or `choices`.
        samples: How often it is asked; the majority counts.
        harden: Whether runs are shown as data between delimiters.
        base_url: The server; by default the environment variable OPENAI_BASE_URL.
        api_key_env: The environment variable that holds the key.
        temperature: The sampling temperature.
        seed: The sampling seed.
        stream: Whether answers are streamed.
        request: More of the request, such as ``max_tokens``.
        timeout: How long a request may take with its retries: seconds, or a text such as ``90s``.
        max_retries: How often to try again.
        max_concurrency: How many runs to ask about at once.
        max_cost: US dollars a scoring may cost; in a server, a day.
        max_cost_per_day: US dollars it may cost from midnight UTC on.
        prices: Prices by model, in US dollars per million tokens, before those of the bundled
            table.
        judge: What asks the models; `prepare` makes it.
    """

    type: ClassVar[str] = "judge"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "What the prompt shows as {reference_outputs}."
    )
    is_slow: ClassVar[bool] = True
    asks_models: ClassVar[bool] = True

    model: str | None = None
    jury: Annotated[Sequence[Any] | None, InConfig(form=_Jury | None)] = None
    prompt: str = "trajectory_accuracy"
    system: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    instruction_variables: Sequence[str] = ()
    few_shot: Sequence[Mapping[str, Any]] = ()
    continuous: bool = False
    choices: Sequence[float] | None = None
    use_reasoning: bool = True
    threshold: float | None = None
    samples: Annotated[int, Ge(1)] = 1
    harden: bool = True
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: Annotated[float, Ge(0)] | None = None
    seed: int | None = None
    stream: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)
    timeout: Seconds = 60.0
    max_retries: Annotated[int, Ge(0)] = 2
    max_concurrency: Annotated[int, Ge(1)] = 8
    max_cost: Amount | None = None
    max_cost_per_day: Amount | None = None
    prices: Annotated[Mapping[str, Any] | None, InConfig(form=Mapping[str, Price] | None)] = None
    judge: Annotated[Any, PYTHON_ONLY] = None

    def check_combination(self) -> None:
        """Refuse options that exclude each other."""
        if (self.model is None) == (self.jury is None):
            raise ConfigError("give either model or jury")
        if self.continuous and self.choices is not None:
            raise ConfigError("continuous and choices exclude each other")
        if self.threshold is not None and not self.continuous and self.choices is None:
            raise ConfigError(
                "threshold goes with continuous or choices; a bool passes or does not"
            )

    @property
    def concurrency(self) -> int:
        """How many runs may be evaluated at once."""
        return self.max_concurrency

    @property
    def time_limit(self) -> float | None:
        """After how many seconds an evaluation ends by itself: those of all its requests."""
        return self.timeout * (1 + self.max_retries) * self.samples

    @property
    def cost_per_day(self) -> float | None:
        """What its questions to models may cost a day, in US dollars; None for any cost.

        A server never ends a scoring, so what a scoring may cost is meant by day, too.
        """
        costs = [cost for cost in (self.max_cost, self.max_cost_per_day) if cost is not None]
        return min(costs, default=None)

    def check_prices(self, limits: Sequence[str]) -> None:
        """Refuse limits on the cost where the price of a model is not known.

        Args:
            limits: The settings that limit the cost beside `max_cost` and `max_cost_per_day`.

        Raises:
            ConfigError: A price is missing; the text says how to give it.
        """
        own = [name for name in ("max_cost", "max_cost_per_day") if getattr(self, name) is not None]
        settings = [*own, *limits]
        if not settings:
            return
        prices = make_prices(self.prices)
        members = [one if isinstance(one, str) else one.model for one in self.jury or ()]
        for model in members or [self.model or ""]:
            name = model.removeprefix("openai:")
            if prices.of(name) is None:
                price = f"{{{name!r}: {{input: ..., output: ...}}}}"
                raise ConfigError(
                    f"{settings[0]} needs the price of {name!r}: add prices: {price} in US dollars "
                    "per million tokens"
                )

    def prepare(self, resources: Resources) -> Self:
        """Return the evaluator with its prompt read and its judge made.

        Raises:
            ConfigError: The prompt cannot be had, or an option is wrong.
        """
        prompt = self._prompt(resources)
        self.check_prices(())
        calls = None if resources.stored_calls is None else resources.stored_calls(JudgeCall)
        judge = create_trajectory_llm_as_judge(
            prompt=prompt,
            model=self.model,
            jury=None if self.jury is None else [_member(one) for one in self.jury],
            system=self.system,
            feedback_key=resources.name,
            continuous=self.continuous,
            choices=self.choices,
            use_reasoning=self.use_reasoning,
            few_shot_examples=self.few_shot or None,
            samples=self.samples,
            harden=self.harden,
            instruction_variables=self.instruction_variables,
            base_url=self.base_url,
            api_key=resources.environment.get(self.api_key_env) or None,
            temperature=self.temperature,
            seed=self.seed,
            stream=self.stream,
            request_options=dict(self.request),
            timeout=self.timeout,
            max_retries=self.max_retries,
            max_concurrency=self.max_concurrency,
            max_cost=self._budget(resources),
            prices=self.prices,
            cache=None if calls is None else _LinkedCalls(calls),
        )
        return replace(self, judge=judge)

    def _budget(self, resources: Resources) -> Budget | None:
        """Return what the judge may still spend: the smaller of its two limits."""
        limits = []
        if resources.is_budgeted and self.max_cost is not None:
            limits.append(Budget(self.max_cost))
        if resources.is_budgeted and self.max_cost_per_day is not None:
            spent = resources.spent_today()
            limits.append(Budget(self.max_cost_per_day, "max_cost_per_day", spent=spent))
        return min(limits, key=lambda one: one.limit - one.spent, default=None)

    def _prompt(self, resources: Resources) -> str:
        """Return the text of the prompt: a bundled one, a file's, or what the option says."""
        name, has_reference = self.prompt, resources.has_reference
        if name in PROMPTS:
            with_reference = f"{name}_with_reference"
            use = with_reference if has_reference and with_reference in PROMPTS else name
            text = PROMPTS[use]
        elif "\n" in name or "{" in name:
            text = name
        else:
            text = self._prompt_file(name, resources.read_text)
        self._check_variables(text, has_reference=has_reference)
        return text

    def _prompt_file(self, name: str, read_text: Callable[[str], str]) -> str:
        try:
            return read_text(name)
        except ConfigError as error:
            known = ", ".join(sorted(PROMPTS))
            raise ConfigError(
                f"prompt: {error}; bundled prompts are {known}, and a text of your own shows "
                "{outputs}"
            ) from None

    def _check_variables(self, text: str, *, has_reference: bool) -> None:
        """Refuse a prompt that shows what has no value, and variables that it does not show."""
        shown = template_variables(text)
        if name := next((name for name in self.variables if name in RUN_VARIABLES), ""):
            raise ConfigError(f"variables: {name!r} is filled in from the run; choose another name")
        if not shown & {"outputs", "thread"}:
            near = closest_name("outputs", shown)
            hint = f" in place of {{{near}}}" if near else " where the run belongs"
            raise ConfigError(f"prompt: it does not show {{outputs}}; write that{hint}")
        given = RUN_VARIABLES - {"reference_outputs"} | {"inputs", *self.variables}
        if has_reference:
            given |= {"reference_outputs"}
            if "reference_outputs" not in shown:
                raise ConfigError(
                    "prompt: it does not show {reference_outputs}, though there is a reference"
                )
        elif "reference_outputs" in shown - optional_variables(text):
            raise ConfigError(
                "prompt: it shows {reference_outputs}, which has no value without a reference; add "
                "reference: or take it out of the prompt"
            )
        if problem := template_problem(text, given, optional_variables(text)):
            raise ConfigError(f"prompt: {problem} (values stand under variables:)")
        for place, names in (
            ("variables", list(self.variables)),
            (
                "instruction_variables",
                [n for n in self.instruction_variables if n != FEW_SHOT_EXAMPLES],
            ),
        ):
            for name in names:
                if name not in shown:
                    near = closest_name(name, shown)
                    hint = (
                        f"did you mean {near!r}?" if near else f"write {{{name}}} where it belongs"
                    )
                    raise ConfigError(f"{place}: the prompt does not show {name!r}; {hint}")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Ask the model about a run.

        Raises:
            NotEvaluated: There is nothing to be seen, or the budget is spent.
            VerdictMissing: The model gave no verdict.
        """
        _refuse_empty(context)
        reference = context.reference
        variables = {
            "outputs": list(context.messages),
            "reference_outputs": list(reference.messages) if reference else None,
            **self._variables_of(context),
            **self.variables,
        }
        token = _EVALUATED_RUN.set(context.trajectory.id if context.trajectory else "")
        try:
            found = self._asked().__call__(**variables)
        finally:
            _EVALUATED_RUN.reset(token)
        metadata = found["metadata"]
        if found["score"] is None:
            if metadata["status"] == "not_evaluated":
                raise NotEvaluated(metadata["error"])
            raise VerdictMissing(metadata["error"], metadata)
        score = found["score"]
        passed = score if isinstance(score, bool) else None
        if passed is None and self.threshold is not None:
            passed = score >= self.threshold
        return EvaluationResult.of_verdict(passed, float(score), found["comment"] or "", metadata)

    def _asked(self) -> JudgeEvaluator:
        if self.judge is None:
            raise ConfigError("a judge of oteval.yaml must be prepared before it is asked")
        judge: JudgeEvaluator = self.judge
        return judge

    def _variables_of(self, context: EvaluationContext) -> dict[str, Any]:
        """Return the question and the graph's path, where the prompt shows them.

        Raises:
            NotEvaluated: The run has not what the prompt shows.
        """
        template = self._asked().prompt.template
        needed = template_variables(template) - optional_variables(template) - set(self.variables)
        found: dict[str, Any] = {"thread": _thread(context)}
        if "thread" in needed and found["thread"] is None:
            raise NotEvaluated("the prompt shows {thread}, but the run has no graph steps")
        if "inputs" in needed:
            found["inputs"] = context.question
            if not found["inputs"]:
                raise NotEvaluated("the prompt shows {inputs}, but the run has no user message")
        return found

    def expected_cost(self, messages: Sequence[Message]) -> float | None:
        """Return what reading messages costs at least, in US dollars, before anybody is asked."""
        judge = self._asked()
        tokens = estimate_tokens(dumps([message.as_dict() for message in messages]))
        prices = (client.limits.prices.of(client.backend.model) for client in judge.clients)
        costs = (price.cost(tokens, 0) for price in prices if price is not None)
        return sum(costs) * judge.samples

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON values, for the hash that is its version."""
        return dict(self._asked().describe())

    def describe_verdict(self) -> dict[str, Any]:
        """Return what the score of a configured evaluator depends on beside `describe()`."""
        return {"variables": dict(self.variables), "threshold": self.threshold}

    def close(self) -> None:
        """Close the connections that were opened."""
        if self.judge is not None:
            self.judge.close()


def _member(member: str | JuryMember) -> Any:
    if isinstance(member, str):
        return member
    fields = {"base_url": member.base_url, "temperature": member.temperature}
    return {"model": member.model, **{k: v for k, v in fields.items() if v is not None}}


class _LinkedCalls:
    """Stored calls, each linked with the run that it is about, with which it is deleted."""

    def __init__(self, calls: Any) -> None:
        self._calls = calls

    def get(self, key: str) -> JudgeCall | None:
        """Return the call of a key that was answered, or None."""
        if run := _EVALUATED_RUN.get():
            self._calls.link(key, run)
        found: JudgeCall | None = self._calls.get(key)
        return found

    def put(self, call: JudgeCall) -> None:
        """Keep a call, answered or not."""
        self._calls.put(call)


def _thread(context: EvaluationContext) -> list[dict[str, Any]] | None:
    """Return the run as a turn of a graph, for prompts that show ``{thread}``."""
    if context.trajectory is None or not context.trajectory.steps:
        return None
    answers = (m.content for m in reversed(context.messages) if m.role == "assistant")
    steps = [list(step) for step in context.trajectory.steps]
    return [{"input": context.question, "steps": steps, "result": next(answers, None)}]


def _refuse_empty(context: EvaluationContext) -> None:
    """Refuse a run of which nothing was captured: a verdict on it would be made up."""
    if any(message.content or message.tool_calls or message.parts for message in context.messages):
        return
    gaps = context.trajectory.gaps if context.trajectory else ()
    lost = next((gap for gap in gaps if gap.code in CONTENT_GAPS), None)
    raise NotEvaluated(f"{lost.code}: {lost.detail}" if lost else "the messages have no content")
