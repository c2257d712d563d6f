"""The player: answers an agent's requests from a recording, and notes where it differs.

It is pure: the transport, the endpoint of ``oteval replay serve`` and the hooks of tools call it.
All methods may be called from several threads.

A **miss** is a request that the recording does not have. By ``miss``:

- ``strict``: `ReplayDiverged` is raised, now and on every later request. An agent that swallows it
  cannot continue.
- ``error``: a request is answered by an HTTP error; the result of a tool is an error.
- ``ordinal``: the answer of the corresponding recorded call is returned.
- ``fork``: this request and all later requests are sent for real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, Literal, get_args

from ..base.errors import ConfigError
from ..base.patterns import Pattern
from ..base.text import counted, shown_url
from ..model import Exchange, RecordedModelCall, RecordedRequest, RecordedToolCall, Recording
from ..reconstruct import ModelApi, api_of, offered_tools
from .call_site import call_site
from .conversations import ExecutedTools, conversation_of
from .divergence import Divergence, diverged, early_tool, extra_call, missing_call, missing_result
from .http_answers import (
    READING_METHODS,
    HttpAnswer,
    HttpRequest,
    exchange_answer,
    live_answer,
    model_answer,
    parsed,
    refusal,
)
from .recorded_exchanges import RecordedExchanges
from .recorded_executions import asked_executions
from .recorded_requests import RecordedEntry, RecordedRequests
from .recorded_tools import (
    RecordedTools,
    tools_asked_by,
    tools_asked_in,
    without_result,
)
from .replay_order import ReplayOrder
from .replay_result import ReplayResult
from .text_comparison import compiled
from .tool_gate import ToolGate
from .tool_guard import ToolGuard

__all__ = ["MISSES", "Miss", "Player", "Tools"]

Miss = Literal["strict", "error", "ordinal", "fork"]
Tools = Literal["recorded", "run"]
MISSES: tuple[Miss, ...] = get_args(Miss)
_NO_ORDER = "a replay compares tools only in the process that asks for them"


class Player(ToolGuard):
    """Answers requests from a recording.

    Args:
        recording: The recording.
        miss: The answer to a request that the recording does not have.
        normalize: Patterns of text that varies in every run; it is ignored in comparisons.
        tools: ``recorded`` to answer tools from the recording, ``run`` to run them.
        allow_live: Permission to send requests for real, which ``fork`` needs.
        in_process: Whether the agent runs in this process, so that its decorated tools and its
            other requests are intercepted as well.
        is_optional: Whether a recorded request to a URL need not be made.
        gate: Decides whether the tools that an answer requests can run; None if they run elsewhere.

    Attributes:
        recording: The recording.
        miss: The argument.
        tools: The argument.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        miss: Miss = "strict",
        normalize: Sequence[str | Pattern] = (),
        tools: Tools = "recorded",
        allow_live: bool = False,
        in_process: bool = True,
        is_optional: Callable[[str], bool] = lambda _url: False,
        gate: ToolGate | None = None,
    ) -> None:
        _check(miss, tools, allow_live=allow_live)
        patterns = compiled(normalize)
        recording = _with_asked_tools(recording)
        super().__init__(recording, gate)
        self.recording = recording
        self.miss: Miss = miss
        self.tools: Tools = tools
        self._requests = RecordedRequests(recording.model_calls, recording.tool_calls, patterns)
        self._in_process, self._is_optional = in_process, is_optional
        self._exchanges = RecordedExchanges(recording.exchanges, patterns, can_pass=in_process)
        self._tools = RecordedTools(recording.tool_calls, recording.model_calls, normalize=patterns)
        self._executed = ExecutedTools(recording.tool_calls)
        self._order = ReplayOrder(recording, self._requests.keys)
        # Without spans of tools, such as in a cassette, the recording lacks tools that no model
        # requested. If such tools run, their results are compared in the next request.
        self._compares_tools = tools == "recorded" or any(
            call.start_ns for call in recording.tool_calls
        )
        self._divergences: list[Divergence] = []
        self._late: list[Divergence] = []
        self._notes: dict[str, None] = {}
        self._flagged = self._live = 0
        self._is_forked = False

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The differences so far."""
        with self._lock:
            return tuple(self._divergences)

    @property
    def conversation(self) -> tuple[RecordedModelCall, ...]:
        """The requests that were answered from the recording, with their answers."""
        with self._lock:
            return tuple(self._executed.model_calls)

    @property
    def is_live(self) -> bool:
        """Whether requests are sent for real from now on."""
        return self._is_forked

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request.

        Raises:
            ReplayDiverged: The recording does not have the request (``strict``).
        """
        api = api_of(request.method, request.url)
        with self._lock:
            self.check()
            if self._is_forked:
                return self._live_answer(request)
            if api is None:
                return self._exchange(request)
            return self._model_call(api, request)

    def has(self, request: HttpRequest) -> bool:
        """Whether a request is sent to a model, or is recorded."""
        if api_of(request.method, request.url) is not None:
            return True
        with self._lock:
            return self._exchanges.has(request)

    def expects(self, request: HttpRequest) -> bool:
        """Whether an unused answer is recorded for exactly this request."""
        api = api_of(request.method, request.url)
        with self._lock:
            if api is None:
                return self._exchanges.has(request)
            return self._requests.expects(self._requests.key_of(parsed(api, request), request))

    @property
    def is_finished(self) -> bool:
        """Whether every recorded model call has answered a request."""
        with self._lock:
            return not self._requests.unused

    def answer_tool(self, name: str, arguments: Mapping[str, Any]) -> RecordedToolCall | None:
        """Answer a call of a tool by its recorded execution; None runs the tool.

        Raises:
            ReplayDiverged: The recording does not have the call (``strict``).
        """
        with self._lock:
            self.check()
            if not self.has_asked_for(name):
                self.diverge(early_tool(name, arguments))
            match = self._tools.take(name, dict(arguments))
            call = None if isinstance(match, Divergence) else match
            self._executed.intercepted(name, dict(arguments), call)
            self._results.answered(name)
            if self._compares_tools and isinstance(match, Divergence):
                self.diverge(match)
            elif self._compares_tools and call is not None:
                self._note_order(call)
            if self.tools == "run" or (self._gate is not None and self._gate.runs(name)):
                return None
            if call is None:
                return without_result(name, dict(arguments))
            # The model calls of an agent that is used as a tool are replayed themselves.
            if call.runs_agent:
                return None
            if call.result is None and not call.is_error:
                self.diverge(missing_result(name, arguments))
            if call.result is not None and call.own_result is None and not call.function:
                self.answers_as_sent(name)
            return call

    def _note_order(self, recorded: RecordedModelCall | RecordedToolCall | Exchange) -> None:
        """Note that a recorded event has happened; it is a divergence if it happened too late."""
        divergence = self._order.arrived(recorded)
        if divergence is None:
            return
        if self._is_child and isinstance(recorded, RecordedToolCall):
            # The parent process may have received the answer that requests the tool.
            self.unguarded(f"{recorded.name} ran in another process: {_NO_ORDER}")
            return
        self.diverge(divergence)

    def skip(self, request: HttpRequest) -> None:
        """Count a recorded request as made although it gets no recorded answer."""
        with self._lock:
            self._exchanges.intended(request)

    def diverge(self, divergence: Divergence) -> Divergence:
        """Note a divergence; divergences with the same cause are noted once.

        Returns:
            The divergence with the line of the agent's code.

        Raises:
            ReplayDiverged: Always if misses are ``strict``.
        """
        with self._lock:
            reported = next(
                (earlier for earlier in self._divergences if earlier.same_as(divergence)), None
            )
            if reported is None:
                line = divergence.line or call_site().line
                reported = divergence.at(line)
                if reported.kind == "tool_result" and not reported.suggestion:
                    reported = replace(reported, suggestion=self.results_hint)
                self._divergences.append(reported)
            self.check()
            return reported

    def expects_tool(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a recorded execution would answer a call of a tool."""
        with self._lock:
            return self._tools.has(name, arguments)

    def require_not_early(self, code: CodeType) -> None:
        """Stop a call of a tool that began before its function was taken over.

        Args:
            code: The code that is about to run.

        Raises:
            ReplayDiverged: It is the code of a tool.
        """
        name = self._gate.tool_of(code) if self._gate is not None else ""
        if name:
            raise diverged(self.diverge(early_tool(name, {})))

    def check(self) -> None:
        """Raise the error that ended the replay again: it was stopped, or diverged with ``strict``.

        Raises:
            ReplayUnguarded: A tool would have run.
            ReplayDiverged: The replay has diverged, and misses are ``strict``.
        """
        super().check()
        if self.miss == "strict" and self._divergences:
            raise diverged(self._divergences[0])

    def note_late(self, divergence: Divergence) -> Divergence:
        """Note a divergence of a thread or task that has outlived the replay.

        Returns:
            The divergence.
        """
        with self._lock:
            self._late.append(divergence)
            return divergence

    @property
    def late(self) -> tuple[Divergence, ...]:
        """The divergences of threads and tasks that have outlived the replay."""
        with self._lock:
            return tuple(self._late)

    def note(self, reason: str) -> None:
        """Add a line to the reasons of the result, once."""
        with self._lock:
            self._notes[reason] = None

    def finish(self, *, is_complete: bool = True) -> ReplayResult:
        """Conclude the replay; recorded calls that were not made are a divergence.

        Args:
            is_complete: Whether the agent ran to its end. Calls after an exception are not missing.
        """
        with self._lock:
            is_whole = is_complete and not self._divergences and not self._stopped
            missing = dict(self._missing()) if is_whole else {}
            self._divergences += list(missing.values())[:1]
            return ReplayResult(
                session=self.recording.session,
                fidelity=self.recording.fidelity,
                reasons=(*self.recording.reasons, *self._notes, *self._coverage()),
                divergences=tuple(self._divergences),
                model_calls=len(self._requests),
                served=self._requests.used,
                tool_calls=len(self._tools),
                served_tools=self._tools.used,
                exchanges=len(self._exchanges),
                served_exchanges=self._exchanges.used,
                flagged=self._flagged,
                live=self._live,
                executed=tuple(self._executed.calls()),
                missing=tuple(missing),
                unguarded=tuple(self._unguarded),
                tools=dict(self._gate.tools) if self._gate else {},
            )

    def _model_call(self, api: ModelApi, request: HttpRequest) -> HttpAnswer:
        sent = parsed(api, request)
        self._require_own_results(sent)
        key = self._requests.key_of(sent, request)
        entry = self._requests.take(key)
        if entry is not None:
            divergence = self._requests.swapped_results(entry, key, sent)
            if divergence is None:
                self._note_order(entry.call)
                return self._model_answer(entry, sent, api)
        else:
            entry = self._requests.intended(key)
            divergence = (
                self._requests.divergence(entry, key, sent)
                if entry is not None
                else extra_call(len(self._requests), sent.messages)
            )
        reported = self.diverge(divergence)
        if entry is None:
            return self._missed(reported, request, None)
        entry.is_used = True
        return self._missed(reported, request, partial(self._model_answer, entry, sent, api))

    def _live_answer(self, request: HttpRequest) -> HttpAnswer:
        """Let a request be sent for real; a model may then request any tool that it offers."""
        self.require_answered(offered_tools(request.body))
        self._live += 1
        return live_answer()

    def _model_answer(
        self, entry: RecordedEntry, sent: RecordedRequest, api: ModelApi
    ) -> HttpAnswer:
        """Return the answer of a recorded call, and note the request."""
        self.require_answered(tools_asked_by(entry.call, self.recording))
        self._results.asked(entry.call)
        self._executed.requested(replace(entry.call, request=sent))
        return model_answer(entry.call, sent, api)

    def _missed(
        self, reported: Divergence, request: HttpRequest, answer: Callable[[], HttpAnswer] | None
    ) -> HttpAnswer:
        """Answer a request that differs from the recorded one, according to `miss`.

        Args:
            reported: The difference.
            request: The request.
            answer: Returns the answer of the corresponding recorded call; None without one.
        """
        if self.miss == "fork":
            self._is_forked = True
            return self._live_answer(request)
        if self.miss == "ordinal" and answer is not None:
            self._flagged += 1
            return answer()
        return refusal(reported)

    def _exchange(self, request: HttpRequest) -> HttpAnswer:
        exchange = self._exchanges.take(request)
        if exchange is not None:
            self._note_order(exchange)
            return self._exchange_answer(exchange)
        intended = self._exchanges.intended(request)
        reported = self.diverge(self._exchanges.divergence(intended, request))
        answer = None if intended is None else partial(self._exchange_answer, intended)
        return self._missed(reported, request, answer)

    def _exchange_answer(self, exchange: Exchange) -> HttpAnswer:
        """The answer of an exchange, maybe with a model of an unknown API."""
        self.require_answered(tools_asked_in(exchange))
        return exchange_answer(exchange)

    def _missing(self) -> Iterator[tuple[str, Divergence]]:
        """Yield the recorded calls that the agent did not make: their names and divergences."""
        unused = [
            entry
            for entry in self._requests.unused
            if not self._tools.covers(entry.call.start_ns, entry.call.end_ns)
        ]
        for index, entry in enumerate(unused):
            messages, later = entry.call.request.messages, len(unused) - index - 1
            yield f"model call {entry.number}", missing_call(entry.number, messages, later)
        for number, tool in self._tools.missing(in_process=self._in_process):
            recorded = {"name": tool.name, "arguments": tool.arguments}
            summary = f"the agent did not call the tool {tool.name}"
            divergence = Divergence("missing_call", summary, recorded=recorded)
            yield f"the call {number} of a tool, {tool.name}", divergence
        if self._in_process:
            yield from self._missing_requests()

    def _missing_requests(self) -> Iterator[tuple[str, Divergence]]:
        """Yield the recorded requests with effects that the agent did not make."""
        answered = self._times_of_answered_functions()
        for number, exchange in self._exchanges.unused:
            # Requests that only read may be left out, because their answers are often cached.
            is_due = exchange.is_in_agent and exchange.method not in READING_METHODS
            if is_due and not (
                self._is_optional(exchange.url)
                or self._tools.covers(exchange.start_ns, exchange.end_ns)
                or any(
                    start <= exchange.start_ns and exchange.end_ns <= end for start, end in answered
                )
            ):
                yield (
                    f"the request {number}, {exchange.method} {shown_url(exchange.url)}",
                    Divergence(
                        "missing_call",
                        f"the agent did not send {exchange.method} {shown_url(exchange.url)}",
                        recorded=exchange.request_body.decode(errors="replace"),
                    ),
                )

    def _times_of_answered_functions(self) -> list[tuple[int, int]]:
        """The recorded times of answered functions, which have no span.

        They ran after the model had requested them, and before it received their results.
        """
        calls = self.recording.model_calls
        times = []
        for requested in calls:
            names = requested.answer.client_calls if requested.answer is not None else ()
            ids = {tool.id for tool in names if self._gate and self._gate.is_taken_over(tool.name)}
            result_times = (
                later.start_ns
                for later in calls
                if later.start_ns > requested.end_ns
                and ids & {message.tool_call_id for message in later.request.messages} - {""}
            )
            if ids and (end_ns := min(result_times, default=0)):
                times.append((requested.end_ns, end_ns))
        return times

    def _coverage(self) -> list[str]:
        """Lines about the recorded calls that were not replayed."""
        inside = sum(
            self._tools.covers(entry.call.start_ns, entry.call.end_ns)
            for entry in self._requests.unused
        )
        lines = []
        if inside and self.tools == "recorded":
            lines.append(
                f"{counted(inside, 'model call')} inside answered tools not replayed; "
                "run the tools to replay them"
            )
        if self._tools.used == 0 and self._has_reached_a_tool():
            lines.append(
                "no tool was intercepted: results of tools are compared in the next request only"
            )
        return lines

    def _has_reached_a_tool(self) -> bool:
        """Whether the replay reached a point after the first recorded tool."""
        if not self._divergences:
            return len(self._tools) > 0
        diverged = [divergence.call for divergence in self._divergences]
        return self._tools.began_before(self._requests.reached_ns(diverged))


def _with_asked_tools(recording: Recording) -> Recording:
    """Add the executions that only the messages of a recording show."""
    conversation = conversation_of(recording.model_calls)
    requested = asked_executions(recording.tool_calls, conversation)
    executions = tuple(call for call in requested if call.result is not None)
    return (
        replace(recording, tool_calls=(*recording.tool_calls, *executions))
        if executions
        else recording
    )


def _check(miss: str, tools: str, *, allow_live: bool) -> None:
    if miss not in MISSES:
        raise ConfigError(f"miss={miss!r}: choose one of {', '.join(MISSES)}")
    if tools not in get_args(Tools):
        raise ConfigError(f"tools={tools!r}: choose recorded or run")
    if miss == "fork" and not allow_live:
        raise ConfigError("miss='fork' sends requests for real: permit it with allow_live=True")
