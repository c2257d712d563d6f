"""Scores as log events, to a real HTTP server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from oteval.base.clients.otlp_client import HttpClient
from oteval.ingest.otlp import decode_protobuf
from oteval.model import Score
from oteval.scoring.score_events import is_own
from oteval.serve.publish.events import EventExporter

from ...make import run, score
from ...otlp_endpoint import Downstream


def sent(folder: Path, downstream: Downstream, *scores: Score, **fields: Any) -> list[Any]:
    """Emit scores, and return the log records that arrive."""
    events = EventExporter(folder, HttpClient(downstream.url), version="1.2", threaded=False)
    events.emit([(one, run(1, **fields)) for one in scores])
    while events.pump():
        pass
    events.close()
    found = []
    for body in downstream.bodies("/v1/logs"):
        request = ExportLogsServiceRequest.FromString(body)
        found += [
            r
            for resource in request.resource_logs
            for s in resource.scope_logs
            for r in s.log_records
        ]
    return found


def attributes(record: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}


def test_an_event_has_the_context_of_the_scored_span(
    tmp_path: Path, downstream: Downstream
) -> None:
    """The record has the span's ids, the event's name and the attributes of the conventions."""
    one = score(1, comment="because", label="pass", time_ns=77)

    told = {"gen_ai.response.id": "r-1", "gen_ai.request.model": "m"}
    (record,) = sent(tmp_path, downstream, one, conversation_id="c", attributes=told)

    assert record.event_name == "gen_ai.evaluation.result"
    assert (record.trace_id.hex(), record.span_id.hex()) == (one.trace_id, one.span_id)
    assert (record.time_unix_nano, record.severity_text) == (77, "INFO")
    found = attributes(record)
    assert found["gen_ai.evaluation.name"] == "e"
    assert found["gen_ai.evaluation.score.value"] == 1.0
    assert found["gen_ai.evaluation.score.label"] == "pass"
    assert found["gen_ai.evaluation.explanation"] == "because"
    assert found["gen_ai.conversation.id"] == "c"
    assert found["gen_ai.response.id"] == "r-1"
    assert "gen_ai.request.model" not in found
    assert found["oteval.evaluator.version"] == "v"
    assert "error.type" not in found


def test_a_failure_is_a_warning_with_its_type(tmp_path: Path, downstream: Downstream) -> None:
    """An error has error.type and no value; a score that was not evaluated has no event."""
    failed = score(1, status="error", comment="ConnectError: no route")
    other = score(1, status="not_evaluated", comment="no reference")

    (record,) = sent(tmp_path, downstream, failed, other)

    found = attributes(record)
    assert record.severity_text == "WARN"
    assert found["error.type"] == "ConnectError"
    assert "gen_ai.evaluation.score.value" not in found
    assert "gen_ai.response.id" not in found


@pytest.mark.parametrize(
    ("comment", "kind"),
    [("x went wrong: y", "_OTHER"), ("", "_OTHER"), ("KeyError: 'a'", "KeyError")],
)
def test_the_type_of_an_error_is_one_word(
    tmp_path: Path, downstream: Downstream, comment: str, kind: str
) -> None:
    """error.type has few values, whatever an error's text is."""
    (record,) = sent(tmp_path, downstream, score(1, status="error", comment=comment))

    assert attributes(record)["error.type"] == kind


def test_a_lone_surrogate_is_replaced(tmp_path: Path, downstream: Downstream) -> None:
    """A lone surrogate in a comment breaks no request."""
    (record,) = sent(tmp_path, downstream, score(1, comment="a\ud800b"))

    assert attributes(record)["gen_ai.evaluation.explanation"] == "a?b"


def test_an_event_that_comes_back_is_known(tmp_path: Path, downstream: Downstream) -> None:
    """A decoded event of oteval is recognised as its own; another sender's is not."""
    sent(tmp_path, downstream, score(1))

    (record,) = decode_protobuf(downstream.bodies("/v1/logs")[0]).logs

    assert is_own(record)
    assert not is_own(replace(record, scope="someone.else"))


def test_events_wait_for_an_endpoint_that_is_away(tmp_path: Path, downstream: Downstream) -> None:
    """Events that could not be sent are sent by the next process."""
    dead = EventExporter(tmp_path, HttpClient("http://127.0.0.1:9", timeout=0.5), threaded=False)
    dead.emit([(score(1), run(1))])
    dead.pump()
    dead.close()

    events = EventExporter(tmp_path, HttpClient(downstream.url), threaded=False)
    while events.pump():
        pass
    events.close()

    assert len(downstream.bodies("/v1/logs")) == 1
