"""Requests to webhooks: JSON, signed as the Standard Webhooks specification describes.

The signature is an HMAC-SHA256 of the id, the time of the attempt and the body. So a receiver can
verify who sent a request, and that it is neither old nor changed. The id is the same in every
attempt: a receiver that has seen it ignores the request.

See https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

from ...base.jsontext import dumps
from .text import Payload, message

__all__ = ["signature", "webhook_body", "webhook_headers"]

_ENCODED = "whsec_"


def webhook_body(payload: Payload, key: str) -> bytes:
    """The body of a request, which is the same in every attempt.

    Args:
        payload: The payload of the notification.
        key: The id of the notification.
    """
    alert_message = message(payload)
    kind = f"monitor.{payload['event']}"
    body = {
        "id": key,
        "type": kind,
        "title": alert_message.title,
        "text": alert_message.text,
        "data": payload,
    }
    return dumps(body).encode()


def webhook_headers(
    body: bytes, *, key: str, now_ns: int, secret: str | None = None
) -> Mapping[str, str]:
    """The headers of a request.

    Args:
        body: The body.
        key: The id of the notification.
        now_ns: The time of the attempt (ns).
        secret: The secret that signs it; without one, the request has no signature.

    Raises:
        ValueError: The secret begins with ``whsec_`` and is not base64.
    """
    timestamp = str(now_ns // 10**9)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "webhook-id": key,
        "webhook-timestamp": timestamp,
    }
    if secret is not None:
        headers["webhook-signature"] = signature(body, key=key, timestamp=timestamp, secret=secret)
    return headers


def signature(body: bytes, *, key: str, timestamp: str, secret: str) -> str:
    """The signature of a request: ``v1,`` and base64.

    Args:
        body: The body.
        key: The id of the notification.
        timestamp: The time of the attempt, in seconds since the Unix epoch.
        secret: Any text, or ``whsec_`` and base64.

    Raises:
        ValueError: The secret begins with ``whsec_`` and is not base64.
    """
    signed = b".".join([key.encode(), timestamp.encode(), body])
    digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key_of(secret: str) -> bytes:
    if not secret:
        raise ValueError("the secret is empty")
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        # Without its message and context, which may show the secret.
        raise ValueError("the secret begins with whsec_, but is not base64") from None
