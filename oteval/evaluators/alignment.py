"""Aligns two trajectories message by message, and finds where they diverge.

System messages come first and are aligned separately: they are not steps of the run, and many
instrumentations leave them out. Equal messages are paired next. Between equal messages, a message
is paired with the most similar message of the same role; a tool result prefers results of the same
tool. Messages of different roles never share a row. In long trajectories, as many equal messages as
possible are paired. If too many messages remain to compare their texts, they are paired by role and
tool.

A reference often lists only the question and the calls, all calls in one message. Next to it, each
message of the run would differ. So `in_reference_form` gives both sides one message for each call,
and the run loses the kinds of messages that the reference lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ..base.jsontext import canonical, loads_exact
from ..model import Message

__all__ = [
    "AlignedPair",
    "ComparedStep",
    "align",
    "first_difference",
    "first_divergence",
    "in_reference_form",
]

_SYSTEM_ROLES = ("system", "developer")
# Models phrase their reasoning differently each time.
_UNCOMPARED_PARTS = ("reasoning", "thinking")
# An equal pair outweighs any chance likeness of its two messages to others.
_EQUAL, _SAME_ROLE, _SAME_TOOL = 10.0, 0.2, 0.6
# Limits of the comparison: characters of each text, and pairs of messages.
_COMPARED, _MOST_PAIRS = 1000, 100_000
# The most messages per side for a common subsequence. Its matrix takes one bit per pair: 0.03 s for
# 10,000 by 10,000 messages, where `difflib` takes minutes.
_MOST_MATCHED = 20_000


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A row of an alignment: a message of each trajectory, or None.

    Attributes:
        left: The message of the first trajectory.
        right: The message of the second trajectory.
        same: Whether both have equal content and calls, as far as the traces show.
        left_at: The index of the left message.
        right_at: The index of the right message.
    """

    left: Message | None
    right: Message | None
    same: bool
    left_at: int | None = None
    right_at: int | None = None

    @property
    def is_system(self) -> bool:
        """Whether a message is a system message."""
        return any(message.role in _SYSTEM_ROLES for message in self._messages)

    @property
    def is_captured(self) -> bool:
        """Whether the traces contain the content and arguments of both messages."""
        return all(_is_captured(message) for message in self._messages)

    @property
    def _messages(self) -> list[Message]:
        return [message for message in (self.left, self.right) if message is not None]


@dataclass(frozen=True, slots=True)
class _Entry:
    """The parts of a message that are compared.

    Attributes:
        at: The message's index.
        message: The message.
        key: Equal for messages with equal content and calls.
        calls: Its calls, as text.
        tool: The tool's name if the message is a tool result, otherwise "".
    """

    at: int
    message: Message
    key: Hashable
    calls: tuple[str, ...]
    tool: str

    @property
    def text(self) -> str:
        """Its text and calls, for similarity."""
        texts = [*self.calls, self.message.content or ""]
        return "\n".join(text[:_COMPARED] for text in texts)[:_COMPARED]


def align(left: Sequence[Message], right: Sequence[Message]) -> list[AlignedPair]:
    """The messages of two trajectories side by side, system messages first."""
    (our_system, ours), (their_system, theirs) = _split(_entries(left)), _split(_entries(right))
    rows = [*_rows(our_system, their_system), *_rows(ours, theirs)]
    return [_pair(left_entry, right_entry) for left_entry, right_entry in rows]


def first_divergence(pairs: Sequence[AlignedPair]) -> int | None:
    """The index of the first pair that differs, or None; ignores system messages."""
    differing = (at for at, pair in enumerate(pairs) if not pair.same and not pair.is_system)
    return next(differing, None)


def first_difference(left: Sequence[Message], right: Sequence[Message]) -> AlignedPair | None:
    """The first messages in which two runs of one session differ, or None.

    Both runs are read in step, because they begin alike. Calls and roles come before texts: models
    word their answers differently each time.

    Args:
        left: The messages of the first run.
        right: The messages of the second run.
    """
    sides = _split(_entries(left))[1], _split(_entries(right))[1]
    pairs = list(zip_longest(*sides))
    differing = [pair for pair in pairs if _step(pair[0]) != _step(pair[1])]
    differing = differing or [(a, b) for a, b in pairs if not (a and b and a.key == b.key)]
    return _pair(*differing[0]) if differing else None


def _step(entry: _Entry | None) -> Hashable:
    return entry and (entry.message.role, entry.calls)


def _is_captured(message: Message) -> bool:
    if message.content is None and not message.tool_calls and not message.parts:
        return False
    return all(call.arguments is not None for call in message.tool_calls)


def _entries(messages: Sequence[Message]) -> list[_Entry]:
    names = {call.id: call.name for message in messages for call in message.tool_calls if call.id}
    return [
        _entry(at, message, names.get(message.tool_call_id, ""))
        for at, message in enumerate(messages)
    ]


def _entry(at: int, message: Message, called: str) -> _Entry:
    calls = _call_texts(message)
    parts = [part for part in message.parts if part.get("type") not in _UNCOMPARED_PARTS]
    parts_text = canonical(parts) if parts else ""
    key = (message.role, _comparable(message), calls, parts_text, message.is_error)
    tool = (message.name or called) if message.role == "tool" else ""
    return _Entry(at, message, key, calls, tool)


def _call_texts(message: Message) -> tuple[str, ...]:
    texts = (f"{call.name} {canonical(call.arguments)}" for call in message.tool_calls)
    return tuple(sorted(texts))


def _comparable(message: Message) -> str:
    """The content to compare; the JSON of a tool result in canonical form."""
    content = message.content or ""
    if message.role != "tool" or not content.lstrip().startswith(("{", "[")):
        return content
    try:
        return f"JSON {canonical(loads_exact(content))}"
    except (ValueError, RecursionError):
        return content


def _split(entries: Sequence[_Entry]) -> tuple[list[_Entry], list[_Entry]]:
    """The entries of system messages, and all other entries."""
    system = [entry for entry in entries if entry.message.role in _SYSTEM_ROLES]
    return system, [entry for entry in entries if entry.message.role not in _SYSTEM_ROLES]


def _pair(left: _Entry | None, right: _Entry | None) -> AlignedPair:
    return AlignedPair(
        left.message if left else None,
        right.message if right else None,
        same=left is not None and right is not None and left.key == right.key,
        left_at=left.at if left else None,
        right_at=right.at if right else None,
    )


def _common(left: Sequence[_Entry], right: Sequence[_Entry]) -> int:
    """The length of the common prefix."""
    pairs = zip(left, right, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if a.key != b.key), min(len(left), len(right))
    )


_Rows = list[tuple[_Entry | None, _Entry | None]]


def _rows(left: Sequence[_Entry], right: Sequence[_Entry]) -> _Rows:
    """The rows of two sides; common prefixes and suffixes are aligned without scoring."""
    start = _common(left, right)
    end = _common(left[start:][::-1], right[start:][::-1])
    return [
        *zip(left[:start], right[:start], strict=True),
        *_aligned(left[start : len(left) - end], right[start : len(right) - end]),
        *zip(left[len(left) - end :], right[len(right) - end :], strict=True),
    ]


def _aligned(left: Sequence[_Entry], right: Sequence[_Entry]) -> _Rows:
    """The rows between the common prefix and suffix."""
    if len(left) * len(right) <= _MOST_PAIRS:
        return _by_similarity(left, right)
    rows: _Rows = []
    room = _MOST_PAIRS
    for is_equal, ours, theirs in _stretches(left, right, lambda entry: entry.key):
        if is_equal:
            rows += zip(ours, theirs, strict=True)
        elif (pairs := len(ours) * len(theirs)) <= room:
            rows += _by_similarity(ours, theirs)
            room -= pairs
        else:
            rows += _by_role(ours, theirs)
    return rows


def _by_role(left: Sequence[_Entry], right: Sequence[_Entry]) -> _Rows:
    """Return rows of equal roles and tools, for sides that are too long to compare by text."""
    rows: _Rows = []
    for is_equal, ours, theirs in _stretches(left, right, lambda e: (e.message.role, e.tool)):
        if is_equal:
            rows += zip(ours, theirs, strict=True)
        else:
            rows += [(output, None) for output in ours]
            rows += [(None, other) for other in theirs]
    return rows


_Stretch = tuple[bool, Sequence[_Entry], Sequence[_Entry]]


def _stretches(
    left: Sequence[_Entry], right: Sequence[_Entry], key: Callable[[_Entry], Hashable]
) -> Iterator[_Stretch]:
    """Yield the stretches inside and between a longest common subsequence, in order.

    The running time depends only on the lengths, not on how often a key repeats.

    Args:
        left: The first side. A very long side is divided into blocks.
        right: The second side, divided into the same number of blocks.
        key: Returns the property that the entries of a row share.

    Yields:
        Whether the stretches are equal, the left stretch and the right stretch.
    """
    from rapidfuzz.distance import LCSseq

    blocks = -(-max(len(left), len(right)) // _MOST_MATCHED)
    for block in range(blocks):
        ours, theirs = (
            side[len(side) * block // blocks : len(side) * (block + 1) // blocks]
            for side in (left, right)
        )
        done = (0, 0)
        opcodes = LCSseq.opcodes([*map(key, ours)], [*map(key, theirs)])
        for opcode in opcodes:
            if opcode.tag != "equal":
                continue
            if done != (opcode.src_start, opcode.dest_start):
                yield False, ours[done[0] : opcode.src_start], theirs[done[1] : opcode.dest_start]
            yield (
                True,
                ours[opcode.src_start : opcode.src_end],
                theirs[opcode.dest_start : opcode.dest_end],
            )
            done = (opcode.src_end, opcode.dest_end)
        if done != (len(ours), len(theirs)):
            yield False, ours[done[0] :], theirs[done[1] :]


def _by_similarity(left: Sequence[_Entry], right: Sequence[_Entry]) -> _Rows:
    """The rows with the greatest total likeness, by dynamic programming."""
    right_texts = [entry.text for entry in right]
    likeness = [
        [_likeness(a, a_text, b, b_text) for b, b_text in zip(right, right_texts, strict=True)]
        for a, a_text in ((entry, entry.text) for entry in left)
    ]
    # best[i][j] is the greatest total likeness of left[i:] and right[j:].
    best = [[0.0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in reversed(range(len(left))):
        below, row, alike = best[i + 1], best[i], likeness[i]
        for j in reversed(range(len(right))):
            row[j] = max(below[j], row[j + 1], alike[j] + below[j + 1])
    return list(_traced(left, right, likeness, best))


def _traced(
    left: Sequence[_Entry],
    right: Sequence[_Entry],
    likeness: Sequence[Sequence[float]],
    best: Sequence[Sequence[float]],
) -> Iterator[tuple[_Entry | None, _Entry | None]]:
    i = j = 0
    while i < len(left) and j < len(right):
        if likeness[i][j] > 0 and best[i][j] == likeness[i][j] + best[i + 1][j + 1]:
            yield left[i], right[j]
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            yield left[i], None
            i += 1
        else:
            yield None, right[j]
            j += 1
    yield from ((entry, None) for entry in left[i:])
    yield from ((None, other) for other in right[j:])


def _likeness(left: _Entry, left_text: str, right: _Entry, right_text: str) -> float:
    """The likeness of two messages, given their texts; 0 for different roles."""
    if left.message.role != right.message.role:
        return 0.0
    if left.key == right.key and left.tool == right.tool:
        return _EQUAL
    from rapidfuzz import fuzz  # loaded only for comparisons

    base = _SAME_TOOL if left.tool == right.tool else _SAME_ROLE
    return base + fuzz.ratio(left_text, right_text) / 100


_CALLS = "calls"
_KINDS = {
    "system": "system messages",
    "developer": "system messages",
    "user": "user messages",
    "tool": "tool results",
}
_ANSWERS, _REMARKS = "answers", "text beside calls"


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """A message, or one of several calls of a message.

    Attributes:
        message: The message with at most one call.
        at: The index of the message that it was made from.
        call_at: The index of its call in that message; None if the message has at most one call.
    """

    message: Message
    at: int
    call_at: int | None = None


def in_reference_form(
    run: Sequence[Message], reference: Sequence[Message]
) -> tuple[list[ComparedStep], list[ComparedStep], list[str]]:
    """A run's messages and its reference's in the same form.

    Args:
        run: The messages of the run.
        reference: The messages of the reference.

    Returns:
        The steps of the run, the steps of the reference, and the kinds of messages that were left
        out because the reference lacks them, such as ``tool results``.
    """
    expected = _steps(reference)
    kinds = {_kind(step.message) for step in expected} | {_CALLS}
    has_remarks = any(step.message.tool_calls and step.message.content for step in expected)
    steps, omitted = [], []
    for step in _steps(run):
        kind = _kind(step.message)
        if kind not in kinds:
            omitted.append(kind)
            continue
        if kind == _CALLS and step.message.content and not has_remarks:
            omitted.append(_REMARKS)
            step = replace(step, message=replace(step.message, content=None))
        steps.append(step)
    return steps, expected, list(dict.fromkeys(omitted))


def _steps(messages: Sequence[Message]) -> list[ComparedStep]:
    steps = []
    for at, message in enumerate(messages):
        if len(message.tool_calls) < 2:
            steps.append(ComparedStep(message, at))
            continue
        for number, call in enumerate(message.tool_calls):
            text = message.content if number == 0 else None
            step_message = replace(message, tool_calls=(call,), content=text)
            steps.append(ComparedStep(step_message, at, number))
    return steps


def _kind(message: Message) -> str:
    if message.tool_calls:
        return _CALLS
    return _KINDS.get(message.role, _ANSWERS)
