"""The evaluator that asks judges, and what it returns.

The result has exactly ``key``, ``score``, ``comment`` (the judge's reasoning) and ``metadata``. A
judge that cannot be asked, refuses, or gives no verdict has score None, ``metadata["error"]`` says
why, and ``metadata["status"]`` is ``error``, or ``not_evaluated`` where the budget was spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ...errors import BudgetSpent, JudgeError
from ..functions import code_version
from ..observed import observed
from .asking import Answer, Asker
from .rendering import INSTRUCTIONS, Prompt, Rendered
from .schema import Schema
from .voting import share, verdict

__all__ = ["AsyncJudgeEvaluator", "JudgeEvaluator", "Prepare"]

Prepare = Callable[[Any, Any, Any, Mapping[str, Any]], dict[str, Any]]
"""Makes a prompt's variables of outputs, reference_outputs, inputs and the other keywords."""


@dataclass(frozen=True)
class JudgeEvaluator:
    """Scores by asking a language model, or several.

    Attributes:
        key: The score's name.
        prompt: What they are told.
        schema: What they have to answer.
        askers: The judges.
        samples: How often each is asked.
        continuous: Whether scores are averaged where there are several votes.
        prepare: Makes the prompt's variables.
    """

    key: str
    prompt: Prompt
    schema: Schema
    askers: tuple[Asker, ...]
    samples: int
    continuous: bool
    prepare: Prepare

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
        """Ask about outputs.

        Args:
            outputs: What is judged.
            reference_outputs: What it should have been.
            inputs: What was asked for.
            **extra: More variables of the prompt, and ``attachments``.

        Returns:
            ``key``, ``score``, ``comment`` and ``metadata``; with an output schema, the answer
            itself.

        Raises:
            InputError: What is to be judged is of no known form, or a variable that the prompt
                shows has no value (`VariableMissing`).
            JudgeError: There is an output schema, and no answer that fits it.
        """
        rendered = self.told(outputs, reference_outputs, inputs, extra)
        answers = [asker.ask(rendered, self.schema, n) for asker, n in self._votes()]
        return observed(self.result(answers, rendered))

    async def ask(
        self,
        *,
        outputs: Any = None,
        reference_outputs: Any = None,
        inputs: Any = None,
        **extra: Any,
    ) -> Any:
        """Do what calling it does, asynchronously, with all votes at once."""
        rendered = self.told(outputs, reference_outputs, inputs, extra)
        calls = (asker.aask(rendered, self.schema, n) for asker, n in self._votes())
        return observed(self.result(await asyncio.gather(*calls), rendered))

    def told(
        self, outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
    ) -> Rendered:
        """Return what the judges are told."""
        more = {name: value for name, value in extra.items() if name != "attachments"}
        values = self.prepare(outputs, reference_outputs, inputs, more)
        return self.prompt.render(values, extra.get("attachments"))

    def _votes(self) -> list[tuple[Asker, int]]:
        return [(asker, number) for asker in self.askers for number in range(self.samples)]

    def result(self, answers: Sequence[Answer], rendered: Rendered) -> Any:
        """Return what the answers to a question come to."""
        given = [answer for answer in answers if answer.error is None]
        if self.schema.raw:
            if not given:
                raise answers[0].error or JudgeError("no answer")
            return given[0].value
        metadata = _figures(answers)
        if rendered.left_out:
            metadata["left_out"] = [asdict(one) for one in rendered.left_out]
        if 2 * len(given) <= len(answers):
            return self._failed(answers, metadata)
        scores = [answer.value["score"] for answer in given]
        score = verdict(scores, continuous=self.continuous) if len(answers) > 1 else scores[0]
        if len(answers) > 1:
            metadata["votes"] = [_vote(answer) for answer in answers]
            metadata["failed_votes"] = len(answers) - len(given)
            if not self.continuous:
                metadata["vote_share"] = share(scores, score)
        comment = next(
            (a.value.get("reasoning") for a in given if a.value["score"] == score),
            given[0].value.get("reasoning"),
        )
        return {"key": self.key, "score": score, "comment": comment, "metadata": metadata}

    def _failed(self, answers: Sequence[Answer], metadata: dict[str, Any]) -> dict[str, Any]:
        errors = [answer.error for answer in answers if answer.error is not None]
        spent = all(isinstance(error, BudgetSpent) for error in errors)
        metadata["status"] = "not_evaluated" if spent else "error"
        metadata["error"] = str(errors[0])
        if len(answers) > 1:
            metadata["votes"] = [_vote(answer) for answer in answers]
            metadata["failed_votes"] = len(errors)
        return {"key": self.key, "score": None, "comment": str(errors[0]), "metadata": metadata}

    def describe(self) -> dict[str, Any]:
        """Return all that verdicts depend on as JSON values, for the hash that is its version."""
        template, own = self.prompt.template, self.prompt.instructions
        return {
            "type": "judge",
            "prompt": template if isinstance(template, str) else code_version(template),
            "system": self.prompt.system,
            "few_shot": [dict(example) for example in self.prompt.few_shot],
            "harden": self.prompt.harden,
            "schema": [self.schema.name, self.schema.json],
            "judges": [_identity(asker) for asker in self.askers],
            "samples": self.samples,
            **({} if own == INSTRUCTIONS else {"instructions": sorted(own)}),
        }

    def close(self) -> None:
        """Close the connections that were opened."""
        for asker in self.askers:
            asker.backend.close()


def _identity(asker: Asker) -> Any:
    found = asker.backend.identity()
    return list(asker.backend.place) if found is None else dict(found)


def _vote(answer: Answer) -> dict[str, Any]:
    said = answer.value if answer.error is None else {"error": str(answer.error)}
    return {"model": answer.call.model, **said}


def _figures(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what some calls took; what the cache gave cost nothing now."""
    calls = [answer.call for answer in answers]
    fresh = [answer.call for answer in answers if not answer.cached]
    costs = [call.cost for call in fresh if call.cost is not None]
    priced = len(costs) == len([call for call in fresh if call.requests])
    one = calls[0]
    raws = [call.raw for call in calls]
    estimated = {"cost_is_estimate": True} if any(c.cost_is_estimate for c in fresh) else {}
    return {
        "model": one.answered_by or one.model,
        "asked_as": one.rung,
        "requests": sum(call.requests for call in fresh),
        "input_tokens": sum(call.input_tokens for call in calls),
        "output_tokens": sum(call.output_tokens for call in calls),
        "cached_tokens": sum(call.cached_tokens for call in calls),
        "cost_usd": sum(costs) if priced else None,
        **estimated,
        "latency_s": max(call.latency for call in calls),
        "cached": not fresh,
        "raw": raws[0] if len(raws) == 1 else raws,
    }


class AsyncJudgeEvaluator(Protocol):
    """A coroutine function that scores as a `JudgeEvaluator` does.

    It is a function, not an object, because frameworks ask `inspect.iscoroutinefunction`.

    Attributes:
        evaluator: The configuration, with `describe()`.
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
        """Ask about outputs."""
        ...
