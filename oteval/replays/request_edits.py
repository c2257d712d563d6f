"""Edits of model requests: another model, another system prompt, other options.

``oteval whatif`` sends the agent's requests with these edits. The edited system prompt is
the lead agent's: sub-agents keep their prompts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..base.jsontext import dumps
from ..messages import SYSTEM_ROLES
from ..reconstruct import json_object

__all__ = ["RequestEdits"]

# The URLs of Azure, Gemini and Bedrock name the model.
_MODEL_IN_URL = re.compile(
    r"(?<=/deployments/)[^/?]+|(?<=/models/)[^/:?]+(?=:\w+)|(?<=/model/)[^/?]+(?=/converse)"
)
# The fields of a system prompt that is not a message, and of the options.
_PROMPT_FIELDS = {
    "anthropic_messages": "system",
    "bedrock_converse": "system",
    "gemini": "systemInstruction",
    "responses": "instructions",
}
_OPTION_FIELDS = {"bedrock_converse": "inferenceConfig", "gemini": "generationConfig"}


@dataclass
class RequestEdits:
    """The edits of one session's requests.

    Attributes:
        model: The model to ask instead, or None.
        prompt: The system prompt to use instead, or None.
        settings: Options of the request to set, such as ``temperature``; None removes one.
    """

    model: str | None = None
    prompt: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    _adds_prompt: bool | None = field(default=None, init=False)

    def apply(self, api: str, body: bytes, *, is_lead: bool = True) -> bytes:
        """Edit the body of a request.

        Args:
            api: The name of the request's API.
            body: The body.
            is_lead: Whether the lead agent sends it; only the lead agent's system prompt is edited.

        Raises:
            InputError: The body is not a JSON object.
        """
        request = json_object(body)
        if self.model is not None and isinstance(request.get("model"), str):
            request["model"] = self.model
        if self.prompt is not None and is_lead:
            self._edit_prompt(api, request, self.prompt)
        if self.settings:
            field_name = _OPTION_FIELDS.get(api)
            options = request.setdefault(field_name, {}) if field_name else request
            for name, value in self.settings.items():
                if value is None:
                    options.pop(name, None)
                else:
                    options[name] = value
        return dumps(request).encode()

    def url(self, url: str) -> str:
        """Edit the URL of a request, where the API's URLs name the model."""
        return url if self.model is None else _MODEL_IN_URL.sub(quote(self.model, safe=""), url)

    def _edit_prompt(self, api: str, request: dict[str, Any], prompt: str) -> None:
        """Replace the system prompt, or add one if the agent's first request has none."""
        prompt_field = _system_place(api, request)
        if self._adds_prompt is None:
            self._adds_prompt = prompt_field is None
        if prompt_field is not None:
            holder, key = prompt_field
            holder[key] = _prompt_value(api, prompt)
        elif self._adds_prompt:
            _add_system(api, request, prompt)


def _system_place(api: str, request: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """The object and the key of the system prompt, or None without a system prompt."""
    top = _PROMPT_FIELDS.get(api)
    if top is not None and request.get(top):
        return request, top
    items = request.get("messages" if api != "responses" else "input")
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict) and item.get("role") in SYSTEM_ROLES and "content" in item:
                return item, "content"
    return None


def _add_system(api: str, request: dict[str, Any], prompt: str) -> None:
    if api in _PROMPT_FIELDS:
        request[_PROMPT_FIELDS[api]] = _prompt_value(api, prompt)
    elif isinstance(request.get("messages"), list):
        request["messages"].insert(0, {"role": "system", "content": prompt})


def _prompt_value(api: str, prompt: str) -> Any:
    """A system prompt in the form of an API."""
    if api == "gemini":
        return {"parts": [{"text": prompt}]}
    return [{"text": prompt}] if api == "bedrock_converse" else prompt
