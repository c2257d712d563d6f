r"""The value that follows a name in a text, whatever the text is: how it is written, and its end.

    NAME=value      name: "value"      name: |       name: str = 'value'      name = Secret("value")
                                         value

Inside JSON, such text is escaped: a quote is ``\"``, and a line ends at ``\n``. A value without
quotes is a word of a sentence or an expression of code unless it looks like a secret.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .secret_names import names_in, secret_kind
from .secret_values import is_plausible, is_secret_value

__all__ = [
    "BARE",
    "GAP",
    "QUOTE",
    "TextValue",
    "bare_value",
    "cookie_value",
    "is_secret_text",
    "text_value",
]

GAP = r"(?:\s|\\+[nrt])*"
"""A pattern for white space between two lines or words, as it is or escaped."""
QUOTE = r"\\*[\"'`]"
"""A pattern for a quote, as it is or escaped."""
BARE = re.compile(
    r"(?:\\+[$&!#*()|;@%^ ])?[^\s\"'`<>\\]{1,1024}(?:\\+[$&!#*()|;@%^ ][^\s\"'`<>\\]{0,1024}){0,8}"
)
"""A value without quotes. Its length is limited, so that hostile text takes linear time."""

# White space, the end of bold text before it, and the tag of a value in YAML.
_SPACE = re.compile(r"(?:\*\*)?(?:[ \t]|\\+t)*(?:!!?[a-z]+[ \t]+)?")
_TYPE = re.compile(
    r"(?:[A-Za-z_][\w.]{0,40}(?:\[[\w., |]{0,40}\])?(?:[ \t]*\|[ \t]*None)?|&(?:'[a-z]+ )?str)"
    r"[ \t]*=[ \t]*(?=[A-Za-z@$]{0,2}\\*[\"'`])"
)
_WRAPPER = re.compile(
    r"\(?(?:(?:new[ \t]+|\[\])?[A-Za-z_$][\w.:]{0,60}\([ \t]*"
    r"|ConvertTo-SecureString[ \t]+(?:-String[ \t]+)?)"
    r"(?=[A-Za-z@$]?\\*[\"'`])"
)
_BRACKETED = re.compile(r"[(\[{<][ \t]*([^\s\"'`<>()\[\]{}\\]{8,1024})[)\]}>]")
_OPENING = re.compile(r"[A-Za-z@$]{0,2}(\\*)([\"'`])(?:\1\2\1\2)?")
_LONGEST_QUOTED = 8192
_LINE = re.compile(r"[\r\n]|\\+[nr]")
_BLOCK = re.compile(r"[|>][+-]?[1-9]?[+-]?[ \t]*(\r?\n|\\+n)([ ]+)(?=[^ ])")
_COOKIE_START = re.compile(r"[ \t]*\\*[\"'`]?")
_REST_OF_LINE = re.compile(r"[^\"'`\\\r\n]{1,4096}")
_COOKIE = re.compile(r"(?i)(?!samesite|path|domain|max-age|expires)[\w.-]{1,256}=[^\s=]")
# The end of a value, where another assignment follows it.
_NEXT = re.compile(r"[,;&]\s*[\w.\[\]-]+\s*[:=]")
# Code and templates: calls, places of variables, paths, addresses.
_CODE = re.compile(
    r"[$%*(\[{&|!:=,;.)\]}]|[A-Za-z_][\w.]*[(\[{]|~?\.{0,2}/[\w.-]*(?:/[\w.-]*)*\Z|[A-Za-z]:\\|\w+://"
)
_BRACKET = re.compile(r"[\w)][(\[{]|[)\]}]\w")
_QUOTED_CODE = re.compile(r"[(\[{^\\]|[A-Za-z_][\w.]*[(\[{]|\w+://|\$[({]|\{\{")
# Words with at most one number each, such as "gpt-4o-mini" or "projects/1/keys".
_IDENTIFIER = re.compile(
    r"(?:[A-Za-z]*(?:\d{1,4}[A-Za-z]*)?[_.:/-]+)+[A-Za-z]*(?:\d{1,4}[A-Za-z]*)?"
)
_NUMBERED_WORD = re.compile(r"[A-Za-z]+\d{1,4}")
_MIXED = re.compile(r"\d|[^\W\d_][#$%^*+=~@!?][^\W\d_]")
_SHORTEST = 6
_LONGEST_WORD = 200
_SHORTEST_LINE = 3
_TYPES = names_in("""
    any array bool boolean byte bytes char enum float hidden int integer list missing no number
    object opaque password redacted secret secretstr set str string text token unset uuid varchar
    yes
""")


class TextValue(NamedTuple):
    """A value in a text.

    Attributes:
        start: The index of its first character.
        end: The index after its last character.
        form: ``bare``, ``quoted``, ``wrapped`` in brackets or a call, or a ``block`` of lines.
    """

    start: int
    end: int
    form: str


def text_value(text: str, at: int) -> TextValue | None:
    """The value that begins at an index, perhaps after white space."""
    is_annotated = text[at - 1 : at] == ":"
    at = _after(_SPACE, text, at)
    if is_annotated:
        at = _after(_TYPE, text, at)
    unwrapped = _after(_WRAPPER, text, at)
    form = "quoted" if unwrapped == at else "wrapped"
    opening = _OPENING.match(text, unwrapped)
    if opening is not None:
        return _quoted(text, opening, form)
    bracketed = _BRACKETED.match(text, at)
    if bracketed is not None:
        return TextValue(*bracketed.span(1), "wrapped")
    block = _BLOCK.match(text, at)
    if block is not None:
        return _block(text, block)
    return bare_value(text, at)


def bare_value(text: str, at: int) -> TextValue | None:
    """The value without quotes that begins at an index."""
    match = BARE.match(text, at)
    if match is None:
        return None
    value = match[0]
    following = _NEXT.search(value)
    value = (value[: following.start()] if following else value).rstrip(",;.)]}")
    return TextValue(at, at + len(value), "bare") if value else None


def cookie_value(text: str, at: int) -> TextValue | None:
    """The cookies that begin at an index, up to the end of the line."""
    at = _after(_COOKIE_START, text, at)
    line = _REST_OF_LINE.match(text, at) if _COOKIE.match(text, at) else None
    return TextValue(*line.span(), "bare") if line else None


def is_secret_text(kind: str, text: str, value: TextValue, *, is_alone: bool) -> bool:
    """Whether a value at a name of a kind is a secret.

    Args:
        kind: The kind of the name.
        text: The text.
        value: The place of the value.
        is_alone: Whether it is certainly a value, not a word of a sentence or of code.
    """
    content = text[value.start : value.end]
    if not is_secret_value(kind, content) or content.lower() in _TYPES:
        return False
    if value.form == "block" or kind == "cookie":
        return True
    if value.form == "wrapped":
        return is_plausible(content) and not _QUOTED_CODE.match(content)
    if value.form == "quoted":
        return _is_quoted_secret(kind, content)
    if _CODE.match(content) and not (is_alone and is_plausible(content)):
        return False
    is_short = len(content) <= _LONGEST_WORD
    if not is_alone and ((is_short and secret_kind(content)) or _BRACKET.search(content)):
        return False  # a variable, or a call
    if kind != "secret" and (_IDENTIFIER.fullmatch(content) or _NUMBERED_WORD.fullmatch(content)):
        return False
    if is_alone:
        return len(content) >= _SHORTEST_LINE
    if _IDENTIFIER.fullmatch(content):
        return False
    if not is_short:
        return True
    return len(content) >= _SHORTEST and _MIXED.search(content) is not None


def _is_quoted_secret(kind: str, content: str) -> bool:
    if kind != "secret" and (_IDENTIFIER.fullmatch(content) or _NUMBERED_WORD.fullmatch(content)):
        return False
    if " " in content and not _MIXED.search(content):
        return False  # prose
    if _QUOTED_CODE.match(content):
        return False
    return not _CODE.match(content) or is_plausible(content)


def _quoted(text: str, opening: re.Match[str], form: str) -> TextValue | None:
    """The value in quotes: up to the same quote, or to the quote of the text around it."""
    slashes, mark = len(opening[1]), opening[2]
    is_triple = opening[0].count(mark) == 3
    start = at = opening.end()
    while (index := text.find(mark, at, start + _LONGEST_QUOTED)) >= 0:
        end = index
        while end > start and text[end - 1] == "\\":
            end -= 1
        if index - end <= slashes:
            break
        at = index + 1
    else:
        end = min(len(text), start + _LONGEST_QUOTED)
    line = None if is_triple else _LINE.search(text, start, end)
    end = line.start() if line else end
    return TextValue(start, end, form) if end > start else None


def _block(text: str, opening: re.Match[str]) -> TextValue:
    """A block of equally indented lines in YAML."""
    following = opening[1] + opening[2]
    end = opening.end()
    while True:
        line_end = text.find(opening[1], end)
        end = len(text) if line_end < 0 else line_end
        if line_end < 0 or not text.startswith(following, line_end):
            break
        end = line_end + len(following)
    quote = text.find('"', opening.end(), end) if opening[1][0] == "\\" else -1
    return TextValue(opening.end(), quote if quote >= 0 else end, "block")


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
