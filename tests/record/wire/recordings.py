"""Record the exchanges of a block in memory, through OpenTelemetry's SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from oteval.base.redaction.secrets import SecretRedactor
from oteval.ingest.sdk_objects import log_record_of
from oteval.model import LogRecord
from oteval.model.recording import Exchange, from_log
from oteval.record.wire import interception
from oteval.record.wire.recorder import WireRecorder


class Recorded:
    """The exchanges that were recorded so far.

    Attributes:
        recorder: The recorder.
    """

    def __init__(self, recorder: WireRecorder, exporter: InMemoryLogRecordExporter) -> None:
        self.recorder = recorder
        self._exporter = exporter

    def logs(self) -> list[LogRecord]:
        """Return the log records."""
        return [log_record_of(each) for each in self._exporter.get_finished_logs()]

    def exchanges(self) -> list[Exchange]:
        """Return the exchanges, in the order in which they ended."""
        return [found for found in map(from_log, self.logs()) if found is not None]

    def one(self) -> Exchange:
        """Return the only exchange."""
        (found,) = self.exchanges()
        return found

    def text(self) -> str:
        """Return everything that was recorded, as text to look for secrets in."""
        kept = [(each.body, dict(each.attributes)) for each in self.logs()]
        return json.dumps(kept, default=str, ensure_ascii=False)


@contextmanager
def recording(
    *, redactor: SecretRedactor | None = None, mocks: bool = False, **options: Any
) -> Iterator[Recorded]:
    """Record all requests of the block."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    recorder = WireRecorder(
        provider, redactor=redactor or SecretRedactor(environment={}), **options
    )
    with interception.add(recorder, mocks=mocks):
        yield Recorded(recorder, exporter)
    provider.shutdown()
