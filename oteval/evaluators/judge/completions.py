"""The reply that a chat completion means, whole or streamed.

Servers differ: content may be a text or a list of parts, arguments of a call text or an object,
and counts may be missing. All of it is read here, once, for every backend of this form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import JudgeError
from .ladder import Reply, Request

__all__ = [
    "Call",
    "Counts",
    "Said",
    "completion_reply",
    "count",
    "counts_of",
    "finish_of",
    "get",
    "read",
    "reply_of",
]

_TEXTS = frozenset({"text", "output_text"})
# Parts that hold a draft, and nothing of the answer.
_NO_ANSWER = frozenset({"reasoning", "thinking", "redacted_thinking", "thought", "reasoning_text"})


def get(value: Any, name: str) -> Any:
    """Return a field of an object or a dict, or None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


@dataclass(frozen=True)
class Call:
    """A tool call of an answer.

    Attributes:
        name: The tool's name, or "".
        arguments: Text or an object.
    """

    name: str
    arguments: Any


@dataclass(frozen=True)
class Said:
    """The text of a message's content.

    Attributes:
        text: The text; None where there is none.
        refusal: A refusal among its parts, or "".
        problem: Why the content is of no use, or "".
    """

    text: str | None
    refusal: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Counts:
    """Tokens as a server counts them; None where it does not."""

    read: int | None = None
    written: int | None = None
    cached: int = 0


def read(content: Any) -> Said:
    """Return the text of content that is a text, a list of parts, or missing.

    Parts that hold reasoning are left out: they are a draft of the answer.
    """
    if content is None or isinstance(content, str):
        return Said(content)
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        return Said(None, problem=f"the answer's content is a {type(content).__name__}")
    texts, refusals = [], []
    for part in content:
        kind = "text" if isinstance(part, str) else get(part, "type")
        if kind in _NO_ANSWER or get(part, "thought") is True:
            continue
        if kind == "refusal":
            refusals.append(str(get(part, "refusal") or "it does not say why"))
        elif kind in _TEXTS or kind is None:
            said = part if isinstance(part, str) else get(part, "text")
            texts.append(said if isinstance(said, str) else "")
        elif kind not in ("tool_use", "tool_call", "function_call"):
            return Said(None, problem=f"the answer has a part of the kind {kind!r}")
    return Said("".join(texts) if texts else None, " ".join(refusals))


def count(value: Any) -> int | None:
    """Return a count of tokens; None for what cannot be one."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return int(value) if whole and value < 1 << 53 else None


def counts_of(usage: Any) -> Counts:
    """Return the tokens that a ``usage`` counts; a prompt without tokens was not counted."""
    read = count(get(usage, "prompt_tokens"))
    cached = count(get(get(usage, "prompt_tokens_details"), "cached_tokens")) or 0
    return Counts(read, count(get(usage, "completion_tokens")), min(cached, read or 0))


def finish_of(*places: Any) -> str:
    """Return why an answer ended, of the objects that may say so; "" where none does."""
    for place in places:
        if get(place, "status") == "incomplete" or get(place, "incomplete_details"):
            reason = get(get(place, "incomplete_details"), "reason")
            return str(reason or "incomplete")
    return str(next((f for f in (get(place, "finish_reason") for place in places) if f), ""))


def reply_of(
    request: Request,
    *,
    said: Said,
    calls: Sequence[Call],
    refusal: str = "",
    finish: str = "",
    model: str = "",
    counts: Counts | None = None,
    choices: int = 1,
) -> Reply:
    """Return the reply that the parts of an answer make.

    Args:
        request: What was asked for; a call answers only where one was forced.
        said: The content.
        calls: The tool calls.
        refusal: Why the model does not answer, or "".
        finish: Why it stopped.
        model: The model that answered.
        counts: The tokens.
        choices: How many answers came.
    """
    text, value, problem = said.text, None, said.problem
    if request.rung == "tool" and calls:
        problem = problem or _problem_of(calls, request.schema.name)
        arguments = calls[0].arguments
        text = arguments if isinstance(arguments, str) else None
        value = dict(arguments) if isinstance(arguments, Mapping) else None
    if choices > 1:
        problem = f"there are {choices} answers; one was asked for"
    counted = counts or Counts()
    return Reply(
        text,
        value=value,
        refusal=refusal or said.refusal,
        finish=finish,
        model=model,
        input_tokens=counted.read,
        output_tokens=counted.written,
        cached_tokens=counted.cached,
        problem=problem,
    )


def _problem_of(calls: Sequence[Call], wanted: str) -> str:
    if len(calls) > 1:
        return f"there are {len(calls)} tool calls; one was asked for"
    name = calls[0].name
    return f"the tool {name!r} was called, not {wanted!r}" if name and name != wanted else ""


def completion_reply(given: Any, request: Request) -> Reply:
    """Return the reply that a whole chat completion makes.

    Raises:
        JudgeError: It is not a chat completion.
    """
    choices = get(given, "choices")
    message = get(choices[0], "message") if isinstance(choices, list) and choices else None
    if message is None:
        shown = " ".join(str(given).split())[:300]
        raise JudgeError(f"the server's reply is not a chat completion: {shown}")
    functions = [get(call, "function") for call in get(message, "tool_calls") or ()]
    return reply_of(
        request,
        said=read(get(message, "content")),
        calls=[Call(get(f, "name") or "", get(f, "arguments")) for f in functions],
        refusal=str(get(message, "refusal") or ""),
        finish=finish_of(choices[0], given, message),
        model=str(get(given, "model") or ""),
        counts=counts_of(get(given, "usage")),
        choices=len(choices),
    )
