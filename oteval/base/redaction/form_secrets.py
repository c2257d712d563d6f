"""Secrets in forms: multipart bodies, and values that are themselves encoded in a form.

A part of a multipart body is named by its header; its value may have several lines. A value of an
encoded form may be JSON, as in ``payload=%7B%22password%22...``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from .secret_names import is_secret_parameter, secret_kind
from .secret_values import is_words
from .text_edits import Edit

__all__ = ["encoded_edits", "multipart_secrets"]

_BOUNDARY = re.compile(r"boundary=\"?([^\";\s]+)", re.IGNORECASE)
_HEADERS = re.compile(r"[ \t]*\r?\n((?:[^\r\n]+\r?\n)*)\r?\n")
_NAME = re.compile(r"(?i)\bname=(?:\"([^\"\r\n]*)\"|([^\s;\"]+))")
_ENCODED = re.compile(r"(?<==)[^&\s]*%[^&\s]*")


class _FormField(NamedTuple):
    """A part of a multipart body.

    Attributes:
        name: The name of the field.
        start: The index of its value.
        end: The index after its value.
    """

    name: str
    start: int
    end: int


def multipart_secrets(text: str, content_type: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values of fields that name secrets.

    Args:
        text: The body.
        content_type: Its ``Content-Type``, with the boundary.
    """
    for part in _parts(text, content_type):
        is_secret = bool(secret_kind(part.name))
        if not is_secret and is_secret_parameter(part.name):
            is_secret = not is_words(text[part.start : part.end])
        if is_secret and part.end > part.start:
            yield part.start, part.end


def _parts(text: str, content_type: str) -> Iterator[_FormField]:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return
    mark = f"--{boundary[1]}"
    at = text.find(mark)
    while at >= 0:
        at += len(mark)
        following = text.find(mark, at)
        headers = _HEADERS.match(text, at)
        if headers is not None and (name_match := _NAME.search(headers[1])):
            end = len(text) if following < 0 else following
            value = text[headers.end() : end]
            length = len(value.removesuffix("\n").removesuffix("\r"))
            yield _FormField(
                name_match[1] or name_match[2] or "", headers.end(), headers.end() + length
            )
        at = following


def encoded_edits(text: str, redact: Callable[[str], str]) -> Iterator[Edit]:
    """Yield the edits of values of an encoded form that contain secrets after decoding.

    Args:
        text: The form.
        redact: Returns a decoded value without secrets.
    """
    for match in _ENCODED.finditer(text):
        plain = unquote_plus(match[0])
        redacted = redact(plain)
        if redacted != plain:
            yield Edit(*match.span(), quote_plus(redacted))
