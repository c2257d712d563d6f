"""The ``oteval`` command: arguments only; the work is in `oteval.pipeline`.

Exit status: 0 all gates passed; 1 a gate or comparison failed; 2 usage, configuration or
infrastructure error; 3 nothing, or less than was asked for, could be evaluated. Results go to
standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys

import click

from .. import __version__
from ..errors import NothingEvaluated, OtevalError
from .config import config
from .demo import demo
from .export import export
from .ingest import ingest
from .reference import reference
from .score import score, scores
from .view import diff, show, trajectories, variants

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="oteval", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Score what agents really did, from the OpenTelemetry traces they already emit.

    Begin with `oteval demo`; it needs no server and no key. With traces of your own:
    `oteval ingest FILE`, `oteval trajectories`, `oteval show ID`, `oteval score -c oteval.yaml`.
    """
    del debug


for _command in (
    *(demo, ingest, trajectories, show, score, scores, diff),
    *(reference, variants, config, export),
):
    cli.add_command(_command)


def main() -> None:
    """Run the command; every expected error is one line and an exit status."""
    debug = "--debug" in sys.argv
    try:
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        _fail("stopped; what was done until then is kept", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except NothingEvaluated as error:
        _fail(str(error), 3, debug)
    except OtevalError as error:
        _fail(str(error), 2, debug)
    except KeyboardInterrupt:
        _fail("stopped; what was done until then is kept", 130)
    except BrokenPipeError:
        # The reader, such as `head`, has had enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(message: str, status: int, debug: bool = False) -> None:
    if debug:
        import traceback

        traceback.print_exc()
    click.echo(f"oteval: {message}", err=True)
    sys.exit(status)
