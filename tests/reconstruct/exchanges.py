"""Compares trajectories with the messages that were truly exchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NotRequired, TypedDict

__all__ = ["Exchange", "faults"]

Json = dict[str, Any]


class Exchange(TypedDict):
    """What was exchanged in a capture, and what its spans hold of it.

    Attributes:
        turns: Of each turn, the messages that the model server and the tools exchanged.
        lacks: What the spans do not hold: user, calls, args, results, final.
        linked_by: What joins the turns, or "" where nothing does.
        error_told_by: "flag" where the spans flag the failed call, "text" where only its text
            tells.
        trajectories: How many there are, or the numbers that are right: those of sub-agents count.
        subagents: The messages of sub-agents, whose questions no user has asked.
    """

    turns: list[list[Json]]
    lacks: list[str]
    linked_by: str
    error_told_by: str
    trajectories: NotRequired[int | list[int]]
    subagents: NotRequired[list[list[Json]]]


def faults(trajectories: Sequence[Json], truth: Exchange) -> list[str]:
    """Return in words how trajectories, as `Trajectory.as_dict` has them, differ from the truth."""
    questions = [turn[0]["content"] for turn in truth["turns"]]
    found = []
    right = truth.get("trajectories", len(questions))
    if len(trajectories) not in (right if isinstance(right, list) else [right]):
        found.append(f"{len(trajectories)} trajectories, and should be {right}")
    homes = []
    for number, messages in enumerate(truth["turns"]):
        segments = [
            (segment, trajectory)
            for trajectory in trajectories
            if (segment := _segment(trajectory["messages"], number, questions))
        ]
        homes.append([trajectory for _, trajectory in segments])
        if segments:
            found += min((list(_turn(s, messages, truth)) for s, _ in segments), key=len)
        elif "user" not in truth["lacks"]:
            found.append(f"turn {number + 1}: the question is in no trajectory")
    for trajectory in trajectories:
        for question in questions:
            asked = [m for m in trajectory["messages"] if _asks(m, question)]
            if len(asked) > 1:
                found.append(f"{question!r} stands {len(asked)} times in one trajectory")
    if truth["linked_by"] and all(homes):
        if not _linked(homes):
            found.append(f"the turns are not one conversation (linked by {truth['linked_by']})")
        found += _misnumbered(homes, questions)
    found += _unasked(trajectories, truth)
    return list(dict.fromkeys(found))


def _misnumbered(homes: Sequence[Sequence[Json]], questions: Sequence[str]) -> Iterator[str]:
    """Yield the turns whose trajectory has another number."""
    for number, home in enumerate(homes):
        for trajectory in home:
            own = trajectory["messages"][trajectory["new_from"] :]
            is_turn = not trajectory["parent_id"] and any(_asks(m, questions[number]) for m in own)
            if is_turn and trajectory["turn"] != number + 1:
                yield f"turn {number + 1} is numbered {trajectory['turn']}"


def _unasked(trajectories: Sequence[Json], truth: Exchange) -> Iterator[str]:
    """Yield the messages of users that nobody sent."""
    sent = [m["content"] for turn in truth["turns"] for m in turn if m.get("content")]
    sent += [messages[0]["content"] for messages in truth.get("subagents", [])]
    known = list(map(_plain, sent))
    for message in (m for t in trajectories for m in t["messages"] if m["role"] == "user"):
        text = _plain(_text(message))
        if not any(each in text or text in each for each in known):
            yield f"a user message that nobody sent: {text[:80]!r}"


def _linked(homes: Sequence[Sequence[Json]]) -> bool:
    first, second = homes
    shared = {t["conversation_id"] for t in first} & {t["conversation_id"] for t in second}
    return any(t in second for t in first) or bool(shared - {None})


def _asks(message: Json, question: str) -> bool:
    return message["role"] == "user" and question in _text(message)


def _segment(messages: Sequence[Json], number: int, questions: Sequence[str]) -> Sequence[Json]:
    """Return the messages of a turn: from its question up to that of the next turn."""
    question, other = questions[number], questions[1 - number]

    def begins(message: Json) -> bool:
        text = _text(message)
        return _asks(message, question) and text.rfind(question) > text.rfind(other)

    start = next((i for i, message in enumerate(messages) if begins(message)), None)
    if start is None:
        return []
    later = range(start + 1, len(messages))
    ends = (i for i in later if number == 0 and _asks(messages[i], other))
    return messages[start : next(ends, len(messages))]


def _turn(segment: Sequence[Json], wanted: Sequence[Json], truth: Exchange) -> Iterator[str]:
    """Yield how the messages of a turn differ from those that were exchanged."""
    lacks = truth["lacks"]
    if "calls" not in lacks and "args" not in lacks:
        asked = [(c["name"], c["args"]) for m in wanted for c in m.get("tool_calls", [])]
        got = [(name, arguments) for m in segment for _, name, arguments in _calls(m)]
        if sorted(map(_key, asked)) != sorted(map(_key, got)):
            yield f"calls are {got}, not {asked}"
            return
    if "results" not in lacks:
        yield from _results(segment, wanted, told_by_text=truth["error_told_by"] == "text")
    if "final" not in lacks:
        answers = [message for message in wanted if message["role"] == "assistant"]
        yield from _answer(segment, answers[-1])


def _results(
    segment: Sequence[Json], wanted: Sequence[Json], *, told_by_text: bool
) -> Iterator[str]:
    results = [m for m in wanted if m["role"] == "tool"]
    found = [m for m in segment if m["role"] == "tool"]
    if len(found) > len(results):
        yield f"{len(found)} results of {len(results)} calls"
    for result in results:
        if result["content"] is None:
            continue
        own = [m for m in _answering(segment, wanted, result) or found if _holds(m, result)]
        if not own:
            yield f"the result {result['content']!r} of {result['name']} is not with its call"
            continue
        texts = {_raw(other) for other in results} - {_raw(result), str(result.get("raised")), ""}
        shown = _plain(_text(own[0]))
        if not result["name"].startswith("final") and any(_plain(text) in shown for text in texts):
            yield f"the result of {result['name']} holds another call's result too"
        flagged = any(m.get("is_error") for m in own)
        if result.get("is_error") and not flagged and not told_by_text:
            yield f"the error of {result['name']} is not flagged"
        if flagged and not result.get("is_error"):
            yield f"{result['name']} is flagged as an error"


def _answering(segment: Sequence[Json], wanted: Sequence[Json], result: Json) -> list[Json]:
    """Return the tool messages that answer the call whose true result is given."""
    arguments = next(
        (
            call["args"]
            for m in wanted
            for call in m.get("tool_calls", [])
            if call["id"] == result["id"] and call["name"] == result["name"]
            if result["id"] or _plain(call["args"].get("city", "")) in _plain(result["content"])
        ),
        None,
    )
    ids = [i for m in segment for i, n, a in _calls(m) if n == result["name"] and a == arguments]
    return [m for m in segment if m["role"] == "tool" and m.get("tool_call_id") in ids]


def _raw(result: Json) -> str:
    return str(result.get("raw") or result.get("raised") or "")


def _holds(message: Json, result: Json) -> bool:
    text = _plain(_text(message))
    return _plain(result["content"]) in text or _plain(_raw(result) or result["content"]) in text


def _answer(segment: Sequence[Json], last: Json) -> Iterator[str]:
    """Yield how a turn's answer differs; it may be an argument of a tool named `final...`."""
    finals = [c for c in last.get("tool_calls", []) if c["name"].startswith("final")]
    wanted = next((str(v) for c in finals for v in c["args"].values()), None)
    if wanted is None and not last.get("tool_calls"):
        wanted = last.get("content")
    said = next((m for m in reversed(segment) if m["role"] == "assistant"), {"content": ""})
    arguments = [arguments for _, _, arguments in _calls(said)]
    text = _text(said) + json.dumps(arguments, ensure_ascii=False)
    if wanted and _plain(wanted) not in _plain(text):
        yield f"the answer is {text[:80]!r}, not {wanted[:80]!r}"


def _calls(message: Json) -> list[tuple[str, str, Any]]:
    """Return a message's calls: id, name, arguments as a value where they are JSON."""
    found = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        with suppress(ValueError):
            arguments = json.loads(arguments)
        found.append((call.get("id"), call["function"]["name"], arguments))
    return found


def _key(call: tuple[str, Any]) -> str:
    return call[0] + json.dumps(call[1], sort_keys=True)


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(
            _text({"content": part.get("text", part.get("content"))})
            if isinstance(part, dict)
            else str(part)
            for part in content
        )
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False) if content else ""


def _plain(value: object) -> str:
    """Return text without quotes, escapes and white space, which encodings differ in."""
    text = str(value).replace("\\n", "")
    return "".join(text.translate({ord(c): None for c in "\"'\\"}).split()).lower()
