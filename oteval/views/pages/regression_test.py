"""A run as a regression test, to download: the files that ``oteval replay make-test`` writes.

The command imports the agent and replays it once. A server does neither, so the visitor chooses how
the agent is called, and the test is not checked.
"""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import get_args

from ...base.errors import ConfigError, NothingEvaluated
from ...base.redaction import RedactionRule
from ...base.redaction.secrets import SecretRedactor
from ...model import Recording
from ...replays import (
    AgentCall,
    InputForm,
    WrittenTest,
    pytest_file,
    read_recording,
    recording_bytes,
    redacted_recording,
    reference_text,
    session_name,
    turn_inputs,
    unreplayable,
)
from ...store import Store

__all__ = ["AgentChoice", "agent_choice", "regression_test_zip"]

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """How a test calls the agent.

    Attributes:
        function: The function, as ``package.module:function``, or "".
        is_async: Whether the function is a coroutine.
        form: The argument of the function.
        command: The words of a command instead of the function.
    """

    function: str = ""
    is_async: bool = False
    form: InputForm = "text"
    command: tuple[str, ...] = ()


def agent_choice(called: str, form: str, *, is_async: bool) -> AgentChoice:
    """How a test calls the agent that a visitor named.

    Args:
        called: A function as ``package.module:function``, or a command.
        form: The argument of a function: text, messages or none.
        is_async: Whether a function is a coroutine.

    Raises:
        ConfigError: `called` is neither.
    """
    if _FUNCTION.fullmatch(called):
        for input_form in get_args(InputForm):
            if input_form == form:
                return AgentChoice(called, is_async, input_form)
        raise ConfigError(f"input: choose one of {', '.join(get_args(InputForm))}")
    try:
        words = tuple(shlex.split(called))
    except ValueError as error:
        raise ConfigError(f"the command cannot be read: {error}") from None
    if len(words) < 2 or not called.isprintable():
        raise ConfigError(
            "name the agent: a function as package.module:function, or a command such as "
            "python agent.py {input}"
        )
    return AgentChoice(command=words)


def regression_test_zip(
    store: Store, run_id: str, agent: AgentChoice, rules: Sequence[RedactionRule], name: str = ""
) -> tuple[str, bytes]:
    """The name and the content of a zip file with a test, its recording and its reference.

    Args:
        store: The store that has the run's spans.
        run_id: The run.
        agent: How the test calls the agent.
        rules: The rules of redaction, in addition to the rules for known forms of secrets.
        name: The name of the agent, for the test's description.

    Raises:
        NothingEvaluated: The run cannot be replayed.
    """
    recording = read_recording(store, run_id)
    problem = unreplayable(recording)
    if problem:
        raise NothingEvaluated(f"this run cannot become a test: {problem}")
    recording = redacted_recording(recording, SecretRedactor(list(rules)))
    test = WrittenTest(
        name=session_name(recording),
        recording=recording,
        agent_call=_agent_call(recording, agent),
        command=agent.command,
        agent=name,
    )
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in (
            (f"test_{test.name}.py", pytest_file(test).encode()),
            (test.recording_file, recording_bytes(test.recording)),
            (test.reference_file, reference_text(test.recording).encode()),
        ):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text)
    return f"test_{test.name}.zip", content.getvalue()


def _agent_call(recording: Recording, agent: AgentChoice) -> AgentCall:
    if agent.command:
        return AgentCall("", "", ())
    turns = turn_inputs(recording, agent.form)
    if not turns:
        raise NothingEvaluated("the recording has no message of a user; choose no input")
    module, _, function = agent.function.partition(":")
    return AgentCall(module, function, tuple(turns), is_async=agent.is_async)
