"""Secrets are removed wherever they occur in an exchange, and nothing else is changed."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings, strategies as st

from oteval.base.redaction import RedactionRule
from oteval.base.redaction.secrets import PLACEHOLDER, SecretRedactor, request_secrets

DATA = Path(__file__).parents[2] / "data"
REDACTOR = SecretRedactor(environment={})
# Made up, each in the form of a real kind of key. Written in two parts, so that no scanner of
# repositories takes them for real ones.
KEYS = {
    "openai": "sk-" + "proj-aB3dE5fG7hI9jK1lM3nO5pQ7",
    "anthropic": "sk-" + "ant-api03-Xy9_Zw8-Vu7Ts6Rq5",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a",
    "github fine": "github" + "_pat_11ABCDEFG0123456789_abcdefghij",
    "slack": "xoxb" + "-123456789012-abcdefGHIJKL",
    "google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "stripe": "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc",
    "groq": "gsk" + "_abcDEF123456abcDEF123456abcDEF",
    "hugging face": "hf" + "_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "gitlab": "glpat" + "-abcDEF123456abcDEF12",
    "langsmith": "lsv2" + "_pt_0123456789abcdef0123456789abcdef_0123456789",
    "bearer": "Bearer " + "abcdef0123456789",
}
PRIVATE_KEY = (
    "-----BEGIN RSA "
    + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/\nygWyF8PbnGy0AHB7MaAT=\n"
    "-----END RSA " + "PRIVATE KEY-----"
)


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_known_forms_are_found_in_any_text(name: str) -> None:
    """In prose, JSON, JSON inside JSON, and after punctuation; but not as parts of words."""
    key = KEYS[name]
    secret = key.removeprefix("Bearer ")
    for text in (
        f"use {key} please",
        json.dumps({"content": f"It is {key}."}),
        json.dumps({"arguments": json.dumps({"text": f"({key})"})}),
        f"curl -H 'Authorization: {key}' x",
    ):
        redacted = REDACTOR.text(text)
        assert secret not in redacted
        assert PLACEHOLDER in redacted
        assert len(redacted) == len(text) - len(secret) + len(PLACEHOLDER)
    inside = f"task{secret}"
    assert name == "bearer" or REDACTOR.text(inside) == inside


def test_private_keys_go_from_beginning_to_end() -> None:
    """Also in JSON, and where the end is cut off."""
    assert REDACTOR.text(f"a {PRIVATE_KEY} b") == f"a {PLACEHOLDER} b"
    assert json.loads(REDACTOR.text(json.dumps({"pem": PRIVATE_KEY}))) == {"pem": PLACEHOLDER}
    cut = PRIVATE_KEY[:60]
    assert REDACTOR.text(f"a {cut}") == f"a {PLACEHOLDER}"


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apiKey", "OPENAI_API_KEY", "x-api-key", "access_token", "refreshToken"),
        *("password", "db_password", "PASSWD", "client_secret", "secret", "aws_secret_access_key"),
        *("Authorization", "proxy-authorization", "private_key", "token", "auth_token", "bearer"),
        *("subscription-key", "credentials", "session_token", "id_token", "connectionString"),
    ],
)
def test_values_of_keys_that_name_secrets(name: str) -> None:
    """At any depth, in any nesting of JSON text, whatever the spaces."""
    for value in ('quo"te\\and 9', "pässwörd-1", "x" * 20 + "1"):
        one: Any = {"a": 1, name: value, "z": [1]}
        for indent in (None, 2):
            for text in (
                json.dumps(one, indent=indent),
                json.dumps({"list": [{"deep": one}]}, indent=indent, ensure_ascii=False),
                json.dumps({"arguments": json.dumps(one, indent=indent)}),
                json.dumps({"x": json.dumps({"arguments": json.dumps(one, indent=indent)})}),
            ):
                redacted = REDACTOR.text(text)
                json.loads(redacted)
                assert PLACEHOLDER in redacted
                assert json.dumps(value)[1:-1] not in redacted
                assert redacted.replace(PLACEHOLDER, "") == _without(text, value)


def _without(text: str, value: str) -> str:
    """Return a text without a value at any level of escaping."""
    for ascii_only in (True, False):
        for level in (3, 2, 1):
            escaped = value
            for _ in range(level):
                escaped = json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]
            text = text.replace(escaped, "")
    return text


@pytest.mark.parametrize(
    "plain",
    [
        {"max_tokens": 100, "token_count": 7, "usage": {"input_tokens": 12, "total_tokens": 5}},
        {"monkey": "banana", "key": "value", "keys": ["a"], "keyword": "red", "author": "Ann"},
        {"prompt_cache_key": "user-12", "idempotency_key": "order-9", "primary_key": "id"},
        {"next_page_token": "CAUQAA12", "eos_token": "</s>1", "pad_token": "[PAD]0"},
        {"token": "Understanding9", "logprob": -0.1, "bytes": [72], "top_logprobs": []},
        {"token": " delivery", "text": "secret"},
        {"tokens": ["a1b2c3d4e5"], "token_type": "word", "secretary": "Ann", "passage": "long"},
        {"properties": {"password": {"type": "string", "description": "The password."}}},
        {"required": ["password", "api_key"], "tool_choice": "auto", "auth": "none"},
        {"encrypted_content": "gAAAAABo12", "signature": "EqQBCgIYAhIM9", "id": "call_a1b2c3"},
        {"content": "Bearer tokens are secret. Basic authentication/authorization. sk-learn."},
        {"content": "See https://example.com/a?page=2 and mail ann@example.com: task-123456789012"},
        {"sha": "9a49abde9a49abde9a49abde9a49abde", "uuid": "123e4567-e89b-12d3-a456-426614174000"},
    ],
)
def test_ordinary_content_stays(plain: Any) -> None:
    for text in (json.dumps(plain), json.dumps(json.dumps(plain)), json.dumps(plain, indent=1)):
        assert REDACTOR.text(text) == text


def test_nothing_is_redacted_in_captured_traces() -> None:
    """None of the captured traces holds a secret; they have every kind of ordinary content."""
    files = sorted(path for path in DATA.rglob("*.json") if path.parent.name != "shapes")
    changed = {}
    for path in files:
        text = path.read_text("utf-8")
        if (redacted := REDACTOR.text(text)) != text:
            changed[path.name] = redacted.count(PLACEHOLDER) - text.count(PLACEHOLDER)
    assert len(files) > 70
    # The placeholder that Mastra's exporter uses for its own redaction.
    assert set(changed) <= {"mastra_native.logs.json"}


def test_numbers_and_containers_under_names_of_secrets() -> None:
    text = '{"password": 123456, "secrets": {"db": "one", "more": ["two"]}, "token": 12}'
    assert json.loads(REDACTOR.text(text)) == {
        "password": PLACEHOLDER,
        "secrets": {"db": PLACEHOLDER, "more": [PLACEHOLDER]},
        "token": 12,
    }
    inner = json.dumps({"arguments": '{"password": 123456}'})
    assert json.loads(json.loads(REDACTOR.text(inner))["arguments"]) == {"password": PLACEHOLDER}


def test_headers_are_kept_by_name_only() -> None:
    headers = [
        ("Authorization", "Bearer abcdefgh123"),
        ("X-Unknown", "anything"),
        ("Set-Cookie", "session=abc"),
        ("Content-Type", "application/json"),
        ("X-RateLimit-Remaining-Tokens", "99"),
        ("Location", "https://u:p@host/next?code=abc&page=2"),
        ("User-Agent", f"agent {KEYS['openai']}"),
    ]
    assert REDACTOR.headers(headers) == {
        "content-type": "application/json",
        "x-ratelimit-remaining-tokens": "99",
        "location": f"https://{PLACEHOLDER}@host/next?code={PLACEHOLDER}&page=2",
        "user-agent": f"agent {PLACEHOLDER}",
    }


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("https://h/p?api-version=2024-10-21-preview", None),
        ("https://h/p?city=Paris%20France&date=2026-11-22&lat=48.85", None),
        ("https://h/p?key=abc&x=1", "https://h/p?key=*&x=1"),
        ("https://h/p?X-Amz-Signature=0a1b&api_key=zz&flag", "https://h/p?X-Amz-Signature=*&api_key=*&flag"),
        ("https://h/p?q=a1b2c3d4e5f6", "https://h/p?q=*"),
        ("https://user:pass@h:8080/p", "https://*@h:8080/p"),
        ("https://token@h/p", "https://*@h/p"),
        (f"https://h/{KEYS['openai']}/x", "https://h/*/x"),
        ("https://h/p?a=%5Bredacted%5D", "https://h/p?a=*"),
    ],
)  # fmt: skip
def test_urls(url: str, redacted: str | None) -> None:
    """Query values are kept if their name is known, or if they are words and numbers."""
    expected = url if redacted is None else redacted.replace("*", PLACEHOLDER)
    assert REDACTOR.url(url) == expected
    assert REDACTOR.url(expected) == expected


def test_secrets_of_the_request_are_removed_wherever_they_recur() -> None:
    """Values of secret headers, of the query and of the URL's user, in all usual encodings."""
    basic = base64.b64encode(b"ann:p/sS4+w0rDx").decode()
    headers = [
        ("Authorization", "Bearer pL4in-w/rd+s3cReT"),
        ("x-api-key", 'odd"s3cr3t\\v4Lue'),
        ("Cookie", "sid=c0ok1e-vAlu3; theme=dark-mode"),
        ("Proxy-Authorization", f"Basic {basic}"),
        ("Content-Type", "application/json"),
        ("X-Short-Token", "short"),
    ]
    url = "https://bob:uRl-s3cr3t@host/p?access_token=qu3ry%20s3cReTt0k3n"
    redactor = REDACTOR.with_secrets(request_secrets(headers, url))
    for secret in (
        *("pL4in-w/rd+s3cReT", 'odd"s3cr3t\\v4Lue', "c0ok1e-vAlu3", "p/sS4+w0rDx", basic),
        *("uRl-s3cr3t", "qu3ry s3cReTt0k3n"),
    ):
        for text in (
            f"echo: {secret}!",
            json.dumps({"text": f"It is {secret}."}),
            json.dumps({"a": json.dumps({"text": f"It is {secret}."})}),
            json.dumps({"text": secret}).replace("/", "\\/"),
            f"https://h/p/{quote(secret, safe='')}/x",
        ):
            redacted = redactor.text(text)
            assert PLACEHOLDER in redacted, text
            assert secret not in redacted
    assert redactor.text("application/json, a short one") == "application/json, a short one"
    assert "pL4in-w/rd+s3cReT" in REDACTOR.text("pL4in-w/rd+s3cReT")


def test_secrets_of_the_environment_are_removed() -> None:
    environment = {
        "SERVICE_API_KEY": "plainvaluewithoutform",
        "PGPASSWORD": "correct horse battery",
        "GITHUB_TOKEN": "t0kEnv4lue",
        "DATABASE_URL": "postgres://ann:dbP4ssw0rd@host/db",
        "KEYBOARD_LAYOUT": "deutschland",
        "MAX_TOKENS_LIMIT": "100000000",
        "API_KEY_FILE": "/run/secrets/key",
        "SHORT_KEY": "short",
        "HUGE_SECRET": "0123456789" * 3000,
    }
    redactor = SecretRedactor(environment=environment)
    for name in ("SERVICE_API_KEY", "PGPASSWORD", "GITHUB_TOKEN", "HUGE_SECRET"):
        assert redactor.text(f"<{environment[name]}>") == f"<{PLACEHOLDER}>"
    assert redactor.text("dbP4ssw0rd") == PLACEHOLDER
    plain = "deutschland 100000000 /run/secrets/key short"
    assert redactor.text(plain) == plain


def test_forms_and_multipart_bodies() -> None:
    form = b"grant_type=refresh&refresh_token=a1b2c3&client_secret=x&scope=mail"
    assert REDACTOR.body(form, "application/x-www-form-urlencoded") == (
        b"grant_type=refresh&refresh_token=[redacted]&client_secret=[redacted]&scope=mail"
    )
    first = REDACTOR.body(b"password=hunter2", "application/x-www-form-urlencoded")
    assert first == b"password=[redacted]"
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="api_key"\r\n\r\nhunter2\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n'
        b"Content-Type: image/png\r\n\r\n\x89PNG\xff\x00\r\n--b--\r\n"
    )
    redacted = REDACTOR.body(parts, "multipart/form-data; boundary=b")
    assert redacted == parts.replace(b"hunter2", b"[redacted]")


def test_binary_bodies_stay_byte_for_byte() -> None:
    data = bytes(range(256)) * 20
    assert REDACTOR.body(data, "application/octet-stream") == data
    planted = data + KEYS["github"].encode() + data
    assert REDACTOR.body(planted) == data + b"[redacted]" + data


def _chat(piece: str, index: int = 0) -> bytes:
    event = {"id": "c1", "choices": [{"index": index, "delta": {"content": piece}}]}
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _arguments(piece: str) -> bytes:
    call = {"index": 0, "function": {"arguments": piece}}
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': [call]}}]})}\n\n".encode()  # noqa: E501


def _response(piece: str) -> bytes:
    event = {"type": "response.output_text.delta", "item_id": "m1", "delta": piece}
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _anthropic(piece: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"partial_json": piece}}
    return f"event: content_block_delta\ndata: {json.dumps(event)}\n\n".encode()


def _deltas(data: bytes) -> str:
    """Return the pieces of a stream's text, joined."""
    out = []
    for line in data.decode().split("\n"):
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            delta = event["delta"] if "delta" in event else event["choices"][0]["delta"]
            if isinstance(delta, dict) and "tool_calls" in delta:
                delta = delta["tool_calls"][0]["function"]["arguments"]
            out.append(delta if isinstance(delta, str) else "".join(delta.values()))
    return "".join(out)


@pytest.mark.parametrize("shape", [_chat, _arguments, _response, _anthropic])
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_secrets_that_a_model_streams_in_pieces(shape: Any, size: int) -> None:
    """Divided between events, and the events between chunks that arrive, at any place."""
    secret = KEYS["openai"]
    text = json.dumps({"note": f'grüße, use {secret} "now"', "password": "hunter2"})
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    stream = b"".join(map(shape, pieces)) + b"data: [DONE]\n\n"
    borders = [*range(0, len(stream), 37), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(borders)]
    redacted = REDACTOR.pieces(chunks, "text/event-stream")
    assert len(redacted) == len(chunks)
    assert _deltas(b"".join(redacted)) == text.replace(secret, PLACEHOLDER).replace(
        "hunter2", PLACEHOLDER
    )


def test_parallel_choices_are_joined_separately() -> None:
    """Pieces of two answers alternate: neither is taken for a part of the other."""
    secret = KEYS["github"]
    stream = [
        _chat(piece, index)
        for first, second in zip(secret, "ordinary text of the same length....", strict=False)
        for index, piece in enumerate((first, second))
    ] + [_chat(piece) for piece in secret[36:]]
    redacted = [json.loads(line[6:]) for line in REDACTOR.pieces(stream, "text/event-stream")]
    texts = ["", ""]
    for event in redacted:
        choice = event["choices"][0]
        texts[choice["index"]] += choice["delta"]["content"]
    assert texts[0] == PLACEHOLDER
    assert texts[1].startswith("ordinary text of the same")


def test_a_secret_divided_between_chunks_of_any_body() -> None:
    """The replacement is in the first of the chunks; the others keep the rest."""
    body = f'{{"text": "ä {KEYS["aws"]} ö"}}'.encode()
    for at in range(1, len(body)):
        pieces = REDACTOR.pieces((body[:at], body[at:]), "application/json")
        assert b"".join(pieces) == '{"text": "ä [redacted] ö"}'.encode()
        assert len(pieces) == 2


def test_rules_of_the_user_come_on_top() -> None:
    """Keys by globs, patterns in text, also divided between the pieces of a stream."""
    redactor = SecretRedactor(
        [
            RedactionRule(keys=("e*mail",), replace="<mail>"),
            RedactionRule(pattern=r"\b\d{4}-\d{4}\b", replace="<card>"),
        ],
        environment={},
    )
    body = b'{"e-mail": "a@b.c", "text": "card 1234-5678 done", "password": "x"}'
    assert redactor.body(body) == (
        b'{"e-mail": "<mail>", "text": "card <card> done", "password": "[redacted]"}'
    )
    pieces = redactor.pieces((body[:40], body[40:50], body[50:]))
    assert b"".join(pieces) == redactor.body(body)
    stream = [_chat("card 12"), _chat("34-56"), _chat("78 done")]
    assert _deltas(b"".join(redactor.pieces(stream, "text/event-stream"))) == "card <card> done"


def test_the_result_is_stable() -> None:
    """Redacting a recording again changes nothing, so that a replay compares equal texts."""
    redactor = SecretRedactor(environment={"A_KEY": "redacted", "B_KEY": "environment-1"})
    text = json.dumps({"password": "x", "text": [*KEYS.values(), PRIVATE_KEY, "environment-1"]})
    once = redactor.text(text)
    assert redactor.text(once) == once
    assert all(key.removeprefix("Bearer ") not in once for key in KEYS.values())


_PART = st.one_of(
    st.sampled_from([*KEYS.values(), '"password": "', '\\"token\\":\\"', '"', "\\", "{", "}", ":"]),
    st.text(max_size=8),
    st.sampled_from(["?key=", "&", "://", "@", "-----BEGIN PRIVATE KEY-----", "data: {", "\n\n"]),
)


@given(st.lists(_PART, max_size=12), st.lists(st.integers(0, 400), max_size=4))
@settings(max_examples=30)
def test_pieces_agree_with_the_whole(parts: list[str], cuts: list[int]) -> None:
    """However a body is divided, its redacted pieces are those of the redacted body."""
    check_pieces(parts, cuts)


@pytest.mark.slow
@given(st.lists(_PART, max_size=12), st.lists(st.integers(0, 400), max_size=4))
@settings(max_examples=500)
def test_pieces_agree_with_the_whole_in_many_cases(parts: list[str], cuts: list[int]) -> None:
    """The same, with more bodies."""
    check_pieces(parts, cuts)


def check_pieces(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode("utf-8", "replace")
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(borders)]
    redacted = REDACTOR.pieces(pieces)
    assert b"".join(redacted) == REDACTOR.body(data)
    assert len(redacted) == len(pieces)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_redacted(data: bytes) -> None:
    """Bytes of no known format stay as they are, and never raise."""
    for kind in ("", "text/event-stream", "multipart/form-data", "application/json"):
        REDACTOR.body(data, kind)


@pytest.mark.parametrize("part", ['"secret":{', '"secret":["', '"password":"', "sk-", '"":'])
def test_hostile_texts_take_linear_time(part: str) -> None:
    """Read once per key, these would take hours."""
    REDACTOR.text(part * 20_000)
