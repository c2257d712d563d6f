"""Write the test of a recorded session: a pytest file that replays it, and its reference.

The functions here are pure: they make texts from a recording. The test calls the agent with the
recorded messages of the user inside `oteval_replay`, and asserts the tools that it runs and its
answer. The reference has the messages of the session, for the evaluators.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..base.jsontext import dumps_exact
from ..base.text import counted, listed, printable
from ..model import Recording
from .conversations import ToolExecution, conversation_of, last_answer, recorded_executions
from .python_literals import WIDTH, block_text, literal, text_literal
from .verified import ReturnedJson

__all__ = ["AgentCall", "WrittenTest", "pytest_file", "reference_text", "session_name"]

_SLUG = 40
_QUESTION = 60
_ANSWER = 1_500
_CALL_LINES = 30
_WORD = re.compile(r"[a-z0-9]+")
# Names that the file uses itself.
_TAKEN = frozenset(("ANSWER", "HERE", "MESSAGES", "Path", "QUESTION", "asyncio", "converse"))
_TAKEN |= {"dedent", "json", "match", "oteval_replay", "path", "reference", "replay"}
_TAKEN |= {"answer", "answers", "to_jsonable", "trajectory_strict_match"}


@dataclass(frozen=True)
class AgentCall:
    """How a test calls the agent.

    Attributes:
        module: The module of the function.
        function: The name of the function, with dots for a method of an object.
        turns: The arguments of each call: texts, or messages as plain JSON.
        keywords: The names of the parameters ``session`` and ``turn`` that the function has.
        is_async: Whether it returns something to await, or an asynchronous generator.
        is_generator: Whether it returns a generator.
        is_local: Whether the module belongs to the project instead of an installed package.
    """

    module: str
    function: str
    turns: tuple[tuple[Any, ...], ...]
    keywords: frozenset[str] = frozenset()
    is_async: bool = False
    is_generator: bool = False
    is_local: bool = True


@dataclass(frozen=True)
class WrittenTest:
    """The test of a recording.

    Attributes:
        name: The name, as in ``test_NAME.py``.
        recording: The recording.
        agent_call: How the agent is called.
        command: The command to run instead, or an empty tuple.
        executed: The tools that the agent runs; None for the tools of the recording.
        agent: The name of the agent, or "".
        options: The options of the replay, as for `oteval.replay`.
        returned: The results of the agent, by turn, if it was replayed.
    """

    name: str
    recording: Recording
    agent_call: AgentCall
    command: tuple[str, ...] = ()
    executed: Sequence[ToolExecution] | None = None
    agent: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    returned: tuple[ReturnedJson, ...] = ()

    @property
    def asserts_returned(self) -> bool:
        """Whether the test asserts the results of the agent."""
        values = [answer.value for answer in self.returned]
        is_short = len(dumps_exact(values)) <= _ANSWER
        is_known = all(answer.is_known for answer in self.returned)
        return is_known and is_short and any(value is not None for value in values)

    @property
    def recording_file(self) -> str:
        """The path of the recording, relative to the test."""
        return f"recordings/{self.name}.jsonl"

    @property
    def reference_file(self) -> str:
        """The path of the reference, relative to the test."""
        return f"references/{self.name}.json"


def session_name(recording: Recording) -> str:
    """Name the test of a recording by the user's first message."""
    text = recording.inputs[0] if recording.inputs else ""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = ""
    for word in _WORD.findall(plain):
        if name and len(name) + 1 + len(word) > _SLUG:
            break
        name = f"{name}_{word}" if name else word[:_SLUG]
    is_usable = len(name) > 2 and not keyword.iskeyword(name)
    return name if is_usable else f"session_{_slug(recording.session)[:12]}"


def _slug(text: str) -> str:
    return "_".join(_WORD.findall(text.lower())) or "replay"


def reference_text(recording: Recording) -> str:
    """Write the reference of a recording: its messages in OpenAI's format, as JSON.

    System instructions are left out: the replay compares them.
    """
    messages = [message.as_dict() for message in conversation_of(recording.model_calls)]
    return json.dumps(messages, indent=2, ensure_ascii=False) + "\n"


def pytest_file(test: WrittenTest) -> str:
    """Write a pytest file."""
    if test.command:
        return _command_file(test)
    constants = _Constants()
    calls = list(_calls(test, constants))
    body = "\n".join([*_replayed(test, calls), "", *_assertions(test, constants)])
    parts = [
        f'"""{_header(test)}"""',
        "\n\n".join(_imports(test, f"{constants.text}\n{body}")),
        "\n".join(["HERE = Path(__file__).parent", *constants.lines, ""]),
        f'def test_{test.name}(oteval_replay):\n    """{_summary(test)}"""\n{body}',
    ]
    return "\n\n".join(parts) + "\n"


def _command_file(test: WrittenTest) -> str:
    """Write a pytest file that runs a command."""
    folder, _, file = test.recording_file.rpartition("/")
    arguments = [literal(list(test.command), column=8, room=1, level=2)]
    arguments.append(f'HERE / "{folder}" / "{file}"')
    arguments += [f"{name}={literal(value)}" for name, value in test.options]
    argument_lines = "".join(f"        {argument},\n" for argument in arguments)
    head = "    assert list(replay.executed) == "
    return (
        f'"""{_header(test)}"""\n\nfrom pathlib import Path\n\n'
        f"HERE = Path(__file__).parent\n\n\n"
        f'def test_{test.name}(oteval_replay_command):\n    """{_summary(test)}"""\n'
        f"    replay = oteval_replay_command(\n{argument_lines}    )\n\n"
        f"{head}{literal(list(_executed(test)), column=len(head), level=1)}\n"
    )


class _Constants:
    """The constants of a module: texts that are too long for the line that uses them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        """The source code."""
        return "\n".join(self.lines)

    def add(self, name: str, code: str) -> str:
        """Add a constant, and return its name."""
        self.lines.append(f"{name} = {code}")
        return name

    def of_text(self, text: str, name: str, room: int) -> str:
        """Write a text as source code: a literal if it fits, else the name of a constant.

        Args:
            text: The text.
            name: The name of the constant.
            room: The length of the rest of its line.
        """
        flat = text_literal(text)
        if "\n" not in flat and len(flat) + room <= WIDTH:
            return flat
        return self.add(name, block_text(text) or text_literal(text, column=len(name) + 3))


def _header(test: WrittenTest) -> str:
    """The docstring of the module."""
    recording = test.recording
    who = f"The agent {_shown(test.agent, 40)}" if test.agent else "The agent"
    question = _shown(recording.inputs[0], _QUESTION) if recording.inputs else ""
    question_text = f' is asked: "{question}"' if question else " runs"
    starts = [call.start_ns for call in recording.model_calls if call.start_ns > 10**15]
    day = f" on {datetime.fromtimestamp(min(starts) / 1e9, UTC):%Y-%m-%d}" if starts else ""
    session = _shown(recording.session, 40)
    source = f"Recorded{day}, session {session}, fidelity {recording.fidelity}"
    if recording.fidelity == "semconv" and recording.reasons:
        source += f": {_shown(recording.reasons[0], 300)}"
    needs = "Models and tools answer as recorded, so that the test needs no key and no network."
    return f"{_wrapped(f'{who}{question_text}.', 0)}\n\n{_wrapped(f'{source}. {needs}', 0)}\n"


def _summary(test: WrittenTest) -> str:
    """The docstring of the test."""
    names = list(dict.fromkeys(name for name, _ in _executed(test)))
    turns = f" in {len(test.agent_call.turns)} turns" if len(test.agent_call.turns) > 1 else ""
    if not names:
        return f"The agent answers{turns} without tools."
    for most in (5, 3, 1):
        text = f"The agent calls {_shown(listed(names, most), 200)}, then answers{turns}."
        if len(text) + 10 <= WIDTH:
            return text
    return f"The agent calls {counted(len(names), 'tool')}, then answers{turns}."


def _shown(text: str, most: int) -> str:
    """Clean text for a docstring: one line without anything that ends or escapes it."""
    line = " ".join(printable(text).split())
    if len(line) > most:
        line = f"{line[:most].rsplit(' ', 1)[0]} ..."
    return line.replace("\\", "/").replace('"', "'")


def _wrapped(text: str, column: int) -> str:
    width = WIDTH - column
    lines = textwrap.wrap(text, width - 6, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * column}".join(lines)


def _imports(test: WrittenTest, code: str) -> Iterator[str]:
    """Yield the blocks of imports: the standard library, packages, the project."""
    standard = [f"import {name}" for name in ("asyncio", "json") if f"{name}." in code]
    standard.append("from pathlib import Path")
    if "dedent(" in code:
        standard.append("from textwrap import dedent")
    yield "\n".join(standard)
    agent = test.agent_call
    root = agent.function.partition(".")[0]
    is_named = root not in _TAKEN and not root.lower().startswith("test")
    own = f"from {agent.module} import {root}" if is_named else f"import {agent.module}"
    packages = ["from oteval import trajectory_strict_match"]
    if "to_jsonable(" in code:
        packages.append("from oteval.base.jsontext import to_jsonable")
    if not agent.is_local:
        packages.append(own)
    yield "\n".join(sorted(packages, key=lambda line: (line[0] == "f", line.lower())))
    if agent.is_local:
        yield own


def _function(agent: AgentCall) -> str:
    root = agent.function.partition(".")[0]
    is_named = root not in _TAKEN and not root.lower().startswith("test")
    return agent.function if is_named else f"{agent.module}.{agent.function}"


def _calls(test: WrittenTest, constants: _Constants) -> Iterator[str]:
    """Yield the source code of the call of each turn."""
    agent = test.agent_call
    function = _function(agent)
    keyword_values = {"session": test.recording.session}
    for number, turn in enumerate(agent.turns, 1):
        keyword_values["turn"] = str(number)
        more = [
            f"{name}={literal(keyword_values[name]) if name == 'session' else keyword_values[name]}"
            for name in ("session", "turn")
            if name in agent.keywords
        ]
        suffix = f"_{number}" if len(agent.turns) > 1 else ""
        room = len(function) + len(", ".join(more)) + 40
        arguments = [_argument(value, suffix, constants, room) for value in turn]
        yield f"{function}({', '.join([*arguments, *more])})"


def _argument(value: Any, suffix: str, constants: _Constants, room: int) -> str:
    if isinstance(value, str):
        return constants.of_text(value, f"QUESTION{suffix}", room)
    name = f"MESSAGES{suffix}"
    return constants.add(name, literal(value, column=len(name) + 3))


def _replayed(test: WrittenTest, calls: Sequence[str]) -> Iterator[str]:
    """Yield the lines that replay the session."""
    agent = test.agent_call
    folder, _, file = test.recording_file.rpartition("/")
    opened = f'HERE / "{folder}" / "{file}"'
    options = [f"{name}={literal(value)}" for name, value in test.options]
    line = f"    with oteval_replay({', '.join([opened, *options])}) as replay:"
    if len(line) > WIDTH:
        inner = ",\n".join(f"        {argument}" for argument in (opened, *options))
        comma = "," if options else ""
        line = f"    with oteval_replay(\n{inner}{comma}\n    ) as replay:"
    is_single = len(calls) == 1
    if test.asserts_returned and not is_single:
        yield "    answers = []"
    if not agent.is_async or (is_single and not agent.is_generator):
        yield line
        for call in calls:
            if agent.is_async:
                call = f"asyncio.run({call})"
            elif agent.is_generator:
                call = f"list({call})"
            yield f"        {_kept(test, call)}"
        return
    yield ""
    yield "    async def converse():"
    for call in calls:
        call = f"[_ async for _ in {call}]" if agent.is_generator else f"await {call}"
        if is_single:
            yield f"        {'return ' if test.asserts_returned else ''}{call}"
        else:
            yield f"        {_kept(test, call)}"
    yield ""
    yield line
    run = "asyncio.run(converse())"
    yield f"        {_kept(test, run) if is_single else run}"


def _kept(test: WrittenTest, call: str) -> str:
    """The code of a call that keeps its result, if the test asserts it."""
    if not test.asserts_returned:
        return call
    is_single = len(test.agent_call.turns) == 1
    return f"answer = {call}" if is_single else f"answers.append({call})"


def _returned_assertion(test: WrittenTest, constants: _Constants) -> str:
    """The line that checks the results of the agent."""
    is_single = len(test.returned) == 1
    name = "answer" if is_single else "answers"
    value = test.returned[0].value if is_single else [answer.value for answer in test.returned]
    if not all(answer.is_exact for answer in test.returned):
        name = f"to_jsonable({name})"
    head = f"    assert {name} == "
    if isinstance(value, bool):
        return f"    assert {name} is {value}"
    if isinstance(value, str):
        return head + constants.of_text(value, "ANSWER", len(head))
    return head + literal(value, column=len(head), level=1)


def _executed(test: WrittenTest) -> Sequence[ToolExecution]:
    if test.executed is not None:
        return test.executed
    return recorded_executions(test.recording)


def _assertions(test: WrittenTest, constants: _Constants) -> Iterator[str]:
    """Yield the lines that check the tools, the answer and the messages."""
    executed = list(_executed(test))
    head = "    assert replay.tool_calls == "
    code = literal(executed, column=len(head), level=1)
    lines = code.split("\n")
    if len(lines) <= _CALL_LINES and all(len(line) <= WIDTH for line in lines):
        yield head + code
    else:
        head = "    assert [name for name, _ in replay.tool_calls] == "
        yield head + literal([name for name, _ in executed], column=len(head), level=1)
    answer = last_answer(test.recording.model_calls)
    if test.asserts_returned:
        yield _returned_assertion(test, constants)
    elif answer and len(answer) <= _ANSWER:
        yield f"    assert replay.answer == {constants.of_text(answer, 'ANSWER', 28)}"
    folder, _, file = test.reference_file.rpartition("/")
    yield ""
    yield f'    path = HERE / "{folder}" / "{file}"'
    yield '    reference = json.loads(path.read_text("utf-8"))'
    yield (
        "    match = trajectory_strict_match(outputs=replay.messages, reference_outputs=reference)"
    )
    yield '    assert match["score"], match["comment"]'
