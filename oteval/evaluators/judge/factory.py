"""The functions that create judges, compatible with openevals and agentevals.

evaluate = create_trajectory_llm_as_judge(model="openai:gpt-5-mini")
evaluate(outputs=messages, reference_outputs=reference)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, Unpack, get_type_hints

from ...base.errors import ConfigError
from .answer_schema import AnswerSchema, custom_schema, verdict_schema
from .evaluator import AsyncJudgeEvaluator, JudgeEvaluator, MakeVariables, as_async
from .options import DEFAULTS, JudgeOptions, check_option_names, make_clients, make_limits
from .prompt import (
    INSTRUCTION_VARIABLES,
    Prompt,
    check_prompt,
    given_variables,
    trajectory_text,
    trajectory_variables,
)
from .prompts import TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE

__all__ = [
    "create_async_llm_as_judge",
    "create_async_trajectory_llm_as_judge",
    "create_llm_as_judge",
    "create_trajectory_llm_as_judge",
    "make_judge",
    "show_options",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def show_options(options: Any) -> Callable[[Function], Function]:
    """Show the keys of a TypedDict as parameters in `inspect.signature` and `help`.

    The decorated function takes them as ``**options: Unpack[...]``, which type checkers read.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        option_parameters = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=hint
            )
            for name, hint in get_type_hints(options).items()
        ]
        signature = signature.replace(parameters=[*own, *option_parameters])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate


@show_options(JudgeOptions)
def create_llm_as_judge(
    *, prompt: Any, feedback_key: str = "score", **options: Unpack[JudgeOptions]
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model for a verdict.

    Args:
        prompt: A string with ``{inputs}``, ``{outputs}``, ``{reference_outputs}`` and your own
            names, which are filled in with the keywords of the call; a LangChain prompt; or a
            function that takes these keywords and returns messages.
        feedback_key: The name of the score.
        **options: See `JudgeOptions`.

    Raises:
        ConfigError: An option is wrong; the message names it and the remedy.
    """
    return make_judge(prompt, feedback_key, options, given_variables)


@show_options(JudgeOptions)
def create_async_llm_as_judge(
    *, prompt: Any, feedback_key: str = "score", **options: Unpack[JudgeOptions]
) -> AsyncJudgeEvaluator:
    """Create the asynchronous form of the evaluator of `create_llm_as_judge`."""
    evaluator = make_judge(prompt, feedback_key, options, given_variables, is_async=True)
    return as_async(evaluator)


@show_options(JudgeOptions)
def create_trajectory_llm_as_judge(
    *,
    prompt: Any = TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    feedback_key: str = "trajectory_accuracy",
    **options: Unpack[JudgeOptions],
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model about an agent's trajectory.

    ``outputs`` and ``reference_outputs`` may have any form of `oteval.evaluators.messages`.

    Args:
        prompt: As for `create_llm_as_judge`. The default compares with a reference; use
            `TRAJECTORY_ACCURACY_PROMPT` if there is none.
        feedback_key: The name of the score.
        **options: See `JudgeOptions`.

    Raises:
        ConfigError: An option is wrong; the message names it and the remedy.
    """
    return make_judge(prompt, feedback_key, options, trajectory_variables, trajectory_text)


@show_options(JudgeOptions)
def create_async_trajectory_llm_as_judge(
    *,
    prompt: Any = TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    feedback_key: str = "trajectory_accuracy",
    **options: Unpack[JudgeOptions],
) -> AsyncJudgeEvaluator:
    """Create the asynchronous form of the evaluator of `create_trajectory_llm_as_judge`."""
    evaluator = make_judge(
        prompt, feedback_key, options, trajectory_variables, trajectory_text, is_async=True
    )
    return as_async(evaluator)


def make_judge(
    prompt: Any,
    feedback_key: str,
    options: JudgeOptions,
    make_variables: MakeVariables,
    to_text: Callable[[Any], str] | None = None,
    *,
    optional: Iterable[str] = (),
    is_async: bool = False,
) -> JudgeEvaluator:
    """Create an evaluator; all other functions here call this one.

    Args:
        prompt: As for `create_llm_as_judge`.
        feedback_key: The name of the score.
        options: The options.
        make_variables: Makes the prompt's variables from the arguments of a call.
        to_text: Converts a variable to text if no block of data shows it.
        optional: Variables that are empty without a value.
        is_async: Whether the evaluator will be called through `as_async`.
    """
    check_option_names(options)
    options = {**DEFAULTS, **options}
    samples = options["samples"]
    rendered = replace(_make_prompt(prompt, options, to_text), optional=frozenset(optional))
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ConfigError(f"samples is {samples!r}; expected 1 or more")
    schema = _make_schema(prompt, options)
    clients = make_clients(options, make_limits(options), is_async=is_async)
    if schema.raw and (samples > 1 or len(clients) > 1):
        raise ConfigError("output_schema: answers with a custom schema cannot be voted on")
    return JudgeEvaluator(
        key=feedback_key,
        prompt=rendered,
        schema=schema,
        clients=clients,
        samples=samples,
        continuous=options["continuous"],
        make_variables=make_variables,
    )


def _make_prompt(
    prompt: Any, options: JudgeOptions, to_text: Callable[[Any], str] | None
) -> Prompt:
    system = options.get("system")
    examples = tuple(options.get("few_shot_examples") or ())
    check_prompt(prompt, system, examples)
    instructions = _names("instruction_variables", options["instruction_variables"])
    data = _names("data_variables", options["data_variables"])
    return Prompt(
        prompt,
        system or "",
        examples,
        options["harden"],
        (INSTRUCTION_VARIABLES | instructions) - data,
        to_text,
    )


def _names(option: str, names: Iterable[str] | None) -> frozenset[str]:
    if isinstance(names, str):
        raise ConfigError(f"{option} is {names!r}; expected a list of names")
    return frozenset(names or ())


def _make_schema(prompt: Any, options: JudgeOptions) -> AnswerSchema:
    langchain_schema = getattr(prompt, "schema_", None)
    output_schema = options.get("output_schema")
    if langchain_schema is not None and output_schema is not None:
        raise ConfigError("output_schema: the LangChain prompt has a schema already; give one")
    verdict = verdict_schema(
        continuous=options["continuous"],
        choices=options.get("choices"),
        use_reasoning=options["use_reasoning"],
    )
    custom = output_schema if langchain_schema is None else langchain_schema
    return verdict if custom is None else custom_schema(custom)
