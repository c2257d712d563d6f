"""The guard of a replay's tools: tools are taken over, answered or let run, or the replay stops.

A replay stops in three cases: before it returns an answer that requests a tool that would act;
before the function of a tool runs although no answer has requested the tool; and when a result
shows that something else ran a tool.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from types import CodeType

from ..base.errors import ReplayUnguarded
from ..model import RecordedRequest, RecordedToolCall, Recording
from ..record import has_function_of
from .recorded_tools import ToolResults, tools_asked_by
from .tool_gate import ToolGate

__all__ = ["ToolGuard"]


class ToolGuard:
    """Guards the tools of a replay, in all of its threads.

    Args:
        recording: The recording.
        gate: Decides whether the tools that an answer requests can run; None if they run elsewhere.
    """

    def __init__(self, recording: Recording, gate: ToolGate | None) -> None:
        self._lock = threading.RLock()
        self._gate = gate
        self._recorded_names = {
            name for call in recording.model_calls for name in tools_asked_by(call, recording)
        }
        if gate is not None:
            gate.expect_arguments(call.name for call in recording.tool_calls if call.arguments)
            gate.expect_functions(_only_functions(recording.tool_calls))
        self._results = ToolResults()
        self._tools_asked: set[str] = set()
        self._results_as_sent: dict[str, None] = {}
        self._stopped = ""
        self._unguarded: dict[str, None] = {}
        self._is_child = False

    def check(self) -> None:
        """Raise again why the replay was stopped.

        Raises:
            ReplayUnguarded: A tool would have run.
        """
        if self._stopped:
            raise ReplayUnguarded(self._stopped)

    def answers_function(self, name: str) -> bool:
        """Whether the gate has taken over a function for a tool."""
        return self._gate is not None and self._gate.is_taken_over(name)

    def answers_as_sent(self, name: str) -> None:
        """Note that a function's result is known only as the agent sent it to the model."""
        if self.answers_function(name):
            self._results_as_sent[name] = None

    @property
    def results_hint(self) -> str:
        """Name the results that may differ from the functions' results, and the remedy; or ""."""
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
        """Whether a tool may run: an answer has requested it, maybe in another process.

        Args:
            name: The tool. If no function was taken over for it, only its order is checked.
        """
        return not self.answers_function(name) or self._is_child or name in self._tools_asked

    def refuse_unasked(self, name: str) -> None:
        """Stop the replay before a tool's function runs although no answer has requested the tool.

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
        """Stop the replay if a tool that an answer requests would run.

        Args:
            names: The tools that the answer requests.

        Raises:
            ReplayUnguarded: A tool is not intercepted, and is not allowed to run.
        """
        if self._gate is None:
            return
        names = list(names)
        if not self._tools_asked:
            # Before the agent continues: it may call a tool that no model has requested yet.
            self.take_over_all()
        self._tools_asked.update(names)
        self._stop_for(self._gate.open_to(names))

    def require_unambiguous(self) -> None:
        """Stop the replay if several functions may run a recorded tool that a request hides.

        A model may ask for a tool that its request does not offer, such as in plain text.

        Raises:
            ReplayUnguarded: Several functions of the agent may belong to a recorded tool.
        """
        if self._gate is not None:
            self._stop_for(self._gate.ambiguity_of(self._recorded_names))

    def require_no_tool_in(self, code: CodeType) -> None:
        """Stop the replay before code defines a tool again.

        Args:
            code: The code of a module, or of an ``exec``.

        Raises:
            ReplayUnguarded: It defines a function of a tool that another function answers.
        """
        if self._gate is not None:
            self._stop_for(self._gate.definition_in(code))

    def _require_own_results(self, request: RecordedRequest) -> None:
        """Stop the replay when a tool's result is not from the function that was taken over.

        Otherwise, the tools of the next answer would run as well.
        """
        for name in self._results.given(request) if self._gate is not None else ():
            if self._gate is not None and self._gate.is_taken_over(name):
                self._stop_for(
                    f"{name} gave a result, but {self._gate.tools[name].partition(',')[0]} was not "
                    f"called: name the function that ran with --tool {name}=MODULE:FUNCTION; if it "
                    "ran in another process, run it in this one"
                )

    def serve_child_process(self) -> None:
        """Take over the functions of all recorded tools, in a process that the agent has started.

        The answers that request them may reach another process. If a tool cannot be taken over, the
        process that receives the answer is stopped.
        """
        self._is_child = True
        self.take_over_all()

    def take_over_all(self) -> None:
        """Take over the functions of all tools that the recording requests, as far as possible."""
        if self._gate is not None:
            self._gate.open_to(self._recorded_names, is_asked=False)

    @property
    def has_tools_to_take_over(self) -> bool:
        """Whether the recording has tools that nothing answers yet."""
        tools = self._gate.tools if self._gate is not None else {}
        return not self._tools_asked and not self._recorded_names <= tools.keys()

    def may_define_tool(self, code: CodeType) -> bool:
        """Whether code may define a function of a tool that nothing answers yet.

        Args:
            code: The code of a module that is about to be imported.
        """
        tools = self._gate.tools if self._gate is not None else {}
        return has_function_of(self._recorded_names - tools.keys(), code)

    def _stop_for(self, problem: str) -> None:
        if problem:
            with self._lock:
                self._stopped = self._stopped or problem
                self._unguarded[problem] = None
            self.check()

    def unguarded(self, reason: str) -> None:
        """Note an action that the replay cannot answer or stop."""
        with self._lock:
            self._unguarded[reason] = None


def _only_functions(calls: Iterable[RecordedToolCall]) -> dict[str, str]:
    """The functions of tools, by tool, for tools that the same function ran each time."""
    by_tool: defaultdict[str, set[str]] = defaultdict(set)
    for call in calls:
        by_tool[call.name].add(call.function)
    return {name: min(paths) for name, paths in by_tool.items() if len(paths) == 1 and min(paths)}
