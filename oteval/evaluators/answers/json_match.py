"""Compares structured outputs field by field, and lists of records record by record.

The records of two lists are paired so that as many fields as possible are equal. A field with a
criterion in `rubric` is compared by a judge, any other field for equality.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from ...base.errors import ConfigError, InputError
from ..assignment import match_equal
from ..factories import named_partial, with_options_of
from ..judge import (
    AsyncJudgeEvaluator,
    JudgeEvaluator,
    create_async_llm_as_judge,
    create_llm_as_judge,
)
from ..judge.prompts import FIELD_PROMPT
from ..result_listeners import observed, unheard
from ..types import EvaluatorResult, SimpleAsyncEvaluator, SimpleEvaluator
from ..values import canonical_key, same

__all__ = [
    "ListMatchMode",
    "RecordPair",
    "create_async_json_match_evaluator",
    "create_json_match_evaluator",
    "pair_records",
]

Aggregator = Literal["average", "all"]
_MODES = ("superset", "subset", "same_elements", "ordered")
_AGGREGATORS = ("average", "all")
_KEY = "json_match"


@dataclass(frozen=True, kw_only=True)
class JsonMatch:
    """Compares structured outputs field by field.

    Attributes:
        aggregator: None for a result for each field; ``average`` or ``all`` for one result.
        list_aggregator: How the records of a list are combined.
        rubric: The criteria of the fields that a judge compares.
        exclude_keys: Fields that are not compared.
        list_match_mode: Which records without a counterpart are mismatches.
    """

    aggregator: Aggregator | None
    list_aggregator: Aggregator
    rubric: Mapping[str, str]
    exclude_keys: frozenset[str]
    list_match_mode: ListMatchMode

    def __post_init__(self) -> None:
        """Refuse unknown values.

        Raises:
            ConfigError: A value is unknown; the text names the option.
        """
        if self.aggregator is not None and self.aggregator not in _AGGREGATORS:
            raise ConfigError(
                f"aggregator is {self.aggregator!r}; expected None, 'average' or 'all'"
            )
        if self.list_aggregator not in _AGGREGATORS:
            raise ConfigError(
                f"list_aggregator is {self.list_aggregator!r}; expected 'average' or 'all'"
            )
        if self.list_match_mode not in _MODES:
            raise ConfigError(
                f"list_match_mode is {self.list_match_mode!r}; expected one of {_MODES}"
            )

    def evaluate(
        self, ask: JudgeEvaluator | None, outputs: Any, reference_outputs: Any
    ) -> list[EvaluatorResult]:
        """Compare outputs with the reference; a judge compares the fields of the rubric."""
        pairs = self.pairs(outputs, reference_outputs)
        verdicts = [self.verdicts(pair) for pair in pairs]
        if ask is not None:
            with unheard():
                for verdict, question in self.questions(verdicts, pairs):
                    verdict[question["field"]] = _judge_verdict(ask(**question))
        return self.results(verdicts, outputs)

    async def aevaluate(
        self, ask: AsyncJudgeEvaluator | None, outputs: Any, reference_outputs: Any
    ) -> list[EvaluatorResult]:
        """Like `evaluate`, but ask about all fields concurrently."""
        pairs = self.pairs(outputs, reference_outputs)
        verdicts = [self.verdicts(pair) for pair in pairs]
        if ask is not None:
            questions = list(self.questions(verdicts, pairs))
            with unheard():
                answers = await asyncio.gather(*(ask(**question) for _, question in questions))
            for (verdict, question), answer in zip(questions, answers, strict=True):
                verdict[question["field"]] = _judge_verdict(answer)
        return self.results(verdicts, outputs)

    def pairs(self, outputs: Any, reference_outputs: Any) -> list[RecordPair]:
        """The records to compare with each other."""
        if isinstance(outputs, list) != isinstance(reference_outputs, list):
            raise InputError("json_match: outputs and reference_outputs must both be lists or not")
        if not isinstance(outputs, list):
            sides = (_record(outputs, "outputs"), _record(reference_outputs, "reference_outputs"))
            return [RecordPair(*sides)]
        ours = [_record(output, f"outputs[{at}]") for at, output in enumerate(outputs)]
        theirs = [
            _record(reference_output, f"reference_outputs[{at}]")
            for at, reference_output in enumerate(reference_outputs)
        ]
        ignored = self.exclude_keys | set(self.rubric)
        return pair_records(ours, theirs, mode=self.list_match_mode, ignored=ignored)

    def fields(self, pair: RecordPair) -> list[str]:
        """The names of the fields to compare in a pair of records."""
        names = dict.fromkeys([*(pair.output or {}), *(pair.reference or {})])
        return [name for name in names if name not in self.exclude_keys]

    def asks(self, pair: RecordPair, field: str) -> bool:
        """Whether a judge compares a field: it has a criterion and is on both sides."""
        sides = (pair.output, pair.reference)
        return field in self.rubric and all(side and field in side for side in sides)

    def questions(
        self, verdicts: Iterable[dict[str, _Verdict]], pairs: Iterable[RecordPair]
    ) -> Iterator[tuple[dict[str, _Verdict], dict[str, Any]]]:
        """Yield the questions to a judge, each with the dict of verdicts to add its answer to."""
        for verdict, pair in zip(verdicts, pairs, strict=True):
            for field in self.fields(pair):
                if self.asks(pair, field) and pair.output and pair.reference:
                    yield (
                        verdict,
                        {
                            "outputs": pair.output[field],
                            "reference_outputs": pair.reference[field],
                            "field": field,
                            "criterion": self.rubric[field],
                        },
                    )

    def verdicts(self, pair: RecordPair) -> dict[str, _Verdict]:
        """The verdicts on all fields of a pair that are compared without a judge."""
        verdicts = {}
        for field in self.fields(pair):
            if not self.asks(pair, field):
                verdicts[field] = _equal(pair, field)
        if not verdicts and (pair.output is None or pair.reference is None):
            # A record without a counterpart is a difference even if it has no fields.
            verdicts["(record)"] = _Verdict(score=False, comment="a record has no counterpart")
        return verdicts

    def results(
        self, verdicts: Sequence[Mapping[str, _Verdict]], outputs: Any
    ) -> list[EvaluatorResult]:
        """Combine the verdicts on all pairs of records into results."""
        if self.aggregator is not None:
            by_record = [_combine(verdict.values(), self.aggregator) for verdict in verdicts]
            is_list = isinstance(outputs, list)
            combined = _combine(by_record, self.list_aggregator) if is_list else by_record[0]
            return [observed(combined.result(f"{_KEY}:{self.aggregator}"))]
        names = sorted({name for verdict in verdicts for name in verdict})
        results = []
        for name in names:
            members = [verdict[name] for verdict in verdicts if name in verdict]
            combined = members[0] if len(members) == 1 else _combine(members, self.list_aggregator)
            results.append(observed(combined.result(f"{_KEY}:{name}")))
        return results


@dataclass(frozen=True)
class _Verdict:
    """Whether fields match: a score from 0 to 1, or None if a judge failed."""

    score: float | bool | None
    comment: str | None = None
    error: str = ""

    def result(self, key: str) -> EvaluatorResult:
        """The verdict as an evaluator's result."""
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

    It differs from openevals in three ways: the pairing of records is optimal instead of greedy,
    ``True`` does not equal 1, and a field that both records of a pair lack is not compared.

    Args:
        aggregator: None returns a result for each field, ``json_match:FIELD``. ``average`` and
            ``all`` return one result for all fields, ``json_match:average`` or ``json_match:all``.
        list_aggregator: How the records of a list are combined: ``all`` passes if every record
            passes, ``average`` is the mean.
        rubric: The criteria of the fields that a judge compares.
        exclude_keys: Fields that are not compared.
        judge: The judge, as for `create_llm_as_judge`.
        model: The judge's model, as for `create_llm_as_judge`.
        use_reasoning: Whether the judge reasons before it scores; the reasoning is the comment.
        list_match_mode: Which records without a counterpart are mismatches: ``same_elements``,
            records of both sides; ``subset``, records of the outputs; ``superset``, records of the
            reference. ``ordered`` pairs records by position.
        **options: More options of the judge, as for `create_llm_as_judge`.

    Returns:
        An evaluator that returns a list of results.

    Raises:
        ConfigError: An argument is wrong.
    """
    match, judge_options = _split(
        aggregator=aggregator,
        list_aggregator=list_aggregator,
        rubric=rubric,
        exclude_keys=exclude_keys,
        list_match_mode=list_match_mode,
        judge=judge,
        model=model,
        use_reasoning=use_reasoning,
        **options,
    )
    ask = create_llm_as_judge(**judge_options) if match.rubric else None
    evaluator: SimpleEvaluator = named_partial(_evaluate, _KEY, match, ask)
    return evaluator


def _evaluate(
    match: JsonMatch, ask: Any, *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> list[EvaluatorResult]:
    """Compare outputs with the reference."""
    del extra
    return match.evaluate(ask, outputs, reference_outputs)


@with_options_of(create_json_match_evaluator)
def create_async_json_match_evaluator(**options: Any) -> SimpleAsyncEvaluator:
    """Create a coroutine function that compares structured outputs field by field.

    Judges are asked about all fields concurrently.

    Args:
        **options: The options of `create_json_match_evaluator`; the judge may be asynchronous.

    Returns:
        A coroutine function that returns a list of results.

    Raises:
        ConfigError: An option is wrong.
    """
    match, judge_options = _split(**options)
    ask = create_async_llm_as_judge(**judge_options) if match.rubric else None
    evaluator: SimpleAsyncEvaluator = named_partial(_evaluate_async, _KEY, match, ask)
    return evaluator


async def _evaluate_async(
    match: JsonMatch, ask: Any, *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> list[EvaluatorResult]:
    """Compare outputs with the reference."""
    del extra
    return await match.aevaluate(ask, outputs, reference_outputs)


def _split(
    *,
    aggregator: Aggregator | None = None,
    list_aggregator: Aggregator = "all",
    rubric: Mapping[str, str] | None = None,
    exclude_keys: Iterable[str] | None = None,
    list_match_mode: ListMatchMode = "same_elements",
    **judge_options: Any,
) -> tuple[JsonMatch, dict[str, Any]]:
    """The comparison, and the options of its judge.

    Raises:
        ConfigError: A value is unknown, or only one of rubric and judge is given.
    """
    match = JsonMatch(
        aggregator=aggregator,
        list_aggregator=list_aggregator,
        rubric=dict(rubric or {}),
        exclude_keys=frozenset(exclude_keys or ()),
        list_match_mode=list_match_mode,
    )
    has_judge = bool(judge_options.get("judge") or judge_options.get("model"))
    if rubric and not has_judge:
        raise ConfigError("rubric needs a judge: give model= or judge=")
    if has_judge and not rubric:
        raise ConfigError("model and judge are only used with rubric; give one, or leave them out")
    data = ("field", "criterion")
    common = {"prompt": FIELD_PROMPT, "feedback_key": _KEY, "data_variables": data}
    return match, {**common, **judge_options}


def _record(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"json_match: {name} is a {type(value).__name__}; expected a dict")
    return value


def _equal(pair: RecordPair, field: str) -> _Verdict:
    for side, record in (("outputs", pair.output), ("reference_outputs", pair.reference)):
        if record is None or field not in record:
            return _Verdict(score=False, comment=f"{field} is missing in {side}")
    assert pair.output is not None
    assert pair.reference is not None
    if same(pair.output[field], pair.reference[field]):
        return _Verdict(score=True)
    return _Verdict(score=False, comment=f"{field} differs")


def _judge_verdict(result: Mapping[str, Any]) -> _Verdict:
    error = (result.get("metadata") or {}).get("error")
    return _Verdict(result["score"], result.get("comment"), str(error or ""))


def _combine(verdicts: Iterable[_Verdict], how: Aggregator) -> _Verdict:
    """Combine verdicts into one; an error in any of them is an error of the result."""
    members = list(verdicts)
    failed = next((member for member in members if member.score is None), None)
    if failed is not None:
        error = failed.error or "a judge gave no score"
        return _Verdict(score=None, comment=failed.comment, error=error)
    scores = [float(member.score or 0) for member in members]
    comments = (
        "; ".join(dict.fromkeys(member.comment for member in members if member.comment)) or None
    )
    if how == "all":
        return _Verdict(all(score == 1 for score in scores), comments)
    return _Verdict(sum(scores) / len(scores) if scores else 1.0, comments)


ListMatchMode = Literal["superset", "subset", "same_elements", "ordered"]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class RecordPair:
    """Two records to compare; None on the side that has no counterpart."""

    output: Record | None
    reference: Record | None


def pair_records(
    outputs: Sequence[Record],
    references: Sequence[Record],
    *,
    mode: ListMatchMode,
    ignored: Set[str],
) -> list[RecordPair]:
    """Pair the records of two lists.

    Args:
        outputs: The records of the output.
        references: The records expected.
        mode: Which records without a counterpart count: of both lists (``same_elements``,
            ``ordered``), of the outputs (``subset``) or of the reference (``superset``).
        ignored: Fields that do not influence the pairing.

    Returns:
        The pairs, in the order of the outputs.
    """
    if mode == "ordered":
        pairing = {at: at for at in range(min(len(outputs), len(references)))}
    else:
        pairing = _assigned(outputs, references, ignored)
    used = set(pairing.values())
    pairs = [
        RecordPair(output, references[pairing[at]] if at in pairing else None)
        for at, output in enumerate(outputs)
        if at in pairing or mode != "superset"
    ]
    if mode != "subset":
        pairs += [
            RecordPair(None, reference) for at, reference in enumerate(references) if at not in used
        ]
    return pairs


def _assigned(
    outputs: Sequence[Record], references: Sequence[Record], ignored: Set[str]
) -> dict[int, int]:
    """The index of the reference by the index of the output, for each pair."""
    ours = [_kept(record, ignored) for record in outputs]
    theirs = [_kept(record, ignored) for record in references]
    assigned = dict(
        match_equal(
            ((at, canonical_key(record)) for at, record in enumerate(ours)),
            ((at, canonical_key(record)) for at, record in enumerate(theirs)),
        )
    )
    used = set(assigned.values())
    left = [at for at in range(len(ours)) if at not in assigned]
    right = [at for at in range(len(theirs)) if at not in used]
    if len(left) <= len(right):
        costs = [[-_equal_fields(ours[row], theirs[column]) for column in right] for row in left]
        assigned.update({left[row]: right[column] for row, column in _least_cost(costs)})
    else:
        costs = [[-_equal_fields(ours[row], theirs[column]) for row in left] for column in right]
        assigned.update({left[row]: right[column] for column, row in _least_cost(costs)})
    return assigned


def _kept(record: Record, ignored: Set[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ignored}


def _equal_fields(output: Record, reference: Record) -> int:
    return sum(key in reference and same(value, reference[key]) for key, value in output.items())


def _least_cost(costs: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Assign a different column to each row, so that the sum of costs is the least.

    Args:
        costs: A row of costs for each row; there are at least as many columns as rows.
    """
    columns = len(costs[0]) if costs else 0
    row_price = [0.0] * len(costs)
    column_price = [0.0] * columns
    row_of = [-1] * columns
    for row in range(len(costs)):
        # Dijkstra's search for the cheapest way to assign a column to this row.
        distance, came_from, done = [inf] * columns, [-1] * columns, [False] * columns
        current, column, reached = row, -1, 0.0
        while current != -1:
            nearest, best = -1, inf
            for next_column in range(columns):
                if done[next_column]:
                    continue
                reduced = (
                    costs[current][next_column] - row_price[current] - column_price[next_column]
                )
                if reached + reduced < distance[next_column]:
                    distance[next_column], came_from[next_column] = reached + reduced, column
                if distance[next_column] < best:
                    nearest, best = next_column, distance[next_column]
            column, reached = nearest, best
            done[column] = True
            current = row_of[column]
        row_price[row] += reached
        for next_column in range(columns):
            if done[next_column]:
                if row_of[next_column] != -1:
                    row_price[row_of[next_column]] += reached - distance[next_column]
                column_price[next_column] -= reached - distance[next_column]
        while column != -1:
            before = came_from[column]
            row_of[column] = row if before == -1 else row_of[before]
            column = before
    return [(row, column) for column, row in enumerate(row_of) if row != -1]
