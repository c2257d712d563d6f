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

from oteval.errors import InputError
from oteval.model import Chunk, Exchange
from oteval.replays.cassettes import read_cassette, write_cassette

from ..model_server import completion, serving


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

    found = read_cassette(tmp_path / "c.yaml")
    assert [one.request_body for one in found] == ["é".encode(), b""]
    assert [one.response_body for one in found] == [b"", b"\x00\xff"]
    assert [(one.status, dict(one.response_headers)) for one in found] == [
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
