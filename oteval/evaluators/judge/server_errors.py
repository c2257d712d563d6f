"""Errors of model servers: in an HTTP error, in a stream, and in an answer with status 200.

Gateways answer with status 200 and ``{"error": {"code": 429, "message": ...}}`` when a provider
behind them fails. Such an error counts as the status that it names. A refused option, such as a
``temperature``, is refused in every output mode alike (`OptionRefused`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import JudgeError
from .completions import attribute, plain_form
from .output_modes import OutputModeRefused, is_about_format

__all__ = ["OptionRefused", "ServerError", "ServerErrorInAnswer", "error_in_answer"]

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
