"""One call of a tool that a framework is about to run, and its recorded answer.

The hook of this context (`oteval.record.hooks`) decides about a call: it returns the recorded
answer, or lets the tool run and receives the result. If a framework runs its tools through another
framework, such as MCP, both would ask the hook about the same call: only the outer one does.
"""

from __future__ import annotations

import builtins
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...base.jsontext import canonical, to_jsonable
from ...record import ToolAnswer, ToolHook, current_tool_hook

__all__ = [
    "InterceptedCall",
    "call_of",
    "model_name",
    "parsed",
    "raise_error",
    "raised",
    "reached_model",
    "text_of",
    "value_of",
]

model_name: ContextVar[str] = ContextVar("oteval_model_tool_name", default="")
"""The name that the model used for a tool, if the framework has renamed the tool."""

# The call that a framework is running. A framework below must not ask the hook about it again.
_running: ContextVar[tuple[str, Mapping[str, Any]] | None] = ContextVar(
    "oteval_running_tool", default=None
)


@dataclass(frozen=True)
class InterceptedCall:
    """One call of a tool, and the hook that decides about it.

    Attributes:
        hook: The hook.
        name: The tool's name, as the model knows it.
        arguments: The arguments by name, as plain JSON.
    """

    hook: ToolHook
    name: str
    arguments: dict[str, Any]

    def answer(self) -> ToolAnswer | None:
        """The recorded answer, or None to run the tool."""
        answer = self.hook.answer(self.name, self.arguments)
        if answer is not None:
            answer.wait()
        return answer

    async def answer_async(self) -> ToolAnswer | None:
        """The recorded answer, or None to run the tool; for a tool that is awaited."""
        answer = self.hook.answer(self.name, self.arguments)
        if answer is not None:
            await answer.wait_async()
        return answer

    @contextmanager
    def observed(self) -> Iterator[Callable[[Any], None]]:
        """Report the tool that runs in a block; the block passes the tool's result."""
        results: list[Any] = []
        token = _running.set((self.name, self.arguments))
        # A tool may run another agent, which names its tools itself.
        name_token = model_name.set("")
        start_ns = time.time_ns()
        error: str | None = None
        try:
            yield results.append
        except Exception as exception:
            error = str(exception) or type(exception).__name__
            raise
        finally:
            # An async generator may be closed in another context than the context of its items.
            with suppress(ValueError):
                _running.reset(token)
                model_name.reset(name_token)
            if results or error is not None:
                result = to_jsonable(results[-1]) if results else None
                self.hook.observe(
                    self.name, self.arguments, result, error, start_ns, time.time_ns()
                )


def call_of(name: str, arguments: Any) -> InterceptedCall | None:
    """A call that a hook decides about, or None to run the tool as usual.

    Args:
        name: The tool's name.
        arguments: The arguments by name, or the only argument.
    """
    hook = current_tool_hook()
    if hook is None:
        return None
    arguments_by_name = arguments if isinstance(arguments, Mapping) else {"input": arguments}
    plain = to_jsonable(arguments_by_name)
    call = InterceptedCall(hook, model_name.get() or name, plain)
    return None if _is_running(call) else call


def _is_running(call: InterceptedCall) -> bool:
    """Whether the call is already running, maybe with defaults filled in."""
    running = _running.get()
    if running is None or running[0] != call.name:
        return False
    shared = {key: value for key, value in call.arguments.items() if key in running[1]}
    return canonical(shared) == canonical(running[1])


def text_of(answer: ToolAnswer) -> str:
    """An answer as the model received it."""
    if answer.result is None:
        return answer.error or ""
    return answer.result if isinstance(answer.result, str) else json.dumps(answer.result)


def value_of(answer: ToolAnswer) -> Any:
    """An answer as a value: JSON objects and lists are parsed, other text stays text."""
    text = text_of(answer) if answer.own_result is None else answer.own_result
    return parsed(text) if text[:1] in ("{", "[") else text


def raised(answer: ToolAnswer, kind: type[Exception] = RuntimeError, text: str = "") -> Exception:
    """The exception of a tool that failed: its own if it was recorded or is a builtin.

    Args:
        answer: The answer.
        kind: The type, unless the exception is a builtin one.
        text: The exception's text, if it differs from the text of the answer.
    """
    if isinstance(answer.raised, Exception):
        return answer.raised
    builtin = getattr(builtins, answer.error_type, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        kind = builtin
    return kind(text or answer.error)


def raise_error(answer: ToolAnswer, form: str = "") -> None:
    """Raise the exception of a tool that failed, so that the framework writes its text anew.

    Does nothing if the tool succeeded. It also does nothing if the framework did not write the text
    that the model received: then the text is the result.

    Args:
        answer: The answer.
        form: A pattern of the text that the framework makes from an exception. Its groups ``type``
            and ``text`` have the exception's type and text.

    Raises:
        Exception: The recorded exception.
    """
    if answer.error is None:
        return
    written = re.fullmatch(form, text_of(answer), re.DOTALL) if form else None
    if written is not None:
        kind = written.groupdict().get("type") or answer.error_type
        raise raised(ToolAnswer(error=answer.error, error_type=kind), text=written["text"])
    if answer.error_type or not reached_model(answer):
        raise raised(answer)


def reached_model(answer: ToolAnswer) -> bool:
    """Whether the model received a text; it did not if the tool's exception escaped."""
    return answer.error is None or answer.result is not None


def parsed(arguments: str) -> Any:
    """The value of JSON text; other text as it is."""
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments
