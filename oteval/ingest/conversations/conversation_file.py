"""The conversations of a file, recognised document by document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ...base.errors import InputError
from ...model import ScoredRun
from .. import exported_runs
from ..otlp import Decoded
from . import atif, claude_code, codex, inspect_logs, message_lists, tau_results
from .recorded_run import RecordedRun

__all__ = ["ConversationFile"]


class ConversationFile:
    """Takes the documents of one file, and returns the runs of its conversations."""

    def __init__(self) -> None:
        self._ordinal = 0
        self._header: Mapping[str, Any] = {}
        self._loose: list[Any] = []
        self._claude_code = claude_code.ClaudeCodeSessions()
        self._codex = codex.CodexSession()

    def take(self, document: Any) -> Decoded | None:
        """The runs of a document, or the runs that it ends; None for other documents.

        A single message, as in a log of one message a line, waits for `finish`.

        Args:
            document: The parsed document.
        """
        parts = self._parts(document)
        return None if parts is None else _decoded(parts)

    def finish(self) -> Decoded:
        """The runs that end with the file."""
        parts: list[_Part] = [self._claude_code.finish, self._codex.finish]
        if self._loose:
            parts.append(self._list(self._loose))
        return _decoded(parts)

    def _parts(self, document: Any) -> list[_Part] | None:
        """Return functions that each return some runs of a document, so that one may fail."""
        if isinstance(document, list):
            return self._parts_of_list(document)
        if not isinstance(document, Mapping) or exported_runs.is_run(document):
            return None
        if claude_code.is_line(document):
            return [partial(self._claude_code.take, document)]
        if codex.is_line(document):
            return [partial(self._codex.take, document)]
        if (several := self._recorded(document)) is not None:
            return several
        if message_lists.is_message(document):
            self._loose.append(document)
            return []
        return None

    def _parts_of_list(self, items: list[Any]) -> list[_Part] | None:
        if message_lists.is_message_list(items):
            return [self._list(items)]
        if not items or not _is_conversation(items[0]):
            return None
        parts: list[_Part] = []
        for position, item in enumerate(items, start=1):
            own = self._parts(item)
            parts += [partial(_refuse, position)] if own is None else own
        return parts

    def _recorded(self, document: Mapping[str, Any]) -> list[_Part] | None:
        if atif.is_trajectory(document):
            return [lambda: (run.scored() for run in atif.runs(document))]
        if tau_results.is_results(document):
            numbers = range(len(document["simulations"]))
            return [_one(tau_results.run_of_simulation, document, number) for number in numbers]
        if inspect_logs.is_log(document):
            samples = document["samples"]
            return [_one(inspect_logs.run_of_sample, sample, document) for sample in samples]
        if inspect_logs.is_sample(document):
            return [_one(inspect_logs.run_of_sample, document, self._header)]
        if inspect_logs.is_header(document):
            self._header = document
            return []
        if message_lists.is_record(document):
            return [_one(message_lists.run_of_record, document, self._next())]
        return None

    def _list(self, items: list[Any]) -> _Part:
        return _one(message_lists.run_of_list, items, self._next())

    def _next(self) -> int:
        self._ordinal += 1
        return self._ordinal


_Part = Callable[[], Iterable[ScoredRun]]


def _one(read: Callable[..., RecordedRun], *arguments: Any) -> _Part:
    return lambda: (read(*arguments).scored(),)


def _refuse(position: int) -> Iterator[ScoredRun]:
    raise InputError(f"element {position} is not a conversation, and the first one is")


def _decoded(parts: Iterable[_Part]) -> Decoded:
    decoded = Decoded()
    for runs in parts:
        try:
            decoded.runs += runs()
        except InputError as error:
            decoded.problems.append(str(error))
    return decoded


def _is_conversation(item: Any) -> bool:
    """Whether the first item of a list is a whole conversation, so that all should be."""
    if isinstance(item, list):
        return message_lists.is_message_list(item)
    return isinstance(item, Mapping) and (
        atif.is_trajectory(item) or message_lists.is_record(item) or inspect_logs.is_sample(item)
    )
