"""The player: answers an agent's requests from a recording, and notes where it differs.

It is pure: the transport, the endpoint of ``oteval replay serve`` and the hooks of tools ask it.
All methods may be called from several threads.

A **miss** is a request that the recording does not have. By ``miss``:

- ``strict``: `ReplayDiverged` is raised, now and on every later request, so that an agent that
  swallows it cannot go on.
- ``error``: the request gets an HTTP error, a tool an error as its result.
- ``ordinal``: the request gets the answer of the corresponding recorded call.
- ``fork``: this request and all later ones are sent for real.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any, Literal, get_args

from ..base.errors import ConfigError, ReplayUnguarded
from ..base.patterns import Pattern
from ..base.text import counted, shown_url
from ..model import (
    Exchange,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
)
from ..reconstruct import ModelApi, api_of, offered_tools
from ..record import has_function_of
from .call_site import call_site
from .conversations import conversation_of
from .divergence import Divergence, diverged, early_tool, missing_call, missing_result
from .executed_tools import ExecutedTools
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
from .normalization import compiled, normalizer
from .recorded_exchanges import RecordedExchanges
from .recorded_executions import asked_executions
from .recorded_requests import RecordedEntry, RecordedRequests
from .recorded_tools import RecordedTools
from .replay_order import ReplayOrder
from .replay_result import ReplayResult
from .request_key import RequestKey
from .tool_gate import ToolGate
from .tool_requests import ToolResults, tools_asked_by, tools_asked_in
from .wire_requests import WireRequest

__all__ = ["MISSES", "Miss", "Player", "Tools"]

Miss = Literal["strict", "error", "ordinal", "fork"]
Tools = Literal["recorded", "run"]
MISSES: tuple[Miss, ...] = get_args(Miss)
_NO_ORDER = "a replay compares tools only in the process that asks for them"


class Player:
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
        gate: Decides whether tools can run that an answer asks for; None if they run elsewhere.

    Attributes:
        recording: The recording.
        miss: As given.
        tools: As given.

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
        self.recording = recording
        self.miss: Miss = miss
        self.tools: Tools = tools
        self._lock = threading.RLock()
        self._requests = RecordedRequests(recording.model_calls, recording.tool_calls, patterns)
        self._in_process, self._is_optional = in_process, is_optional
        self._exchanges = RecordedExchanges(recording.exchanges, patterns, can_pass=in_process)
        self._tools = RecordedTools(
            recording.tool_calls,
            recording.model_calls,
            normalized=normalizer(patterns),
        )
        self._executed = ExecutedTools(recording.tool_calls)
        self._order = ReplayOrder(recording, self._requests.keys)
        # Without spans of tools, such as in a cassette, the recording lacks tools that no model
        # asked for. If they run, their results are compared in the next request.
        self._compares_tools = tools == "recorded" or any(
            call.start_ns for call in recording.tool_calls
        )
        self._divergences: list[Divergence] = []
        self._late: list[Divergence] = []
        self._notes: dict[str, None] = {}
        self._unguarded: dict[str, None] = {}
        self._stopped = ""
        self._gate = gate
        self._recorded_names = {
            name for call in recording.model_calls for name in tools_asked_by(call, recording)
        }
        if gate is not None:
            gate.expect_arguments(call.name for call in recording.tool_calls if call.arguments)
            gate.expect_functions(_only_functions(recording.tool_calls))
        self._results = ToolResults()
        self._flagged = self._live = 0
        self._is_forked = self._is_child = False
        self._tools_asked: set[str] = set()
        self._results_as_sent: dict[str, None] = {}

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
        """Whether a request is one to a model, or is recorded."""
        if api_of(request.method, request.url) is not None:
            return True
        with self._lock:
            return self._exchanges.has(request)

    def expects(self, request: HttpRequest) -> bool:
        """Whether an answer that was not given yet is recorded for exactly this request."""
        api = api_of(request.method, request.url)
        with self._lock:
            if api is None:
                return self._exchanges.has(request)
            return self._requests.expects(self._key_of(parsed(api, request), request))

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
            self._executed.intercepted(name, dict(arguments), match.call)
            self._results.answered(name)
            if match.divergence is not None and self._compares_tools:
                self.diverge(match.divergence)
            if match.call is not None and self._compares_tools:
                self._note_order(match.call)
            # The model calls of an agent that is used as a tool are replayed themselves.
            is_run = self.tools == "run" or (self._gate is not None and self._gate.runs(name))
            if is_run or (match.call is not None and match.call.runs_agent):
                return None
            if match.call is not None and match.call.result is None and not match.call.is_error:
                self.diverge(missing_result(name, arguments))
            if match.call is not None and match.call.result is not None:
                if match.call.own_result is None and not match.call.function:
                    self.answers_as_sent(name)
                return match.call
            text = f"oteval replay: the recording has no result of {name} with these arguments"
            return match.call or RecordedToolCall(name, dict(arguments), text, is_error=True)

    def answers_function(self, name: str) -> bool:
        """Whether the gate has taken over a function for a tool."""
        return self._gate is not None and self._gate.is_taken_over(name)

    def answers_as_sent(self, name: str) -> None:
        """Note that a function gets a result only as the agent sent it to the model."""
        if self.answers_function(name):
            self._results_as_sent[name] = None

    def _note_order(self, recorded: RecordedModelCall | RecordedToolCall | Exchange) -> None:
        """Note that a recorded event has come; it is a divergence if it should have come before."""
        divergence = self._order.arrived(recorded)
        if divergence is None:
            return
        if self._is_child and isinstance(recorded, RecordedToolCall):
            # Its parent may have had the answer that asks for it.
            self.unguarded(f"{recorded.name} ran in another process: {_NO_ORDER}")
            return
        self.diverge(divergence)

    def skip(self, request: HttpRequest) -> None:
        """Count a recorded request as made although it gets no recorded answer."""
        with self._lock:
            self._exchanges.intended(request)

    def diverge(self, divergence: Divergence) -> Divergence:
        """Note a divergence; one with the same cause is noted once.

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

    @property
    def results_hint(self) -> str:
        """Say which results may be others than the functions returned, and the remedy; or ""."""
        with self._lock:
            names = list(self._results_as_sent)
            if not names or self._gate is None:
                return ""
            lines = [self._gate.tools[name].partition(",")[0] for name in names]
            return (
                f"if the code is unchanged: the recording has the results of {', '.join(names)} "
                f"only as the model got them, not as {', '.join(dict.fromkeys(lines))} returned "
                "them; decorate the functions with @oteval.tool, and record again"
            )

    def has_asked_for(self, name: str) -> bool:
        """Whether a tool may run: an answer has asked for it, or may have elsewhere.

        Args:
            name: The tool. Of others than functions that were taken over, their order tells.
        """
        return not self.answers_function(name) or self._is_child or name in self._tools_asked

    def expects_tool(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a recorded execution would answer a call of a tool."""
        with self._lock:
            return self._tools.has(name, arguments)

    def refuse_unasked(self, name: str) -> None:
        """Stop the replay before the function of a tool runs that no answer has asked for.

        Args:
            name: The tool.

        Raises:
            ReplayUnguarded: Always.
        """
        line = self._gate.tools[name].partition(",")[0] if self._gate else name
        self._stop_for(
            f"{line} is called before a model asks for {name}, with other arguments than recorded: "
            f"let it run with --run-tool {name}"
        )

    def require_answered(self, names: Iterable[str]) -> None:
        """Stop the replay if a tool would run that an answer asks for.

        Args:
            names: The tools that the answer asks for.

        Raises:
            ReplayUnguarded: A tool is neither intercepted nor allowed to run.
        """
        if self._gate is None:
            return
        names = list(names)
        if not self._tools_asked:
            # Before the agent goes on: it may call a tool that no model has asked for yet.
            self.take_over_all()
        self._tools_asked.update(names)
        self._stop_for(self._gate.open_to(names))

    def require_no_tool_in(self, code: CodeType) -> None:
        """Stop the replay before code runs that defines a tool again.

        Args:
            code: The code of a module, or of an ``exec``.

        Raises:
            ReplayUnguarded: It defines a function of a tool that another function answers.
        """
        if self._gate is not None:
            self._stop_for(self._gate.definition_in(code))

    def _stop_for(self, problem: str) -> None:
        if problem:
            with self._lock:
                self._stopped = self._stopped or problem
                self._unguarded[problem] = None
            self.check()

    def serve_child_process(self) -> None:
        """Take over the functions of all recorded tools, in a process that the agent has started.

        The answers that ask for them may reach another process. If a tool cannot be taken over, the
        process that gets the answer is stopped.
        """
        self._is_child = True
        self.take_over_all()

    def take_over_all(self) -> None:
        """Take over the functions of all tools that the recording asks for, as far as possible."""
        if self._gate is not None:
            self._gate.open_to(self._recorded_names, is_asked=False)

    @property
    def has_tools_to_take_over(self) -> bool:
        """Whether the recording has tools without anything yet that answers them."""
        tools = self._gate.tools if self._gate is not None else {}
        return not self._tools_asked and not self._recorded_names <= tools.keys()

    def require_not_early(self, code: CodeType) -> None:
        """Stop a call of a tool that has begun before its function was taken over.

        Args:
            code: The code that is about to run.

        Raises:
            ReplayDiverged: It is that of a tool.
        """
        name = self._gate.tool_of(code) if self._gate is not None else ""
        if name:
            raise diverged(self.diverge(early_tool(name, {})))

    def may_define_tool(self, code: CodeType) -> bool:
        """Whether code may define a function of a tool that nothing answers yet.

        Args:
            code: The code of a module that is about to be imported.
        """
        tools = self._gate.tools if self._gate is not None else {}
        return has_function_of(self._recorded_names - tools.keys(), code)

    def unguarded(self, reason: str) -> None:
        """Note an action that the replay can neither answer nor stop."""
        with self._lock:
            self._unguarded[reason] = None

    def check(self) -> None:
        """Raise again why the replay has ended: it was stopped, or diverged with ``strict``.

        Raises:
            ReplayUnguarded: A tool would have run.
            ReplayDiverged: The replay has diverged, and misses are ``strict``.
        """
        if self._stopped:
            raise ReplayUnguarded(self._stopped)
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
        key = self._key_of(sent, request)
        entry = self._requests.take(key)
        if entry is not None:
            swapped = self._requests.swapped_results(entry, key, sent)
            if swapped is None:
                self._note_order(entry.call)
                return self._model_answer(entry, sent, api)
            divergence = swapped
        else:
            entry = self._requests.intended(key)
            divergence = (
                self._requests.divergence(entry, key, sent)
                if entry is not None
                else Divergence(
                    "extra_call",
                    "the agent called the model more often than the recording does "
                    f"({counted(len(self._requests), 'call')})",
                    actual=sent.messages[-1] if sent.messages else None,
                    actual_messages=sent.messages,
                )
            )
        return self._missed(
            divergence, entry, request, lambda recorded: self._model_answer(recorded, sent, api)
        )

    def _require_own_results(self, request: RecordedRequest) -> None:
        """Stop the replay when a tool's result is not from the function that was taken over.

        The tools of the next answer would run as well.
        """
        for name in self._results.given(request) if self._gate is not None else ():
            if self._gate is not None and self._gate.is_taken_over(name):
                self._stop_for(
                    f"{name} gave a result, but {self._gate.tools[name].partition(',')[0]} was not "
                    f"called: name the function that ran with --tool {name}=MODULE:FUNCTION; if it "
                    "ran in another process, run it in this one"
                )

    def _live_answer(self, request: HttpRequest) -> HttpAnswer:
        """Have a request sent for real; a model may ask for any of the tools that it offers."""
        self.require_answered(offered_tools(request.body))
        self._live += 1
        return live_answer()

    def _key_of(self, sent: RecordedRequest, request: HttpRequest) -> RequestKey:
        wire = WireRequest(request.method, request.url, request.headers, request.body)
        return self._requests.key_of(sent, wire)

    def _model_answer(
        self, entry: RecordedEntry, sent: RecordedRequest, api: ModelApi
    ) -> HttpAnswer:
        """Give the answer of a recorded call, and note the request."""
        self.require_answered(tools_asked_by(entry.call, self.recording))
        self._results.asked(entry.call)
        self._executed.requested(replace(entry.call, request=sent))
        return model_answer(entry.call, sent, api)

    def _missed(
        self,
        divergence: Divergence,
        entry: RecordedEntry | None,
        request: HttpRequest,
        answer: Callable[[RecordedEntry], HttpAnswer],
    ) -> HttpAnswer:
        """Answer a request that differs from the recorded one, as `miss` says.

        Args:
            divergence: The difference.
            entry: The recorded call that corresponds to the request, or None.
            request: The request.
            answer: Returns the answer of a recorded call.
        """
        noted = self.diverge(divergence)
        if entry is not None:
            entry.is_used = True
        if self.miss == "fork":
            self._is_forked = True
            return self._live_answer(request)
        if self.miss == "ordinal" and entry is not None:
            self._flagged += 1
            return answer(entry)
        return refusal(noted)

    def _exchange(self, request: HttpRequest) -> HttpAnswer:
        exchange = self._exchanges.take(request)
        if exchange is not None:
            self._note_order(exchange)
            return self._exchange_answer(exchange)
        intended = self._exchanges.intended(request)
        noted = self.diverge(self._exchanges.divergence(intended, request))
        if self.miss == "fork":
            self._is_forked = True
            return self._live_answer(request)
        if self.miss == "ordinal" and intended is not None:
            self._flagged += 1
            return self._exchange_answer(intended)
        return refusal(noted)

    def _exchange_answer(self, exchange: Exchange) -> HttpAnswer:
        """The answer of an exchange, which may be one with a model of an unknown API."""
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
            # Requests that only read may be left out, since their answers are often cached.
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

        They ran after the model had asked for them, and before it was given their results.
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


def _only_functions(calls: Iterable[RecordedToolCall]) -> dict[str, str]:
    """The functions of tools that the same function ran each time, by tool."""
    paths: defaultdict[str, set[str]] = defaultdict(set)
    for call in calls:
        paths[call.name].add(call.function)
    return {
        name: min(functions)
        for name, functions in paths.items()
        if len(functions) == 1 and min(functions)
    }


def _check(miss: str, tools: str, *, allow_live: bool) -> None:
    if miss not in MISSES:
        raise ConfigError(f"miss={miss!r}: choose one of {', '.join(MISSES)}")
    if tools not in get_args(Tools):
        raise ConfigError(f"tools={tools!r}: choose recorded or run")
    if miss == "fork" and not allow_live:
        raise ConfigError("miss='fork' sends requests for real: permit it with allow_live=True")
