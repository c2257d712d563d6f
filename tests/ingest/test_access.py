"""Tokens by name: attributes and rates of senders, rotation, and the log of refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oteval.base.errors import ConfigError
from oteval.ingest import decode_json, decode_protobuf
from oteval.ingest.receiver.auth import Access, Token, digest_of
from oteval.ingest.receiver.responses import RequestRefused
from oteval.scoring.config import load_tokens
from oteval.serve.listener_rules import TokenRules

from .test_receiver import _Running, traces

SHOP = Token("shop", digest_of("shop-token"), attributes={"service.name": "shop", "tenant": "acme"})
SLOW = Token("slow", digest_of("slow-token"), requests_per_second=0.001)


class Clock:
    """A clock that tests set."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Access], _Running]]:
    """Return a function that starts a receiver."""
    started: list[_Running] = []

    def start(access: Access) -> _Running:
        started.append(_Running(tmp_path / "spool", access))
        return started[-1]

    yield start
    for running in started:
        running.close()


def resources(running: _Running) -> list[dict[str, Any]]:
    """Return the resource attributes of the spooled spans."""
    found = []
    for record in running.spooled():
        decoded = (
            decode_json(json.loads(record.payload))
            if record.encoding == "json"
            else decode_protobuf(record.payload)
        )
        found += [dict(span.resource) for span in decoded.spans]
    return found


def test_a_local_token_is_beside_the_others_and_opens_nothing():
    """It lets send, survives a reload, and changes nothing where no token is needed."""
    access = Access([Token("s", digest_of("sender"))])
    local = access.admit_local()
    access.replace([Token("s", digest_of("other"))])
    assert access.admit_sender(f"Bearer {local}").name == "local"
    assert not Access([Token("r", digest_of("x"), "read")]).needs("ingest")
    reading = Access([Token("r", digest_of("x"), "read")])
    with pytest.raises(RequestRefused):
        reading.admit_reader(f"Bearer {reading.admit_local()}")
    empty = Access()
    empty.admit_local()
    assert (empty.needs("ingest"), empty.tokens) == (False, ())


def test_a_token_sets_its_attributes(start: Callable[[Access], _Running]):
    """The token's service and tenant replace those that the sender claims, in every protocol."""
    running = start(Access([SHOP]))
    request = ExportTraceServiceRequest.FromString(traces(1))
    claimed = request.resource_spans[0].resource.attributes
    claimed.add(key="service.name").value.string_value = "bank"
    claimed.add(key="service.version").value.string_value = "1"
    span = {"traceId": "11" * 16, "spanId": "22" * 8, "name": "n"}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}

    body = request.SerializeToString()
    assert running.post(body, authorization="Bearer shop-token")[0] == 200
    assert running.call(body, token="shop-token") == b""
    as_json = json.dumps(document).encode()
    answer = running.post(as_json, "application/json", authorization="Bearer shop-token")

    assert answer[0] == 200
    bound = {"service.name": "shop", "tenant": "acme"}
    assert resources(running) == [
        {"service.version": "1", **bound},
        {"service.version": "1", **bound},
        bound,
    ]


def test_a_token_has_its_own_rate(start: Callable[[Access], _Running]):
    """Beyond its rate a sender is asked to retry later; others are unaffected."""
    running = start(Access([SHOP, SLOW]))

    first = running.post(traces(1), authorization="Bearer slow-token")
    second = running.post(traces(1), authorization="Bearer slow-token")
    with pytest.raises(grpc.RpcError) as refused:
        running.call(traces(1), token="slow-token")
    other = running.post(traces(1), authorization="Bearer shop-token")

    assert (first[0], second[0], other[0]) == (200, 429, 200)
    assert int(second[2]["retry-after"]) > 0
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = dict(refused.value.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert info.retry_delay.seconds > 0


def test_a_rate_is_kept_on_average():
    """At 2 requests per second, 10 seconds permit 20 requests in addition to the burst."""
    clock = Clock()
    access = Access([Token("t", digest_of("t"), requests_per_second=2)], clock)

    def passes() -> bool:
        try:
            access.admit_sender("Bearer t")
        except Exception:
            return False
        return True

    burst = sum(passes() for _ in range(50))
    later = 0
    for _ in range(100):
        clock.now += 0.1
        later += passes()

    assert (burst, later) == (4, 20)


def test_refusals_name_the_peer_and_do_not_flood_the_log(
    start: Callable[[Access], _Running], caplog: pytest.LogCaptureFixture
):
    """A peer with a wrong token is logged once a minute, not once per request."""
    clock = Clock()
    running = start(Access([SHOP], clock))

    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert running.post(traces(1), authorization="Bearer wrong")[0] == 401
        clock.now += 61
        running.post(traces(1), authorization="Bearer wrong")

    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert lines == [
        "refused a request from 127.0.0.1: token unknown",
        "refused a request from 127.0.0.1: token unknown (19 more since)",
    ]
    assert "wrong" not in caplog.text


TOKENS = f"""
tokens:
  - {{name: shop, token: shop-token-0123456789, attributes: {{service.name: shop}}}}
  - {{name: grafana, sha256: {digest_of("read-token")}, may: read}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of tokens."""
    path = tmp_path / "tokens.yaml"
    path.write_text(TOKENS)
    path.chmod(0o600)
    return path


def test_tokens_are_rotated_without_a_restart(file: Path):
    """A new file takes effect at the next check; an invalid one changes nothing."""
    access = Access.of(ingest="always")
    rules = TokenRules(str(file), access)
    access.admit_sender("Bearer shop-token-0123456789")
    access.admit_sender("Bearer always")

    file.write_text(TOKENS.replace("shop-token-0123456789", "rotated-token-0123456789"))
    rules.check()
    access.admit_sender("Bearer rotated-token-0123456789")
    access.admit_sender("Bearer always")
    with pytest.raises(Exception, match="send 'authorization"):
        access.admit_sender("Bearer shop-token-0123456789")

    file.write_text("tokens: [")
    rules.check()
    access.admit_sender("Bearer rotated-token-0123456789")
    assert rules.state()["tokens"] == 2
    assert "tokens.yaml" in rules.state()["error"]


@pytest.mark.parametrize("left", ["shop", "grafana"])
def test_a_new_file_does_not_let_everybody_in(file: Path, left: str):
    """A file without any token for a permission does not open it to everybody."""
    access = Access()
    rules = TokenRules(str(file), access)

    lines = TOKENS.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "name:" not in line or left in line))
    rules.check()

    assert access.needs("ingest")
    assert access.needs("read")
    assert "everybody could" in rules.state()["error"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tokens: []", "tokens: "),
        ("tokens:\n- {name: a}", "give either token or sha256"),
        ("tokens:\n- {name: a, token: short}", "at least 16 characters"),
        ("tokens:\n- {name: a, token: secret-0123456789, rigths: x}", "unknown key 'rigths'"),
        (
            "tokens:\n- {name: a, token: secret-0123456789, may: delete}",
            "'ingest', 'read' or 'write'",
        ),
        (
            "tokens:\n- {name: a, token: secret-0123456789}\n- {name: a, token: other-0123456789}",
            "name 'a' is given twice",
        ),
        (
            "tokens:\n- {name: a, token: secret-0123456789}\n- {name: b, token: secret-0123456789}",
            "token of 'b' is given twice",
        ),
    ],
)
def test_the_error_about_a_file_shows_no_secrets(tmp_path: Path, text: str, message: str):
    """The error names the file and the line, but no token."""
    path = tmp_path / "t.yaml"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(ConfigError, match=message) as error:
        load_tokens(path)

    assert str(error.value).startswith(f"{path}:")
    assert "secret" not in str(error.value)


def test_a_file_that_others_can_read_is_refused(file: Path):
    """A file with tokens must not be readable by others, like the private keys of ssh."""
    file.chmod(0o644)

    with pytest.raises(ConfigError, match="chmod 600"):
        load_tokens(file)


def test_a_token_that_may_write_reads_as_well_but_does_not_send():
    """It opens what readers may see; with it alone, reading is not open to everybody."""
    access = Access.of(ingest="a token to send with", write="a token to write with")
    assert access.needs("read")
    assert access.admit_reader("Bearer a token to write with").name == "OTEVAL_WRITE_TOKEN"
    with pytest.raises(RequestRefused):
        access.admit_reader("Bearer a token to send with")
    with pytest.raises(RequestRefused):
        access.admit_sender("Bearer a token to write with")
    assert not Access.of(read="a token to read with").tokens[0].permits("write")


def test_a_file_may_have_tokens_that_write(tmp_path: Path):
    """A token that may write has no attributes and no rate, which are for senders."""
    file = tmp_path / "tokens.yaml"
    file.write_text("tokens:\n- {name: ada, token: write-token-0123456789, may: write}\n")
    file.chmod(0o600)
    access = Access()
    TokenRules(str(file), access)
    assert access.admit_reader("Bearer write-token-0123456789").name == "ada"
    file.write_text(file.read_text().replace("write}", "write, requests_per_second: 5}"))
    with pytest.raises(ConfigError, match="ingest"):
        TokenRules(str(file), Access())
