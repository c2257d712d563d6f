"""A judge that is a LangChain chat model or any runnable, recognised by what it has.

A chat model is asked through ``with_structured_output``, then by a forced tool call, then in
words. What wraps one (``with_retry()``, ``bind()``, ``with_fallbacks()``) stays around it. Any
other runnable is given the messages, and its output read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...errors import JudgeError
from ..functions import call_with
from .backends import one_line
from .ladder import FormatRefused, Reply, Request, Rung

__all__ = ["LangChainBackend", "is_runnable"]

_FORM = (400, 422, 500, 501)


def is_runnable(judge: Any) -> bool:
    """Return whether something is a LangChain runnable, or looks like one."""
    return hasattr(judge, "invoke") and hasattr(judge, "ainvoke")


class LangChainBackend:
    """A runnable.

    Args:
        runnable: The chat model or runnable.
        model: What to call it; by default the model's own name.
        timeout: After how many seconds to give up on it; None leaves that to the model.
        structured_output_kwargs: Handed to ``with_structured_output``.
    """

    def __init__(
        self,
        runnable: Any,
        model: str,
        timeout: float | None,
        structured_output_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.runnable, self.timeout = runnable, timeout
        self.kwargs = dict(structured_output_kwargs or {})
        self._core = _core(runnable)
        kind = f"{type(self._core).__module__}.{type(self._core).__qualname__}"
        self.model = model or _name_of(self._core) or type(self._core).__name__
        address = next(
            (
                str(url)
                for url in (
                    getattr(self._core, key, None) for key in ("openai_api_base", "base_url")
                )
                if url
            ),
            "",
        )
        self.place = (f"langchain:{kind}:{address}", self.model)
        can_structure = hasattr(self._core, "with_structured_output")
        self.rungs: tuple[Rung, ...] = (
            ("json_schema", "tool", "text") if can_structure else ("text",)
        )

    def identity(self) -> Mapping[str, Any] | None:
        """Return the model's own key for caches; None where it has none."""
        key = getattr(self._core, "_get_llm_string", None)
        if key is None:
            return None
        bound = getattr(self.runnable, "kwargs", None) or {}
        try:
            return {"langchain": key(), "bound": repr(sorted(bound.items()))}
        except Exception:
            return None

    def send(self, request: Request) -> Reply:
        """Return the reply to a request."""
        try:
            runnable = self._asking(request)
            returned = call_with(lambda: runnable.invoke(list(request.messages)), {}, self.timeout)
        except Exception as error:
            raise self._explained(error) from error
        return _reply(returned)

    async def asend(self, request: Request) -> Reply:
        """Return the reply to a request."""
        try:
            runnable = self._asking(request)
            call = runnable.ainvoke(list(request.messages))
            returned = await asyncio.wait_for(call, self.timeout)
        except Exception as error:
            raise self._explained(error) from error
        return _reply(returned)

    def close(self) -> None:
        """Do nothing: the model is the user's."""

    def _asking(self, request: Request) -> Any:
        """Return the runnable that asks in a rung's way."""
        schema = {"title": request.schema.name, "description": "The answer.", **request.schema.json}
        if request.rung == "json_schema":
            return _rebuilt(
                self.runnable,
                lambda model: model.with_structured_output(
                    schema, **{"include_raw": True, **self.kwargs}
                ),
            )
        if request.rung == "tool":
            name = request.schema.name
            function = {"name": name, "description": "Hand in the answer."}
            tool = {
                "type": "function",
                "function": {**function, "parameters": dict(request.schema.json)},
            }
            return _rebuilt(
                self.runnable, lambda model: model.bind_tools([tool], tool_choice=name), inner=True
            )
        return self.runnable

    def _explained(self, error: Exception) -> JudgeError:
        if isinstance(error, JudgeError):
            return error
        text = f"{type(error).__name__}: {one_line(error)}"
        if isinstance(error, TimeoutError):
            return JudgeError(str(error) or f"no answer within {self.timeout or 0:g} s")
        status = getattr(error, "status_code", None)
        if isinstance(error, (NotImplementedError, AttributeError)) or status in _FORM:
            return FormatRefused(text)
        # What a model's package raises where it cannot do what is asked, or parse what came.
        if isinstance(error, (ValueError, TypeError)) and status is None:
            return FormatRefused(text)
        return JudgeError(text)


def _core(runnable: Any) -> Any:
    """Return what is inside of all wrappers."""
    inner = getattr(runnable, "bound", None)
    return runnable if inner is None or inner is runnable else _core(inner)


def _rebuilt(runnable: Any, make: Callable[[Any], Any], *, inner: bool = False) -> Any:
    """Return a runnable whose innermost model is replaced by what is made of it.

    Args:
        runnable: A model, perhaps in wrappers.
        make: Makes something of the model.
        inner: Whether that takes the arguments that wrappers bind, as a model does.
    """
    bound = getattr(runnable, "bound", None)
    if bound is None:
        return make(runnable)
    if getattr(runnable, "kwargs", None) and not inner:
        raise FormatRefused("bound arguments and structured output do not go together")
    return runnable.model_copy(update={"bound": _rebuilt(bound, make, inner=inner)})


def _name_of(model: Any) -> str:
    names = (getattr(model, key, None) for key in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _reply(returned: Any) -> Reply:
    """Return the reply that a runnable's output means."""
    if isinstance(returned, Mapping) and "raw" in returned and "parsed" in returned:
        said = _reply(returned["raw"])
        parsed = returned["parsed"]
        return said if parsed is None else _with_value(said, _plain(parsed))
    if isinstance(returned, str):
        return Reply(returned)
    usage = getattr(returned, "usage_metadata", None)
    if usage is None and not hasattr(returned, "content"):
        value = _plain(returned)
        if isinstance(value, Mapping):
            return Reply(None, value=dict(value))
        raise JudgeError(f"the runnable returned a {type(returned).__name__}; expected a message")
    told = getattr(returned, "response_metadata", None) or {}
    more = getattr(returned, "additional_kwargs", None) or {}
    calls = getattr(returned, "tool_calls", None) or ()
    details = (usage or {}).get("input_token_details") or {}
    return Reply(
        _text_of(returned),
        value=dict(calls[0]["args"]) if calls else None,
        refusal=str(more.get("refusal") or ""),
        finish=str(told.get("finish_reason") or ""),
        model=str(told.get("model_name") or ""),
        input_tokens=(usage or {}).get("input_tokens", 0),
        output_tokens=(usage or {}).get("output_tokens", 0),
        cached_tokens=details.get("cache_read", 0) or 0,
    )


def _with_value(said: Reply, value: Any) -> Reply:
    return replace(said, value=dict(value)) if isinstance(value, Mapping) else said


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


def _text_of(message: Any) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    parts = [p if isinstance(p, str) else p.get("text", "") for p in content or ()]
    return "".join(part for part in parts if isinstance(part, str))
