"""Cassettes of vcrpy and pytest-recording, read and written.

A cassette is a YAML or JSON file with a list of HTTP requests and responses (version 1, see
https://vcrpy.readthedocs.io). It has neither times nor chunks: a response that was streamed is
one piece. Secrets are removed in both directions, as from every recording.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..base.errors import InputError
from ..base.files import make_folder, write_private
from ..model import Chunk, Exchange

__all__ = ["read_cassette", "write_cassette"]

_VERSION = 1
_DECOMPRESSED = ("content-encoding", "content-length", "transfer-encoding")


def read_cassette(path: str | Path) -> list[Exchange]:
    """Read the exchanges of a cassette, in its order.

    Args:
        path: A file of vcrpy's YAML or JSON format.

    Raises:
        InputError: The file cannot be read, or an interaction is invalid.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not a cassette: {' '.join(str(error).split())}") from error
    interactions = document.get("interactions") if isinstance(document, dict) else None
    if not isinstance(interactions, list):
        raise InputError(f"{path}: not a cassette: the list `interactions` is missing")
    exchanges = []
    for number, interaction in enumerate(interactions, 1):
        try:
            exchanges.append(_exchange(interaction, number))
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
            raise InputError(
                f"{path}: interaction {number} is invalid: {type(error).__name__}: {error}"
            ) from error
    return exchanges


def write_cassette(exchanges: Iterable[Exchange], path: str | Path) -> int:
    """Write exchanges as a cassette, YAML or (for ``.json``) JSON; return their number.

    An exchange without a response, such as a timeout, has no form in a cassette and is left out.

    Args:
        exchanges: The exchanges, in the order in which they are to be replayed.
        path: The file to write.

    Raises:
        InputError: The file cannot be written.
    """
    path = Path(path)
    interactions = [_interaction(exchange) for exchange in exchanges if exchange.status]
    document = {"interactions": interactions, "version": _VERSION}
    try:
        if path.suffix == ".json":
            text = json.dumps(document, indent=2) + "\n"
        else:
            text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    except TypeError:
        raise InputError(f"{path}: JSON cannot hold binary bodies: write a .yaml file") from None
    try:
        make_folder(path.parent)
        write_private(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return len(interactions)


def _exchange(interaction: Mapping[str, Any], number: int) -> Exchange:
    request, response = interaction["request"], interaction["response"]
    headers = _headers(response.get("headers") or {})
    body = _decoded(_bytes((response.get("body") or {}).get("string")), headers)
    sent_headers = {name: value for name, value in headers.items() if name not in _DECOMPRESSED}
    return Exchange(
        method=str(request["method"]).upper(),
        url=str(request["uri"]),
        request_headers=_headers(request.get("headers") or {}),
        request_body=_bytes(request.get("body")),
        status=int(response["status"]["code"]),
        response_headers=sent_headers,
        chunks=(Chunk(body),) if body else (),
        # The order is all that a cassette knows of time.
        start_ns=number,
        end_ns=number,
    )


def _headers(headers: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(name).lower(): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in headers.items()
    }


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _decoded(body: bytes, headers: Mapping[str, str]) -> bytes:
    """A body without its content encoding; older cassettes keep compressed bodies."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if not body or encoding in ("", "identity"):
        return body
    if encoding in ("gzip", "x-gzip") and body[:2] == b"\x1f\x8b":
        return zlib.decompress(body, 47)
    if encoding == "deflate":
        try:
            return zlib.decompress(body)
        except zlib.error:
            return zlib.decompress(body, -15)
    if encoding in ("br", "zstd") and not _is_text(body):
        raise ValueError(
            f"its body is compressed with {encoding}: record it with decode_compressed_response"
        )
    return body


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _interaction(exchange: Exchange) -> dict[str, Any]:
    return {
        "request": {
            "method": exchange.method,
            "uri": exchange.url,
            "body": _text(exchange.request_body) if exchange.request_body else None,
            "headers": {name: [value] for name, value in exchange.request_headers.items()},
        },
        "response": {
            "status": {"code": exchange.status, "message": ""},
            "headers": {name: [value] for name, value in exchange.response_headers.items()},
            "body": {"string": _text(exchange.response_body)},
        },
    }


def _text(body: bytes) -> str | bytes:
    """The body as text if it is text: YAML then shows it as it is."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
