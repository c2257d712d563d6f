"""A recording holds no secret: keys are planted everywhere in real requests and responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from oteval.base.redaction.secrets import SecretRedactor

from .recordings import recording
from .web_server import Answer, Arrived, answering

SECRET = "planted-" + "a1b2c3d4e5f6g7h8"
LIBRARIES: list[Any] = [httpx, httpx2]


def reflect(request: Arrived) -> Answer:
    """Return everything that arrived, as careless servers do."""
    said = {
        "path": request.path,
        "headers": request.headers,
        "body": request.body.decode("latin-1"),
    }
    headers = {"Content-Type": "application/json", "Set-Cookie": f"session={SECRET}"}
    return Answer([json.dumps(said).encode()], headers=headers)


def _requests(library: Any, url: str) -> Iterator[Any]:
    """Yield requests, each with the secret in another place."""
    request = library.Request
    for name in ("Authorization", "X-Api-Key", "api-key", "Proxy-Authorization", "Cookie"):
        value = f"Bearer {SECRET}" if "uthorization" in name else SECRET
        value = f"a=b; session={SECRET}" if name == "Cookie" else value
        yield request("POST", url, headers={name: value}, json={"model": "m"})
    yield request("GET", f"{url}/p?api_key={SECRET}&api-version=1")
    yield request("GET", url, headers={"Referer": f"https://x/?token={SECRET}"})
    for key in ("api_key", "password", "accessToken", "client_secret"):
        yield request("POST", url, json={"deep": [{key: SECRET}]})
        yield request("POST", url, json={"arguments": json.dumps({key: SECRET})})
    yield request("POST", url, data={"grant_type": "x", "client_secret": SECRET})
    yield request("POST", url, data={"password": SECRET}, files={"f": b"x"})
    yield request("POST", url, headers={"X-Api-Key": SECRET}, content=b"\xff" + SECRET.encode())


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_secret_of_a_request_is_recorded(library: Any) -> None:
    """In headers, the query, bodies, and in responses that repeat them."""
    with answering(reflect) as web, recording() as recorded, library.Client(verify=False) as client:
        for number, request in enumerate(_requests(library, web.url), 1):
            response = client.send(request)
            assert response.status_code == 200
            assert len(recorded.exchanges()) == number
            assert SECRET not in recorded.text(), request
            client.cookies.clear()
        client.get(web.url, auth=("ann", SECRET))
        assert SECRET not in recorded.text()
        with_user = web.url.replace("://", f"://ann:{SECRET}@")
        client.get(with_user)
        assert SECRET not in recorded.text()
        # Under another name, only the URL loses it: an order number is no different.
        client.get(f"{web.url}/p?anything={SECRET}")
        assert SECRET not in recorded.exchanges()[-1].url
        # Everything else is still there.
        assert json.loads(recorded.exchanges()[0].request_body) == {"model": "m"}
    assert sum(SECRET in str(each) for each in web.arrived) > 10


@pytest.mark.parametrize("library", LIBRARIES)
def test_secrets_in_the_errors_of_a_transport(library: Any) -> None:
    """The text of an exception may quote the URL."""

    class Refusing(library.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            return super().handle_request(request)

    with recording() as recorded, library.Client(transport=Refusing(verify=False)) as client:
        with pytest.raises(library.UnsupportedProtocol):
            client.get(f"ftp://host/?token={SECRET}", headers={"X-Api-Key": SECRET})
        assert SECRET not in recorded.text()


def test_a_key_that_a_model_streams_back() -> None:
    """Through the real client: the key of the request, in pieces, over several chunks."""
    pieces = [SECRET[at : at + 3] for at in range(0, len(SECRET), 3)]
    events = [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}],
        }
        for piece in ["Your key is ", *pieces, "."]
    ]
    stream = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    stream += b"data: [DONE]\n\n"
    chunks = [stream[at : at + 50] for at in range(0, len(stream), 50)]
    answer = Answer(chunks, headers={"Content-Type": "text/event-stream"})

    async def ask(url: str) -> str:
        async with openai.AsyncOpenAI(base_url=url, api_key=SECRET) as client:
            made: Any = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Which key?"}], stream=True
            )
            return "".join([part.choices[0].delta.content or "" async for part in made])

    with answering(lambda _request: answer) as web, recording() as recorded:
        assert asyncio.run(ask(web.url)) == f"Your key is {SECRET}."
        made = recorded.one()
    text = "".join(
        json.loads(line[6:])["choices"][0]["delta"]["content"]
        for line in made.response_body.decode().split("\n")
        if line.startswith("data: {")
    )
    assert text == "Your key is [redacted]."
    assert len(made.chunks) > 1
    assert made.is_complete


def test_secrets_of_the_environment_and_rules_of_the_user() -> None:
    from oteval.base.redaction import RedactionRule

    redactor = SecretRedactor(
        [RedactionRule(keys=("customer",)), RedactionRule(pattern=r"\d{4}-\d{4}")],
        environment={"CRM_TOKEN": "plain words in a token"},
    )
    body = {"customer": "Ann", "text": "plain words in a token, card 1234-5678"}
    with answering(reflect) as web, recording(redactor=redactor) as recorded:
        with httpx.Client(verify=False) as client:
            client.post(web.url, json=body)
        made = recorded.one()
    assert json.loads(made.request_body) == {
        "customer": "[redacted]",
        "text": "[redacted], card [redacted]",
    }
    assert not any(text in recorded.text() for text in ("Ann", "plain words", "1234"))


def test_a_key_of_another_request_and_a_cookie_that_a_response_sets() -> None:
    """A key that was sent in a header is removed from the exchanges after it as well."""
    own = "ownform." + "z9y8x7w6v5"

    def answer(request: Arrived) -> Answer:
        cookie = "c00kie" + "a1b2c3d4e5"
        said = f"{own} {cookie}" if "later" in request.path else "ok"
        headers = {"Content-Type": "text/plain", "Set-Cookie": f"sid={cookie}; Path=/"}
        return Answer([said.encode()], headers=headers)

    with answering(answer) as web, recording() as recorded, httpx.Client(verify=False) as client:
        client.get(web.url, headers={"X-Api-Key": own})
        client.cookies.clear()
        client.post(f"{web.url}/later", json={"text": f"my {own}"})
    later = recorded.exchanges()[-1]
    assert later.request_body == b'{"text":"my [redacted]"}'
    assert later.response_body == b"[redacted] [redacted]"
