"""A judge that is a LangChain chat model or any runnable, recognised by what it has.

A chat model is asked through ``with_structured_output``, then by a forced tool call, then in
words. What wraps one (``with_retry()``, ``bind()``, ``with_fallbacks()``) stays around it. Any
other runnable is given the messages, and its output read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...errors import JudgeError
from ..functions import call_with
from .backends import one_line
from .completions import Call, Counts, Said, count, finish_of, get, read, reply_of
from .ladder import FormatRefused, Reply, Request, Rung

__all__ = ["LangChainBackend", "is_runnable"]

_FORM = (400, 422, 500, 501)
_OUTAGE = 500
# Where models' packages put the reason for which an answer ended.
_FINISH = ("finish_reason", "stop_reason", "done_reason", "stopReason")


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

    @property
    def answer_limit(self) -> int | None:
        """The model's own limit on tokens of the answer."""
        limits = [getattr(self._core, key, None) for key in ("max_tokens", "max_output_tokens")]
        return next((limit for limit in map(count, limits) if limit), None)

    def identity(self) -> Mapping[str, Any] | None:
        """Return the model's own key for caches, with all that its wrappers and we add to it.

        Returns:
            None where the model has no key, or a wrapper may ask other models.
        """
        key = getattr(self._core, "_get_llm_string", None)
        layers = list(_layers(self.runnable))
        if key is None or any(hasattr(layer, "fallbacks") for layer in layers):
            return None
        bound = [sorted((getattr(layer, "kwargs", None) or {}).items()) for layer in layers]
        try:
            found = {"langchain": key(), "bound": repr(bound), "server": self.place[0]}
        except Exception:
            return None
        return {**found, "structured_output": repr(sorted(self.kwargs.items()))}

    def send(self, request: Request) -> Reply:
        """Return the reply to a request."""
        try:
            runnable = self._asking(request)
            returned = call_with(lambda: runnable.invoke(list(request.messages)), {}, self.timeout)
        except Exception as error:
            raise self._explained(error) from error
        return self._ended(_reply(returned, request))

    async def asend(self, request: Request) -> Reply:
        """Return the reply to a request."""
        try:
            runnable = self._asking(request)
            call = runnable.ainvoke(list(request.messages))
            returned = await asyncio.wait_for(call, self.timeout)
        except Exception as error:
            raise self._explained(error) from error
        return self._ended(_reply(returned, request))

    def close(self) -> None:
        """Do nothing: the model is the user's."""

    def _ended(self, reply: Reply) -> Reply:
        """Return a reply as cut off where a stream never said why it ended.

        LangChain completes the arguments of a tool call whose stream broke off.
        """
        is_cut = getattr(self._core, "streaming", False) is True and not reply.finish
        return replace(reply, finish="end of the stream") if is_cut else reply

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
            return FormatRefused(text, is_outage=status == _OUTAGE)
        # What a model's package raises where it cannot do what is asked, or parse what came.
        if isinstance(error, (ValueError, TypeError)) and status is None:
            return FormatRefused(text)
        return JudgeError(text)


def _core(runnable: Any) -> Any:
    """Return what is inside of all wrappers."""
    return list(_layers(runnable))[-1]


def _layers(runnable: Any) -> Iterator[Any]:
    """Yield a runnable and what it wraps, from the outside in."""
    yield runnable
    inner = getattr(runnable, "bound", None)
    if inner is not None and inner is not runnable:
        yield from _layers(inner)


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


def _reply(returned: Any, request: Request) -> Reply:
    """Return the reply that a runnable's output means.

    A model's message is read as it was written. What LangChain parsed of it does not count, since
    its parsers also take JSON out of prose and complete what was cut off.
    """
    parsed = None
    if isinstance(returned, Mapping) and "raw" in returned and "parsed" in returned:
        parsed, returned = _plain(returned["parsed"]), returned["raw"]
    if isinstance(returned, str):
        return Reply(returned)
    if not hasattr(returned, "content"):
        value = _plain(returned if returned is not None else parsed)
        if isinstance(value, Mapping):
            return Reply(None, value=dict(value))
        raise JudgeError(f"the runnable returned a {type(returned).__name__}; expected a message")
    return _of_message(returned, parsed, request)


def _of_message(message: Any, parsed: Any, request: Request) -> Reply:
    said, calls = read(message.content), _calls(message)
    told = getattr(message, "response_metadata", None) or {}
    usage = getattr(message, "usage_metadata", None) or {}
    if not calls and not said.text and not said.problem and isinstance(parsed, Mapping):
        calls = [Call("", parsed)]
    elif calls and said.text and request.rung == "text":
        said = Said(said.text, said.refusal, "the answer is both a text and a tool call")
    # Some packages make a tool call of structured output, whatever they were asked for.
    asked = Request(request.messages, request.schema, "tool") if calls else request
    more = getattr(message, "additional_kwargs", None) or {}
    return reply_of(
        asked,
        said=said,
        calls=calls,
        refusal=str(more.get("refusal") or ""),
        finish=finish_of(told) or str(next((told[key] for key in _FINISH if told.get(key)), "")),
        model=str(told.get("model_name") or told.get("model") or ""),
        counts=_counts(usage),
    )


def _counts(usage: Mapping[str, Any]) -> Counts:
    tokens = count(usage.get("input_tokens"))
    cached = count((usage.get("input_token_details") or {}).get("cache_read")) or 0
    return Counts(tokens, count(usage.get("output_tokens")), min(cached, tokens or 0))


def _calls(message: Any) -> list[Call]:
    """Return the tool calls of a message, those that could not be parsed as their text."""
    names = ("tool_calls", "invalid_tool_calls")
    found = [call for name in names for call in getattr(message, name, None) or ()]
    return [Call(str(get(call, "name") or ""), get(call, "args")) for call in found]


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value
