"""`oteval serve` with all its processes, real exporters and the other commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExporter

from benchmarks.otlp_load import requests, send
from benchmarks.serve_kills import survive
from benchmarks.served import ROOT, Served, until
from oteval.base.errors import ConfigError
from oteval.cli import cli
from oteval.ingest.receiver.auth import Access
from oteval.serve.listener_process import ListenerProcess
from oteval.serve.server_config import ServerConfig
from oteval.store import Store

from ..commands import Done, Run
from .clients import INGEST, READ, RULES, TOKENS, TRACES, agent_run, run_agent


@pytest.mark.parametrize("name", ["http", "http-gzip", "grpc", "grpc-gzip"])
def test_an_agent_is_scored_soon_after_it_ended(served: Served, name: str) -> None:
    """A run sent by any exporter of the OpenTelemetry SDK has its score seconds later."""
    url = f"http://127.0.0.1:{served.http}/v1/traces"
    if name == "http":
        exporter: SpanExporter = HttpExporter(url)
    elif name == "http-gzip":
        exporter = HttpExporter(url, compression=Compression.Gzip)
    else:
        packed = grpc.Compression.Gzip if "gzip" in name else None
        exporter = GrpcExporter(f"127.0.0.1:{served.grpc}", insecure=True, compression=packed)

    trace_id, ended = run_agent(exporter)

    def scored() -> dict[str, object] | None:
        status, body = served.get(f"/api/trajectories/{trace_id}")
        run_json = json.loads(body)
        return run_json if status == 200 and run_json["scores"] else None

    scored_run = until(scored)
    took = time.monotonic() - ended
    assert [score["evaluator"] for score in scored_run["scores"]] == ["tools"]
    assert [m["content"] for m in scored_run["messages"]] == ["refund 7", "Done."]
    assert took < 15  # 2 s on an idle machine


def test_the_other_commands_work_meanwhile(served: Served, oteval: Run, tmp_path: Path) -> None:
    """trajectories, show, diff, score, reference and export use the database of the server."""
    first, _ = run_agent(HttpExporter(f"http://127.0.0.1:{served.http}/v1/traces"))
    second, _ = run_agent(HttpExporter(f"http://127.0.0.1:{served.http}/v1/traces"))
    until(lambda: served.get(f"/api/trajectories/{second}")[0] == 200)
    rules = served.db.parent / "oteval.yaml"

    def run(*arguments: str | Path) -> Done:
        return oteval(*arguments, "--db", served.db)

    listed = served.cli("trajectories", "--json", "--limit", "1")  # in another process
    show = run("show", first)
    diff = run("diff", first, second)
    scored = run("score", "--json", "-c", rules)
    added = run("reference", "add", first, "--name", "r")
    exported = run("export", "--parquet", tmp_path / "out")

    assert json.loads(listed.stdout)["agent"] == "shop"
    assert "refund 7" in show.out
    assert diff.status == 0, diff.err
    assert scored.rows[0]["evaluator"] == "tools"
    assert added.status == 0, added.err
    assert (tmp_path / "out" / "spans.parquet").exists(), exported.err


def test_loading_files_into_a_served_database_is_refused(served: Served, oteval: Run) -> None:
    """The error is one line with the remedy."""
    (served.db.parent / "t.json").write_text('{"resourceSpans": []}')

    completed = oteval("ingest", served.db.parent / "t.json", "--db", served.db)

    assert completed.status == 2
    assert "oteval serve has it open" in completed.err


def test_health_readiness_metrics_and_api(served: Served) -> None:
    """Each path gives its answer."""
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
    assert served.get("/api/trajectories/unknown")[0] == 404
    assert served.get("/api/nothing")[0] == 404
    assert served.get("/api/trajectories?limit=x")[0] == 400


def test_a_page_that_points_its_name_here_reads_nothing(served: Served) -> None:
    """Without a read token, only requests for local host names are answered."""
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
    """A user who cannot open the database cannot open the socket."""
    mode = Path(f"{served.db}.sock").stat().st_mode & 0o777

    assert mode == 0o600


@pytest.mark.slow
def test_while_nothing_is_stored_all_is_taken_until_the_quota(tmp_path: Path) -> None:
    """While storing is blocked, requests are accepted up to the quota; a stop stores them all.

    The exit status is 0, all acknowledged spans are in the database, and no file is left.
    """
    server = Served(tmp_path, "--quota", "16MB", "--max-request", "4MB", "--grace", "60")
    try:
        decoder, storage = server.pid("decoder"), server.pid("storage")
        for pid in (decoder, storage):
            os.kill(pid, signal.SIGSTOP)
        acknowledged, answer = fill_spool(server)
        ready = server.get("/readyz")
    finally:
        for pid in (decoder, storage):
            os.kill(pid, signal.SIGCONT)
        status = server.stop()
    with Store(server.db) as store:
        spans, _ = store.spans.count()

    assert acknowledged > 0
    assert (answer[0], answer[2]["retry-after"]) == (503, "1")
    assert ready[0] == 503
    assert "quota" in json.dumps(json.loads(ready[1])["reasons"])
    assert spans == 2 * acknowledged
    assert status == 0
    assert not Path(f"{server.db}.server.json").exists()
    assert not Path(f"{server.db}.sock").exists()


def count_until_refused(server: Served) -> int:
    """Send runs until one is refused; return how many were acknowledged."""
    acknowledged = 0

    def is_refused() -> bool:
        nonlocal acknowledged
        status = server.post("/v1/traces", agent_run()[1].SerializeToString())[0]
        acknowledged += status == 200
        return status == 503

    until(is_refused)
    return acknowledged


def fill_spool(server: Served) -> tuple[int, tuple[int, bytes, Mapping[str, str]]]:
    """Send runs of 1 MB until one is refused; return the accepted count and the refusal."""
    for count in range(64):
        _, request = agent_run("x" * (1 << 20))
        answer = server.post("/v1/traces", request.SerializeToString())
        if answer[0] != 200:
            return count, answer
    raise AssertionError("nothing is refused")


@pytest.mark.slow
def test_killed_processes_lose_nothing(tmp_path: Path) -> None:
    """After a SIGKILL of each process under load, every run is stored and scored once."""
    outcome = survive(tmp_path, ("storage", "listener", "decoder"), rate=800, seed=3)

    assert outcome.acknowledged > 0
    assert outcome.trajectories > 0
    assert outcome.is_sound, outcome


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A full disk refuses requests with the reason; all accepted requests are kept."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        server = Served(disk)
        ballast = disk / "ballast"
        before = send(server.http, list(requests(50)))
        server.drained()
        free = os.statvfs(disk)
        size = free.f_bavail * free.f_frsize - (60 << 20)
        ballast.write_bytes(b"\0" * size)
        probes = count_until_refused(server)
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

    assert sent.answers["503"] > 0
    assert ready[0] == 503
    assert "the disk is full" in json.loads(ready[1])["reasons"]
    assert spans == sum(len(each.acknowledged) for each in (before, sent, later)) + 2 * probes
    assert status == 0


def serve_once(folder: Path, *arguments: str, **environment: str) -> str:
    """Return the last line on stderr of a server that does not start."""
    completed = subprocess.run(
        [sys.executable, "-m", "oteval", "serve", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=60,
        check=False,
    )
    assert completed.returncode == 2, completed.stderr
    return completed.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
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
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error is one line with the remedy."""
    monkeypatch.chdir(tmp_path)
    for name in ("OTEVAL_INGEST_TOKEN", "OTEVAL_READ_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match=message):
        cli.main(["serve", *arguments], standalone_mode=False)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """One line names the option to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = ServerConfig(str(tmp_path / "a.duckdb"), http=address, grpc="")
        with pytest.raises(ConfigError, match="give another --http"):
            ListenerProcess(config, Access.of(), tls=None)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    """The error is one line: the file is not a database."""
    (tmp_path / "bad.duckdb").write_bytes(b"no database" * 1000)
    free = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")

    assert "not an oteval database" in serve_once(tmp_path, "--db", "bad.duckdb", *free)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server with TLS and tokens that only accepts clients with a certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("secured")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    # A self-signed certificate for this machine, which is also the authority.
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "oteval.yaml").write_text(RULES)
    files = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--tls-client-ca", "cert.pem")
    server = Served(folder, *files, environment=TOKENS)
    yield Secured(server, certificate, key)
    server.stop()


class Secured(NamedTuple):
    """A server with TLS, and the files of a client's certificate."""

    server: Served
    certificate: Path
    key: Path

    def http(self, *, has_certificate: bool = True) -> httpx.Client:
        """Return an HTTP client."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if has_certificate:
            context.load_cert_chain(self.certificate, self.key)
        return httpx.Client(
            verify=context, base_url=f"https://127.0.0.1:{self.server.http}", timeout=60
        )

    def credentials(self, *, has_certificate: bool = True) -> grpc.ChannelCredentials:
        """Return the credentials of a gRPC client."""
        own = (self.key.read_bytes(), self.certificate.read_bytes()) if has_certificate else ()
        return grpc.ssl_channel_credentials(self.certificate.read_bytes(), *own)


def test_tokens_and_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS, the ingest token can only send and the read token can only read."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    over_http, _ = run_agent(
        HttpExporter(
            f"https://127.0.0.1:{secured.server.http}/v1/traces",
            certificate_file=str(secured.certificate),
            client_certificate_file=str(secured.certificate),
            client_key_file=str(secured.key),
            headers=INGEST,
        )
    )
    over_grpc, _ = run_agent(
        GrpcExporter(
            f"localhost:{secured.server.grpc}",
            credentials=secured.credentials(),
            headers=tuple(INGEST.items()),
        )
    )

    with secured.http() as client:
        for name in (over_http, over_grpc):
            path = f"/api/trajectories/{name}"
            until(lambda p=path: client.get(p, headers=READ).status_code == 200)
        refused = [
            client.get("/api/status").status_code,
            client.get("/metrics", headers=INGEST).status_code,
            client.post("/v1/traces", headers=READ).status_code,
        ]
        health = client.get("/healthz").status_code

    assert refused == [401, 401, 401]
    assert health == 200
    assert not any(token in "".join(secured.server.log) for token in ("Bearer", "OTEVAL_READ"))


def test_only_clients_with_a_certificate_are_served(secured: Secured) -> None:
    """With --tls-client-ca, clients without a certificate are refused over both protocols."""
    with secured.http(has_certificate=False) as client, pytest.raises(httpx.TransportError):
        client.get("/healthz")
    with secured.http() as client:
        health = client.get("/healthz")
    answers = []
    for has_certificate in (False, True):
        credentials = secured.credentials(has_certificate=has_certificate)
        with grpc.secure_channel(f"localhost:{secured.server.grpc}", credentials) as channel:
            try:
                send = channel.unary_unary(TRACES)
                answers.append(bytes(send(b"", timeout=20, metadata=tuple(INGEST.items()))))
            except grpc.RpcError as error:
                answers.append(error.code())

    assert health.status_code == 200
    assert answers == [grpc.StatusCode.UNAVAILABLE, b""]


@pytest.mark.slow
def test_tls_without_certificates_of_clients(secured: Secured, tmp_path: Path) -> None:
    """Without --tls-client-ca, any client that trusts the certificate is served."""
    files = ("--tls-cert", str(secured.certificate), "--tls-key", str(secured.key))
    server = Served(tmp_path, *files)
    try:
        other = secured._replace(server=server)
        with other.http(has_certificate=False) as client:
            health = client.get("/healthz")
        trace_id, _ = run_agent(
            GrpcExporter(
                f"localhost:{server.grpc}", credentials=other.credentials(has_certificate=False)
            )
        )
        with other.http(has_certificate=False) as client:
            until(lambda: client.get(f"/api/trajectories/{trace_id}").status_code == 200)
    finally:
        server.stop()

    assert health.status_code == 200
