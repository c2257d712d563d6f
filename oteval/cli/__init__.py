"""The ``oteval`` command. It parses arguments; `oteval.scoring` does the work.

Exit status: 0 all gates passed; 1 a gate or comparison failed; 2 usage, configuration or
infrastructure error; 3 too little could be evaluated. Results are written to standard output,
everything else to standard error.
"""

from __future__ import annotations

import io
import os
import sys

import click

from .. import __version__
from ..base.errors import NothingEvaluated, OtevalError
from ..base.files import private_umask
from .commands import SECTIONS, SectionedGroup
from .common import warn

__all__ = ["cli", "main"]


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Options: --version, -h or --help (also of a command), --debug (tracebacks).",
)
@click.version_option(__version__, prog_name="oteval", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Score what agents really did, from OpenTelemetry traces: start with `demo`."""
    del debug


for _commands in SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


# The exit statuses that a shell reports for SIGINT and SIGPIPE.
_INTERRUPTED, _BROKEN_PIPE = 130, 141


def main() -> None:
    """Run the command; an expected error is one line and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with private_umask():
        status = _status("--debug" in sys.argv)
    sys.exit(status)


def _status(debug: bool) -> int:
    try:
        status = cli.main(standalone_mode=False)
        # Python has no standard output if the descriptor was closed.
        if sys.stdout is not None:
            sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        # Click raises its own exception from the command's exception, which may have a text.
        effect = str(error.__cause__ or error) or "finished work is kept"
        return _fail(f"interrupted; {effect}", _INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # The reader, such as `head`, closed the pipe; click turns a BrokenPipeError into a
        # SystemExit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except click.ClickException as error:
        error.show()
        return 2
    except NothingEvaluated as error:
        return _fail(str(error), 3, debug)
    except OtevalError as error:
        if _is_interrupt(error):
            return _fail("interrupted; finished work is kept", _INTERRUPTED)
        *faults, last = getattr(error, "faults", ()) or (str(error),)
        for fault in faults:
            warn(fault)
        return _fail(last, 2, debug)
    except Exception as error:
        if _is_interrupt(error):
            return _fail("interrupted; finished work is kept", _INTERRUPTED)
        return _fail(f"{type(error).__name__}: {error} (oteval --debug shows where)", 2, debug)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error comes from Ctrl-C.

    DuckDB turns it into a plain `RuntimeError`, and blocks that end at that moment may fail.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            return True
        error = error.__cause__ or error.__context__
    return False


def _fail(message: str, status: int, debug: bool = False) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    warn(message)
    return status
