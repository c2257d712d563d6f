"""A configured evaluator, and its score of a trajectory.

A trajectory that cannot be evaluated gets a score with the status ``not_evaluated`` (the trace
lacks data for a verdict, or the reference is missing) or ``error`` (the evaluator failed). Neither
ever has a number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ..base.jsontext import canonical
from ..model import EVERYTHING, EvaluationResult, Outline, Reference, Score, Selection, Trajectory
from .accepted import BestMatch
from .evaluator import EvaluationContext, Evaluator, NotEvaluated, refuse_empty
from .outline import Unread

__all__ = ["Scorer", "is_drawn", "version_of"]

_SPACE = float(1 << 64)
_RESULT_FIELDS = tuple(field.name for field in fields(EvaluationResult))


def is_drawn(salt: str, evaluator: str, trace_id: str, rate: float) -> bool:
    """Whether a sample contains a trace; the same arguments give the same answer.

    Args:
        salt: A text that changes the sample.
        evaluator: The evaluator's name.
        trace_id: The trace.
        rate: The share of traces to draw, 0 to 1.
    """
    if rate >= 1:
        return True
    text = f"{salt}\0{evaluator}\0{trace_id}".encode()
    drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return drawn / _SPACE < rate


def version_of(description: Mapping[str, Any]) -> str:
    """An evaluator's version: a hash of everything that its verdict depends on."""
    return hashlib.blake2b(canonical(description).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Scorer:
    """An evaluator with its name, its version and the runs that it evaluates.

    Attributes:
        name: The score's name.
        version: A hash of everything that the verdict depends on.
        evaluator: The evaluator.
        where: The trajectories that it evaluates.
        sample: The share of traces it scores.
        scope: Whether it sees the run's own messages or the whole conversation.
    """

    name: str
    version: str
    evaluator: Evaluator
    where: Selection = EVERYTHING
    sample: float = 1.0
    scope: Literal["turn", "conversation"] = "turn"

    def wants(self, trajectory: Trajectory, salt: str) -> bool:
        """Whether to score a trajectory: it is selected, and the sample contains it."""
        trace_id = trajectory.root_span.trace_id
        return self.where.matches(trajectory) and is_drawn(salt, self.name, trace_id, self.sample)

    def score(
        self, trajectory: Trajectory, reference: Reference | None, problem: str, time_ns: int
    ) -> Score:
        """The score of a trajectory, even if the evaluator fails.

        Args:
            trajectory: The trajectory.
            reference: Its reference, or None.
            problem: Why its reference is missing, or "".
            time_ns: Now.
        """
        result = self._best_match(trajectory, reference, problem, self._result)
        return self.score_of(trajectory, result, time_ns)

    def score_of(self, trajectory: Trajectory, result: EvaluationResult, time_ns: int) -> Score:
        """A result of this evaluator as the score of a trajectory."""
        root = trajectory.root_span
        return Score(
            trajectory_id=trajectory.id,
            trace_id=root.trace_id,
            span_id=root.span_id,
            rev=trajectory.rev,
            **self.shared_fields(time_ns),
            **{name: getattr(result, name) for name in _RESULT_FIELDS},
        )

    def shared_fields(self, time_ns: int) -> dict[str, Any]:
        """The fields that all scores of this evaluator share, given at a time (ns)."""
        return {
            "evaluator": self.name,
            "version": self.version,
            "sample_p": self.sample,
            "time_ns": time_ns,
        }

    def outlined_result(
        self, run: Trajectory, outline: Outline, reference: Reference | None, problem: str
    ) -> EvaluationResult | None:
        """The result of a run from its outline alone.

        Args:
            run: The run as `oteval.evaluators.outline.run_of` returns it.
            outline: Its outline.
            reference: Its reference, or None.
            problem: Why its reference is missing, or "".

        Returns:
            The result that `score` would store, or None if the run must be read.
        """

        def evaluate(context: EvaluationContext) -> EvaluationResult:
            try:
                return self.evaluator.evaluate_outline(replace(context, outline=outline))
            except NotEvaluated as reason:
                return reason.result()

        try:
            return self._best_match(run, reference, problem, evaluate)
        except (Exception, Unread):
            return None  # if the evaluator fails, the whole run reports the error

    def _best_match(
        self,
        run: Trajectory,
        reference: Reference | None,
        problem: str,
        evaluate: Callable[[EvaluationContext], EvaluationResult],
    ) -> EvaluationResult:
        """The result of a run with its reference, or with the best of several."""
        accepted = reference.alternatives if reference is not None else ()
        option = self.evaluator.reference
        if accepted and option is None:  # it compares with nothing
            accepted, reference = (), None
        if accepted and option is not None and not option.accepts_several:
            comment = f"the run has several references, and type {self.evaluator.type} takes one"
            return EvaluationResult(status="not_evaluated", comment=comment)
        try:
            references = accepted or (reference,)
            contexts = [self._context(run, candidate, problem) for candidate in references]
        except NotEvaluated as reason:
            return reason.result()
        if not accepted:
            return evaluate(contexts[0])
        best: BestMatch[EvaluationResult] = BestMatch(len(accepted))
        names = (reference.name for reference in accepted)
        for name, context in best.open(zip(names, contexts, strict=True)):
            best.add(name, evaluate(context))
        result = best.result()
        comment = result.comment or f"matches {result.metadata['reference']}"
        return replace(result, comment=comment)

    def _context(
        self, trajectory: Trajectory, reference: Reference | None, problem: str
    ) -> EvaluationContext:
        """The context of an evaluation.

        Raises:
            NotEvaluated: The reference or the messages are missing.
        """
        if problem:
            raise NotEvaluated(problem)
        own = self.scope == "turn"
        messages = tuple(trajectory.own_messages if own else trajectory.messages)
        refuse_empty(trajectory, messages, needs_messages=self.evaluator.needs_messages)
        reference_messages = list(reference.messages) if reference else None
        return EvaluationContext(
            messages,
            trajectory,
            reference_outputs=reference_messages,
            reference=reference,
            scope=self.scope,
        )

    def _result(self, context: EvaluationContext) -> EvaluationResult:
        """The result of an evaluation, even if the evaluator fails."""
        try:
            return self.evaluator.evaluate(context)
        except NotEvaluated as reason:
            return reason.result()
        except KeyboardInterrupt:
            raise
        # Also SystemExit and the like: a function that calls sys.exit() must not end the scoring.
        except BaseException as error:
            metadata = getattr(error, "metadata", None)
            return EvaluationResult(
                status="error",
                comment=f"{type(error).__name__}: {error}",
                metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
            )
