"""LangChain's tools, below ``invoke`` and LangGraph's ``ToolNode``.

Another tool takes the place of an answered tool. It has the same name and settings and the recorded
answer, so LangChain makes messages, artifacts and callbacks as usual.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ...record import ToolAnswer
from .calls import InterceptedCall, call_of, raised, reached_model, text_of
from .table import marked, require

__all__ = ["adapt_langchain", "returns_command"]


def adapt_langchain(module: ModuleType) -> None:
    """Wrap ``BaseTool.run`` and ``arun``, below ``invoke`` and LangGraph's ``ToolNode``."""
    base: Any = module
    run = require(module, "BaseTool.run", "langchain-core")
    arun = require(module, "BaseTool.arun", "langchain-core")

    class RecordedTool(base.BaseTool):  # type: ignore[misc]
        """A tool that replaces another, with the same name and settings and a recorded answer."""

        real: Any
        recorded: Any
        call_id: str | None = None

        def _run(self, *_args: Any, **_kwargs: Any) -> Any:
            answer: ToolAnswer = self.recorded
            content: Any = text_of(answer)
            if answer.error is not None:
                if not reached_model(answer) or self.call_id is None:
                    raise raised(answer, base.ToolException)
                content = base.ToolMessage(
                    content, tool_call_id=self.call_id, name=self.name, status="error"
                )
            is_pair = self.response_format == "content_and_artifact"
            return (content, None) if is_pair else content

        async def _arun(self, *args: Any, **kwargs: Any) -> Any:
            return self._run(*args, **kwargs)

        def _to_args_and_kwargs(self, *_args: Any, **_kwargs: Any) -> Any:
            return (), {}

        def _filter_injected_args(self, tool_input: dict[str, Any]) -> dict[str, Any]:
            return dict(self.real._filter_injected_args(tool_input))

    texts = ("name", "description", "callbacks", "tags", "metadata", "verbose")
    forms = ("response_format", "handle_tool_error", "handle_validation_error", "return_direct")

    def stand_in(tool: Any, answer: ToolAnswer, call_id: str | None) -> Any:
        settings = {name: getattr(tool, name) for name in (*texts, *forms)}
        return RecordedTool(real=tool, recorded=answer, call_id=call_id, **settings)

    def call_of_tool(tool: Any, tool_input: Any) -> InterceptedCall | None:
        # A tool that returns a command moves the graph; the recording has only the command's
        # message.
        if isinstance(tool, RecordedTool) or returns_command(tool):
            return None
        if isinstance(tool_input, Mapping):
            return call_of(tool.name, tool._filter_injected_args(dict(tool_input)))
        return call_of(tool.name, {next(iter(tool.args), "input"): tool_input})

    @functools.wraps(run)
    def answered_run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        call = call_of_tool(self, tool_input)
        if call is None:
            return run(self, tool_input, *args, **kwargs)
        answer = call.answer()
        if answer is not None:
            tool = stand_in(self, answer, kwargs.get("tool_call_id"))
            return run(tool, tool_input, *args, **kwargs)
        with call.observed() as report:
            result = run(self, tool_input, *args, **kwargs)
            report(getattr(result, "content", result))
        return result

    @functools.wraps(arun)
    async def answered_arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        call = call_of_tool(self, tool_input)
        if call is None:
            return await arun(self, tool_input, *args, **kwargs)
        answer = await call.answer_async()
        if answer is not None:
            tool = stand_in(self, answer, kwargs.get("tool_call_id"))
            return await arun(tool, tool_input, *args, **kwargs)
        with call.observed() as report:
            result = await arun(self, tool_input, *args, **kwargs)
            report(getattr(result, "content", result))
        return result

    base.BaseTool.run, base.BaseTool.arun = marked(answered_run), marked(answered_arun)


def returns_command(tool: Any) -> bool:
    """Whether a tool may return a command of LangGraph, by its annotations."""
    functions = (getattr(tool, name, None) for name in ("func", "coroutine", "_run"))
    function = next((candidate for candidate in functions if callable(candidate)), None)
    return "Command" in str(getattr(function, "__annotations__", {}).get("return", ""))
