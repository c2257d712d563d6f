"""The grammar of names of secrets, for every place where a value has a name.

One function judges keys of JSON, query parameters, fields of forms, headers, variables of
environments and of code, options of commands, elements of XML and attributes of spans. A name is
split into words, so that ``OPENAI_API_KEY``, ``apiKey`` and ``x-api-key`` are alike, and is judged
by its last words, without qualifiers: ``DB_PASSWORD_OLD`` and ``api_key_2`` name secrets,
``password_hint`` and ``max_tokens`` do not.

The kinds of names, see `secret_values.is_secret_value`:

- ``secret``: passwords, keys of a known use, private keys.
- ``token``: tokens. Numbers with these names are counts.
- ``bare token``: the word alone, which also names pieces of text.
- ``cookie``: cookies, which consist of pairs.
- ``rule``: the name is in a rule of the user, so that every value counts.
- ``weak``: ``TOKEN_GITHUB``, ``STRIPE_KEY`` or ``pass``: names that other values have as well.
- ``weak key``: ``stripe_key`` or ``agent_key``: the same, and the values are often ids.
"""

from __future__ import annotations

import functools
import re
from urllib.parse import unquote

__all__ = [
    "NAME_ENDS",
    "PARAMETER_ENDS",
    "SAFE_HEADERS",
    "is_safe_header",
    "is_secret_header",
    "is_secret_parameter",
    "names_in",
    "secret_kind",
]


def names_in(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


SAFE_HEADERS = names_in("""
    accept anthropic-beta anthropic-version cache-control content-disposition content-encoding
    content-language content-location content-type date etag last-modified link location
    mcp-protocol-version openai-beta openai-model openai-processing-ms openai-version
    operation-location request-id retry-after retry-after-ms server user-agent vary x-request-id
    x-should-retry
""")
"""The headers that a recording keeps, besides the headers about rate limits."""

_LIMIT_HEADER = re.compile(r"(?:x|anthropic)-ratelimit-[a-z-]+")
_CAMEL = re.compile(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])")
_NOT_WORD = re.compile(r"[\W_]+")

_SECRET_WORDS = names_in("""
    password passwords passwd passphrase passphrases passcode pwd secret secrets credential
    credentials cred creds authorization jwt psk
    contraseña contrasena hasło kennwort passwort senha wachtwoord
    пароль パスワード 密码 密碼 비밀번호
""")
# The ends of words that are written together: PGPASSWORD, SSHPASS, keyStorePassword, authToken.
_SECRET_END = re.compile(
    r".*(?:password|passwd|passphrase|secret|apikey|accesskey|privatekey|secretkey|signingkey"
    r"|encryptionkey|accountkey|authkey|masterkey|sharedkey|clientkey)s?"
    r"|(?:auth|basic|db|ftp|http|key|ldap|login|mail|mongo|mysql|pg|pgsql|proxy|rabbit|redis|root"
    r"|sa|smtp|ssh|store|sudo|sys|user|vault|web)(?:pass|pwd)"
)
_TOKEN_END = re.compile(r"[a-z0-9]{2,}token")
_KEY_KINDS = names_in("""
    access account admin aes api app auth client consumer crypto decryption deploy encryption fernet
    function hmac license master org organization private project publish rsa sas secret server
    service session shared sign signing ssh ssl storage subscription team tls user webhook write
""")
# Words before "key" that make it a key for finding something, or a public key.
_PLAIN_KEYS = names_in("""
    agent array base bucket business cache candidate composite correlation cursor dedup
    deduplication dict document entity entry event field file foreign gpg group hash hot idempotency
    index input item join json label lock lookup map message metadata natural object output
    parent partition path primary prompt property public query queue range row routing s3 search
    shard sort state storage string tag task topic translation translations unique usage xml
""")
_TOKEN_WORDS = names_in("token auth bearer pat phpsessid jsessionid")
# Words before "token" that make it a piece of text, a count or a place in a list.
_PLAIN_TOKENS = names_in("""
    accepted audio average bos bytes cached cancellation cls completion continuation cost count
    current decode end eos first image input last mask max min next num output page pad per
    prediction prefill previous price prompt reasoning redaction rejected rest sampled sep
    special start stop sync text thinking time to total unk usage
""")
_WEAK_WORDS = names_in("pass pw")
_ANY_SECRET = _SECRET_WORDS | {"token", "apikey"}
# Words that may follow the words that decide.
_QUALIFIERS = names_in("""
    again b64 backup base base64 confirm confirmation current default dev development encoded
    encrypted live main new old plain plaintext previous primary prod production raw repeat
    sandbox secondary stage staging test value
""")
# Last words that make a name with the word for a secret describe the secret.
_PLAIN_ENDS = names_in("""
    accessor algorithm alg arn at audience available class column count dir directory duration
    enabled endpoint environment error exp expiration expires expiry field file format header hint
    host id ids index issuer kind label length level limit limits location max message method min
    mode model name names path policy port prefix provider ref reference region requests required
    scheme scope scopes selector size source split status store strategy suffix timeout tokens
    tracker ttl type types uri url usage used user username version
""")
# The directories of a shell, and the programs that ask for a password.
_PLAIN_NAMES = names_in("PWD OLDPWD")

_PARAMETER_WORDS = names_in("""
    assertion auth code cookie credential credentials hmac jwt key keys otp pass pin pw session
    sessionid sid sig sign signature state ticket token tokens
""")
_HEADER_WORDS = _PARAMETER_WORDS | _SECRET_WORDS | {"cookie2", "csrf", "xsrf"}

_LAST_WORDS = (
    r"pass(?:word|wd|phrase|code)s?|pass|pwd?|secrets?|cred(?:ential)?s?|authorization|auth|jwt"
    r"|bearer|pat|token|cookies?|(?:connection|secret)[_ -]?string|psk"
    r"|contrase(?:ñ|n)a|hasło|kennwort|passwort|senha|wachtwoord|mot de passe|пароль"
    r"|パスワード|密码|密碼|비밀번호"
    rf"|(?:{'|'.join(sorted(_KEY_KINDS))})[_. -]?keys?|[a-z0-9][_-]key"
    r"|(?-i:[a-z]Key)|key[_-]data|[jp](?:hp)?sess(?:ion)?id"
)
NAME_ENDS = (
    rf"(?:{_LAST_WORDS})(?:[_.-]?(?:{'|'.join(sorted(_QUALIFIERS))}|[0-9]{{1,3}})){{0,2}}"
    r"|(?-i:(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY)(?:_[A-Z0-9]+)+)"
)
"""A pattern, to be used without case, for the ends of all names with a kind."""
PARAMETER_ENDS = f"{NAME_ENDS}|{'|'.join(sorted(_PARAMETER_WORDS))}"
"""The same for the names of parameters."""


@functools.lru_cache(8192)
def secret_kind(name: str) -> str:
    """The kind of secret that a name denotes, or "": see the module."""
    words = list(_words(name))
    if not words or name in _PLAIN_NAMES or words[-1] == "askpass":
        return ""
    if words[-2:] in (["connection", "string"], ["secret", "string"], ["de", "passe"]):
        return "secret"
    if words[-2:] == ["key", "data"]:  # client-key-data in the configuration of Kubernetes
        return "secret"
    while len(words) > 1 and (words[-1] in _QUALIFIERS or words[-1].isdigit()):
        words.pop()
    last = words[-1].rstrip("0123456789") or words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last in _SECRET_WORDS or _SECRET_END.fullmatch(last):
        return "secret"
    if last in ("key", "keys"):
        kind = _key_kind(before, is_many=last == "keys")
        return "weak" if kind == "weak key" and name.isupper() else kind
    if last in _TOKEN_WORDS:
        if not before:
            return "bare token" if last != "pat" else "weak"
        return "" if before in _PLAIN_TOKENS else "token"
    if _TOKEN_END.fullmatch(last):
        return "token"
    if last in ("cookie", "cookies"):
        return "cookie"
    if last in _WEAK_WORDS:
        return "weak"
    is_about = last in _PLAIN_ENDS or not _PLAIN_TOKENS.isdisjoint(words)
    return "" if is_about or _ANY_SECRET.isdisjoint(words) else "weak"


def _key_kind(before: str, *, is_many: bool) -> str:
    if before in _KEY_KINDS and before not in _PLAIN_KEYS:
        return "secret"
    if not before or is_many or before in _PLAIN_KEYS:
        return ""
    return "weak key"


@functools.lru_cache(1024)
def is_secret_parameter(name: str) -> bool:
    """Whether a parameter of a query or form is named like a secret."""
    name = unquote(name)
    return bool(secret_kind(name)) or not _PARAMETER_WORDS.isdisjoint(_words(name)[-1:])


@functools.lru_cache(1024)
def is_secret_header(name: str) -> bool:
    """Whether a header's value is a secret, to be removed wherever it recurs."""
    name = name.lower()
    if name in SAFE_HEADERS or _LIMIT_HEADER.fullmatch(name) or name == "idempotency-key":
        return False
    return bool(secret_kind(name)) or not _HEADER_WORDS.isdisjoint(_words(name))


def is_safe_header(name: str) -> bool:
    """Whether a recording keeps a header."""
    name = name.lower()
    return name in SAFE_HEADERS or _LIMIT_HEADER.fullmatch(name) is not None


@functools.lru_cache(4096)
def _words(name: str) -> tuple[str, ...]:
    lowered = _CAMEL.sub(r"\1\3_\2\4", name).lower()
    return tuple(word for word in _NOT_WORD.split(lowered) if word)
