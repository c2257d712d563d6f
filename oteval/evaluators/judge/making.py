"""Judges made of what users name: a model, a client, a LangChain model, a function, or a jury."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from ...errors import ConfigError
from .asking import Asker, Limits
from .backends import Backend, FunctionBackend, is_async_callable, refuse_async
from .budget import Budget
from .cache import AnswerCache, MemoryCache
from .langchain_backend import LangChainBackend, is_runnable
from .openai_backend import OpenAIBackend, Server, is_client
from .prices import Prices, make_prices

__all__ = ["Options", "Question", "Settings", "make_askers", "make_limits", "refuse_unpriced"]

_PREFIX = "openai:"


class Options(TypedDict, total=False):
    """What the factories take beside openevals' arguments; `create_llm_as_judge` describes it."""

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
    max_cost: float | Budget | None
    max_concurrency: int | None
    prices: Mapping[str, Any] | Prices | None
    harden: bool
    instruction_variables: Iterable[str]
    data_variables: Iterable[str]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What judges are asked, and who they are; the arguments of openevals' factories.

    `create_llm_as_judge` describes them.
    """

    prompt: Any
    model: str | None
    system: str | None
    feedback_key: str
    judge: Any
    continuous: bool
    choices: Sequence[float] | None
    use_reasoning: bool
    few_shot_examples: Iterable[Mapping[str, Any]] | None
    output_schema: Any


@dataclass(frozen=True)
class Settings:
    """How judges are reached and asked; the arguments of the factories.

    Attributes:
        model: The model's name.
        judge: The judge itself, or None.
        jury: Several models or judges, or None.
        base_url: The server's address.
        api_key: The server's key.
        timeout: Seconds to wait for an answer.
        max_retries: How often the client tries again.
        temperature: The sampling temperature; None leaves it to the model.
        seed: The sampling seed.
        stream: Whether answers are streamed.
        request_options: More of the request.
        structured_output_kwargs: Handed to LangChain's ``with_structured_output``.
        is_async: Whether the evaluator is asynchronous.
    """

    model: str | None = None
    judge: Any = None
    jury: Iterable[Any] | None = None
    base_url: str | None = None
    api_key: str | None = None
    timeout: float | None = None
    max_retries: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stream: bool = False
    request_options: Mapping[str, Any] = field(default_factory=dict)
    structured_output_kwargs: Mapping[str, Any] | None = None
    is_async: bool = False


def make_limits(
    *,
    cache: AnswerCache | bool | None,
    max_cost: float | Budget | None,
    prices: Mapping[str, Any] | Prices | None,
    max_concurrency: int | None,
) -> Limits:
    """Return what the judges of an evaluator share.

    Raises:
        ConfigError: One of the arguments is wrong.
    """
    if max_concurrency is not None and max_concurrency < 1:
        raise ConfigError(f"max_concurrency is {max_concurrency}; expected 1 or more")
    if max_cost is not None and not isinstance(max_cost, Budget):
        is_number = isinstance(max_cost, (int, float)) and not isinstance(max_cost, bool)
        if not is_number or not 0 <= max_cost < math.inf:
            raise ConfigError(f"max_cost is {max_cost}; expected US dollars, 0 or more")
        max_cost = Budget(float(max_cost))
    # Not by its truth: a cache that is still empty may count as false.
    kept = MemoryCache() if cache is True else None if cache is False else cache
    known = prices if isinstance(prices, Prices) else make_prices(prices)
    return Limits(kept, max_cost, known, max_concurrency)


def make_askers(settings: Settings, limits: Limits) -> tuple[Asker, ...]:
    """Return the judges to ask.

    Raises:
        ConfigError: There is none, one is of no known form, or a cost is limited that cannot be
            told.
    """
    if settings.jury is None:
        members = [_backend(settings, settings.judge, settings.model)]
    else:
        if settings.judge is not None:
            raise ConfigError("judge and jury exclude each other; put the judge into the jury")
        members = [_member(settings, member) for member in settings.jury]
        if not members:
            raise ConfigError("jury is empty; name at least one model or judge")
    if limits.budget is not None:
        for backend in members:
            refuse_unpriced(backend.model, limits.prices, limits.budget.name)
    return tuple(Asker(backend, limits) for backend in members)


def refuse_unpriced(model: str, prices: Prices, limit: str) -> None:
    """Refuse a limit on costs for a model whose price is not known.

    Args:
        model: The model's name.
        prices: The prices.
        limit: The setting that limits costs, for the message.

    Raises:
        ConfigError: There is no price; the text says how to give one.
    """
    if prices.of(model) is None:
        raise ConfigError(
            f"{limit} needs the price of {model!r}: give prices={{{model!r}: {{'input': ..., "
            "'output': ...}} in US dollars per million tokens"
        )


def _member(settings: Settings, member: Any) -> Backend:
    """Return a member of a jury: a model's name, a judge, or a mapping of a server's settings."""
    if isinstance(member, str):
        return _backend(settings, None, member)
    if isinstance(member, Mapping):
        known = {"model", "judge", "base_url", "api_key", "timeout", "max_retries", "temperature"}
        unknown = set(member) - known - {"seed", "stream", "request_options"}
        if unknown:
            raise ConfigError(f"jury: unknown key {sorted(unknown)[0]!r}")
        own = replace(settings, **member)
        return _backend(own, own.judge, own.model)
    return _backend(settings, member, settings.model)


def _backend(settings: Settings, judge: Any, model: str | None) -> Backend:
    name = (model or "").removeprefix(_PREFIX)
    if judge is None:
        return _of_name(settings, model)
    if is_client(judge):
        if not name:
            raise ConfigError("judge is an OpenAI client, so model is needed: model='NAME'")
        return OpenAIBackend(_server(settings, name), judge, is_async=settings.is_async)
    if is_runnable(judge):
        return _of_runnable(settings, judge, name)
    if callable(judge):
        if is_async_callable(judge) and not settings.is_async:
            raise refuse_async("a coroutine function")
        return FunctionBackend(judge, name, settings.timeout)
    raise ConfigError(
        f"judge is a {type(judge).__name__}; expected an OpenAI client, a LangChain model or a "
        "function (messages, schema) -> dict"
    )


def _of_name(settings: Settings, model: str | None) -> Backend:
    if not model:
        raise ConfigError("a model is needed, as in model='openai:NAME', or a judge")
    provider, colon, _ = model.partition(":")
    if colon and provider != "openai" and settings.base_url is None:
        return _of_runnable(settings, _langchain_model(model, settings), model)
    return OpenAIBackend(_server(settings, model.removeprefix(_PREFIX)), is_async=settings.is_async)


def _of_runnable(settings: Settings, runnable: Any, name: str) -> Backend:
    return LangChainBackend(runnable, name, settings.timeout, settings.structured_output_kwargs)


def _server(settings: Settings, name: str) -> Server:
    options = dict(settings.request_options)
    for key, value in (("temperature", settings.temperature), ("seed", settings.seed)):
        if value is not None:
            options[key] = value
    return Server(
        model=name,
        base_url=settings.base_url,
        api_key=settings.api_key,
        timeout=settings.timeout,
        max_retries=settings.max_retries,
        stream=settings.stream,
        options=options,
    )


def _langchain_model(model: str, settings: Settings) -> Any:
    """Return LangChain's model of a provider that is not OpenAI."""
    try:
        from langchain.chat_models import init_chat_model  # an extra of the user's
    except ImportError:
        raise ConfigError(
            f"model {model!r} is asked by way of LangChain: pip install langchain and the "
            "provider's package; or write openai:NAME with base_url for a compatible server"
        ) from None
    more = {} if settings.temperature is None else {"temperature": settings.temperature}
    try:
        return init_chat_model(model, **more)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"model {model!r}: {error}") from error
