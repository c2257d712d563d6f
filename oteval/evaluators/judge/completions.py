"""Read replies from chat completions, whole or streamed, and the errors of model servers.

Servers differ: content may be a string or a list of parts, the arguments of a tool call a string or
an object, and token counts may be missing. This module reads all of these for every backend.

Gateways answer with status 200 and ``{"error": {"code": 429, "message": ...}}`` when a provider
behind them fails. Such an error counts as the status that it names. A refused option, such as a
``temperature``, is refused in every output mode alike (`OptionRefused`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import JudgeError
from ...model import NO_TOKENS, TokenCounts, normal_finish_reason, read_tokens
from .output_modes import (
    COMPLETE_FINISH_REASONS,
    CompletionRequest,
    ModelReply,
    OutputModeRefused,
    is_about_format,
)

__all__ = [
    "AnswerCall",
    "AnswerText",
    "OptionRefused",
    "ServerError",
    "ServerErrorInAnswer",
    "StreamedCompletion",
    "attribute",
    "error_in_answer",
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


@dataclass
class AnswerCall:
    """A tool call in a reply; of a stream, as far as it has arrived.

    Attributes:
        name: The tool's name, or "".
        arguments: JSON text or an object.
    """

    name: str = ""
    arguments: Any = ""


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
class StreamedCompletion:
    """A chat completion assembled from the chunks of a stream."""

    _content: list[Any] = field(default_factory=list)
    _calls: dict[Any, AnswerCall] = field(default_factory=dict)
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
        call = self._calls.setdefault(attribute(chunk, "index") or 0, AnswerCall())
        function = attribute(chunk, "function")
        call.name = call.name or str(attribute(function, "name") or "")
        call.arguments += str(attribute(function, "arguments") or "")

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
        return make_reply(
            request,
            content=read_content(self._content),
            calls=[*self._calls.values()],
            refusal="".join(self._refusal),
            finish_reason=self._finish_reason(),
            model=self._model,
            counts=read_tokens(plain_form(self._usage)),
            choices=len(self._choices),
        )


# Statuses with which servers answer requests in an output mode that they do not support.
_MODE_STATUSES = (400, 422, 500, 501)
# A busy server also answers so.
_OUTAGE_STATUS = 500
# Error codes that mean the same in every output mode.
_FINAL_CODES = frozenset({"context_length_exceeded", "invalid_api_key", "model_not_found"})
# Parameters of the output mode; all other parameters are the same in each mode.
_MODE_PARAMETERS = frozenset(
    {"function_call", "functions", "messages", "parallel_tool_calls", "response_format", "strict"}
    | {"text", "tool_choice", "tools"}
)
_NAMED_STATUSES = (
    (re.compile(r"rate.?limit|too.?many|quota|throttl", re.IGNORECASE), 429),
    (re.compile(r"overload|unavailable|capacity", re.IGNORECASE), 503),
    (re.compile(r"time.?out", re.IGNORECASE), 504),
    (re.compile(r"server.?error|internal", re.IGNORECASE), 500),
    (re.compile(r"auth|api.?key|permission", re.IGNORECASE), 401),
    (re.compile(r"invalid|unsupported|bad.?request", re.IGNORECASE), 400),
)
# The words of OpenAI and of servers like it: "Unsupported value: 'temperature' does not support 0".
_REFUSED_PARAMETER = re.compile(r"unsupported (?:parameter|value)s?:?\W+(\w+)", re.IGNORECASE)
_LONGEST = 300


@dataclass(frozen=True)
class ServerError:
    """An error as the server reports it.

    Attributes:
        status: The HTTP status, or the status of an error in an answer; 0 if none is named.
        message: The server's words.
        code: The server's code, or "".
        param: The parameter that it refuses, or "".
    """

    status: int
    message: str
    code: str = ""
    param: str = ""

    @classmethod
    def of(cls, error: Any, status: int = 0) -> ServerError:
        """The error in a body.

        Args:
            error: The value of ``error``, or a body that is the error itself.
            status: The HTTP status; 0 for the status that the error names.
        """
        if isinstance(error, Mapping) and isinstance(error.get("error"), (Mapping, str)):
            error = error["error"]
        if not isinstance(error, Mapping):
            return cls(status or _status_named((str(error),)), _one_line(error))
        code, kind = (str(error.get(key) or "") for key in ("code", "type"))
        numbers = [str(error.get(key) or "") for key in ("status", "status_code", "code")]
        number_in_text = next((int(number) for number in numbers if _is_status(number)), 0)
        message = error.get("message") or error.get("detail") or code or kind or dict(error)
        names = (code, kind, *numbers)
        return cls(
            status or number_in_text or _status_named(names if any(names) else (str(message),)),
            _one_line(message),
            code,
            str(error.get("param") or ""),
        )

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later, as the ``openai`` package decides it."""
        return self.status in (408, 409, 429) or self.status >= 500

    def explained(self, address: str, options: Collection[str] = ()) -> JudgeError:
        """The `JudgeError` for the error.

        Args:
            address: The server's address.
            options: The names of the parameters that the user sets.
        """
        text = f"{address} answered {self.status or 'with an error'}: {self.message}"
        if self.status not in _MODE_STATUSES or self.code in _FINAL_CODES:
            return JudgeError(text)
        if refused := self._refused_option(options):
            return OptionRefused(f"{text} (leave {refused} out of the evaluator's options)")
        return OutputModeRefused(text, is_outage=self.status == _OUTAGE_STATUS)

    def _refused_option(self, options: Collection[str]) -> str:
        """The parameter that is refused in every output mode alike, or ""."""
        param = re.split(r"[.\[]", self.param)[0]
        if param:
            return "" if param in _MODE_PARAMETERS else param
        if self.status == _OUTAGE_STATUS:
            return ""
        refused = _REFUSED_PARAMETER.search(self.message)
        if refused and refused[1] in options:
            return refused[1]
        if is_about_format(self.message):
            return ""
        mentioned = (name for name in options if re.search(rf"\b{re.escape(name)}\b", self.message))
        return next(mentioned, "")


class OptionRefused(JudgeError):
    """The model does not support one of the options that the user sets, in any output mode."""


class ServerErrorInAnswer(JudgeError):
    """A server answered with status 200 and an error.

    Attributes:
        error: The error.
    """

    def __init__(self, error: ServerError) -> None:
        super().__init__(error.message)
        self.error = error


def error_in_answer(answer: Any) -> ServerError | None:
    """The error in a completion or a chunk, an object or a dict; None without an error.

    Gateways put it next to the choices, into the first choice, or in place of both.
    """
    if isinstance(answer, list) and answer:
        return error_in_answer(answer[0])
    choices = attribute(answer, "choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    for holder in (answer, first):
        for key in ("error", "errors"):
            if error := _error_value(attribute(holder, key)):
                return ServerError.of(error)
    is_error = attribute(answer, "object") == "error" or (
        not choices and attribute(answer, "usage") is None
    )
    words = [attribute(answer, key) for key in ("message", "detail")]
    if is_error and any(isinstance(text, str) and text for text in words):
        return ServerError.of(plain_form(answer))
    return None


def _error_value(value: Any) -> Mapping[str, Any] | str | None:
    value = value[0] if isinstance(value, list) and value else value
    value = plain_form(value)
    return value if value and isinstance(value, (Mapping, str)) else None


def _is_status(text: str) -> bool:
    return text.isdigit() and 400 <= int(text) < 600


def _status_named(names: Collection[str]) -> int:
    """The status that the words of an error describe, or 0."""
    return next(
        (status for pattern, status in _NAMED_STATUSES for name in names if pattern.search(name)), 0
    )


def _one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
