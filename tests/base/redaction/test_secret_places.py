"""What one place knows of secrets, all know: shapes of keys and names, in every kind of text."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.planted_secrets import KEY_SHAPES, NAMED_PLACES, key
from oteval.base.redaction.secrets import PLACEHOLDER, SecretRedactor

REDACTOR = SecretRedactor(environment={})
SECRET = "hunterX7" + "kD20vQz1"


@pytest.mark.parametrize("shape", KEY_SHAPES)
def test_keys_of_published_shapes_are_found_in_prose(shape: str) -> None:
    """The shapes are those of gitleaks' rules and of the services' documentation."""
    for number in range(3):
        secret = key(shape, random.Random(f"{shape}{number}"))
        redacted = REDACTOR.text(f"The key {secret} was revoked.")
        assert redacted.endswith("was revoked.")
        assert secret[len(secret) // 2 :] not in redacted


@pytest.mark.parametrize(
    ("prefix", "rest"),
    [
        ("AKIA", "UPBAPXVJPHYOWEMY"),
        ("ASIA", "MRPGVQHNDPYJVKNQ"),
        ("AIza", "tiws-oUYBxVVXcmMfgwSx5-EjnCysKSHR5T"),
        ("AQVN", "uJrykbliqeuhTmtqkxxZGthcDyNoNpmSmkwy"),
        ("NRAK-", "PFKOLRSHKHLLLTKJNHTBAVIOHFI"),
        ("dckr_pat_", "ITXRGrOi7_n-HFgGbwEDlfIq36W"),
        ("GOCSPX-", "lTLD6Cp-BTkYZpIzZtjaGDIVgqDX"),
    ],
)
def test_keys_that_look_like_words_are_keys_by_their_length(prefix: str, rest: str) -> None:
    """Of a hundred random keys, some have no digit, or only short parts."""
    assert REDACTOR.text(f"use {prefix + rest}, please") == f"use {PLACEHOLDER}, please"


@pytest.mark.parametrize("number", range(len(NAMED_PLACES)))
def test_names_of_secrets_are_known_in_every_place(number: int) -> None:
    """In commands, code, settings, manifests and addresses, as they are and inside JSON."""
    place = NAMED_PLACES[number]
    text = place.format(SECRET) if isinstance(place, str) else place(SECRET)
    for level in (0, 1, 2):
        whole = json.dumps({"content": text}) if level else text
        whole = json.dumps(whole) if level == 2 else whole
        redacted = REDACTOR.text(whole)
        assert SECRET not in redacted
        assert REDACTOR.text(redacted) == redacted
        if level:
            json.loads(redacted)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_bodies_in_wide_encodings(encoding: str) -> None:
    """They keep their encoding."""
    text = '{"user": "grüße", "password": "%s", "x": 1}'
    data = (text % SECRET).encode(encoding)
    assert REDACTOR.body(data).decode(encoding) == text % PLACEHOLDER


@pytest.mark.parametrize(
    "text",
    [
        f'{{"\\u0070assw\\u006frd": "{SECRET}"}}',
        f'{{"text": "\\u0041PI_KEY\\u003d{SECRET}"}}',
        json.dumps({"arguments": f'{{"\\u0070assword": "{SECRET}"}}'}),
        f"https://host/p?x=1\\u0026access_token={SECRET}",
        f"x=%7B%22password%22%3A%22{SECRET}%22%7D",
        f"{{&quot;password&quot;: &quot;{SECRET}&quot;}}",
    ],
)
def test_escaped_names(text: str) -> None:
    """Escapes that JSON need not have, and those of addresses and of HTML."""
    redacted = REDACTOR.text(text)
    assert SECRET not in redacted
    assert redacted == text.replace(SECRET, PLACEHOLDER)


def test_a_named_secret_is_removed_from_the_whole_text() -> None:
    """A model that has read a password repeats it in its next sentence."""
    text = json.dumps({"password": SECRET, "note": f"I used {SECRET}.", "user": "ann"})
    assert json.loads(REDACTOR.text(text)) == {
        "password": PLACEHOLDER,
        "note": f"I used {PLACEHOLDER}.",
        "user": "ann",
    }


@pytest.mark.parametrize(
    "text",
    [
        "commit 9a49abde9a49abde9a49abde9a49abde9a49abde by ann",
        "docker run -p 8080:80 nginx:1.25; mysql -P 3306 -h db -p shop; ssh -p 2222 host",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        '{"id": "call_a8Kq2LmP0zWx81kLm2Qp90Rt", "agent_key": "61b16c88c2c52c9a8bdad87353369c64"}',
        "self.password = password2; x.token=c.key1+2,a.b(d)",
        "the token limit is 128000, the key is 42, pass 12 tests, compass: north 12",
        "password policy: at least 12 characters, 1 digit",
        "-----BEGIN CERTIFICATE-----\nMIIB0zCCAX2gAwIBAgIJAI8v7y4u\n-----END CERTIFICATE-----",
        "git@github.com:a/b2.git ssh://git@github.com/a/b https://ann@host/x",
        "Cookie consent 2024: accept; cookies: SameSite=Lax; Secure",
    ],
)
def test_ordinary_text_with_such_names_stays(text: str) -> None:
    """Hashes, ports, ids, code and prose."""
    for whole in (text, json.dumps({"content": text})):
        assert REDACTOR.text(whole) == whole


@pytest.mark.parametrize(
    "messages",
    [
        ("Use vault for it.", "Please login tomorrow."),
        ("curl is a program", "sort -u name:size"),
        ("see https://example.test/a", "grep -a time:now log"),
        ("echo is a program", "a | sudo -S ls"),
        ("The vault is open today and you can login tomorrow", ""),
        ("the zip file, use -P folder", "the mysql server -pretty"),
    ],
)
def test_no_command_goes_on_in_another_string(messages: tuple[str, str]) -> None:
    """A program that one message mentions takes no words of the next one for a password."""
    whole = json.dumps([{"role": "user", "content": text} for text in messages])
    assert REDACTOR.text(whole) == whole


@pytest.mark.parametrize("first", ["vault kv get x", "docker run x -p 80:80", "curl -u", "mysql"])
@pytest.mark.parametrize(
    "command",
    [
        "az login --service-principal -u id -p {} --tenant t",
        "docker login -u ann -p {}",
        "lftp -u ann,{} host",
        "curl -d '{{\"a\": 1}}' -u ann:{} https://host",
    ],
)
def test_a_program_in_another_string_hides_no_command(first: str, command: str) -> None:
    """A body loses the same secrets as the text of a span, so that a replay finds them equal."""
    text = command.format(SECRET)
    whole = json.dumps([{"content": first}, {"content": text}])
    assert json.loads(REDACTOR.text(whole))[1] == {"content": REDACTOR.text(text)}
    assert SECRET not in REDACTOR.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "Driver={{ODBC}};Server=db;UID=sa;PWD={};",
        'let api_token: &str = "{}";',
        'let api_token: &\'a str = "{}";',
        "ann:$apr1$abcdefgh${}abcdef",
        "kubectl create secret generic x --from-literal=stripe={}",
        "pbkdf2_sha256$870000$abcdefgh${}=",
    ],
)
def test_further_places(text: str) -> None:
    """Connection strings, borrowed texts in Rust, and hashes of web servers and frameworks."""
    assert SECRET not in REDACTOR.text(text.format(SECRET))


@pytest.mark.parametrize(
    "part",
    [
        *("echo a|", "curl -u ", "kind: Secret\ndata:\n a: b\n", "\\u0070", "%3D&quot;"),
        *("api_key | ", "password: |\n  ", 'auth=("a",', "://a@", 'token: """', "password of is "),
    ],
)
def test_hostile_texts_take_linear_time(part: str) -> None:
    """Read once per place, these would take hours."""
    REDACTOR.text(part * 20_000)
