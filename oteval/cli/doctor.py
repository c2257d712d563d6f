"""``oteval doctor``: report the libraries that would be recorded, and test the destination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .common import json_option, out, print_json

if TYPE_CHECKING:
    from ..record import DoctorReport

__all__ = ["doctor"]


@click.command()
@click.option(
    "--to",
    metavar="DESTINATION",
    help="The endpoint, file or database that the agent exports to; by default the endpoint of "
    "OTEL_EXPORTER_OTLP_*, else http://127.0.0.1:4318.",
)
@click.option("--no-send", is_flag=True, help="Do not send a test span.")
@json_option
def doctor(to: str | None, no_send: bool, as_json: bool) -> int:
    """Check that agents in this environment are recorded.

    This lists the installed libraries, with the instrumentation that would record each or the
    command that would install one; whether messages are recorded; the HTTP clients whose requests
    cannot be recorded for a replay; and the environment variables in force. Then it sends a test
    span to the destination. Run it in the agent's environment.

    The exit status is 1 if the test span did not arrive, or no library would be recorded.
    """
    from ..record import examine

    report = examine(to, send=not no_send)
    if as_json:
        for line in _lines(report):
            print_json(line)
    else:
        from ..views import doctor_view

        for section in doctor_view(report):
            out().print(section)
    return 0 if report.is_healthy else 1


def _lines(report: DoctorReport) -> Iterator[dict[str, Any]]:
    for library in report.libraries:
        yield {"kind": "library", **asdict(library)}
    for client in report.clients:
        yield {"kind": "http_client", **asdict(client)}
    for variable in report.variables:
        yield {"kind": "variable", **asdict(variable)}
    for name, version, note in report.tools:
        yield {"kind": "tool", "name": name, "version": version, "note": note}
    yield {"kind": "test_span", **asdict(report.delivery)}
