"""``oteval replay make-test``: write the pytest file of a recorded session."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..base.errors import ConfigError, InputError, NothingEvaluated
from ..base.files import make_folder, publish, write_private
from ..base.jsontext import dumps_exact
from ..base.redaction import RedactionRule
from ..base.redaction.secrets import SecretRedactor
from ..evaluators import load_function
from ..model import EVERYTHING, Recording
from ..replays import (
    AgentCall,
    CommandRunner,
    InputForm,
    ReplayOptions,
    SessionRunner,
    TargetRunner,
    Tools,
    VerifiedSession,
    WrittenTest,
    accepted_keywords,
    default_keys,
    pytest_file,
    redacted_recording,
    reference_text,
    save,
    session_name,
    turn_inputs,
    unreplayable,
    verify,
)
from ..views import replays_view
from .common import databases_option, open_store, out, say, warn
from .options import default_config, default_config_option
from .replay import recordings_of, replay
from .replay_options import (
    agent_options,
    freeze_option,
    normalize_option,
    tool_options,
    tools_of,
    tools_option,
)

__all__ = ["make_test", "redaction_config_option", "redaction_rules"]

_TIMEOUT = 60.0

redaction_config_option = default_config_option("The configuration with the rules of redaction.")


@replay.command("make-test")
@click.argument("session")
@agent_options
@click.option(
    "--command",
    metavar="COMMAND",
    help='The agent as a command, such as "python agent.py {input}", instead of --target.',
)
@click.option(
    "--dir",
    "folder",
    default="tests",
    show_default=True,
    metavar="FOLDER",
    help="The folder for the test; recordings and references are in folders below it.",
)
@click.option("--name", help="The name of the test.  [default: from the user's message]")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@tools_option
@tool_options
@normalize_option
@freeze_option
@click.option("--no-run", is_flag=True, help="Do not run the agent to check the test.")
@redaction_config_option
@databases_option
def make_test(
    session: str,
    target: str | None,
    command: str | None,
    input_form: InputForm,
    folder: str,
    name: str | None,
    force: bool,
    tools: Tools,
    normalize: tuple[str, ...],
    freeze: tuple[str, ...],
    tool: tuple[str, ...],
    run_tools: tuple[str, ...],
    allow_processes: tuple[str, ...],
    no_run: bool,
    config_path: str | None,
    db: tuple[str, ...],
) -> int:
    """Write a recorded session as a test for pytest.

    SESSION is the id of a trajectory, a trace or a conversation, or the file of a recording. Three
    files are written: the test, its recording, and a reference with the messages. Secrets that are
    recognised are removed from them. The test calls the agent with the recorded messages of the
    user, and asserts the tools that it runs and its answer. It needs no model, no key and no
    network.

    The agent is then replayed once. Exit status: 0 the test is written and passes, 1 it is written,
    but the agent now differs from the recording, 2 an error, 3 the session cannot be replayed.
    """
    if bool(target) == bool(command):
        raise ConfigError(
            "replay make-test: give the agent, which the test calls, as --target "
            "PKG.MODULE:FUNCTION or as --command 'python agent.py {input}'"
        )
    options = ReplayOptions(
        tools=tools_of(tools, tool, config_path),
        normalize=normalize,
        freeze=freeze,
        run_tools=run_tools,
        allow_processes=allow_processes,
    )
    recording, agent = _recording(session, db)
    redactor = SecretRedactor(redaction_rules(config_path))
    recording = redacted_recording(recording, redactor)
    test = WrittenTest(
        name=_name(name) if name else session_name(recording),
        recording=recording,
        agent_call=_agent_call(target, recording, input_form) if target else AgentCall("", "", ()),
        command=tuple(shlex.split(command or "")),
        agent=agent,
        options=_shown_options(options),
    )
    files = _files(test, Path(folder), force=force)
    outcome = None if no_run else _checked(test, target, options, input_form)
    if outcome is not None and outcome.status == "passed" and outcome.result is not None:
        returned = tuple(dumps_exact(answer.value) for answer in outcome.returned)
        is_clean = all(redactor.text(text) == text for text in returned)
        test = replace(
            test,
            executed=outcome.result.executed,
            returned=outcome.returned if is_clean else (),
        )
    _write(test, files)
    return _report(files[0], outcome)


def _recording(session: str, db: tuple[str, ...]) -> tuple[Recording, str]:
    """Return the recording of a session, and the name of its agent or "".

    Raises:
        NothingEvaluated: It cannot be replayed.
    """
    with recordings_of([session], db, EVERYTHING) as (recordings, _):
        recording = next(iter(recordings))
    problem = unreplayable(recording)
    if problem:
        raise NothingEvaluated(f"{session}: {problem}")
    if not recording.trajectory_ids or not all(Path(path).exists() for path in db):
        return recording, ""
    with open_store(db) as store:
        run = store.trajectories.get(recording.trajectory_ids[0])
    return recording, run.agent or run.service


def redaction_rules(config_path: str | None) -> list[RedactionRule]:
    """Return the rules of redaction in the configuration.

    Args:
        config_path: The path; None for the default configuration, if it exists.

    Raises:
        ConfigError: It cannot be read.
    """
    config = default_config(config_path)
    return [redaction.rule() for redaction in config.redact] if config is not None else []


def _name(text: str) -> str:
    """Return the name of a test that a user gave, without ``test_`` in front.

    Raises:
        ConfigError: It is not a name in Python.
    """
    name = text.removesuffix(".py").removeprefix("test_")
    if not f"test_{name}".isidentifier() or not name:
        raise ConfigError(f"--name {text!r}: use letters, digits and underscores")
    return name


def _agent_call(target: str, recording: Recording, form: InputForm) -> AgentCall:
    """Return how a test calls a target.

    Raises:
        ConfigError: The target cannot be imported.
        NothingEvaluated: The recording has no message of a user.
    """
    turns = turn_inputs(recording, form)
    if not turns:
        raise NothingEvaluated("the recording has no message of a user; use --input none")
    default_keys(os.environ)
    sys.path.insert(0, str(Path.cwd()))
    function = load_function(target)
    module, _, name = target.partition(":")
    home = getattr(sys.modules[module], "__file__", None) or ""
    is_local = Path(home).is_relative_to(Path.cwd()) and "site-packages" not in home
    return AgentCall(
        module=module,
        function=name,
        turns=tuple(turns),
        keywords=accepted_keywords(function),
        is_async=_is(function, inspect.iscoroutinefunction, inspect.isasyncgenfunction),
        is_generator=_is(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction),
        is_local=is_local,
    )


def _is(function: Callable[..., Any], *kinds: Callable[[Any], bool]) -> bool:
    """Return whether a function, or the `__call__` method of an object, is of a kind."""
    called = inspect.unwrap(function)
    return any(
        kind(candidate) for kind in kinds for candidate in (function, called, type(called).__call__)
    )


def _shown_options(options: ReplayOptions) -> tuple[tuple[str, Any], ...]:
    """Return the options that the test passes to `oteval_replay`."""
    option_values: dict[str, Any] = {
        "tools": "" if options.tools == "recorded" else options.tools,
        "run_tools": list(options.run_tools),
        "allow_processes": list(options.allow_processes),
        "normalize": list(options.normalize),
        "freeze": list(options.freeze),
    }
    return tuple((name, value) for name, value in option_values.items() if value)


def _files(test: WrittenTest, folder: Path, *, force: bool) -> tuple[Path, Path, Path]:
    """Return the paths of the test, the recording and the reference.

    Raises:
        ConfigError: One of them exists.
    """
    files = (
        folder / f"test_{test.name}.py",
        folder / test.recording_file,
        folder / test.reference_file,
    )
    existing = [str(path) for path in files if path.exists()]
    if existing and not force:
        text = f"{', '.join(existing)}: exists; give another --name, or --force to overwrite it"
        raise ConfigError(text)
    return files


def _checked(
    test: WrittenTest, target: str | None, options: ReplayOptions, form: InputForm
) -> VerifiedSession:
    """Replay the session once with the current code of the agent."""

    def runner() -> SessionRunner:
        if target:
            return TargetRunner(target, options, input_form=form, timeout=_TIMEOUT)
        return CommandRunner(test.command, options, timeout=_TIMEOUT)

    (outcome,) = verify([test.recording], runner)
    return outcome


def _write(test: WrittenTest, files: Sequence[Path]) -> None:
    """Write the files.

    Raises:
        InputError: One cannot be written.
    """
    path, recording, reference = files
    try:
        for file in files:
            make_folder(file.parent)
        save(test.recording, recording)
        write_private(reference, reference_text(test.recording))
        write_private(path, pytest_file(test))
        publish(path)  # code for version control
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
    for file in files:
        say(str(file))


def _report(path: Path, outcome: VerifiedSession | None) -> int:
    """Print the outcome of the test, and return the exit status."""
    warn(f"run it: python -m pytest {path}")
    if outcome is None:
        return 0
    if outcome.status == "passed":
        warn("the agent behaves as recorded: the test passes")
        return 0
    out().print(replays_view([outcome]))
    if outcome.status == "unverified":
        raise NothingEvaluated(f"the test is written, but cannot pass: {outcome.detail}")
    warn("the agent behaves differently from the recording: the test fails until it does not")
    return 1
