"""Interception at the transports of httpx and httpx2."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor, HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oteval.record.wire import interception

from ...model_server import Server, completion, serving

LIBRARIES: list[Any] = [httpx, httpx2]


class Log:
    """An interceptor that notes the requests it sends."""

    def __init__(self, name: str = "", notes: list[str] | None = None) -> None:
        self.notes = [] if notes is None else notes
        self.name = name

    def handle(self, request: Any, send: Any) -> Any:
        """Note and send a request."""
        self.notes.append(self.name + request.url.path)
        return send(request)

    async def handle_async(self, request: Any, send: Any) -> Any:
        """Note and send a request."""
        self.notes.append(self.name + request.url.path)
        return await send(request)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(lambda _body, _number: completion("Hello.")) as running:
        yield running


def post(client: Any, server: Server, path: str = "/chat") -> Any:
    return client.post(server.url + path, json={"messages": []})


@pytest.mark.parametrize("library", LIBRARIES)
def test_requests_of_both_libraries_pass_the_interceptor(library: Any, server: Server) -> None:
    """Sync and async clients are intercepted, also those that existed before."""
    log = Log()
    with library.Client(verify=False) as old:
        with interception.add(log):
            assert post(old, server).status_code == 200

            async def ask() -> None:
                async with library.AsyncClient(verify=False) as client:
                    await post(client, server, "/async")

            asyncio.run(ask())
        post(old, server, "/later")
    assert log.notes == ["/v1/chat", "/v1/async"]


def test_the_last_interceptor_is_outermost_and_may_be_removed_first(server: Server) -> None:
    notes: list[str] = []
    first = interception.add(Log("first ", notes))
    second = interception.add(Log("second ", notes))
    with httpx.Client(verify=False) as client:
        post(client, server, "/a")
        first.remove()
        first.remove()
        post(client, server, "/b")
        second.remove()
        post(client, server, "/c")
    assert notes == ["second /v1/a", "first /v1/a", "second /v1/b"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_removal_restores_the_classes(library: Any) -> None:
    classes = [library.HTTPTransport, library.AsyncHTTPTransport, library.MockTransport]
    before = [dict(vars(each)) for each in classes]
    finders = list(sys.meta_path)
    with interception.add(Log()):
        assert dict(vars(classes[0])) != before[0]
    assert [dict(vars(each)) for each in classes] == before
    assert sys.meta_path == finders


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_interceptor_may_answer_without_a_server(library: Any) -> None:
    """A replay answers requests itself; `library_of` gives the classes to answer with."""

    class Answer:
        def handle(self, request: Any, _send: Any) -> Any:
            return interception.library_of(request).Response(200, json={"said": "recorded"})

        async def handle_async(self, request: Any, send: Any) -> Any:
            return self.handle(request, send)

    with interception.add(Answer()), library.Client(verify=False) as client:
        assert client.get("http://nowhere.invalid/").json() == {"said": "recorded"}


def test_openai_clients_are_intercepted(server: Server) -> None:
    log = Log()
    with openai.OpenAI(base_url=server.url, api_key="k") as client, interception.add(log):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert log.notes == ["/v1/chat/completions"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("ends", ["hook first", "instrumentation first"])
@pytest.mark.parametrize("starts", ["hook first", "instrumentation first"])
def test_works_with_opentelemetry_in_any_order(
    library: Any, starts: str, ends: str, server: Server
) -> None:
    """Either may be added first and removed first; both see each request once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentors = {httpx: HTTPXClientInstrumentor, httpx2: HTTPX2ClientInstrumentor}
    instrumentor: Any = instrumentors[library]()
    original = vars(library.HTTPTransport)["handle_request"]
    log = Log()
    if starts == "hook first":
        added = interception.add(log)
        instrumentor.instrument(tracer_provider=provider)
    else:
        instrumentor.instrument(tracer_provider=provider)
        added = interception.add(log)
    with library.Client(verify=False) as client:
        post(client, server, "/both")
        (added.remove if ends == "hook first" else instrumentor.uninstrument)()
        post(client, server, "/one")
        (instrumentor.uninstrument if ends == "hook first" else added.remove)()
        post(client, server, "/none")
    hooked = ["/v1/both"] if ends == "hook first" else ["/v1/both", "/v1/one"]
    assert log.notes == hooked
    assert len(exporter.get_finished_spans()) == (2 if ends == "hook first" else 1)
    assert vars(library.HTTPTransport)["handle_request"] is original


@pytest.mark.parametrize("library", LIBRARIES)
def test_transports_that_wrap_or_extend_others_give_each_request_once(
    library: Any, server: Server
) -> None:
    class Extended(library.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            return super().handle_request(request)

    class Wrapping(library.BaseTransport):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inner = Extended()

        def handle_request(self, request: Any) -> Any:
            return self.inner.handle_request(request)

        def close(self) -> None:
            self.inner.close()

    log = Log()
    with interception.add(log), library.Client(transport=Wrapping()) as client:
        post(client, server)
    assert log.notes == ["/v1/chat"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_mock_transports_are_intercepted_on_request_only(library: Any) -> None:
    plain, both = Log(), Log()
    inner = library.MockTransport(lambda _request: library.Response(204))
    # A mock transport that passes its request on: intercepted once, not twice.
    outer = library.MockTransport(inner.handle_request)
    with (
        interception.add(plain),
        interception.add(both, mocks=True),
        library.Client(transport=outer) as client,
    ):
        assert client.get("http://mocked/path").status_code == 204
    assert (plain.notes, both.notes) == ([], ["/path"])


def test_errors_of_an_interceptor_reach_the_agent() -> None:
    """A replay stops the agent by an exception that `except Exception` does not catch."""

    class Stop(BaseException):
        pass

    class Refuse(Log):
        def handle(self, _request: Any, _send: Any) -> Any:
            raise Stop

    with interception.add(Refuse()), httpx2.Client(verify=False) as client, pytest.raises(Stop):
        client.get("http://nowhere.invalid/")


def test_a_hook_below_a_foreign_function_does_nothing_after_its_removal(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that replaced the hooked method keeps working, and a later hook takes effect."""
    log = Log()
    original = vars(httpx.HTTPTransport)["handle_request"]
    added = interception.add(log)
    hooked = httpx.HTTPTransport.handle_request
    monkeypatch.setattr(
        httpx.HTTPTransport, "handle_request", lambda self, request: hooked(self, request)
    )
    added.remove()
    with httpx.Client(verify=False) as client:
        post(client, server)
        assert log.notes == []
        with interception.add(log):
            post(client, server)
        assert log.notes == ["/v1/chat"]
    monkeypatch.undo()
    interception.add(log).remove()
    assert vars(httpx.HTTPTransport)["handle_request"] is original


def test_hooked_methods_and_responses_can_be_pickled(server: Server) -> None:
    with interception.add(Log()), httpx.Client(verify=False) as client:
        assert pickle.loads(pickle.dumps(post(client, server))).status_code == 200
        method = httpx.HTTPTransport.handle_request
        assert pickle.loads(pickle.dumps(method)) is method


def test_interceptors_may_come_and_go_while_requests_run(server: Server) -> None:
    """Threads send requests while another adds and removes interceptors."""
    original = vars(httpx.HTTPTransport)["handle_request"]
    log = Log()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with httpx.Client(verify=False) as client:
                for _ in range(20):
                    post(client, server)
        except BaseException as error:
            failures.append(error)

    with interception.add(log):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            interception.add(Log()).remove()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(log.notes) == 80
    assert vars(httpx.HTTPTransport)["handle_request"] is original


IMPORTS = """
import sys
from oteval.record.wire import interception

class Log:
    def handle(self, request, send):
        return interception.library_of(request).Response(200, text="hooked")

added = interception.add(Log())
assert not {"httpx", "httpx2", "openai", "duckdb", "pyarrow", "grpc", "pydantic"} & set(sys.modules)
%s
import httpx, httpx2
for library in (httpx, httpx2):
    assert library.get("http://nowhere.invalid/").text == "hooked", library
    assert library.__spec__.loader.get_filename()
added.remove()
assert httpx.HTTPTransport.handle_request.__module__.startswith("httpx")
assert not hasattr(httpx.HTTPTransport.handle_request, "__wrapped__")
assert not hasattr(httpx2.HTTPTransport.handle_request, "__wrapped__")
"""


@pytest.mark.parametrize("first", ["", "import httpx2; httpx2.alias_httpx()"])
def test_libraries_are_hooked_when_they_are_imported(first: str) -> None:
    """Adding an interceptor imports no library, and later imports are hooked, also by alias."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS % first], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
