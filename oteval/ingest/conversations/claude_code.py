"""Session files of Claude Code: ``~/.claude/projects/*/*.jsonl``.

A line is a message in Anthropic's form with ``sessionId``, ``uuid`` and ``parentUuid``, or a note
that no model saw. Each block of an answer has its line, with the same ``message.id`` and the same
usage. Lines with ``isSidechain`` belong to a sub-agent. Anthropic publishes no schema; the fields
were found in files of versions 2.0 to 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...model import Gap, ScoredRun, Trajectory, read_tokens
from .recorded_run import Session, short_attributes, time_ns

__all__ = ["ClaudeCodeSessions", "is_line"]

_FORMAT = "claude-code"
_AGENT = "claude-code"
# Lines of the user without a question: the output of a local command, and the note of an interrupt.
_NO_QUESTION = re.compile(r"\s*(<(local-)?command-|\[Request interrupted by user)")
_NOTES = frozenset(
    {"summary", "file-history-snapshot", "queue-operation", "progress", "system", "attachment"}
    | {"custom-title", "agent-name", "last-prompt", "pr-link", "mode", "permission-mode"}
)


def is_line(document: Mapping[str, Any]) -> bool:
    """Whether an object is a line of a session file."""
    kind = document.get("type")
    if kind in ("user", "assistant"):
        return "message" in document and "sessionId" in document
    return kind in _NOTES and not {"sessionId", "leafUuid", "messageId"}.isdisjoint(document)


class ClaudeCodeSessions:
    """The sessions of one file: the main session, and the sessions of its sub-agents."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        # Where a question may follow an earlier question than the last: the user went back.
        self._runs_by_line: dict[str, Trajectory] = {}
        self._lines: dict[str, list[str]] = {}

    def take(self, line: Mapping[str, Any]) -> Iterator[ScoredRun]:
        """Add a line; yield the runs that it ends."""
        if line.get("type") not in ("user", "assistant") or not isinstance(
            line["message"], Mapping
        ):
            if line.get("subtype") == "compact_boundary":
                self._note_compaction(str(line.get("sessionId")))
            return
        session = self._session_of(line)
        uuid = str(line.get("uuid") or "")
        if line["type"] == "assistant":
            _add_answer(session, line)
        elif _is_question(line):
            for run in session.ask(line["message"], uuid):
                self._remember(session, run)
                yield run
            self._go_back(session, line)
        else:
            session.add(line["message"])
        session.at(time_ns(line.get("timestamp")))
        self._lines.setdefault(session.id, []).append(uuid)

    def _session_of(self, line: Mapping[str, Any]) -> Session:
        main = str(line["sessionId"])
        is_sub = line.get("isSidechain") is True
        agent = str(line.get("agentId") or "sidechain") if is_sub else ""
        name = f"{main}:{agent}" if is_sub else main
        session = self._sessions.get(name)
        if session is None:
            facts = {key: line.get(key) for key in ("cwd", "gitBranch", "version")}
            session = Session(_FORMAT, name, agent or _AGENT, short_attributes(facts))
            caller = self._sessions.get(main)
            session.parent_id = caller.run.id if is_sub and caller else ""
            self._sessions[name] = session
        return session

    def _remember(self, session: Session, run: ScoredRun) -> None:
        for uuid in self._lines.pop(session.id, ()):
            self._runs_by_line[uuid] = run.trajectory

    def _go_back(self, session: Session, line: Mapping[str, Any]) -> None:
        """Continue after the run that contains the question's parent."""
        before = self._runs_by_line.get(str(line.get("parentUuid") or ""))
        if before is not None and len(session.messages) == 1:
            session.previous = before

    def _note_compaction(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is not None:
            reason = "the agent replaced the conversation so far by a summary"
            session.gaps.append(Gap("history_rewritten", reason))

    def finish(self) -> Iterator[ScoredRun]:
        """Yield the last run of each session."""
        for session in self._sessions.values():
            yield from session.finish()


def _is_question(line: Mapping[str, Any]) -> bool:
    """Whether a user's line is a question; others are results, remarks and notes."""
    if line.get("isMeta") is True or line.get("isCompactSummary") is True:
        return False
    content = line["message"].get("content")
    if isinstance(content, list):
        kinds = {block.get("type") for block in content if isinstance(block, Mapping)}
        texts = [block.get("text") for block in content if isinstance(block, Mapping)]
        content = next((text for text in texts if isinstance(text, str)), "")
        if "tool_result" in kinds:
            return False
    return not (isinstance(content, str) and _NO_QUESTION.match(content))


def _add_answer(session: Session, line: Mapping[str, Any]) -> None:
    message = line["message"]
    if line.get("isApiErrorMessage") is True:
        text = message.get("content")
        session.gaps.append(Gap("model_call_failed", f"the model call failed: {text}"[:500]))
        return
    session.answer(message, str(message.get("model") or ""))
    if message.get("usage"):
        # Each line of an answer repeats it; the last value is complete.
        tokens = read_tokens(message["usage"])
        session.usage[str(message.get("id") or line.get("uuid"))] = tokens.usage
