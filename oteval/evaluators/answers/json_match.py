"""Structured outputs compared field by field, or record by record where they are lists.

Records of two lists are paired so that as many fields as possible are equal. Fields are compared
for equality, or by a judge where `rubric` names a criterion for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import ConfigError, InputError
from ..judge import create_async_llm_as_judge, create_llm_as_judge
from ..observed import observed, unheard
from ..types import EvaluatorResult, SimpleAsyncEvaluator, SimpleEvaluator
from ..values import same
from .record_pairs import ListMatchMode, RecordPair, pair_records

__all__ = ["create_async_json_match_evaluator", "create_json_match_evaluator"]

Aggregator = Literal["average", "all"]
_MODES = ("superset", "subset", "same_elements", "ordered")
_AGGREGATORS = ("average", "all")
_KEY = "json_match"
_PROMPT = """You check one field of a structured output against the field expected.

Decide by this criterion alone; any other difference does not matter:

{criterion}

The field's name: {field}

The field in the output:

{outputs}

The field expected:

{reference_outputs}
"""


@dataclass(frozen=True)
class _Comparison:
    """What an evaluator compares, and how its verdicts become results."""

    aggregator: Aggregator | None
    list_aggregator: Aggregator
    rubric: Mapping[str, str]
    exclude_keys: frozenset[str]
    list_match_mode: ListMatchMode

    def pairs(self, outputs: Any, reference_outputs: Any) -> list[RecordPair]:
        """Return the records to compare with each other."""
        if isinstance(outputs, list) != isinstance(reference_outputs, list):
            raise InputError("json_match: outputs and reference_outputs must both be lists or not")
        if not isinstance(outputs, list):
            sides = (_record(outputs, "outputs"), _record(reference_outputs, "reference_outputs"))
            return [RecordPair(*sides)]
        ours = [_record(one, f"outputs[{at}]") for at, one in enumerate(outputs)]
        theirs = [
            _record(one, f"reference_outputs[{at}]") for at, one in enumerate(reference_outputs)
        ]
        ignored = self.exclude_keys | set(self.rubric)
        return pair_records(ours, theirs, mode=self.list_match_mode, ignored=ignored)

    def fields(self, pair: RecordPair) -> list[str]:
        """Return the names of the fields to compare in a pair of records."""
        names = dict.fromkeys([*(pair.output or {}), *(pair.reference or {})])
        return [name for name in names if name not in self.exclude_keys]

    def asks(self, pair: RecordPair, field: str) -> bool:
        """Return whether a judge compares a field: it has a criterion and both sides have it."""
        sides = (pair.output, pair.reference)
        return field in self.rubric and all(side and field in side for side in sides)

    def question(self, pair: RecordPair, field: str) -> dict[str, Any]:
        """Return the keywords that a judge is called with."""
        assert pair.output is not None
        assert pair.reference is not None
        return {
            "outputs": pair.output[field],
            "reference_outputs": pair.reference[field],
            "field": field,
            "criterion": self.rubric[field],
        }

    def results(
        self, verdicts: Sequence[Mapping[str, _Verdict]], outputs: Any
    ) -> list[EvaluatorResult]:
        """Return the results of the verdicts on the fields of each pair of records."""
        if self.aggregator is not None:
            by_record = [_combined(one.values(), self.aggregator) for one in verdicts]
            is_list = isinstance(outputs, list)
            whole = _combined(by_record, self.list_aggregator) if is_list else by_record[0]
            return [observed(whole.result(f"{_KEY}:{self.aggregator}"))]
        names = sorted({name for one in verdicts for name in one})
        found = []
        for name in names:
            members = [one[name] for one in verdicts if name in one]
            whole = members[0] if len(members) == 1 else _combined(members, self.list_aggregator)
            found.append(observed(whole.result(f"{_KEY}:{name}")))
        return found


@dataclass(frozen=True)
class _Verdict:
    """Whether fields match: a score from 0 to 1, or None where a judge failed."""

    score: float | bool | None
    comment: str | None = None
    error: str = ""

    def result(self, key: str) -> EvaluatorResult:
        """Return the verdict as an evaluator's result."""
        metadata = {"error": self.error} if self.error else None
        return {"key": key, "score": self.score, "comment": self.comment, "metadata": metadata}


def create_json_match_evaluator(
    *,
    aggregator: Aggregator | None = None,
    list_aggregator: Aggregator = "all",
    rubric: Mapping[str, str] | None = None,
    exclude_keys: Iterable[str] | None = None,
    judge: Any = None,
    model: str | None = None,
    use_reasoning: bool = True,
    list_match_mode: ListMatchMode = "same_elements",
    **options: Any,
) -> SimpleEvaluator:
    """Create an evaluator that compares structured outputs field by field.

    It differs from openevals in three points: records are paired by a true assignment instead of
    greedily, ``True`` does not equal 1, and a field that neither record of a pair has is not
    compared in that pair.

    Args:
        aggregator: None gives a result for each field, ``json_match:FIELD``; ``average`` and
            ``all`` give one for all fields, ``json_match:average`` or ``json_match:all``.
        list_aggregator: How the records of a list are combined: ``all`` passes if every record
            does, ``average`` is the mean.
        rubric: For some fields, the criterion by which a judge compares them.
        exclude_keys: Fields that are not compared.
        judge: The judge, as for `create_llm_as_judge`.
        model: The judge's model, as for `create_llm_as_judge`.
        use_reasoning: Whether the judge gives its reasons first; they are the comment.
        list_match_mode: ``same_elements`` counts records without a counterpart on either side as
            mismatches, ``subset`` those of the outputs, ``superset`` those of the reference;
            ``ordered`` pairs records by position.
        **options: More options of the judge, as for `create_llm_as_judge`.

    Returns:
        An evaluator that returns a list of results.

    Raises:
        ConfigError: An argument is wrong.
    """
    comparison = _comparison(
        aggregator, list_aggregator, rubric, exclude_keys, list_match_mode, judge or model
    )
    given = {"judge": judge, "model": model, "use_reasoning": use_reasoning, **options}
    ask = create_llm_as_judge(**_judge_options(given)) if comparison.rubric else None

    def evaluator(
        *, outputs: Any, reference_outputs: Any = None, inputs: Any = None, **extra: Any
    ) -> list[EvaluatorResult]:
        """Compare outputs with the reference."""
        del inputs, extra
        verdicts = []
        for pair in comparison.pairs(outputs, reference_outputs):
            found = _compared(comparison, pair)
            for field in comparison.fields(pair):
                if ask is not None and comparison.asks(pair, field):
                    with unheard():
                        found[field] = _judged(ask(**comparison.question(pair, field)))
            verdicts.append(found)
        return comparison.results(verdicts, outputs)

    evaluator.__name__ = evaluator.__qualname__ = _KEY
    return evaluator


def create_async_json_match_evaluator(
    *,
    aggregator: Aggregator | None = None,
    list_aggregator: Aggregator = "all",
    rubric: Mapping[str, str] | None = None,
    exclude_keys: Iterable[str] | None = None,
    judge: Any = None,
    model: str | None = None,
    use_reasoning: bool = True,
    list_match_mode: ListMatchMode = "same_elements",
    **options: Any,
) -> SimpleAsyncEvaluator:
    """Create the awaitable form of `create_json_match_evaluator`; judges are asked concurrently.

    Args:
        aggregator: None for a result for each field, ``average`` or ``all`` for one of all.
        list_aggregator: How the records of a list are combined.
        rubric: For some fields, the criterion by which a judge compares them.
        exclude_keys: Fields that are not compared.
        judge: The judge; it may be asynchronous.
        model: The judge's model.
        use_reasoning: Whether the judge gives its reasons first.
        list_match_mode: ``same_elements``, ``subset``, ``superset`` or ``ordered``.
        **options: More options of the judge, as for `create_llm_as_judge`.

    Returns:
        A coroutine function that returns a list of results.

    Raises:
        ConfigError: An argument is wrong.
    """
    comparison = _comparison(
        aggregator, list_aggregator, rubric, exclude_keys, list_match_mode, judge or model
    )
    given = {"judge": judge, "model": model, "use_reasoning": use_reasoning, **options}
    ask = create_async_llm_as_judge(**_judge_options(given)) if comparison.rubric else None

    async def evaluator(
        *, outputs: Any, reference_outputs: Any = None, inputs: Any = None, **extra: Any
    ) -> list[EvaluatorResult]:
        """Compare outputs with the reference."""
        del inputs, extra
        pairs = comparison.pairs(outputs, reference_outputs)
        verdicts = [_compared(comparison, pair) for pair in pairs]
        places = [
            (found, pair, field)
            for found, pair in zip(verdicts, pairs, strict=True)
            for field in comparison.fields(pair)
            if ask is not None and comparison.asks(pair, field)
        ]
        if ask is not None:
            with unheard():
                questions = (comparison.question(pair, field) for _, pair, field in places)
                answers = await asyncio.gather(*(ask(**question) for question in questions))
            for (found, _, field), answer in zip(places, answers, strict=True):
                found[field] = _judged(answer)
        return comparison.results(verdicts, outputs)

    evaluator.__name__ = evaluator.__qualname__ = _KEY
    return evaluator


def _comparison(
    aggregator: Aggregator | None,
    list_aggregator: Aggregator,
    rubric: Mapping[str, str] | None,
    exclude_keys: Iterable[str] | None,
    list_match_mode: ListMatchMode,
    asked: Any,
) -> _Comparison:
    if aggregator is not None and aggregator not in _AGGREGATORS:
        raise ConfigError(f"aggregator is {aggregator!r}; expected None, 'average' or 'all'")
    if list_aggregator not in _AGGREGATORS:
        raise ConfigError(f"list_aggregator is {list_aggregator!r}; expected 'average' or 'all'")
    if list_match_mode not in _MODES:
        raise ConfigError(f"list_match_mode is {list_match_mode!r}; expected one of {_MODES}")
    if rubric and not asked:
        raise ConfigError("rubric needs a judge: give model= or judge=")
    if asked and not rubric:
        raise ConfigError("model and judge are only used with rubric; give one, or leave them out")
    excluded = frozenset(exclude_keys or ())
    return _Comparison(aggregator, list_aggregator, dict(rubric or {}), excluded, list_match_mode)


def _judge_options(given: Mapping[str, Any]) -> dict[str, Any]:
    data = ("field", "criterion")
    return {"prompt": _PROMPT, "feedback_key": _KEY, "data_variables": data, **given}


def _record(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"json_match: {place} is a {type(value).__name__}; expected a dict")
    return value


def _compared(comparison: _Comparison, pair: RecordPair) -> dict[str, _Verdict]:
    """Return the verdicts on the fields that need no judge."""
    found = {}
    for field in comparison.fields(pair):
        if not comparison.asks(pair, field):
            found[field] = _equal(pair, field)
    if not found and (pair.output is None or pair.reference is None):
        # A record without fields and without a counterpart still is a difference.
        found["(record)"] = _Verdict(False, "a record has no counterpart")
    return found


def _equal(pair: RecordPair, field: str) -> _Verdict:
    for side, record in (("outputs", pair.output), ("reference_outputs", pair.reference)):
        if record is None or field not in record:
            return _Verdict(False, f"{field} is missing in {side}")
    assert pair.output is not None
    assert pair.reference is not None
    if same(pair.output[field], pair.reference[field]):
        return _Verdict(True)
    return _Verdict(False, f"{field} differs")


def _judged(result: Mapping[str, Any]) -> _Verdict:
    error = (result.get("metadata") or {}).get("error")
    return _Verdict(result["score"], result.get("comment"), str(error or ""))


def _combined(verdicts: Iterable[_Verdict], how: Aggregator) -> _Verdict:
    """Return several verdicts as one; an error among them makes it an error."""
    members = list(verdicts)
    failed = next((one for one in members if one.score is None), None)
    if failed is not None:
        return _Verdict(None, failed.comment, failed.error or "a judge gave no score")
    scores = [float(one.score or 0) for one in members]
    comments = "; ".join(dict.fromkeys(one.comment for one in members if one.comment)) or None
    if how == "all":
        return _Verdict(all(score == 1 for score in scores), comments)
    return _Verdict(sum(scores) / len(scores) if scores else 1.0, comments)
