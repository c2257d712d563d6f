"""Clients of OpenAI-compatible servers.

They follow no redirect to another host: it would get the texts, and perhaps the key.
"""

from __future__ import annotations

from typing import Any

from ..base.errors import ConfigError

__all__ = ["http_client", "model_name", "open_client", "refused_redirect"]

_PREFIX = "openai:"


def model_name(model: str, base_url: str | None, instead: str) -> str:
    """A model's name without the prefix ``openai:``.

    Args:
        model: ``openai:NAME``; for the user's own server any name.
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
    """An ``openai.OpenAI`` client; the user's own server needs no key.

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
    options["http_client"] = http_client(is_async=False)
    try:
        return openai.OpenAI(base_url=base_url, api_key=api_key, **options)
    except openai.OpenAIError:
        if base_url is None or api_key is not None:
            raise
        return openai.OpenAI(base_url=base_url, api_key="none", **options)


def http_client(*, is_async: bool) -> Any:
    """An HTTP client for a client of the ``openai`` package."""
    import openai

    if is_async:
        return openai.DefaultAsyncHttpxClient(event_hooks={"response": [_check_redirect_async]})
    return openai.DefaultHttpxClient(event_hooks={"response": [_check_redirect]})


def refused_redirect(error: Any) -> str:
    """The address of a redirect that an exception of ``openai`` comes from, or ""."""
    response = getattr(error, "response", None)
    extensions = getattr(response, "extensions", None) or {}
    return str(extensions.get(_REFUSED, ""))


_REFUSED = "oteval_refused_redirect"
_HTTPS: dict[tuple[str, int | None], tuple[str, int]] = {("http", 80): ("https", 443)}


def _check_redirect(response: Any) -> None:
    """Make a redirect to another host an error: without an address nothing is followed."""
    if not response.has_redirect_location:
        return
    here = response.url
    there = here.join(response.headers["location"])
    origin, target = (_origin(url) for url in (here, there))
    is_upgrade = _HTTPS.get((here.scheme, origin[2])) == (there.scheme, target[2])
    if origin != target and not (is_upgrade and here.host == there.host):
        del response.headers["location"]
        response.extensions[_REFUSED] = str(there.copy_with(query=None, userinfo=b""))


async def _check_redirect_async(response: Any) -> None:
    _check_redirect(response)


def _origin(url: Any) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or default
