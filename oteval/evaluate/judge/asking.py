"""One question to one judge: from the cache, or asked, within its limits.

`Asker.ask` and `Asker.aask` take the same steps (`Asker._steps`), which yield each request to be
made; only how a request is made differs.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import BudgetSpent, JudgeError
from ...jsontext import dumps
from .backends import Backend
from .budget import Budget
from .cache import AnswerCache, JudgeCall, key_of
from .ladder import Memory, Reply, Request, Spent, climb
from .prices import Prices
from .rendering import Rendered
from .schema import Schema

__all__ = ["MEMORY", "Answer", "Asker", "Limits"]

MEMORY = Memory()
"""Which rung worked where, for all judges of this process."""

_CHARACTERS_PER_TOKEN = 4
_LIKELY_OUTPUT = 500


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


@dataclass
class Limits:
    """What all judges of an evaluator share.

    Attributes:
        cache: Where answers are kept, or None.
        budget: What may be spent, or None.
        prices: What tokens cost.
        max_concurrency: How many questions may be under way at once; None sets no limit.
    """

    cache: AnswerCache | None = None
    budget: Budget | None = None
    prices: Prices = field(default_factory=Prices)
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        """Make the gates that questions pass."""
        count = self.max_concurrency
        self._gate = None if count is None else threading.BoundedSemaphore(count)
        self._gates: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and hold it."""
        with self._gate or nullcontext():
            yield

    def aturn(self) -> Any:
        """Return what an event loop waits for and holds while it asks."""
        if self.max_concurrency is None:
            return nullcontext()
        loop = asyncio.get_running_loop()
        found = self._gates.get(loop)
        if found is None:
            found = self._gates[loop] = asyncio.Semaphore(self.max_concurrency)
        return found


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

    def ask(self, rendered: Rendered, schema: Schema, sample: int = 0) -> Answer:
        """Return the answer to a question; whatever happens, there is one.

        Args:
            rendered: What the judge is told.
            schema: What it has to answer.
            sample: The number of the question, where it is asked several times.
        """
        with self.limits.turn():
            steps = self._steps(rendered, schema, sample)
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

    async def aask(self, rendered: Rendered, schema: Schema, sample: int = 0) -> Answer:
        """Do what `ask` does, asynchronously."""
        async with self.limits.aturn():
            steps = self._steps(rendered, schema, sample)
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

    def _steps(
        self, rendered: Rendered, schema: Schema, sample: int
    ) -> Generator[Request, Reply, Answer]:
        key = self._key(rendered, schema, sample)
        known = self._known(key, schema)
        if known is not None:
            return known
        blank = JudgeCall(key, self.backend.model, self.backend.place[0])
        try:
            reserved = self._reserve(rendered)
        except BudgetSpent as error:
            return Answer(None, error, replace(blank, error=str(error)))
        spent, start = Spent(), time.monotonic()
        cost = 0.0
        value: Any = None
        problem: JudgeError | None = None
        found: Any = None
        try:
            found, value = yield from climb(
                rendered.messages,
                schema,
                self.backend.rungs,
                self.backend.place,
                self.memory,
                spent,
            )
        except JudgeError as error:
            problem = error
        finally:
            call = self._call(blank, spent, time.monotonic() - start)
            cost = call.cost or 0.0
            if self.limits.budget is not None:
                self.limits.budget.settle(reserved, cost)
        call = replace(call, answer=found, error=str(problem) if problem else "")
        if self.limits.cache is not None:
            self.limits.cache.put(call)
        return Answer(value, problem, call)

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
        if call is None or call.answer is None:
            return None
        try:
            return Answer(schema.read(call.answer), None, call, cached=True)
        except Exception:
            return None  # kept by a version with another idea of answers

    def _reserve(self, rendered: Rendered) -> float:
        if self.limits.budget is None:
            return 0.0
        price = self.limits.prices.of(self.backend.model)
        tokens = len(dumps(rendered.messages)) // _CHARACTERS_PER_TOKEN
        return self.limits.budget.reserve(price.cost(tokens, _LIKELY_OUTPUT) if price else 0.0)

    def _call(self, blank: JudgeCall, spent: Spent, latency: float) -> JudgeCall:
        price = self.limits.prices.of(self.backend.model, spent.model)
        tokens = (spent.input_tokens, spent.output_tokens, spent.cached_tokens)
        return replace(
            blank,
            rung=spent.rung,
            raw=spent.raw,
            requests=spent.requests,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cached_tokens=spent.cached_tokens,
            cost=price.cost(*tokens) if price and any(tokens) else None,
            latency=latency,
            time_ns=time.time_ns(),
            answered_by=spent.model,
        )
