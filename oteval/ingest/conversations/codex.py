"""Session files of the Codex CLI: ``~/.codex/sessions/**/rollout-*.jsonl``.

A line has ``timestamp``, ``type`` and ``payload``. Its types are ``session_meta``,
``turn_context``, ``response_item`` (an item of OpenAI's Responses API), ``event_msg`` and
``compacted``. Facts from ``codex-rs/protocol`` of openai/codex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...model import Gap, ScoredRun, read_tokens
from .recorded_run import Session, short_attributes, time_ns

__all__ = ["CodexSession", "is_line"]

_FORMAT = "codex"
_KINDS = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
# The program adds this before the user's words: <environment_context>, instructions of AGENTS.md.
_CONTEXT = re.compile(r"\s*(<[a-z_]+>|# AGENTS\.md instructions)")


def is_line(document: Mapping[str, Any]) -> bool:
    """Whether an object is a line of a session file."""
    return document.get("type") in _KINDS and isinstance(document.get("payload"), Mapping)


class CodexSession:
    """The session of one file."""

    def __init__(self) -> None:
        self._session = Session(_FORMAT, "", "codex")
        self._model = ""
        self._questions = 0
        self._calls = 0

    def take(self, line: Mapping[str, Any]) -> Iterator[ScoredRun]:
        """Add a line; yield the run that it ends."""
        payload = line["payload"]
        kind = line["type"]
        session = self._session
        if kind == "session_meta":
            self._begin(payload)
        elif kind == "turn_context":
            self._model = str(payload.get("model") or self._model)
        elif kind == "response_item":
            yield from self._item(payload)
            session.at(time_ns(line.get("timestamp")))
        elif kind == "compacted":
            reason = "the agent replaced the conversation so far by a summary"
            session.gaps.append(Gap("history_rewritten", reason))
        elif payload.get("type") == "token_count":
            self._count(payload)

    def _begin(self, meta: Mapping[str, Any]) -> None:
        name = str(meta.get("id") or "")
        if name == self._session.id:
            return
        # A session that was forked from another begins with the lines of the other session.
        if not self._session.id:
            facts = {key: meta.get(key) for key in ("cwd", "cli_version", "originator")}
            self._session.id = name
            self._session.attributes = short_attributes(facts)

    def _item(self, item: Mapping[str, Any]) -> Iterator[ScoredRun]:
        role = item.get("role")
        if item.get("type") != "message":
            is_result = str(item.get("type")).endswith("_output")
            if is_result:
                self._session.add(item)
            else:
                self._session.answer(item, self._model)
        elif role == "user" and not _is_context(item):
            self._questions += 1
            yield from self._session.ask(item, str(self._questions))
        elif role == "assistant":
            self._session.answer(item, self._model)
        else:
            self._session.add(item)

    def _count(self, payload: Mapping[str, Any]) -> None:
        info = payload.get("info")
        last = info.get("last_token_usage") if isinstance(info, Mapping) else None
        if not isinstance(last, Mapping):
            return
        self._calls += 1
        self._session.usage[str(self._calls)] = read_tokens(last).usage

    def finish(self) -> Iterator[ScoredRun]:
        """Yield the last run."""
        yield from self._session.finish()


def _is_context(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, Mapping)]
    text = content if isinstance(content, str) else next(iter(texts), "")
    return isinstance(text, str) and _CONTEXT.match(text) is not None
