"""The options of judges, and the backends and limits that they describe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

from ...base.errors import ConfigError
from ...base.runner import is_async_function
from ...model import Prices, make_prices, require_price
from .backends import Backend, FunctionBackend, blocking_only_error
from .cache import AnswerCache, MemoryCache
from .client import JudgeClient, JudgeLimits
from .costs import CostBudget
from .langchain_backend import LangChainBackend, is_runnable
from .openai_backend import ModelServer, OpenAIBackend, is_openai_client

__all__ = [
    "DEFAULTS",
    "JudgeOptions",
    "ModelOptions",
    "check_option_names",
    "make_clients",
    "make_limits",
]

_OPENAI_PREFIX = "openai:"


class ModelOptions(TypedDict, total=False):
    """Options for the models that judge, and for the limits on them.

    Attributes:
        model: ``openai:NAME`` for any OpenAI-compatible server. Another provider's prefix is called
            through LangChain.
        system: A system message to put first, if the prompt is a string.
        judge: An ``OpenAI`` or ``AsyncOpenAI`` client (with `model`), a LangChain chat model or
            runnable, or a function ``(messages, schema) -> dict``. Asynchronous clients and
            functions need the async form of the evaluator.
        use_reasoning: Whether the judge writes its reasoning first, which becomes the comment
            (True).
        base_url: The server's address (``OPENAI_BASE_URL``).
        api_key: The server's key (``OPENAI_API_KEY``).
        timeout: The limit for a request and its retries, in seconds (60).
        max_retries: How often the client retries a failed request (2).
        temperature: The sampling temperature.
        seed: The sampling seed.
        stream: Whether to stream answers (False).
        request_options: More fields of the request, such as ``max_tokens``.
        structured_output_kwargs: Arguments for LangChain's ``with_structured_output``.
        samples: How often to ask each judge; the majority decides (1).
        jury: Several models or judges instead of one; the majority decides. A member is a model
            name, a judge, or a dict of options for one server.
        cache: A cache for answers; True caches in memory.
        max_cost: The limit on costs of this evaluator, in US dollars. Every model needs a price.
            Outputs whose evaluation would exceed the limit are not evaluated.
        max_concurrency: The number of questions in flight, over all threads and event loops.
        prices: For each model ``{"input": ..., "output": ...}``, in US dollars per million tokens.
        harden: Whether to show variables as data between delimiters (True).
        instruction_variables: Variables that are instructions, in addition to ``rubric``.
            ``few_shot_examples`` means the examples.
        data_variables: Variables that are data, even if they are instructions by default, such as
            ``rubric``.
    """

    model: str | None
    system: str | None
    judge: Any
    use_reasoning: bool
    base_url: str | None
    api_key: str | None
    timeout: float | None
    max_retries: int | None
    temperature: float | None
    seed: int | None
    stream: bool
    request_options: Mapping[str, Any]
    structured_output_kwargs: Mapping[str, Any] | None
    samples: int
    jury: Iterable[Any] | None
    cache: AnswerCache | bool | None
    max_cost: float | CostBudget | None
    max_concurrency: int | None
    prices: Mapping[str, Any] | Prices | None
    harden: bool
    instruction_variables: Iterable[str]
    data_variables: Iterable[str]


class JudgeOptions(ModelOptions, total=False):
    """The options of `create_llm_as_judge`: `ModelOptions`, and the form of the answer.

    Attributes:
        continuous: Whether the score is a number from 0 to 1 instead of a bool (False).
        choices: The numbers that the score must be one of.
        few_shot_examples: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        output_schema: A TypedDict, pydantic model or JSON schema. The evaluator then returns an
            answer of this form instead of a result, or raises `JudgeError`.
    """

    continuous: bool
    choices: Sequence[float] | None
    few_shot_examples: Iterable[Mapping[str, Any]] | None
    output_schema: Any


DEFAULTS: JudgeOptions = {
    "use_reasoning": True,
    "stream": False,
    "request_options": {},
    "samples": 1,
    "harden": True,
    "instruction_variables": (),
    "data_variables": (),
    "continuous": False,
}
"""The default values; all other options default to None."""

# The options that a member of a jury may override.
_JURY_OPTIONS = frozenset(
    {"model", "judge", "base_url", "api_key", "timeout", "max_retries", "temperature", "seed"}
    | {"stream", "request_options"}
)


def check_option_names(options: Mapping[str, Any]) -> None:
    """Check that all options exist.

    Raises:
        TypeError: An option does not exist, as for a call with an unexpected keyword argument.
    """
    unknown = sorted(set(options) - set(JudgeOptions.__annotations__))
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")


def make_limits(options: JudgeOptions) -> JudgeLimits:
    """The cache and the limits that the judges of an evaluator share.

    Raises:
        ConfigError: An option is wrong.
    """
    max_concurrency = options.get("max_concurrency")
    if max_concurrency is not None and max_concurrency < 1:
        raise ConfigError(f"max_concurrency is {max_concurrency}; expected 1 or more")
    budget = options.get("max_cost")
    if budget is not None and not isinstance(budget, CostBudget):
        is_number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
        if not is_number or not 0 <= budget < math.inf:
            raise ConfigError(f"max_cost is {budget}; expected US dollars, 0 or more")
        budget = CostBudget(float(budget))
    cache = options.get("cache")
    # An empty cache may be falsy, so compare with the bools.
    answers = MemoryCache() if cache is True else None if cache is False else cache
    prices = options.get("prices")
    price_list = prices if isinstance(prices, Prices) else make_prices(prices)
    return JudgeLimits(answers, budget, price_list, max_concurrency)


def make_clients(
    options: JudgeOptions, limits: JudgeLimits, *, is_async: bool
) -> tuple[JudgeClient, ...]:
    """A client for each judge.

    Args:
        options: The options.
        limits: The limits that the judges share.
        is_async: Whether the evaluator is asynchronous.

    Raises:
        ConfigError: A judge is missing or has an unknown form, or its cost is limited and its
            price unknown.
    """
    jury = options.get("jury")
    if jury is None:
        backends = [_make_backend(options, is_async)]
    else:
        if options.get("judge") is not None:
            raise ConfigError("judge and jury exclude each other; put the judge into the jury")
        backends = [_make_backend(_member_options(options, member), is_async) for member in jury]
        if not backends:
            raise ConfigError("jury is empty; name at least one model or judge")
    if limits.budget is not None:
        for backend in backends:
            require_price(backend.model, limits.prices, limits.budget.name)
    return tuple(JudgeClient(backend, limits) for backend in backends)


def _member_options(options: JudgeOptions, member: Any) -> JudgeOptions:
    """The options for a member of a jury."""
    if isinstance(member, str):
        return {**options, "judge": None, "model": member}
    if not isinstance(member, Mapping):
        return {**options, "judge": member}
    unknown = sorted(set(member) - _JURY_OPTIONS)
    if unknown:
        raise ConfigError(f"jury: unknown key {unknown[0]!r}")
    return cast("JudgeOptions", {**options, **member})


def _make_backend(options: JudgeOptions, is_async: bool) -> Backend:
    model, judge = options.get("model") or "", options.get("judge")
    name, timeout = model.removeprefix(_OPENAI_PREFIX), options.get("timeout")
    if judge is None:
        return _backend_for_model(options, model, is_async)
    if is_openai_client(judge):
        if not name:
            raise ConfigError("judge is an OpenAI client, so model is needed: model='NAME'")
        return OpenAIBackend(_make_server(options, name), judge, is_async=is_async)
    if is_runnable(judge):
        return LangChainBackend(judge, name, timeout, options.get("structured_output_kwargs"))
    if callable(judge):
        if is_async_function(judge) and not is_async:
            raise blocking_only_error("a coroutine function")
        return FunctionBackend(judge, name, timeout)
    raise ConfigError(
        f"judge is a {type(judge).__name__}; expected an OpenAI client, a LangChain model or a "
        "function (messages, schema) -> dict"
    )


def _backend_for_model(options: JudgeOptions, model: str, is_async: bool) -> Backend:
    if not model:
        raise ConfigError("a model is needed, as in model='openai:NAME', or a judge")
    provider, colon, _ = model.partition(":")
    if colon and provider != "openai" and options.get("base_url") is None:
        runnable = _make_langchain_model(model, options.get("temperature"))
        extra = options.get("structured_output_kwargs")
        return LangChainBackend(runnable, model, options.get("timeout"), extra)
    server = _make_server(options, model.removeprefix(_OPENAI_PREFIX))
    return OpenAIBackend(server, is_async=is_async)


def _make_server(options: JudgeOptions, model: str) -> ModelServer:
    request = dict(options.get("request_options") or {})
    for key in ("temperature", "seed"):
        if (value := options.get(key)) is not None:
            request[key] = value
    return ModelServer(
        model=model,
        base_url=options.get("base_url"),
        api_key=options.get("api_key"),
        timeout=options.get("timeout"),
        max_retries=options.get("max_retries"),
        stream=options.get("stream", False),
        options=request,
    )


def _make_langchain_model(model: str, temperature: float | None) -> Any:
    """LangChain's chat model for a provider other than OpenAI."""
    try:
        from langchain.chat_models import init_chat_model
    except ImportError:
        raise ConfigError(
            f"model {model!r} is called through LangChain: pip install langchain and the "
            "provider's package; or write openai:NAME with base_url for a compatible server"
        ) from None
    options = {} if temperature is None else {"temperature": temperature}
    try:
        return init_chat_model(model, **options)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"model {model!r}: {error}") from error
