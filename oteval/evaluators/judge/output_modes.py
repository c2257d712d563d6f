"""Ask for a structured answer in the strictest output mode that a server supports.

The modes, from the strictest: ``json_schema`` (strict structured output), ``tool`` (a forced tool
call), ``json_object``, and ``text`` with one chance to repair the answer. If the server refuses a
mode or the answer is unusable, `complete_with_fallback` tries the next one. `OutputModeMemory`
keeps the mode that worked for each server and model. A model's refusal to judge, a score outside
the scale and every other failure end the attempt at once. A judge that is a Python function has
the single mode ``function``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ...base.errors import JudgeError
from ...base.jsontext import dumps
from ...model import normal_finish_reason
from .answer_schema import AnswerSchema, InvalidAnswer, parse_answer

__all__ = [
    "COMPLETE_FINISH_REASONS",
    "OUTPUT_MODES",
    "AnswerUsage",
    "CompletionRequest",
    "ModelReply",
    "OutputMode",
    "OutputModeMemory",
    "OutputModeRefused",
    "ParsedAnswer",
    "complete_with_fallback",
    "is_about_format",
    "unseen_text",
]

OutputMode = Literal["json_schema", "tool", "json_object", "text", "function"]
OUTPUT_MODES: tuple[OutputMode, ...] = ("json_schema", "tool", "json_object", "text")

_ABOUT_FORMAT = re.compile(
    r"response_format|json_schema|json_object|schema|tool|function|structured|strict", re.IGNORECASE
)

COMPLETE_FINISH_REASONS = frozenset({"", "stop", "tool_call"})
"""Finish reasons of complete answers in the words of the conventions; some servers send none."""

# After this many server errors in a mode, only every `_RETRY_EVERY`th question tries it.
_MAX_OUTAGES = 4
_RETRY_EVERY = 8


def is_about_format(message: str) -> bool:
    """Whether a server's message is about the form of the answer."""
    return _ABOUT_FORMAT.search(message) is not None


class OutputModeRefused(JudgeError):
    """The server refuses requests in this output mode, or fails on them.

    Attributes:
        is_outage: Whether the server failed (HTTP 500), perhaps for another reason.
    """

    def __init__(self, message: str, *, is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a model.

    Attributes:
        messages: Messages in OpenAI's format.
        schema: The schema of the answer.
        mode: How the model is made to follow the schema.
    """

    messages: Sequence[dict[str, Any]]
    schema: AnswerSchema
    mode: OutputMode


@dataclass(frozen=True)
class ModelReply:
    """A model's reply.

    Attributes:
        text: The text of the message, or the arguments of the forced tool call.
        value: The answer as a JSON value, if it arrived parsed.
        refusal: The model's reason for refusing to answer, or "".
        finish_reason: Why the model stopped: ``stop``, ``length``, ``content_filter``, ...
        model: The name of the model that replied.
        input_tokens: None if the server does not report them.
        output_tokens: None if the server does not report them.
        cached_tokens: Input tokens that the provider read from its cache.
        cache_write_tokens: Input tokens that the provider wrote to its cache.
        problem: Why the reply is unusable regardless of its text, or "".
    """

    text: str | None
    value: Any = None
    refusal: str = ""
    finish_reason: str = ""
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    problem: str = ""


@dataclass
class AnswerUsage:
    """The requests, tokens and cost of one answer, recorded along the way so that failures count.

    Attributes:
        requests: Requests sent.
        input_tokens: The sum over all requests.
        output_tokens: The sum over all requests.
        cached_tokens: Input tokens that the provider read from its cache.
        model: The model that replied last.
        raw: The text of the last reply.
        mode: The output mode of the last request.
        cost: US dollars; None if the price is unknown.
        is_estimate: Whether the cost rests on estimated token counts.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model: str = ""
    raw: str = ""
    mode: str = ""
    cost: float | None = None
    is_estimate: bool = False

    def add(self, reply: ModelReply) -> None:
        """Add a reply."""
        self.input_tokens += reply.input_tokens or 0
        self.output_tokens += reply.output_tokens or 0
        self.cached_tokens += reply.cached_tokens
        self.model = reply.model or self.model
        self.raw = (dumps(reply.value) if reply.text is None and reply.value else reply.text) or ""


@dataclass
class OutputModeMemory:
    """The output mode that worked for each endpoint, a pair of server address and model.

    A server error (HTTP 500) in a mode may only mean that the server was busy. Such a mode is
    therefore never given up for good: after `_MAX_OUTAGES` questions in a row it is tried with
    every `_RETRY_EVERY`th question only.

    Attributes:
        known: The modes that worked.
        refused_options: The errors of judges whose model refuses one of their options, by the
            judge's identity. They are not asked again in this process.
    """

    known: dict[tuple[str, str], OutputMode] = field(default_factory=dict)
    refused_options: dict[str, str] = field(default_factory=dict)
    _outages: dict[tuple[tuple[str, str], OutputMode], int] = field(
        default_factory=dict, repr=False
    )
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, endpoint: tuple[str, str]) -> OutputMode | None:
        """The mode that worked, or None."""
        return self.known.get(endpoint)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.known.clear()
            self.refused_options.clear()
            self._outages.clear()

    def record_success(self, endpoint: tuple[str, str], mode: OutputMode) -> None:
        """Remember a mode that worked, unless another one is known."""
        with self._lock:
            self._outages.pop((endpoint, mode), None)
            self.known.setdefault(endpoint, mode)

    def record_refusal(self, endpoint: tuple[str, str], mode: OutputMode) -> None:
        """Forget a mode that the server no longer accepts."""
        with self._lock:
            if self.known.get(endpoint) == mode:
                del self.known[endpoint]

    def record_outage(self, endpoint: tuple[str, str], mode: OutputMode) -> None:
        """Count a question on which the server failed in a mode and answered in a later one."""
        with self._lock:
            self._outages[endpoint, mode] = self._outages.get((endpoint, mode), 0) + 1

    def should_skip(self, endpoint: tuple[str, str], mode: OutputMode) -> bool:
        """Whether the next question skips a mode because the server keeps failing in it."""
        with self._lock:
            count = self._outages.get((endpoint, mode), 0)
            if count < _MAX_OUTAGES or (count - _MAX_OUTAGES) % _RETRY_EVERY == _RETRY_EVERY - 1:
                return False
            self._outages[endpoint, mode] = count + 1
            return True


class ParsedAnswer(NamedTuple):
    """A usable answer: as the JSON value that the model wrote, and as checked by the schema."""

    json: Any
    value: Any


Send = Callable[[CompletionRequest], Awaitable[ModelReply]]


async def complete_with_fallback(
    messages: Sequence[dict[str, Any]],
    schema: AnswerSchema,
    send: Send,
    *,
    modes: Sequence[OutputMode],
    endpoint: tuple[str, str],
    memory: OutputModeMemory,
    usage: AnswerUsage,
) -> ParsedAnswer:
    """Ask in one output mode after the other until the answer is usable.

    Args:
        messages: The prompt.
        schema: The schema of the answer.
        send: Sends a request, counts it in `usage`, and returns the reply.
        modes: The modes that the judge supports, from the strictest.
        endpoint: The server's address and the model's name.
        memory: The modes that worked; updated.
        usage: Updated with every request.

    Raises:
        JudgeError: No mode led to a usable answer, or the model refused to judge.
    """
    remembered_mode = memory.get(endpoint)
    candidates = list(modes[modes.index(remembered_mode) :] if remembered_mode in modes else modes)
    attempted = [
        mode
        for mode in candidates
        if mode == candidates[-1] or not memory.should_skip(endpoint, mode)
    ]
    outages: list[OutputMode] = []
    failures: list[tuple[OutputMode, Exception]] = []
    for mode in attempted:
        try:
            answer = await _ask_in_mode(messages, schema, mode, send, usage)
        except OutputModeRefused as error:
            if mode == remembered_mode and not is_about_format(str(error)):
                raise
            if error.is_outage:
                outages.append(mode)
            else:
                memory.record_refusal(endpoint, mode)
            failures.append((mode, error))
        except InvalidAnswer as problem:
            failures.append((mode, problem))
        else:
            for failed in outages:
                memory.record_outage(endpoint, failed)
            # A stricter mode that was skipped or met a busy server may work next time.
            if attempted == candidates and not outages:
                memory.record_success(endpoint, mode)
            return answer
    raise _no_answer(failures)


def _no_answer(failures: Sequence[tuple[OutputMode, Exception]]) -> JudgeError:
    """The error for a question that failed in every mode."""
    if isinstance(failures[-1][1], OutputModeRefused):
        first = next(error for _, error in failures if isinstance(error, OutputModeRefused))
        return JudgeError(str(first))
    problems = "; ".join(f"{mode}: {problem}" for mode, problem in failures)
    return JudgeError(f"no usable answer: {problems}"[:1000])


async def _ask_in_mode(
    messages: Sequence[dict[str, Any]],
    schema: AnswerSchema,
    mode: OutputMode,
    send: Send,
    usage: AnswerUsage,
) -> ParsedAnswer:
    """Ask in one mode; in ``text`` mode the model may repair an unusable answer once."""
    messages = _with_format_instructions(messages, schema, mode)
    reply = await _complete(CompletionRequest(messages, schema, mode), send, usage)
    try:
        return _parse(reply, schema)
    except InvalidAnswer as problem:
        if mode != "text":
            raise
        first = problem
    messages = _with_repair_instructions(messages, reply, first, schema)
    try:
        reply = await _complete(CompletionRequest(messages, schema, mode), send, usage)
        return _parse(reply, schema)
    except OutputModeRefused as error:
        raise JudgeError(str(error)) from error
    except InvalidAnswer as second:
        raise InvalidAnswer(f"{first}; after a repair turn: {second}") from None


async def _complete(request: CompletionRequest, send: Send, usage: AnswerUsage) -> ModelReply:
    """Send a request; raise `JudgeError` if the model refused or was cut off."""
    usage.mode = request.mode
    reply = await send(request)
    usage.add(reply)
    if problem := unseen_text(map(_text_of, request.messages), reply.input_tokens):
        raise JudgeError(problem)
    finish_reason = normal_finish_reason(reply.finish_reason)
    if reply.refusal or finish_reason == "content_filter":
        raise JudgeError(f"the judge refused: {reply.refusal or 'stopped by a content filter'}")
    if finish_reason not in COMPLETE_FINISH_REASONS:
        raise JudgeError(
            f"the answer was cut off at its token limit or before its end: it finished with "
            f"{reply.finish_reason!r}; raise max_tokens if the request sets it"
        )
    return reply


def unseen_text(texts: Iterable[str], input_tokens: int | None) -> str:
    """Why a model cannot have seen the whole of some texts, or "".

    Some servers silently drop the beginning of a text that exceeds their window (Ollama by default
    keeps the last 4,096 tokens), and report the tokens of the rest. A token of English or JSON has
    3 to 5 characters on average, and fewer in other languages; `_MOST_CHARACTERS` do not occur. A
    run of equal characters, such as white space, may be one token and counts as one. Texts shorter
    than `_SMALLEST_WINDOW` fit into the window of every server.

    Args:
        texts: The texts of a request.
        input_tokens: The tokens that the server reports; None if it reports none.
    """
    if not input_tokens:
        return ""
    characters = sum(len(_RUNS.sub(r"\1", text)) for text in texts)
    if characters < _SMALLEST_WINDOW or input_tokens * _MOST_CHARACTERS >= characters:
        return ""
    return (
        f"the model saw only a part of the text: the server reports {input_tokens:,} input tokens "
        f"for {characters:,} characters; raise its context window (of Ollama: num_ctx)"
    )


_MOST_CHARACTERS = 12
_SMALLEST_WINDOW = 8_000  # characters, about 2,048 tokens
_RUNS = re.compile(r"(.)\1+", re.DOTALL)


def _text_of(message: Mapping[str, Any]) -> str:
    """The text of a message of a request, without images."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "".join(text for text in texts if isinstance(text, str))


def _parse(reply: ModelReply, schema: AnswerSchema) -> ParsedAnswer:
    if reply.problem:
        raise InvalidAnswer(reply.problem)
    json = parse_answer(reply.text) if reply.value is None else reply.value
    return ParsedAnswer(json, schema.read(json))


def _with_format_instructions(
    messages: Sequence[dict[str, Any]], schema: AnswerSchema, mode: OutputMode
) -> Sequence[dict[str, Any]]:
    """Add the schema to the last user message, in modes that do not send it to the server."""
    if mode in ("json_schema", "tool", "function"):
        return messages
    messages = [dict(message) for message in messages]
    last = next((m for m in reversed(messages) if m.get("role") == "user"), None)
    instructions = (
        "Answer with one JSON object and nothing else: no text around it, no code fence. "
        f"It must fit this JSON schema, its keys in this order:\n{dumps(schema.json)}"
    )
    if last is None:
        return [*messages, {"role": "user", "content": instructions}]
    content = last.get("content")
    if isinstance(content, list):
        last["content"] = [*content, {"type": "text", "text": instructions}]
    else:
        last["content"] = f"{content or ''}\n\n{instructions}"
    return messages


def _with_repair_instructions(
    messages: Sequence[dict[str, Any]],
    reply: ModelReply,
    problem: InvalidAnswer,
    schema: AnswerSchema,
) -> Sequence[dict[str, Any]]:
    instructions = (
        f"That cannot be used: {problem}. Give the same judgement again as one JSON object with "
        f"the keys {', '.join(schema.json.get('properties', {}))}, and nothing else."
    )
    return [
        *messages,
        {"role": "assistant", "content": reply.text or "(no answer)"},
        {"role": "user", "content": instructions},
    ]
