"""Clients of OpenAI-compatible servers."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError

__all__ = ["model_name", "open_client"]

_PREFIX = "openai:"


def model_name(model: str, base_url: str | None, instead: str) -> str:
    """Return a model's name without the prefix ``openai:``.

    Args:
        model: ``openai:NAME``; at a server of the user's own any name.
        base_url: The server's address, or None for OpenAI's.
        instead: The argument that users of another provider pass instead, for the error message.

    Raises:
        ConfigError: The model is another provider's.
    """
    provider, colon, _ = model.partition(":")
    if colon and provider != "openai" and base_url is None:
        raise ConfigError(
            f"model {model!r}: only openai:NAME is built in; pass {instead}, or base_url= of a "
            "compatible server"
        )
    return model.removeprefix(_PREFIX)


def open_client(
    base_url: str | None, api_key: str | None, *, timeout: float, max_retries: int = 2
) -> Any:
    """Return an ``openai.OpenAI`` client; a server of the user's own needs no key.

    Args:
        base_url: The server's address; else ``OPENAI_BASE_URL``.
        api_key: The server's key; else ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer.
        max_retries: How often a failed request is repeated.

    Raises:
        openai.OpenAIError: The key for OpenAI's own server is missing.
    """
    import openai  # takes half a second, so only when it is needed

    options: dict[str, Any] = {"timeout": timeout, "max_retries": max_retries}
    try:
        return openai.OpenAI(base_url=base_url, api_key=api_key, **options)
    except openai.OpenAIError:
        if base_url is None or api_key is not None:
            raise
        return openai.OpenAI(base_url=base_url, api_key="none", **options)
