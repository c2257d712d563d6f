"""A configured evaluator, and the one score it gives a trajectory.

A trajectory that an evaluator cannot judge gets a score that says so: ``not_evaluated`` where the
trace does not hold what the verdict needs or there is no reference, ``error`` where the evaluator
failed. Neither ever has a number.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ..jsontext import canonical, dumps, restore
from ..model import Message, Reference, Score, ToolCall, Trajectory
from ..selection import EVERYTHING, Selection
from .compare import compare
from .functions import call_with
from .match import MatchEvaluator
from .messages import to_messages
from .rules import Custom, Rule
from .spec import MatchSpec

__all__ = [
    "CONTENT_GAPS",
    "FunctionJudge",
    "Judge",
    "MatchJudge",
    "NotEvaluated",
    "Result",
    "Scorer",
    "is_drawn",
    "refuse_unseen",
    "version_of",
]

# Gaps after which calls may be missing from the messages.
CONTENT_GAPS = frozenset(
    {
        "attributes_dropped",
        "content_external",
        "content_not_captured",
        "content_truncated",
        "content_unreadable",
        "redacted",
    }
)
# Of a run that has one, nothing is known: it stands for a trace that was not reconstructed.
_FAILURES = frozenset({"internal_error", "too_large"})
_SPACE = float(1 << 64)


def is_drawn(salt: str, evaluator: str, trace_id: str, rate: float) -> bool:
    """Return whether a sample of a rate draws a trace; the same question has the same answer.

    Args:
        salt: Changes what is drawn.
        evaluator: The evaluator's name.
        trace_id: The trace.
        rate: The share of traces to draw, 0 to 1.
    """
    text = f"{salt}\0{evaluator}\0{trace_id}".encode()
    drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return drawn / _SPACE < rate


def version_of(description: Mapping[str, Any]) -> str:
    """Return an evaluator's version: a hash of all that its verdict depends on."""
    return hashlib.blake2b(canonical(description).encode(), digest_size=6).hexdigest()


class NotEvaluated(Exception):
    """The trajectory cannot be judged; the message says why."""


@dataclass(frozen=True)
class Result:
    """What a judge found.

    Attributes:
        score: The number, or None where the verdict is only a label.
        passed: Whether it is a pass; None when there is no such notion.
        label: The verdict as a word.
        comment: Why.
        metadata: Figures.
    """

    score: float | None
    passed: bool | None
    label: str = ""
    comment: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Judge(Protocol):
    """What judges one trajectory.

    One that has something to say of a run without messages has `needs_messages` false.
    """

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        """Return the verdict.

        Raises:
            NotEvaluated: It cannot be judged.
            Exception: The judge failed.
        """
        ...


@dataclass(frozen=True)
class MatchJudge:
    """Judges by a match with a reference.

    Attributes:
        evaluator: The match.
        threshold: From which figure on it is a pass.
    """

    evaluator: MatchEvaluator
    threshold: float = 1.0

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        """Return the verdict of the match."""
        if reference is None:
            raise NotEvaluated("there is no reference")
        refuse_unseen(trajectory, messages)
        wanted = to_messages(list(reference.messages), "reference_outputs")
        found = self._compared(trajectory, messages, wanted, self.evaluator.spec)
        if not found.passed:
            self._refuse_unknown(trajectory, messages, wanted)
        return found

    def _compared(
        self,
        trajectory: Trajectory,
        messages: Sequence[Message],
        wanted: Sequence[Message],
        spec: MatchSpec,
    ) -> Result:
        # The tool definitions go along: they may say which tools change something.
        outputs = replace(trajectory, tail=tuple(messages), history=None, new_from=0)
        verdict = compare(outputs, wanted, spec)
        found = self.evaluator.result(verdict)
        score = float(found["score"])
        is_bool = isinstance(found["score"], bool)
        passed = verdict.passed if is_bool else score >= self.threshold
        return Result(score, passed, _word(passed), found["comment"] or "", found["metadata"])

    def _refuse_unknown(
        self, trajectory: Trajectory, messages: Sequence[Message], wanted: Sequence[Message]
    ) -> None:
        """Refuse a failure that would be a pass if arguments not captured were the right ones."""
        unseen, unsaid = _tools_without_arguments(messages), _tools_without_arguments(wanted)
        if not unseen and not unsaid:
            return
        spec = self.evaluator.spec
        overrides = {tool: _lenient(rule) for tool, rule in spec.overrides.items()}
        spec = replace(spec, args=_lenient(spec.args), overrides=overrides)
        if not self._compared(trajectory, _marked(messages), _marked(wanted), spec).passed:
            return
        lost = next((gap for gap in trajectory.gaps if gap.code in CONTENT_GAPS), None)
        why = f" ({lost.code}: {lost.detail})" if lost and unseen else ""
        where = "trace" if unseen else "reference"
        raise NotEvaluated(
            f"the arguments of {', '.join(unseen or unsaid)} are not in the {where}{why}"
        )


def refuse_unseen(trajectory: Trajectory, messages: Sequence[Message]) -> None:
    """Refuse a run whose calls may be unseen: content is missing and no tool's span shows them."""
    lost = next((gap for gap in trajectory.gaps if gap.code in CONTENT_GAPS), None)
    seen = any(call.span_id for message in messages for call in message.tool_calls)
    if lost is not None and not seen:
        raise NotEvaluated(f"{lost.code}: {lost.detail}")


def _tools_without_arguments(messages: Sequence[Message]) -> list[str]:
    calls = [call for message in messages for call in message.tool_calls]
    return list(dict.fromkeys(call.name for call in calls if call.arguments is None))


# Stands for arguments that were not captured, where these are taken to be the right ones.
_UNKNOWN: dict[str, Any] = {}


def _marked(messages: Sequence[Message]) -> list[Message]:
    def marked(call: ToolCall) -> ToolCall:
        return replace(call, arguments=_UNKNOWN) if call.arguments is None else call

    return [replace(m, tool_calls=tuple(marked(call) for call in m.tool_calls)) for m in messages]


def _lenient(rule: Rule) -> Rule:
    """Return a rule that also matches whatever was not captured."""
    return Custom(lambda out, ref: out is _UNKNOWN or ref is _UNKNOWN or rule.matches(out, ref))


def _word(passed: bool | None) -> str:
    return "" if passed is None else "pass" if passed else "fail"


@dataclass(frozen=True)
class FunctionJudge:
    """Judges by a function of the user's.

    Attributes:
        function: Called with those of ``outputs``, ``reference_outputs``, ``inputs`` and
            ``trajectory`` that it takes; returns a bool, a number, a text, or a dict with
            ``score`` and perhaps ``comment``, ``label`` and ``metadata``.
        timeout: After how many seconds to give up on it.
    """

    function: Any
    timeout: float | None = None

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        """Return what the function says."""
        asked = next((m.content for m in messages if m.role == "user"), None)
        wanted = to_messages(list(reference.messages)) if reference else None
        available = {
            "outputs": [message.as_dict() for message in messages],
            "reference_outputs": wanted and [message.as_dict() for message in wanted],
            "inputs": asked,
            "trajectory": trajectory,
        }
        return result_of(call_with(self.function, available, self.timeout))


def result_of(value: Any) -> Result:
    """Return the result that an evaluator's return value means.

    Raises:
        TypeError: It means none.
    """
    if isinstance(value, Mapping):
        if "score" not in value:
            raise TypeError(f"returned a dict without 'score': {_short(value)}")
        inner = result_of(value["score"])
        label = str(value.get("label") or inner.label)
        comment = str(value.get("comment") or "")
        metadata = restore(dumps(value.get("metadata") or {}))
        if not isinstance(metadata, dict):
            raise TypeError(f"returned metadata that is no dict: {_short(metadata)}")
        return Result(inner.score, inner.passed, label, comment, metadata)
    if isinstance(value, bool):
        return Result(float(value), value, _word(value))
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            raise TypeError(f"returned {value}, which is no score")
        return Result(float(value), None)
    if isinstance(value, str):
        return Result(None, None, value)
    raise TypeError(f"returned {_short(value)}, which is no score")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True)
class Scorer:
    """An evaluator as configured.

    Attributes:
        name: The score's name.
        version: A hash of all that the verdict depends on.
        judge: What judges.
        where: Which trajectories it looks at.
        sample: The share of traces it scores.
        scope: Whether it sees the run's own messages or the whole conversation.
    """

    name: str
    version: str
    judge: Judge
    where: Selection = EVERYTHING
    sample: float = 1.0
    scope: Literal["turn", "conversation"] = "turn"

    def wants(self, trajectory: Trajectory, salt: str) -> bool:
        """Return whether a trajectory is to be scored: it is meant, and the sample draws it."""
        trace_id = trajectory.root_span.trace_id
        return self.where.matches(trajectory) and is_drawn(salt, self.name, trace_id, self.sample)

    def score(
        self, trajectory: Trajectory, reference: Reference | None, problem: str, time_ns: int
    ) -> Score:
        """Return the score of a trajectory; whatever the judge does, there is one.

        Args:
            trajectory: The trajectory.
            reference: What it is held against, where there is something.
            problem: Why there is no reference though one was asked for, or "".
            time_ns: Now.
        """
        own = self.scope == "turn"
        messages = trajectory.own_messages if own else trajectory.messages
        root = trajectory.root_span
        blank = Score(
            *(trajectory.id, root.trace_id, root.span_id, self.name, self.version),
            status="not_evaluated",
            rev=trajectory.rev,
            sample_p=self.sample,
            time_ns=time_ns,
        )
        try:
            if problem:
                raise NotEvaluated(problem)
            failed = any(gap.code in _FAILURES for gap in trajectory.gaps)
            if not messages and (failed or getattr(self.judge, "needs_messages", True)):
                reasons = "; ".join(f"{gap.code}: {gap.detail}" for gap in trajectory.gaps[:1])
                raise NotEvaluated(reasons or "the run has no messages")
            found = self.judge.judge(trajectory, messages, reference)
        except NotEvaluated as reason:
            return replace(blank, comment=str(reason))
        except KeyboardInterrupt:
            raise
        # Also what is no Exception: a function that calls sys.exit() must not end the scoring.
        except BaseException as error:
            known = getattr(error, "metadata", None)
            return replace(
                blank,
                status="error",
                comment=f"{type(error).__name__}: {error}",
                metadata=dict(known) if isinstance(known, Mapping) else {},
            )
        return replace(
            blank,
            status="ok",
            score=found.score,
            passed=found.passed,
            label=found.label,
            comment=found.comment,
            metadata=dict(found.metadata),
        )
