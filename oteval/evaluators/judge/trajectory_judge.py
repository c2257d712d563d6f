"""The evaluator ``type: judge`` of oteval.yaml: a language model judges stored trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from ...base.errors import ConfigError, JudgeError
from ...base.jsontext import dumps
from ...model import EvaluationResult, Message, Price, Usage, make_prices
from ..evaluator import (
    EvaluationContext,
    Evaluator,
    NotEvaluated,
    ReferenceOption,
    Resources,
)
from ..options import (
    PYTHON_ONLY,
    InConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seconds,
)
from .cache import JudgeCall, LinkedCalls, judging
from .costs import CostBudget, estimate_tokens
from .evaluator import JudgeEvaluator, missing_content
from .factory import create_trajectory_llm_as_judge
from .prompt import FEW_SHOT_EXAMPLES
from .prompts import PROMPTS, PROMPTS_ON_CALLS, optional_variables
from .templates import closest_name, template_problem, template_variables

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = ["JuryMember", "LlmJudge", "VerdictMissing", "answer_of"]

RUN_VARIABLES = frozenset({"outputs", "reference_outputs", "thread"})
"""The variables that a run fills in, besides `SHOWN_VARIABLES` if the prompt shows them."""
SHOWN_VARIABLES = frozenset({"inputs", "context"})
"""The variables that a run fills in if ``variables`` does not."""


class VerdictMissing(JudgeError):
    """A judge gave no verdict.

    Attributes:
        metadata: The metadata of the calls, including their cost.
    """

    def __init__(self, message: str, metadata: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metadata = metadata


def answer_of(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a judge that has a score.

    Raises:
        NotEvaluated: The budget is spent.
        VerdictMissing: The model gave no verdict.
    """
    metadata = result["metadata"]
    if result["score"] is not None:
        return result
    if metadata["status"] == "not_evaluated":
        raise NotEvaluated(metadata["error"])
    raise VerdictMissing(metadata["error"], metadata)


@dataclass(frozen=True, kw_only=True)
class JuryMember:
    """A member of a jury.

    Attributes:
        model: ``openai:NAME``.
        base_url: The server, if it differs from the evaluator's.
        temperature: The sampling temperature, if it differs from the evaluator's.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    model: str
    base_url: str | None = None
    temperature: NonNegativeFloat | None = None


class _NameOrMember:
    """Validates a member of a jury as a name or a mapping, with errors for only one of them."""

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
        jury: Several models instead of one; the majority decides.
        prompt: The name of a bundled prompt, a file, or the text itself.
        system: A system message to put first.
        variables: More variables of the prompt, such as ``rubric``.
        instruction_variables: Variables that are instructions, in addition to ``rubric``; all
            others are data. ``few_shot_examples`` means `few_shot`.
        few_shot: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        continuous: Whether the score is a number from 0 to 1.
        choices: The numbers that the score must be one of.
        use_reasoning: Whether the model writes its reasoning first.
        threshold: The lowest score that passes, with `continuous` or `choices`.
        samples: How often to ask; the majority decides.
        harden: Whether to show runs as data between delimiters.
        base_url: The server; by default the environment variable OPENAI_BASE_URL.
        api_key_env: The environment variable with the key.
        temperature: The sampling temperature.
        seed: The sampling seed.
        stream: Whether to stream answers.
        request: More fields of the request, such as ``max_tokens``.
        timeout: The limit for a request and its retries, in seconds or as text such as ``90s``.
        max_retries: How often to retry a failed request.
        max_concurrency: The number of runs to judge concurrently.
        max_cost: The limit on costs of a scoring, in US dollars; in a server, of a day.
        max_cost_per_day: The limit on costs since midnight UTC, in US dollars.
        prices: Prices by model, in US dollars per million tokens. They take precedence over the
            package genai-prices.
        judge: The evaluator that asks the models; `prepare` creates it.
    """

    type: ClassVar[str] = "judge"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "The reference that the prompt shows as {reference_outputs}."
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
    samples: PositiveInt = 1
    harden: bool = True
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: NonNegativeFloat | None = None
    seed: int | None = None
    stream: bool = False
    request: Mapping[str, Any] = field(default_factory=dict)
    timeout: Seconds = 60.0
    max_retries: NonNegativeInt = 2
    max_concurrency: PositiveInt = 8
    max_cost: NonNegativeFloat | None = None
    max_cost_per_day: NonNegativeFloat | None = None
    prices: Annotated[Mapping[str, Any] | None, InConfig(form=Mapping[str, Price] | None)] = None
    judge: Annotated[Any, PYTHON_ONLY] = None

    def check_combination(self) -> None:
        """Check that options do not exclude each other."""
        if (self.model is None) == (self.jury is None):
            raise ConfigError("give either model or jury")
        if self.continuous and self.choices is not None:
            raise ConfigError("continuous and choices exclude each other")
        if self.threshold is not None and not self.continuous and self.choices is None:
            raise ConfigError(
                "threshold needs continuous or choices; a bool score passes or fails by itself"
            )

    @property
    def concurrency(self) -> int:
        """The number of runs to judge concurrently."""
        return self.max_concurrency

    @property
    def time_limit(self) -> float | None:
        """The sum of the timeouts of all requests of an evaluation, in seconds."""
        return self.timeout * (1 + self.max_retries) * self.samples

    @property
    def cost_per_day(self) -> float | None:
        """The limit on costs of a day, in US dollars; None means no limit.

        A server's scoring never ends, so there `max_cost` also applies to a day.
        """
        costs = [cost for cost in (self.max_cost, self.max_cost_per_day) if cost is not None]
        return min(costs, default=None)

    def check_prices(self, limits: Sequence[str]) -> None:
        """Check that the price of every model is known if costs are limited.

        Args:
            limits: The settings that limit costs, besides `max_cost` and `max_cost_per_day`.

        Raises:
            ConfigError: A price is missing.
        """
        own = [name for name in ("max_cost", "max_cost_per_day") if getattr(self, name) is not None]
        settings = [*own, *limits]
        if not settings:
            return
        prices = make_prices(self.prices)
        jury = self.jury or ()
        models = [member if isinstance(member, str) else member.model for member in jury]
        for model in models or [self.model or ""]:
            name = model.removeprefix("openai:")
            if prices.of(name) is None:
                price = f"{{{name!r}: {{input: ..., output: ...}}}}"
                raise ConfigError(
                    f"{settings[0]} needs the price of {name!r}: add prices: {price} in US dollars "
                    "per million tokens"
                )

    def prepare(self, resources: Resources) -> Self:
        """The evaluator with its prompt read and its judge created.

        Raises:
            ConfigError: The prompt cannot be read, or an option is wrong.
        """
        prompt = self._prompt(resources)
        self.check_prices(())
        calls = None if resources.stored_calls is None else resources.stored_calls(JudgeCall)
        judge = self._create(
            prompt=prompt,
            model=self.model,
            jury=None if self.jury is None else [_member(member) for member in self.jury],
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
            cache=None if calls is None else LinkedCalls(calls),
        )
        for client in judge.clients:
            client.limits.requests = resources.request_limit
        return replace(self, judge=judge)

    def _create(self, **options: Any) -> JudgeEvaluator:
        """The evaluator that asks the models."""
        return create_trajectory_llm_as_judge(**options)

    def _budget(self, resources: Resources) -> CostBudget | None:
        """The budget with the smaller remainder, or None if costs are not limited."""
        if resources.job_budget is not None:
            limit = self.cost_per_day
            budget: CostBudget | None = None if limit is None else resources.job_budget(limit)
            return budget
        budgets = []
        if resources.is_budgeted and self.max_cost is not None:
            budgets.append(CostBudget(self.max_cost))
        if resources.is_budgeted and self.max_cost_per_day is not None:
            spent = resources.spent_today()
            budgets.append(CostBudget(self.max_cost_per_day, "max_cost_per_day", spent=spent))
        return min(budgets, key=lambda b: b.limit - b.spent, default=None)

    def _prompt(self, resources: Resources) -> str:
        """The text of the prompt: bundled, from a file, or as written in the option."""
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
            names = ", ".join(sorted(PROMPTS))
            raise ConfigError(
                f"prompt: {error}; bundled prompts are {names}, and the text of a prompt "
                "contains {outputs}"
            ) from None

    def _check_variables(self, text: str, *, has_reference: bool) -> None:
        """Check that the prompt and the variables fit each other.

        Raises:
            ConfigError: A variable has no value, or the prompt does not show it.
        """
        shown_variables = template_variables(text)
        if name := next((name for name in self.variables if name in RUN_VARIABLES), ""):
            raise ConfigError(f"variables: {name!r} is filled in from the run; choose another name")
        if not shown_variables & {"outputs", "thread"}:
            near = closest_name("outputs", shown_variables)
            hint = f" in place of {{{near}}}" if near else " where the run belongs"
            raise ConfigError(f"prompt: it does not show {{outputs}}; write that{hint}")
        available = RUN_VARIABLES - {"reference_outputs"} | SHOWN_VARIABLES | {*self.variables}
        if has_reference:
            available |= {"reference_outputs"}
            if "reference_outputs" not in shown_variables:
                raise ConfigError(
                    "prompt: it does not show {reference_outputs}, though there is a reference"
                )
        elif "reference_outputs" in shown_variables - optional_variables(text):
            raise ConfigError(
                "prompt: it shows {reference_outputs}, which has no value without a reference; add "
                "reference: or take it out of the prompt"
            )
        if problem := template_problem(text, available, optional_variables(text)):
            raise ConfigError(f"prompt: {problem} (define it under variables:)")
        for option, names in (
            ("variables", list(self.variables)),
            (
                "instruction_variables",
                [n for n in self.instruction_variables if n != FEW_SHOT_EXAMPLES],
            ),
        ):
            for name in names:
                if name not in shown_variables:
                    near = closest_name(name, shown_variables)
                    hint = (
                        f"did you mean {near!r}?" if near else f"write {{{name}}} where it belongs"
                    )
                    raise ConfigError(f"{option}: the prompt does not show {name!r}; {hint}")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Ask the model about a run.

        Raises:
            NotEvaluated: The run has no content to judge, or the budget is spent.
            VerdictMissing: The model gave no verdict.
        """
        _require_content(context, self.prompt)
        variables = {
            "outputs": list(context.messages),
            "reference_outputs": context.reference_outputs,
            **self._variables_of(context),
            **self.variables,
        }
        with judging(context.trajectory.id if context.trajectory else ""):
            answer = answer_of(self._prepared_judge()(**variables))
        score, metadata = answer["score"], answer["metadata"]
        passed = score if isinstance(score, bool) else None
        if passed is None and self.threshold is not None:
            passed = score >= self.threshold
        return EvaluationResult.of_verdict(passed, float(score), answer["comment"] or "", metadata)

    def _prepared_judge(self) -> JudgeEvaluator:
        if self.judge is None:
            raise ConfigError("LlmJudge is not prepared; call prepare() first")
        judge: JudgeEvaluator = self.judge
        return judge

    def _variables_of(self, context: EvaluationContext) -> dict[str, Any]:
        """The run's question, documents and path through a graph, if the prompt shows them.

        Raises:
            NotEvaluated: The prompt shows data that the run does not have.
        """
        template = self._prepared_judge().prompt.template
        shown_variables = template_variables(template) - set(self.variables)
        needed = shown_variables - optional_variables(template)
        variables: dict[str, Any] = {"thread": _graph_thread(context)}
        if "thread" in needed and variables["thread"] is None:
            raise NotEvaluated("the prompt shows {thread}, but the run has no graph steps")
        if "inputs" in needed:
            variables["inputs"] = context.question
            if not variables["inputs"]:
                raise NotEvaluated("the prompt shows {inputs}, but the run has no user message")
        if "context" in shown_variables and (documents := _documents(context)):
            variables["context"] = documents
        elif "context" in needed:
            raise NotEvaluated("the prompt shows {context}, but the run retrieved no documents")
        return variables

    def expected_cost(self, messages: Sequence[Message]) -> float | None:
        """The minimum cost of judging messages, in US dollars: the cost of reading them."""
        judge = self._prepared_judge()
        tokens = estimate_tokens(dumps([message.as_dict() for message in messages]))
        prices = (client.limits.prices.of(client.backend.model) for client in judge.clients)
        costs = (price.cost(Usage(tokens)) for price in prices if price is not None)
        return sum(costs) * judge.samples

    def describe(self) -> dict[str, Any]:
        """Everything that answers depend on as JSON values, to hash into a version."""
        return dict(self._prepared_judge().describe())

    def describe_verdict(self) -> dict[str, Any]:
        """The options of the verdict that `describe` does not cover."""
        return {"variables": dict(self.variables), "threshold": self.threshold}

    def close(self) -> None:
        """Close the connections that the judge opened."""
        if self.judge is not None:
            self.judge.close()


def _member(member: str | JuryMember) -> Any:
    if isinstance(member, str):
        return member
    fields = {"base_url": member.base_url, "temperature": member.temperature}
    return {"model": member.model, **{k: v for k, v in fields.items() if v is not None}}


def _graph_thread(context: EvaluationContext) -> list[dict[str, Any]] | None:
    """The run as one turn of a graph, for prompts that show ``{thread}``."""
    if context.trajectory is None or not context.trajectory.steps:
        return None
    answers = (m.content for m in reversed(context.messages) if m.role == "assistant")
    steps = [list(step) for step in context.trajectory.steps]
    return [{"input": context.question, "steps": steps, "result": next(answers, None)}]


def _documents(context: EvaluationContext) -> list[str]:
    """The texts of the documents that were retrieved.

    Raises:
        NotEvaluated: Some are not known; without them a judge would make up its verdict.
    """
    if gap := context.gap("documents_not_captured"):
        where = "or give context under variables: if the messages hold the documents"
        raise NotEvaluated(f"{gap.code}: {gap.detail}; {where}")
    return [document.text for run in context.runs for document in run.documents]


def _require_content(context: EvaluationContext, prompt: str) -> None:
    """Refuse a run that the judge would see only in part: it would make up its verdict.

    Raises:
        NotEvaluated: Content was not captured, or the prompt judges calls that are not known.
    """
    if reason := missing_content(gap for run in context.runs for gap in run.gaps):
        raise NotEvaluated(reason)
    if not any(
        message.content or message.tool_calls or message.parts for message in context.messages
    ):
        raise NotEvaluated("the messages have no content")
    if prompt in PROMPTS_ON_CALLS:
        context.require_all_calls()
