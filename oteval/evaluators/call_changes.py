"""Names how a run's tool calls differ from the calls of the recorded run of the same session.

A match (`oteval.evaluators.match`) decides whether calls fit a reference; its comment lists missing
and extra calls. Here the recorded run is the expected behaviour, and each change is named for the
mistake that it may be: a missing call, an answer without the call, another argument, another order,
a repeated call, a call before the user's confirmation, a run without an answer.

A **turn** is a message of the user with everything up to the next one. Calls are paired in their
turn. Arguments are compared tolerantly (`Tolerant`): notation does not count. Neither does the
wording of answers. The order of the calls in one message is free, but not the order in which the
program runs them: their results show it.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..model import Message, ToolCall
from .rules import Tolerant
from .values import MISSING, Difference, differences, lookup, same, show, show_pair

__all__ = ["CallChanges", "call_changes"]

_RULE = Tolerant()
# Texts of at least this many words are prose: models word them differently each time.
_PROSE_WORDS = 8
_FIGURES = re.compile(r"\d+(?:[.,:]\d+)*")
# The most calls of a tool that a recorded call is compared with.
_CANDIDATES = 20
_LONGEST_CALL, _LONGEST_QUOTE = 80, 40  # characters
_TIMES = {0: "never", 1: "once", 2: "twice"}


@dataclass(frozen=True, slots=True)
class CallChanges:
    """How the calls of a run differ from the calls of the recorded run.

    Attributes:
        changes: The changes, in the order of the run.
        undecided: Differences of which nobody can say without a judge whether they matter.
    """

    changes: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _TurnCall:
    """A call and its position.

    Attributes:
        turn: The number of the user's messages before it.
        at: The index of its message.
        index: Its index among all calls.
        call: The call.
        key: Equal for equal calls; None if the arguments were not captured.
        result_at: The index of the message with its result; 0 without one.
    """

    turn: int
    at: int
    index: int
    call: ToolCall
    key: Hashable
    result_at: int

    @property
    def name(self) -> str:
        """The tool."""
        return self.call.name

    def __str__(self) -> str:
        if self.call.arguments is None:
            return self.name
        return f"{self.name}({show(self.call.arguments, _LONGEST_CALL)})"


_Pair = tuple[_TurnCall, _TurnCall]
# A change with its place: the turn and the index of the message.
_PlacedText = tuple[tuple[int, int], str]


def call_changes(
    messages: Sequence[Message], recorded: Sequence[Message], *, is_partial: bool = False
) -> CallChanges:
    """The changes of a run against the recorded run of the same session.

    Args:
        messages: The messages of the run.
        recorded: The messages of the recorded run.
        is_partial: Whether the run was stopped, so that nothing can be missing.
    """
    run, reference = _Conversation(messages), _Conversation(recorded)
    pairing = _Pairing(run.calls, reference.calls)
    placed: list[_PlacedText] = []
    undecided: list[str] = []
    for call, expected in pairing.different:
        if None in (call.key, expected.key):
            undecided.append(f"{call.name}: its arguments were not captured")
        elif why := _reworded(call, expected):
            undecided.append(f"{call.name}: {why}")
        else:
            placed.append(((call.turn, call.at), _argument_change(call, expected)))
    placed += _extra(pairing.extra, run, reference)
    placed += _moved(pairing.equal, run, reference)
    placed += _swapped(pairing.pairs)
    placed += _run_in_another_order(pairing.pairs)
    if not is_partial:
        placed += _without_result(pairing.pairs, end=len(messages))
        placed += _missing(pairing, run)
    texts = [text for _, text in sorted(placed, key=lambda change: change[0])]
    if reference.has_answer and not run.has_answer and not is_partial:
        texts.append("ended without an answer")
    return CallChanges(tuple(texts), tuple(undecided))


class _Conversation:
    """The messages of a run, by turns.

    Attributes:
        calls: The calls.
        counts: How often equal calls are made, by their key.
        answered: The turns with an answer.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._questions: list[str] = []
        self.answered: set[int] = set()
        self.counts: Counter[Hashable] = Counter()
        self.calls: list[_TurnCall] = []
        results: dict[str, deque[int]] = {}
        for at, message in enumerate(messages):
            if message.role == "tool":
                results.setdefault(message.tool_call_id, deque()).append(at)
        for at, message in enumerate(messages):
            if message.role == "user":
                self._questions.append(message.content or "")
            elif message.role == "assistant" and _is_answer(message):
                self.answered.add(self.turns)
            for call in message.tool_calls:
                key = None if call.arguments is None else (call.name, _RULE.key(call.arguments))
                index, positions = len(self.calls), results.get(call.id)
                result_at = positions.popleft() if positions else 0
                self.calls.append(_TurnCall(self.turns, at, index, call, key, result_at))
                self.counts[key] += 1

    @property
    def turns(self) -> int:
        """The number of the user's messages."""
        return len(self._questions)

    @property
    def has_answer(self) -> bool:
        """Whether it ends with an answer, as far as the messages show."""
        return bool(self._messages) and _is_answer(self._messages[-1])

    def question(self, turn: int) -> str:
        """The user's message that begins a turn, as a quotation."""
        text = " ".join(self._questions[turn - 1].split()) if 0 < turn <= self.turns else ""
        return show(text, _LONGEST_QUOTE)


def _is_answer(message: Message) -> bool:
    # An answer that was not captured is an answer.
    is_empty = message.content is not None and not message.content.strip() and not message.parts
    return message.role == "assistant" and not message.tool_calls and not is_empty


class _Pairing:
    """The calls of a run, paired with the calls of the recorded run.

    Attributes:
        equal: Pairs of equal calls.
        different: Pairs of calls of one tool with different or unknown arguments.
        missing: Recorded calls without a counterpart.
        extra: Calls without a counterpart.
    """

    def __init__(self, calls: Sequence[_TurnCall], recorded: Sequence[_TurnCall]) -> None:
        self.extra, self.missing = list(calls), list(recorded)
        self.equal = [
            *self._take(lambda call: None if call.key is None else (call.turn, call.key)),
            *self._take(lambda call: call.key),
        ]
        self.different = self._take(lambda call: (call.turn, call.name))

    @property
    def pairs(self) -> list[_Pair]:
        """All pairs, in the order of the run."""
        return sorted([*self.equal, *self.different], key=lambda pair: pair[0].index)

    def _take(self, key: Callable[[_TurnCall], Hashable]) -> list[_Pair]:
        """Pair calls with equal keys, unless they are None: the most similar call, or the first."""
        waiting: dict[Hashable, list[_TurnCall]] = {}
        for call in self.extra:
            waiting.setdefault(key(call), []).append(call)
        waiting.pop(None, None)
        pairs = []
        for expected in self.missing:
            candidates = waiting.get(key(expected), [])[:_CANDIDATES]
            if candidates:
                nearest = min(candidates, key=lambda call: _distance(call, expected))
                waiting[key(expected)].remove(nearest)
                pairs.append((nearest, expected))
        paired = {call.index for call, _ in pairs}
        expected_calls = {expected.index for _, expected in pairs}
        self.extra = [call for call in self.extra if call.index not in paired]
        self.missing = [call for call in self.missing if call.index not in expected_calls]
        return pairs


def _distance(call: _TurnCall, expected: _TurnCall) -> int:
    is_equal = call.key is not None and call.key == expected.key
    return 0 if is_equal else sum(1 for _ in _differences(call, expected))


def _differences(call: _TurnCall, expected: _TurnCall) -> Iterator[Difference]:
    """Yield the arguments that differ, with the values as the models wrote them."""
    arguments, expected_arguments = call.call.arguments, expected.call.arguments
    try:
        folded = _RULE.fold(arguments, ""), _RULE.fold(expected_arguments, "")
        for path, _, _ in differences(*folded, same):
            yield (
                (path, lookup(arguments, path), lookup(expected_arguments, path))
                if path
                else ("", arguments, expected_arguments)
            )
    except RecursionError:
        yield "", arguments, expected_arguments


def _argument_change(call: _TurnCall, expected: _TurnCall) -> str:
    texts = []
    for path, value, recorded in _differences(call, expected):
        name = path or "the arguments"
        if value is MISSING:
            texts.append(f"{name} is missing, recorded {show(recorded)}")
        elif recorded is MISSING:
            texts.append(f"{name} is {show(value)}, which is not recorded")
        else:
            texts.append("{} is {}, recorded {}".format(name, *show_pair(value, recorded)))
    return f"{call.name}: {', '.join(texts)}"


def _reworded(call: _TurnCall, expected: _TurnCall) -> str:
    """The arguments that are prose with the same figures in other words; "" if others differ."""
    paths = []
    for path, value, recorded in _differences(call, expected):
        if not (isinstance(value, str) and isinstance(recorded, str)):
            return ""
        is_prose = min(len(value.split()), len(recorded.split())) >= _PROSE_WORDS
        if not is_prose or sorted(_FIGURES.findall(value)) != sorted(_FIGURES.findall(recorded)):
            return ""
        paths.append(path or "the arguments")
    return f"{' and '.join(paths)} {'is' if len(paths) == 1 else 'are'} worded differently"


def _without_result(pairs: Sequence[_Pair], end: int) -> Iterator[_PlacedText]:
    """Yield calls that the model requested and whose result it never got.

    A run that ends with calls gets no results.
    """
    for call, expected in pairs:
        if expected.result_at and not call.result_at and call.at < end - 1:
            yield (call.turn, call.at), f"gave the model no result of {call}"


def _missing(pairing: _Pairing, run: _Conversation) -> Iterator[_PlacedText]:
    """Yield recorded calls that are not made, also if the agent answered in place of the call."""
    last: dict[int, int] = {}
    for _, expected in pairing.pairs:
        last[expected.turn] = max(expected.at, last.get(expected.turn, -1))
    for expected in pairing.missing:
        is_last = expected.at > last.get(expected.turn, -1)
        is_answered = is_last and expected.turn in run.answered
        how = "answered without calling" if is_answered else "did not call"
        yield (expected.turn, expected.at), f"{how} {expected}"


def _extra(
    extra: Sequence[_TurnCall], run: _Conversation, reference: _Conversation
) -> Iterator[_PlacedText]:
    """Yield calls that are not recorded; equal calls are one change."""
    first_of_key: dict[Hashable, _TurnCall] = {}
    for call in extra:
        first_of_key.setdefault(call.key or (call.name, None), call)
    for call in first_of_key.values():
        count, recorded_count = run.counts[call.key], reference.counts[call.key]
        if call.key is not None and count > 1:
            text = f"called {call} {_times(count)}, recorded {_times(recorded_count)}"
        else:
            text = f"called {call}, which is not recorded"
        yield (call.turn, call.at), text


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _moved(
    pairs: Sequence[_Pair], run: _Conversation, reference: _Conversation
) -> Iterator[_PlacedText]:
    """Yield calls of another turn: a call may have awaited the user's confirmation."""
    for call, expected in pairs:
        if call.turn < expected.turn:
            when = f"before the user wrote {reference.question(expected.turn)}"
        elif call.turn > expected.turn:
            when = f"only after the user wrote {run.question(call.turn)}"
        else:
            continue
        yield (call.turn, call.at), f"called {call} {when}"


def _swapped(pairs: Sequence[_Pair]) -> Iterator[_PlacedText]:
    """Yield calls of a turn that are made before a call that was recorded in an earlier message."""
    turns: dict[int, list[_Pair]] = {}
    for call, expected in pairs:
        if call.turn == expected.turn:
            turns.setdefault(call.turn, []).append((call, expected))
    for turn_pairs in turns.values():
        # The index of the earliest recorded message among the pairs from here on.
        earliest = list(accumulate((e.at for _, e in reversed(turn_pairs)), min))[::-1]
        named: set[int] = set()
        for position, (call, expected) in enumerate(turn_pairs[:-1]):
            if earliest[position + 1] >= expected.at or call.index in named:
                continue
            for later, later_expected in turn_pairs[position + 1 :]:
                if later_expected.at < expected.at and later.index not in named:
                    named |= {call.index, later.index}
                    text = f"called {_short(call, later)} before {_short(later, call)}"
                    yield (call.turn, call.at), f"{text}, recorded in the other order"
                    break


def _run_in_another_order(pairs: Sequence[_Pair]) -> Iterator[_PlacedText]:
    """Yield calls of one message whose results came in another order: the program swapped them."""
    for (call, expected), (later, later_expected) in pairwise(pairs):
        results = (call.result_at, later.result_at, expected.result_at, later_expected.result_at)
        are_together = call.at == later.at and expected.at == later_expected.at
        if not are_together or not all(results):
            continue
        is_recorded_order = expected.result_at < later_expected.result_at
        if (call.result_at < later.result_at) != is_recorded_order:
            first, second = (later, call) if is_recorded_order else (call, later)
            text = f"ran {_short(first, second)} before {_short(second, first)}"
            yield (call.turn, call.at), f"{text}, recorded in the other order"


def _short(call: _TurnCall, other: _TurnCall) -> str:
    """The tool of a call, with its arguments if the other call has the same tool."""
    return str(call) if call.name == other.name else call.name
