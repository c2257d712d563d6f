"""LangChain's client of a scripted server."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI

from ...model_server import Server


def chat_model(server: Server, **options: Any) -> ChatOpenAI:
    """Return a chat model of the server that sends each request once."""
    defaults = {"model": "m", "base_url": server.url, "api_key": "k", "max_retries": 0}
    return ChatOpenAI(**{**defaults, **options})
