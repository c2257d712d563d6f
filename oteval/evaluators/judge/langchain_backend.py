"""Judges that are LangChain chat models or other runnables, recognised by their methods.

A chat model is asked through ``with_structured_output``, then by a forced tool call, then with the
schema in the prompt. Wrappers (``with_retry()``, ``bind()``, ``with_fallbacks()``) stay around it.
Any other runnable is called with the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...base.errors import JudgeError
from ...base.runner import call
from ...base.sync import IoCall
from ...model import read_tokens
from .backends import one_line, timeout_error
from .completions import (
    AnswerCall,
    AnswerText,
    ServerError,
    attribute,
    finish_reason,
    make_reply,
    plain_form,
    read_content,
    token_count,
)
from .output_modes import CompletionRequest, ModelReply, OutputMode, OutputModeRefused

__all__ = ["LangChainBackend", "is_runnable"]

# Where integration packages put the finish reason.
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
# The options of chat models that a server may refuse.
_OPTIONS = ("temperature", "top_p", "seed", "max_tokens", "max_completion_tokens", "stop")


def is_runnable(judge: Any) -> bool:
    """Whether an object is a LangChain runnable, or has the same interface."""
    return hasattr(judge, "invoke") and hasattr(judge, "ainvoke")


class LangChainBackend:
    """A LangChain runnable.

    Args:
        runnable: The chat model or runnable.
        model: The name to report; "" means the model's own name.
        timeout: In seconds; None leaves it to the model.
        structured_output_kwargs: Arguments for ``with_structured_output``.
    """

    def __init__(
        self,
        runnable: Any,
        model: str,
        timeout: float | None,
        structured_output_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.runnable, self.timeout = runnable, timeout
        self.structured_output_kwargs = dict(structured_output_kwargs or {})
        self._model = list(_layers(runnable))[-1]
        kind = f"{type(self._model).__module__}.{type(self._model).__qualname__}"
        self.model = model or _model_name(self._model) or type(self._model).__name__
        urls = [getattr(self._model, key, None) for key in ("openai_api_base", "base_url")]
        address = next((str(url) for url in urls if url), "")
        self.endpoint = (f"langchain:{kind}:{address}", self.model)
        can_structure = hasattr(self._model, "with_structured_output")
        self.modes: tuple[OutputMode, ...] = (
            ("json_schema", "tool", "text") if can_structure else ("text",)
        )

    @property
    def answer_limit(self) -> int | None:
        """The model's own limit on answer tokens."""
        limits = [getattr(self._model, key, None) for key in ("max_tokens", "max_output_tokens")]
        return next((limit for limit in map(token_count, limits) if limit), None)

    def identity(self) -> Mapping[str, Any] | None:
        """LangChain's cache key of the model, with the options of its wrappers and ours.

        It is None if the model has no such key, or if a wrapper may call other models.
        """
        key = getattr(self._model, "_get_llm_string", None)
        layers = list(_layers(self.runnable))
        if key is None or any(hasattr(layer, "fallbacks") for layer in layers):
            return None
        bound = [sorted((getattr(layer, "kwargs", None) or {}).items()) for layer in layers]
        try:
            identity = {"langchain": key(), "bound": repr(bound), "server": self.endpoint[0]}
        except Exception:
            return None
        options = repr(sorted(self.structured_output_kwargs.items()))
        return {**identity, "structured_output": options}

    async def send(self, request: CompletionRequest) -> ModelReply:
        """Invoke the runnable."""
        try:
            runnable = self._for_mode(request)
            returned = await IoCall(
                lambda: call(lambda: runnable.invoke(list(request.messages)), self.timeout),
                lambda: asyncio.wait_for(runnable.ainvoke(list(request.messages)), self.timeout),
            )
        except Exception as error:
            raise self._explain(error) from error
        reply = _read_returned(returned, request)
        # LangChain completes the arguments of a tool call whose stream broke off.
        is_cut_off = getattr(self._model, "streaming", False) is True and not reply.finish_reason
        return replace(reply, finish_reason="end of the stream") if is_cut_off else reply

    def close(self) -> None:
        """Do nothing; the model belongs to the user."""

    def _for_mode(self, request: CompletionRequest) -> Any:
        """The runnable that asks in the request's output mode."""
        schema = {"title": request.schema.name, "description": "The answer.", **request.schema.json}
        if request.mode == "json_schema":
            options = {"include_raw": True, **self.structured_output_kwargs}
            return _replace_model(
                self.runnable, lambda model: model.with_structured_output(schema, **options)
            )
        if request.mode == "tool":
            function = {
                "name": request.schema.name,
                "description": "Hand in the answer.",
                "parameters": dict(request.schema.json),
            }
            tool = {"type": "function", "function": function}
            return _replace_model(
                self.runnable,
                lambda model: model.bind_tools([tool], tool_choice=request.schema.name),
                accepts_arguments=True,
            )
        return self.runnable

    def _explain(self, error: Exception) -> JudgeError:
        if isinstance(error, JudgeError):
            return error
        text = f"{type(error).__name__}: {one_line(error)}"
        if isinstance(error, TimeoutError):
            return timeout_error(error, self.timeout)
        status = getattr(error, "status_code", None)
        if isinstance(error, (NotImplementedError, AttributeError)):
            return OutputModeRefused(text)
        name = type(error).__name__
        if isinstance(status, int):
            body = getattr(error, "body", None) or text
            return ServerError.of(body, status).explained(name, _OPTIONS)
        if error.args and isinstance(error.args[0], Mapping):  # an error in an answer
            return ServerError.of(error.args[0]).explained(name, _OPTIONS)
        # Integration packages raise these for unsupported options and unparsable answers.
        if isinstance(error, (ValueError, TypeError)) and status is None:
            return OutputModeRefused(text)
        return JudgeError(text)


def _layers(runnable: Any) -> Iterator[Any]:
    """Yield a runnable and the runnables that it wraps, from the outside in."""
    yield runnable
    inner = getattr(runnable, "bound", None)
    if inner is not None and inner is not runnable:
        yield from _layers(inner)


def _replace_model(
    runnable: Any, make: Callable[[Any], Any], *, accepts_arguments: bool = False
) -> Any:
    """A runnable with its innermost model replaced.

    Args:
        runnable: A model, perhaps in wrappers.
        make: Makes the replacement from the model.
        accepts_arguments: Whether the replacement accepts the arguments that wrappers bind, as a
            model does.
    """
    bound = getattr(runnable, "bound", None)
    if bound is None:
        return make(runnable)
    if getattr(runnable, "kwargs", None) and not accepts_arguments:
        raise OutputModeRefused("bound arguments and structured output do not go together")
    inner = _replace_model(bound, make, accepts_arguments=accepts_arguments)
    return runnable.model_copy(update={"bound": inner})


def _model_name(model: Any) -> str:
    names = (getattr(model, key, None) for key in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _read_returned(returned: Any, request: CompletionRequest) -> ModelReply:
    """The reply in a runnable's output.

    A model's message counts, not LangChain's parsed form of it: the parsers also extract JSON from
    prose and complete answers that were cut off.
    """
    parsed = None
    if isinstance(returned, Mapping) and "raw" in returned and "parsed" in returned:
        parsed, returned = plain_form(returned["parsed"]), returned["raw"]
    if isinstance(returned, str):
        return ModelReply(returned)
    if not hasattr(returned, "content"):
        value = plain_form(returned if returned is not None else parsed)
        if isinstance(value, Mapping):
            return ModelReply(text=None, value=dict(value))
        raise JudgeError(f"the runnable returned a {type(returned).__name__}; expected a message")
    return _read_message(returned, parsed, request)


def _read_message(message: Any, parsed: Any, request: CompletionRequest) -> ModelReply:
    content, calls = read_content(message.content), _tool_calls(message)
    metadata = getattr(message, "response_metadata", None) or {}
    if not calls and not content.text and not content.problem and isinstance(parsed, Mapping):
        calls = [AnswerCall("", parsed)]
    elif calls and content.text and request.mode == "text":
        problem = "the answer is both a text and a tool call"
        content = AnswerText(content.text, content.refusal, problem)
    # Some packages turn structured output into a tool call in every mode.
    mode: OutputMode = "tool" if calls else request.mode
    finish = next((metadata[key] for key in _FINISH_KEYS if metadata.get(key)), "")
    extra = getattr(message, "additional_kwargs", None) or {}
    return make_reply(
        replace(request, mode=mode),
        content=content,
        calls=calls,
        refusal=str(extra.get("refusal") or ""),
        finish_reason=finish_reason(metadata) or str(finish),
        model=str(metadata.get("model_name") or metadata.get("model") or ""),
        counts=read_tokens(getattr(message, "usage_metadata", None)),
    )


def _tool_calls(message: Any) -> list[AnswerCall]:
    """The tool calls of a message; arguments that could not be parsed stay text."""
    names = ("tool_calls", "invalid_tool_calls")
    calls = [call for name in names for call in getattr(message, name, None) or ()]
    return [AnswerCall(str(attribute(c, "name") or ""), attribute(c, "args")) for c in calls]
