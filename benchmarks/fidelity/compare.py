"""Compares the runs that a tool shows of a capture with the messages that were exchanged.

The same rules hold for every tool:

- **Views.** A tool may show a turn in several ways, as the messages of a model span and as tool
  spans below an agent. Its adapter returns each view as a run, and the view that is right counts.
  Where a tool's user has to choose (a mapper, an importer), each choice is a reading, and the best
  counts. A run that is wrong beside one that is right costs nothing.
- **A turn** is the part of a run from the message with the question to the one with a later
  question. Whether a run is a turn, a trace or a conversation is up to the tool.
- **Strict**: each turn has its question once, its calls with names and arguments and no others,
  each call's own result and no other call's, and the answer after the last result. A result belongs
  to the call whose id it names; one that names none, to the first call without a result. Results
  that no tool returned, as of an output tool or a hand-off, are not asked for.
- **Lenient**: the calls' names and arguments, and the answers, are somewhere in a message of any
  run, as text.
- **Failures**: the failed calls, and no others, are flagged in the runs. This is a column beside
  strict, because tools that show only a model's messages have nowhere to put the flag. It is asked
  for only in captures whose spans flag a failure. A failure that only a text mentions is not
  flagged.
- **Texts** are equal without quotes, escapes, white space and case, because tools show the same
  result as text, as JSON and as JSON in JSON. Arguments are equal as values, after JSON is parsed.
- **Names**: ``execute_tool search``, ``search.tool`` and ``search`` name the same tool: the name
  has to be one of the words.
- **Missing from the spans**: facts that the truth's ``lacks`` names are not asked for.
- **Notes** are gaps that a tool names, and warnings that it logs while it reads. A tool that is
  wrong in strict without a note is silently wrong, except where it shows nothing at all, which no
  user takes for a conversation. A tool that ends with an exception crashes.
  Notes on captures that are right are counted as well, because a tool that always warns says
  nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Verdict", "compare"]

_NOISE = re.compile(r"\\+n|[\\\"'\s]")
_ESCAPE = re.compile(r"(?:\\+u[0-9a-fA-F]{4})+")
_WORDS = re.compile(r"[\s.:/]+")

Message = Mapping[str, Any]


class Verdict(NamedTuple):
    """How faithfully a tool read one capture.

    Attributes:
        strict: Whether the messages, calls, results and answers are right.
        lenient: Whether the calls and answers are somewhere.
        failures: Whether the failed calls are flagged, and no others; None if no span flags one.
        notes: Whether the tool says that something is missing, or shows nothing at all.
        crash: The error that ended the reading, or "".
        fault: The first difference, or "".
    """

    strict: bool
    lenient: bool
    failures: bool | None = None
    notes: bool = False
    crash: str = ""
    fault: str = ""


class _Call(NamedTuple):
    name: str
    arguments: Any
    result: Mapping[str, Any] | None = None


def compare(capture: Mapping[str, Any], truth: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a tool's best reading of a capture.

    Args:
        capture: The tool's readings (see `benchmarks.fidelity.adapters`), and its crash or "".
        truth: The capture's entry in ``truth.json``.
    """
    has_flag = truth["error_told_by"] == "flag" and any(
        call.result and call.result.get("is_error") for call in _true_calls(truth)
    )
    verdicts = [
        Verdict(
            strict=not (fault := next(_faults(reading["runs"], truth), "")),
            lenient=_is_lenient(reading["runs"], truth),
            failures=_flags_failures(reading["runs"], truth) if has_flag else None,
            notes=bool(reading["notes"]) or not _shows_anything(reading["runs"]),
            fault=fault,
        )
        for reading in capture["readings"]
    ]
    if not verdicts:
        failures = False if has_flag else None
        crash = capture["crash"] or "no reading"
        return Verdict(strict=False, lenient=False, failures=failures, crash=crash)
    return max(verdicts, key=lambda verdict: (verdict.strict, verdict.lenient, verdict.failures))


def _shows_anything(runs: Sequence[Sequence[Message]]) -> bool:
    return any(message.get("content") or message.get("calls") for run in runs for message in run)


def _faults(runs: Sequence[Sequence[Message]], truth: Mapping[str, Any]) -> Iterator[str]:
    questions = [_plain(turn[0]["content"]) for turn in truth["turns"]]
    for number, turn in enumerate(truth["turns"]):
        views = [view for run in runs if (view := _turn_view(run, number, questions))]
        if not views and "user" not in truth["lacks"]:
            yield f"turn {number + 1}: no run has the question"
        faults = [_view_fault(view, turn, truth["lacks"]) for view in views]
        if fault := min(faults, key=len, default=""):
            yield f"turn {number + 1}: {fault}"


def _turn_view(run: Sequence[Message], number: int, questions: Sequence[str]) -> Sequence[Message]:
    """Return the messages of a run from a turn's question to a later turn's."""
    start = next((at for at, each in enumerate(run) if _asks(each, questions[number])), None)
    if start is None:
        return ()
    later = questions[number + 1 :]
    end = next(
        (
            at
            for at in range(start + 1, len(run))
            if any(_asks(run[at], question) for question in later)
        ),
        len(run),
    )
    return run[start:end]


def _asks(message: Message, question: str) -> bool:
    is_user = message.get("role") in ("user", "human")
    return is_user and question in _plain(message.get("content"))


def _view_fault(view: Sequence[Message], turn: Sequence[Message], lacks: Sequence[str]) -> str:
    if sum(_asks(message, _plain(turn[0]["content"])) for message in view) > 1:
        return "the question is repeated"
    return _calls_fault(view, turn, lacks) or _answer_fault(view, turn, lacks)


def _calls_fault(view: Sequence[Message], turn: Sequence[Message], lacks: Sequence[str]) -> str:
    if {"calls", "args"} & set(lacks):
        return ""
    expected, actual = list(_turn_calls(turn)), list(_view_calls(view))
    texts = {text for call in expected for text in _result_texts(call.result)}
    # Calls with a result choose first: of two equal calls, one may have an empty result.
    for call in sorted(expected, key=lambda call: not _result_texts(call.result)):
        same = [each for each in actual if _is_same(each, call)]
        if not same:
            return f"{_shown(call)} is missing among {', '.join(map(_shown, actual)) or 'no calls'}"
        own = _result_texts(call.result)
        if "results" in lacks or not own:
            actual.remove(same[0])
            continue
        others = {text for text in texts if not any(text in each for each in own)}
        right = [each for each in same if _has_result(each, own=own, others=others)]
        if not right:
            return f"the result of {_shown(call)} is missing, or another call's"
        actual.remove(right[0])
    return f"{_shown(actual[0])} was never called" if actual else ""


def _has_result(call: _Call, *, own: set[str], others: set[str]) -> bool:
    content = _plain((call.result or {}).get("content"))
    return any(text in content for text in own) and not any(text in content for text in others)


def _answer_fault(view: Sequence[Message], turn: Sequence[Message], lacks: Sequence[str]) -> str:
    answer = _answer(turn)
    if not answer or "final" in lacks:
        return ""
    last = max((at for at, each in enumerate(view) if each["role"] != "assistant"), default=0)
    texts = "".join(_plain(message.get("content")) for message in view[last:])
    return "" if _plain(answer) in texts else f"the answer is not {answer[:40]!r}"


def _answer(turn: Sequence[Message]) -> str:
    """Return the text that ends a turn; "" where an output tool or nothing does."""
    return (turn[-1]["role"] == "assistant" and turn[-1].get("content")) or ""


def _flags_failures(runs: Sequence[Sequence[Message]], truth: Mapping[str, Any]) -> bool:
    failed = [call for call in _true_calls(truth) if (call.result or {}).get("is_error")]
    expected = failed
    for run in runs:
        flagged = [call for call in _view_calls(run) if (call.result or {}).get("is_error")]
        if not all(any(_is_flag_of(call, each) for each in failed) for call in flagged):
            return False
        expected = [
            each for each in expected if not any(_is_flag_of(call, each) for call in flagged)
        ]
    return not expected


def _is_flag_of(call: _Call, failed: _Call) -> bool:
    """Return whether a flagged call is a failed one; a flag on a call without arguments counts."""
    return _is_same(call if call.arguments else call._replace(arguments=failed.arguments), failed)


def _is_lenient(runs: Sequence[Sequence[Message]], truth: Mapping[str, Any]) -> bool:
    messages = [message for run in runs for message in run]
    texts = [_plain(each) for message in messages for each in message.get("calls") or ()]
    texts += [_plain(message.get("content")) for message in messages]
    needed = [[_plain(text)] for turn in truth["turns"] if (text := _answer(turn))]
    needed = [] if "final" in truth["lacks"] else needed
    if not {"calls", "args"} & set(truth["lacks"]):
        needed += [[_plain(c.name), *_leaves(c.arguments)] for c in _true_calls(truth)]
    return all(any(all(part in text for part in parts) for text in texts) for parts in needed)


def _leaves(value: Any) -> Iterator[str]:
    """Yield the keys and values of arguments as plain texts."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield _plain(key)
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield _plain(value)


def _true_calls(truth: Mapping[str, Any]) -> Iterator[_Call]:
    for turn in truth["turns"]:
        yield from _turn_calls(turn)


def _turn_calls(turn: Sequence[Message]) -> Iterator[_Call]:
    renamed = [
        {
            "calls": [{**call, "arguments": call["args"]} for call in each.get("tool_calls", ())],
            "call_id": each.get("id"),
            **each,
        }
        for each in turn
    ]
    yield from _view_calls(renamed)


def _view_calls(view: Sequence[Message]) -> Iterator[_Call]:
    """Yield the calls of messages, each with its result."""
    calls = [call for message in view for call in message.get("calls") or ()]
    results: dict[int, Message] = {}
    for message in (message for message in view if message["role"] == "tool"):
        call_id = message.get("call_id")
        fits = [
            at for at, call in enumerate(calls) if at not in results and call.get("id") == call_id
        ]
        fits = fits or [] if call_id else [at for at in range(len(calls)) if at not in results]
        if fits:
            results[fits[0]] = message
    for at, call in enumerate(calls):
        yield _Call(str(call.get("name")), _parsed(call.get("arguments")), results.get(at))


def _result_texts(result: Mapping[str, Any] | None) -> set[str]:
    """Return the forms of a true result that spans may hold: sent, returned or raised.

    A result that no tool returned, as of an output tool or a hand-off, is the framework's filler.
    """
    if not result or not (result.get("raw") or result.get("raised")):
        return set()
    return {_plain(result[key]) for key in ("content", "raw", "raised") if result.get(key)}


def _is_same(call: _Call, expected: _Call) -> bool:
    names = {call.name, *_WORDS.split(call.name)}
    return expected.name in names and call.arguments == expected.arguments


def _parsed(arguments: Any) -> Any:
    """Return arguments as values: JSON text is parsed, also JSON in JSON; none are empty."""
    while isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            return arguments
    return {} if arguments is None else arguments


def _shown(call: _Call) -> str:
    return f"{call.name}({json.dumps(call.arguments, sort_keys=True, default=str)})"


def _plain(value: Any) -> str:
    """Return a value as text without quotes, escapes, white space and case."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _NOISE.sub("", "" if value is None else _ESCAPE.sub(_unescaped, text)).lower()


def _unescaped(match: re.Match[str]) -> str:
    units = re.findall(r"[0-9a-fA-F]{4}", match[0].replace("u", " "))
    return b"".join(bytes.fromhex(unit) for unit in units).decode("utf-16-be", "replace")
