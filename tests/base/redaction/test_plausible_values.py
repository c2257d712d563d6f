"""A value is removed wherever it stands only if it may be a secret by itself."""

from __future__ import annotations

import json

import pytest

from oteval.base.redaction.exchange_secrets import KnownSecrets
from oteval.base.redaction.secret_names import secret_kind
from oteval.base.redaction.secret_values import is_plausible
from oteval.base.redaction.secrets import PLACEHOLDER, SecretRedactor, request_secrets

PLAIN = {
    "PWD": "/srv/shop",
    "OLDPWD": "/srv/other",
    "TOKEN_PROVIDER": "anthropic",
    "MAX_TOKENS_MODEL": "gpt-4o-mini-2024-07-18",
    "PASSWORD_POLICY": "strong-12-characters",
    "GIT_ASKPASS": "/usr/lib/git-core/git-askpass",
    "KEY_VAULT_URL": "https://shop.vault.azure.net/",
    "SECRET_STORE": "production-eu",
    "SESSION_TOKEN_TTL": "86400000000",
    "CREDENTIALS_FILE": "/home/ann/credentials.json",
    "DB_PASSWORD": "sunshine",
    "ADMIN_PASSWORD": "password1",
    "OPENAI_API_KEY": "not-needed",
    "SECRET": "changeme",
    "AUTH_TOKEN": "Qwen/Qwen2.5-72B-Instruct",
    "API_TOKEN": "ann@example.com",
    "ACCESS_TOKEN": "2026-11-25T10:00:00Z",
    "GPG_KEY": "E3FF2839C048B25C084DEBE9B26995E310250568",
    "CLIENT_SECRET": "{{ vault.client_secret }}",
}
SECRETS = {
    "OPENAI_API_KEY": "aB3dE5fG7hI9jK1l",
    "PGPASSWORD": "k9#mQ2!xW",
    "SSHPASS": "hunter2X9",
    "DB_PASS": "S3cr3tPw9x",
    "STRIPE_KEY": "Zx81kLm2Qp90Rt",
    "TOKEN_GITHUB": "9fK2mX81LqPz",
    "DB_PASSWORD_OLD": "q7Wm2Zx9",
    "API_KEY_2": "plainvaluewithoutform",
    "npm_config__authToken": "k2l3m4n5o6p7Q8",
    "PHRASE_SECRET": "correct horse battery staple",
}


@pytest.mark.parametrize("name", PLAIN)
def test_words_paths_and_addresses_of_the_environment_stay(name: str) -> None:
    """A path in ``$PWD`` is in every path of a recording, a provider's name in every request."""
    value = PLAIN[name]
    redactor = SecretRedactor(environment={name: value})
    text = f"see {value} there, and {value}/src/main.py"
    assert redactor.text(text) == text
    assert redactor.text(json.dumps({"path": value})) == json.dumps({"path": value})


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_of_the_environment_are_removed_wherever_they_stand(name: str) -> None:
    """Whatever the name's spelling and qualifiers are."""
    redactor = SecretRedactor(environment={name: SECRETS[name]})
    assert redactor.text(f"it is {SECRETS[name]}.") == f"it is {PLACEHOLDER}."


def test_a_word_is_removed_at_its_name_only() -> None:
    """The name alone says that it is a secret; elsewhere it is a word."""
    redactor = SecretRedactor(environment={"DB_PASSWORD": "sunshine"})
    text = redactor.text('{"password": "sunshine", "weather": "sunshine"}')
    assert json.loads(text) == {"password": PLACEHOLDER, "weather": "sunshine"}


def test_values_of_requests_are_removed_elsewhere_only_if_they_are_plausible() -> None:
    """Cookies also hold settings, and servers without keys get words as keys."""
    headers = [("Cookie", "theme=dark-mode; sid=x8Kq2LmP0z"), ("X-Api-Key", "lm-studio-key")]
    secrets = request_secrets(headers, "https://host/p?state=settings&code=a7Bc9Df2Gh")
    assert secrets == {"x8Kq2LmP0z", "a7Bc9Df2Gh"}
    known = KnownSecrets()
    known.add(["placeholder", "/run/secrets/key", "x8Kq2LmP0z"])
    assert known.secrets == {"x8Kq2LmP0z"}


@pytest.mark.parametrize(
    "value",
    [
        *("claude-3-5-sonnet-20241022", "anthropic.claude-3-haiku-20240307-v1:0", "llama3.1:70b"),
        *("/usr/local/bin/x", "~/keys/id", "C:\\Users\\ann", "./a/b.key", "https://host/p"),
        *("application/json", "en_US.UTF-8", "us-east-1.amazonaws.com", "aes-256-gcm", "x86_64"),
        *("created_at", "camelCaseName", "UPPER_CASE_2", "12345678901", "1.2.3-rc.4", "<your key>"),
        *("${SECRET}", "$SECRET", "%(password)s", "********", "[redacted]", "[redacted card]"),
    ],
)
def test_ordinary_values_are_not_plausible(value: str) -> None:
    """Names of models, paths, addresses, identifiers, numbers and templates."""
    assert not is_plausible(value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("PGPASSWORD", "secret"), ("keyStorePassword", "secret"), ("client-key-data", "secret")),
        *(("api_key_2", "secret"), ("secretKeyBase", "secret"), ("SSHPASS", "secret")),
        *(
            ("authToken", "token"),
            ("botToken", "token"),
            ("STRIPE_KEY", "weak"),
            ("stripe_key", "weak key"),
        ),
        *(("TOKEN_GITHUB", "weak"), ("pass", "weak"), ("token", "bare token")),
        *(
            ("PWD", ""),
            ("GIT_ASKPASS", ""),
            ("max_tokens", ""),
            ("token_count", ""),
            ("author", ""),
        ),
        *(("password_hint", ""), ("secret_name", ""), ("cache_key", ""), ("compass", "")),
    ],
)
def test_one_grammar_of_names(name: str, kind: str) -> None:
    """Words are split at any sign and case; qualifiers do not count; the last word decides."""
    assert secret_kind(name) == kind
