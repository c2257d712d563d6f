"""The processes that an agent starts during a replay: stopped, unless they are guarded or allowed.

A replay guards its own process. It is also loaded into the Python processes of a command, and
guards them. Any other program could do anything, so it is stopped before it starts. The user may
allow a program by name; then the replay cannot vouch for the agent, and is not ``passed``. Python's
own library starts a few programs to read facts about the machine: they run as usual.

A forked process, and one of `multiprocessing`, is part of the replay. One process may receive the
answer that requests a tool, and another process may run the tool. So a child takes over the
functions of all tools that the recording requests: when it is forked, before it runs its target,
and whenever it receives a job, because the job may have imported the module of a tool.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..record import FOLDER, VARIABLE
from .call_site import call_site
from .divergence import Divergence
from .open_replays import OpenReplay, late_attempt, open_replays, replay_of_call
from .patches import Patches

__all__ = [
    "CHILD_MODULES",
    "PROCESS_EVENTS",
    "carry_into_processes",
    "guard_fork_exec",
    "guard_uvloop_processes",
]

# Programs that `platform`, `ctypes.util`, `uuid` and `locale` start to read facts.
_READS_FACTS = frozenset(
    {
        *("uname", "file", "ldconfig", "gcc", "cc", "ld", "objdump", "ldd"),
        *("ifconfig", "ip", "arp", "lanscan", "netstat", "locale", "sw_vers", "lsb_release"),
    }
)
_FACT_READERS = frozenset({"platform", "ctypes.util", "uuid", "locale", "sysconfig"})
# The helper of `multiprocessing` that removes shared memory; it runs no code of the agent.
_TRACKER = "from multiprocessing.resource_tracker import main"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_IGNORES_ENVIRONMENT = re.compile(r"-(?!-)[A-Za-z]*[IES]")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def _started(program: str, arguments: Sequence[str], environment: Mapping[str, str] | None) -> None:
    """Check that a program may start.

    Raises:
        ReplayDiverged: It may not, and misses are ``strict``.
        PermissionError: It may not, in all other cases.
    """
    replay = replay_of_call()
    if replay is None or _is_harmless(program, arguments):
        return
    if not replay.is_open:
        raise late_attempt(replay, f"it started {_name(program)}")
    if _is_guarded(program, arguments, os.environ if environment is None else environment):
        return
    name = _name(program)
    if name in replay.programs or program in replay.programs:
        replay.player.unguarded(f"{name} was allowed to run: its effects are not known")
        return
    _stop(replay, name)


def _stop(replay: OpenReplay, name: str) -> None:
    site = call_site()
    replay.player.diverge(
        Divergence(
            "process",
            f"the agent started {name}, which a replay cannot guard",
            actual=name,
            line=site.line,
            suggestion=f"to let it act for real, without a verdict: --allow-processes {name}",
        )
    )
    raise PermissionError(errno.EPERM, f"oteval replay: {name} was stopped")


def _name(program: str) -> str:
    return os.path.basename(program) or "a program"  # noqa: PTH119


def _is_harmless(program: str, arguments: Sequence[str]) -> bool:
    """Whether Python's own library starts a program that only reads facts."""
    if len(arguments) > 2 and any(argument.startswith(_TRACKER) for argument in arguments):
        return _PYTHON.match(_name(program)) is not None
    # `ctypes.util` asks a shell for the compiler.
    is_listed = _name(program) in _READS_FACTS or _name(program) == "sh"
    return is_listed and _starter() in _FACT_READERS


def _starter() -> str:
    """The module of Python's library that starts the program; "" for any other module."""
    frame = sys._getframe(1)
    passed = ("subprocess", "os", __name__, f"{__package__}.network_guard")
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in passed:
            file = frame.f_code.co_filename
            return module if file.startswith((_library(), "<frozen")) else ""
        frame = frame.f_back  # type: ignore[assignment]
    return ""


@functools.cache
def _library() -> str:
    return f"{sysconfig.get_path('stdlib')}{os.sep}"


def _is_guarded(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a program is a Python process that loads this replay."""
    if VARIABLE not in environment or "command_child" not in environment[VARIABLE]:
        return False
    if str(FOLDER) not in environment.get("PYTHONPATH", "").split(os.pathsep):
        return False
    return _reads_environment([*_interpreter(program), *arguments[1:]])


def _interpreter(program: str) -> list[str]:
    """The command of the interpreter that runs a program; [] if it is not Python."""
    if _PYTHON.match(_name(program)):
        return [program]
    path = _found(program)
    try:
        with path.open("rb") as file:
            line = file.readline(500)
    except OSError:
        return []
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if words and _name(words[0]) == "env":
        words = words[1:]
    return [*words, str(path)] if words and _PYTHON.match(_name(words[0])) else []


def _found(program: str) -> Path:
    if os.sep in program:
        return Path(program)
    folders = os.get_exec_path()
    paths = (Path(folder, program) for folder in folders)
    return next((path for path in paths if path.is_file()), Path(program))


def _reads_environment(command: Sequence[str]) -> bool:
    """Whether a command of Python reads the environment when it starts."""
    if not command or not _PYTHON.match(_name(command[0])):
        return False
    options = iter(command[1:])
    for option in options:
        if not option.startswith("-") or option in ("-c", "-m", "-"):
            return True
        if option in _WITH_VALUE:
            next(options, None)
        elif _IGNORES_ENVIRONMENT.match(option):
            return False
    return True


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else str(value)


def _texts(values: Any) -> list[str]:
    if isinstance(values, (str, bytes, os.PathLike)):
        return [_text(values)]
    return [_text(value) for value in values or ()]


def _environment(values: Any) -> Mapping[str, str] | None:
    if values is None:
        return None
    items = values.items() if isinstance(values, Mapping) else ()
    return {_text(name): _text(value) for name, value in items}


def _popen(executable: Any, arguments: Any, _folder: Any, environment: Any) -> None:
    texts = _texts(arguments)
    program = _text(executable) if executable else next(iter(texts), "")
    _started(program, texts, _environment(environment))


def _system(command: Any) -> None:
    _started("sh", ["sh", "-c", _text(command)], None)


def _posix(program: Any, arguments: Any, environment: Any = None) -> None:
    _started(_text(program), _texts(arguments), _environment(environment))


def _spawn(_mode: Any, program: Any, arguments: Any, environment: Any = None) -> None:
    _posix(program, arguments, environment)


PROCESS_EVENTS: dict[str, Callable[..., None]] = {
    "subprocess.Popen": _popen,
    "os.system": _system,
    "os.posix_spawn": _posix,
    "os.exec": _posix,
    "os.spawn": _spawn,
}
"""The audit events of programs that start."""


def carry_into_processes(patches: Patches) -> None:
    """Load the replay of a command into Python processes that start with another environment.

    Clients of MCP, for example, pass few variables to servers.
    """
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def start_carrying(self: Any, args: Any, *options_by_position: Any, **options: Any) -> None:
        own, texts = options.get("env"), _texts(args)
        if own is not None and texts and replay_of_call() is not None:
            program = _text(options.get("executable") or texts[0])
            carried = _with_replay(_environment(own) or {})
            if _is_guarded(program, texts, carried):
                options["env"] = carried
        start(self, args, *options_by_position, **options)

    patches.set(subprocess.Popen, "__init__", start_carrying)


def _with_replay(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment with the variables that load the replay of this command."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    carried = {**environment, "PYTHONPATH": os.pathsep.join([str(FOLDER), *paths])}
    return {**carried, VARIABLE: os.environ.get(VARIABLE, "")}


def guard_fork_exec(patches: Patches) -> None:
    """Guard the function below `multiprocessing`, which Python does not audit."""
    import _posixsubprocess

    fork_exec = _posixsubprocess.fork_exec

    @functools.wraps(fork_exec)
    def guarded_fork_exec(args: Any, executables: Any, *options: Any) -> Any:
        program = next(iter(_texts(executables)), "")
        environment = options[3] if len(options) > 3 else None
        _started(program, _texts(args), _environment_list(environment))
        return fork_exec(args, executables, *options)

    patches.set(_posixsubprocess, "fork_exec", guarded_fork_exec)


def _environment_list(values: Any) -> Mapping[str, str] | None:
    """The environment of ``NAME=value`` entries; None for this process's."""
    if values is None:
        return None
    pairs = (entry.partition("=") for entry in _texts(values))
    return {name: value for name, _, value in pairs}


def guard_uvloop_processes(patches: Patches, loop: Any) -> None:
    """Guard the processes of uvloop, which does not use Python's functions to start them."""
    for name in ("subprocess_exec", "subprocess_shell"):
        patches.set(loop, name, _guarded_start(getattr(loop, name), is_shell="shell" in name))


def _guarded_start(start: Callable[..., Any], *, is_shell: bool) -> Callable[..., Any]:
    @functools.wraps(start)
    async def guarded(self: Any, protocol: Any, *command: Any, **options: Any) -> Any:
        arguments = ["sh", "-c", *_texts(command)] if is_shell else _texts(command)
        _started(arguments[0], arguments, _environment(options.get("env")))
        return await start(self, protocol, *command, **options)

    return guarded


_modules_seen = 0


def _take_over_tools() -> None:
    """Take over the functions of tools, if modules were imported since the last time."""
    global _modules_seen
    if _modules_seen == len(sys.modules):
        return
    _modules_seen = len(sys.modules)
    for replay in open_replays():
        replay.player.serve_child_process()


def _is_child() -> bool:
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _forked() -> None:
    global _modules_seen
    _modules_seen = 0
    _take_over_tools()


os.register_at_fork(after_in_child=_forked)


def _guard_targets(patches: Patches, module: Any) -> None:
    bootstrap = module.BaseProcess._bootstrap

    @functools.wraps(bootstrap)
    def guarded_bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        _take_over_tools()
        return bootstrap(self, *args, **kwargs)

    patches.set(module.BaseProcess, "_bootstrap", guarded_bootstrap)


def _guard_jobs(patches: Patches, module: Any) -> None:
    loads: Callable[..., Any] = module.ForkingPickler.loads

    def guarded_loads(*args: Any, **kwargs: Any) -> Any:
        job = loads(*args, **kwargs)
        if _is_child():
            _take_over_tools()
        return job

    patches.set(module.ForkingPickler, "loads", staticmethod(guarded_loads))


CHILD_MODULES: dict[str, Callable[[Patches, Any], None]] = {
    "multiprocessing.process": _guard_targets,
    "multiprocessing.reduction": _guard_jobs,
}
"""The modules that deliver work to children, and how each is guarded."""
