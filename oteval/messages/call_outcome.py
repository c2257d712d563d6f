"""Whether a tool call failed: one rule for the results in traces and the results that callers pass.

Dialects, readers and forms of messages pass on **evidence** and decide nothing. Evidence has three
kinds, the strongest first:

1. **Recorded** by the emitter next to the result: the span's status, an exception event,
   ``error.type``, a message's ``is_error`` or ``status``. A recorded failure is a failure.
2. **Reported** in the result by the tool or its protocol, as JSON: MCP's ``isError``, an ``error``
   key, ``status: "error"``, ``success: false``, an HTTP status. JSON that was encoded once more
   and the repr of a dict count as JSON.
3. **Written** in the result as text: it begins like an error, such as
   ``ValueError: ...``, ``error: ...``, ``HTTP 500`` or a traceback.

``is_error: false`` and ``isError: false`` are recorded successes: they outrank the text. They do
not outrank an error that the tool itself reports, because servers send them whenever nothing was
raised. ``status: "success"`` and a span's status OK do not count: frameworks write them on every
result of a tool that did not raise.

Without evidence the outcome is unknown, and the call does not count as failed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Literal, NamedTuple

from ..base.jsontext import dumps, loads
from ..model import Message

__all__ = [
    "RULE_VERSION",
    "CallOutcome",
    "decided",
    "near_miss_of",
    "outcome_of",
    "outcome_of_message",
    "recorded_outcome",
]


RULE_VERSION = "call outcome 1"
"""Part of the versions of evaluators that use the rule: a new version evaluates every run again."""


class CallOutcome(NamedTuple):
    """Whether a call failed, and how that is known.

    Attributes:
        failed: Whether it failed; None if nothing shows it.
        evidence: The evidence that decided, or "".
        reason: The text of the failure, or "".
    """

    failed: bool | None = None
    evidence: Literal["", "recorded", "flagged", "reported", "written"] = ""
    reason: str = ""


_UNKNOWN = CallOutcome()
# The beginning of a result that is examined as text.
_HEAD = 2000
_SHOWN = 200
_MAX_DEPTH = 4


def outcome_of(content: str | None, *, recorded: bool | None = None) -> CallOutcome:
    """The outcome of a call.

    Args:
        content: The result as text, or None if it is unknown.
        recorded: Whether the emitter recorded a failure next to the result; None if it recorded
            neither a failure nor a success.
    """
    written_outcome = _read_text(content, 0) if content else _UNKNOWN
    if recorded:
        return CallOutcome(
            failed=True, evidence="recorded", reason=written_outcome.reason or _short(content)
        )
    if recorded is None or written_outcome.evidence == "reported":
        return written_outcome
    return CallOutcome(failed=False, evidence="recorded")


def recorded_outcome(field: Callable[[str], Any]) -> bool | None:
    """Whether the fields next to a result record a failure; None if they record nothing.

    Args:
        field: Returns the value of a field, or None if there is none.
    """
    flags = [
        flag for key in _FLAGS if (flag := _FLAG_VALUES.get(str(field(key)).lower())) is not None
    ]
    if True in flags or _is_error_value(field("error")):
        return True
    status = field("status")
    if isinstance(status, str) and status.lower() in _BAD_STATUSES:
        return True
    return False if False in flags else None


def outcome_of_message(message: Message) -> CallOutcome:
    """The outcome of the call whose result is a message."""
    if message.is_outcome_recorded:
        return outcome_of(message.content, recorded=message.is_error)
    outcome = outcome_of(message.content)
    if message.is_error and not outcome.failed:
        # For example from an earlier version, or about a result that has been replaced since.
        return CallOutcome(failed=True, evidence="recorded", reason=_short(message.content))
    return outcome


def decided(message: Message) -> Message:
    """A tool's message with `is_error` set by the evidence; other messages as they are."""
    if message.role != "tool" or (message.is_error and message.is_outcome_recorded):
        return message
    failed = bool(outcome_of_message(message).failed)
    return message if failed == message.is_error else replace(message, is_error=failed)


def near_miss_of(content: str | None) -> str:
    """The beginning of a result that looks almost like an error, or "" for any other result.

    Args:
        content: A result that is not an error.
    """
    return _short(content) if content and _NEAR_MISS.match(content) else ""


def _read_text(text: str, depth: int) -> CallOutcome:
    """The outcome that a result shows, as JSON or as text."""
    text = text.lstrip()
    first = text[:1]
    if first and first in _OPENS and depth < _MAX_DEPTH and _may_report(text):
        value = _parsed(text)
        if value is not None:
            return _read_value(value, depth + 1)
        if _CUT_REPORT.match(text):
            return CallOutcome(failed=True, evidence="reported", reason=_short(text))
    head = text[:_HEAD]
    if _is_written(head):
        return CallOutcome(failed=True, evidence="written", reason=_short(head))
    if "tool_call_id='" in text and _PRINTED_MESSAGE.search(text[-_HEAD:]):
        return CallOutcome(failed=True, evidence="flagged", reason=_short(head))
    if text.endswith(_FAILED_MCP) and _PRINTED_MCP.match(text):
        return CallOutcome(failed=True, evidence="flagged", reason=_short(head))
    return _UNKNOWN


_OPENS = '{["'
# One of these is in every long result that reports its outcome.
_REPORTS = ("rror", "RROR", "xception", "tatus", "uccess", '"ok"', "'ok'")


def _may_report(text: str) -> bool:
    """Whether it is worth parsing a text: most long ones do not report their outcome."""
    return len(text) <= _HEAD or text[0] == '"' or any(word in text for word in _REPORTS)


# JSON whose end is missing.
_CUT_REPORT = re.compile(
    r"""\{\s*["'](?:error|Error|ERROR|error_message|errorMessage)["']\s*:\s*["'{][^"'}]"""
)


def _parsed(text: str) -> Any:
    """The value of JSON text or of the repr of a dict or list; None for any other text."""
    try:
        return loads(text)
    except (ValueError, RecursionError):
        pass
    if text[:2] not in ("{'", "[{", "['") or len(text) > _MAX_REPR:
        return None
    try:
        return ast.literal_eval(text.rstrip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


# Python's parser takes 50 times as long as the JSON parser.
_MAX_REPR = 20_000


def _read_value(value: Any, depth: int) -> CallOutcome:
    """The outcome that a parsed result shows."""
    if isinstance(value, str):
        return _read_text(value, depth)
    if depth > _MAX_DEPTH:
        return _UNKNOWN
    if isinstance(value, Mapping):
        return _read_mapping(value, depth)
    if isinstance(value, list):
        return _read_blocks(value, depth)
    return _UNKNOWN


def _read_blocks(blocks: list[Any], depth: int) -> CallOutcome:
    """The outcome that the text in content blocks shows; a list of data shows none."""
    texts = [
        block["text"]
        for block in blocks
        if isinstance(block, Mapping)
        and block.get("type", "text") == "text"
        and isinstance(block.get("text"), str)
    ]
    if texts and len(texts) == len(blocks):
        return _read_text("\n".join(texts), depth)
    if len(blocks) == 1 and isinstance(blocks[0], Mapping) and "type" in blocks[0]:
        return _read_mapping(blocks[0], depth)
    return _UNKNOWN


def _read_mapping(fields: Mapping[str, Any], depth: int) -> CallOutcome:
    """The outcome that an object's own keys show, or else the result inside it."""
    flag = next((fields[key] for key in _FLAGS if isinstance(fields.get(key), bool)), None)
    if flag:
        return CallOutcome(failed=True, evidence="flagged", reason=_reason(fields))
    if _reports_error(fields):
        return CallOutcome(failed=True, evidence="reported", reason=_reason(fields))
    inner = _inner(fields, depth, is_envelope=flag is not None)
    if inner.evidence == "reported" or flag is None:
        return inner
    return CallOutcome(failed=False, evidence="flagged")


_FLAGS = ("isError", "is_error")
# Some emitters write flags as text or numbers.
_FLAG_VALUES = {"true": True, "1": True, "false": False, "0": False}
_ENVELOPES = (
    *("content", "kwargs", "message", "output", "response", "result", "structuredContent", "value"),
)


def _inner(fields: Mapping[str, Any], depth: int, *, is_envelope: bool) -> CallOutcome:
    """The outcome of the result inside an object that contains little else."""
    if not is_envelope and len(fields) > 1 and not _is_message(fields):
        return _UNKNOWN
    outcomes = (_read_value(fields[key], depth + 1) for key in _ENVELOPES if key in fields)
    return next((outcome for outcome in outcomes if outcome.failed), _UNKNOWN)


def _is_message(fields: Mapping[str, Any]) -> bool:
    return "tool_call_id" in fields or "lc" in fields or str(fields.get("type")) in _BLOCK_TYPES


_BLOCK_TYPES = ("text", "json", "tool", "tool_result", "ToolMessage")


def _reports_error(fields: Mapping[str, Any]) -> bool:
    """Whether an object's own keys report an error."""
    if fields.keys().isdisjoint(_EVIDENCE):
        return False
    status = next((fields[key] for key in _STATUSES if fields.get(key) is not None), None)
    verdicts = [fields[key] for key in _SUCCESSES if isinstance(fields.get(key), bool)]
    if False in verdicts:
        return True
    if verdicts or (isinstance(status, str) and status.lower() in _GOOD_STATUSES):
        return False
    if any(_is_error_value(fields[key]) for key in _ERRORS if key in fields):
        return True
    says_why = any(isinstance(fields.get(key), str) and fields[key] for key in _REASONS)
    if isinstance(status, str) and status.lower() in _BAD_STATUSES:
        # A failed job is a good answer to the question for its status.
        return status.lower() == "error" or says_why
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
        return True
    kind = fields.get("type")
    if isinstance(kind, str) and (kind == "error" or kind.startswith("error-")):
        return says_why or "value" in fields
    return _has_query_errors(fields)


_ERRORS = (
    *("error", "Error", "ERROR", "errorMessage", "error_message", "errorMsg", "error_msg"),
    *("errorText", "exception"),
)
_STATUSES = ("status", "status_code", "statusCode", "http_status")
_SUCCESSES = ("success", "ok")
# One of these is in every object that reports its outcome.
_EVIDENCE = frozenset({*_ERRORS, *_STATUSES, *_SUCCESSES, "errors", "type"})
_BAD_STATUSES = frozenset({"error", "failed", "failure"})
_GOOD_STATUSES = frozenset({"ok", "success", "succeeded", "successful", "completed", "passed"})
_REASONS = ("message", "msg", "reason", "detail", "details", "description", *_ERRORS)
_NO_ERRORS = frozenset(
    {"", "-", "0", "false", "n/a", "na", "nil", "no error", "no errors", "none", "null", "ok"}
)


def _is_error_value(value: Any) -> bool:
    """Whether the value under an error key reports an error; a measured error does not."""
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERRORS
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value is True
    return bool(value)


def _has_query_errors(fields: Mapping[str, Any]) -> bool:
    """Whether an object is GraphQL's answer to a query that failed."""
    errors = fields.get("errors")
    if not isinstance(errors, list) or not errors or fields.get("data") is not None:
        return False
    is_report = fields.keys() <= {"errors", "data", "extensions", "message", "status"}
    return is_report and all(isinstance(item, Mapping) and "message" in item for item in errors)


def _reason(fields: Mapping[str, Any]) -> str:
    """The text of a failed call's result: the text of its error, or of its content."""
    for text in _texts(fields, 0):
        return _short(text)
    return _short(dumps(fields))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value
    elif depth <= _MAX_DEPTH and isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)
    elif depth <= _MAX_DEPTH and isinstance(value, Mapping):
        for key in (*_REASONS[::-1], "text", *_ENVELOPES, "errors"):
            if key in value:
                yield from _texts(value[key], depth + 1)


def _short(text: str | None) -> str:
    line = " ".join((text or "")[: 2 * _SHOWN].split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _is_written(head: str) -> bool:
    """Whether a text begins like an error."""
    start = head[:_FIRST_WORDS].lower()
    for word in _WORDS:
        if word in start:
            break
    else:
        if not start[:1].isdigit():
            return False
    if _BEGINNING.match(head) is not None:
        return True
    class_match = _CLASS.match(head)
    if class_match is not None and class_match["name"].endswith(("Error", "Exception")):
        return class_match["name"] not in ("Error", "Exception")
    line = head.strip()
    return len(line) <= _SHOWN and "\n" not in line and _ONE_LINE.fullmatch(line) is not None


# A text is not an error if its beginning has none of these words and is not a number. This check
# takes a tenth of the time of the patterns.
_FIRST_WORDS = 300
_WORDS = (
    *("error", "exception", "traceback", "fatal", "panic", "unknown", "failed", "http", "status"),
    *("not a valid tool", "not found", "no such file", "permission denied"),
)
# Words after "Error" in texts that are about errors and do not report one.
_TOPICS = (
    "analysis|bars?|bound|budget|check(?:er|ing)?|class(?:es)?|codes?(?! ?:? ?-?\\d)|correct\\w*|"
    "count|detect\\w*|estimat\\w*|handl\\w*|logging|logs?|margin|messages?|metric|model|monitor\\w*|"
    "or|and|pages?|prone|propagation|rates?|report(?:ing|s)?|terms?|tolerance|track\\w*|types?"
)
_NOTHING = r"(?:none|null|nil|false|n/a|no errors?|0+(?:\.\d+)?%?|\d*\.\d+%?)\s*(?:$|\n)"
_PHRASES = "|".join(
    sorted(re.escape(status.phrase) for status in HTTPStatus if status.value >= 400)
)
_BEGINNING = re.compile(
    # Marks, brackets and emojis before the first word.
    r"[^\w{}'\"]{0,8}(?:"
    + "|".join(
        (
            # Error: ..., [ERROR] ..., **Error:** ..., Error (404): ..., Error - ...
            r"(?i:(?:fatal\ )?error|exception|fatal|panic|tool_use_error"
            r"|tool(?:\ \w{1,20})?\ error)"
            r"(?:[\])*`>]|\ ?\([^)\n]{0,60}\)|\ \d{3})*"
            rf"(?:\s*:(?!:)|[!.,](?=\s|$)|\s+[-–—]\s|\s*$|\s*\n|(?<=[\]>]))(?!\s*(?i:{_NOTHING}))",
            # Error executing tool ..., Error 404 ..., Error in ...: ...
            rf"(?i:error)\s+(?!(?i:{_TOPICS})\b)"
            r"(?:\w+ing\b|\d{3}\b|code\b|while\b|when\b|occurr?ed\b|during\b|trying\b"
            r"|(?:accessing|at|from|in|on|with)\b[^\n]{0,200}:)",
            r"Exception\s+(?:in|occurr?ed|raised|thrown|while|during)\b",
            r"Traceback\b",
            r"(?i:(?:(?:there\ was|got|encountered)\ )?(?:an?\ )?(?:\w{1,20}\ )?(?:error|exception)"
            r"\ (?:has\ |was\ )?(?:occurr?ed|happened|raised|thrown|encountered))\b",
            r"(?i:there\ was\ an\ (?:\w{1,20}\ )?error)\b",
            r"(?i:internal\ (?:server\ )?error|unexpected\ error|unhandled\ (?:error|exception))\b",
            r"(?i:unknown\ (?:action|command|function|tool))\b",
            r"(?:Execution\ error\ in|MCP\ error|npm\ (?:ERR!|error))\s",
            r"(?i:failed\ to)\ \w",
            r"(?i:(?:api|command|connection|execution|function|invocation|operation|query|request"
            r"|tool|call)\b[^\n:]{0,60}\ failed)\b",
            # HTTP 500, HTTP/1.1 404 Not Found, HTTP Error 403: ..., status code 502
            r"HTTP(?:/\d(?:\.\d)?)?(?:\ ?(?i:error|status|code))*:?\s*[45]\d\d\b"
            r"(?!\ (?:is|are|means|was|stands|responses?|errors?\ (?:are|is))\b)",
            r"(?i:status(?:\ ?code)?):?\s[45]\d\d\b",
            rf"[45]\d\d:?\ (?:Client\ Error|Server\ Error|(?i:{_PHRASES}))\b",
            r"(?:Client|Server)\ error\ '[45]\d\d\b",
            # The text of a LangChain tool that cannot be called.
            r"\S{1,80}\ is\ not\ a\ valid\ tool\b",
        )
    )
    + ")"
)
# ValueError: ..., requests.exceptions.HTTPError: ..., KeyError('x'), or the name alone
_CLASS = re.compile(r"[^\w{}'\"]{0,8}(?P<name>[A-Za-z_][\w.$]{0,150})(?:\s?:|\(['\"]|\s*$|\s*\n)")
# One line without further text: Error user 17 is gone; cat: a.txt: No such file or directory
_ONE_LINE = re.compile(
    rf"Error\ (?!(?:{_TOPICS})\b)\w.*"
    r"|\S.*:\ (?:command\ not\ found|[Nn]o\ such\ file\ or\ directory|[Pp]ermission\ denied)\.?"
)
# A message of LangChain as Python prints it.
_PRINTED_MESSAGE = re.compile(r"\btool_call_id='[^'\n]{0,200}'[^\n]{0,200}\bstatus='error'")
# An MCP result as Python prints it: its fields alone, or with the class.
_FAILED_MCP = ("isError=True", "isError=True)", "is_error=True", "is_error=True)")
_PRINTED_MCP = re.compile(r"\w*Result\(|_?meta=|content=\[")
# `oteval.store.outlines` searches the JSON of messages with it, and it may match more there.
_NEAR_MISS = re.compile(r"[^A-Za-z]{0,8}(?i:errors?|exceptions?|traceback)(?:[^A-Za-z ]|\Z)")
