"""Every backend as a small scripted server, with the client that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from oteval.extras.backends.clickhouse import ClickHouse
from oteval.extras.backends.jaeger import Jaeger
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.langfuse import Langfuse
from oteval.extras.backends.langsmith import LangSmith
from oteval.extras.backends.mlflow import MLflow
from oteval.extras.backends.phoenix import Phoenix
from oteval.extras.backends.tempo import Tempo
from oteval.scoring.annotations import Annotation

from . import test_langfuse, test_langsmith
from .json_server import Answer, JsonServer, Query, answering
from .test_jaeger import NOW_US, FakeJaeger
from .test_langfuse import FakeLangfuse
from .test_langsmith import FakeLangSmith
from .test_mlflow import FakeMLflow
from .test_phoenix import TRACE, FakePhoenix
from .test_tempo import NOW_S, FakeTempo

Answers = Callable[[str, str, Query, Any], Answer]
SECRET = "plain-Words4ndDigits"


class FakeClickHouse:
    """The state of the small server: rows of ``otel_traces`` by the number of their span."""

    def __init__(self) -> None:
        self.rows = [
            {
                "Timestamp": str(number * 10**9),
                "TraceId": f"{number:032x}",
                "SpanId": f"{number:016x}",
                "ParentSpanId": "",
                "SpanName": "chat",
                "ServiceName": "agent",
                "Duration": "5",
                "SpanAttributes": {"gen_ai.operation.name": "chat"},
                "Events.Timestamp": [str(number * 10**9)],
                "Events.Name": ["x"],
                "Events.Attributes": [{}],
            }
            for number in range(1, 6)
        ]

    def answer(self, method: str, path: str, query: Query, body: Any) -> Answer:
        """Return the answer to a query."""
        del method, path, body
        if query["query"][0].startswith("DESCRIBE"):
            return 200, {"data": [{"name": name} for name in self.rows[0]]}
        after = query.get("param_span", [""])[0]
        return 200, {"data": [row for row in self.rows if str(row["SpanId"]) > after][:2]}


@dataclass(frozen=True)
class Backend:
    """A backend for a test.

    Attributes:
        fake: Makes a small server with data.
        client: Returns its client.
        ids: The trace and span id of a span that it has.
        writes: Whether scores are written to it.
    """

    fake: Callable[[], Any]
    client: Callable[[JsonApi], Any]
    ids: tuple[str, str] = ("", "")
    writes: bool = True


FIRST = (f"{1:032x}", f"{1:016x}")
_RUN = test_langsmith.uuid_of(1).replace("-", "")
BACKENDS = {
    "phoenix": Backend(FakePhoenix, lambda api: Phoenix(api, page=2), (TRACE, FIRST[1])),
    "mlflow": Backend(FakeMLflow, lambda api: MLflow(api, page=2), FIRST),
    "langfuse": Backend(
        FakeLangfuse, lambda api: Langfuse(api, page=2, clock=lambda: test_langfuse.NOW_NS), FIRST
    ),
    "langsmith": Backend(
        FakeLangSmith,
        lambda api: LangSmith(api, page=2, clock=lambda: test_langsmith.NOW_NS),
        (_RUN, _RUN[-16:]),
    ),
    "clickhouse": Backend(FakeClickHouse, lambda api: ClickHouse(api, page=2), writes=False),
    "jaeger": Backend(
        FakeJaeger, lambda api: Jaeger(api, limit=3, clock=lambda: NOW_US * 1000), writes=False
    ),
    "tempo": Backend(
        FakeTempo, lambda api: Tempo(api, limit=3, clock=lambda: NOW_S * 10**9), writes=False
    ),
}
TARGETS = [name for name, backend in BACKENDS.items() if backend.writes]


@contextmanager
def connected(
    name: str, answers: Answers | None = None, **options: Any
) -> Iterator[tuple[Any, JsonServer]]:
    """Yield the client of a backend, and its server.

    Args:
        name: One of `BACKENDS`.
        answers: The answers of the server; by default those of its fake.
        options: Options of the `JsonApi`.
    """
    backend = BACKENDS[name]
    with answering(answers or backend.fake().answer) as server:
        given: dict[str, Any] = {"patience": 1.0, "sleep": lambda _seconds: None, **options}
        api = JsonApi(server.url, name, {"Authorization": f"Bearer {SECRET}"}, **given)
        with closing(backend.client(api)) as client:
            yield client, server


def annotation_for(name: str) -> Annotation:
    """Return an annotation of a span that a backend has."""
    trace_id, span_id = BACKENDS[name].ids
    return Annotation(trace_id, span_id, "tools", "oteval:v1", "CODE", 0.5, "pass", "why")
