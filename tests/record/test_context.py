"""Context: conversations, and spans below their parents across tasks, threads and processes."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest
from opentelemetry import trace

import oteval
from oteval.record.context import conversation_of

from ..make import ROOT
from .conftest import story

TIMEOUT = 60


@oteval.tool
def lookup(order: int) -> int:
    return order


@oteval.tool
async def slow_lookup(order: int, all_started: asyncio.Barrier) -> int:
    await all_started.wait()
    return order


def parents(run):
    """Return the names of the spans' parents, in the order of the spans' ends."""
    names = {span.span_id: span.name for span in run.spans}
    return [names.get(span.parent_id, "") for span in run.spans]


def test_a_conversation_marks_every_span(run):
    """Also those of other instrumentations, and those in threads; and none after it."""
    tracer = trace.get_tracer("other")

    with oteval.conversation("c7"):
        tracer.start_span("theirs").end()
        lookup(1)
        with oteval.conversation("inner"):
            lookup(2)
    lookup(3)

    ids = [span.attributes.get("gen_ai.conversation.id") for span in run.spans]
    assert ids == ["c7", "c7", "inner", None]


async def test_a_conversation_as_a_decorator_and_a_parameter(run):
    """Both name the conversation for as long as the agent runs, and the turns are linked."""

    @oteval.agent(conversation="thread")
    async def clerk(question: str, thread: str) -> str:
        await asyncio.sleep(0)
        return str(lookup(1))

    await clerk("first", thread="t1")
    await clerk("second", "t1")

    @oteval.conversation("d")
    def other() -> None:
        lookup(2)

    other()

    ids = [span.attributes.get("gen_ai.conversation.id") for span in run.spans]
    assert ids == ["t1"] * 4 + ["d"]
    assert {found.conversation_id for found in run.trajectories} == {"t1", "d"}


def test_a_conversation_crosses_a_process_boundary_as_baggage():
    """The id comes from the environment variables; `propagate=False` keeps it in the process."""
    with oteval.conversation("c7"):
        assert oteval.context_environ()["BAGGAGE"] == "gen_ai.conversation.id=c7"
    with oteval.conversation("c8", propagate=False):
        assert conversation_of() == "c8"
        assert oteval.context_environ() == {}


async def test_parallel_tools_in_tasks_are_siblings(run):
    """Tools of one `gather` overlap below the agent: the trajectory has them in one message."""

    @oteval.agent
    async def clerk(question: str) -> str:
        both = asyncio.Barrier(2)
        found = await asyncio.gather(slow_lookup(1, both), slow_lookup(2, both))
        return f"found {sum(found)}"

    await clerk("both")

    assert parents(run) == ["invoke_agent clerk", "invoke_agent clerk", ""]
    (asked,) = [found for found in run.trajectory.messages if found.tool_calls]
    assert [call.arguments["order"] for call in asked.tool_calls] == [1, 2]


@pytest.mark.usefixtures("carried")
async def test_threads_and_executors_continue_the_span(run):
    """Every way into a thread keeps the parent, and a pool's threads do not keep an old one."""
    pool = ThreadPoolExecutor(1)
    both = threading.Barrier(2, timeout=TIMEOUT)

    @oteval.tool
    def meets(order: int) -> int:
        both.wait()
        return order

    @oteval.agent
    def parallel(question: str) -> str:
        with ThreadPoolExecutor(2) as own:
            return str(sum(own.map(meets, [1, 2])))

    @oteval.agent
    async def clerk(question: str) -> str:
        await asyncio.get_running_loop().run_in_executor(pool, lookup, 1)
        await asyncio.to_thread(lookup, 2)
        thread = threading.Thread(target=lookup, args=(3,))
        thread.start()
        thread.join(TIMEOUT)
        timer = threading.Timer(0, lookup, [4])
        timer.start()
        timer.join(TIMEOUT)
        with ThreadPool(2) as threads:
            threads.map(lookup, [5, 6])
            threads.apply(lookup, (7,))
        return "done"

    await clerk("all")
    pool.submit(lookup, 8).result(TIMEOUT)
    parallel("both")
    pool.shutdown()

    assert parents(run)[:8] == ["invoke_agent clerk"] * 7 + [""]
    assert parents(run)[8:] == ["", "invoke_agent parallel", "invoke_agent parallel", ""]
    last = next(found for found in run.trajectories if found.agent == "parallel")
    assert {found[0] for found in story(last)} == {"user", "calls", "result", "assistant"}
    (asked,) = [found for found in last.messages if found.tool_calls]
    assert len(asked.tool_calls) == 2


def test_threads_without_carried_context_start_a_new_trace(run):
    """The patches are off until `carry_context` or `instrument` turns them on."""

    @oteval.agent
    def clerk(question: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(lookup, 1).result())

    clerk("one")

    assert parents(run) == ["", ""]


PROGRAM = """
import multiprocessing, os, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import oteval

def where(number):
    return format(trace.get_current_span().get_span_context().trace_id, "032x")

def report(path):
    with open(path, "w") as file:
        file.write(where(0))

if __name__ == "__main__":
    trace.set_tracer_provider(TracerProvider())
    oteval.carry_context()
    method, path = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with trace.get_tracer("test").start_as_current_span("parent"):
        found = [where(0)]
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            found += pool.map(where, [1])
        with context.Pool(1) as pool:
            found += pool.map(where, [2])
            found += [pool.apply(where, (3,))]
        process = context.Process(target=report, args=(path,))
        process.start()
        process.join()
        found.append(open(path).read())
        code = "import os; print(os.environ['TRACEPARENT'].split('-')[1])"
        found.append(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
    assert len(set(found)) == 1 and set(found[0]) != {"0"}, found
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_child_processes_continue_the_trace(tmp_path, method):
    """Pools, processes and commands are below the span that started them."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-W", "ignore", program, method, tmp_path / "trace"]

    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)

    assert done.returncode == 0


def test_a_process_started_with_the_environment_continues_the_trace(run):
    """`context_environ` and `attach_environ` are inverse; a current span stays the parent."""

    @oteval.tool
    def started() -> dict[str, str]:
        return oteval.context_environ()

    environ = started()
    token = threading.Thread(target=lambda: (oteval.attach_environ(environ), lookup(1)))
    token.start()
    token.join(TIMEOUT)

    first, second = run.spans
    assert environ["TRACEPARENT"].split("-")[1:3] == [first.trace_id, first.span_id]
    assert (second.trace_id, second.parent_id) == (first.trace_id, first.span_id)
