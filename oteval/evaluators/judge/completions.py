"""Read replies from chat completions, whole or streamed.

Servers differ: content may be a string or a list of parts, the arguments of a tool call a string or
an object, and token counts may be missing. This module reads all of these for every backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import JudgeError
from ...model import NO_TOKENS, TokenCounts, normal_finish_reason, read_tokens
from .output_modes import (
    COMPLETE_FINISH_REASONS,
    CompletionRequest,
    ModelReply,
)

__all__ = [
    "AnswerCall",
    "AnswerText",
    "StreamedCompletion",
    "attribute",
    "finish_reason",
    "make_reply",
    "plain_form",
    "read_completion",
    "read_content",
    "token_count",
]

_TEXT_PARTS = frozenset({"text", "output_text"})
# Parts that contain reasoning, which is a draft of the answer.
_REASONING_PARTS = frozenset(
    {"reasoning", "thinking", "redacted_thinking", "thought", "reasoning_text"}
)
_CALL_PARTS = frozenset({"tool_use", "tool_call", "function_call"})


@dataclass(frozen=True)
class AnswerCall:
    """A tool call in a reply.

    Attributes:
        name: The tool's name, or "".
        arguments: JSON text or an object.
    """

    name: str
    arguments: Any


@dataclass(frozen=True)
class AnswerText:
    """The text of a reply's content.

    Attributes:
        text: None if the content has no text.
        refusal: A refusal among the content's parts, or "".
        problem: Why the content is unusable, or "".
    """

    text: str | None
    refusal: str = ""
    problem: str = ""


def attribute(value: Any, name: str) -> Any:
    """A field of an object or a dict, or None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def read_content(content: Any) -> AnswerText:
    """Read content that is a string, a list of parts, or None; skip parts with reasoning."""
    if content is None or isinstance(content, str):
        return AnswerText(content)
    if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
        return AnswerText(None, problem=f"the answer's content is a {type(content).__name__}")
    texts, refusals = [], []
    for part in content:
        kind = "text" if isinstance(part, str) else attribute(part, "type")
        if kind in _REASONING_PARTS or attribute(part, "thought") is True:
            continue
        if kind == "refusal":
            refusals.append(str(attribute(part, "refusal") or "no reason given"))
        elif kind in _TEXT_PARTS or kind is None:
            text = part if isinstance(part, str) else attribute(part, "text")
            texts.append(text if isinstance(text, str) else "")
        elif kind not in _CALL_PARTS:
            return AnswerText(None, problem=f"the answer has a part of type {kind!r}")
    return AnswerText("".join(texts) if texts else None, " ".join(refusals))


def token_count(value: Any) -> int | None:
    """A positive count of tokens as an int; None for any other value."""
    is_count = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return int(value) if is_count and value < 1 << 53 else None


def plain_form(value: Any) -> Any:
    """A Pydantic model as a dict, and any other value as it is."""
    return value.model_dump() if hasattr(value, "model_dump") else value


def finish_reason(*sources: Any) -> str:
    """The first finish reason that one of the objects states, or ""."""
    for source in sources:
        details = attribute(source, "incomplete_details")
        if attribute(source, "status") == "incomplete" or details:
            return str(attribute(details, "reason") or "incomplete")
    reasons = (attribute(source, "finish_reason") for source in sources)
    return str(next((reason for reason in reasons if reason), ""))


def make_reply(
    request: CompletionRequest,
    *,
    content: AnswerText,
    calls: Sequence[AnswerCall],
    refusal: str = "",
    finish_reason: str = "",
    model: str = "",
    counts: TokenCounts = NO_TOKENS,
    choices: int = 1,
) -> ModelReply:
    """The reply made of the parts of a message.

    Args:
        request: The request; a tool call is the answer only if the request forced one.
        content: The message's content.
        calls: The message's tool calls.
        refusal: The model's reason for refusing to answer, or "".
        finish_reason: Why the model stopped.
        model: The model that replied.
        counts: The tokens.
        choices: The number of messages in the reply.
    """
    text, value, problem = content.text, None, content.problem
    if request.mode == "tool" and calls:
        problem = problem or _call_problem(calls, request.schema.name)
        arguments = calls[0].arguments
        text = arguments if isinstance(arguments, str) else None
        value = dict(arguments) if isinstance(arguments, Mapping) else None
    if choices > 1:
        problem = f"the reply has {choices} answers; expected one"
    return ModelReply(
        text,
        value=value,
        refusal=refusal or content.refusal,
        finish_reason=finish_reason,
        model=model,
        # Servers that do not count tokens report 0 of them.
        input_tokens=counts.input or None,
        output_tokens=counts.output or None,
        cached_tokens=counts.cached or 0,
        cache_write_tokens=counts.cache_write or 0,
        problem=problem,
    )


def _call_problem(calls: Sequence[AnswerCall], expected: str) -> str:
    if len(calls) > 1:
        return f"the reply has {len(calls)} tool calls; expected one"
    name = calls[0].name
    if name and name != expected:
        return f"the model called the tool {name!r} instead of {expected!r}"
    return ""


def read_completion(response: Any, request: CompletionRequest) -> ModelReply:
    """The reply in a whole chat completion, an object or a dict.

    Raises:
        JudgeError: The response is not a chat completion.
    """
    choices = attribute(response, "choices")
    message = attribute(choices[0], "message") if isinstance(choices, list) and choices else None
    if message is None:
        excerpt = " ".join(str(response).split())[:300]
        raise JudgeError(f"the server's reply is not a chat completion: {excerpt}")
    functions = [attribute(call, "function") for call in attribute(message, "tool_calls") or ()]
    return make_reply(
        request,
        content=read_content(attribute(message, "content")),
        calls=[
            AnswerCall(attribute(f, "name") or "", attribute(f, "arguments")) for f in functions
        ],
        refusal=str(attribute(message, "refusal") or ""),
        finish_reason=finish_reason(choices[0], response, message),
        model=str(attribute(response, "model") or ""),
        counts=read_tokens(plain_form(attribute(response, "usage"))),
        choices=len(choices),
    )


@dataclass
class _StreamedCall:
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class StreamedCompletion:
    """A chat completion assembled from the chunks of a stream."""

    _content: list[Any] = field(default_factory=list)
    _calls: dict[Any, _StreamedCall] = field(default_factory=dict)
    _refusal: list[str] = field(default_factory=list)
    _choices: set[Any] = field(default_factory=set)
    _finish_reasons: list[str] = field(default_factory=list)
    _model: str = ""
    _usage: Any = None

    def add(self, chunk: Any) -> None:
        """Add a chunk, or a whole completion that the server sends as one."""
        self._model = str(attribute(chunk, "model") or self._model)
        self._usage = attribute(chunk, "usage") or self._usage
        self._finish_reasons.append(finish_reason(chunk))
        for choice in attribute(chunk, "choices") or ():
            self._choices.add(attribute(choice, "index") or 0)
            self._finish_reasons.append(finish_reason(choice))
            delta = attribute(choice, "delta") or attribute(choice, "message")
            content = attribute(delta, "content")
            self._content += content if isinstance(content, list) else [content or ""]
            self._refusal.append(str(attribute(delta, "refusal") or ""))
            for call in attribute(delta, "tool_calls") or ():
                self._add_call(call)

    def _add_call(self, chunk: Any) -> None:
        call = self._calls.setdefault(attribute(chunk, "index") or 0, _StreamedCall())
        function = attribute(chunk, "function")
        call.name = call.name or str(attribute(function, "name") or "")
        call.arguments.append(str(attribute(function, "arguments") or ""))

    def _finish_reason(self) -> str:
        """Why the model stopped, preferring a reason that means the answer is incomplete.

        A stream without any reason was cut off.
        """
        reasons = [reason for reason in self._finish_reasons if reason]
        incomplete = (
            reason
            for reason in reasons
            if normal_finish_reason(reason) not in COMPLETE_FINISH_REASONS
        )
        return next(incomplete, reasons[-1] if reasons else "end of the stream")

    def completion(self, request: CompletionRequest) -> ModelReply:
        """The reply."""
        calls = self._calls.values()
        return make_reply(
            request,
            content=read_content(self._content),
            calls=[AnswerCall(call.name, "".join(call.arguments)) for call in calls],
            refusal="".join(self._refusal),
            finish_reason=self._finish_reason(),
            model=self._model,
            counts=read_tokens(plain_form(self._usage)),
            choices=len(self._choices),
        )
