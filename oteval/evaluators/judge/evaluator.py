"""The evaluator that asks judges and turns their answers into one result.

A result has exactly ``key``, ``score``, ``comment`` (the judge's reasoning) and ``metadata``. If a
judge cannot be reached, refuses or gives no verdict, the score is None, ``metadata["error"]``
explains why, and ``metadata["status"]`` is ``error``, or ``not_evaluated`` if the budget is spent.

Several answers, from repeated questions or a jury, are votes. A bool needs more than half of the
votes to be true, so a tie fails. Of `choices` the most frequent score wins, and the middle one of
all votes if several are equally frequent. Continuous scores are averaged. A verdict needs more than
half of all votes; failed votes are left out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ...base.errors import BudgetSpent, InputError, JudgeError
from ...base.sync import drive, drive_async, gather
from ...model import CONTENT_GAPS, Gap, Trajectory
from ..accepted import AnyOf
from ..evaluator import runs_of
from ..factories import named_partial
from ..functions import code_version
from ..messages import gaps_beside
from ..result_listeners import observed
from .answer_schema import AnswerSchema
from .client import JudgeAnswer, JudgeClient
from .prompt import INSTRUCTION_VARIABLES, Prompt, RenderedPrompt

__all__ = [
    "AsyncJudgeEvaluator",
    "JudgeEvaluator",
    "MakeVariables",
    "as_async",
    "combine_votes",
    "missing_content",
    "vote_share",
]

MakeVariables = Callable[[Any, Any, Any, Mapping[str, Any]], dict[str, Any]]
"""Makes a prompt's variables from outputs, reference_outputs, inputs and other keywords."""


@dataclass(frozen=True)
class JudgeEvaluator:
    """Scores outputs by asking one or several language models.

    Attributes:
        key: The name of the score.
        prompt: The prompt.
        schema: The form of the answers.
        clients: A client for each judge.
        samples: How often to ask each judge.
        continuous: Whether to average the scores of several votes.
        make_variables: Makes the prompt's variables.
    """

    key: str
    prompt: Prompt
    schema: AnswerSchema
    clients: tuple[JudgeClient, ...]
    samples: int
    continuous: bool
    make_variables: MakeVariables

    @property
    def __name__(self) -> str:
        return self.key

    def __call__(
        self,
        *,
        outputs: Any = None,
        reference_outputs: Any = None,
        inputs: Any = None,
        **extra: Any,
    ) -> Any:
        """Score outputs.

        Args:
            outputs: The outputs to judge.
            reference_outputs: The expected outputs.
            inputs: The inputs that led to the outputs.
            **extra: More variables of the prompt, and ``attachments``.

        Returns:
            ``key``, ``score``, ``comment`` and ``metadata``; or the answer itself if there is an
            output schema.

        Raises:
            InputError: An argument has an unknown form, or a variable in the prompt has no value
                (`VariableMissing`).
            JudgeError: There is an output schema, and no answer fits it.
        """
        return drive(self._evaluate(outputs, reference_outputs, inputs, extra))

    async def _evaluate(
        self, outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
    ) -> Any:
        """Score outputs, under `drive` or `drive_async`."""
        if isinstance(reference_outputs, AnyOf):
            raise InputError(f"{self.key}: a judge compares with one reference; it takes no AnyOf")
        run = outputs if isinstance(outputs, Trajectory) else None
        gaps = gaps_beside(outputs) if run is None else [g for r in runs_of(run) for g in r.gaps]
        if reason := missing_content(gaps):
            return observed(self._refusal(reason))
        variables = {name: value for name, value in extra.items() if name != "attachments"}
        values = self.make_variables(outputs, reference_outputs, inputs, variables)
        rendered = self.prompt.render(values, extra.get("attachments"))
        answers = await gather(
            client.ask(rendered, self.schema, sample)
            for client in self.clients
            for sample in range(self.samples)
        )
        return observed(self._result(answers, rendered))

    def _result(self, answers: Sequence[JudgeAnswer], rendered: RenderedPrompt) -> Any:
        votes = [answer for answer in answers if answer.error is None]
        if self.schema.raw:
            if not votes:
                raise answers[0].error or JudgeError("no answer")
            return votes[0].value
        metadata = _call_metadata(answers)
        if rendered.left_out:
            metadata["left_out"] = [asdict(omitted) for omitted in rendered.left_out]
        if 2 * len(votes) <= len(answers):
            return self._failure(answers, metadata)
        scores = [vote.value["score"] for vote in votes]
        score = scores[0]
        if len(answers) > 1:
            score = combine_votes(scores, continuous=self.continuous)
            metadata.update(_vote_metadata(answers))
            if not self.continuous:
                metadata["vote_share"] = vote_share(scores, score)
        comment = next(
            (vote.value.get("reasoning") for vote in votes if vote.value["score"] == score),
            votes[0].value.get("reasoning"),
        )
        return {"key": self.key, "score": score, "comment": comment, "metadata": metadata}

    def _refusal(self, reason: str) -> dict[str, Any]:
        """The result of outputs that are not sent to a judge.

        Raises:
            JudgeError: There is an output schema, which has no place for the reason.
        """
        if self.schema.raw:
            raise JudgeError(reason)
        metadata = {"status": "not_evaluated", "error": reason}
        return {"key": self.key, "score": None, "comment": reason, "metadata": metadata}

    def _failure(self, answers: Sequence[JudgeAnswer], metadata: dict[str, Any]) -> dict[str, Any]:
        errors = [answer.error for answer in answers if answer.error is not None]
        is_budget_spent = all(isinstance(error, BudgetSpent) for error in errors)
        metadata["status"] = "not_evaluated" if is_budget_spent else "error"
        metadata["error"] = str(errors[0])
        if len(answers) > 1:
            metadata.update(_vote_metadata(answers))
        return {"key": self.key, "score": None, "comment": str(errors[0]), "metadata": metadata}

    def describe(self) -> dict[str, Any]:
        """Everything that verdicts depend on as JSON values, to hash into a version."""
        template, instructions = self.prompt.template, self.prompt.instructions
        description = {
            "type": "judge",
            "prompt": template if isinstance(template, str) else code_version(template),
            "system": self.prompt.system,
            "few_shot": [dict(example) for example in self.prompt.few_shot],
            "harden": self.prompt.harden,
            "schema": [self.schema.name, self.schema.json],
            "judges": [_describe_backend(client) for client in self.clients],
            "samples": self.samples,
        }
        if instructions != INSTRUCTION_VARIABLES:
            description["instructions"] = sorted(instructions)
        return description

    def close(self) -> None:
        """Close the connections that the evaluator opened."""
        for client in self.clients:
            client.backend.close()


def missing_content(gaps: Iterable[Gap]) -> str:
    """Why a judge would see only a part of a run, or "".

    A run that was recognised by its shape has another gap if content is missing.
    """
    lost = next((g for g in gaps if g.code in CONTENT_GAPS and g.code != "read_by_shape"), None)
    return "" if lost is None else f"{lost.code}: {lost.detail}"


def combine_votes(scores: Sequence[Any], *, continuous: bool = False) -> Any:
    """The score that wins a vote.

    Args:
        scores: At least one.
        continuous: Whether to average them.
    """
    if continuous:
        return statistics.fmean(scores)
    if isinstance(scores[0], bool):
        return 2 * sum(scores) > len(scores)
    counts = Counter(scores).most_common()
    most_frequent = [score for score, count in counts if count == counts[0][1]]
    return most_frequent[0] if len(most_frequent) == 1 else statistics.median_low(scores)


def vote_share(scores: Sequence[Any], winner: Any) -> float:
    """The share of votes for the winning score, from 0 to 1."""
    return sum(bool(score == winner) for score in scores) / len(scores)


def _describe_backend(client: JudgeClient) -> Any:
    identity = client.backend.identity()
    return list(client.backend.endpoint) if identity is None else dict(identity)


def _vote_metadata(answers: Sequence[JudgeAnswer]) -> dict[str, Any]:
    votes = []
    for answer in answers:
        verdict = answer.value if answer.error is None else {"error": str(answer.error)}
        votes.append({"model": answer.call.model, **verdict})
    failed = sum(answer.error is not None for answer in answers)
    return {"votes": votes, "failed_votes": failed}


def _call_metadata(answers: Sequence[JudgeAnswer]) -> dict[str, Any]:
    """The metadata of the calls behind a result; cached answers cost nothing."""
    calls = [answer.call for answer in answers]
    new_calls = [answer.call for answer in answers if not answer.cached]
    costs = [call.cost for call in new_calls if call.cost is not None]
    all_have_cost = len(costs) == len([call for call in new_calls if call.requests])
    estimated = any(call.cost_is_estimate for call in new_calls)
    first = calls[0]
    raw = [call.raw for call in calls]
    return {
        "model": first.answered_by or first.model,
        "asked_as": first.rung,
        "requests": sum(call.requests for call in new_calls),
        "input_tokens": sum(call.input_tokens for call in calls),
        "output_tokens": sum(call.output_tokens for call in calls),
        "cached_tokens": sum(call.cached_tokens for call in calls),
        "cost_usd": sum(costs) if all_have_cost else None,
        **({"cost_is_estimate": True} if estimated else {}),
        "latency_s": max(call.latency for call in calls),
        "cached": not new_calls,
        "raw": raw[0] if len(raw) == 1 else raw,
    }


class AsyncJudgeEvaluator(Protocol):
    """The asynchronous form of a `JudgeEvaluator`, which asks for all votes concurrently.

    It is a coroutine function, made by `named_partial`.

    Attributes:
        evaluator: The blocking form.
    """

    evaluator: JudgeEvaluator

    async def __call__(
        self,
        *,
        outputs: Any = None,
        reference_outputs: Any = None,
        inputs: Any = None,
        **extra: Any,
    ) -> Any:
        """Score outputs; see `JudgeEvaluator`."""
        ...


def as_async(evaluator: JudgeEvaluator) -> AsyncJudgeEvaluator:
    """The asynchronous form of an evaluator."""
    evaluate = named_partial(_evaluate_async, evaluator.key, evaluator)
    evaluate.__doc__ = JudgeEvaluator.__call__.__doc__
    evaluate.evaluator = evaluator
    return evaluate  # type: ignore[no-any-return]


async def _evaluate_async(
    evaluator: JudgeEvaluator,
    *,
    outputs: Any = None,
    reference_outputs: Any = None,
    inputs: Any = None,
    **extra: Any,
) -> Any:
    return await drive_async(evaluator._evaluate(outputs, reference_outputs, inputs, extra))
