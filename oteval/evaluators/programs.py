"""Programs of the user, in any language, as evaluators: a line of JSON in, a line of JSON out.

The program runs once for each run, without a shell. It reads an object with ``inputs``,
``outputs``, ``reference_outputs`` and ``trajectory``, the arguments that a function of `type:
python` has. It writes an object with ``score``, and optionally ``passed``, ``label``, ``comment``
and ``metadata``. A ``score`` of null means that the run could not be evaluated. Anything else is an
error, never a 0: another exit status than 0, output that is not one line of JSON, and no answer in
time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

from ..base.errors import ConfigError
from ..base.jsontext import dumps, loads_exact
from ..base.limited_process import BASIC_VARIABLES, ProgramOutput, find_program, run_limited
from ..model import EvaluationResult
from .evaluator import EvaluationContext, Evaluator, NotEvaluated, ReferenceOption, Resources
from .functions import result_of
from .messages import to_messages
from .options import PYTHON_ONLY, PositiveInt, Seconds

__all__ = ["CommandEvaluator", "ProgramFailed"]

_SHORT = 200  # characters


class ProgramFailed(Exception):
    """A program gave no verdict: its exit status or its output is wrong."""


@dataclass(frozen=True, kw_only=True)
class CommandEvaluator(Evaluator):
    """Runs a program of yours, in any language.

    Attributes:
        command: The program and its arguments, as a list; no shell is involved. A program with a
            slash in its name is relative to the folder of oteval.yaml, in which it runs. It gets a
            line of JSON with ``inputs``, ``outputs``, ``reference_outputs`` and ``trajectory``, and
            writes a line of JSON with ``score``.
        timeout: How long a run may take: seconds, or a text such as ``5s``.
        environment: The names of the environment variables that the program gets, besides PATH,
            HOME, LANG, LC_ALL, TMPDIR, TZ and USER.
        max_output: The bytes that it may write.
        max_concurrency: The number of runs to evaluate concurrently.
        folder: The working directory of the program; `prepare` sets it.
        variables: Its environment; `prepare` sets it.
        code: A hash of the files that the command names; `prepare` sets it.
    """

    type: ClassVar[str] = "command"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "The reference, which the program gets as reference_outputs."
    )
    is_slow: ClassVar[bool] = True

    command: Sequence[str]
    timeout: Seconds = 60.0
    environment: Sequence[str] = ()
    max_output: PositiveInt = 1_000_000
    max_concurrency: PositiveInt = 4
    folder: Annotated[str, PYTHON_ONLY] = ""
    variables: Annotated[Mapping[str, str], PYTHON_ONLY] = field(default_factory=dict)
    code: Annotated[str, PYTHON_ONLY] = ""

    def check_combination(self) -> None:
        """Refuse a command without a program."""
        if not self.command or not self.command[0]:
            raise ConfigError("command: give the program and its arguments: [node, check.mjs]")

    @property
    def concurrency(self) -> int:
        """The number of runs to evaluate concurrently."""
        return self.max_concurrency

    @property
    def time_limit(self) -> float | None:
        """The seconds after which a run is given up."""
        return self.timeout

    def prepare(self, resources: Resources) -> Self:
        """The evaluator with its program found, and with the environment of the program."""
        everything, names = resources.environment, (*BASIC_VARIABLES, *self.environment)
        for name in self.environment:
            if name not in everything:
                raise ConfigError(f"environment: {name} is not set; set it, or leave it out")
        variables = {name: everything[name] for name in names if name in everything}
        program = find_program(self.command[0], resources.folder, variables)
        if program is None:
            raise ConfigError(
                f"command: {self.command[0]!r} is not a program in PATH; install it, or give its "
                "path relative to the folder of the configuration, such as ./check.sh"
            )
        digest = hashlib.blake2b(digest_size=8)
        for argument in self.command:
            # An argument that is not a text file beside the configuration is not code.
            with suppress(ConfigError, ValueError):
                digest.update(resources.read_text(argument).encode())
        return replace(
            self,
            command=(program, *self.command[1:]),
            folder=resources.folder,
            variables=variables,
            code=digest.hexdigest(),
        )

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """The program's result for a run."""
        expected = context.reference_outputs
        reference = None if expected is None else to_messages(expected)
        run = context.trajectory
        request = {
            "inputs": context.question,
            "outputs": [message.as_dict() for message in context.messages],
            "reference_outputs": reference and [message.as_dict() for message in reference],
            "trajectory": None if run is None else run.as_dict(),
        }
        return _result(
            run_limited(
                self.command,
                dumps(request).encode() + b"\n",
                folder=self.folder or ".",
                environment=self.variables,
                timeout=self.timeout,
                max_output=self.max_output,
            )
        )

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        arguments = list(self.command[1:])
        return {"type": self.type, "key": self.key, "arguments": arguments, "code": self.code}


def _result(output: ProgramOutput) -> EvaluationResult:
    """The verdict that a program wrote.

    Raises:
        ProgramFailed: It failed, or wrote something else.
        NotEvaluated: It could not evaluate the run.
    """
    if output.status:
        ended = f"exit status {output.status}" if output.status > 0 else f"signal {-output.status}"
        raise ProgramFailed(f"the program ended with {ended}{_last_line(output.errors)}")
    lines = output.out.strip().splitlines()
    if len(lines) != 1:
        raise ProgramFailed(
            f"the program wrote {len(lines)} lines; write one line of JSON to standard output, and "
            f"notes to standard error{_last_line(output.errors)}"
        )
    try:
        value = loads_exact(lines[0])
    except ValueError:
        raise ProgramFailed(f"the program wrote no JSON: {_short(lines[0])}") from None
    if not isinstance(value, Mapping) or "score" not in value:
        raise ProgramFailed(f"the program wrote no object with 'score': {_short(lines[0])}")
    passed, comment = value.get("passed"), value.get("comment")
    if value["score"] is None:
        raise NotEvaluated(str(comment or "the program gave no score"))
    if passed is not None and not isinstance(passed, bool):
        raise ProgramFailed(f"the program wrote 'passed' that is not a bool: {_short(lines[0])}")
    try:
        result = result_of(value)
    except TypeError as error:
        raise ProgramFailed(f"the program {error}") from None
    return result if passed is None else replace(result, passed=passed)


def _last_line(errors: bytes) -> str:
    lines = errors.strip().splitlines()
    return f": {_short(lines[-1])}" if lines else ""


def _short(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"
