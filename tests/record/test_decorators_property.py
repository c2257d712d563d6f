"""Random trees of agents and tools give the trajectories of the calls that truly ran."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import oteval

TIMEOUT = 120


@dataclass
class ToolNode:
    """A tool, which may fail or run an agent.

    Attributes:
        fails: Whether it raises an exception.
        agent: The agent that it runs, or None.
    """

    fails: bool
    agent: AgentNode | None = None


@dataclass
class AgentNode:
    """An agent.

    Attributes:
        kind: The kind of its function.
        steps: What it does, in order: agents that it calls, and groups of parallel tools.
    """

    kind: str
    steps: list[AgentNode | list[ToolNode]] = field(default_factory=list)


def nodes() -> st.SearchStrategy[AgentNode]:
    """Return a strategy of trees."""
    kinds = st.sampled_from(["function", "coroutine", "generator", "async generator"])
    tools = st.builds(ToolNode, st.booleans())
    leaves = st.builds(AgentNode, kinds, st.lists(st.lists(tools, min_size=1, max_size=3)))

    def grown(inner: st.SearchStrategy[AgentNode]) -> st.SearchStrategy[AgentNode]:
        running = st.builds(ToolNode, st.booleans(), inner)
        groups = st.lists(tools | running, min_size=1, max_size=3)
        return st.builds(AgentNode, kinds, st.lists(inner | groups, max_size=3))

    return st.recursive(leaves, grown, max_leaves=4)


class Play:
    """Runs a tree with decorated functions, and notes everything that ran.

    Attributes:
        stories: The expected trajectory of each agent, by its name.
        parents: The name of each agent's parent.
    """

    def __init__(self) -> None:
        self.stories: dict[str, list[Any]] = {}
        self.parents: dict[str, str] = {}
        self._numbers = count()

    def agent(self, node: AgentNode, parent: str = "") -> str:
        """Run an agent from synchronous code."""
        return asyncio.run(self.run(node, parent))

    async def run(self, node: AgentNode, parent: str) -> str:
        """Run an agent, and return its answer."""
        name = f"agent_{next(self._numbers)}"
        question, answer = f"question of {name}", f"answer of {name}"
        self.stories[name] = [("user", question)]
        self.parents[name] = parent

        async def work() -> None:
            # Every agent has a call of its own: one without is a wrapper of the agents below it.
            for step in ([ToolNode(False)], *node.steps):
                if isinstance(step, AgentNode):
                    await self.run(step, name)
                elif node.kind in ("function", "generator"):
                    await asyncio.to_thread(self._in_threads, name, step)
                else:
                    await self._in_tasks(name, step)
            self.stories[name].append(("assistant", answer))

        def in_thread() -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, work()).result(TIMEOUT)

        @oteval.agent(name=name)
        def function(question: str) -> str:
            in_thread()
            return answer

        @oteval.agent(name=name)
        def generator(question: str) -> Iterator[str]:
            yield answer[:5]
            in_thread()
            yield answer[5:]

        @oteval.agent(name=name)
        async def coroutine(question: str) -> str:
            await work()
            return answer

        @oteval.agent(name=name)
        async def async_generator(question: str) -> Any:
            yield answer[:5]
            await work()
            yield answer[5:]

        if node.kind == "function":
            return function(question)
        if node.kind == "generator":
            return "".join(generator(question))
        if node.kind == "coroutine":
            return await coroutine(question)
        return "".join([chunk async for chunk in async_generator(question)])

    def _in_threads(self, name: str, group: list[ToolNode]) -> None:
        """Run a group of tools in threads, all at the same time."""
        started = threading.Barrier(len(group), timeout=TIMEOUT)

        @oteval.tool
        def act(number: int, node: int) -> str:
            started.wait()
            return self._result(number, group[node], name)

        def call(number: int, node: int) -> None:
            if group[node].fails:
                with pytest.raises(LookupError):
                    act(number, node)
            else:
                act(number, node)

        numbers = self._expect(name, group)
        with ThreadPoolExecutor(len(group)) as pool:
            list(pool.map(call, numbers, range(len(group))))

    async def _in_tasks(self, name: str, group: list[ToolNode]) -> None:
        """Run a group of tools in tasks, all at the same time."""
        started = asyncio.Barrier(len(group))

        @oteval.tool
        async def act(number: int, node: int) -> str:
            await started.wait()
            return await asyncio.to_thread(self._result, number, group[node], name)

        numbers = self._expect(name, group)
        calls = [act(number, node) for node, number in enumerate(numbers)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, LookupError) for one in done] == [one.fails for one in group]

    def _result(self, number: int, node: ToolNode, name: str) -> str:
        if node.agent is not None:
            self.agent(node.agent, name)
        if node.fails:
            raise LookupError(f"failure {number}")
        return f"result {number}"

    def _expect(self, name: str, group: list[ToolNode]) -> list[int]:
        """Note the calls and results of a group, and return the numbers of its tools."""
        numbers = [next(self._numbers) for _ in group]
        calls = {("act", number, node) for node, number in enumerate(numbers)}
        results = {
            (f"Error: failure {number}" if node.fails else f"result {number}", node.fails)
            for number, node in zip(numbers, group, strict=True)
        }
        self.stories[name] += [("calls", calls), ("results", results)]
        return numbers


def told(trajectory: oteval.Trajectory) -> list[Any]:
    """Return a trajectory in the form of the expected ones."""
    found: list[Any] = []
    for message in trajectory.messages:
        if message.tool_calls:
            calls = {
                (c.name, c.arguments["number"], c.arguments["node"]) for c in message.tool_calls
            }
            found += [("calls", calls), ("results", set())]
        elif message.role == "tool":
            found[-1][1].add((message.content, message.is_error))
        else:
            found.append((message.role, message.content))
    return found


@pytest.mark.usefixtures("carried")
@settings(max_examples=15, deadline=None)
@given(nodes())
def test_random_trees_of_agents_and_tools(tree):
    """Each agent has its own trajectory, linked to its parent's, with its calls and results."""
    play = Play()

    with oteval.capture() as run:
        play.agent(tree)

    found = {one.agent: one for one in run.trajectories}
    assert {name: told(one) for name, one in found.items()} == play.stories
    names = {one.id: name for name, one in found.items()}
    assert {name: names.get(one.parent_id, "") for name, one in found.items()} == play.parents
