"""The HTTP APIs of models: requests and answers as JSON, and answers as streams of events.

Each module describes one API. It reads the requests and answers that were recorded, and writes an
answer that was rebuilt from messages in the form that clients of the API expect. `api_of` finds
the API of a request by its path; the host does not matter, and the path may have any prefix.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from .anthropic_messages import AnthropicMessages
from .bedrock_converse import BedrockConverse
from .chat_completions import ChatCompletions
from .gemini import Gemini
from .model_api import ApiAnswer, ErrorAnswer, ModelApi
from .responses import Responses

__all__ = ["APIS", "ApiAnswer", "ErrorAnswer", "ModelApi", "api_named", "api_of"]

APIS: tuple[ModelApi, ...] = (
    ChatCompletions(),
    Responses(),
    AnthropicMessages(),
    Gemini(),
    BedrockConverse(),
)

_USER = re.compile(r"(?<=://)[^/?#@]*@")


def api_of(method: str, url: str) -> ModelApi | None:
    """The API where a request to this URL gets an answer of a model, or None.

    Args:
        method: The request's method.
        url: The request's URL or path.
    """
    if method.upper() != "POST":
        return None
    # `urlsplit` refuses a user that was replaced by text in brackets.
    path = urlsplit(_USER.sub("", url)).path.rstrip("/")
    return next((api for api in APIS if api.has_path(path)), None)


def api_named(name: str) -> ModelApi | None:
    """The API with the name that `RecordedRequest.api` has, or None."""
    return next((api for api in APIS if api.name == name), None)
