"""`@oteval.agent` and `@oteval.tool`: the trajectories that their spans give."""

import contextvars
import logging
from unittest.mock import MagicMock

import pytest

import oteval
from oteval.record.faults import fault_counts
from oteval.record.hooks import ToolAnswer, tool_hook

from .conftest import story


@oteval.tool
def search(query: str, limit: int = 3, **filters: object) -> list[dict[str, object]]:
    """Search the orders.

    More about it.
    """
    return [{"order": 7, "query": query}]


@oteval.tool(name="refund_order", hide=["card"])
def refund(order: int, card: str = "") -> str:
    if order != 7:
        raise LookupError(f"no order {order}")
    return f"refunded {order}"


def attributes_of(run, name):
    """Return the attributes of the only span of a name."""
    (span,) = [span for span in run.spans if span.name == name]
    return span.attributes


def test_an_agent_without_model_spans_has_a_whole_trajectory(run):
    """Question, calls, results and answer come from the decorated functions alone."""

    @oteval.agent
    def clerk(question: str) -> str:
        search("blue", limit=1, open=True)
        return refund(7)

    assert clerk("Refund the blue one") == "refunded 7"

    assert run.trajectory.agent == "clerk"
    assert [gap.code for gap in run.trajectory.gaps] == ["no_model_spans"]
    assert story(run.trajectory) == [
        ("user", "Refund the blue one"),
        ("calls", ("search", {"query": "blue", "limit": 1, "open": True})),
        ("result", '[{"order":7,"query":"blue"}]'),
        ("calls", ("refund_order", {"order": 7})),
        ("result", "refunded 7"),
        ("assistant", "refunded 7"),
    ]
    assert attributes_of(run, "execute_tool search")["gen_ai.tool.description"] == (
        "Search the orders."
    )


def test_a_failed_tool_is_an_error_in_the_trajectory(run):
    """The exception reaches the agent unchanged, and the span has its type and status."""

    @oteval.agent
    def clerk(question: str) -> str:
        with pytest.raises(LookupError, match="no order 8") as caught:
            refund(8)
        assert type(caught.value) is LookupError
        return "sorry"

    clerk("Refund 8")

    assert ("failed", "Error: no order 8") in story(run.trajectory)
    (span,) = [span for span in run.spans if span.name == "execute_tool refund_order"]
    assert span.is_error
    assert span.attributes["error.type"] == "LookupError"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_are_recorded_and_go_on(run, error):
    """A `BaseException` ends the span with its type."""

    @oteval.tool
    def stopped() -> None:
        raise error

    with pytest.raises(error):
        stopped()

    assert attributes_of(run, "execute_tool stopped")["error.type"] == error.__name__


def test_messages_in_and_out(run):
    """Chat messages are the agent's input, and messages that the output repeats appear once."""

    @oteval.agent(name="chatty", version="2")
    def answer(client: object, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        messages.append({"role": "assistant", "content": "yes"})
        return messages

    answer(object(), [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "?"}])

    assert story(run.trajectory) == [
        ("system", "Be brief"),
        ("user", "?"),
        ("assistant", "yes"),
    ]
    assert attributes_of(run, "invoke_agent chatty")["gen_ai.agent.version"] == "2"


def test_input_and_output_can_be_chosen(run):
    """`input` names a parameter or computes the question, `output` computes the answer."""

    @oteval.agent(input="ticket", output=lambda reply: reply["text"])
    def describe(text: str, ticket: dict[str, int]) -> dict[str, str]:
        return {"text": f"{text} {ticket['id']}"}

    @oteval.agent(input=lambda first, second: f"{first} + {second}")
    def add(first: int, second: int) -> int:
        return first + second

    describe("ticket", {"id": 4})
    add(1, second=2)

    first, second = run.trajectories
    assert story(first) == [("user", '{"id":4}'), ("assistant", "ticket 4")]
    assert story(second) == [("user", "1 + 2"), ("assistant", "3")]


def test_a_sub_agent_has_its_own_trajectory(run):
    """An agent that another calls is linked to it."""

    @oteval.agent
    def helper(task: str) -> str:
        return search(task)[0]["query"]

    @oteval.agent
    def boss(question: str) -> str:
        return f"{refund(7)} after {helper(question)}"

    boss("it")

    inner = next(trajectory for trajectory in run.trajectories if trajectory.agent == "helper")
    outer = next(trajectory for trajectory in run.trajectories if trajectory.agent == "boss")
    assert inner.parent_id == outer.id
    assert story(inner)[0] == ("user", "it")
    assert story(outer)[-1] == ("assistant", "refunded 7 after it")


def test_the_call_id_links_calls_to_executions(run):
    """Two equal calls, executed in the other order, are distinguished by their ids."""
    calls = [
        {"id": f"c{n}", "function": {"name": "refund_order", "arguments": '{"order": 7}'}}
        for n in range(2)
    ]

    @oteval.agent
    def clerk(question: str) -> str:
        with oteval.model_call(model="m", messages=question) as model:
            model.answer({"role": "assistant", "content": None, "tool_calls": calls})
        for call in reversed(calls):
            with oteval.tool_call(call) as request:
                refund(**request.arguments)
        return "done"

    clerk("twice")

    (calling_message,) = [message for message in run.trajectory.messages if message.tool_calls]
    first, second = calling_message.tool_calls
    assert (first.id, second.id) == ("c0", "c1")
    assert second.end_ns <= first.start_ns


def test_only_the_requested_tool_takes_the_id(run):
    """A tool that the requested one calls, and a later one, do not have its id."""

    @oteval.tool
    def outer() -> str:
        return refund(7)

    with oteval.tool_call("c1"):
        outer()
        outer()
    with oteval.tool_call({"type": "tool_use", "id": "c2", "name": "refund_order", "input": {}}):
        outer()

    ids = [(span.name, span.attributes.get("gen_ai.tool.call.id")) for span in run.spans]
    assert ids == [
        ("execute_tool refund_order", None),
        ("execute_tool outer", "c1"),
        ("execute_tool refund_order", None),
        ("execute_tool outer", None),
        ("execute_tool refund_order", "c2"),
        ("execute_tool outer", None),
    ]


def test_arguments_that_are_no_object_are_an_error():
    """`arguments` of a request says which tool's arguments the model got wrong."""
    request = {"id": "c", "function": {"name": "refund", "arguments": "[1"}}

    with oteval.tool_call(request) as tool_call, pytest.raises(ValueError, match="refund"):
        _ = tool_call.arguments


def test_hidden_arguments_and_content_are_not_recorded(run, monkeypatch):
    """`hide`, `capture_content=False` and the environment's switch keep content out of spans."""

    @oteval.tool(capture_content=False)
    def secret(value: str) -> str:
        return value

    @oteval.agent
    def clerk(question: str) -> str:
        return refund(7, card="card 4111")

    refund(7, card="card 4111")
    secret("s3cret")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT")
    clerk("s3cret")

    text = str([span.attributes for span in run.spans])
    assert "card 4111" not in text
    assert "s3cret" not in text
    assert text.count("refunded 7") == 1


class Awkward:
    """A value that cannot be serialised."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("no text")

    __repr__ = __str__


def test_awkward_values_never_break_the_tool(run):
    """Values without JSON, in cycles, of enormous depth or size are described instead."""
    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    @oteval.tool
    def echo(value: object) -> object:
        return value

    for value in (Awkward(), cycle, deep, {1, 2}, b"raw", object(), float("nan"), "\ud800"):
        assert echo(value) is value

    assert len(run.spans) == 8
    first = run.spans[0].attributes["gen_ai.tool.call.result"]
    assert first == '"<Awkward that cannot be serialised: RuntimeError>"'
    assert run.spans[3].attributes["gen_ai.tool.call.result"] == "[1,2]"


def test_mocks_are_values_like_any_other(run):
    """Mocks answer to any attribute, including attributes of models."""

    @oteval.tool
    def echo(value: object) -> object:
        return value

    client = MagicMock()
    assert echo(client) is client
    assert run.spans[0].attributes["gen_ai.tool.call.result"].startswith('"<MagicMock')


def test_huge_content_is_cut_and_the_trajectory_says_so(run):
    """Arguments above the limit are a gap; the agent's own values are whole."""

    @oteval.tool
    def store(rows: list[str]) -> str:
        return "x" * 3_000_000

    @oteval.agent
    def clerk(question: str) -> int:
        return len(store(["y" * 1000] * 3000))

    assert clerk("store it") == 3_000_000

    assert "content_truncated" in {gap.code for gap in run.trajectory.gaps}
    result = run.trajectory.messages[2].content
    assert result.endswith("[cut: 3,000,000 characters in all]")


def test_a_failing_recorder_is_counted_and_logged_once(run, caplog):
    """An exception in a user's `result` function does not reach the agent."""

    @oteval.tool(result=lambda reply: reply["missing"])
    def lookup() -> dict[str, int]:
        return {}

    before = fault_counts().get("converting the result of a tool", 0)
    with caplog.at_level(logging.WARNING, "oteval.record"):
        assert lookup() == {}
        assert lookup() == {}

    assert fault_counts()["converting the result of a tool"] == before + 2
    assert len(caplog.records) == 1


def test_wrong_arguments_fail_as_without_the_decorator(run):
    """The function itself reports its missing argument."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'query'"):
        search()


class Answers:
    """A hook that answers `lookup` and watches the other tools."""

    def __init__(self, answer: ToolAnswer | None) -> None:
        self.recorded = answer
        self.calls: list[object] = []
        self.observed: list[object] = []

    def answer(self, name, arguments):
        """Note and answer a call."""
        self.calls.append((name, arguments))
        return self.recorded

    def observe(self, name, arguments, result, error, start_ns, end_ns):
        """Note a call that ran."""
        assert 0 < start_ns <= end_ns
        self.observed.append((name, arguments, result, error))


def test_a_hook_answers_in_place_of_the_tool(run):
    """The tool does not run; its recorded text becomes the type that it declares."""

    @oteval.tool
    def lookup(order: int) -> dict[str, int]:
        raise AssertionError("must not run")

    with tool_hook(hook := Answers(ToolAnswer('{"total": 5}'))):
        assert lookup(7) == {"total": 5}

    assert hook.calls == [("lookup", {"order": 7})]
    assert hook.observed == []
    assert attributes_of(run, "execute_tool lookup")["gen_ai.tool.call.result"] == '{"total":5}'


@pytest.mark.parametrize(
    ("error", "kind", "raised"),
    [
        ("no order", "LookupError", LookupError),
        ("ValueError: no order", "", ValueError),
        ("no order", "shop.NoOrder", RuntimeError),
    ],
)
def test_a_hook_raises_the_recorded_error(error, kind, raised):
    """Builtin exceptions keep their type, so that the agent's `except` clauses work."""
    with (
        tool_hook(Answers(ToolAnswer(error=error, error_type=kind))),
        pytest.raises(raised, match="no order"),
    ):
        refund(7)


def test_a_hook_watches_tools_that_run():
    """Results and errors reach the hook, even if no span is recorded."""
    with tool_hook(hook := Answers(answer=None)):
        contextvars.copy_context().run(search, "a")
        with pytest.raises(LookupError):
            refund(order=8)

    assert hook.observed == [
        ("search", {"query": "a"}, [{"order": 7, "query": "a"}], None),
        ("refund_order", {"order": 8}, None, "LookupError: no order 8"),
    ]
