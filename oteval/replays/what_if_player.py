"""The player of ``oteval whatif``: a live model, and the recorded results of tools.

The first model calls may be **kept**: they are answered from the recording as by ``oteval replay
verify``, and a difference is a divergence that ends the repetition. All later requests to models
are edited and sent for real, or answered by another recording. `ToolLadder` answers tools, and
`ToolChanges` changes their answers. Other HTTP requests are answered from the recording, or
refused. A difference after the kept calls is not a divergence: `WhatIfPlayer.coverage` counts how
far the recording has answered the agent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import InputError
from ..base.jsontext import canonical
from ..base.patterns import Pattern
from ..base.redaction.secrets import SecretRedactor
from ..model import Exchange, RecordedToolCall, Recording, ToolCall
from ..reconstruct import ModelApi, api_of, offered_tools
from ..record import ExchangeRecorder
from .agent_threads import LEAD, AgentThreads
from .divergence import Divergence
from .http_answers import HttpAnswer, HttpRequest, parsed, refusal
from .model_calls import wire_call
from .player import Player
from .recorded_tools import without_result
from .replay_result import ReplayResult
from .request_edits import RequestEdits
from .text_comparison import compiled, is_same_text
from .tool_changes import ToolChange, ToolChanges, changed_answer, changed_call
from .tool_gate import ToolGate
from .tool_ladder import Coverage, ToolLadder, ToolPolicy

__all__ = ["WhatIfPlayer"]


class WhatIfPlayer(Player):
    """Sends edited model requests, and answers tools from a recording.

    Args:
        recording: The recording.
        edits: The edits of model requests.
        tool_policy: The answer to a tool call that the recording does not have.
        normalize: Patterns of text that is ignored in arguments and requests.
        answers: The recording that answers model requests; None to send them for real.
        gate: Decides whether the tools that a request offers can run; None if they run elsewhere.
        from_call: The number of the first model call that is live, from 1.
        changes: The changes of the answers of tools.

    Raises:
        ConfigError: An argument is invalid.
    """

    def __init__(
        self,
        recording: Recording,
        edits: RequestEdits,
        *,
        tool_policy: ToolPolicy = "error",
        normalize: Sequence[str | Pattern] = (),
        answers: Recording | None = None,
        gate: ToolGate | None = None,
        from_call: int = 1,
        changes: ToolChanges | None = None,
    ) -> None:
        super().__init__(recording, miss="error", normalize=normalize, gate=gate)
        recording = self.recording
        patterns = compiled(normalize)
        self._edits = edits
        self._kept_calls = from_call - 1
        self._changes = changes or ToolChanges(())
        self._replaced = 0
        self._ladder = ToolLadder(recording.tool_calls, policy=tool_policy, normalize=patterns)
        self._answers = (
            None if answers is None else Player(answers, miss="ordinal", normalize=patterns)
        )
        self._agent_tools = {call.name for call in recording.tool_calls if call.runs_agent}
        self._threads = AgentThreads(recording)
        self._redactor = SecretRedactor()
        self._made: list[Exchange] = []
        self._answered_tools: list[RecordedToolCall] = []
        # Tool calls that the model requested and that no intercepted tool has received.
        self._asked: list[ToolCall] = []
        self._returned: set[str] = set()
        self._blocked: dict[str, None] = {}

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request, or edit it to be sent for real."""
        api = api_of(request.method, request.url)
        with self._lock:
            self.check()
            if api is None:
                return self._other_request(request)
            # The model may request any of them.
            offered = offered_tools(request.body)
            self.require_answered(offered)
            if not offered:
                self.require_unambiguous()
            sent = parsed(api, request)
            agent = self._threads.agent_of(sent)
            self._returned |= {m.tool_call_id for m in sent.messages if m.tool_call_id}
            if self._is_kept:
                return self._kept_answer(api, agent, request)
            try:
                body = self._edits.apply(api.name, request.body, is_lead=agent == LEAD)
            except InputError as error:
                return refusal(self.diverge(Divergence("extra_call", str(error))))
            edited = replace(request, url=self._edits.url(request.url), body=body)
            if self._answers is None:
                recorder = _CallRecorder(self, agent, self._redactor)
                return HttpAnswer(is_live=True, request=edited, recorder=recorder)
            answer = self._answers.answer(edited)
            self.made(agent, _exchange(edited, answer))
            return answer

    @property
    def _is_kept(self) -> bool:
        """Whether the recording answers the next model call."""
        return self._requests.used < self._kept_calls or bool(self._divergences)

    def _kept_answer(self, api: ModelApi, agent: int, request: HttpRequest) -> HttpAnswer:
        """Answer a model request from the recording; a different one ends the repetition."""
        if self._divergences:
            return refusal(self._divergences[0])
        answer = self._model_call(api, request)
        if not self._divergences:
            self.made(agent, _exchange(request, answer))
        return answer

    def _other_request(self, request: HttpRequest) -> HttpAnswer:
        change = self._changes.take(request.url, is_kept=self._is_kept, is_request=True)
        recorded = self._exchanges.peek(request) if change is not None else None
        if change is not None and recorded is not None:
            answer = changed_answer(self._exchange_answer(recorded), change, request.limit)
            if answer is None:
                summary = f"{change.text}: the client's time limit of {request.url} is not known"
                return refusal(super().diverge(Divergence("unsupported_client", summary)))
            if change.kind != "slow" or answer.error:
                return answer
        exchange = self._exchanges.take(request)
        if exchange is not None:
            return self._exchange_answer(exchange)
        return refusal(self.diverge(self._exchanges.divergence(None, request)))

    def made(self, agent: int, exchange: Exchange) -> None:
        """Keep the exchange of a model request.

        Args:
            agent: The number of the agent that sent it.
            exchange: The edited request and its response.
        """
        call = wire_call(exchange)
        with self._lock:
            self._made.append(exchange)
            if call is not None and call.call.answer is not None:
                self._threads.answered(agent, call.call.answer, call.call.response_id)
                self._asked += call.call.answer.client_calls

    def answer_tool(self, name: str, arguments: Mapping[str, Any]) -> RecordedToolCall | None:
        """Answer a call of a tool by its recorded execution; None runs the tool.

        An agent that is used as a tool runs: its model is live as well.
        """
        with self._lock:
            is_kept = self._is_kept
            tool_call = self._take_asked(name, arguments)
            change = self._changes.take(name, is_kept=is_kept)
            runs = name in self._agent_tools or (self._gate is not None and self._gate.runs(name))
            if runs and (change is None or change.kind == "slow"):
                return super().answer_tool(name, arguments) if is_kept else None
            # The recorded arguments are the model's, without defaults.
            looked_up = tool_call.arguments if tool_call is not None else dict(arguments)
            answer = self._tool_answer(name, looked_up, change)
            if is_kept:
                answer = super().answer_tool(name, arguments) or answer
            self._answered_tools.append(
                RecordedToolCall(
                    name=name,
                    arguments=looked_up,
                    result=answer.result,
                    is_error=answer.is_error or (change is not None and change.is_failure),
                    call_id=tool_call.id if tool_call is not None else "",
                )
            )
            return answer

    def _tool_answer(
        self, name: str, arguments: Any, change: ToolChange | None
    ) -> RecordedToolCall:
        """The answer of a call: recorded, changed, or that it has no recorded result."""
        if change is None or change.kind == "slow":
            recorded = self._ladder.take(name, arguments).call or without_result(name, arguments)
        else:
            # The tool did not run, so that a retry gets its recorded result.
            self._replaced += 1
            recorded = self._ladder.peek(name, arguments) or RecordedToolCall(name, arguments)
        return recorded if change is None else changed_call(recorded, change)

    def expects_tool(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the model has requested a call of a tool."""
        with self._lock:
            same_name = (call for call in self._asked if call.name == name)
            return any(_is_part(call.arguments, arguments) for call in same_name)

    def _take_asked(self, name: str, arguments: Mapping[str, Any]) -> ToolCall | None:
        """Take the model's request for a call of a tool, if it is known."""
        same_name = [call for call in self._asked if call.name == name]
        tool_call = next((e for e in same_name if _is_part(e.arguments, arguments)), None)
        if tool_call is not None:
            self._asked.remove(tool_call)
        return tool_call

    def diverge(self, divergence: Divergence) -> Divergence:
        """Note a request or connection that was refused; nothing is raised.

        While model calls are kept, it is a divergence.
        """
        with self._lock:
            if self._is_kept:
                return super().diverge(divergence)
            self._blocked[divergence.summary] = None
        return divergence

    @property
    def coverage(self) -> Coverage:
        """How far the recording has answered the agent."""
        with self._lock:
            counts = self._ladder.counts
            ran = sum(bool(call.id) and call.id in self._returned for call in self._asked)
            return Coverage(
                exact=counts["exact"],
                normalized=counts["normalized"],
                policy=counts["policy"],
                missing=counts["missing"],
                ran=ran,
                served=self._exchanges.used,
                blocked=tuple(self._blocked),
                approximate=self._answers.finish().flagged if self._answers else 0,
                replaced=self._replaced,
                changed=tuple(self._changes.applied),
            )

    @property
    def new_recording(self) -> Recording:
        """The recording of the new run, with all model calls that have ended."""
        with self._lock:
            model_calls = [wire_call(exchange) for exchange in self._made]
            calls = sorted((m.call for m in model_calls if m), key=lambda call: call.start_ns)
            return Recording(
                self.recording.session,
                "wire",
                inputs=self.recording.inputs,
                model_calls=tuple(calls),
                tool_calls=tuple(self._answered_tools),
            )

    def finish(self, *, is_complete: bool = True) -> ReplayResult:
        """Conclude the replay; only differences from the kept model calls are divergences."""
        del is_complete
        coverage = self.coverage
        with self._lock:
            return ReplayResult(
                session=self.recording.session,
                fidelity=self.recording.fidelity,
                reasons=(*self.recording.reasons, *self._notes),
                divergences=tuple(self._divergences),
                model_calls=len(self.recording.model_calls),
                tool_calls=len(self.recording.tool_calls),
                served_tools=coverage.exact + coverage.normalized + coverage.policy,
                exchanges=len(self._exchanges),
                served_exchanges=self._exchanges.used,
                live=len(self._made),
                unguarded=tuple(self._unguarded),
                tools=dict(self._gate.tools) if self._gate else {},
            )


class _CallRecorder(ExchangeRecorder):
    """Gives the exchange of one live model call to its player."""

    def __init__(self, player: WhatIfPlayer, agent: int, redactor: SecretRedactor) -> None:
        super().__init__(redactor)
        self._player = player
        self._agent = agent

    def emit(self, exchange: Exchange, omitted: str, context: Any) -> None:
        del context
        if omitted:
            self._player.note(omitted)
        self._player.made(self._agent, exchange)


def _exchange(request: HttpRequest, answer: HttpAnswer) -> Exchange:
    """A request and the answer of another recording as an exchange."""
    now = time.time_ns()
    return Exchange(
        method=request.method,
        url=request.url,
        request_body=request.body,
        status=answer.status,
        response_headers=answer.headers,
        chunks=answer.chunks,
        error=answer.error,
        start_ns=now,
        end_ns=now,
    )


def _is_part(asked_arguments: Any, actual: Mapping[str, Any]) -> bool:
    """Whether a call has all arguments of the model's request; it may have more."""
    expected = {} if asked_arguments is None else asked_arguments
    if not isinstance(expected, Mapping) or not expected.keys() <= actual.keys():
        return False
    return is_same_text(canonical(expected), canonical({key: actual[key] for key in expected}))
