"""A streamed chat completion, put together again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .completions import Call, counts_of, finish_of, get, read, reply_of
from .ladder import ENDED, Reply, Request, plain_finish

__all__ = ["Gathered"]


@dataclass
class _Pieces:
    """A tool call of which pieces came."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class Gathered:
    """The chunks of a stream so far.

    Attributes:
        content: The pieces of the content, texts or parts.
        calls: The tool calls by their index.
        refusal: The pieces of a refusal.
        choices: The indexes of the answers that the stream holds.
        finishes: Why the model stopped, each time that it says so.
        model: The model that answers.
        usage: The tokens, as the last chunk that has them counts them.
    """

    content: list[Any] = field(default_factory=list)
    calls: dict[Any, _Pieces] = field(default_factory=dict)
    refusal: list[str] = field(default_factory=list)
    choices: set[Any] = field(default_factory=set)
    finishes: list[str] = field(default_factory=list)
    model: str = ""
    usage: Any = None

    def add(self, chunk: Any) -> None:
        """Take in a chunk; a server may also send a whole completion as one."""
        self.model = str(get(chunk, "model") or self.model)
        self.usage = get(chunk, "usage") or self.usage
        self.finishes.append(finish_of(chunk))
        for choice in get(chunk, "choices") or ():
            self.choices.add(get(choice, "index") or 0)
            self.finishes.append(finish_of(choice))
            delta = get(choice, "delta") or get(choice, "message")
            content = get(delta, "content")
            self.content += content if isinstance(content, list) else [content or ""]
            self.refusal.append(str(get(delta, "refusal") or ""))
            for call in get(delta, "tool_calls") or ():
                self._add_call(call)

    def _add_call(self, call: Any) -> None:
        pieces = self.calls.setdefault(get(call, "index") or 0, _Pieces())
        function = get(call, "function")
        pieces.name = pieces.name or str(get(function, "name") or "")
        pieces.arguments.append(str(get(function, "arguments") or ""))

    def _finish(self) -> str:
        """Return why the model stopped; of several reasons one that means it had not ended."""
        said = [finish for finish in self.finishes if finish]
        unfinished = (finish for finish in said if plain_finish(finish) not in ENDED)
        return next(unfinished, said[-1] if said else "end of the stream")

    def reply(self, request: Request) -> Reply:
        """Return the reply that all chunks make; one that never said why it ended was cut off."""
        return reply_of(
            request,
            said=read(self.content),
            calls=[Call(call.name, "".join(call.arguments)) for call in self.calls.values()],
            refusal="".join(self.refusal),
            finish=self._finish(),
            model=self.model,
            counts=counts_of(self.usage),
            choices=len(self.choices),
        )
