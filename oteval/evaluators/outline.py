"""Runs known only by an outline: some columns of the store, but not the messages.

For an evaluator, such a run has the same attributes as any other run. Reading an attribute that the
outline lacks raises `Unread`, and the run is then read and evaluated as a whole. A result without
`Unread` therefore equals the result of the whole run.

A match compares the calls of an outline by their hashes instead of their arguments.

Comments on failed runs mostly show arguments. `CallArguments` records the arguments that an
evaluator reads, so that no others are read, and runs with the same arguments there get the same
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, NoReturn, cast

from ..base.jsontext import call_hash
from ..messages import role_of
from ..model import Message, Outline, ToolCall, Trajectory, Usage
from .calls import CallTable
from .evaluator import Evaluator
from .rules import Rule

__all__ = [
    "CallArguments",
    "HashedCalls",
    "OutlinedCalls",
    "Unread",
    "call_hashes",
    "compares_hashes",
    "has_outline_form",
    "run_of",
]

_USAGE = tuple(field.name for field in fields(Usage))
_NUMBERS = ("UBIGINT", "BIGINT")


class Unread(BaseException):
    """The outline of a run lacks data that its evaluation needs.

    This is not an `Exception`, because evaluators may handle exceptions.
    """


class CallArguments:
    """The arguments of a run's calls, by the numbers of the calls.

    Args:
        arguments: The arguments; None if they were not read.

    Attributes:
        asked: The numbers of the calls whose arguments were requested, in this order.
    """

    def __init__(self, arguments: Sequence[Any] | None = None) -> None:
        self._arguments = arguments
        self.asked: dict[int, None] = {}

    def __getitem__(self, call: int) -> Any:
        """The arguments of a call.

        Raises:
            Unread: They were not read.
        """
        self.asked[call] = None
        if self._arguments is None:
            raise Unread("arguments")
        return self._arguments[call]


class _KnownPart:
    """A value with some known attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unread(name)

    def __repr__(self) -> NoReturn:
        raise Unread

    def __eq__(self, other: object) -> NoReturn:
        raise Unread

    def __hash__(self) -> NoReturn:
        raise Unread


class _KnownCall(_KnownPart):
    """A call whose name is known, and perhaps its hash and its arguments."""

    def __init__(self, index: int, call_arguments: CallArguments, **attributes: Any) -> None:
        super().__init__(_index=index, _call_arguments=call_arguments, **attributes)

    @property
    def arguments(self) -> Any:
        """The arguments.

        Raises:
            Unread: They were not read.
        """
        return self._call_arguments[self._index]


def run_of(outline: Outline, arguments: CallArguments, attribute: str = "") -> Trajectory:
    """The run that an outline describes; reading unknown attributes raises `Unread`.

    Args:
        outline: The outline.
        arguments: The arguments of its calls.
        attribute: The attribute that `OutlineRequest` named.

    Raises:
        Unread: The column does not show a tool's name.
    """
    # Columns have lone surrogates as escapes.
    if any("\\u" in name for name in outline["call_names"]):
        raise Unread("call_names")
    messages = _messages(outline, arguments)
    loaded: dict[str, Any] = {
        "own_messages": messages,
        "gaps": tuple(_KnownPart(code=code) for code in outline["gap_codes"]),
        **{name: outline[name] for name in ("start_ns", "end_ns") if name in outline},
    }
    if outline["is_first"]:
        loaded.update(messages=messages, history=None)
    if "models" in outline:
        loaded["models"] = tuple(outline["models"])
    if "input_tokens" in outline:
        loaded["usage"] = Usage(**{name: outline[name] or 0 for name in _USAGE})
    if attribute:
        loaded["attributes"] = _attributes(outline, attribute)
    return cast("Trajectory", _KnownPart(**loaded))


def _messages(outline: Outline, arguments: CallArguments) -> tuple[Any, ...]:
    calls: list[list[_KnownCall]] = [[] for _ in outline["roles"]]
    hashes = outline.get("call_hashes")
    for index, (name, at) in enumerate(
        zip(outline["call_names"], outline["call_messages"], strict=True)
    ):
        hash_field = {} if hashes is None else {"hash": hashes[index]}
        calls[at].append(_KnownCall(index, arguments, name=name, **hash_field))
    return tuple(
        _KnownPart(role=role, tool_calls=tuple(message_calls))
        for role, message_calls in zip(outline["roles"], calls, strict=True)
    )


def _attributes(outline: Outline, attribute: str) -> dict[str, Any]:
    kind, value = outline["attribute_type"], outline["attribute"]
    if kind in (None, "NULL"):
        return {}
    if kind == "VARCHAR":
        return {attribute: value}
    if kind in _NUMBERS:
        return {attribute: int(value)}
    raise Unread(attribute)


def has_outline_form(evaluator: Evaluator) -> bool:
    """Whether `Evaluator.evaluate_outline` belongs to the evaluator's own `evaluate`.

    A subclass that overrides only `evaluate` has another verdict than the outline form it inherits.
    """
    form, evaluate = (_owner(evaluator, name) for name in ("evaluate_outline", "evaluate"))
    return form is Evaluator or issubclass(form, evaluate)


def _owner(evaluator: Evaluator, name: str) -> type:
    """The class that defines a method of an evaluator."""
    return next(base for base in type(evaluator).__mro__ if name in vars(base))


_CAPTURED = object()


def compares_hashes(rule: Rule) -> bool:
    """Whether a rule only needs to know whether the arguments are equal."""
    return rule.blind or rule.by_value


def call_hashes(messages: Iterable[Message]) -> list[int | None]:
    """The hash of each call, as stored; None if its arguments are not known."""
    calls = (call for message in messages for call in message.tool_calls)
    return [
        None if call.arguments is None else call_hash(call.name, call.arguments) for call in calls
    ]


class HashedCalls(CallTable):
    """The calls of a reference; their keys are hashes."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__()
        for message in messages:
            self.add(message)
        hashes = call_hashes(messages)
        self._keys = {
            at: None if hash_value is None else str(hash_value)
            for at, hash_value in enumerate(hashes)
        }


class OutlinedCalls(CallTable):
    """The calls of a run's outline; reading arguments that are not known raises `Unread`."""

    __slots__ = ("_calls",)

    def __init__(self, messages: Iterable[Message]) -> None:
        super().__init__()
        self._calls: list[ToolCall] = []
        for position, message in enumerate(messages):
            self.roles.append(role_of(message.role))
            for call in message.tool_calls:
                self._add(call, position)

    def _add(self, call: ToolCall, position: int) -> None:
        index = len(self.names)
        self.names.append(call.name)
        self.at.append(position)
        self.textual = False
        self._calls.append(call)
        hash_value = vars(call).get("hash", _CAPTURED)
        self.raw.append(None if hash_value is None else _CAPTURED)
        if hash_value is not _CAPTURED:
            self._keys[index] = None if hash_value is None else str(hash_value)

    def arguments(self, call: int) -> Any:
        """A call's arguments; None where they were not captured.

        Raises:
            Unread: They were not read.
        """
        return None if self.raw[call] is None else self._calls[call].arguments

    def key(self, call: int) -> str | None:
        """The hash of a call with its arguments."""
        if call in self._keys:
            return self._keys[call]
        raise Unread("arguments")

    def captured(self, call: int) -> bool:
        """Whether the trace contains the call's arguments."""
        if call in self._keys:
            return self.raw[call] is not None
        return self.arguments(call) is not None
