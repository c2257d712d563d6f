"""Images, audio and documents as content parts of a message, in OpenAI's form.

An attachment is the address of an image (or a ``data:`` URL), ``{"mime_type": ..., "data": ...}``
with bytes, base64 text, a ``data:`` URL or an address, or a content part as it is.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ...errors import InputError

__all__ = ["parts_of"]

_AUDIO = {"mpeg": "mp3", "mp3": "mp3", "wave": "wav", "x-wav": "wav", "wav": "wav"}


def parts_of(attachments: Any) -> list[dict[str, Any]]:
    """Return the content parts of some attachments.

    Args:
        attachments: One, or a list of them; None is none.

    Raises:
        InputError: One of them is of no known form or kind; the text names it.
    """
    if attachments is None:
        return []
    items = attachments if isinstance(attachments, (list, tuple)) else [attachments]
    return [_part(item, f"attachments[{index}]") for index, item in enumerate(items)]


def _part(item: Any, place: str) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "image_url", "image_url": {"url": item}}
    if not isinstance(item, Mapping):
        raise InputError(
            f"{place} is a {type(item).__name__}; expected an image's address, a content part, or "
            "{'mime_type': ..., 'data': ...}"
        )
    mime, data = item.get("mime_type"), item.get("data")
    if mime is None or data is None:
        if "type" in item:
            return dict(item)
        raise InputError(f"{place}: 'mime_type' and 'data' are needed, or a content part's 'type'")
    mime = str(mime).lower().partition(";")[0].strip()
    kind, _, subtype = mime.partition("/")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _url(data, mime)}}
    if kind == "audio":
        body = _url(data, mime).partition(",")[2]
        if not body:
            raise InputError(f"{place}: audio must be given as bytes, base64 or a data: URL")
        known = _AUDIO.get(subtype, subtype)
        return {"type": "input_audio", "input_audio": {"data": body, "format": known}}
    if mime == "application/pdf":
        name = str(item.get("name") or "attachment.pdf")
        return {"type": "file", "file": {"filename": name, "file_data": _url(data, mime)}}
    raise InputError(f"{place}: {mime!r} cannot be shown; images, audio and application/pdf can")


def _url(data: Any, mime: str) -> str:
    """Return data as an address: its own if it is one, else a data: URL."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return f"data:{mime};base64,{base64.b64encode(bytes(data)).decode()}"
    text = str(data)
    is_address = text.startswith(("data:", "http://", "https://", "gs://", "file:"))
    return text if is_address else f"data:{mime};base64,{text}"
