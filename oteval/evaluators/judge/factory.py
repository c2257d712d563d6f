"""The factories of judges, with the names and call shapes of openevals and agentevals.

evaluate = create_trajectory_llm_as_judge(model="openai:gpt-5-mini")
evaluate(outputs=messages, reference_outputs=reference)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Unpack

from ...errors import ConfigError
from .evaluator import AsyncJudgeEvaluator, JudgeEvaluator, Prepare
from .making import Options, Question, Settings, make_askers, make_limits
from .prompts import TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE
from .rendering import INSTRUCTIONS, Prompt, check_prompt
from .schema import Schema, custom_schema, verdict_schema
from .variables import as_given, as_trajectories, trajectory_text

__all__ = [
    "as_async",
    "create_async_llm_as_judge",
    "create_async_trajectory_llm_as_judge",
    "create_llm_as_judge",
    "create_trajectory_llm_as_judge",
    "make_evaluator",
]

_OPTIONS = frozenset(Options.__annotations__)
_SETTINGS = frozenset(Settings.__dataclass_fields__)


def make_evaluator(
    question: Question,
    prepare: Prepare,
    as_text: Callable[[Any], str] | None = None,
    *,
    is_async: bool = False,
    **options: Unpack[Options],
) -> JudgeEvaluator:
    """Return an evaluator that asks judges; what all factories come down to.

    Args:
        question: What they are asked.
        prepare: Makes the prompt's variables of what the evaluator is called with.
        as_text: Makes the text of a variable of data where it stands in no block.
        is_async: Whether the evaluator is awaited.
        **options: As for `create_llm_as_judge`.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    prompt = _prompt(question, as_text, options)
    samples = options.get("samples", 1)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ConfigError(f"samples is {samples!r}; expected 1 or more")
    schema = _schema(question)
    limits = make_limits(
        cache=options.get("cache"),
        max_cost=options.get("max_cost"),
        prices=options.get("prices"),
        max_concurrency=options.get("max_concurrency"),
    )
    given: dict[str, Any] = {name: value for name, value in options.items() if name in _SETTINGS}
    made = Settings(model=question.model, judge=question.judge, is_async=is_async, **given)
    askers = make_askers(made, limits)
    if schema.raw and (samples > 1 or len(askers) > 1):
        raise ConfigError("output_schema: answers of a form of your own cannot be voted on")
    return JudgeEvaluator(
        key=question.feedback_key,
        prompt=prompt,
        schema=schema,
        askers=askers,
        samples=samples,
        continuous=question.continuous,
        prepare=prepare,
    )


def _prompt(question: Question, as_text: Callable[[Any], str] | None, options: Options) -> Prompt:
    examples = tuple(question.few_shot_examples or ())
    check_prompt(question.prompt, question.system, examples)
    return Prompt(
        question.prompt,
        question.system or "",
        examples,
        options.get("harden", True),
        (INSTRUCTIONS | _names("instruction_variables", options.get("instruction_variables")))
        - _names("data_variables", options.get("data_variables")),
        as_text,
    )


def _names(option: str, given: Iterable[str] | None) -> frozenset[str]:
    if isinstance(given, str):
        raise ConfigError(f"{option} is {given!r}; expected a list of names")
    return frozenset(given or ())


def _schema(question: Question) -> Schema:
    structured = getattr(question.prompt, "schema_", None)
    if structured is not None and question.output_schema is not None:
        raise ConfigError("output_schema: the LangChain prompt has a schema already; give one")
    wanted = structured if structured is not None else question.output_schema
    verdict = verdict_schema(
        continuous=question.continuous,
        choices=question.choices,
        use_reasoning=question.use_reasoning,
    )
    return verdict if wanted is None else custom_schema(wanted)


def as_async(made: JudgeEvaluator) -> AsyncJudgeEvaluator:
    """Return an evaluator as a coroutine function."""

    async def evaluator(
        *,
        outputs: Any = None,
        reference_outputs: Any = None,
        inputs: Any = None,
        **extra: Any,
    ) -> Any:
        return await made.ask(
            outputs=outputs, reference_outputs=reference_outputs, inputs=inputs, **extra
        )

    evaluator.__name__ = evaluator.__qualname__ = made.key
    evaluator.evaluator = made  # type: ignore[attr-defined]
    return evaluator  # type: ignore[return-value]


def create_llm_as_judge(
    *,
    prompt: Any,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "score",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model for a verdict.

    Args:
        prompt: What the judge is told: a text with ``{inputs}``, ``{outputs}``,
            ``{reference_outputs}`` and names of your own, which are filled in with keywords of the
            call; a LangChain prompt; or a function of those keywords that returns messages.
        model: ``openai:NAME``, for any OpenAI-compatible server; another provider's prefix is
            asked by way of LangChain.
        system: A system message to put first, with a prompt that is a text.
        feedback_key: The score's name.
        judge: An ``OpenAI`` or ``AsyncOpenAI`` client (with `model`), a LangChain chat model or
            runnable, or a function ``(messages, schema) -> dict``.
        continuous: Whether the score is a number from 0 to 1 rather than a bool.
        choices: The numbers the score must be one of.
        use_reasoning: Whether the judge gives its reasons first; they are the comment.
        few_shot_examples: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        output_schema: A TypedDict, pydantic model or JSON schema. The evaluator then returns an
            answer of that form in place of a result, and raises `JudgeError` without one.
        **options: base_url (str): The server; else ``OPENAI_BASE_URL``.
            api_key (str): Its key; else ``OPENAI_API_KEY``.
            timeout (float): Seconds that a request may take, with its retries (60).
            max_retries (int): How often the client tries again (2).
            temperature (float): The sampling temperature.
            seed (int): The sampling seed.
            stream (bool): Whether answers are streamed.
            request_options (dict): More of the request, such as ``max_tokens``.
            structured_output_kwargs (dict): Handed to LangChain's ``with_structured_output``.
            samples (int): How often the judge is asked; the majority's verdict counts.
            jury (list): Several models or judges in place of one; the majority's verdict counts.
            cache (AnswerCache or bool): Where answers are kept; True keeps them in memory.
            max_cost (float): US dollars this evaluator may spend; then it is not evaluated. Every
                model needs a price.
            max_concurrency (int): How many questions may be under way at once, over all threads
                and event loops.
            prices (dict): By model, ``{"input": ..., "output": ...}`` in US dollars per million
                tokens.
            harden (bool): Whether what is judged is shown as data between delimiters (True).
            instruction_variables (list): Variables of the prompt that are instructions; all but
                ``rubric`` are data otherwise. ``few_shot_examples`` stands for the examples.
            data_variables (list): Variables that are data all the same, such as ``rubric``.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return make_evaluator(
        Question(
            prompt=prompt,
            model=model,
            system=system,
            feedback_key=feedback_key,
            judge=judge,
            continuous=continuous,
            choices=choices,
            use_reasoning=use_reasoning,
            few_shot_examples=few_shot_examples,
            output_schema=output_schema,
        ),
        as_given,
        **options,
    )


def create_async_llm_as_judge(
    *,
    prompt: Any,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "score",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> AsyncJudgeEvaluator:
    """Create a coroutine function that does what `create_llm_as_judge`'s evaluator does.

    Args:
        prompt: As there.
        model: As there.
        system: As there.
        feedback_key: As there.
        judge: As there; it may be asynchronous.
        continuous: As there.
        choices: As there.
        use_reasoning: As there.
        few_shot_examples: As there.
        output_schema: As there.
        **options: As there.

    Returns:
        The evaluator; its ``evaluator`` attribute holds the configuration.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return as_async(
        make_evaluator(
            Question(
                prompt=prompt,
                model=model,
                system=system,
                feedback_key=feedback_key,
                judge=judge,
                continuous=continuous,
                choices=choices,
                use_reasoning=use_reasoning,
                few_shot_examples=few_shot_examples,
                output_schema=output_schema,
            ),
            as_given,
            is_async=True,
            **options,
        )
    )


def create_trajectory_llm_as_judge(
    *,
    prompt: Any = TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "trajectory_accuracy",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model about an agent's trajectory.

    ``outputs`` and ``reference_outputs`` may be in any form of `oteval.evaluators.messages`.

    Args:
        prompt: As for `create_llm_as_judge`. The default compares with a reference; without one
            use `TRAJECTORY_ACCURACY_PROMPT`.
        model: As there.
        system: As there.
        feedback_key: As there.
        judge: As there.
        continuous: As there.
        choices: As there.
        use_reasoning: As there.
        few_shot_examples: As there.
        output_schema: As there.
        **options: As there.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return make_evaluator(
        Question(
            prompt=prompt,
            model=model,
            system=system,
            feedback_key=feedback_key,
            judge=judge,
            continuous=continuous,
            choices=choices,
            use_reasoning=use_reasoning,
            few_shot_examples=few_shot_examples,
            output_schema=output_schema,
        ),
        as_trajectories,
        trajectory_text,
        **options,
    )


def create_async_trajectory_llm_as_judge(
    *,
    prompt: Any = TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "trajectory_accuracy",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> AsyncJudgeEvaluator:
    """Create a coroutine function that does what `create_trajectory_llm_as_judge`'s does.

    Args:
        prompt: As there.
        model: As there.
        system: As there.
        feedback_key: As there.
        judge: As there; it may be asynchronous.
        continuous: As there.
        choices: As there.
        use_reasoning: As there.
        few_shot_examples: As there.
        output_schema: As there.
        **options: As there.

    Returns:
        The evaluator; its ``evaluator`` attribute holds the configuration.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return as_async(
        make_evaluator(
            Question(
                prompt=prompt,
                model=model,
                system=system,
                feedback_key=feedback_key,
                judge=judge,
                continuous=continuous,
                choices=choices,
                use_reasoning=use_reasoning,
                few_shot_examples=few_shot_examples,
                output_schema=output_schema,
            ),
            as_trajectories,
            trajectory_text,
            is_async=True,
            **options,
        )
    )
