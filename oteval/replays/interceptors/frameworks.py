"""The table of interceptors: the methods through which frameworks run their tools.

Each entry is as late as possible, so that the framework still does the validation of arguments,
approvals, callbacks and spans. LangChain, OpenAI Agents and Pydantic AI need more than an entry,
and have their own modules. A class of DSPy also needs more, and has a function here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ...record import ToolAnswer
from .calls import call_of, parsed, raise_error, text_of, value_of
from .table import Bound, ToolInterceptor, require

__all__ = ["ANTHROPIC_TOOLS", "INTERCEPTORS", "adapt_dspy", "crewai_name", "is_from"]


def is_from(function: Any, *packages: str) -> bool:
    """Whether a function or a class is defined in any of the packages."""
    module = getattr(function, "__module__", None) or ""
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def _given_text(form: str = "") -> Any:
    """A `give` for the text that the model received; it raises the exception of a failed tool."""

    def give(answer: ToolAnswer, _bound: Bound) -> str:
        raise_error(answer, form)
        return text_of(answer)

    return give


def _given_value(form: str = "") -> Any:
    """A `give` for a value; it raises the exception of a failed tool."""

    def give(answer: ToolAnswer, _bound: Bound) -> Any:
        raise_error(answer, form)
        return value_of(answer)

    return give


def _keywords(bound: Bound, names: Mapping[str, Any] | None = None) -> Any:
    """The arguments of a call with ``*args`` and ``**kwargs``, by name."""
    args, kwargs = bound.get("args", ()), dict(bound.get("kwargs", {}))
    if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
        return dict(args[0])
    return {**dict(zip(names or (), args, strict=False)), **kwargs} if names else kwargs or args


# MCP


def _mcp_result(answer: ToolAnswer, _bound: Bound) -> Any:
    """A ``CallToolResult``; its structured content is the text if the text is a JSON object."""
    from mcp.types import CallToolResult

    text = text_of(answer)
    value = parsed(text)
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": text}],
        "isError": answer.error is not None,
    }
    if isinstance(value, dict) and value:
        result["structuredContent"] = value
    return CallToolResult.model_validate(result)


# LlamaIndex


def _llamaindex_call(bound: Bound) -> tuple[str, Any] | None:
    tool = bound["self"]
    if is_from(getattr(tool, "_real_fn", None), "llama_index.core.agent"):
        return None  # handoffs
    context = getattr(tool, "ctx_param_name", None)
    parameters = tool.metadata.get_parameters_dict().get("properties", {})
    names = bound.get("args") or bound.get("kwargs")
    arguments = _keywords(bound, parameters) if names else {**bound, "self": None}
    hidden = {"self", context}
    if isinstance(arguments, Mapping):
        arguments = {key: value for key, value in arguments.items() if key not in hidden}
    return tool.metadata.get_name(), arguments


def _llamaindex_result(answer: ToolAnswer, bound: Bound) -> Any:
    from llama_index.core.tools import ToolOutput

    raise_error(answer, r"(Encountered error: )?(?P<text>.*)")
    tool = bound["self"]
    return ToolOutput(
        content=text_of(answer),
        tool_name=tool.metadata.get_name(),
        raw_input={"args": (), "kwargs": {}},
        raw_output=value_of(answer),
    )


# CrewAI


def crewai_name(name: str) -> str:
    """The name of a tool of CrewAI that the model knows."""
    from crewai.utilities.string_utils import sanitize_tool_name

    return str(sanitize_tool_name(name))


def _crewai_call(bound: Bound) -> tuple[str, Any]:
    tool = bound["self"]
    schema = getattr(tool, "args_schema", None)
    return crewai_name(tool.name), _keywords(bound, getattr(schema, "model_fields", None))


def _crewai_structured_call(bound: Bound) -> tuple[str, Any]:
    tool_input = bound.get("input", {})
    arguments = parsed(tool_input) if isinstance(tool_input, str) else tool_input
    return crewai_name(bound["self"].name), arguments


# smolagents

# Modules that smolagents lets code import by default; none acts outside of the process.
_PURE_IMPORTS = frozenset(
    {
        *("collections", "datetime", "itertools", "math", "queue", "random", "re", "stat"),
        *("statistics", "time", "unicodedata"),
    }
)


def _smolagents_call(bound: Bound) -> tuple[str, Any] | None:
    tool = bound["self"]
    if is_from(type(tool), "smolagents") and tool.name == "final_answer":
        return None
    kwargs = {k: v for k, v in bound.get("kwargs", {}).items() if k != "sanitize_inputs_outputs"}
    return tool.name, _keywords({**bound, "kwargs": kwargs}, tool.inputs)


def _smolagents_code(bound: Bound) -> tuple[str, Any] | None:
    """Code that may act by itself; other code only calls tools, which are answered."""
    imports = set(getattr(bound["self"], "authorized_imports", ("*",)))
    return None if imports <= _PURE_IMPORTS else ("python_interpreter", bound["code_action"])


def _smolagents_result(answer: ToolAnswer, bound: Bound) -> Any:
    raise_error(
        answer,
        r"(Error:\n)?Error executing tool '.*?' with arguments .*?: (?P<type>\w+): (?P<text>.*?)"
        r"\nPlease try again or use another tool.*",
    )
    text = text_of(answer) if answer.own_result is None else answer.own_result
    # The model's code computes with the value; the tool declares its type.
    return text if bound["self"].output_type == "string" else parsed(text)


# Strands


def _strands_call(bound: Bound) -> tuple[str, Any] | None:
    tool = bound["self"]
    if type(tool).__name__ == "StructuredOutputTool" and is_from(type(tool), "strands"):
        return None
    return tool.tool_name, bound["tool_use"].get("input", {})


def _strands_result(answer: ToolAnswer, bound: Bound) -> list[Any]:
    from strands.types._events import ToolResultEvent

    status = "success" if answer.error is None else "error"
    content = [{"text": text_of(answer)}]
    use = bound["tool_use"].get("toolUseId", "unknown")
    return [ToolResultEvent({"toolUseId": use, "status": status, "content": content})]


# Google ADK


def _adk_call(bound: Bound) -> tuple[str, Any] | None:
    tool = bound["self"]
    if type(tool).__name__ == "SetModelResponseTool" and is_from(type(tool), "google.adk"):
        return None
    return tool.name, bound["args"]


def _adk_function_call(bound: Bound) -> tuple[str, Any] | None:
    tool = bound["self"]
    is_body = bound.get("target", tool.func) == tool.func
    if not is_body or is_from(tool.func, "google.adk.tools"):
        return None  # a callable that requests a confirmation; a transfer to another agent
    hidden = {"tool_context", getattr(tool, "_context_param_name", None)}
    arguments = bound["args_to_call"]
    return tool.name, {key: value for key, value in arguments.items() if key not in hidden}


def _is_adk_flow(owner: type) -> bool:
    """Whether a class of ADK runs tools through a later method."""
    later = {"FunctionTool", "BaseAuthenticatedTool"}
    return is_from(owner, "google.adk") and any(base.__name__ in later for base in owner.__mro__)


# google-genai


def _genai_call(bound: Bound) -> tuple[str, Any]:
    return bound["function_to_invoke"].__name__, bound["args"]


def _genai_result(answer: ToolAnswer, bound: Bound) -> Any:
    from google.genai import errors

    value = value_of(answer)
    kind = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else ""
    if kind == "error":
        raise errors.FunctionInvocationError(str(value["error"]))
    if answer.error is not None:
        name, arguments = _genai_call(bound)
        raise errors.FunctionInvocationError(
            f"Failed to invoke function {name} with converted arguments {arguments} from model "
            f"returned function call argument {arguments} because of error {answer.error}"
        )
    return value["result"] if kind == "result" else value


# Agno


def _agno_call(bound: Bound) -> tuple[str, Any]:
    call = bound["self"]
    return call.function.name, call.arguments or {}


def _agno_result(answer: ToolAnswer, bound: Bound) -> Any:
    from agno.tools.function import FunctionExecutionResult

    call = bound["self"]
    text = text_of(answer)
    if answer.error is not None:
        call.error = text
        return FunctionExecutionResult(status="failure", error=text)
    call.result = text
    return FunctionExecutionResult(status="success", result=text)


# Microsoft Agent Framework


def _agent_framework_call(bound: Bound) -> tuple[str, Any]:
    arguments = bound.get("arguments")
    if arguments is None:
        context = bound.get("context")
        arguments = bound.get("kwargs") or getattr(context, "arguments", None) or {}
    return bound["self"].name, getattr(arguments, "model_dump", lambda: arguments)()


def _agent_framework_result(answer: ToolAnswer, bound: Bound) -> Any:
    from agent_framework import Content

    raise_error(answer, r"Error: (Function failed\. Error: )?(?P<text>.*)")
    if bound.get("skip_parsing"):
        return value_of(answer)
    return [Content.from_text(text_of(answer))]


ANTHROPIC_TOOLS: tuple[str, ...] = (
    "BetaFunctionTool",
    "BetaAsyncFunctionTool",
    "BetaBuiltinFunctionTool",
    "BetaAsyncBuiltinFunctionTool",
)
"""The classes of tools of Anthropic's client, which its runner of tools calls."""

INTERCEPTORS = (
    ToolInterceptor(
        "mcp",
        "mcp.client.session",
        "ClientSession",
        ("call_tool",),
        call=lambda bound: (bound["name"], bound.get("arguments") or {}),
        give=_mcp_result,
    ),
    *(
        ToolInterceptor(
            "llama-index",
            "llama_index.core.tools.types",
            owner,
            methods,
            call=_llamaindex_call,
            give=_llamaindex_result,
            result_of=lambda output: getattr(output, "content", output),
            is_flow=lambda tool: tool.__name__ in ("AsyncBaseTool", "BaseToolAsyncAdapter"),
        )
        for owner, methods in (("BaseTool", ("__call__",)), ("AsyncBaseTool", ("call", "acall")))
    ),
    *(
        ToolInterceptor(
            "anthropic",
            "anthropic.lib.tools._beta_functions",
            owner,
            ("call",),
            call=lambda bound: (bound["self"].name, bound["input"]),
            give=_given_text(r"(?P<type>\w+)\((?P<quote>['\"])(?P<text>.*)(?P=quote)\)"),
            is_optional=True,  # the client has a runner of tools since 0.68
        )
        for owner in ANTHROPIC_TOOLS
    ),
    ToolInterceptor(
        "crewai",
        "crewai.tools.base_tool",
        "BaseTool",
        ("run", "arun"),
        call=_crewai_call,
        give=_given_text(r"Error executing tool: (?P<text>.*)"),
    ),
    ToolInterceptor(
        "crewai",
        "crewai.tools.structured_tool",
        "CrewStructuredTool",
        ("invoke", "ainvoke"),
        call=_crewai_structured_call,
        give=_given_text(r"Error executing tool: (?P<text>.*)"),
    ),
    ToolInterceptor(
        "smolagents",
        "smolagents.tools",
        "Tool",
        ("__call__",),
        call=_smolagents_call,
        give=_smolagents_result,
    ),
    ToolInterceptor(
        "smolagents",
        "smolagents.local_python_executor",
        "PythonExecutor",
        ("__call__",),
        call=_smolagents_code,
    ),
    ToolInterceptor(
        "strands-agents",
        "strands.types.tools",
        "AgentTool",
        ("stream",),
        call=_strands_call,
        give=_strands_result,
        result_of=lambda event: getattr(event, "tool_result", event),
    ),
    ToolInterceptor(
        "google-adk",
        "google.adk.tools.base_tool",
        "BaseTool",
        ("run_async",),
        call=_adk_call,
        give=_given_value(),
        is_flow=_is_adk_flow,
    ),
    ToolInterceptor(
        "google-adk",
        "google.adk.tools.function_tool",
        "FunctionTool",
        ("_invoke_callable",),
        call=_adk_function_call,
        give=_given_value(),
    ),
    ToolInterceptor(
        "google-adk",
        "google.adk.tools.function_tool",
        "FunctionTool",
        ("_run_generator_as_node",),
        call=_adk_function_call,
        give=_given_value(),
        is_optional=True,  # generators as tools exist since version 2
    ),
    ToolInterceptor(
        "google-adk",
        "google.adk.tools.base_authenticated_tool",
        "BaseAuthenticatedTool",
        ("_run_async_impl",),
        call=_adk_call,
        give=_given_value(),
    ),
    ToolInterceptor(
        "google-genai",
        "google.genai._extra_utils",
        "",
        ("invoke_function_from_dict_args", "invoke_function_from_dict_args_async"),
        call=_genai_call,
        give=_genai_result,
    ),
    ToolInterceptor(
        "agno",
        "agno.tools.function",
        "FunctionCall",
        ("execute", "aexecute"),
        call=_agno_call,
        give=_agno_result,
        result_of=lambda outcome: outcome.result if outcome.error is None else outcome.error,
    ),
    ToolInterceptor(
        "agent-framework",
        "agent_framework._tools",
        "FunctionTool",
        ("invoke",),
        call=_agent_framework_call,
        give=_agent_framework_result,
    ),
    ToolInterceptor(
        "autogen",
        "autogen_core.tools._base",
        "BaseTool",
        ("run_json",),
        call=lambda bound: (bound["self"].name, bound["args"]),
        give=_given_text(),
    ),
    ToolInterceptor(
        "haystack",
        "haystack.tools.tool",
        "Tool",
        ("invoke", "invoke_async"),
        call=lambda bound: (bound["self"].name, bound.get("kwargs", {})),
        give=_given_value(),
    ),
    ToolInterceptor(
        "dspy",
        "dspy.adapters.types.tool",
        "Tool",
        ("__call__", "acall"),
        call=lambda bound: (bound["self"].name, bound.get("kwargs", {})),
        give=_given_value(r"Execution error in .*?: (?P<text>.*)"),
    ),
)
"""The entries, by the module that they change."""


_FORM = r"Error executing tool '.*?': (?P<text>.*)"


def adapt_dspy(module: ModuleType) -> None:
    """Wrap ``ToolCalls.ToolCall.execute``, which searches the calling code for functions."""
    owner: Any = require(module, "ToolCalls.ToolCall", "dspy")
    execute = require(module, "ToolCalls.ToolCall.execute", "dspy")

    @functools.wraps(execute)
    def answered(self: Any, functions: Any = None) -> Any:
        if functions is None:
            caller = sys._getframe(1)
            function = caller.f_locals.get(self.name) or caller.f_globals.get(self.name)
            functions = {} if function is None else {self.name: function}
        call = call_of(self.name, self.args or {})
        if call is None:
            return execute(self, functions)
        if (answer := call.answer()) is not None:
            raise_error(answer, _FORM)
            return value_of(answer)
        with call.observed() as report:
            result = execute(self, functions)
            report(result)
        return result

    owner.execute = answered
