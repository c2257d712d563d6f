"""Which tools of frameworks are answered, and that every kind of them is."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import pytest
from agents import Agent as OpenAIAgent, function_tool, handoff
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from mcp import Client
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolDefinition,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

import oteval
from oteval.base.errors import ConfigError
from oteval.record.hooks import ToolAnswer, tool_hook
from oteval.replays.interceptors import install_tool_adapters, intercepted_names
from oteval.replays.interceptors.frameworks import INTERCEPTORS
from oteval.replays.interceptors.table import ToolInterceptor

from .test_tool_adapters import Recorded

ran: list[str] = []


@pytest.fixture(autouse=True)
def adapters() -> None:
    ran.clear()
    install_tool_adapters()


def refund(order: int) -> str:
    """Refund an order."""
    ran.append(f"refund {order}")
    return "refunded"


# Pydantic AI


class ShopToolset(AbstractToolset[Any]):
    """A toolset that runs its tools by itself."""

    id = "shop"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the only tool."""
        definition = ToolDefinition(name="own_refund")
        validator = SchemaValidator(core_schema.dict_schema())
        tool = ToolsetTool(
            toolset=self, tool_def=definition, max_retries=1, args_validator=validator
        )
        return {"own_refund": tool}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Act."""
        return refund(**tool_args)


class Model:
    """A model that calls each tool once; it notes which tools are intercepted by then."""

    def __init__(self) -> None:
        self.intercepted: dict[str, str] = {}

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Call the first tool, then repeat its answer."""
        tools = [*info.function_tools, *info.output_tools]
        self.intercepted = intercepted_names({tool.name for tool in tools})
        last = messages[-1].parts[-1]
        if last.part_kind == "user-prompt":
            return ModelResponse([ToolCallPart(tools[0].name, {"order": 17}, tool_call_id="c1")])
        return ModelResponse([TextPart(f"{last.outcome}: {last.model_response_str()}")])


def toolset() -> FunctionToolset[Any]:
    return FunctionToolset([refund])


PYDANTIC_AI_TOOLSETS = {
    "function": ("refund", toolset),
    "prefixed": ("shop_refund", lambda: toolset().prefixed("shop")),
    "renamed": ("give_back", lambda: toolset().renamed({"give_back": "refund"})),
    "filtered": ("refund", lambda: toolset().filtered(lambda _ctx, _tool: True)),
    "own": ("own_refund", ShopToolset),
    "own, prefixed": ("shop_own_refund", lambda: ShopToolset().prefixed("shop")),
}


@pytest.mark.parametrize("kind", PYDANTIC_AI_TOOLSETS)
async def test_every_toolset_of_pydantic_ai_is_answered(kind: str) -> None:
    """Also those of the agent's own class; the names are those that the model uses."""
    name, make = PYDANTIC_AI_TOOLSETS[kind]
    model = Model()
    hook = Recorded(**{name: ToolAnswer("recorded")})

    with tool_hook(hook):
        result = await Agent(FunctionModel(model), toolsets=[make()]).run("Refund 17")

    assert result.output == "success: recorded"
    assert hook.asked == [(name, {"order": 17})]
    assert list(model.intercepted) == [name]
    assert ran == []


@pytest.mark.parametrize("is_toolset", [False, True])
@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_tool_with_approval_is_answered_once_it_is_approved(
    is_toolset: bool, is_approved: bool
) -> None:
    """The approval itself is asked for; a denied tool neither runs nor is answered."""
    model = Model()
    options: dict[str, Any] = {"output_type": [str, DeferredToolRequests]}
    agent: Agent[Any, Any]
    if is_toolset:
        toolsets = [toolset().approval_required()]
        agent = Agent(FunctionModel(model), toolsets=toolsets, **options)
    else:
        agent = Agent(FunctionModel(model), **options)
        agent.tool_plain(requires_approval=True)(refund)
    hook = Recorded(refund=ToolAnswer("recorded"))

    with tool_hook(hook):
        first = await agent.run("Refund 17")
        assert isinstance(first.output, DeferredToolRequests)
        assert (list(model.intercepted), hook.asked) == (["refund"], [])
        answers = DeferredToolResults(approvals={"c1": is_approved})
        history = first.all_messages()
        result = await agent.run(message_history=history, deferred_tool_results=answers)

    assert ran == []
    assert ("recorded" in result.output) == is_approved
    assert len(hook.asked) == is_approved


async def test_a_retry_of_pydantic_ai_is_written_by_the_framework() -> None:
    """The recording has the text of `ModelRetry` with or without the framework's frame."""
    outputs = []

    for text in ("which order?", '{"error":"which order?"}'):
        hook = Recorded(refund=ToolAnswer(text, error=text))
        with tool_hook(hook):
            agent: Agent[Any, Any] = Agent(FunctionModel(Model()), toolsets=[toolset()])
            outputs.append((await agent.run("Refund 17")).output)
    hook = Recorded(refund=ToolAnswer("no", error="no", error_type="ValueError"))
    with tool_hook(hook), pytest.raises(ValueError, match="no"):
        await Agent(FunctionModel(Model()), toolsets=[toolset()]).run("Refund 17")

    assert outputs == ['retried: {"error":"which order?"}'] * 2
    assert ModelRetry("which order?").message == "which order?"


class Report(BaseModel):
    """An output type."""

    order: int


def file_report(order: int) -> str:
    """File a report, which acts."""
    return f"filed {order}"


@pytest.mark.parametrize(
    ("output_type", "is_intercepted"),
    [([Report, DeferredToolRequests], True), (file_report, False)],
)
async def test_an_output_type_acts_not_but_an_output_function_may(
    output_type: Any, is_intercepted: bool
) -> None:
    """A model's answer that ends the run is given to the agent only if it runs no function."""
    model = Model()
    agent: Agent[Any, Any] = Agent(FunctionModel(model), output_type=output_type)

    await agent.run("Refund 17")

    assert ("final_result" in model.intercepted) == is_intercepted


async def test_a_tool_that_the_caller_runs_is_not_answered() -> None:
    """Pydantic AI hands external tools to the agent's code."""
    external = ToolDefinition(name="refund", parameters_json_schema={"type": "object"})
    model = Model()
    agent: Agent[Any, Any] = Agent(
        FunctionModel(model),
        toolsets=[ExternalToolset([external])],
        output_type=[str, DeferredToolRequests],
    )

    await agent.run("Refund 17")

    assert model.intercepted == {}


# The names of tools


class Refund(BaseTool):
    """A tool of its own class."""

    name: str = "class_refund"
    description: str = "Refund an order."

    def _run(self, order: int) -> str:
        return refund(order)


def hand_over(reason: str) -> Command[Any]:
    """Hand the conversation over."""
    return Command(goto=reason)


def test_tools_are_found_by_name_wherever_the_agent_keeps_them() -> None:
    """A tool of which no object exists, or that moves a graph, is not answered."""
    clerk = OpenAIAgent("clerk")
    originals = {
        "tools": [StructuredTool.from_function(refund, name="graph_refund"), Refund()],
        "moves": StructuredTool.from_function(hand_over, name="hand_over"),
        "function": function_tool(refund, name_override="function_refund"),
        "handoff": handoff(clerk),
        "acting": handoff(clerk, tool_name_override="acting", on_handoff=lambda _context: None),
        "decorated": oteval.tool(name="decorated_refund")(refund),
    }

    names = intercepted_names(
        {
            *("graph_refund", "class_refund", "hand_over", "function_refund"),
            *("transfer_to_clerk", "acting", "decorated_refund", "unknown"),
        }
    )

    assert originals
    assert names == {
        "graph_refund": "LangChain tool StructuredTool, answered",
        "class_refund": "LangChain tool Refund, answered",
        "function_refund": "OpenAI Agents tool, answered",
        "transfer_to_clerk": "OpenAI Agents handoff",
        "decorated_refund": "@oteval.tool, answered",
    }


def test_all_tools_with_a_name_must_be_answered() -> None:
    """Of two tools with one name, either may be the one that runs."""
    refunding = StructuredTool.from_function(refund, name="twice")
    assert list(intercepted_names({"twice"})) == ["twice"]
    handing_over = StructuredTool.from_function(hand_over, name="twice")

    assert intercepted_names({"twice"}) == {}
    assert (refunding.name, handing_over.name) == ("twice", "twice")


def test_a_tool_that_runs_by_another_method_is_not_answered() -> None:
    """A class that replaces LangChain's `invoke` may act before it asks."""

    class Eager(Refund):
        name: str = "eager_refund"

        def invoke(self, *_args: Any, **_kwargs: Any) -> Any:
            return refund(17)

    eager = Eager()

    assert intercepted_names({eager.name}) == {}


async def test_tools_that_an_mcp_server_lists_are_answered() -> None:
    """The client has heard of them."""
    server = MCPServer("shop")
    server.tool(name="listed_refund")(refund)

    async with Client(server) as client:
        listed = await client.list_tools()
        names = intercepted_names({"listed_refund"})

    assert [tool.name for tool in listed.tools] == ["listed_refund"]
    assert names == {"listed_refund": "MCP tool, answered"}


# The table


class Base:
    """How a framework's base class may look."""

    name = "refund"

    def run(self, order: int = 17, amount: int = 40) -> str:
        """Act."""
        return refund(order)

    async def arun(self, order: int = 17) -> str:
        """Act."""
        return refund(order)

    async def stream(self, order: int = 17) -> AsyncIterator[str]:
        """Act."""
        yield refund(order)


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Base]]:
    """A module with a class of tools that an entry of the table has changed."""
    module = ModuleType("some_framework")
    owner = type("Base", (Base,), dict(vars(Base)))
    module.Base = owner  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    ToolInterceptor(
        "some-framework",
        module.__name__,
        "Base",
        ("run", "arun", "stream"),
        call=lambda bound: (
            bound["self"].name,
            {key: value for key, value in bound.items() if key != "self"},
        ),
        give=lambda answer, _bound: answer.result,
    ).apply(module)
    return owner


async def test_a_method_is_answered_in_every_subclass_whenever_it_is_defined(
    framework: type[Base],
) -> None:
    """Blocking, as a coroutine and as an async generator; arguments by position have names."""

    class Later(framework):  # type: ignore[misc,valid-type]
        def run(self, order: int = 17, amount: int = 40) -> str:
            return refund(order)

        async def arun(self, order: int = 17) -> str:
            return refund(order)

        async def stream(self, order: int = 17) -> AsyncIterator[str]:
            yield refund(order)

    hook = Recorded(refund=ToolAnswer("recorded"))
    for tool in (framework(), Later()):
        with tool_hook(hook):
            answers = [tool.run(18, amount=2), await tool.arun(18)]
            items = [item async for item in tool.stream(18)]
        assert answers == ["recorded"] * 2
        assert items == list("recorded")

    calls = [{"order": 18, "amount": 2}, {"order": 18}, {"order": 18}]
    assert hook.asked == [("refund", arguments) for arguments in calls] * 2
    assert ran == []


async def test_a_tool_that_runs_by_its_base_class_is_asked_about_once(
    framework: type[Base],
) -> None:
    """The base class may have filled in defaults; the hook sees the call and its result."""

    class Later(framework):  # type: ignore[misc,valid-type]
        def run(self, order: int = 17) -> str:
            return str(super().run(order, amount=40))

        async def stream(self, order: int = 17) -> AsyncIterator[str]:
            async for item in super().stream(order):
                yield item

    hook = Recorded()
    with tool_hook(hook):
        Later().run(18)
        assert [item async for item in Later().stream(19)] == ["refunded"]

    assert [(name, arguments) for name, arguments in hook.asked] == [
        ("refund", {"order": 18}),
        ("refund", {"order": 19}),
    ]
    assert [result for _, _, result, _ in hook.seen] == ["refunded"] * 2
    assert ran == ["refund 18", "refund 19"]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in INTERCEPTORS if not entry.is_optional],
    ids=lambda entry: f"{entry.module}:{entry.owner}:{entry.methods[0]}",
)
def test_a_framework_without_the_method_is_not_supported(entry: ToolInterceptor) -> None:
    """Its tools would act during a replay: the import fails, and says what to do."""
    module = ModuleType(entry.module)

    with pytest.raises(ConfigError, match=f"{entry.framework}: {entry.module} has no .*install a"):
        entry.apply(module)
