"""`oteval serve` as users have it: its own processes, real exporters, the other commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from benchmarks.otlp_load import requests, send
from benchmarks.serve_kills import survive
from benchmarks.served import ROOT, Served, until
from oteval.cli import cli
from oteval.errors import ConfigError
from oteval.store import Store

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 200ms}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "oteval.yaml").write_text(RULES)
    server = Served(folder)
    yield server
    assert server.stop() == 0


def run_agent(exporter: SpanExporter) -> tuple[str, float]:
    """Emit an agent run as an instrumented agent does; return its trace id and when it ended."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
    tracer = provider.get_tracer("agent")
    said = [{"role": "user", "parts": [{"type": "text", "content": "refund 7"}]}]
    done = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
    with tracer.start_as_current_span("invoke_agent shop") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        root.set_attribute("gen_ai.agent.name", "shop")
        with tracer.start_as_current_span("chat m") as chat:
            chat.set_attribute("gen_ai.operation.name", "chat")
            chat.set_attribute("gen_ai.input.messages", json.dumps(said))
            chat.set_attribute("gen_ai.output.messages", json.dumps(done))
    ended = time.monotonic()
    trace_id = f"{root.get_span_context().trace_id:032x}"
    provider.shutdown()
    return trace_id, ended


@pytest.mark.parametrize("name", ["http", "http-gzip", "grpc", "grpc-gzip"])
def test_an_agent_is_scored_soon_after_it_ended(served: Served, name: str) -> None:
    """Any exporter of the OpenTelemetry SDK: seconds later the run is there, and its score."""
    url = f"http://127.0.0.1:{served.http}/v1/traces"
    if name == "http":
        exporter: SpanExporter = HttpExporter(url)
    elif name == "http-gzip":
        exporter = HttpExporter(url, compression=Compression.Gzip)
    else:
        import grpc

        packed = grpc.Compression.Gzip if "gzip" in name else None
        exporter = GrpcExporter(f"127.0.0.1:{served.grpc}", insecure=True, compression=packed)

    trace_id, ended = run_agent(exporter)

    def found() -> dict[str, object] | None:
        status, body = served.get(f"/api/trajectories/{trace_id}")
        known = json.loads(body)
        return known if status == 200 and known["scores"] else None

    known = until(found)
    took = time.monotonic() - ended
    assert [score["evaluator"] for score in known["scores"]] == ["tools"]
    assert [m["content"] for m in known["messages"]] == ["refund 7", "Done."]
    assert took < 15  # 2 s when the machine has nothing else to do


def test_the_other_commands_work_meanwhile(served: Served, tmp_path: Path) -> None:
    """trajectories, show, diff, score, reference and export, each in a process of its own."""
    first, _ = run_agent(HttpExporter(f"http://127.0.0.1:{served.http}/v1/traces"))
    second, _ = run_agent(HttpExporter(f"http://127.0.0.1:{served.http}/v1/traces"))
    until(lambda: served.get(f"/api/trajectories/{second}")[0] == 200)

    listed = served.cli("trajectories", "--json", "--limit", "1")
    shown = served.cli("show", first)
    diff = served.cli("diff", first, second)
    scored = served.cli("score", "--json")
    kept = served.cli("reference", "add", first, "--name", "r")
    exported = served.cli("export", "--parquet", str(tmp_path / "out"))

    assert json.loads(listed.stdout)["agent"] == "shop"
    assert "refund 7" in shown.stdout
    assert diff.returncode == 0, diff.stderr
    assert json.loads(scored.stdout.splitlines()[0])["evaluator"] == "tools"
    assert kept.returncode == 0, kept.stderr
    assert (tmp_path / "out" / "spans.parquet").exists(), exported.stderr


def test_loading_files_into_a_served_database_is_refused(served: Served) -> None:
    """One line says what to do."""
    (served.db.parent / "t.json").write_text('{"resourceSpans": []}')

    found = served.cli("ingest", "t.json")

    assert found.returncode == 2
    assert "oteval serve has it open" in found.stderr


def test_health_readiness_metrics_and_api(served: Served) -> None:
    """Each path answers what it is for."""
    ready = served.get("/readyz")
    metrics = served.get("/metrics")[1].decode()

    assert served.get("/healthz") == (200, b"ok\n")
    assert ready[0] == 200
    assert json.loads(ready[1])["is_ready"]
    assert "oteval_received_requests_total" in metrics
    assert "oteval_spool_bytes" in metrics
    assert "oteval_scores" in metrics
    assert json.loads(served.get("/api/status")[1])["error"] == ""
    assert isinstance(json.loads(served.get("/api/trajectories?limit=2")[1]), list)
    assert isinstance(json.loads(served.get("/api/scores")[1]), list)
    assert served.get("/api/trajectories/nobody")[0] == 404
    assert served.get("/api/nothing")[0] == 404
    assert served.get("/api/trajectories?limit=x")[0] == 400


def test_a_page_that_points_its_name_here_reads_nothing(served: Served) -> None:
    """Without a read token only this machine's own names are answered."""
    status, _ = served.get("/api/trajectories", {"host": "evil.example:4318"})

    assert status == 403


def test_duplicates_are_stored_once(served: Served) -> None:
    """A request that is sent twice, as after a lost answer, is stored once."""
    loads = list(requests(5, seed=5))
    before = served.drained()["stored"]

    send(served.http, loads + loads)
    after = until(
        lambda: (s := served.state()["stored"])["spans"] >= before["spans"] + 40 and s, 20
    )
    served.drained()
    after = served.state()["stored"]

    assert after["spans"] - before["spans"] == 40
    assert after["duplicates"] - before["duplicates"] == 40


def test_the_socket_is_for_the_owner_alone(served: Served) -> None:
    """Who may not open the database may not open the socket."""
    mode = Path(f"{served.db}.sock").stat().st_mode & 0o777

    assert mode == 0o600


def test_while_nothing_is_stored_all_is_taken_until_the_quota(tmp_path: Path) -> None:
    """With storing held up, requests are taken up to the quota; what was acknowledged is stored."""
    server = Served(tmp_path, "--quota", "16MB", "--max-request", "4MB")
    try:
        decoder, back = server.pid("decoder"), server.pid("back")
        for pid in (decoder, back):
            os.kill(pid, signal.SIGSTOP)
        sent = send(server.http, list(requests(2000)), senders=2)
        answer = server.post("/v1/traces", next(requests(200)).body)
        ready = server.get("/readyz")
        for pid in (decoder, back):
            os.kill(pid, signal.SIGCONT)
        wanted = len(sent.acknowledged)
        until(lambda: server.state().get("stored", {}).get("spans") == wanted, 30)
    finally:
        status = server.stop()
    with Store(server.db) as store:
        spans, _ = store.spans.count()

    assert sent.answers["200"] > 0
    assert sent.answers["503"] > 0
    assert (answer[0], answer[2]["retry-after"]) == (503, "1")
    assert ready[0] == 503
    assert "quota" in json.dumps(json.loads(ready[1])["reasons"])
    assert spans == wanted
    assert status == 0


def test_a_stop_stores_what_was_acknowledged(tmp_path: Path) -> None:
    """SIGTERM right after the last answer: exit 0, everything in the database, no files left."""
    server = Served(tmp_path)
    sent = send(server.http, list(requests(300)))

    status = server.stop()

    assert status == 0
    with Store(server.db) as store:
        assert store.spans.count()[0] == len(sent.acknowledged) == 2400
    assert not Path(f"{server.db}.server.json").exists()
    assert not Path(f"{server.db}.sock").exists()


@pytest.mark.slow
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    """A SIGKILL of each process under load: stored once, scored once, nothing missing."""
    outcome = survive(tmp_path, ("back", "front", "decoder"), rate=800, seed=3)

    assert outcome.acknowledged > 0
    assert outcome.trajectories > 0
    assert outcome.is_sound, outcome


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """On a full disk: refused with the reason while it is full; all that was taken is kept."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        server = Served(disk)
        ballast = disk / "ballast"
        decoder, back = server.pid("decoder"), server.pid("back")
        before = send(server.http, list(requests(50)))
        server.drained()
        free = os.statvfs(disk)
        size = free.f_bavail * free.f_frsize - (60 << 20)
        ballast.write_bytes(b"\0" * size)
        time.sleep(0.3)
        sent = send(server.http, list(requests(50)), senders=2)
        ready = server.get("/readyz")
        ballast.unlink()
        later = send(server.http, list(requests(20)), retry=10)
        server.drained()
        status = server.stop()
        with Store(server.db) as store:
            spans, _ = store.spans.count()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)

    assert decoder != back
    assert sent.answers["503"] > 0
    assert ready[0] == 503
    assert "the disk is full" in json.loads(ready[1])["reasons"]
    assert spans == sum(len(each.acknowledged) for each in (before, sent, later))
    assert status == 0


def serve_once(folder: Path, *arguments: str, **environment: str) -> str:
    """Return what a server that does not begin says."""
    found = subprocess.run(
        [sys.executable, "-m", "oteval", "serve", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=60,
        check=False,
    )
    assert found.returncode == 2, found.stderr
    return found.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--http", "0.0.0.0:0"), "OTEVAL_INGEST_TOKEN"),
        (("--grpc", "[::]:0"), "OTEVAL_INGEST_TOKEN"),
        (("--http", "nonsense", "--insecure"), "write HOST:PORT"),
        (("--quota", "64MB"), "quarter"),
        (("--quota", "much"), "write a size"),
        (("--tls-cert", "c.pem"), "--tls-key"),
    ],
)
def test_options_it_refuses(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one line that says what to do."""
    monkeypatch.chdir(tmp_path)
    for name in ("OTEVAL_INGEST_TOKEN", "OTEVAL_READ_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match=said):
        cli.main(["serve", *arguments], standalone_mode=False)


def test_what_it_cannot_begin_with(tmp_path: Path) -> None:
    """A port in use, and a file that is no database, are said in one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        in_use = serve_once(tmp_path, "--http", f"127.0.0.1:{port}", "--grpc", "")
    (tmp_path / "bad.duckdb").write_bytes(b"no database" * 1000)
    free = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")

    assert "give another --http" in in_use
    assert "not an oteval database" in serve_once(tmp_path, "--db", "bad.duckdb", *free)


def make_certificate(folder: Path) -> None:
    """Make ``cert.pem`` and ``key.pem``, of this machine and its own authority."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )


def test_tokens_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS, the ingest token sends and the read token reads, and neither does the other's."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    make_certificate(tmp_path)
    tokens = {"OTEVAL_INGEST_TOKEN": "in", "OTEVAL_READ_TOKEN": "out"}
    server = Served(tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem", environment=tokens)
    url, cert = f"https://127.0.0.1:{server.http}", str(tmp_path / "cert.pem")
    import grpc
    import httpx

    try:
        headers = {"authorization": "Bearer in"}
        trace_id, _ = run_agent(
            HttpExporter(f"{url}/v1/traces", certificate_file=cert, headers=headers)
        )
        credentials = grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
        over_grpc, _ = run_agent(
            GrpcExporter(
                f"localhost:{server.grpc}",
                credentials=credentials,
                headers=(("authorization", "Bearer in"),),
            )
        )
        import ssl

        context = ssl.create_default_context(cafile=cert)
        with httpx.Client(verify=context, base_url=url) as client:
            right = {"authorization": "Bearer out"}
            for name in (trace_id, over_grpc):
                path = f"/api/trajectories/{name}"
                until(lambda p=path: client.get(p, headers=right).status_code == 200)
            refused = [
                client.get("/api/status").status_code,
                client.get("/metrics", headers=headers).status_code,
                client.post("/v1/traces", headers=right).status_code,
            ]
            health = client.get("/healthz").status_code
    finally:
        server.stop()

    assert refused == [401, 401, 401]
    assert health == 200
    assert not any(token in "".join(server.log) for token in ("Bearer", "OTEVAL_READ"))


def test_without_its_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the extra."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r'pip install "oteval\[serve\]"'):
        cli.main(["serve"], standalone_mode=False)


def test_only_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    """With --tls-client-ca a client without one gets no connection, over either protocol."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    make_certificate(tmp_path)
    files = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-client-ca", "cert.pem")
    server = Served(tmp_path, *files)
    url, cert, key = f"https://127.0.0.1:{server.http}", tmp_path / "cert.pem", tmp_path / "key.pem"
    import ssl

    import grpc
    import httpx

    try:
        trusting = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(verify=trusting) as client, pytest.raises(httpx.TransportError):
            client.get(f"{url}/healthz")
        trusting.load_cert_chain(cert, key)
        with httpx.Client(verify=trusting) as client:
            known = client.get(f"{url}/healthz")
        answers = []
        for own in ((), (key.read_bytes(), cert.read_bytes())):
            credentials = grpc.ssl_channel_credentials(cert.read_bytes(), *own)
            with grpc.secure_channel(f"localhost:{server.grpc}", credentials) as channel:
                send = channel.unary_unary(
                    "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
                )
                try:
                    answers.append(bytes(send(b"", timeout=20)))
                except grpc.RpcError as error:
                    answers.append(error.code())
    finally:
        server.stop()

    assert known.status_code == 200
    assert answers == [grpc.StatusCode.UNAVAILABLE, b""]
