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

__all__ = ["RUNGS", "FormatRefused", "Memory", "Reply", "Request", "Rung", "Spent", "climb"]

Rung = Literal["json_schema", "tool", "json_object", "text", "function"]
RUNGS: tuple[Rung, ...] = ("json_schema", "tool", "json_object", "text")

_ABOUT_FORMAT = re.compile(
    r"response_format|json_schema|json_object|schema|tool|function|structured|strict", re.IGNORECASE
)


class FormatRefused(JudgeError):
    """The server refuses a request of this form, or fails on it."""


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
        input_tokens: Tokens read.
        output_tokens: Tokens written.
        cached_tokens: How many of those read came from the provider's cache.
    """

    text: str | None
    value: Any = None
    refusal: str = ""
    finish: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


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
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""
    raw: str = ""
    rung: str = ""

    def add(self, reply: Reply) -> None:
        """Count a reply."""
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cached_tokens += reply.cached_tokens
        self.model = reply.model or self.model
        self.raw = (dumps(reply.value) if reply.text is None and reply.value else reply.text) or ""


@dataclass
class Memory:
    """Which rung worked, by server and model."""

    known: dict[tuple[str, str], Rung] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, place: tuple[str, str]) -> Rung | None:
        """Return the rung that worked, or None."""
        return self.known.get(place)

    def worked(self, place: tuple[str, str], rung: Rung) -> None:
        """Remember a rung, unless one is known."""
        with self._lock:
            self.known.setdefault(place, rung)

    def refused(self, place: tuple[str, str], rung: Rung) -> None:
        """Forget a rung that the server no longer takes."""
        with self._lock:
            if self.known.get(place) == rung:
                del self.known[place]


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
    left = list(rungs[rungs.index(known) :] if known in rungs else rungs)
    refused: JudgeError | None = None
    problems: list[str] = []
    for rung in left:
        told = _told(messages, schema, rung)
        try:
            reply = yield from _ask(Request(told, schema, rung), spent)
        except FormatRefused as error:
            if rung == known and not _ABOUT_FORMAT.search(str(error)):
                raise
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
        memory.worked(place, rung)
        return found
    if refused is not None and len(problems) == len(left):
        raise JudgeError(str(refused))
    raise JudgeError(f"no usable answer: {'; '.join(problems)}"[:1000])


def _ask(request: Request, spent: Spent) -> Generator[Request, Reply, Reply]:
    spent.requests += 1
    spent.rung = request.rung
    reply = yield request
    spent.add(reply)
    if reply.refusal or reply.finish == "content_filter":
        raise JudgeError(f"the judge refused: {reply.refusal or 'stopped by a content filter'}")
    return reply


def _read(reply: Reply, schema: Schema) -> tuple[Any, Any]:
    if reply.value is not None:
        return reply.value, schema.read(reply.value)
    try:
        value = parse_answer(reply.text)
        return value, schema.read(value)
    except Unusable as problem:
        if reply.finish == "length":
            raise JudgeError(f"the answer was cut off at its token limit: {problem}") from None
        raise


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
