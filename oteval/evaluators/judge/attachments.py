"""Images, audio and documents as content parts of a message, in OpenAI's format.

An attachment is the URL of an image, ``{"mime_type": ..., "data": ...}`` with bytes, base64 text or
a URL, or a content part, which stays as it is. URLs include ``data:`` URLs.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ...base.errors import InputError

__all__ = ["attachment_parts"]

_AUDIO_FORMATS = {"mpeg": "mp3", "mp3": "mp3", "wave": "wav", "x-wav": "wav", "wav": "wav"}


def attachment_parts(attachments: Any) -> list[dict[str, Any]]:
    """Attachments as content parts.

    Args:
        attachments: One attachment, a list of them, or None.

    Raises:
        InputError: An attachment has an unknown form or media type.
    """
    if attachments is None:
        return []
    items = attachments if isinstance(attachments, (list, tuple)) else [attachments]
    return [_part(item, f"attachments[{index}]") for index, item in enumerate(items)]


def _part(item: Any, source: str) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "image_url", "image_url": {"url": item}}
    if not isinstance(item, Mapping):
        raise InputError(
            f"{source} is a {type(item).__name__}; expected an image's URL, a content part, or "
            "{'mime_type': ..., 'data': ...}"
        )
    mime, data = item.get("mime_type"), item.get("data")
    if mime is None or data is None:
        if "type" in item:
            return dict(item)
        raise InputError(f"{source}: 'mime_type' and 'data' are needed, or a content part's 'type'")
    mime = str(mime).lower().partition(";")[0].strip()
    kind, _, subtype = mime.partition("/")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _url(data, mime)}}
    if kind == "audio":
        body = _url(data, mime).partition(",")[2]
        if not body:
            raise InputError(f"{source}: audio must be given as bytes, base64 or a data: URL")
        audio_format = _AUDIO_FORMATS.get(subtype, subtype)
        return {"type": "input_audio", "input_audio": {"data": body, "format": audio_format}}
    if mime == "application/pdf":
        name = str(item.get("name") or "attachment.pdf")
        return {"type": "file", "file": {"filename": name, "file_data": _url(data, mime)}}
    raise InputError(
        f"{source}: {mime!r} is not supported; give an image, audio or application/pdf"
    )


def _url(data: Any, mime: str) -> str:
    """A URL as it is, and other data as a data: URL."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return f"data:{mime};base64,{base64.b64encode(bytes(data)).decode()}"
    text = str(data)
    is_url = text.startswith(("data:", "http://", "https://", "gs://", "file:"))
    return text if is_url else f"data:{mime};base64,{text}"
