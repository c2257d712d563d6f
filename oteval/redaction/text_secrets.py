r"""Secrets by their names in text that is not JSON: assignments, markup and options of commands.

Such text is a whole body, or content: a file that a tool has read, the environment that it has
printed, a traceback. Inside JSON it is escaped: a line begins after ``\n``, and a quote is ``\"``.

    OPENAI_API_KEY=...      password: ...      api_key = "..."      'token': '...'
    <password>...</password>      <add key="ApiKey" value="..."/>      --api-key ...

The same names are used in prose and in code ("the password: is required", ``password: str``), so a
value without quotes must look like a secret, unless it follows the name of a variable of the
environment, or is alone with its name on a line of a plain text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from ..patterns import Pattern
from .secret_names import KEY_KINDS, is_secret_value, names_in, secret_kind

__all__ = ["BARE", "NAME_ENDS", "TEXT_SECRET", "is_secret_text", "text_spans"]

NAME_ENDS = (
    r"(?:pass(?:word|wd|phrase|code)s?|pwd|secrets?|credentials?|authorization|auth|jwt|bearer"
    rf"|token|(?:{'|'.join(sorted(KEY_KINDS))})[_. -]?keys?|connection[_ ]?string|cookies?)"
)
"""A pattern for the last words of names of secrets."""
_ASSIGNED = rf"{NAME_ENDS}\\*[\"'`]?[ \t]*(?::=|=>|[:=])"
_ELEMENT = rf"<[a-z0-9_:.-]*{NAME_ENDS}(?:\s[^<>]*)?>"
_PAIR = (
    rf"{NAME_ENDS}\\*[\"'](?:>|(?:[\s,]|\\+[nrt])*\\*[\"']?value\\*[\"']?"
    r"(?:\s|\\+[nrt])*[:=](?:\s|\\+[nrt])*\\*[\"'])"
)
_OPTION = rf"--[a-z0-9-]*{NAME_ENDS}[ \t]+[^\s-]"
TEXT_SECRET = f"(?i:{_ASSIGNED}|{_ELEMENT}|{_PAIR}|{_OPTION})"
"""A pattern that is found in each text in which `text_spans` may find secrets."""

_LONGEST_NAME = 64
_BEFORE_NAME = re.compile(r"[\w.$-]*\Z")
_NAMED_BY = re.compile(
    r"(?:key|name|variable)\\*[\"']?(?:\s|\\+[nrt])*[:=](?:\s|\\+[nrt])*\\*[\"']\Z", re.IGNORECASE
)
_JSON_KEY = re.compile(r'"[ \t]*:\Z')
_SPACE = re.compile(r"[ \t]*")
_OPENING = re.compile(r"[bru]?(\\*[\"'`])")
_QUOTED = re.compile(r"[^\"'`\\\r\n]+")
BARE = re.compile(r"[^\s\"'`<>\\]{1,1024}")
"""A value without quotes: of limited length, so that hostile text takes linear time."""
_REST_OF_LINE = re.compile(r"[^\"'`\\\r\n]{1,4096}")
_ELEMENT_TEXT = re.compile(r"\s*(?:<!\[CDATA\[)?([^<>\s][^<>]*?)(?=\s*(?:\]\]>|<))")
_ELEMENT_END = re.compile(r"\s*(?:\]\]>|</)")
_IN_QUOTES = re.compile(r"[^\\\"']+")
_COOKIE = re.compile(r"[\w.-]{1,256}=[^\s=]")
_SCHEMES = re.compile(r"(?i)(?:apikey|basic|bearer|digest|key|negotiate|token)[ \t]+")
# The end of a value, where another assignment follows it.
_NEXT = re.compile(r"[,;&]\s*[\w.\[\]-]+\s*[:=]")
_LINE_START = re.compile(r"(?:^|[\r\n]|\\[rn])[ \t]*(?:-[ \t]+)?(?:export[ \t]+|set[ \t]+)?\Z")
_LINE_END = re.compile(r"[ \t;]*(?:$|[\r\n]|\\[rn])")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
# Code and templates: calls, places of variables, paths, addresses.
_CODE = re.compile(
    r"[$%*(\[{&|!:=,;.)\]}]|[A-Za-z_][\w.]*[(\[{]|~?\.{0,2}/[\w.-]*(?:/[\w.-]*)*\Z|[A-Za-z]:\\|\w+://"
)
# Words with at most one number each, such as "gpt-4o-mini" or "projects/1/keys".
_IDENTIFIER = re.compile(
    r"(?:[A-Za-z]*(?:\d{1,4}[A-Za-z]*)?[_.:/-]+)+[A-Za-z]*(?:\d{1,4}[A-Za-z]*)?"
)
_NUMBERED_WORD = re.compile(r"[A-Za-z]+\d{1,4}")
_MIXED = re.compile(r"\d|[^\W\d_][#$%^*+=~@!?][^\W\d_]")
_SHORTEST = 6
_SHORTEST_LINE = 3
_TYPES = names_in("""
    any array bool boolean byte bytes char enum float hidden int integer list missing no number
    object opaque password redacted secret secretstr set str string text token unset uuid varchar
    yes
""")


def text_spans(text: str, *, is_plain: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the places of values that a text names as secrets.

    Args:
        text: The text, also JSON with such text in its strings.
        is_plain: Whether it is a plain text as a whole, such as a file of settings.
    """
    done = 0
    for start, end in _pattern().spans(text):
        if start < done:
            continue  # a part of a secret
        matched = text[start:end]
        if matched.startswith("--") and matched[-1] not in ":=":
            found = _option(text, end, secret_kind(matched.split()[0]))
        elif matched.startswith("<"):
            found = _element(text, end, secret_kind(matched[1:-1].split()[0]))
        elif matched[-1] in ":=" or matched.endswith("=>"):
            found = _assigned(text, start, end, is_plain=is_plain)
        else:
            found = _pair(text, start, end)
        if found is not None:
            done = found[1]
            yield found


@functools.cache
def _pattern() -> Pattern:
    return Pattern(TEXT_SECRET)


def _first(text: str, start: int) -> int:
    """Return the start of the name of whose last words a pattern has found the start."""
    before = _BEFORE_NAME.search(text[max(0, start - _LONGEST_NAME) : start])
    first = start - (len(before[0]) if before else 0)
    if first < start and text[first - 1 : first] == "\\" and text[first] in "nrt":
        first += 1  # the letter of an escape
    return first


def _assigned(text: str, start: int, end: int, *, is_plain: bool) -> tuple[int, int] | None:
    """Return the place of the value after a name and a colon or an equals sign."""
    first = _first(text, start)
    name = text[first:end].rstrip(":=> \t\\\"'`")
    kind = secret_kind(name)
    if not kind:
        return None
    at = _skip_space(text, end)
    is_json = _JSON_KEY.search(text[max(0, end - 8) : end])
    opening = _OPENING.match(text, at)
    if opening is not None:
        if is_json and opening[1].endswith('"'):
            return None
        return _quoted(text, opening.end(), kind)
    if is_json:
        return None  # numbers and containers of JSON
    if kind == "cookie":
        line = _REST_OF_LINE.match(text, at) if _COOKIE.match(text, at) else None
        return line.span() if line else None
    if name.lower().endswith("authorization") and (scheme := _SCHEMES.match(text, at)):
        at = scheme.end()
    found = BARE.match(text, at)
    if found is None:
        return None
    value = found[0]
    following = _NEXT.search(value)
    value = (value[: following.start()] if following else value).rstrip(",;.)]}")
    after = at + len(value)
    # A whole line of a file of settings, or a variable of an environment.
    is_line = _LINE_END.match(text, after) and _LINE_START.search(text[max(0, first - 40) : first])
    is_variable = at == end and text[end - 1] == "=" and _VARIABLE.fullmatch(name)
    is_alone = bool(is_variable or (is_plain and is_line))
    return (at, after) if is_secret_text(kind, value, is_alone=is_alone) else None


def is_secret_text(kind: str, value: str, *, is_alone: bool) -> bool:
    """Return whether a text without quotes is a secret.

    Args:
        kind: The kind of secret that its name means.
        value: The text.
        is_alone: Whether the value is certainly one, not a word of a sentence or of code.
    """
    if not is_secret_value(kind, value) or _CODE.match(value) or value.lower() in _TYPES:
        return False
    if kind != "secret" and (_IDENTIFIER.fullmatch(value) or _NUMBERED_WORD.fullmatch(value)):
        return False
    if is_alone:
        return len(value) >= _SHORTEST_LINE
    if _IDENTIFIER.fullmatch(value):
        return False
    return len(value) >= _SHORTEST and _MIXED.search(value) is not None


def _quoted(text: str, at: int, kind: str) -> tuple[int, int] | None:
    """Return the place of the value in quotes that begins at an index."""
    found = _QUOTED.match(text, at)
    if found is None or not is_secret_value(kind, found[0]):
        return None
    value = found[0]
    if kind != "secret" and _IDENTIFIER.fullmatch(value):
        return None
    is_prose = " " in value and not _MIXED.search(value)
    if kind == "cookie" or not (is_prose or _CODE.match(value) or value.lower() in _TYPES):
        return found.span()
    return None


def _element(text: str, at: int, kind: str) -> tuple[int, int] | None:
    """Return the place of the text of an element of XML, whose opening tag ends at an index."""
    found = _ELEMENT_TEXT.match(text, at)
    if found is None or not _ELEMENT_END.match(text, found.end()):
        return None
    if is_secret_value(kind, found[1]) and not _CODE.match(found[1]):
        return found.span(1)
    return None


def _pair(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of the value that follows the name of a secret as another value."""
    first = _first(text, start)
    if not _NAMED_BY.search(text[max(0, first - _LONGEST_NAME) : first]):
        return None
    name = _IN_QUOTES.match(text, first)
    kind = secret_kind(name[0]) if name else ""
    if text[end - 1] != ">":
        return _quoted(text, end, kind)
    found = _element(text, end, kind)
    if found is None or not is_secret_text(kind, text[slice(*found)], is_alone=False):
        return None
    return found


def _option(text: str, end: int, kind: str) -> tuple[int, int] | None:
    """Return the place of the value of an option of a command, which begins before an index."""
    opening = _OPENING.match(text, end - 1)
    if opening is not None:
        return _quoted(text, opening.end(), kind)
    found = BARE.match(text, end - 1)
    if found is None or not is_secret_text(kind, found[0], is_alone=False):
        return None
    return found.span()


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
