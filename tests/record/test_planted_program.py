"""A recorded program that meets secrets everywhere: in requests, tools, errors and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from .programs import run_program

# Each secret is of no known form, unless its place gives it one.
PROGRAM = r"""
import gzip, json, random, sys
import httpx, openai, oteval
from opentelemetry import trace
from opentelemetry._logs import get_logger
from tests.record.wire.web_server import Answer, answering

random.seed(5)
secrets = {}
JSON = {"Content-Type": "application/json"}

def plant(place, length=18):
    letters = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789"
    secrets[place] = "Zq7" + "".join(random.choice(letters) for _ in range(length))
    return secrets[place]

def message(content, calls=None):
    said = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    return Answer([json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [choice]}).encode()], headers=JSON)

def stream(deltas, size):
    events = [{"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    data = "".join(f"data: {json.dumps(one)}\n\n" for one in events).encode() + b"data: [DONE]\n\n"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return Answer(pieces, headers={"Content-Type": "text/event-stream"})

def cut(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]

handle = oteval.instrument(sys.argv[1])
answers = []
tracer = trace.get_tracer("planted")
with answering(lambda _: answers.pop() if answers else Answer([b"{}"], headers=JSON)) as web:
    client = httpx.Client(verify=False)
    url = web.url
    def send(answer=None, path="", method="POST", **options):
        answers[:] = [answer] if answer else []
        client.cookies.clear()
        return client.request(method, url + path, **options)

    for path in ("/?api_key={}", "/?keys[]={}", "/?x-amz-signature={}", "/?q=1#access_token={}",
            "/?to=https%3A%2F%2Fx%2F%3Ftoken%3D{}"):
        send(path=path.format(plant(path)), method="GET")
    for user in ("ann:{}", "{}"):
        client.get(url.replace("://", f"://{user.format(plant(user))}@"))
    for name, value in (("Cookie", "sid={}"), ("X-My-Auth", "{}"), ("Authorization", "{}"),
            ("Authorization", "Token {}"), ("Referer", "https://x/?code={}")):
        send(headers={name: value.format(plant(f"{name}: {value}"))})
    key = plant("echoed key")
    send(Answer([f"invalid key {key}".encode()], status=401), headers={"X-Api-Key": key})
    send(Answer([b"{}"], headers={**JSON, "Set-Cookie": f"sid={plant('Set-Cookie')}"}))
    send(auth=("ann", plant("basic")))
    send(json={"a": [{"b": {"api_key": plant("deep")}}]})
    send(json={"a": json.dumps({"b": json.dumps({"password": plant("JSON in JSON in JSON")})})})
    send(json={"env": [{"name": "DB_PASSWORD", "value": plant("name and value")}]})
    send(data={"client_secret": plant("form"), "payload": json.dumps({"token": plant("payload")})})
    send(data={"api_key": plant("multipart")}, files={"f": (".env", f"API_TOKEN={plant('file')}")})
    for text in ("<login><password>{}</password></login>", "<u password='{}'/>"):
        send(content=text.format(plant(text)), headers={"Content-Type": "text/xml"})
    for text in ("user: a\npassword: {}\n", "api_key = {}\n"):
        send(content=text.format(plant(text)), headers={"Content-Type": "text/plain"})
    packed = {**JSON, "Content-Encoding": "gzip"}
    send(content=gzip.compress(json.dumps({"secret": plant("gzip")}).encode()), headers=packed)
    body = gzip.compress(json.dumps({"access_token": plant("gzip answer")}).encode())
    send(Answer([body], headers=packed))
    send(Answer([f"var c = {{apiKey: '{plant('script')}'}};".encode()]))

    own = plant("key of the model client")
    model = openai.OpenAI(base_url=url, api_key=own, max_retries=0)
    def ask(answer, content, **options):
        answers[:] = [answer]
        asked = [{"role": "user", "content": content}]
        with tracer.start_as_current_span("asked"):
            made = model.chat.completions.create(model="m", messages=asked, **options)
            return list(made) if options else made
    try:
        wrong = json.dumps({"error": {"message": f"Incorrect API key provided: {own}."}})
        ask(Answer([wrong.encode()], status=401, headers=JSON), "hi")
    except openai.OpenAIError:
        pass
    said = f"Use sk-proj-{plant('sk', 24)}, my password: {plant('said')}"
    ask(message(f"Your key is {own}"), said)
    pem = "-----{} PRIVATE KEY-----"
    ask(message("ok"), f"{pem.format('BEGIN')}\n{plant('PEM', 64)}\n{pem.format('END')}")
    arguments = json.dumps({"user": "ann", "password": plant("arguments of a tool")})
    function = {"name": "login", "arguments": arguments}
    ask(message(None, [{"id": "call_1", "type": "function", "function": function}]), "x")
    printed = (
        f"PATH=/bin\nSTRIPE_KEY={plant('env 1')}\nGITHUB_TOKEN={plant('env 2')}\n"
        f"DATABASE_URL=postgres://u:{plant('env 3')}@h/db\n> Cookie: sid={plant('curl -v')}; a=b\n"
        f"curl -u ann:{plant('curl -u')}\nconnect(api_key='{plant('traceback')}')\n"
    )
    ask(message("ok"), printed)
    ask(message("ok"), json.dumps({"stdout": printed}))
    streamed = [{"content": one} for one in cut(f"key sk-ant-{plant('streamed', 24)} done", 5)]
    ask(stream(streamed, 37), "x", stream=True)
    call = {"index": 0, "id": "call_2", "type": "function"}
    deltas = [{"tool_calls": [{**(call if at == 0 else {"index": 0}), "function":
        {**({"name": "login"} if at == 0 else {}), "arguments": piece}}]}
        for at, piece in enumerate(cut(json.dumps({"password": plant("streamed call")}), 6))]
    ask(stream(deltas, 41), "x", stream=True)

    @oteval.tool
    def login(password):
        print(end="")
        return {"session_token": plant("result"), "printed": printed}

    @oteval.tool
    def fails():
        raise ValueError(f"glpat-{plant('error', 20)} {own} password={plant('error 2')}")

    login(plant("argument"))
    try:
        fails()
    except ValueError:
        pass
    with tracer.start_as_current_span(f"GET /?token={plant('name of a span')}") as span:
        span.set_attribute("http.request.header.authorization", [f"Custom {plant('attribute')}"])
        span.set_attribute("note", f"AIza{plant('note', 35)}")
        span.add_event("log", {"message": f"xoxb-123-{plant('event', 20)}"})
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"ghp_{plant('status', 30)}"))
    get_logger("x").emit(body={"deep": {"password": plant("log")}, "text": f"api_key={own}"})
handle.shutdown()
recorded = open(sys.argv[1]).read()
assert recorded.count("oteval.http.exchange") > 30
print(len(secrets), *(place for place, secret in secrets.items() if secret in recorded), sep="\n")
"""


@pytest.mark.slow
def test_no_secret_survives(tmp_path: Path) -> None:
    """Through real clients: none of the planted secrets is in the exported file."""
    done = run_program(PROGRAM, str(tmp_path / "traces.jsonl"))

    assert done.returncode == 0, done.stderr
    count, *survivors = done.stdout.split("\n")[:-1]
    assert not survivors
    assert int(count) >= 50
