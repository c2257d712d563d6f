"""Adapters of frameworks: a replay answers the tools of an agent from its recording.

Before a framework runs a tool, the adapter asks the tool hook of this context
(`oteval.instrumentation.hooks`). The hook gives the recorded answer, or lets the tool run; then the
adapter reports the call to the hook. Tools with `@oteval.tool` need no adapter. Tools that a
hand-written loop calls as plain functions cannot be intercepted: they run, and their results are
compared in the next request to the model.

Each adapter wraps the one function of its framework that every tool call goes through, as late as
possible, so that validation, approval, callbacks and spans stay those of the framework. The
wrappers stay in place, and do nothing without a hook. Where a framework lacks the function, its
version is not supported, and importing it during a replay is an error: otherwise its tools would
act for real.
"""

from __future__ import annotations

import builtins
import copy
import functools
import json
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ..errors import ConfigError
from ..import_hook import ImportHook
from ..instrumentation.hooks import ToolAnswer, ToolHook, current_tool_hook
from ..jsontext import canonical
from ..serialization import to_jsonable

__all__ = ["ADAPTERS", "ToolAdapter", "install_tool_adapters", "intercepted_names"]

# How Pydantic AI 1 ends the text of a `ModelRetry`; version 2 writes ``{"error": text}``.
_RETRY = "\n\nFix the errors and try again."
# The call that a framework is running, which a framework below must not ask about again.
_running: ContextVar[tuple[str, str] | None] = ContextVar("oteval_running_tool", default=None)
# The name by which the model called a tool, where a toolset has renamed it.
_model_name: ContextVar[str] = ContextVar("oteval_model_tool_name", default="")


@dataclass(frozen=True)
class ToolAdapter:
    """How the tools of one framework are answered.

    Attributes:
        framework: The framework's name.
        module: The module that is changed once it is imported.
        apply: Wraps the functions of the module.
    """

    framework: str
    module: str
    apply: Callable[[ModuleType], None]


@dataclass(frozen=True)
class _Call:
    """One call of a tool, and the hook that decides about it."""

    hook: ToolHook
    name: str
    arguments: dict[str, Any]

    def answer(self) -> ToolAnswer | None:
        """Return the recorded answer, or None to run the tool."""
        return self.hook.answer(self.name, self.arguments)

    @contextmanager
    def observed(self) -> Iterator[Callable[[Any], None]]:
        """Report the tool that runs in a block; the block passes its result on."""
        results: list[Any] = []
        token = _running.set((self.name, canonical(self.arguments)))
        start_ns = time.time_ns()
        error: str | None = None
        try:
            yield results.append
        except Exception as raised:
            error = str(raised) or type(raised).__name__
            raise
        finally:
            _running.reset(token)
            if results or error is not None:
                result = to_jsonable(results[0]) if results else None
                self.hook.observe(
                    self.name, self.arguments, result, error, start_ns, time.time_ns()
                )


def _call_of(name: str, arguments: Any) -> _Call | None:
    """Return a call that a hook decides about, or None to run the tool as ever."""
    hook = current_tool_hook()
    if hook is None:
        return None
    plain = to_jsonable(arguments) if isinstance(arguments, Mapping) else {"input": arguments}
    call = _Call(hook, _model_name.get() or name, plain)
    return None if _running.get() == (call.name, canonical(plain)) else call


def _text(answer: ToolAnswer) -> str:
    """Return an answer as the model received it."""
    if answer.result is None:
        return answer.error or ""
    return answer.result if isinstance(answer.result, str) else json.dumps(answer.result)


def _raised(answer: ToolAnswer, kind: type[Exception] = RuntimeError) -> Exception:
    """Return the exception of a tool that failed: its own if it was recorded or is a builtin."""
    if isinstance(answer.raised, Exception):
        return answer.raised
    found = getattr(builtins, answer.error_type, None)
    if isinstance(found, type) and issubclass(found, Exception):
        kind = found
    return kind(answer.error)


def _reached_model(answer: ToolAnswer) -> bool:
    """Return whether the model received a text, which is false if the tool's exception escaped."""
    return answer.error is None or answer.result is not None


def _require(module: ModuleType, path: str, framework: str) -> Any:
    """Return an attribute of a module, such as ``Class.method``.

    Raises:
        ConfigError: The framework's version has none.
    """
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise ConfigError(
                f"{framework}: {module.__name__} has no {path}, so that a replay cannot answer its "
                f"tools; install a version of {framework} that oteval supports, or replay with "
                "tools='run'"
            )
    return found


def _langchain(module: ModuleType) -> None:
    """Wrap ``BaseTool.run`` and ``arun``, below ``invoke`` and LangGraph's ``ToolNode``."""
    base: Any = module
    run = _require(module, "BaseTool.run", "langchain-core")
    arun = _require(module, "BaseTool.arun", "langchain-core")

    class RecordedTool(base.BaseTool):  # type: ignore[misc]
        """A tool in the place of another, with its name and settings and a recorded answer."""

        real: Any
        recorded: Any
        call_id: str | None = None

        def _run(self, *_args: Any, **_kwargs: Any) -> Any:
            answer: ToolAnswer = self.recorded
            content: Any = _text(answer)
            if answer.error is not None:
                if not _reached_model(answer) or self.call_id is None:
                    raise _raised(answer, base.ToolException)
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

    kept = ("name", "description", "callbacks", "tags", "metadata", "verbose", "response_format")
    handlers = ("handle_tool_error", "handle_validation_error", "return_direct")

    def stand_in(tool: Any, answer: ToolAnswer, call_id: str | None) -> Any:
        settings = {name: getattr(tool, name) for name in (*kept, *handlers)}
        return RecordedTool(real=tool, recorded=answer, call_id=call_id, **settings)

    def call_of(tool: Any, given: Any) -> _Call | None:
        # A tool that returns a command moves the graph; the recording has only its message.
        if isinstance(tool, RecordedTool) or _returns_command(tool):
            return None
        if isinstance(given, Mapping):
            return _call_of(tool.name, tool._filter_injected_args(dict(given)))
        return _call_of(tool.name, {next(iter(tool.args), "input"): given})

    @functools.wraps(run)
    def answered_run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        call = call_of(self, tool_input)
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
        call = call_of(self, tool_input)
        if call is None:
            return await arun(self, tool_input, *args, **kwargs)
        answer = call.answer()
        if answer is not None:
            tool = stand_in(self, answer, kwargs.get("tool_call_id"))
            return await arun(tool, tool_input, *args, **kwargs)
        with call.observed() as report:
            result = await arun(self, tool_input, *args, **kwargs)
            report(getattr(result, "content", result))
        return result

    base.BaseTool.run, base.BaseTool.arun = answered_run, answered_arun


def _returns_command(tool: Any) -> bool:
    """Return whether a tool's annotations say that it may return a command of LangGraph."""
    functions = (getattr(tool, name, None) for name in ("func", "coroutine", "_run"))
    function = next((each for each in functions if callable(each)), None)
    return "Command" in str(getattr(function, "__annotations__", {}).get("return", ""))


def _openai_agents(module: ModuleType) -> None:
    """Wrap the function that invokes a ``FunctionTool``, also of MCP servers."""
    agents: Any = module
    _require(module, "invoke_function_tool", "openai-agents")
    for name in ("_invoke_function_tool_with_metadata", "invoke_function_tool"):
        if (invoke := getattr(agents, name, None)) is not None:
            setattr(agents, name, _answered_invocation(invoke))
            _replace_imported(invoke, getattr(agents, name), "agents")


def _answered_invocation(
    invoke: Callable[..., Awaitable[Any]],
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(invoke)
    async def answered(*, function_tool: Any, arguments: str, **context: Any) -> Any:
        call = _call_of(function_tool.name, _parsed(arguments))
        if call is None:
            return await invoke(function_tool=function_tool, arguments=arguments, **context)
        answer = call.answer()
        if answer is None:
            with call.observed() as report:
                result = await invoke(function_tool=function_tool, arguments=arguments, **context)
                report(getattr(result, "output", result))
            return result

        async def recorded(_context: Any, _arguments: str) -> str:
            if not _reached_model(answer):
                raise _raised(answer)
            return _text(answer)

        stand_in = copy.copy(function_tool)
        stand_in.on_invoke_tool = recorded
        return await invoke(function_tool=stand_in, arguments=arguments, **context)

    return answered


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _replace_imported(old: Any, new: Any, package: str) -> None:
    """Replace a function in the modules of a package that have imported it by name."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package:
            for key, value in list(vars(module).items()) if module is not None else ():
                if value is old:
                    setattr(module, key, new)


def _pydantic_ai_names(module: ModuleType) -> None:
    """Remember in ``CombinedToolset`` the names of tools before toolsets rename them."""
    combined: Any = _require(module, "CombinedToolset", "pydantic-ai")
    call_tool = _require(module, "CombinedToolset.call_tool", "pydantic-ai")

    @functools.wraps(call_tool)
    async def named(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        # Toolsets may be nested: the outermost has the name that the model used.
        token = None if _model_name.get() else _model_name.set(name)
        try:
            return await call_tool(self, name, *args, **kwargs)
        finally:
            if token is not None:
                _model_name.reset(token)

    combined.call_tool = named


def _pydantic_ai(class_name: str) -> Callable[[ModuleType], None]:
    """Return the adapter of one class of toolsets, whose ``call_tool`` runs tools."""

    def apply(module: ModuleType) -> None:
        owner: Any = _require(module, class_name, "pydantic-ai")
        call_tool = _require(module, f"{class_name}.call_tool", "pydantic-ai")

        @functools.wraps(call_tool)
        async def answered(
            self: Any, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any
        ) -> Any:
            call = _call_of(name, tool_args) if tool.tool_def.kind == "function" else None
            # A tool may run another agent, which names its tools itself.
            token = _model_name.set("")
            try:
                if call is None:
                    return await call_tool(self, name, tool_args, ctx, tool)
                answer = call.answer()
                if answer is not None:
                    return _pydantic_ai_result(answer)
                with call.observed() as report:
                    result = await call_tool(self, name, tool_args, ctx, tool)
                    report(result)
                return result
            finally:
                _model_name.reset(token)

        owner.call_tool = answered

    return apply


def _pydantic_ai_result(answer: ToolAnswer) -> str:
    """Return the text for the model, or ask the model to retry as the recorded tool did."""
    from pydantic_ai import ModelRetry

    text = _text(answer)
    if text.endswith(_RETRY):
        raise ModelRetry(text.removesuffix(_RETRY))
    if not _reached_model(answer):
        raise _raised(answer)
    wrapped = _parsed(text) if answer.error is not None else None
    if isinstance(wrapped, dict) and list(wrapped) == ["error"]:
        raise ModelRetry(str(wrapped["error"]))
    return text


def _mcp(module: ModuleType) -> None:
    """Wrap ``ClientSession.call_tool``. The session itself needs its server."""
    session: Any = _require(module, "ClientSession", "mcp")
    call_tool = _require(module, "ClientSession.call_tool", "mcp")

    @functools.wraps(call_tool)
    async def answered(
        self: Any, name: str, arguments: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        call = _call_of(name, arguments or {})
        if call is None:
            return await call_tool(self, name, arguments, *args, **kwargs)
        answer = call.answer()
        if answer is not None:
            return _mcp_result(answer)
        with call.observed() as report:
            result = await call_tool(self, name, arguments, *args, **kwargs)
            report(result)
        return result

    session.call_tool = answered


def _mcp_result(answer: ToolAnswer) -> Any:
    """Return a ``CallToolResult``; its structured content is the text if that is an object."""
    from mcp.types import CallToolResult

    text = _text(answer)
    parsed = _parsed(text)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text}],
        "isError": answer.error is not None,
    }
    if isinstance(parsed, dict) and parsed:
        result["structuredContent"] = parsed
    return CallToolResult.model_validate(result)


ADAPTERS = (
    ToolAdapter("langchain-core", "langchain_core.tools.base", _langchain),
    ToolAdapter("openai-agents", "agents.tool", _openai_agents),
    ToolAdapter("pydantic-ai", "pydantic_ai.toolsets.combined", _pydantic_ai_names),
    ToolAdapter("pydantic-ai", "pydantic_ai.toolsets.function", _pydantic_ai("FunctionToolset")),
    ToolAdapter("pydantic-ai", "pydantic_ai.mcp", _pydantic_ai("MCPToolset")),
    ToolAdapter("mcp", "mcp.client.session", _mcp),
)
"""The adapters, by the module that they change."""

_by_module = {adapter.module: adapter for adapter in ADAPTERS}
_hook = ImportHook(_by_module, lambda module: _by_module[module.__name__].apply(module))


def install_tool_adapters() -> None:
    """Adapt the frameworks that are loaded now, and others when they are imported.

    Raises:
        ConfigError: A loaded framework's version is not supported.
    """
    _hook.install()


def intercepted_names(wanted: Collection[str]) -> dict[str, str]:
    """TEMPORARY until the interceptors land."""
    import gc

    from ..instrumentation.decorators import _ToolRecorder

    names: dict[str, str] = {}
    for item in gc.get_objects():
        kind = type(item)
        if kind is _ToolRecorder and item.name in wanted:
            names[item.name] = "@oteval.tool, answered"
        elif any(
            str(base.__module__).startswith(("langchain_core.tools", "agents.tool", "pydantic_ai"))
            for base in kind.__mro__
        ):
            name = getattr(item, "name", None)
            if isinstance(name, str) and name in wanted:
                names[name] = f"{kind.__name__}, answered"
    return names
