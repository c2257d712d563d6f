"""The ways to ask for a structured answer, from the strictest to the plainest.

``json_schema`` (strict structured output), ``tool`` (a forced call), ``json_object``, and ``text``
with one repair turn. A rung that the server refuses, or whose answer is unusable, is followed by
the next; which one worked is remembered by server and model, and tried first from then on. A
refusal to judge, a score that was not on offer and any other failure end the climb at once. A
function of the user's has the one rung ``function``: it is called once.

`climb` does no I/O: it yields each `Request` and is sent the `Reply`, so that the same steps serve
blocking and asynchronous callers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import JudgeError
from ...jsontext import dumps
from .answers import parse_answer
from .schema import Schema, Unusable

__all__ = [
    "ENDED",
    "RUNGS",
    "FormatRefused",
    "Memory",
    "Reply",
    "Request",
    "Rung",
    "Spent",
    "climb",
    "plain_finish",
]

Rung = Literal["json_schema", "tool", "json_object", "text", "function"]
RUNGS: tuple[Rung, ...] = ("json_schema", "tool", "json_object", "text")

_ABOUT_FORMAT = re.compile(
    r"response_format|json_schema|json_object|schema|tool|function|structured|strict", re.IGNORECASE
)


ENDED = frozenset(
    {"", "stop", "tool_calls", "tool_call", "tool_use", "function_call", "end_turn", "end"}
    | {"stop_sequence", "eos", "eos_token", "complete", "completed", "finish", "finished"}
)
"""How models say that an answer is whole; some say nothing."""

_REFUSED = frozenset(
    {"content_filter", "content_filtered", "refusal", "safety", "recitation", "blocklist"}
    | {"prohibited_content", "guardrail_intervened", "spii"}
)

_PATIENCE = 4
_EVERY = 8


class FormatRefused(JudgeError):
    """The server refuses a request of this form, or fails on it.

    Attributes:
        is_outage: Whether the server failed (5xx), which may have nothing to do with the form.
    """

    def __init__(self, message: str, *, is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


@dataclass(frozen=True)
class Request:
    """One request to a model.

    Attributes:
        messages: OpenAI's form.
        schema: The answer that is asked for.
        rung: How it is asked for.
    """

    messages: Sequence[dict[str, Any]]
    schema: Schema
    rung: Rung


@dataclass(frozen=True)
class Reply:
    """What a model replied.

    Attributes:
        text: What it wrote, or the arguments of the call that it was to make.
        value: The parsed answer, where the model's own package parses it.
        refusal: Why it does not answer, or "".
        finish: Why it stopped: ``stop``, ``length``, ``content_filter``, ...
        model: The model that answered.
        input_tokens: Tokens read; None where the server does not say.
        output_tokens: Tokens written; None where the server does not say.
        cached_tokens: How many of those read came from the provider's cache.
        problem: Why the reply is unusable whatever its text says, or "".
    """

    text: str | None
    value: Any = None
    refusal: str = ""
    finish: str = ""
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    problem: str = ""


@dataclass
class Spent:
    """What asking came to, filled in on the way so that a failure tells it too.

    Attributes:
        requests: How many requests were made.
        input_tokens: Tokens read, by all of them.
        output_tokens: Tokens written.
        cached_tokens: Tokens read from the provider's cache.
        model: The model that answered last.
        raw: What it wrote last.
        rung: How it was asked last.
        cost: US dollars; None where the model has no price.
        is_estimate: Whether the server left out counts that the cost rests on.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""
    raw: str = ""
    rung: str = ""
    cost: float | None = None
    is_estimate: bool = False

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.input_tokens += reply.input_tokens or 0
        self.output_tokens += reply.output_tokens or 0
        self.cached_tokens += reply.cached_tokens
        self.model = reply.model or self.model
        self.raw = (dumps(reply.value) if reply.text is None and reply.value else reply.text) or ""


@dataclass
class Memory:
    """Which rung worked, by server and model.

    A server that fails (5xx) on a rung may only be busy, so such a rung is never given up for
    good: after `_PATIENCE` questions in a row it is tried with every `_EVERY`th one only.
    """

    known: dict[tuple[str, str], Rung] = field(default_factory=dict)
    _outages: dict[tuple[tuple[str, str], Rung], int] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, place: tuple[str, str]) -> Rung | None:
        """Return the rung that worked, or None."""
        return self.known.get(place)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.known.clear()
            self._outages.clear()

    def worked(self, place: tuple[str, str], rung: Rung) -> None:
        """Remember a rung, unless one is known."""
        with self._lock:
            self._outages.pop((place, rung), None)
            self.known.setdefault(place, rung)

    def refused(self, place: tuple[str, str], rung: Rung) -> None:
        """Forget a rung that the server no longer takes."""
        with self._lock:
            if self.known.get(place) == rung:
                del self.known[place]

    def failed(self, place: tuple[str, str], rung: Rung) -> None:
        """Count a question for which the server failed on a rung and answered on a plainer one."""
        with self._lock:
            self._outages[place, rung] = self._outages.get((place, rung), 0) + 1

    def skips(self, place: tuple[str, str], rung: Rung) -> bool:
        """Return whether the next question leaves out a rung on which the server keeps failing."""
        with self._lock:
            count = self._outages.get((place, rung), 0)
            if count < _PATIENCE or (count - _PATIENCE) % _EVERY == _EVERY - 1:
                return False
            self._outages[place, rung] = count + 1
            return True


def climb(
    messages: Sequence[dict[str, Any]],
    schema: Schema,
    rungs: Sequence[Rung],
    place: tuple[str, str],
    memory: Memory,
    spent: Spent,
) -> Generator[Request, Reply, tuple[Any, Any]]:
    """Ask until there is a usable answer, and return its JSON value and its checked value.

    Args:
        messages: What the judge is told.
        schema: The answer that is asked for.
        rungs: The ways in which this kind of judge can be asked.
        place: The server and the model.
        memory: What worked there.
        spent: Filled in.

    Raises:
        JudgeError: There is no verdict to be had.
    """
    known = memory.get(place)
    candidates = list(rungs[rungs.index(known) :] if known in rungs else rungs)
    left = [r for r in candidates if r == candidates[-1] or not memory.skips(place, r)]
    outages: list[Rung] = []
    refused: JudgeError | None = None
    problems: list[str] = []
    for rung in left:
        told = _told(messages, schema, rung)
        try:
            reply = yield from _ask(Request(told, schema, rung), spent)
        except FormatRefused as error:
            if rung == known and not _ABOUT_FORMAT.search(str(error)):
                raise
            if error.is_outage:
                outages.append(rung)
            else:
                memory.refused(place, rung)
            refused = refused or error
            problems.append(f"{rung}: {error}")
            continue
        try:
            found = _read(reply, schema)
        except Unusable as problem:
            problems.append(f"{rung}: {problem}")
            if rung != "text":
                continue
            repaired = Request(_repair(told, reply, problem, schema), schema, rung)
            try:
                found = _read((yield from _ask(repaired, spent)), schema)
            except Unusable as again:
                problems.append(f"after a repair turn: {again}")
                break
        _remember(memory, place, rung, outages, is_certain=left == candidates)
        return found
    if refused is not None and len(problems) == len(left):
        raise JudgeError(str(refused))
    raise JudgeError(f"no usable answer: {'; '.join(problems)}"[:1000])


def _remember(
    memory: Memory,
    place: tuple[str, str],
    rung: Rung,
    outages: Sequence[Rung],
    *,
    is_certain: bool,
) -> None:
    """Remember the rung that worked, unless a stricter one may only have met a busy server."""
    for failed in outages:
        memory.failed(place, failed)
    if is_certain and not outages:
        memory.worked(place, rung)


def _ask(request: Request, spent: Spent) -> Generator[Request, Reply, Reply]:
    spent.requests += 1
    spent.rung = request.rung
    reply = yield request
    spent.add(reply)
    finish = plain_finish(reply.finish)
    if reply.refusal or finish in _REFUSED:
        raise JudgeError(f"the judge refused: {reply.refusal or 'stopped by a content filter'}")
    if finish not in ENDED:
        raise JudgeError(
            f"the answer was cut off at its token limit or before its end: it finished with "
            f"{reply.finish!r}; raise max_tokens if the request sets it"
        )
    return reply


def plain_finish(finish: str) -> str:
    """Return why an answer ended in the form that `ENDED` has."""
    return finish.lower().removeprefix("finish_reason_")


def _read(reply: Reply, schema: Schema) -> tuple[Any, Any]:
    if reply.problem:
        raise Unusable(reply.problem)
    value = parse_answer(reply.text) if reply.value is None else reply.value
    return value, schema.read(value)


def _told(
    messages: Sequence[dict[str, Any]], schema: Schema, rung: Rung
) -> Sequence[dict[str, Any]]:
    """Return the messages with what a rung without a schema of its own must say in words."""
    if rung in ("json_schema", "tool", "function"):
        return messages
    told = [dict(message) for message in messages]
    last = next((m for m in reversed(told) if m.get("role") == "user"), None)
    asked = (
        "Answer with one JSON object and nothing else: no text around it, no code fence. "
        f"It must fit this JSON schema, its keys in this order:\n{dumps(schema.json)}"
    )
    if last is None:
        return [*told, {"role": "user", "content": asked}]
    content = last.get("content")
    if isinstance(content, list):
        last["content"] = [*content, {"type": "text", "text": asked}]
    else:
        last["content"] = f"{content or ''}\n\n{asked}"
    return told


def _repair(
    told: Sequence[dict[str, Any]], reply: Reply, problem: Unusable, schema: Schema
) -> Sequence[dict[str, Any]]:
    asked = (
        f"That cannot be used: {problem}. Give the same judgement again as one JSON object with "
        f"the keys {', '.join(schema.json.get('properties', {}))}, and nothing else."
    )
    return [
        *told,
        {"role": "assistant", "content": reply.text or "(no answer)"},
        {"role": "user", "content": asked},
    ]
