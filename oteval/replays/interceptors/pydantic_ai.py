"""The tools of Pydantic AI: of functions, with approvals, of MCP servers, and of other toolsets.

Toolsets that contain other toolsets lead to the toolset that runs the tool. Only that toolset is
answered, so Pydantic AI does the approvals, the validation of arguments, and the retries.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ...record import ToolAnswer
from .calls import model_name, parsed, raised, reached_model, text_of
from .frameworks import is_from
from .table import Bound, ToolInterceptor, is_intercepted, require

__all__ = ["PYDANTIC_AI", "adapt_tool_names", "is_answered_toolset", "toolset_names"]

# How Pydantic AI 1 ends the text of a `ModelRetry`; version 2 writes ``{"error": text}``.
_RETRY = "\n\nFix the errors and try again."
# Pydantic AI's toolsets that run tools themselves, in all versions.
_RUNNING = frozenset(("FunctionToolset", "MCPToolset", "MCPServer", "FastMCPToolset"))


def adapt_tool_names(module: ModuleType) -> None:
    """Remember in ``CombinedToolset`` the names of tools before toolsets rename them."""
    combined: Any = require(module, "CombinedToolset", "pydantic-ai")
    call_tool = require(module, "CombinedToolset.call_tool", "pydantic-ai")

    @functools.wraps(call_tool)
    async def named(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        # Toolsets may be nested: the outermost toolset has the name that the model used.
        token = None if model_name.get() else model_name.set(name)
        try:
            return await call_tool(self, name, *args, **kwargs)
        finally:
            if token is not None:
                model_name.reset(token)

    combined.call_tool = named


def _is_flow(owner: type) -> bool:
    """Whether a toolset leads to others, or belongs to Pydantic AI and acts on nothing."""
    names = {base.__name__ for base in owner.__mro__ if is_from(base, "pydantic_ai")}
    return "WrapperToolset" in names or (is_from(owner, "pydantic_ai") and not names & _RUNNING)


def _result(answer: ToolAnswer, _bound: Bound) -> str:
    """Return the text for the model, or ask the model to retry as the recorded tool did.

    Only exceptions of Pydantic AI reach the model, not other exceptions of a tool.
    """
    from pydantic_ai import ModelRetry

    text = text_of(answer)
    if text.endswith(_RETRY):
        raise ModelRetry(text.removesuffix(_RETRY))
    if answer.error is None:
        return text
    if answer.error_type not in ("", "ModelRetry", "ToolFailed") or not reached_model(answer):
        raise raised(answer)
    wrapped = parsed(text)
    is_wrapped = isinstance(wrapped, dict) and list(wrapped) == ["error"]
    error = str(wrapped["error"]) if is_wrapped else answer.error
    if answer.error_type == "ToolFailed":
        from pydantic_ai.exceptions import ToolFailed

        raise ToolFailed(error)
    raise ModelRetry(error)


PYDANTIC_AI = ToolInterceptor(
    "pydantic-ai",
    "pydantic_ai.toolsets.abstract",
    "AbstractToolset",
    ("call_tool",),
    call=lambda bound: (bound["name"], bound["tool_args"]),
    give=_result,
    is_flow=_is_flow,
)
"""The entry of the table."""


def toolset_names(manager: Any) -> Iterator[str]:
    """Yield the names of the tools of an agent's step: a ``ToolManager``."""
    yield from manager.tools or ()


def is_answered_toolset(manager: Any, name: str) -> bool:
    """Whether a tool of an agent's step is answered, or acts on nothing.

    A tool that Pydantic AI leaves to the caller (``external``) is not answered: the caller's code
    runs it. An output type acts on nothing, but a function as output type may act.

    Args:
        manager: The ``ToolManager``.
        name: The tool's name.
    """
    tool = manager.tools[name]
    kind = tool.tool_def.kind
    if kind == "external":
        return False
    if kind == "output":
        processor = getattr(tool.toolset, "processors", {}).get(name)
        return processor is not None and getattr(processor, "_function_schema", None) is None
    leaves: list[Any] = []
    tool.toolset.apply(leaves.append)
    return all(is_intercepted(leaf, "call_tool") or _acts_not(leaf) for leaf in leaves)


def _acts_not(toolset: Any) -> bool:
    return is_from(type(toolset), "pydantic_ai") and _is_flow(type(toolset))
