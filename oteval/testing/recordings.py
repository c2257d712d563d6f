"""Help for tests whose HTTP traffic is recorded once and played back."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["without_nonces"]

Body = TypeVar("Body")


def without_nonces(body: Body) -> Body:
    """Return a request's body with zeros for the number that a judge's prompt has anew each call.

    Recorded requests of judges match those of later runs only so. Nothing else is changed, and a
    body without a judge's prompt not at all.

    Args:
        body: Text or bytes; anything else is returned as it is.
    """
    # Imported here: whoever logs inputs only needs no judges.
    from ..evaluators.judge.data_blocks import without_nonces as cleaned

    if isinstance(body, str):
        return cleaned(body)  # type: ignore[return-value]
    if isinstance(body, bytes):
        text = body.decode("utf-8", "surrogateescape")
        return cleaned(text).encode("utf-8", "surrogateescape")  # type: ignore[return-value]
    return body
