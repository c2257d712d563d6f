"""Edits of model requests: another model, another system prompt, other options.

``oteval replay whatif`` sends the agent's requests with these edits. The system prompt is replaced
where it is the one of the session's first request, so that sub-agents keep theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..jsontext import dumps, loads

__all__ = ["RequestEdits"]

_SYSTEM_ROLES = ("system", "developer")


@dataclass
class RequestEdits:
    """The edits of one session's requests.

    Attributes:
        model: The model to ask instead, or None.
        prompt: The system prompt to use instead, or None.
        settings: Options of the request to set, such as ``temperature``; None removes one.
        models: The models of the requests before the edit, in order of first use.
    """

    model: str | None = None
    prompt: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    _replaced: str | None = field(default=None, init=False)

    def apply(self, api: str, body: bytes) -> bytes:
        """Return the body of a request with the edits.

        Args:
            api: The name of the request's API.
            body: The body.

        Raises:
            InputError: The body is not a JSON object.
        """
        try:
            request = loads(body)
        except ValueError as error:
            raise InputError(f"a model request is not JSON: {error}") from None
        if not isinstance(request, dict):
            raise InputError("a model request is not a JSON object")
        if isinstance(request.get("model"), str):
            if request["model"] not in self.models:
                self.models.append(request["model"])
            if self.model is not None:
                request["model"] = self.model
        if self.prompt is not None:
            self._edit_prompt(api, request, self.prompt)
        for name, value in self.settings.items():
            if value is None:
                request.pop(name, None)
            else:
                request[name] = value
        return dumps(request).encode()

    def _edit_prompt(self, api: str, request: dict[str, Any], prompt: str) -> None:
        """Replace the system prompt, or add one to a request of the agent without any."""
        place = _system_place(api, request)
        if place is None:
            if self._replaced in (None, ""):
                self._replaced = ""
                _add_system(api, request, prompt)
            return
        holder, key = place
        text = _text(holder[key])
        if self._replaced is None:
            self._replaced = text
        if text == self._replaced:
            holder[key] = prompt


def _system_place(api: str, request: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """Return the object and the key that hold the system prompt, or None without one."""
    top = {"anthropic_messages": "system", "responses": "instructions"}.get(api)
    if top is not None and request.get(top):
        return request, top
    items = request.get("messages" if api != "responses" else "input")
    if isinstance(items, list):
        for item in items:
            if isinstance(item, dict) and item.get("role") in _SYSTEM_ROLES and "content" in item:
                return item, "content"
    return None


def _add_system(api: str, request: dict[str, Any], prompt: str) -> None:
    if api == "anthropic_messages":
        request["system"] = prompt
    elif api == "responses":
        request["instructions"] = prompt
    elif isinstance(request.get("messages"), list):
        request["messages"].insert(0, {"role": "system", "content": prompt})


def _text(content: Any) -> str:
    """Return the text of a system prompt, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))
