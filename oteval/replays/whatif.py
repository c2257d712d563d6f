"""Repeat sessions with another model or prompt, and compare the new with the recorded runs.

Each session is an example of two experiments: ``NAME-recorded`` has the recorded runs, ``NAME`` the
new runs. Both are evaluated by the same evaluators and compared. With several samples of a session
and a change, ``NAME-unchanged`` has as many samples without the change. If the agent of a session
fails, or its model does not answer, the session is a failed run and has no score. As with other
experiments, finished runs are kept, and a resumed experiment repeats only failed and missing runs.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, InputError, NothingEvaluated, OtevalError
from ..base.text import counted
from ..evaluators import call_changes, first_difference, to_messages
from ..model import NOT_RUN, Dataset, Example, RecordedModelCall, Recording, Trajectory
from ..scoring import (
    Comparison,
    ExperimentResults,
    OnProgress,
    compare as compare_experiments,
    evaluate,
)
from ..store import Store
from .agent_threads import LEAD, AgentThreads, rerun_trajectory, threads_of
from .recording_files import load, save
from .samples import SampledOutcome, sampled_outcomes
from .target import InputForm, unreplayable
from .tool_ladder import Coverage
from .verification import ReplayJob, SessionRunner, SessionRunners
from .verified import VerifiedSession
from .what_if_session import ANSWERS_FILE, NewRun, WhatIfOptions, new_run

__all__ = ["AFTER_FAULT", "SessionFailed", "WhatIf", "WhatIfResults", "WhatIfRow"]

_KEY = "what_if"
AFTER_FAULT = "after the fault "
"""The beginning of the reason why an agent failed that got a fault before."""
_MOST_CHANGES = 2
_OWN_FAILURES = ("error", "crashed")  # the statuses of an agent that raised, or whose process died


class SessionFailed(OtevalError):
    """A session has no new run that could be compared with the recorded one."""


@dataclass(frozen=True)
class WhatIfRow:
    """A session with its recorded and its new run.

    Attributes:
        session: The id of the session.
        error: Why the new run failed, or "".
        coverage: How far the recording has answered the agent; None without a new run.
        recorded: The outputs of the recorded run.
        new: The outputs of the new run; empty without one.
    """

    session: str
    error: str
    coverage: Coverage | None
    recorded: Mapping[str, Any]
    new: Mapping[str, Any]

    @property
    def status(self) -> str:
        """``ran`` or ``failed``."""
        return "failed" if self.error else "ran"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "session": self.session,
            "status": self.status,
            "error": self.error or None,
            "coverage": self.coverage.as_dict() if self.coverage else None,
            "recorded": dict(self.recorded),
            "new": dict(self.new) or None,
        }


@dataclass(frozen=True)
class WhatIfResults:
    """The recorded and the new runs of sessions.

    Attributes:
        recorded: The experiment with the recorded runs.
        new: The experiment with the new runs.
        comparison: Their comparison; None if only runs with faults have scores.
        skipped: Why sessions were left out, by their id.
        answered: The sessions in which the model answered; none if it cannot be reached.
        unedited: The experiment with the samples without the change; None if there are none.
        samples: The outcomes of each session's samples; none for a single sample.
    """

    recorded: ExperimentResults
    new: ExperimentResults
    comparison: Comparison | None
    skipped: Mapping[str, str]
    answered: Collection[str]
    unedited: ExperimentResults | None = None
    samples: tuple[SampledOutcome, ...] = ()

    @property
    def rows(self) -> list[WhatIfRow]:
        """The sessions; a session with several new runs has several rows."""
        before = {row.example.id: row.run.outputs or {} for row in self.recorded}
        rows = []
        for row in self.new:
            outputs = row.run.outputs or {}
            coverage = Coverage.from_dict(outputs["coverage"]) if outputs else None
            rows.append(
                WhatIfRow(
                    row.example.id,
                    row.run.error,
                    coverage,
                    before.get(row.example.id, {}),
                    outputs,
                )
            )
        return rows


@dataclass(frozen=True)
class WhatIf:
    """A repetition of sessions with edited model requests.

    Attributes:
        options: The options of the replays.
        new_runner: Makes the runner of a worker, from options.
        store: The store that keeps the experiments.
        name: The name of the experiment.
        evaluators: The evaluators of both experiments.
        answers: Recordings that answer model requests, in place of a live model.
        input_form: How the user's messages are passed.
        workers: The number of sessions at a time.
        samples: How often each session is repeated.
        resume: Whether to resume the experiment of that name.
        on_progress: Called after each session.
    """

    options: WhatIfOptions
    new_runner: Callable[[WhatIfOptions], SessionRunner]
    store: Store
    name: str
    evaluators: Sequence[Any]
    answers: Sequence[Recording] = ()
    input_form: InputForm = "text"
    workers: int = 1
    samples: int = 1
    resume: bool = False
    on_progress: OnProgress | None = None

    def run(self, recordings: Iterable[Recording]) -> WhatIfResults:
        """Repeat sessions, evaluate the recorded and the new runs, and compare them.

        Args:
            recordings: The recordings of the sessions.

        Raises:
            ConfigError: The agent cannot be started, or the experiment exists or had other edits.
            NothingEvaluated: No session can be repeated.
        """
        self._check_experiment()
        with tempfile.TemporaryDirectory(prefix="oteval-whatif-") as folder:
            sessions = _Sessions(Path(folder), self.answers, self._agents(), self.options)
            for recording in recordings:
                sessions.add(recording, self.input_form)
            if not sessions.examples:
                reason = next(
                    iter(sessions.skipped.values()),
                    "none was selected; oteval run records sessions",
                )
                raise NothingEvaluated(f"no session can be repeated: {reason}")
            dataset = Dataset("sessions", tuple(sessions.examples), "sessions")
            recorded = self._evaluate(f"{self.name}-recorded", sessions.recorded_outputs, dataset)
            new = self._new_runs(sessions, dataset, self.options, self.name)
            unedited = None
            if self.samples > 1 and self.options.has_edits:
                options, name = self.options.unedited, f"{self.name}-unchanged"
                unedited = self._new_runs(sessions, dataset, options, name)
        comparison = self._compared(recorded, new)
        samples = sampled_outcomes(recorded, new, unedited) if self.samples > 1 else ()
        return WhatIfResults(
            recorded,
            new,
            comparison,
            sessions.skipped,
            sessions.answered,
            unedited=unedited,
            samples=tuple(samples),
        )

    def _compared(self, recorded: ExperimentResults, new: ExperimentResults) -> Comparison | None:
        """The comparison; None if only runs with faults have scores."""
        try:
            return compare_experiments(recorded, new)
        except NothingEvaluated:
            if self.options.faults:
                return None
            errors = [row.run.error for row in new if row.run.error]
            if len(errors) < len(new):
                raise
            reason = errors[0].removeprefix(NOT_RUN)
            raise NothingEvaluated(f"no session could be repeated: {reason}") from None

    def _new_runs(
        self, sessions: _Sessions, dataset: Dataset, options: WhatIfOptions, name: str
    ) -> ExperimentResults:
        with SessionRunners(partial(self.new_runner, options), self.workers) as runners:
            target = _Target(sessions, runners, options)
            try:
                results = self._evaluate(
                    name, target, dataset, repetitions=self.samples, options=options
                )
            finally:
                runners.stop()
        if target.problem is not None:
            raise target.problem
        return results

    def _evaluate(
        self,
        name: str,
        target: Callable[[Any], Any],
        dataset: Dataset,
        *,
        repetitions: int = 1,
        options: WhatIfOptions | None = None,
    ) -> ExperimentResults:
        results: ExperimentResults = evaluate(
            target,
            data=dataset,
            evaluators=self.evaluators,
            experiment_prefix=self.name,
            name=name,
            resume=self.resume,
            max_concurrency=self.workers,
            num_repetitions=repetitions,
            metadata={_KEY: self._edits()},
            description=self._description(options) if options else "recorded runs",
            store=self.store,
            on_progress=self.on_progress if options else None,
        )
        return results

    def _edits(self) -> dict[str, Any]:
        """The part of the options that the new runs depend on."""
        answers = [recording.session for recording in self.answers]
        edits = {**asdict(self.options), "answers": answers}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in edits.items()}

    def _description(self, options: WhatIfOptions) -> str:
        parts = [
            f"model {options.model}" if options.model else "",
            "another prompt" if options.prompt is not None else "",
            *(f"{key}={value}" for key, value in options.settings.items()),
            f"from model call {options.from_call}" if options.from_call > 1 else "",
            *(f"fault {fault}" for fault in options.faults),
            *(f"another result of {tool}" for tool in options.tool_results),
            f"answers of {counted(len(self.answers), 'recording')}" if self.answers else "",
        ]
        return ", ".join(filter(None, parts)) or "no edits"

    def _check_experiment(self) -> None:
        """Check that the experiment is new, or is resumed with the same edits.

        Raises:
            ConfigError: It exists and is not to be resumed, or had other edits.
        """
        stored = self.store.experiments.find(self.name)
        if stored is None:
            return
        if not self.resume:
            raise ConfigError(
                f"experiment {self.name!r} exists already; resume it, or choose another name"
            )
        before, now = stored.metadata.get(_KEY), self._edits()
        if not isinstance(before, Mapping):
            raise ConfigError(f"experiment {self.name!r} is not one of whatif")
        changed = [key for key in now if before.get(key) != now[key]]
        if changed:
            raise ConfigError(
                f"experiment {self.name!r} had another {' and '.join(changed)}: choose another "
                "name, or give the same to resume it"
            )

    def _agents(self) -> Callable[[Recording], tuple[str, str]]:
        """The function that finds the names of a session's agent and service."""

        def names(recording: Recording) -> tuple[str, str]:
            stored = self.store.trajectories.of(recording.trajectory_ids[:1])
            trajectory: Trajectory | None = next(iter(stored.values()), None)
            return (trajectory.agent, trajectory.service) if trajectory is not None else ("", "")

        return names


class _Sessions:
    """The sessions to repeat: their examples, recorded runs, and files for worker processes.

    Args:
        folder: The folder for files.
        answers: Recordings that answer model requests.
        names_of: Returns the names of a session's agent and service.
        options: The options of the replays.

    Attributes:
        examples: The examples.
        recorded: The outputs of the recorded runs, by session.
        skipped: Why sessions cannot be repeated.
        answered: The sessions in which the model answered the new run.
    """

    def __init__(
        self,
        folder: Path,
        answers: Sequence[Recording],
        names_of: Callable[[Recording], tuple[str, str]],
        options: WhatIfOptions,
    ) -> None:
        self._folder, self._answers, self._names_of = folder, answers, names_of
        self._options = options
        self._numbers = itertools.count(1)
        self._files: dict[str, tuple[Path, tuple[str, ...]]] = {}
        self._names: dict[str, tuple[str, str]] = {}
        self.examples: list[Example] = []
        self.recorded: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.answered: set[str] = set()

    def add(self, recording: Recording, form: InputForm) -> None:
        """Add a session, or the reason why it cannot be repeated."""
        name = recording.session
        if name in self.recorded:
            return
        problem = (
            unreplayable(recording)
            or _without_input(recording, form)
            or self._options.unsuitable(recording)
        )
        answers = self._answers_of(recording) if not problem else None
        if not problem and self._answers and answers is None:
            problem = "none of the answering recordings has the same messages of the user"
        if problem:
            self.skipped[name] = problem
            return
        session_folder = self._folder / f"recording-{len(self.examples)}"
        session_folder.mkdir()
        save(recording, session_folder / "recording.jsonl")
        if answers is not None:
            save(answers, session_folder / ANSWERS_FILE)
        self._files[name] = session_folder / "recording.jsonl", recording.inputs
        self._names[name] = self._names_of(recording)
        executed = [call for call in recording.tool_calls if not call.runs_agent]
        run = NewRun(recording.model_calls, recording.tool_calls, Coverage(exact=len(executed)))
        outputs = self.outputs(name, run, threads_of(recording))
        self.recorded[name] = outputs
        inputs = [{"role": "user", "content": text} for text in recording.inputs]
        self.examples.append(
            Example(
                id=name,
                inputs={"messages": inputs, "session": name},
                reference_outputs={"messages": outputs["messages"]},
            )
        )

    def recorded_outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the recorded run of an example."""
        return self.recorded[inputs["session"]]

    def outputs(
        self, name: str, run: NewRun, threads: Sequence[Sequence[RecordedModelCall]]
    ) -> dict[str, Any]:
        """The outputs of a run.

        Args:
            name: The session.
            run: The run.
            threads: Its model calls by agent.
        """
        agent, service = self._names[name]
        trajectory = rerun_trajectory(name, threads, run.tool_calls, agent=agent, service=service)
        return {
            "messages": [message.as_dict() for message in trajectory.messages],
            "session": name,
            "agent": agent,
            "service": service,
            "models": list(trajectory.models),
            "tools": list(trajectory.tools),
            "finish_reasons": list(trajectory.finish_reasons),
            "usage": trajectory.usage.as_dict(),
            "gaps": [gap.as_dict() for gap in trajectory.gaps],
            "tool_calls": run.coverage.tool_calls,
            "model_seconds": sum(map(_seconds, run.model_calls)),
            "coverage": run.coverage.as_dict(),
        }

    @contextmanager
    def job(self, name: str) -> Iterator[ReplayJob]:
        """Yield a session's job, with a folder for its output."""
        recording, inputs = self._files[name]
        run_folder = self._folder / f"run-{next(self._numbers)}"
        run_folder.mkdir()
        yield ReplayJob(name, recording, run_folder / "output.txt", inputs)

    def _answers_of(self, recording: Recording) -> Recording | None:
        """The recording that answers the model requests of a session."""
        if len(self._answers) == 1:
            return self._answers[0]
        return next((r for r in self._answers if r.inputs == recording.inputs), None)


class _Target:
    """Runs the agent on a session, as the target of an experiment.

    Attributes:
        problem: Why the agent cannot be started at all, or None.
    """

    def __init__(
        self, sessions: _Sessions, runners: SessionRunners, options: WhatIfOptions
    ) -> None:
        self._sessions, self._runners, self._options = sessions, runners, options
        self.problem: ConfigError | None = None

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.problem is not None:
            raise self.problem
        name = inputs["session"]
        with self._sessions.job(name) as job:
            try:
                ended = self._runners.run(job)
            except ConfigError as error:
                self.problem = error
                raise
            try:
                run = new_run(job.output.parent)
            except InputError as error:
                raise SessionFailed(str(error)) from error
            recording = load(job.recording)
        threads = AgentThreads(recording, self._options.prompt).divide(run.model_calls)
        problem = _problem(ended, run, threads)
        # Such a run says nothing about the change.
        unfit = "" if problem else self._options.not_applied(run.coverage.changed)
        is_repeated = not unfit and not ended.divergences
        if is_repeated and any(call.answer is not None for call in run.model_calls):
            self._sessions.answered.add(name)
        if problem or unfit:
            fault = self._fault_before(ended, run)
            reason = f"{fault}{problem or unfit}"
            if not fault and (not is_repeated or _is_unanswered(threads)):
                raise SessionFailed(f"{NOT_RUN}{reason}")
            changes = self._changes(name, run, threads)
            if ended.status == "unverified" and not fault and not changes:
                raise SessionFailed(f"{NOT_RUN}{reason}")
            if not fault and ended.status in _OWN_FAILURES:
                reason += _recorded_failure(recording)
            raise SessionFailed(f"{changes}; {reason}" if changes else reason)
        return {**self._sessions.outputs(name, run, threads), "ended": ended.detail}

    def _fault_before(self, ended: VerifiedSession, run: NewRun) -> str:
        """The beginning of the reason if the agent itself ended badly after a fault, or ""."""
        is_own_end = ended.status in (*_OWN_FAILURES, "timeout")
        texts = {change.text for change in self._options.changes if change.is_fault}
        fault = next((text for text in run.coverage.changed if text in texts), "")
        return f"{AFTER_FAULT}{fault}: " if fault and is_own_end else ""

    def _changes(
        self, name: str, run: NewRun, threads: Sequence[Sequence[RecordedModelCall]]
    ) -> str:
        """The changes before a session failed, which may be the cause; or ""."""
        if not threads or not threads[LEAD]:
            return ""
        sides = self._sessions.recorded[name], self._sessions.outputs(name, run, threads)
        recorded, new = (to_messages(side["messages"]) for side in sides)
        changes = call_changes(new, recorded, is_partial=True).changes
        pair = first_difference(recorded, new)
        if not changes or pair is None:
            return ""
        at = pair.left_at if pair.right_at is None else pair.right_at
        return f"message {at}: {'; '.join(changes[:_MOST_CHANGES])}"


def _without_input(recording: Recording, form: InputForm) -> str:
    if recording.inputs or form == "none":
        return ""
    return "the recording has no message of a user"


def _problem(
    ended: VerifiedSession, run: NewRun, threads: Sequence[Sequence[RecordedModelCall]]
) -> str:
    """Why a new run cannot be compared with the recorded one, or ""."""
    blocked = f"; blocked: {run.coverage.blocked[0]}" if run.coverage.blocked else ""
    last = threads[LEAD][-1] if threads and threads[LEAD] else None
    unanswered = _unanswered(last) if last is not None else ""
    if ended.divergences:
        return f"it differs before the first live model call: {ended.divergences[0].summary}"
    if ended.status != "passed":
        what = f"{ended.status}: " if ended.status not in ("error", "not_replayed") else ""
        return f"{what}{unanswered}{'; ' if unanswered else ''}{ended.detail}{blocked}"
    if last is None:
        whose = "of the lead agent" if run.model_calls else "that a replay sees"
        return f"the agent sent no model request {whose}{blocked}"
    return unanswered


def _recorded_failure(recording: Recording) -> str:
    """The recorded run's own failure, to append to a reason; "" if it did not fail."""
    if not recording.answers:
        return "; the recording does not show whether the recorded run failed as well"
    error = next((answer.error for answer in recording.answers if answer.error), "")
    return f"; recorded: {error}" if error else ""


def _is_unanswered(threads: Sequence[Sequence[RecordedModelCall]]) -> bool:
    """Whether the last request of the lead agent has no answer."""
    return bool(threads and threads[LEAD]) and threads[LEAD][-1].answer is None


def _unanswered(call: RecordedModelCall) -> str:
    if call.answer is not None:
        return ""
    return f"the model did not answer: {call.error or 'its response cannot be read'}"


def _seconds(call: RecordedModelCall) -> float:
    return max(call.end_ns - call.start_ns, 0) / 1e9
