"""One question to one judge: from the cache, or asked, within its limits.

`Asker.ask` and `Asker.aask` take the same steps (`Asker._steps`), which yield each request to be
made; only how a request is made differs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import BudgetSpent, JudgeError
from .backends import Backend
from .budget import Budget
from .cache import AnswerCache, JudgeCall, key_of
from .estimates import Estimator
from .gate import Gate
from .ladder import Memory, Reply, Request, Spent, climb
from .prices import Prices
from .rendering import Rendered
from .schema import Schema
from .sharing import QuestionsUnderWay

__all__ = ["MEMORY", "Answer", "Asker", "Limits"]

MEMORY = Memory()
"""Which rung worked where, for all judges of this process."""


@dataclass(frozen=True)
class Answer:
    """What came of a question.

    Attributes:
        value: The checked answer; None where there is none.
        error: Why there is none.
        call: The call as the cache keeps it.
        cached: Whether it was not asked but known.
    """

    value: Any
    error: JudgeError | None
    call: JudgeCall
    cached: bool = False


_UNDER_WAY: QuestionsUnderWay[Answer] = QuestionsUnderWay()


@dataclass
class Limits:
    """What all judges of an evaluator share.

    Attributes:
        cache: Where answers are kept, or None.
        budget: What may be spent, or None.
        prices: What tokens cost.
        max_concurrency: How many questions may be under way at once, in all threads and event
            loops together; None sets no limit.
        gate: What holds that limit.
    """

    cache: AnswerCache | None = None
    budget: Budget | None = None
    prices: Prices = field(default_factory=Prices)
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        """Make the gate that questions pass."""
        self.gate = Gate(self.max_concurrency)


@dataclass
class Asker:
    """Asks one judge.

    Attributes:
        backend: The judge.
        limits: What it shares with others.
        memory: Which rung worked.
    """

    backend: Backend
    limits: Limits
    memory: Memory = field(default_factory=lambda: MEMORY)

    def __post_init__(self) -> None:
        """Begin to learn how long this judge's answers are."""
        self._estimator = Estimator(self.backend.answer_limit)
        self._first = Gate(1)

    def ask(self, rendered: Rendered, schema: Schema, sample: int = 0) -> Answer:
        """Return the answer to a question; whatever happens, there is one.

        Args:
            rendered: What the judge is told.
            schema: What it has to answer.
            sample: The number of the question, where it is asked several times.
        """
        key = self._key(rendered, schema, sample)
        # On an event loop's own thread, waiting would block the coroutine that may be asking.
        is_shared = bool(key) and not _is_on_event_loop()
        while is_shared and (waiter := _UNDER_WAY.join(key)) is not None:
            shared = self._shared(waiter.result(), schema)
            if shared is not None:
                return shared
        answer: Answer | None = None
        try:
            with ExitStack() as held:
                if self._is_unknown:
                    held.enter_context(self._first.turn())
                    if not self._is_unknown:
                        held.close()
                held.enter_context(self.limits.gate.turn())
                answer = self._drive(self._steps(key, rendered, schema))
            return answer
        finally:
            if is_shared:
                _UNDER_WAY.done(key, answer)

    async def aask(self, rendered: Rendered, schema: Schema, sample: int = 0) -> Answer:
        """Do what `ask` does, asynchronously."""
        key = self._key(rendered, schema, sample)
        while key and (waiter := _UNDER_WAY.join(key)) is not None:
            shared = self._shared(await asyncio.wrap_future(waiter), schema)
            if shared is not None:
                return shared
        answer: Answer | None = None
        try:
            async with AsyncExitStack() as held:
                if self._is_unknown:
                    await held.enter_async_context(self._first.aturn())
                    if not self._is_unknown:
                        await held.aclose()
                await held.enter_async_context(self.limits.gate.aturn())
                answer = await self._adrive(self._steps(key, rendered, schema))
            return answer
        finally:
            if key:
                _UNDER_WAY.done(key, answer)

    @property
    def _is_unknown(self) -> bool:
        """Whether there is a budget, and no reply yet to tell what one takes of it.

        Until then questions are asked one by one.
        """
        return self.limits.budget is not None and not self._estimator.has_learned

    def _drive(self, steps: Generator[Request, Reply, Answer]) -> Answer:
        try:
            request = next(steps)
            while True:
                try:
                    reply = self.backend.send(request)
                except JudgeError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        finally:
            steps.close()

    async def _adrive(self, steps: Generator[Request, Reply, Answer]) -> Answer:
        try:
            request = next(steps)
            while True:
                try:
                    reply = await self.backend.asend(request)
                except JudgeError as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        finally:
            steps.close()

    def _shared(self, answer: Answer | None, schema: Schema) -> Answer | None:
        """Return the answer to an equal question; None where there is none and one has to ask."""
        if answer is not None and self.limits.cache is not None:
            self.limits.cache.get(answer.call.key)  # it may note for whom answers are kept
        # A spent budget may be another evaluator's: ours decides by itself.
        if answer is None or isinstance(answer.error, BudgetSpent):
            return None
        if answer.error is not None:
            return replace(answer, cached=True)
        return self._checked(answer.call, schema)

    def _steps(
        self, key: str, rendered: Rendered, schema: Schema
    ) -> Generator[Request, Reply, Answer]:
        known = self._known(key, schema)
        if known is not None:
            return known
        priced = self.limits.prices.of(self.backend.model) is not None
        spent, start = Spent(cost=0.0 if priced else None), time.monotonic()
        value: Any = None
        problem: JudgeError | None = None
        found: Any = None
        climbing = climb(
            rendered.messages,
            schema,
            self.backend.rungs,
            self.backend.place,
            self.memory,
            spent,
        )
        try:
            found, value = yield from self._paid(climbing, spent)
        except JudgeError as error:
            problem = error
        blank = JudgeCall(key, self.backend.model, self.backend.place[0])
        call = self._call(blank, spent, time.monotonic() - start)
        call = replace(call, answer=found, error=str(problem) if problem else "")
        # Where nobody was asked there is nothing to keep.
        if self.limits.cache is not None and spent.requests:
            self.limits.cache.put(call)
        return Answer(value, problem, call)

    def _paid(
        self, climbing: Generator[Request, Reply, tuple[Any, Any]], spent: Spent
    ) -> Generator[Request, Reply, tuple[Any, Any]]:
        """Pass requests on, each with a reservation in the budget until its reply is paid for."""
        try:
            request = next(climbing)
            while True:
                reserved, cost = self._reserve(request, spent), 0.0
                try:
                    reply = yield request
                    cost = self._pay(request, reply, spent)
                except JudgeError as error:
                    failure: JudgeError | None = error
                else:
                    failure = None
                finally:
                    if self.limits.budget is not None:
                        self.limits.budget.settle(reserved, cost)
                request = climbing.throw(failure) if failure else climbing.send(reply)
        except StopIteration as done:
            found: tuple[Any, Any] = done.value
            return found
        finally:
            climbing.close()

    def _reserve(self, request: Request, spent: Spent) -> float:
        budget, price = self.limits.budget, self.limits.prices.of(self.backend.model)
        if budget is None:
            return 0.0
        tokens = (self._estimator.prompt(request), self._estimator.answer())
        try:
            return budget.reserve(price.cost(*tokens) if price else 0.0)
        except BudgetSpent:
            spent.requests -= 1  # this one is not made
            raise

    def _pay(self, request: Request, reply: Reply, spent: Spent) -> float:
        """Return what a reply costs; estimates stand in for counts that the server left out."""
        price = self.limits.prices.of(self.backend.model, reply.model)
        read, written = self._estimator.counted(request, reply)
        if price is None:
            return 0.0
        cost = price.cost(read, written, reply.cached_tokens)
        spent.cost = (spent.cost or 0.0) + cost
        spent.is_estimate |= reply.input_tokens is None or reply.output_tokens is None
        return cost

    def _key(self, rendered: Rendered, schema: Schema, sample: int) -> str:
        """Return the key of a question, or "" where it cannot be told from others."""
        identity = self.backend.identity()
        if self.limits.cache is None or identity is None:
            return ""
        request: Mapping[str, Any] = {
            "judge": identity,
            "messages": rendered.messages,
            "schema": [schema.name, schema.json],
            "sample": sample,
        }
        return key_of(request, rendered.nonce)

    def _known(self, key: str, schema: Schema) -> Answer | None:
        if not key or self.limits.cache is None:
            return None
        call = self.limits.cache.get(key)
        return None if call is None or call.answer is None else self._checked(call, schema)

    def _checked(self, call: JudgeCall, schema: Schema) -> Answer | None:
        try:
            return Answer(schema.read(call.answer), None, call, cached=True)
        except Exception:
            return None  # kept by a version with another idea of answers

    def _call(self, blank: JudgeCall, spent: Spent, latency: float) -> JudgeCall:
        return replace(
            blank,
            rung=spent.rung,
            raw=spent.raw,
            requests=spent.requests,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cached_tokens=spent.cached_tokens,
            cost=spent.cost,
            cost_is_estimate=spent.is_estimate,
            latency=latency,
            time_ns=time.time_ns(),
            answered_by=spent.model,
        )


def _is_on_event_loop() -> bool:
    """Return whether the caller runs on the thread of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
