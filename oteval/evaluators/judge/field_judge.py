"""A language model that compares fields of arguments, within a match of trajectories.

It is the judge of `oteval.evaluators.judge.trajectory_judge` with another prompt: its answers are
cached and its costs limited in the same way. A missing answer is never an agreement: it raises an
exception, and the match has no verdict.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NoReturn, Self

from ...base.errors import ConfigError
from ...base.jsontext import canonical, dumps
from ..evaluator import NotEvaluated, Resources
from ..field_rules import FieldAnswer
from ..options import PYTHON_ONLY
from ..result_listeners import unheard
from .cache import judging
from .evaluator import JudgeEvaluator
from .factory import create_llm_as_judge
from .openai_backend import key_in_environment
from .prompts import FIELD_PROMPT
from .trajectory_judge import LlmJudge, VerdictMissing, answer_of

__all__ = ["FieldJudgeModel", "FieldQuestions", "field_judge"]

_OPTIONS = (
    *("model", "jury", "system", "samples", "use_reasoning", "base_url", "api_key", "api_key_env"),
    *("temperature", "seed", "stream", "request", "timeout", "max_retries", "max_concurrency"),
    *("max_cost", "max_cost_per_day", "prices"),
)


@dataclass
class FieldQuestions:
    """The questions of one evaluation; each is asked once.

    Attributes:
        answers: The answers by question.
        asked: Field, answer, reasoning and cost of each question.
    """

    answers: dict[str, FieldAnswer] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def metadata(self) -> dict[str, Any]:
        """The questions and their cost, or nothing if none was asked."""
        if not self.asked:
            return {}
        costs = [question["cost_usd"] for question in self.asked]
        total = None if None in costs else sum(costs)
        return {"judged": self.asked, "cost_usd": total}


_QUESTIONS: ContextVar[FieldQuestions | None] = ContextVar("oteval_field_questions", default=None)


@dataclass(frozen=True, kw_only=True)
class FieldJudgeModel(LlmJudge):
    """Asks a language model whether two values of a field agree."""

    type: ClassVar[str] = "field_judge"

    api_key: Annotated[str | None, PYTHON_ONLY] = field(default=None, repr=False)

    def prepare(self, resources: Resources) -> Self:
        """The evaluator with its judge created.

        Raises:
            ConfigError: There is a key in oteval.yaml, or an option is wrong.
        """
        if self.api_key is not None:
            raise ConfigError(
                "judge: api_key is for Python; write api_key_env: the variable's name"
            )
        return super().prepare(resources)

    @contextmanager
    def evaluation(self, run: str) -> Iterator[FieldQuestions]:
        """Collect the questions of one evaluation.

        Args:
            run: The id of the run, or "".

        Raises:
            NotEvaluated: The block raised it; the metadata has all questions.
            VerdictMissing: The block raised it; the metadata has all questions.
        """
        questions = FieldQuestions()
        token = _QUESTIONS.set(questions)
        try:
            with judging(run), unheard():
                yield questions
        except NotEvaluated as error:
            error.metadata = {**questions.metadata(), "error": str(error)}
            raise
        except VerdictMissing as error:
            raise VerdictMissing(str(error), {**error.metadata, **questions.metadata()}) from error
        finally:
            _QUESTIONS.reset(token)

    def ask(self, name: str, criterion: str, output: Any, reference: Any) -> FieldAnswer:
        """The answer of the model.

        Raises:
            NotEvaluated: The budget is spent.
            VerdictMissing: The model gave no verdict.
        """
        questions = _QUESTIONS.get() or FieldQuestions()
        key = canonical([name, criterion, output, reference])
        earlier_answer = questions.answers.get(key)
        if earlier_answer is not None:
            return earlier_answer
        result = self._prepared_judge()(
            outputs=_as_text(output),
            reference_outputs=_as_text(reference),
            field=name,
            criterion=criterion,
        )
        metadata = result.get("metadata") or {}
        answer = FieldAnswer(bool(result["score"]), result["comment"] or "")
        if metadata.get("status") != "not_evaluated":  # then it was not asked
            questions.asked.append(
                {
                    "field": name,
                    "agrees": result["score"],
                    "reasoning": answer.reasoning,
                    "cost_usd": metadata.get("cost_usd"),
                }
            )
        answer_of(result)
        questions.answers[key] = answer
        return answer

    def _prepared_judge(self) -> JudgeEvaluator:
        """The judge; a judge that oteval.yaml does not prepare is created on first use."""
        if self.judge is None:
            resources = Resources(
                self.key,
                has_reference=True,
                read_text=_no_file,
                load_function=_no_function,
                environment={self.api_key_env: self._key()},
            )
            object.__setattr__(self, "judge", super().prepare(resources).judge)
        return super()._prepared_judge()

    def _key(self) -> str:
        """The key: as given, or from the environment."""
        key = self.api_key or key_in_environment(self.api_key_env)
        if not key and self.api_key_env != "OPENAI_API_KEY":
            raise ConfigError(f"judge: the environment variable {self.api_key_env} is not set")
        return key

    def _create(self, **options: Any) -> JudgeEvaluator:
        return create_llm_as_judge(**options)

    def _prompt(self, resources: Resources) -> str:  # noqa: ARG002
        return FIELD_PROMPT


def _as_text(value: Any) -> str:
    """A value as the prompt shows it; no part of an agent's data is a run or a gap."""
    return value if isinstance(value, str) else dumps(value)


def _no_file(path: str) -> NoReturn:
    raise ConfigError(f"{path}: a judge of fields reads no files")


def _no_function(name: str) -> NoReturn:
    raise ConfigError(f"{name}: a judge of fields calls no functions")


def field_judge(value: Any) -> FieldJudgeModel:
    """The judge that an option describes.

    Args:
        value: Options of `LlmJudge`, to be prepared; a judge of `create_llm_as_judge`, whose prompt
            shows ``{outputs}`` and ``{reference_outputs}``; or a `FieldJudgeModel`.

    Raises:
        ConfigError: The value is something else, or an option is unknown or wrong.
    """
    if isinstance(value, FieldJudgeModel):
        return value
    if isinstance(value, JudgeEvaluator):
        return FieldJudgeModel(model="openai:given", judge=value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"judge is a {type(value).__name__}; expected {{model: openai:NAME}}")
    unknown = next((key for key in value if key not in _OPTIONS), None)
    if unknown is not None:
        near = difflib.get_close_matches(str(unknown), _OPTIONS, 1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"judge: unknown key {unknown!r}{hint}; known: {', '.join(_OPTIONS)}")
    try:
        return FieldJudgeModel(**value)
    except ConfigError as error:
        raise ConfigError(f"judge: {error}") from None
