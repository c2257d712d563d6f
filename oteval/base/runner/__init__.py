"""Run other people's functions: evaluators, judges, and systems under test.

`Runner` runs jobs on threads, for offline and live scoring. It limits the concurrency, the time of
a job, the rate (`RateLimiter`) and the cost (`DailyBudget`). `AsyncRunner` (in `async_runner`, the
only module here that imports asyncio) runs jobs for callers on an event loop, for experiments. Its
only limit is a timeout. Both report every job as an `Outcome`. `call` makes a single call.

Nothing is retried here. Live scoring decides which evaluations are retried, and when, in
`oteval.serve.evaluations`. Requests to models are retried by the OpenAI client.

A **job** is a function without arguments, synchronous or not. It runs in the context
(`contextvars`) of the code that submitted it. Threads are daemons: a job that hangs blocks neither
Ctrl-C nor the end of the process. After the timeout its thread is abandoned and its late result
dropped.

This package knows nothing about traces, scores or the database, and imports nothing of oteval.
"""

from __future__ import annotations

from .calls import Outcome, PostponedBy, Status, call, describe_error, is_async_function, run_inline
from .limits import DailyBudget, RateLimiter, day_of, next_day_ns, start_of_day_ns
from .runner import Runner

__all__ = [
    "DailyBudget",
    "Outcome",
    "PostponedBy",
    "RateLimiter",
    "Runner",
    "Status",
    "call",
    "day_of",
    "describe_error",
    "is_async_function",
    "next_day_ns",
    "run_inline",
    "start_of_day_ns",
]
