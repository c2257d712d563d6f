"""Cassettes: files of vcrpy go in, and vcrpy replays the files that come out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import openai
import pytest
import vcr
import yaml

from oteval.base.errors import InputError
from oteval.model import Chunk, Exchange
from oteval.replays.cassettes import read_cassette, write_cassette

from ..commands import Run, oteval
from ..make import ROOT
from ..model_server import completion, serving

__all__ = ["oteval"]


def ask(url: str) -> str:
    """Ask a model one question."""
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    messages: Any = [{"role": "user", "content": "Hello"}]
    with client:
        answer = client.chat.completions.create(model="m", messages=messages)
    return str(answer.choices[0].message.content)


@pytest.fixture
def cassette(tmp_path: Path) -> tuple[Path, str]:
    """A cassette that vcrpy recorded from a real server, and the address of that server."""
    path = tmp_path / "hello.yaml"
    with serving(lambda _body, _number: completion("Good morning")) as server:
        with vcr.use_cassette(str(path)):
            assert ask(server.url) == "Good morning"
        return path, server.url


def test_a_cassette_of_vcrpy_gives_its_exchanges(cassette: tuple[Path, str]) -> None:
    """Method, address, request and answer are those that vcrpy recorded."""
    (exchange,) = read_cassette(cassette[0])

    assert (exchange.method, exchange.status) == ("POST", 200)
    assert exchange.url == f"{cassette[1]}/chat/completions"
    assert json.loads(exchange.request_body)["messages"][0]["content"] == "Hello"
    body = json.loads(exchange.response_body)
    assert body["choices"][0]["message"]["content"] == "Good morning"


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_vcrpy_replays_a_written_cassette(cassette: tuple[Path, str], suffix: str) -> None:
    """The server is gone, and vcrpy still answers from the file that oteval wrote."""
    path = cassette[0].with_name(f"written.{suffix}")

    assert write_cassette(read_cassette(cassette[0]), path) == 1

    with vcr.use_cassette(str(path), record_mode="none", serializer=suffix):
        assert ask(cassette[1]) == "Good morning"


def test_a_cassette_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    """Text and binary bodies, statuses and headers survive."""
    exchanges = [
        Exchange("POST", "http://m/v1", {"accept": "*/*"}, "é".encode(), 200, {"x": "1"}),
        Exchange("GET", "http://m/v2", status=500, chunks=(Chunk(b"\x00\xff"),)),
    ]

    write_cassette(exchanges, tmp_path / "c.yaml")

    restored = read_cassette(tmp_path / "c.yaml")
    assert [exchange.request_body for exchange in restored] == ["é".encode(), b""]
    assert [exchange.response_body for exchange in restored] == [b"", b"\x00\xff"]
    assert [(exchange.status, dict(exchange.response_headers)) for exchange in restored] == [
        (200, {"x": "1"}),
        (500, {}),
    ]


def test_compressed_bodies_are_decompressed(tmp_path: Path) -> None:
    """Bodies that vcrpy kept compressed are read as what they say."""
    path = tmp_path / "c.yaml"
    response = {
        "status": {"code": 200, "message": "OK"},
        "headers": {"Content-Encoding": ["gzip"]},
        "body": {"string": gzip.compress(b"hello")},
    }
    request = {"method": "GET", "uri": "http://m/", "body": None, "headers": {}}
    document = {"version": 1, "interactions": [{"request": request, "response": response}]}
    path.write_text(yaml.safe_dump(document))

    (exchange,) = read_cassette(path)

    assert exchange.response_body == b"hello"
    assert "content-encoding" not in exchange.response_headers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not a cassette"),
        ("- 1", "the list `interactions` is missing"),
        ("interactions: [{request: {}}]", "interaction 1 is invalid"),
    ],
)
def test_a_broken_cassette_is_named(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, and the interaction that is wrong."""
    path = tmp_path / "c.yaml"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as error:
        read_cassette(path)

    assert str(path) in str(error.value)


def test_json_cannot_hold_binary_bodies(tmp_path: Path) -> None:
    """The error says which format can."""
    exchanges = [Exchange("GET", "http://m/", status=200, chunks=(Chunk(b"\xff"),))]

    with pytest.raises(InputError, match=r"write a \.yaml file"):
        write_cassette(exchanges, tmp_path / "c.json")


def test_a_cassette_becomes_a_recording_that_replays(
    cassette: tuple[Path, str], oteval: Run, oteval_replay: Any
) -> None:
    """Cassette, recording and the cassette written from it: all replay, with fidelity wire."""
    path, url = cassette
    assert oteval("replay", "cassette", path, "-o", "hello.jsonl").status == 0
    done = oteval("replay", "cassette", "hello.jsonl", "-o", "again.yaml")
    assert "again.yaml: 1 exchange, fidelity wire" in done.out

    for file in (path, Path("hello.jsonl").resolve(), Path("again.yaml").resolve()):
        with oteval_replay(file) as replay:
            assert ask(url) == "Good morning"
        assert replay.recording.inputs == ("Hello",)
        assert (replay.result.fidelity, replay.answer) == ("wire", "Good morning")


def test_a_rebuilt_session_becomes_a_cassette_for_vcrpy(oteval: Run) -> None:
    """A trace of another instrumentation gives requests and responses that vcrpy replays."""
    trace = ROOT / "tests" / "data" / "traces" / "openinference_chat.json"
    assert oteval("ingest", trace).status == 0
    base = ("--base-url", "http://models.example/v1")

    done = oteval("replay", "cassette", "conv-001", "-o", "support.yaml", *base)

    assert "support.yaml: 4 exchanges, fidelity semconv" in done.out
    assert "rebuilt from spans (openinference)" in done.err
    with vcr.use_cassette("support.yaml", record_mode="none") as played:
        client = openai.OpenAI(base_url=base[1], api_key="k", max_retries=0)
        with client:
            messages: Any = [{"role": "user", "content": "Hello"}]
            answer = client.chat.completions.create(model="m", messages=messages)
    calls: Any = answer.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_weather"]
    assert played.play_count == 1


def test_secrets_do_not_pass_through_a_cassette(oteval: Run) -> None:
    """Headers and bodies lose their secrets in both directions."""
    key = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"Use {key}"}]})
    request = Exchange(
        "POST",
        f"http://m/v1/chat/completions?api_key={key}",
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
        body.encode(),
        500,
        chunks=(Chunk(key.encode()),),
    )
    write_cassette([request], "secret.yaml")
    assert key in Path("secret.yaml").read_text()

    for source, target in (("secret.yaml", "clean.jsonl"), ("clean.jsonl", "clean.yaml")):
        assert oteval("replay", "cassette", source, "-o", target).status == 0
        assert key not in Path(target).read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hello.yaml", "-o", "x.txt"), "name a .yaml or .json cassette"),
        (("hello.yaml", "-o", "hello.yaml"), "--force overwrites it"),
    ],
)
def test_errors_of_the_command(oteval: Run, arguments: tuple[str, ...], message: str) -> None:
    """The output's name says its form, and no file is overwritten by accident."""
    write_cassette([Exchange("GET", "http://m/", status=200)], "hello.yaml")

    done = oteval("replay", "cassette", *arguments)

    assert done.status == 2
    assert message in done.err
