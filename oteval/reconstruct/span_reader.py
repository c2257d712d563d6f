"""From a span's attributes to messages: pick the dialect, call its reader, check the result.

`read_span` is the entry. The dialect that reads a span is found by the marks that dialects declare
(`dialect.Dialect`): one lookup of the span's scope, name, attribute names and events, instead of
a call of each dialect. The result of every dialect is then checked the same way: unknown roles are
replaced, and unknown kinds of parts and the missing input or output of a model call become gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ..messages import (
    EVENT_ROLES,
    ROLES,
    SYSTEM_ROLES,
    facts_of,
    hidden,
    is_glued,
    is_missing_text,
    is_without_content,
    separated,
    stamped,
    unknown_kind,
)
from ..model import CONTENT_GAPS, NO_TOKENS, Attributes, Gap, Message, Span, ToolCall, first
from .dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from .dialects import DIALECTS
from .dialects.by_shape import DIALECT as SHAPES
from .gaps import gap
from .readers.attribute_shapes import token_attributes
from .readers.flat_lists import FEW_KEYS, named
from .readers.spans import missing_side, was_cut
from .recorded_answers import finish_reason_of, tokens_in_answer

__all__ = [
    "FOREIGN",
    "attach_logs",
    "dialect_of",
    "foreign_marks",
    "holds_messages",
    "infrastructure_of",
    "is_transport",
    "read_span",
]

# Attribute prefixes of model spans that no dialect reads.
FOREIGN = (
    "agentops.",
    "braintrust.input",
    "braintrust.output",
    "gen_ai.completion",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.prompt",
    "helicone.",
    "langtrace.",
    "llm.",
    "lmnr.span.",
    "promptflow.",
    "weave.",
)
_HTTP = ("http.request.method", "http.method")
_URL = ("url.full", "http.url", "http.target", "url.path")
# In order: a database call over the network is a database call.
_KINDS = (
    ("a database call", ("db.",)),
    ("messaging", ("messaging.",)),
    ("a remote call", ("rpc.",)),
    ("an HTTP request", ("http.", "asgi.", "url.")),
    ("a network call", ("dns.", "net.", "network.", "server.address", "tls.")),
)
_CLIENT = 3
_SERVED_KINDS = (2, 5)  # of servers and of consumers
_PREFIXES = tuple(prefix for _, prefixes in _KINDS for prefix in prefixes)


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """The log records with the spans that they belong to, as the dialects know them."""
    for dialect in DIALECTS:
        if dialect.attach_logs is not None:
            logs = dialect.attach_logs(spans, logs)
    return logs


def read_span(span: Span, logs: Logs, *, by_shape: bool = False) -> tuple[str, Operation]:
    """The operation that a span records, and the name of the dialect that read it.

    Args:
        span: The span.
        logs: The log records in its context, in order of time.
        by_shape: Whether a span that no dialect knows is read by its shape; see
            `dialects.by_shape`.

    Returns:
        The dialect's name and the operation; "" and a `Wrapper` for a span that no dialect reads.
    """
    dialect = dialect_of(span, logs)
    if dialect is None:
        return _read_by_shape(span) if by_shape and not is_pending(span) else ("", Wrapper(span))
    operation = _checked(_stamped(dialect.read(span, logs)), dialect.switch)
    if isinstance(operation, ModelCall):
        # A new object would take longer than finding the values.
        if not operation.finish_reason:
            object.__setattr__(operation, "finish_reason", finish_reason_of(span, logs))
        if not (operation.usage.input_tokens or operation.usage.output_tokens):
            tokens = tokens_in_answer(span)
            if tokens is not NO_TOKENS:
                object.__setattr__(operation, "usage", tokens.usage)
    return dialect.name, operation


def _read_by_shape(span: Span) -> tuple[str, Operation]:
    operation = _checked(_stamped(SHAPES.read(span, ())), SHAPES.switch)
    return "" if isinstance(operation, Wrapper) else SHAPES.name, operation


def is_pending(span: Span) -> bool:
    """Whether a span only reports that another span has begun, as Logfire's do.

    The other span arrives when it has ended, with another id.
    """
    return span.attributes.get("logfire.span_type") == "pending_span"


def dialect_of(span: Span, logs: Logs) -> Dialect | None:
    """The dialect that reads a span, or None."""
    if "logfire.span_type" in span.attributes and is_pending(span):
        return None
    marks = _MARKS.of(span, logs)
    of_backend = None
    for dialect in _dialects_of(marks):
        if dialect.claims is None or dialect.claims(span, logs):
            if dialect.is_added is None or not dialect.is_added(span):
                return dialect
            of_backend = of_backend or dialect
    return of_backend


@lru_cache(maxsize=1024)
def _dialects_of(marks: int) -> Sequence[Dialect]:
    """The dialects of a set, in their order."""
    return [dialect for index, dialect in enumerate(DIALECTS) if marks >> index & 1]


class _Marks:
    """The marks of all dialects. Sets of dialects are bits, the lowest for the first dialect."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.of_scope = lru_cache(256)(_finder(dialects, "scopes"))
        self.of_name = lru_cache(1024)(_finder(dialects, "span_names"))
        self.of_event = lru_cache(256)(_finder(dialects, "events"))
        self.operations, _ = _marks_in(dialects, "operations")
        of_key = _finder(dialects, "keys")

        # An instrumentation writes few sets of keys: most spans repeat an earlier set.
        @lru_cache(1024)
        def of_keys(*keys: str) -> int:
            dialect_bits = 0
            for key in keys:
                dialect_bits |= of_key(key)
            return dialect_bits

        self.of_keys = of_keys
        self.of_many_keys = _finder_in_many(dialects)

    def of(self, span: Span, logs: Logs) -> int:
        """The dialects that a span has a mark of."""
        attributes = span.attributes
        dialect_bits = self.of_scope(span.scope) | self.of_name(span.name)
        if len(attributes) <= FEW_KEYS:
            dialect_bits |= self.of_keys(*attributes)
        else:
            dialect_bits |= self.of_many_keys(attributes)
        operation = attributes.get("gen_ai.operation.name")
        if type(operation) is str:
            dialect_bits |= self.operations.get(operation, 0)
        for event in span.events:
            dialect_bits |= self.of_event(event.name)
        for record in logs:
            dialect_bits |= self.of_event(record.event_name)
        return dialect_bits


def _finder_in_many(dialects: Sequence[Dialect]) -> Callable[[Attributes], int]:
    """The function that returns the dialects with a mark among many attributes.

    Long histories in flat attributes have thousands of names, which never repeat.
    """
    exact, prefixes = _marks_in(dialects, "keys")

    def find(attributes: Attributes) -> int:
        dialect_bits = 0
        for key in exact.keys() & attributes.keys():
            dialect_bits |= exact[key]
        ours = named(attributes)
        for prefix, bits in prefixes.items():
            if ours.has_prefix(prefix):
                dialect_bits |= bits
        return dialect_bits

    return find


def _finder(dialects: Sequence[Dialect], field: str) -> Callable[[str], int]:
    """The function that returns the dialects with a text among the marks of one field."""
    exact, prefixes = _marks_in(dialects, field)
    starts = tuple(prefixes)

    def find(text: str) -> int:
        dialect_bits = exact.get(text, 0)
        if text.startswith(starts):
            for prefix, bits in prefixes.items():
                if text.startswith(prefix):
                    dialect_bits |= bits
        return dialect_bits

    return find


def _marks_in(dialects: Sequence[Dialect], field: str) -> tuple[dict[str, int], dict[str, int]]:
    """The marks of one field with their dialects: exact texts, and prefixes."""
    exact: dict[str, int] = {}
    prefixes: dict[str, int] = {}
    for dialect_index, dialect in enumerate(dialects):
        for mark in getattr(dialect, field):
            table = prefixes if mark.endswith("*") else exact
            text = mark.removesuffix("*")
            table[text] = table.get(text, 0) | 1 << dialect_index
    return exact, prefixes


_MARKS = _Marks(DIALECTS)


def _stamped(operation: Operation) -> Operation:
    """An operation whose messages have the ids of its span.

    The input of a model call does not change; see `ModelCall.input`.
    """
    span = operation.span
    if isinstance(operation, ModelCall):
        output, choices = operation.output, operation.choices
        if not (_is_shared(output, span) or (choices and _is_shared(choices, span))):
            return operation
        output, choices = stamped(output, span), stamped(choices, span)
        return replace(operation, output=output, choices=choices)
    if isinstance(operation, ToolRun) and operation.agent is not None:
        return replace(operation, agent=_stamped_agent(operation.agent))
    return _stamped_agent(operation) if isinstance(operation, AgentRun) else operation


def _stamped_agent(agent: AgentRun) -> AgentRun:
    span, sides = agent.span, (agent.input, agent.output, agent.transcript)
    if not _is_shared([*agent.input, *agent.output, *agent.transcript], span):
        return agent
    sent, answered, transcript = (stamped(messages, span) for messages in sides)
    return replace(agent, input=sent, output=answered, transcript=transcript)


def _is_shared(messages: Sequence[Message], span: Span) -> bool:
    """Whether any message was read from another span."""
    span_id, trace_id = span.span_id, span.trace_id
    return bool([m for m in messages if m.span_id != span_id or m.trace_id != trace_id])


def _checked(operation: Operation, switch: str) -> Operation:
    """An operation with known roles, and with a gap for all missing content.

    Args:
        operation: The operation as a dialect read it.
        switch: The dialect's `Dialect.switch`.
    """
    if isinstance(operation, ModelCall):
        return _checked_call(operation, switch)
    if isinstance(operation, AgentRun):
        return _checked_agent(operation, switch)
    return operation


def _checked_call(call: ModelCall, switch: str) -> ModelCall:
    if call.output and (was_cut(call.span) or _lacks_calls(call)):
        call = replace(call, output=(), choices=())
    sent_facts, received_facts, choice_facts = (
        facts_of(call.input),
        facts_of(call.output),
        facts_of(call.choices),
    )
    if sent_facts.has_placeholder or received_facts.has_placeholder or choice_facts.has_placeholder:
        where, remedy = "the content of messages", switch or _NO_SWITCH
        lost = gap("redacted", call.span.span_id, key=where, switch=remedy)
        call = replace(call, whole=False, gaps=(*call.gaps, lost))
    is_plain = not (
        call.gaps or sent_facts.has_odd or received_facts.has_odd or choice_facts.has_odd
    )
    if is_plain and call.whole and call.input and call.output:
        return call
    odd: list[Gap] = []
    gaps = list(call.gaps)
    failed = call.span.is_error or any(call_gap.code == "model_call_failed" for call_gap in gaps)
    is_unanswered = not call.output and not failed and bool(switch)
    is_explained = any(call_gap.code in CONTENT_GAPS for call_gap in gaps)
    if switch and not is_explained:
        gaps += missing_side(call.span, switch, sent=call.input, received=call.output or failed)
    losses = _Losses(call.span, switch, is_explained, odd, call.tools)
    sent = _known(call.input, "user", losses)
    received = _known(call.output, "assistant", losses)
    choices = _known(call.choices, "assistant", losses)
    is_whole = _is_whole(call) and not is_unanswered
    is_same = sent is call.input and received is call.output and choices is call.choices
    is_same = is_same and not odd and len(gaps) == len(call.gaps)
    if is_same and is_whole == call.whole and not is_unanswered:
        return call
    return replace(
        call,
        input=sent,
        output=received,
        choices=choices,
        whole=is_whole,
        is_unanswered=is_unanswered and len(gaps) > len(call.gaps),
        gaps=(*gaps, *dict.fromkeys(odd)),
    )


def _lacks_calls(call: ModelCall) -> bool:
    """Whether an answer is empty although the model stopped for tools to be called."""
    for message in call.output:
        if message.content or message.tool_calls or message.parts:
            return False
    return (call.finish_reason or finish_reason_of(call.span, ())) == "tool_call"


def _is_whole(call: ModelCall) -> bool:
    """Whether a call is complete; its answer may be without its input."""
    if call.whole or not call.output or any(m.role not in SYSTEM_ROLES for m in call.input):
        return call.whole
    codes = {call_gap.code for call_gap in call.gaps}
    return "content_not_captured" in codes <= {"content_not_captured", "model_call_failed"}


def _checked_agent(agent: AgentRun, switch: str) -> AgentRun:
    facts = [facts_of(side) for side in (agent.input, agent.output, agent.transcript) if side]
    if not any(side.has_placeholder or side.has_odd for side in facts):
        return agent
    odd: list[Gap] = []
    is_explained = any(agent_gap.code in CONTENT_GAPS for agent_gap in agent.gaps)
    losses = _Losses(agent.span, switch, is_explained, odd, agent.tools)
    sent = _known(agent.input, "user", losses)
    answered = _known(agent.output, "assistant", losses)
    transcript = _known(agent.transcript, "user", losses)
    if sent is agent.input and answered is agent.output and transcript is agent.transcript:
        return agent
    return replace(
        agent,
        input=sent,
        output=answered,
        transcript=transcript,
        gaps=(*agent.gaps, *dict.fromkeys(odd)),
    )


class _Losses(NamedTuple):
    """Missing or unknown content of a span's messages.

    Attributes:
        span: The span.
        switch: The dialect's `Dialect.switch`.
        is_explained: Whether an existing gap explains the missing content.
        gaps: The list of gaps, extended in place.
        tools: The definitions of the tools that the model was offered.
    """

    span: Span
    switch: str
    is_explained: bool
    gaps: list[Gap]
    tools: Sequence[Mapping[str, Any]]


def _known(messages: tuple[Message, ...], role: str, losses: _Losses) -> tuple[Message, ...]:
    """Return messages with known roles, noting roles, parts and content that are not known.

    Args:
        messages: The messages.
        role: The role of messages whose role is unknown. The unknown role stays as their name.
        losses: The content that is missing or unknown.
    """
    span, gaps = losses.span, losses.gaps
    facts = facts_of(messages)
    if facts.has_placeholder:
        messages = tuple([replace(m, content=None) if hidden(m.content) else m for m in messages])
    elif not facts.has_odd:
        return messages
    kept_messages: list[Message] = []
    if any(map(is_without_content, messages)):
        if not losses.is_explained:
            missing, remedy = "content of a message", losses.switch or _NO_SWITCH
            gaps.append(gap("content_not_captured", span.span_id, missing=missing, switch=remedy))
        messages = tuple(map(_without_missing, messages))
    for message in messages:
        for part in message.parts:
            if kind := unknown_kind(part):
                reason = f"its kind {kind} is unknown; it is kept unchanged"
                gaps.append(_unreadable("a part of a message", span, reason))
        if message.role not in ROLES:
            reason = f"its role {message.role!r} is unknown; it is shown as {role}"
            gaps.append(_unreadable("a message", span, reason))
            message = replace(message, role=role, name=message.name or message.role)
        kept_messages.append(_with_each_call(message, losses))
    return tuple(kept_messages)


def _with_each_call(message: Message, losses: _Losses) -> Message:
    """A message with separate calls, where an instrumentation glued several calls to one."""
    if not any(map(is_glued, message.tool_calls)):
        return message
    functions = [tool.get("function", tool) for tool in losses.tools]
    names = {str(function.get("name")) for function in functions if isinstance(function, Mapping)}
    calls: list[ToolCall] = []
    for call in message.tool_calls:
        apart = separated(call, names) if is_glued(call) else [call]
        if not apart:
            reason = "several streamed calls were written as one"
            losses.gaps.append(_unreadable(f"the call {call.name}", losses.span, reason))
        calls += apart or [call]
    return replace(message, tool_calls=tuple(calls))


_NO_SWITCH = "let the emitter capture the content of messages"


def _without_missing(message: Message) -> Message:
    """A message of a list that lacks content: empty arguments count as not known."""
    calls = tuple(
        replace(call, arguments=None) if call.arguments == {} else call
        for call in message.tool_calls
    )
    if is_without_content(message):
        parts = tuple(part for part in message.parts if not is_missing_text(part))
        return replace(message, content=message.content or None, tool_calls=calls, parts=parts)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def _unreadable(key: str, span: Span, reason: str) -> Gap:
    return gap("content_unreadable", span.span_id, key=key, reason=reason)


def infrastructure_of(span: Span) -> str:
    """A description of a span that no dialect reads, or "" if its kind is unknown."""
    if is_pending(span):
        return "the beginning of a span, which comes when it has ended"
    if any(key in span.attributes for key in _HTTP):
        where = str(first(span.attributes, _URL) or "").partition("?")[0]
        return f"an HTTP request{where and f' to {where}'}, without content"
    if not any(key.startswith(_PREFIXES) for key in span.attributes):
        return ""
    for text, prefixes in _KINDS:
        if any(key.startswith(prefixes) for key in span.attributes):
            return text
    return ""


def foreign_marks(span: Span) -> set[str]:
    """The attributes that make a span look like a model span, though no dialect reads it.

    Attributes with a known prefix are named by it; otherwise, attributes with token counts.
    """
    if is_pending(span):
        return set()
    keys = [key for key in span.attributes if key.startswith(FOREIGN)]
    marks = {mark for mark in FOREIGN for key in keys if key.startswith(mark)}
    marks |= {event.name for event in span.events if event.name in EVENT_ROLES}
    return marks or set(token_attributes(span))


def holds_messages(span: Span, dialect: str) -> bool:
    """Whether a span of the conventions contains messages, whatever its operation is.

    Args:
        span: The span, which its dialect takes for a wrapper.
        dialect: The name of the dialect.
    """
    if dialect not in _CONVENTIONS:
        return False
    is_told = any(event.name in EVENT_ROLES for event in span.events)
    return is_told or not span.attributes.keys().isdisjoint(_MESSAGES)


_CONVENTIONS = ("genai", "genai-events")
_MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.completion")


def is_transport(span: Span) -> bool:
    """Whether a tool's span only records the transport of its call, or the server's side.

    The MCP SDK's own request spans name no tool. If a backend stores no kind, it is unknown which
    side an MCP span is of; then it does not count as an agent's.
    """
    if span.kind in _SERVED_KINDS:
        return True
    if "mcp.method.name" not in span.attributes:
        return False
    return span.kind != _CLIENT or "gen_ai.tool.name" not in span.attributes
