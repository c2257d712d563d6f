"""A streamed chat completion, put together again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .ladder import Reply

__all__ = ["Gathered"]


@dataclass
class Gathered:
    """What the chunks of a stream have said so far.

    Attributes:
        text: The content.
        arguments: The arguments of the first tool call.
        refusal: The refusal.
        finish: Why the model stopped.
        model: The model that answers.
        usage: The tokens, as the last chunk tells them.
    """

    text: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    finish: str = ""
    model: str = ""
    usage: Any = None

    def add(self, chunk: Any) -> None:
        """Take a chunk in."""
        self.model = getattr(chunk, "model", None) or self.model
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in chunk.choices or ():
            self.finish = choice.finish_reason or self.finish
            delta = choice.delta
            self.text.append(getattr(delta, "content", None) or "")
            self.refusal.append(getattr(delta, "refusal", None) or "")
            for call in (getattr(delta, "tool_calls", None) or ())[:1]:
                self.arguments.append(getattr(call.function, "arguments", None) or "")

    def reply(self) -> Reply:
        """Return the reply that all chunks make."""
        details = getattr(self.usage, "prompt_tokens_details", None)
        return Reply(
            "".join(self.arguments) or "".join(self.text),
            refusal="".join(self.refusal),
            finish=self.finish,
            model=self.model,
            input_tokens=getattr(self.usage, "prompt_tokens", 0) or 0,
            output_tokens=getattr(self.usage, "completion_tokens", 0) or 0,
            cached_tokens=getattr(details, "cached_tokens", 0) or 0,
        )
