"""The values of secrets: which texts may be secrets, and which cannot.

A value at the name of a secret is a secret, unless it has no meaning by itself: a type, a path, an
address, a template. Two kinds of values must also be *plausible*: values that are removed
everywhere, and values at a name that other values have as well. A plausible value is long enough,
has enough different characters, and is not a word, number, path, address, date or name of a model.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping

from .secret_names import names_in, secret_kind

__all__ = [
    "PLACEHOLDER",
    "SHORTEST_LITERAL",
    "environment_secrets",
    "is_plausible",
    "is_secret_value",
    "is_words",
    "may_recur",
]

PLACEHOLDER = "[redacted]"
"""The text in place of a secret."""

SHORTEST_LITERAL = 8
"""The length from which a secret is removed everywhere."""

_PLAIN_VALUES = names_in("""
    false include no none null off omit on optional required same-origin string true undefined yes
""")
# A word, perhaps with punctuation, such as the pieces of an answer.
_WORD = re.compile(r"\s*[A-Za-z]{0,24}[^A-Za-z0-9]{0,8}")
_COUNT = re.compile(r"[0-9]{1,9}")
# Words and numbers: a value without any longer mixture of letters and digits.
_HARMLESS = re.compile(r"(?:(?:[^\W\d_]{1,24}|\d{1,12})(?:[\W_]+|$))*")
_LONGEST_HARMLESS = 200

_NAME = r"[\w.@+~-]"
_PATH = re.compile(
    rf"(?:file:)?(?:~|\.{{1,2}})?(?:/(?=[\w.@~+-]*[A-Za-z]{{2}}|[.~]){_NAME}+){{2,}}/?"
    rf"|(?:~|\.{{1,2}})/{_NAME}+/?|(?:[A-Za-z]:|\\)\\[^\n]*"
    rf"|{_NAME}+(?:/{_NAME}+)*\.(?:conf|crt|env|html|ini|json|key|log|md|p12|pem|pub|py|sh|toml"
    r"|txt|xml|ya?ml)"
)
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]{1,20}://[^\s@]*|(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,12}(?::\d+)?"
)
_MAIL = re.compile(r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}")
_TEMPLATE = re.compile(
    r"\$\{?[a-z_][\w.:-]*\}?|\$\{.*|\$\(.*\)?|\$?\{\{.*|<[^<>]*>|%\w+%|%(?:\(\w+\))?[sdr]|\{\w*\}|\*+"
    r"|x{3,}|\.{3}|•+|\[[a-z ]*redacted[^\]]*\]|#\{.*|vault:.*|arn:aws:.*|projects/.*/.*"
    r"|(?:your|my)[-_ ](?:[a-z]+[-_ ])*(?:key|token|secret|password)(?:[-_ ]here)?",
    re.IGNORECASE,
)
_DIGEST = re.compile(r"[0-9a-f-]*|[0-9A-F-]*")
# Names of models, versions, hosts and identifiers: each part is a word with one number, or a date.
_PART = (
    r"(?:[A-Za-z]{1,24}(?:\d{1,8}(?:x\d{1,4})?[A-Za-z]{0,2})?|\d{1,8}(?:x\d{1,4})?[A-Za-z]{0,8}|)"
)
_IDENTIFIER = re.compile(rf"[^A-Za-z0-9]*{_PART}(?:[\s_.,:;/@=+-]+{_PART})*[^A-Za-z0-9]{{0,4}}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.,+-]+Z?)?")
_LETTERS = re.compile(r"[A-Za-z]{3,}")
_CAMEL_WORDS = re.compile(r"[a-z]*(?:[A-Z][a-z]+|[A-Z]{1,6}(?![a-z]))*")
_CASE_CHANGE = re.compile(r"[a-z][A-Z]")
_LONGEST_WORD = 20
_SHORT = 6
_LONG = 400
_LONGEST_PLAUSIBLE = 65_536
_LEAST_ENTROPY = 2.3
# A passphrase: so many words do not occur by chance.
_PHRASE = re.compile(r"(?:\w{1,24} ){2,12}\w{1,24}(?<=.{16})")
_NUMBERED_PHRASE = re.compile(r"(?=.*\d)(?=.{12})[A-Za-z0-9]{1,24}(?:[ _-][A-Za-z0-9]{1,24}){2,8}")
_MODEL = re.compile(
    r"(?i)gpt|claude|llama|gemini|gemma|[mn]ova|mi[sx]tral|qwen|deepseek|turbo|instruct|embed|flash"
    r"|titan|command|phi|grok|\bv\d|\d{4}-\d\d"
)
_USERINFO = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")


def is_secret_value(kind: str, value: str) -> bool:
    """Whether the text at a name of a kind is a secret.

    Args:
        kind: The kind of the name, see `secret_names`.
        value: The text.
    """
    if kind == "rule":
        return bool(value)
    if not kind or not value or value.lower() in _PLAIN_VALUES:
        return False
    if kind == "cookie":
        return "=" in value
    if _TEMPLATE.fullmatch(value) or _PATH.fullmatch(value):
        return False
    if kind == "secret":
        return True
    if kind == "weak":
        return is_plausible(value)
    if kind == "weak key":
        return is_plausible(value) and not _DIGEST.fullmatch(value)
    if _COUNT.fullmatch(value):
        return False
    return kind == "token" or (len(value) > 5 and not _WORD.fullmatch(value))


@functools.lru_cache(4096)
def is_plausible(value: str) -> bool:
    """Whether a text by itself may be a secret, whatever its name is."""
    if not SHORTEST_LITERAL <= len(value) <= _LONGEST_PLAUSIBLE or value in PLACEHOLDER:
        return False
    words = value.split()
    if len(words) > 1 and len(value) / len(words) < _LONGEST_WORD:
        return len(words) == 2 and any(map(is_plausible, words))
    if len(value) > _LONG:
        return True
    if value.isdigit():
        return len(value) > 20
    if any(form.fullmatch(value) for form in (_PATH, _ADDRESS, _MAIL, _TEMPLATE, _DATE)):
        return False
    if _LETTERS.fullmatch(value):
        return not _is_word(value)
    if _IDENTIFIER.fullmatch(value) and not _has_random_part(value):
        return False
    counts = Counter(value).values()
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return entropy >= _LEAST_ENTROPY


def may_recur(value: str) -> bool:
    """Whether a value found at the name of a secret is removed elsewhere as well.

    Such values are plausible values and passphrases of words with a number: "correct-horse-7".
    """
    if is_plausible(value):
        return True
    return _NUMBERED_PHRASE.fullmatch(value) is not None and not _MODEL.search(value)


def is_words(value: str) -> bool:
    """Whether a value consists of words and numbers."""
    return len(value) <= _LONGEST_HARMLESS and _HARMLESS.fullmatch(value) is not None


def environment_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """The plausible values of variables that name secrets, and passwords in addresses."""
    secrets: set[str] = set()
    for name, value in environment.items():
        kind, text = secret_kind(name), value.strip()
        is_phrase = kind in ("secret", "token") and _PHRASE.fullmatch(text)
        if is_phrase or (is_secret_value(kind, text) and is_plausible(text)):
            secrets.add(text)
        secrets.update(filter(is_plausible, _USERINFO.findall(value)))
    return frozenset(secrets)


def _is_word(letters: str) -> bool:
    """Whether letters are a word or several in camel case, not a random text."""
    if len(letters) > 3 * _LONGEST_WORD or not _CAMEL_WORDS.fullmatch(letters):
        return False
    words = len(_CASE_CHANGE.findall(letters)) + 1
    shortest = 2 if len(letters) < _SHORT else 3
    return shortest <= len(letters) / words <= _LONGEST_WORD


def _has_random_part(value: str) -> bool:
    """Whether a part of a text is a text of letters that is not a word."""
    return not all(map(_is_word, _LETTERS.findall(value)))
