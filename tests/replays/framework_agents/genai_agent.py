"""google-genai."""

from __future__ import annotations

from google import genai
from google.genai import types

from . import shop


def _client() -> genai.Client:
    url = shop.base_url().removesuffix("/v1")
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))


def _config() -> types.GenerateContentConfig:
    return types.GenerateContentConfig(system_instruction=shop.SYSTEM, tools=[shop.refund])


def automatic(question: str) -> str:
    """Automatic calling of a function."""
    client = _client()
    response = client.models.generate_content(
        model="gemini-2.5-flash", contents=question, config=_config()
    )
    return str(response.text)


async def automatic_async(question: str) -> str:
    """Automatic calling of a function by the asynchronous client."""
    client = _client()
    response = await client.aio.models.generate_content(
        model="gemini-2.5-flash", contents=question, config=_config()
    )
    return str(response.text)


KINDS = {"automatic": automatic, "automatic, async": automatic_async}
