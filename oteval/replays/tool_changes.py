"""Changes of the answers of tools in a repeated session: faults, and other results.

A change is written as an option: ``TOOL[#N]=KIND[@RATE]``.

- ``TOOL`` is the name of a tool; ``*`` matches any text, ``?`` any character. A URL stands for the
  HTTP requests that a tool sends: ``https://shop.example/orders*``.
- ``#N`` selects the N-th matching call of the session, from 1. Without it, every call is changed.
- ``KIND`` is the fault: ``timeout``, ``error[:STATUS]``, ``empty``, ``slow:TIME``, ``malformed`` or
  ``wrong-type``.
- ``@RATE`` puts the fault at random into this share of the calls. The same seed selects the same
  calls of a session.

This module is pure: `ToolChanges` selects the change of a call, and `changed_call` and
`changed_answer` make the answer.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, Literal, get_args

from ..base.errors import ConfigError
from ..base.jsontext import dumps, loads
from ..base.text import seconds as parse_seconds
from ..model import Chunk, RecordedToolCall, Recording
from .http_answers import NO_WAIT, HttpAnswer
from .typed_answers import reported_form

__all__ = [
    "ChangedToolCall",
    "ToolChange",
    "ToolChanges",
    "changed_answer",
    "changed_call",
    "tool_changes",
    "uncalled",
]

_Kind = Literal["timeout", "error", "empty", "slow", "malformed", "wrong-type", "result"]
_FAULTS = tuple(kind for kind in get_args(_Kind) if kind != "result")
_FAULT = re.compile(
    r"(?P<tool>.+?)(?:#(?P<number>\d+))?=(?P<kind>[a-z-]+)(?::(?P<value>[^@]*))?"
    r"(?:@(?P<rate>[^@]*))?"
)
_SELECTOR = re.compile(r"(?P<tool>.+?)(?:#(?P<number>\d+))?")
_FORM = "write --fault TOOL[#N]=KIND[@RATE], such as refund#2=timeout or refund=error:503@0.3"


@dataclass(frozen=True)
class ToolChange:
    """A change of the answers of a tool.

    Attributes:
        text: The option as the user wrote it.
        tool: The tool, or the URL of requests; may contain ``*`` and ``?``.
        kind: The kind of the fault, or ``result`` for another result.
        number: The number of the only call that is changed, from 1; None for all calls.
        value: The status, the seconds or the result; None for other kinds.
        rate: The share of calls that are changed at random; None for all of them.
    """

    text: str
    tool: str
    kind: _Kind
    number: int | None = None
    value: Any = None
    rate: float | None = None

    @property
    def is_for_requests(self) -> bool:
        """Whether it changes the answers of HTTP requests, not of tools."""
        return self.tool.startswith(("http://", "https://"))

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault, not another result."""
        return self.kind != "result"

    @property
    def is_failure(self) -> bool:
        """Whether the changed call has failed, whatever its result looks like."""
        return self.kind not in ("result", "slow")

    @property
    def error(self) -> tuple[str, str]:
        """The type and the text of the exception that a tool raises; "" for other kinds."""
        if self.kind == "timeout":
            return "TimeoutError", "the tool timed out"
        if self.kind == "error":
            return "RuntimeError", f"HTTP {self.value}: {_phrase(self.value)}"
        return "", ""

    def matches(self, name: str) -> bool:
        """Whether it selects calls of a tool, or requests to a URL."""
        return fnmatchcase(name, self.tool)


def tool_changes(
    faults: Iterable[str] = (), results: Mapping[str, str] | None = None
) -> tuple[ToolChange, ...]:
    """Parse the changes of a session; faults take precedence.

    Args:
        faults: The faults, as ``TOOL[#N]=KIND[@RATE]``.
        results: Other results by ``TOOL[#N]``.

    Raises:
        ConfigError: An option has another form.
    """
    parsed_results = (_result(selector, text) for selector, text in (results or {}).items())
    return (*map(_fault, faults), *parsed_results)


def _fault(text: str) -> ToolChange:
    match = _FAULT.fullmatch(text)
    if match is None:
        raise ConfigError(f"--fault {text}: {_FORM}")
    value = match["value"]
    kind: _Kind = match["kind"]  # type: ignore[assignment]
    if kind not in _FAULTS:
        raise ConfigError(f"--fault {text}: {kind!r} is none of {', '.join(_FAULTS)}")
    number = _number(text, match["number"])
    rate = None if match["rate"] is None else _rate(text, match["rate"])
    if rate is not None and number is not None:
        raise ConfigError(f"--fault {text}: give #N or @RATE, not both")
    return ToolChange(text, match["tool"], kind, number, _value(text, kind, value), rate)


def _result(selector: str, content: str) -> ToolChange:
    match = _SELECTOR.fullmatch(selector)
    if match is None or match["tool"].startswith(("http://", "https://")):
        raise ConfigError(f"--tool-result {selector}: write --tool-result TOOL[#N]=FILE")
    number = _number(selector, match["number"])
    return ToolChange(selector, match["tool"], "result", number, content)


def _number(text: str, number: str | None) -> int | None:
    if number is not None and int(number) < 1:
        raise ConfigError(f"{text}: calls are numbered from #1")
    return None if number is None else int(number)


def _rate(text: str, rate: str) -> float:
    try:
        share = float(rate)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"--fault {text}: the rate {rate!r} is not above 0 and at most 1")
    return share


def _value(text: str, kind: str, value: str | None) -> Any:
    if kind == "error":
        status = "500" if value is None else value
        if not status.isdigit() or not 400 <= int(status) <= 599:
            raise ConfigError(f"--fault {text}: {status!r} is not an HTTP status from 400 to 599")
        return int(status)
    if kind == "slow":
        try:
            delay = parse_seconds(value or "")
        except ValueError:
            delay = 0.0
        if delay <= 0:
            raise ConfigError(f"--fault {text}: write slow:TIME, such as slow:5s")
        return delay
    if value is not None:
        raise ConfigError(f"--fault {text}: {kind} takes no value")
    return None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "error"


def uncalled(changes: Iterable[ToolChange], recording: Recording) -> str:
    """The first change of a tool that a recorded session never calls, as text; or "".

    Args:
        changes: The changes.
        recording: The recording.
    """
    names = {call.name for call in recording.tool_calls}
    for model_call in recording.model_calls:
        if model_call.answer is not None:
            names |= {call.name for call in model_call.answer.client_calls}
    urls = {exchange.url for exchange in recording.exchanges}
    for change in changes:
        if not any(map(change.matches, urls if change.is_for_requests else names)):
            what = "request to" if change.is_for_requests else "call of"
            return f"{change.text}: the recorded run has no {what} {change.tool}"
    return ""


class ToolChanges:
    """Selects the changes of one session's calls; counts the calls.

    Args:
        changes: The changes; the first one that selects a call counts.
        seed: Selects the calls of changes at random, together with the session.
        session: The id of the session.

    Attributes:
        applied: The texts of the changes that were put in, one for each changed call.
    """

    def __init__(self, changes: Iterable[ToolChange], *, seed: int = 0, session: str = "") -> None:
        self._changes = tuple(changes)
        self._seed, self._session = seed, session
        self._calls: Counter[int] = Counter()
        self.applied: list[str] = []

    def take(
        self, name: str, *, is_kept: bool = False, is_request: bool = False
    ) -> ToolChange | None:
        """Count a call; return its change, or None.

        Args:
            name: The tool, or the URL of a request.
            is_kept: Whether the call keeps its recorded answer; it is only counted.
            is_request: Whether it is an HTTP request.
        """
        chosen: ToolChange | None = None
        for index, change in enumerate(self._changes):
            if change.is_for_requests != is_request or not change.matches(name):
                continue
            self._calls[index] += 1
            if chosen is None and not is_kept and self._selects(index, change):
                chosen = change
        if chosen is not None:
            self.applied.append(chosen.text)
        return chosen

    def _selects(self, index: int, change: ToolChange) -> bool:
        number = self._calls[index]
        if change.rate is None:
            return change.number in (None, number)
        draw = random.Random(f"{self._seed}\0{self._session}\0{change.text}\0{number}")  # noqa: S311
        return draw.random() < change.rate


@dataclass(frozen=True, slots=True)
class ChangedToolCall(RecordedToolCall):
    """The answer of a call that was changed.

    Attributes:
        delay: The seconds until the tool answers.
        is_fault: Whether the tool raises an exception that was not recorded.
    """

    delay: float = 0.0
    is_fault: bool = False


def changed_call(call: RecordedToolCall, change: ToolChange) -> ChangedToolCall:
    """The answer of a call after a change.

    Args:
        call: The call with its answer.
        change: The change.
    """
    same = {name: getattr(call, name) for name in RecordedToolCall.__dataclass_fields__}
    if change.kind == "slow":
        return ChangedToolCall(**same, delay=change.value)
    bare = ChangedToolCall(call.name, call.arguments, call_id=call.call_id)
    kind, text = change.error
    if kind:
        raised = reported_form(kind, text)
        return replace(bare, is_error=True, raised=raised, is_fault=True)
    recorded = call.result if call.own_result is None else call.own_result
    result = change.value if change.kind == "result" else _damaged(recorded or "", change.kind)
    return replace(bare, result=result)


def _damaged(text: str, kind: str) -> str:
    """A result that is empty, malformed or of another type.

    None of them contains a part of the result that shows the call's success.
    """
    try:
        value = loads(text)
    except ValueError:
        value = text
    if kind == "empty":
        return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else ""
    if kind == "malformed":
        first = next(iter(value), "result") if isinstance(value, dict) else "result"
        return f"{{{dumps(str(first))}:"
    return "{}" if isinstance(value, (int, float)) else "0"


def changed_answer(
    answer: HttpAnswer, change: ToolChange, limit: float | None
) -> HttpAnswer | None:
    """The answer of an HTTP request after a change; None if the change cannot be put there.

    Args:
        answer: The recorded answer.
        change: The change.
        limit: The seconds that the client waits for the response; None if they are not known. A
            response that takes longer is an error at once: nothing waits.
    """
    if change.kind == "slow" and limit is None:
        return None
    if change.kind == "timeout" or (change.kind == "slow" and change.value >= limit):
        return HttpAnswer(status=0, error="ReadTimeout: the server did not answer in time")
    if change.kind == "slow":
        return answer
    if change.kind == "error":
        body = dumps({"error": _phrase(change.value)})
        headers = {"content-type": "application/json", **NO_WAIT}
        return HttpAnswer(change.value, headers, (Chunk(body.encode()),))
    text = ""
    if change.kind != "empty":
        text = _damaged(answer.body.decode("utf-8", "replace"), change.kind)
    return replace(answer, chunks=(Chunk(text.encode()),), error="")
