r"""Text as it is read, whatever its encoding: bytes as text, and escapes of plain characters.

``"password"`` is the same key as ``"\u0070assword"``, and ``?a=1\u0026token=...`` is the same
query as ``?a=1&token=...``. Secrets are found in the plain text, and removed in the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .text import Unescaped, unescaped_by

__all__ = ["decoded_body", "plain_view", "plain_views"]

_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_SAMPLE = 4096
# Printable characters of ASCII except for the backslash.
_ESCAPE = re.compile(
    r"\\+(?:u00(?:[2-46-7][0-9a-fA-F]|5[0-9abABd-fD-F])|x(?:[2-46-7][0-9a-fA-F]|5[0-9abABd-fD-F]))"
)
# Characters in HTML and in addresses, where they may also be parts of values.
_ENTITY = re.compile(
    r"&(?:quot|apos|amp|lt|gt|#[xX]2[0-9a-fA-F]|#(?:3[2-9]|4[0-7]));"
    r"|%(?:2[026-9]|3[ABDabd]|5[BDbd]|7[BDbd])"
)
_ENTITIES = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}


def decoded_body(data: bytes) -> tuple[str, str]:
    """The text of a body, and the encoding that turns it into the same bytes.

    Args:
        data: The body.
    """
    for encoding in ("utf-8", *_wide_encodings(data)):
        if encoding == "utf-8" and b"\0" in data[:_SAMPLE]:
            continue
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def plain_view(text: str) -> Unescaped:
    """A text without escapes of printable characters, with the places they came from."""
    if "\\u00" in text or "\\x" in text:
        return unescaped_by(text, _ESCAPE, _character)
    return Unescaped(text, [0], [(0, len(text))])


def plain_views(text: str) -> Iterator[Unescaped]:
    """Yield the readings of a text: as it is, and with the characters of HTML and addresses."""
    yield plain_view(text)
    if ("&" in text or "%" in text) and _ENTITY.search(text):
        yield unescaped_by(text, _ENTITY, _entity)


def _wide_encodings(data: bytes) -> list[str]:
    """The possible encodings of data that have several bytes per character."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return [encoding]
    encodings = []
    sample = data[:_SAMPLE]
    for width, name in ((4, "utf-32"), (2, "utf-16")):
        if len(sample) >= width and len(data) % width == 0:
            even, odd = sample[::width].count(0), sample[width - 1 :: width].count(0)
            characters = len(sample) // width
            if odd > characters / 2 >= even:
                encodings.append(f"{name}-le")
            if even > characters / 2 >= odd:
                encodings.append(f"{name}-be")
    return encodings


def _character(escape: str) -> str:
    slashes = escape.count("\\")
    character = chr(int(escape[-2:], 16))
    return "\\" * (2 * slashes - 1) + '"' if character == '"' else character


def _entity(escape: str) -> str:
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    name = escape[1:-1]
    if name in _ENTITIES:
        return _ENTITIES[name]
    return chr(int(name[2:], 16) if name[1] in "xX" else int(name[1:]))
