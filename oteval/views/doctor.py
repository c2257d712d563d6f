"""The report of `oteval doctor` for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..record import DoctorReport
from .columns import Column, Columns, one_row

__all__ = ["doctor_view"]

_STYLES = {"on": "green", "off": "yellow", "arrived": "green", "failed": "red"}


def doctor_view(report: DoctorReport) -> Iterator[RenderableType]:
    """The sections of a report: libraries, HTTP clients, variables, destination."""
    yield _libraries(report)
    if report.clients:
        yield ""
        yield _clients(report)
    if report.tools or report.variables:
        yield ""
        yield _environment(report)
    yield ""
    yield _delivery(report)


def _libraries(report: DoctorReport) -> RenderableType:
    if not report.libraries:
        return Text("no library of agents or models is installed")
    table = Columns(
        Column("library"),
        Column("version", rank=1),
        Column("spans"),
        Column("content"),
        Column("by", rank=2, least=20, most=50),
        Column("", wraps=True, optional=True),
    )
    for library in report.libraries:
        content, _, hidden_by = library.content.partition(": ")
        note = "; ".join(text for text in (library.reason, library.remedy, hidden_by) if text)
        table.add_row(
            one_row(library.library),
            one_row(library.version),
            _state(library.status),
            _state(content or "-"),
            one_row(library.by or "-"),
            note,
        )
    return table


def _clients(report: DoctorReport) -> RenderableType:
    table = Columns(
        Column("HTTP client"),
        Column("version", rank=1),
        Column("spans"),
        Column("recorded"),
        Column("", wraps=True, optional=True),
    )
    for client in report.clients:
        table.add_row(
            one_row(client.client),
            one_row(client.version),
            _state("on" if client.spans else "off"),
            Text(
                "yes" if client.is_recorded else "no", style="" if client.is_recorded else "yellow"
            ),
            client.note,
        )
    return table


def _environment(report: DoctorReport) -> RenderableType:
    table = Columns(
        Column("environment", least=20), Column("value", least=10), Column("", wraps=True)
    )
    for variable in report.variables:
        table.add_row(one_row(variable.name), one_row(variable.value or ""), variable.note)
    for name, version, note in report.tools:
        table.add_row(one_row(name), one_row(version), note)
    return table


_PLACES = {"arrived": "at", "failed": "at"}


def _delivery(report: DoctorReport) -> RenderableType:
    delivery = report.delivery
    text = Text("test span: ").append_text(_state(delivery.status))
    text.append(f" {_PLACES.get(delivery.status, 'to')} {delivery.destination}")
    if delivery.status == "arrived":
        text.append(f" in {delivery.milliseconds:.0f} ms")
    return text.append(f": {delivery.error}" if delivery.error else "")


def _state(status: str) -> Text:
    return Text(status, style=_STYLES.get(status, ""))
