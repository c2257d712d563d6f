"""Ask one judge one question, using the cache and within the limits on cost and concurrency.

`JudgeClient.ask` awaits only `IoCall`, so blocking evaluators run it with `drive` and asynchronous
ones with `drive_async`.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import BudgetSpent, JudgeError
from ...base.jsontext import canonical
from ...base.sync import ConcurrencyLimit, blocks_event_loop, wait_for
from ...model import Prices, Usage
from ..evaluator import RequestLimit
from .answer_schema import AnswerSchema
from .backends import Backend
from .cache import AnswerCache, JudgeCall, PendingAnswers, make_cache_key
from .completions import OptionRefused
from .costs import CostBudget, TokenEstimator
from .output_modes import (
    AnswerUsage,
    CompletionRequest,
    ModelReply,
    OutputModeMemory,
    complete_with_fallback,
)
from .prompt import RenderedPrompt

__all__ = ["OUTPUT_MODE_MEMORY", "JudgeAnswer", "JudgeClient", "JudgeLimits"]

OUTPUT_MODE_MEMORY = OutputModeMemory()
"""The output modes that worked, for all judges of this process."""


@dataclass(frozen=True)
class JudgeAnswer:
    """The outcome of a question.

    Attributes:
        value: The checked answer; None if there is none.
        error: Why there is none.
        call: The record of the call, as the cache stores it.
        cached: Whether the answer was known already, so that it cost nothing.
    """

    value: Any
    error: JudgeError | None
    call: JudgeCall
    cached: bool = False


_PENDING: PendingAnswers[JudgeAnswer] = PendingAnswers()


@dataclass
class JudgeLimits:
    """The cache and the limits that all judges of an evaluator share.

    Attributes:
        cache: None disables caching.
        budget: None means no limit.
        prices: The price list.
        max_concurrency: The number of questions in flight, over all threads and event loops; None
            means no limit.
        requests: A limit on the number of requests; None means no limit.
    """

    cache: AnswerCache | None = None
    budget: CostBudget | None = None
    prices: Prices = field(default_factory=Prices)
    max_concurrency: int | None = None
    requests: RequestLimit | None = None

    def __post_init__(self) -> None:
        """Create the limit on concurrency."""
        self.concurrency = ConcurrencyLimit(self.max_concurrency)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the limits; another process has its own concurrency."""
        limits = (self.cache, self.budget, self.prices, self.max_concurrency, self.requests)
        return JudgeLimits, limits


@dataclass
class JudgeClient:
    """Asks one judge.

    Attributes:
        backend: The judge.
        limits: The cache and the limits shared with other judges.
        memory: The output modes that worked.
    """

    backend: Backend
    limits: JudgeLimits
    memory: OutputModeMemory = field(default_factory=lambda: OUTPUT_MODE_MEMORY)

    def __post_init__(self) -> None:
        """Create the estimator, which learns from this judge's replies."""
        self._estimator = TokenEstimator(self.backend.answer_limit)
        self._first_call = ConcurrencyLimit(1)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the judge and its limits; output modes are remembered by each process."""
        return JudgeClient, (self.backend, self.limits)

    async def ask(
        self, prompt: RenderedPrompt, schema: AnswerSchema, sample: int = 0
    ) -> JudgeAnswer:
        """The answer to a question; a failure is an answer with an error.

        Args:
            prompt: The messages.
            schema: The form of the answer.
            sample: The number of the question, if it is asked several times.
        """
        key = self._cache_key(prompt, schema, sample)
        is_shared = bool(key) and not await blocks_event_loop()
        while is_shared and (pending := _PENDING.join(key)) is not None:
            shared = self._accept_shared(await wait_for(pending), schema)
            if shared is not None:
                return shared
        answer: JudgeAnswer | None = None
        try:
            if self.limits.concurrency.is_unlimited and not self._is_cost_unknown:
                answer = await self._find_answer(key, prompt, schema)
                return answer
            async with AsyncExitStack() as stack:
                # Calls run serially until the first cost is known.
                if self._is_cost_unknown:
                    await stack.enter_async_context(self._first_call.slot())
                    if not self._is_cost_unknown:
                        await stack.aclose()
                await stack.enter_async_context(self.limits.concurrency.slot())
                answer = await self._find_answer(key, prompt, schema)
            return answer
        finally:
            if is_shared:
                _PENDING.finish(key, answer)

    @property
    def _is_cost_unknown(self) -> bool:
        return self.limits.budget is not None and not self._estimator.has_learned

    def _cache_key(self, prompt: RenderedPrompt, schema: AnswerSchema, sample: int) -> str:
        """The key of a question, or "" if it cannot be cached."""
        identity = self.backend.identity()
        if self.limits.cache is None or identity is None:
            return ""
        request = {
            "judge": identity,
            "messages": prompt.messages,
            "schema": [schema.name, schema.json],
            "sample": sample,
        }
        return make_cache_key(request, prompt.nonce)

    async def _find_answer(
        self, key: str, prompt: RenderedPrompt, schema: AnswerSchema
    ) -> JudgeAnswer:
        """The cached answer to a question, or ask the model."""
        answer = self._cached_answer(key, schema)
        return await self._ask_model(key, prompt, schema) if answer is None else answer

    def _cached_answer(self, key: str, schema: AnswerSchema) -> JudgeAnswer | None:
        if not key or self.limits.cache is None:
            return None
        call = self.limits.cache.get(key)
        return None if call is None or call.answer is None else _check_cached(call, schema)

    def _accept_shared(
        self, answer: JudgeAnswer | None, schema: AnswerSchema
    ) -> JudgeAnswer | None:
        """The answer to an equal question, or None if this client has to ask itself."""
        if answer is not None and self.limits.cache is not None:
            self.limits.cache.get(answer.call.key)  # the cache may record who uses an answer
        # The budget that is spent may belong to another evaluator.
        if answer is None or isinstance(answer.error, BudgetSpent):
            return None
        if answer.error is not None:
            return replace(answer, cached=True)
        return _check_cached(answer.call, schema)

    async def _ask_model(
        self, key: str, prompt: RenderedPrompt, schema: AnswerSchema
    ) -> JudgeAnswer:
        has_price = self.limits.prices.of(self.backend.model) is not None
        usage, start = AnswerUsage(cost=0.0 if has_price else None), time.monotonic()
        json: Any = None
        value: Any = None
        error: JudgeError | None = None

        async def send(request: CompletionRequest) -> ModelReply:
            return await self._send(request, usage)

        identity = self.backend.identity()
        judge = "" if identity is None else canonical(identity)
        try:
            if refusal := self.memory.refused_options.get(judge):
                raise OptionRefused(refusal)
            json, value = await complete_with_fallback(
                prompt.messages,
                schema,
                send,
                modes=self.backend.modes,
                endpoint=self.backend.endpoint,
                memory=self.memory,
                usage=usage,
            )
        except JudgeError as failure:
            error = failure
            if isinstance(failure, OptionRefused) and judge:
                self.memory.refused_options[judge] = str(failure)
        call = self._record(key, usage, json, error, time.monotonic() - start)
        if self.limits.cache is not None and usage.requests:
            self.limits.cache.put(call)
        return JudgeAnswer(value, error, call)

    async def _send(self, request: CompletionRequest, usage: AnswerUsage) -> ModelReply:
        """Send a request, with its estimated cost reserved in the budget until the reply."""
        if self.limits.requests is not None:
            self.limits.requests.take()
        budget, cost = self.limits.budget, 0.0
        reserved = 0.0 if budget is None else budget.reserve(self._estimate_cost(request))
        usage.requests += 1
        try:
            reply = await self.backend.send(request)
            cost = self._cost(request, reply, usage)
            return reply
        finally:
            if budget is not None:
                budget.settle(reserved, cost)

    def _estimate_cost(self, request: CompletionRequest) -> float:
        price = self.limits.prices.of(self.backend.model)
        if price is None:
            return 0.0
        return price.cost(
            Usage(self._estimator.prompt_tokens(request), self._estimator.answer_tokens())
        )

    def _cost(self, request: CompletionRequest, reply: ModelReply, usage: AnswerUsage) -> float:
        """Return the cost of a reply and add it to `usage`."""
        price = self.limits.prices.of(self.backend.model, reply.model)
        if price is None and self.limits.budget is None and not reply.input_tokens:
            return 0.0  # nothing to learn, and nothing needs an estimate
        input_tokens, output_tokens = self._estimator.learn(request, reply)
        if price is None:
            return 0.0
        cost = price.cost(
            Usage(
                input_tokens,
                output_tokens,
                reply.cached_tokens,
                cache_write_tokens=reply.cache_write_tokens,
            )
        )
        usage.cost = (usage.cost or 0.0) + cost
        usage.is_estimate |= reply.input_tokens is None or reply.output_tokens is None
        return cost

    def _record(
        self, key: str, usage: AnswerUsage, json: Any, error: JudgeError | None, latency: float
    ) -> JudgeCall:
        return JudgeCall(
            key,
            self.backend.model,
            self.backend.endpoint[0],
            answer=json,
            error=str(error) if error else "",
            rung=usage.mode,
            raw=usage.raw,
            requests=usage.requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cost=usage.cost,
            cost_is_estimate=usage.is_estimate,
            latency=latency,
            time_ns=time.time_ns(),
            answered_by=usage.model,
        )


def _check_cached(call: JudgeCall, schema: AnswerSchema) -> JudgeAnswer | None:
    """A cached answer if it still fits the schema; other versions may have stored it."""
    try:
        return JudgeAnswer(schema.read(call.answer), error=None, call=call, cached=True)
    except Exception:
        return None
