"""What a tool shows of a capture, held against what was exchanged.

The same rules hold for every tool. **Strict**: each turn's question, its calls with names and
arguments and no others, each call's own result, the flag of a failed call where the spans flag it,
and the answer. **Lenient**: the calls' names and arguments are somewhere in what the tool shows, and
so are the answers. What the spans lack (`lacks` in ``truth.json``) is not asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Verdict", "compare"]

_NOISE = re.compile(r"[\\\"'\s]|\\n")


class Verdict(NamedTuple):
    """How faithfully a tool read one capture.

    Attributes:
        strict: Whether everything is right.
        lenient: Whether the calls and answers are somewhere.
        is_silent: Whether something is wrong and the tool says nothing is missing.
        crash: The error that ended the reading, or "".
        fault: The first thing that is wrong, or "".
    """

    strict: bool
    lenient: bool
    is_silent: bool = False
    crash: str = ""
    fault: str = ""


def compare(read: Mapping[str, Any], truth: Mapping[str, Any]) -> Verdict:
    """Return the verdict on what a tool read of a capture.

    Args:
        read: The tool's runs and notes; see `benchmarks.fidelity.adapters`.
        truth: The capture's entry in ``truth.json``.
    """
    if "crash" in read:
        return Verdict(strict=False, lenient=False, crash=read["crash"])
    runs: list[list[Mapping[str, Any]]] = read["runs"]
    fault = next((text for text in _faults(runs, truth) if text), "")
    return Verdict(
        strict=not fault,
        lenient=_is_lenient(runs, truth),
        is_silent=bool(fault) and not read["notes"],
        fault=fault,
    )


def _faults(runs: Sequence[Sequence[Mapping[str, Any]]], truth: Mapping[str, Any]) -> Iterator[str]:
    questions = [_plain(turn[0]["content"]) for turn in truth["turns"]]
    for number, turn in enumerate(truth["turns"]):
        candidates = [part for run in runs if (part := _turn(run, number, questions))]
        if not candidates:
            if "user" not in truth["lacks"]:
                yield f"turn {number + 1}: the question is nowhere"
            continue
        yield min((_turn_fault(part, turn, truth) for part in candidates), key=len)


def _turn(
    run: Sequence[Mapping[str, Any]], number: int, questions: Sequence[str]
) -> Sequence[Mapping[str, Any]]:
    """Return the messages of a turn: from its question to the next one's."""
    own = [place for place, each in enumerate(run) if _asks(each, questions[number])]
    if not own:
        return ()
    later = [
        place
        for place, each in enumerate(run)
        if place > own[0] and any(_asks(each, question) for question in questions[number + 1 :])
    ]
    return run[own[0] : later[0] if later else len(run)]


def _asks(message: Mapping[str, Any], question: str) -> bool:
    return message.get("role") in ("user", "human") and question in _plain(message.get("content"))


def _turn_fault(
    shown: Sequence[Mapping[str, Any]], turn: Sequence[Mapping[str, Any]], truth: Mapping[str, Any]
) -> str:
    lacks = set(truth["lacks"])
    calls = [call for message in shown for call in message.get("calls") or ()]
    expected = sorted(_key(call["name"], call["args"]) for call in _true_calls([turn]))
    if not {"calls", "args"} & lacks and sorted(map(_shown_key, calls)) != expected:
        return f"calls are {sorted(map(_shown_key, calls))}, and should be {expected}"
    if "results" not in lacks:
        for result in (each for each in turn if each["role"] == "tool" and each["content"]):
            if fault := _result_fault(result, shown, turn, truth):
                return fault
    answer = turn[-1].get("content") if turn[-1]["role"] == "assistant" else None
    said = "".join(_plain(each.get("content")) for each in shown if each["role"] == "assistant")
    if answer and "final" not in lacks and _plain(answer) not in said:
        return f"the answer is not {answer[:40]!r}"
    return ""


def _result_fault(
    result: Mapping[str, Any],
    shown: Sequence[Mapping[str, Any]],
    turn: Sequence[Mapping[str, Any]],
    truth: Mapping[str, Any],
) -> str:
    call = next((each for each in _true_calls([turn]) if each["id"] == result["id"]), None)
    if call is None:
        return ""
    wanted = _key(call["name"], call["args"])
    calls = (each for message in shown for each in message.get("calls") or ())
    names = {each.get("id") for each in calls if _shown_key(each) == wanted}
    own = [each for each in shown if each["role"] == "tool" and each.get("call_id") in names]
    texts = {_plain(result.get(key)) for key in ("content", "raw", "raised") if result.get(key)}
    right = [each for each in own if any(text in _plain(each.get("content")) for text in texts)]
    if not right:
        return f"the result of {wanted} is missing or another's"
    is_flagged = truth["error_told_by"] == "flag" and result.get("is_error")
    if is_flagged and not any(each.get("is_error") for each in right):
        return f"the failure of {wanted} is not flagged"
    return ""


def _is_lenient(runs: Sequence[Sequence[Mapping[str, Any]]], truth: Mapping[str, Any]) -> bool:
    messages = [message for run in runs for message in run]
    calls = {_shown_key(call) for message in messages for call in message.get("calls") or ()}
    said = "".join(_plain(each.get("content")) for each in messages)
    expected = {_key(call["name"], call["args"]) for call in _true_calls(truth["turns"])}
    answers = [turn[-1].get("content") for turn in truth["turns"] if "final" not in truth["lacks"]]
    has_calls = bool({"calls", "args"} & set(truth["lacks"])) or expected <= calls
    return has_calls and all(_plain(answer) in said for answer in answers if answer)


def _true_calls(turns: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Mapping[str, Any]]:
    for turn in turns:
        for message in turn:
            yield from message.get("tool_calls", ())


def _shown_key(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            pass
    return _key(str(call.get("name")), arguments)


def _key(name: str, arguments: Any) -> str:
    return f"{name}({json.dumps(arguments, sort_keys=True, default=str)})"


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _NOISE.sub("", "" if value is None else text).lower()
