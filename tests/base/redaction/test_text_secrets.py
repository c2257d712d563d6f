"""Secrets by their names in text that is not JSON; ordinary text with the same names stays."""

from __future__ import annotations

import json
from urllib.parse import unquote_plus

import pytest

from oteval.base.redaction.secrets import PLACEHOLDER, SecretRedactor

REDACTOR = SecretRedactor(environment={})
SECRET = "hunterX7" + "kD20vQz1"
XML, TEXT, FORM = "text/xml", "text/plain; charset=utf-8", "application/x-www-form-urlencoded"
MULTIPART = 'multipart/form-data; boundary="b"'


def body(text: str, kind: str = "") -> str:
    """Return a body without secrets."""
    return REDACTOR.body(text.encode(), kind).decode()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<login><user>ann</user><password>{}</password></login>", XML),
        ("<soap:Password Type='x'>\n  {}\n</soap:Password>", XML),
        ("<password><![CDATA[{}]]></password>", XML),
        ("<x api_key=\"{}\" user='ann'/>", XML),
        ("<x password='{}'/>", XML),
        ('<add key="ApiKey" value="{}"/>', XML),
        ('<entry name="password">{}</entry>', XML),
        ("api_key: {}", TEXT),
        ("user: ann\npassword = {}\nport: 3\n", TEXT),
        ("  - token: {}\r\n", "application/yaml"),
        ("Server=db;User=a;Password={};Port=3", TEXT),
        ("x=1&user%5Bpassword%5D={}&y=2", FORM),
        (
            '--b\r\nContent-Disposition: form-data; name="note"\r\n\r\napi_key={}\r\n--b--',
            MULTIPART,
        ),
        ("OpenAI(api_key='{}', timeout=3)", ""),
        ("environ({{'PATH': '/bin', 'DB_PASSWORD': '{}'}})", ""),
        ('password := "{}"', ""),
        ("curl --api-key {} x", ""),
        ("x --password='{}' y", ""),
        ("curl -sS -u ann:{} https://host", ""),
        ("> Cookie: {}", ""),
        ("> Authorization: Token {}", ""),
        ("machine host login ann password {}", ""),
        ("aws configure set aws_secret_access_key {}", ""),
        ("My API key is: {}, thanks", ""),
        ('["x-api-key", "{}"]', "application/json"),
        ('{{"env": [{{"name": "DB_PASSWORD",\n "value": "{}"}}]}}', "application/json"),
        ('[{{"value": "{}", "name": "API_KEY"}}]', "application/json"),
        ("https://host/#/cb?access_token={}&scope=mail", ""),
    ],
)
def test_values_that_a_text_names_as_secrets(text: str, kind: str) -> None:
    """In a body of their own, and in the strings of JSON, at two levels."""
    whole = text.format(f"sid={SECRET}" if "Cookie" in text else SECRET)
    assert body(whole, kind) == text.format(PLACEHOLDER)
    for level in (1, 2):
        for _ in range(level):
            whole = json.dumps(whole)
        redacted = body(whole)
        assert SECRET not in redacted
        json.loads(redacted)
        assert PLACEHOLDER in redacted


@pytest.mark.parametrize("name", ["password = {}", "Password: {}", "api_key={}"])
def test_words_are_secrets_alone_on_a_line_of_a_plain_text(name: str) -> None:
    """Elsewhere they may be a part of a sentence or of code."""
    assert body(f"a: b\n{name.format('hunter')}\n", TEXT) == f"a: b\n{name.format(PLACEHOLDER)}\n"
    sentence = name.format("hunter or another word")
    assert body(sentence) == sentence


def test_what_a_tool_prints_of_an_environment() -> None:
    printed = (
        "PATH=/bin\nPWD=/root/x\nOPENAI_API_KEY={0}\nSTRIPE_KEY={0}\nDB_PASSWORD=letters\n"
        "GITHUB_TOKEN={0}\nSORT_KEY=created_at\nLANG=C\n"
    )
    content = json.dumps({"content": printed.format(SECRET)})
    kept = json.loads(REDACTOR.text(content))["content"]
    assert kept == printed.format(PLACEHOLDER).replace("letters", PLACEHOLDER)


def test_fields_of_forms() -> None:
    """Lists of values, and fields of several lines whose name has no quotes."""
    assert body(f"api_key[]={SECRET}&v=2", FORM) == f"api_key[]={PLACEHOLDER}&v=2"
    part = "--b\nContent-Disposition: form-data; name=password\n\n{}\n--b--\n"
    assert body(part.format(f"one\n{SECRET}"), MULTIPART) == part.format(PLACEHOLDER)


def test_json_in_an_encoded_form() -> None:
    form = "payload=%7B%22password%22%3A+%22a+b%22%7D&x=%C3%A9"
    redacted = body(form, FORM)
    assert unquote_plus(redacted) == 'payload={"password": "[redacted]"}&x=é'
    assert redacted.endswith("&x=%C3%A9")


@pytest.mark.parametrize(
    "text",
    [
        "the password is required",
        "The password: is required. The API key is needed; the token is gpt-4o-mini.",
        "token count: 12, max_tokens: 100, input_token=120345, --max-tokens 100",
        "password: str = Field(...)\n    api_key: str | None\n    cookies: CookieTypes | None",
        "api_key = os.environ['X']; api_key = get_key2(a); token = tokens[0]",
        "password = self.password2\nif password == other1: pass",
        "prompt = getpass('Password: ', stream=None)",
        "token: gpt-4o-mini, auth: oauth2, auth=OAuth2, secret: projects/1/secrets",
        "Password: please reset it by 5. Passwords: 8-16 characters.",
        "API_KEY=$API_KEY\nAPI_KEY=${X:-1}\nAPI_KEY=<your key>\nAuthorization: Bearer $TOKEN",
        '<a href="#auth">Section 2</a> <token>word</token> <password/> <password></password>',
        '{"required": ["password", "token1234", "x-api-key", "x509_workload_identity"]}',
        '{"name": "password", "type": "string", "description": "The API key: see docs, 2 of them"}',
        "secret santa: 2024, key=lambda x: x, access: key1, Cookie: accept them all",
        "const token = await getToken2(); token = response.json()['token']",
        "authorization: required since 2020; private_key: /etc/ssl/key1.pem",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    for whole in (text, json.dumps({"content": text}), json.dumps(json.dumps(text))):
        assert body(whole) == whole


@pytest.mark.parametrize(
    "part",
    ["password=", "cookie: ", "<token a", "--api-key ", "a_token b", '"token", ', '"value": "'],
)
def test_hostile_texts_take_linear_time(part: str) -> None:
    """Read once per name, these would take hours."""
    REDACTOR.text(part * 20_000)
