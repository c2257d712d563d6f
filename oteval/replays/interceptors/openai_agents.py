"""The tools of the OpenAI Agents SDK."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from ...base.errors import ConfigError
from .calls import call_of, parsed, raised, reached_model, text_of
from .table import require

__all__ = ["adapt_actions", "adapt_openai_agents", "calls_back", "replace_imported"]


def adapt_openai_agents(module: ModuleType) -> None:
    """Wrap the function that invokes a ``FunctionTool``, also of MCP servers."""
    agents: Any = module
    require(module, "invoke_function_tool", "openai-agents")
    for name in ("_invoke_function_tool_with_metadata", "invoke_function_tool"):
        if (invoke := getattr(agents, name, None)) is not None:
            setattr(agents, name, _answered_invocation(invoke))
            replace_imported(invoke, getattr(agents, name), "agents")


def _answered_invocation(
    invoke: Callable[..., Awaitable[Any]],
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(invoke)
    async def answered(*, function_tool: Any, arguments: str, **context: Any) -> Any:
        call = call_of(function_tool.name, parsed(arguments))
        if call is None:
            return await invoke(function_tool=function_tool, arguments=arguments, **context)
        answer = call.hook.answer(call.name, call.arguments)
        if answer is None:
            with call.observed() as report:
                result = await invoke(function_tool=function_tool, arguments=arguments, **context)
                report(getattr(result, "output", result))
            return result

        async def recorded(tool_context: Any, _arguments: str) -> str:
            # Here, so that the tool's own time limit counts.
            await answer.wait_async()
            if reached_model(answer):
                return text_of(answer)
            error = raised(answer)
            text = None
            if answer.is_fault:
                text = await _text_of_error(function_tool, tool_context, error)
            if text is None:
                raise error
            return text

        stand_in = copy.copy(function_tool)
        stand_in.on_invoke_tool = recorded
        return await invoke(function_tool=stand_in, arguments=arguments, **context)

    return answered


async def _text_of_error(function_tool: Any, tool_context: Any, error: Exception) -> str | None:
    """The text that the tool's ``failure_error_function`` makes of an error; None without one."""
    module: Any = sys.modules["agents.tool"]
    make_text = getattr(module, "maybe_invoke_function_tool_failure_error_function", None)
    if make_text is None:
        return None
    text: str | None = await make_text(
        function_tool=function_tool, context=tool_context, error=error
    )
    return text


def replace_imported(old: Any, new: Any, package: str) -> None:
    """Replace a function in the modules of a package that have imported it by name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for key, value in list(vars(module).items()) if module is not None else ():
                if value is old:
                    setattr(module, key, new)


def adapt_actions(module: ModuleType) -> None:
    """Ask the hook before tools that no recording can answer: computers, shells, patches."""
    for name in ("Computer", "LocalShell", "Shell", "CustomTool", "ApplyPatch"):
        action = getattr(module, f"{name}Action", None)
        if action is not None:
            execute = require(module, f"{name}Action.execute", "openai-agents")
            action.execute = staticmethod(_refused(name, execute))


def _refused(name: str, execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(execute)
    async def asked(**context: Any) -> Any:
        call = call_of(name, {})
        if call is None:
            return await execute(**context)
        if call.answer() is None:
            with call.observed():
                return await execute(**context)
        raise ConfigError(
            f"openai-agents: a replay cannot answer {name}Action from a recording; allow it by "
            "name, or replay with tools='run'"
        )

    return asked


def calls_back(handoff: Any) -> bool:
    """Whether a handoff runs code of the agent: its ``on_handoff``."""
    invoke = handoff.on_invoke_handoff
    for function in (invoke, *getattr(invoke, "args", ())):
        if inspect.isfunction(function):
            variables = inspect.getclosurevars(function).nonlocals
            if "on_handoff" in variables:
                return variables["on_handoff"] is not None
    return True
