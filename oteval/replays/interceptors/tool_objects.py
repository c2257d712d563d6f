"""The tools that are answered in this process, by the names that the model knows.

A tool is answered if an object of it exists, and the object's class runs the tool through an
intercepted method. The search goes through all objects of the process, so it does not matter when,
where or how the agent made them. It takes some tenths of a second in a large process, and happens
once for each new name. If a name belongs to several tools, all must be answered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...record import live_objects
from .frameworks import ANTHROPIC_TOOLS, crewai_name, is_from
from .langchain import returns_command
from .openai_agents import calls_back
from .pydantic_ai import is_answered_toolset, toolset_names
from .table import is_intercepted

__all__ = ["intercepted_names"]


def _own_name(tool: Any) -> Iterable[str]:
    return (tool.name,)


def _is_answered_here(*methods: str) -> Callable[[Any, str], bool]:
    return lambda tool, _name: is_intercepted(tool, *methods)


@dataclass(frozen=True)
class ToolKind:
    """A class of tools.

    Attributes:
        label: The name of such a tool for people.
        module: The module of the class.
        owner: The class.
        is_answered: Returns whether a replay answers a tool of this class, or the tool acts on
            nothing outside of the agent; called with the tool and the name.
        names: Returns the names of a tool that the model knows.
        runs: Whether the tool runs, because it only leads to another agent.
    """

    label: str
    module: str
    owner: str
    is_answered: Callable[[Any, str], bool]
    names: Callable[[Any], Iterable[str]] = _own_name
    runs: bool = False

    @property
    def type(self) -> type | None:
        """The class, if its module is loaded."""
        owner = getattr(sys.modules.get(self.module), self.owner, None)
        return owner if isinstance(owner, type) else None


def _is_langchain_answered(tool: Any, _name: str) -> bool:
    if not is_intercepted(tool, "run", "arun") or not all(
        is_from(getattr(type(tool), entry), "langchain_core") for entry in ("invoke", "ainvoke")
    ):
        return False
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    moves_graph = is_from(function, "langgraph", "langgraph_swarm", "langgraph_supervisor")
    return moves_graph or not returns_command(tool)


def _genai_names(config: Any) -> Iterator[str]:
    for tool in getattr(config, "tools", None) or ():
        if callable(tool) and not isinstance(tool, type):
            yield getattr(tool, "__name__", "")


def _is_called_automatically(config: Any, _name: str) -> bool:
    automatic = getattr(config, "automatic_function_calling", None)
    return not getattr(automatic, "disable", False)


def _always(_tool: Any, _name: str) -> bool:
    return True


_KINDS = (
    ToolKind("LangChain tool", "langchain_core.tools.base", "BaseTool", _is_langchain_answered),
    ToolKind("OpenAI Agents tool", "agents.tool", "FunctionTool", _always),
    ToolKind(
        "OpenAI Agents handoff",
        "agents.handoffs",
        "Handoff",
        lambda handoff, _name: not calls_back(handoff),
        lambda handoff: (handoff.tool_name,),
        runs=True,
    ),
    ToolKind(
        "Pydantic AI tool",
        "pydantic_ai.tool_manager",
        "ToolManager",
        is_answered_toolset,
        toolset_names,
    ),
    *(
        ToolKind(
            "Anthropic tool",
            "anthropic.lib.tools._beta_functions",
            owner,
            _is_answered_here("call"),
        )
        for owner in ANTHROPIC_TOOLS
    ),
    ToolKind("MCP tool", "mcp.types", "Tool", _always),
    ToolKind(
        "LlamaIndex tool",
        "llama_index.core.tools.types",
        "BaseTool",
        _is_answered_here("__call__"),
        lambda tool: (tool.metadata.get_name(),),
    ),
    ToolKind(
        "CrewAI tool",
        "crewai.tools.base_tool",
        "BaseTool",
        _is_answered_here("run", "arun"),
        lambda tool: (crewai_name(tool.name),),
    ),
    ToolKind(
        "CrewAI tool",
        "crewai.tools.structured_tool",
        "CrewStructuredTool",
        _is_answered_here("invoke", "ainvoke"),
        lambda tool: (crewai_name(tool.name),),
    ),
    ToolKind("smolagents tool", "smolagents.tools", "Tool", _is_answered_here("__call__")),
    ToolKind(
        "smolagents agent",
        "smolagents.agents",
        "MultiStepAgent",
        _always,
        lambda agent: tuple(agent.managed_agents),
        runs=True,
    ),
    ToolKind(
        "Strands tool",
        "strands.types.tools",
        "AgentTool",
        _is_answered_here("stream"),
        lambda tool: (tool.tool_name,),
    ),
    ToolKind("Google ADK tool", "google.adk.tools.base_tool", "BaseTool", _always),
    ToolKind(
        "google-genai function",
        "google.genai.types",
        "GenerateContentConfig",
        _is_called_automatically,
        _genai_names,
    ),
    ToolKind(
        "Agno tool",
        "agno.tools.function",
        "Function",
        lambda tool, _name: not tool.external_execution,
    ),
    ToolKind(
        "Agent Framework tool",
        "agent_framework._tools",
        "FunctionTool",
        lambda tool, _name: not tool.declaration_only,
    ),
    ToolKind("AutoGen tool", "autogen_core.tools._base", "BaseTool", _is_answered_here("run_json")),
    ToolKind(
        "Haystack tool", "haystack.tools.tool", "Tool", _is_answered_here("invoke", "invoke_async")
    ),
    ToolKind(
        "DSPy tool", "dspy.adapters.types.tool", "Tool", _is_answered_here("__call__", "acall")
    ),
    ToolKind("@oteval.tool", "oteval.record.decorators", "_DecoratedTool", _always),
)


def intercepted_names(names: Collection[str]) -> dict[str, str]:
    """Describe the tools that a replay answers in this process.

    Args:
        names: The names of the tools, as the model knows them.

    Returns:
        For each name that is answered, a description, such as ``LangChain tool Refund, answered``.
        A name is left out if any of its objects is not answered.
    """
    labels: dict[str, str] = {}
    unanswered: set[str] = set()
    for name, label, is_answered in _tool_objects(frozenset(names)):
        labels.setdefault(name, label)
        if not is_answered:
            unanswered.add(name)
    return {name: label for name, label in labels.items() if name not in unanswered}


def _tool_objects(names: frozenset[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield the name, the description and `is_answered` of each tool with one of these names."""
    kinds = [(kind.type, kind) for kind in _KINDS]
    loaded = [(owner, kind) for owner, kind in kinds if owner is not None]
    kind_of: dict[type, ToolKind | None] = {}
    for tool in live_objects(*[owner for owner, _ in loaded]):
        owner = type(tool)
        if owner not in kind_of:
            bases = owner.__mro__
            kind_of[owner] = next((kind for base, kind in loaded if base in bases), None)
        kind = kind_of[owner]
        if kind is None:
            continue
        for name in names.intersection(_names_of(kind, tool)):
            label = kind.label if owner.__name__ == kind.owner else f"{kind.label} {owner.__name__}"
            label = label if kind.runs else f"{label}, answered"
            yield name, label, _is_answered(kind, tool, name)


def _is_answered(kind: ToolKind, tool: Any, name: str) -> bool:
    try:
        return kind.is_answered(tool, name)
    except Exception:  # a tool of an unknown form
        return False


def _names_of(kind: ToolKind, tool: Any) -> tuple[str, ...]:
    """The names of a tool; none if it is not fully built."""
    try:
        return tuple(kind.names(tool))
    except Exception:
        return ()
