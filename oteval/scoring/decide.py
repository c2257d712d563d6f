"""Decide pages of runs: the only engine that calls evaluators, for all sources of runs.

An evaluator has one body, `evaluate`. Each evaluator has up to three steps. A step takes the runs
that the previous step could not decide:

1. by their columns, once for all runs of a page that have the same columns;
2. by the arguments of calls that the evaluator requests, once for each different case;
3. with the whole run, by `PreparedEvaluator.score`.

If a run is partly known, `oteval.evaluators.outline.Unread` is raised where the evaluator reads
more. A result without it therefore equals the result for the whole run. Evaluators that may take
long, and evaluators that need no columns, begin with step 3.

A feed yields the pages, evaluates the runs that are left (`DecidedRuns.undecided`), and takes the
scores: a store (`score_pages`), or live scoring (`oteval.serve.batch_scorer`). Feeds know
transactions, order, limits and retries; nothing here does. Some feeds have only whole runs, and
begin with step 3: Arrow tables (`run_scorer`), and experiments, whose runs have the references of
their examples (`oteval.scoring.experiments.run_evaluators`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ..base.jsontext import dumps, encodable
from ..evaluators import CallArguments, Unread, has_outline_form, is_drawn, run_of
from ..model import EvaluationResult, Outline, OutlineRequest, Score, Selection
from ..store import SCORE_ROWS, call_arguments, is_exact
from .argument_tree import ArgumentTree
from .prepared import PreparedEvaluator

__all__ = ["DecidedRuns", "Decider", "Page", "StoredVerdicts"]

StoredVerdicts = Mapping[tuple[str, str, str], Score]
"""Stored verdicts that are used again, by trajectory id, evaluator and version."""

# In place of the number of a result: the run must be read; the evaluator does not look at it; or
# arguments of its calls decide.
_UNDECIDED, _UNWANTED, _OPEN = -1, -2, -3
_ROWS = SCORE_ROWS.insert(0, pa.field("place", pa.int32()))


class Page(Protocol):
    """Runs that a feed yields together. The place of a run is its index."""

    def __len__(self) -> int:
        """The number of runs."""

    def outlines(self, request: OutlineRequest, where: Selection) -> pa.Table:
        """The outlines of the runs, each once, as `oteval.store.outlines` describes them.

        Args:
            request: The columns.
            where: The runs that are wanted.
        """

    def messages(self, runs: pa.Table) -> Iterable[tuple[int, str]]:
        """The places and messages of some runs, as the store has them.

        Args:
            runs: Their ``place``, ``trajectory_id`` and ``rev``. Runs deleted since are left out.
        """


@dataclass(frozen=True)
class DecidedRuns:
    """The runs of a page, as far as an evaluator decided them by their parts.

    Attributes:
        rows: The scores of the decided runs as rows, with the run's ``place``.
        reused: The stored verdicts that are used again, by place.
        undecided: The places of the runs that must be read.
        results: The results of outlines.
        codes: The number of each row's result.
    """

    rows: pa.Table
    reused: dict[int, Score]
    undecided: set[int]
    results: Sequence[EvaluationResult]
    codes: pa.Array

    def scores(self, *, passes: bool) -> dict[int, Score]:
        """The scores of decided runs by place; passes only with `passes`."""
        is_shown = [passes or not _is_pass(result) for result in self.results]
        if not any(is_shown):
            return {}
        mask = pc.take(pa.array(is_shown), self.codes)
        rows, codes = self.rows.filter(mask).to_pylist(), self.codes.filter(mask).to_pylist()
        scores = {}
        for row, code in zip(rows, codes, strict=True):
            run_index = row.pop("place")
            row["comment"] = self.results[code].comment
            row["metadata"] = dict(self.results[code].metadata)
            scores[run_index] = Score(**row)
        return scores

    def counts(self, *, passes: bool) -> list[tuple[EvaluationResult, int]]:
        """The results that `scores` leaves out, and the number of their runs."""
        counts = Counter(self.codes.to_pylist())
        return [
            (result, counts[code])
            for code, result in enumerate(self.results)
            if not passes and _is_pass(result)
        ]


def _is_pass(result: EvaluationResult) -> bool:
    return result.status == "ok" and bool(result.passed)


class Decider:
    """Decides the runs of pages by one evaluator, mostly without reading the runs.

    Args:
        prepared: The evaluator.
        salt: The text that changes samples.

    Attributes:
        prepared: The evaluator.
    """

    def __init__(self, prepared: PreparedEvaluator, salt: str) -> None:
        self.prepared, self._salt = prepared, salt
        self._request = _request_of(prepared)

    @property
    def reads_every_run(self) -> bool:
        """Whether the evaluator decides no run by its columns."""
        return self._request is None

    def decide(self, page: Page, time_ns: int, stored: StoredVerdicts | None = None) -> DecidedRuns:
        """Decide the runs of a page by columns, and the remaining runs by arguments.

        Args:
            page: The runs.
            time_ns: The time of the scores.
            stored: Stored verdicts to use again.
        """
        if self._request is None:
            every_run = set(range(len(page)))
            return DecidedRuns(_ROWS.empty_table(), {}, every_run, (), pa.array([], pa.int32()))
        groups = page.outlines(self._request, self.prepared.scorer.where)
        outlines = _PageOutlines(self, groups.drop_columns(["runs"]).to_pylist())
        runs, numbers = _runs_of(groups)
        codes = pc.take(pa.array(map(outlines.code, range(len(groups))), pa.int32()), numbers)
        codes = self._drawn(runs, codes)
        if outlines.trees:
            codes = outlines.with_arguments(page, runs, numbers, codes)
        reused = self._reused(runs, codes, stored) if stored else {}
        is_done = pc.not_equal(codes, _UNDECIDED)
        done = {*runs["place"].filter(is_done).to_pylist(), *reused}
        mask = pc.greater_equal(codes, 0)
        if reused:
            mask = pc.and_(mask, pc.invert(pc.is_in(runs["place"], pa.array(reused, pa.int32()))))
        decided_codes = codes.filter(mask)
        rows = self._rows(runs.filter(mask), decided_codes, outlines.results, time_ns)
        return DecidedRuns(
            rows, reused, set(range(len(page))) - done, outlines.results, decided_codes
        )

    def result(self, outline: Outline, arguments: CallArguments) -> EvaluationResult | None:
        """The result of the runs with an outline, or None if they must be read.

        Args:
            outline: The outline.
            arguments: The arguments of its calls.
        """
        assert self._request is not None
        try:
            run = run_of(outline, arguments, self._request.attribute)
            reference, problem = self.prepared.references.of(run)
        except Unread:
            return None
        return self.prepared.scorer.outlined_result(run, outline, reference, problem)

    def _drawn(self, runs: pa.RecordBatch, codes: pa.Array) -> pa.Array:
        """The codes; runs that are not in the evaluator's sample are unwanted."""
        scorer = self.prepared.scorer
        if scorer.sample >= 1:
            return codes
        traces = runs["trace_id"].to_pylist()
        drawn = [is_drawn(self._salt, scorer.name, trace, scorer.sample) for trace in traces]
        return pc.if_else(pa.array(drawn, pa.bool_()), codes, pa.scalar(_UNWANTED, pa.int32()))

    def _reused(
        self, runs: pa.RecordBatch, codes: pa.Array, stored: StoredVerdicts
    ) -> dict[int, Score]:
        """The stored verdicts on the runs' current revisions, by place."""
        scorer = self.prepared.scorer
        columns = (runs["place"], runs["trajectory_id"], runs["rev"], codes)
        reused = {}
        for run_index, name, rev, code in zip(*(c.to_pylist() for c in columns), strict=True):
            score = stored.get((name, scorer.name, scorer.version))
            if score is not None and score.rev == rev and code != _UNWANTED:
                reused[run_index] = score
        return reused

    def _rows(
        self,
        runs: pa.RecordBatch,
        codes: pa.Array,
        results: Sequence[EvaluationResult],
        time_ns: int,
    ) -> pa.Table:
        shared = self.prepared.scorer.shared_fields(time_ns)
        columns = {"place": runs["place"]}
        for column in SCORE_ROWS:
            name = column.name
            if name in shared:
                columns[name] = pa.repeat(pa.scalar(shared[name], column.type), len(runs))
            elif name in runs.schema.names:
                columns[name] = runs[name].cast(column.type)
            else:
                values = pa.array([_value(result, name) for result in results], column.type)
                columns[name] = pc.take(values, codes)
        return pa.table(columns)


def _request_of(prepared: PreparedEvaluator) -> OutlineRequest | None:
    """The columns that decide most runs for an evaluator; None if it reads every run."""
    evaluator, references = prepared.evaluator, prepared.references
    if prepared.concurrency > 1 or evaluator.is_slow or not is_exact(prepared.scorer.where):
        return None
    if references.needs_messages or not has_outline_form(evaluator):
        return None
    request = evaluator.outline_request(references.possible)
    return None if request is None else replace(request, attribute=references.attribute)


@dataclass(frozen=True)
class _PageOutlines:
    """The outlines of a page, and the results of an evaluator on them.

    Attributes:
        decider: The evaluator.
        outlines: The outlines.
        results: The results.
        trees: The results of the runs that arguments decide, by the number of their outline.
    """

    decider: Decider
    outlines: Sequence[Outline]
    results: list[EvaluationResult] = field(default_factory=list)
    trees: dict[int, ArgumentTree] = field(default_factory=dict)

    def code(self, number: int) -> int:
        """The number of the result of an outline's runs, or a code that shows why it has none."""
        outline = self.outlines[number]
        if not outline["is_wanted"]:
            return _UNWANTED
        arguments = CallArguments()
        code = self._evaluate(outline, arguments)
        if code == _UNDECIDED and arguments.asked:
            evaluate = partial(self._evaluate, outline)
            self.trees[number] = ArgumentTree(next(iter(arguments.asked)), evaluate)
            return _OPEN
        return code

    def with_arguments(
        self, page: Page, runs: pa.RecordBatch, numbers: pa.Array, codes: pa.Array
    ) -> pa.Array:
        """The codes of runs, with the codes that arguments decide filled in.

        Args:
            page: The page.
            runs: The runs.
            numbers: The number of each run's outline.
            codes: The codes.
        """
        is_open = pc.equal(codes, _OPEN)
        open_runs = pa.table(runs.select(["trajectory_id", "rev", "place"]).filter(is_open))
        places = open_runs["place"].to_pylist()
        number_at = dict(zip(places, numbers.filter(is_open).to_pylist(), strict=True))
        code_at = dict.fromkeys(places, _UNDECIDED)
        for run_index, messages in page.messages(open_runs):
            number = number_at[run_index]
            arguments = call_arguments(messages, len(self.outlines[number]["roles"]))
            if arguments is not None:
                code_at[run_index] = self.trees[number].result(arguments)
        return pc.replace_with_mask(codes, is_open, pa.array(code_at.values(), pa.int32()))

    def _evaluate(self, outline: Outline, arguments: CallArguments) -> int:
        result = self.decider.result(outline, arguments)
        if result is None:
            return _UNDECIDED
        self.results.append(result)
        return len(self.results) - 1


def _runs_of(groups: pa.Table) -> tuple[pa.RecordBatch, pa.Array]:
    """The runs of outlines by place, and the number of each run's outline.

    If they were ordered by outline, all failures would be adjacent, and a monitor would see a
    dependence.
    """
    lists = groups["runs"].combine_chunks()
    runs = pa.RecordBatch.from_struct_array(lists.flatten())
    order = pc.sort_indices(runs["place"])
    return runs.take(order), pc.list_parent_indices(lists).take(order)


def _value(result: EvaluationResult, name: str) -> object:
    if name == "metadata":
        return dumps(dict(result.metadata))
    value = getattr(result, name)
    # A comment may name a call of the reference, and the name may have half of a surrogate pair.
    return encodable(value) if isinstance(value, str) else value
