"""Messages and runs that callers pass to evaluators, in any form, as the values of `oteval.model`.

`oteval.messages` reads the forms. They may be mixed freely, and a message may be plain data or an
object of any library. The caller's objects are only read.

Anthropic and GenAI put tool results into a user's message; they become tool messages, one for
each result, before the user's text in the same message. **Absent** arguments (None, blank
text) are an empty object; only our own `ToolCall` can mark arguments as not captured.

A caller may also pass a `Trajectory`, or a dict in the form of `Trajectory.as_dict`, whose ``gaps``
name content that its messages lack. For messages alone, `oteval.model.gaps_of_calls` decides
whether they are the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import InputError
from ..messages import ROLES, forms_of, plain_data, read_direct
from ..model import Gap, Message, SpanRef, Trajectory, gaps_of_calls
from .values import show

__all__ = [
    "entries",
    "gaps_beside",
    "is_message",
    "passed_run",
    "to_messages",
]


def to_messages(value: Any, place: str = "messages") -> tuple[Message, ...]:
    """The messages of a trajectory in whatever form.

    Args:
        value: A list of messages, one message, a dict with ``messages``, or an object with
            ``messages`` such as a `Trajectory`.
        place: The name of the value in error messages.

    Returns:
        The messages, in order.

    Raises:
        InputError: The value, or a message in it, cannot be read.
    """
    return read_direct(*entries(value, place))


def entries(value: Any, name: str) -> tuple[Sequence[Any], str]:
    """The list of messages in a value, still in their own form.

    Args:
        value: As for `to_messages`.
        name: The name of the value in error messages.

    Returns:
        The messages, and the name of their list in error messages.

    Raises:
        InputError: The value contains no list of messages.
    """
    if isinstance(value, (list, tuple)):
        return value, name
    if value is None:
        raise InputError(
            f"{name} is None; pass a list of messages (an empty list is a legal trajectory)"
        )
    if isinstance(value, Mapping):
        return _entries_of_mapping(value, name)
    if isinstance(getattr(value, "messages", None), (list, tuple)):
        return value.messages, f"{name}.messages"
    if is_message(value):
        return [value], name
    raise InputError(
        f"{name} is a {type(value).__name__}; pass a list of messages, one message, "
        "a dict with 'messages', or a Trajectory"
    )


def _entries_of_mapping(value: Mapping[str, Any], name: str) -> tuple[Sequence[Any], str]:
    if "role" in value:
        return [value], name
    if "messages" in value:
        inner = value["messages"]
        if isinstance(inner, Mapping) and "role" not in inner and "messages" in inner:
            raise InputError(f"{name}.messages holds 'messages' again; pass the inner one")
        return entries(inner, f"{name}.messages")
    if is_message(value):
        return [value], name
    if set(value) == {"output"}:  # LangSmith's form of a value that is not a dict
        return entries(value["output"], f"{name}.output")
    keys = ", ".join(sorted(map(repr, value))) or "none"
    raise InputError(
        f"{name}: a dict needs 'messages' (a trajectory) or 'role' (one message); its keys: {keys}"
    )


def is_message(value: Any) -> bool:
    """Whether a value is one message, in any form that shows its role; a run is not a message."""
    if isinstance(value, Message):
        return True
    data = None if isinstance(value, (str, list, tuple)) else plain_data(value)
    if not isinstance(data, dict) or isinstance(data.get("messages"), list):
        return False
    return any(form["role"] in ROLES for form in forms_of(data, ""))


def passed_run(outputs: Any, name: str = "outputs", run_id: str = "") -> Trajectory:
    """The run that a caller passed.

    A run made from messages has the gaps next to them, and a gap for calls that they do not show.

    Args:
        outputs: A trajectory in any form of `oteval.evaluators.messages`.
        name: Its name in error messages.
        run_id: The id of a run that is made from messages.

    Raises:
        InputError: The messages cannot be read.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    messages = to_messages(outputs, name)
    gaps = dict.fromkeys((*gaps_beside(outputs), *gaps_of_calls(messages)))
    return Trajectory(run_id, SpanRef("", ""), tail=messages, gaps=tuple(gaps))


def gaps_beside(outputs: Any) -> tuple[Gap, ...]:
    """The gaps next to the messages of a dict; empty if it has no list of gaps.

    An unreadable item counts as a gap of unknown content. Without messages, the items are an
    agent's data.
    """
    gaps = outputs.get("gaps") if isinstance(outputs, Mapping) else None
    if not isinstance(gaps, (list, tuple)):
        return ()
    read = [_gap(gap) for gap in gaps]
    if None in read and ("messages" in outputs or "trajectory" in outputs or is_message(outputs)):
        unread = show(gaps[read.index(None)], 60)
        read.append(Gap("content_unreadable", f"a gap beside the messages: {unread}"))
    return tuple(gap for gap in read if gap is not None)


def _gap(value: Any) -> Gap | None:
    """A gap, its JSON form or its code as a gap; None for anything else."""
    if isinstance(value, Gap):
        return value
    code = value.get("code") if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return Gap(value, "")
    if not isinstance(code, str):
        return None
    return Gap(code, str(value.get("detail") or ""), str(value.get("span_id") or ""))
