"""Decide stored runs by their outlines, many at once, without reading their messages.

The store groups the runs of a page by their outlines. The evaluator is asked once for each outline,
and its result is the score of all runs in the group. If it needs arguments of calls for a comment,
these are read from the messages of each run. Other runs whose outline does not decide are left to
be read as a whole. References, samples and filters are chosen by run, as for runs that are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ..evaluators.outline import CallArguments, Unread, has_outline_form, run_of
from ..evaluators.scorer import is_drawn
from ..jsontext import dumps, encodable
from ..model import EvaluationResult, Outline, OutlineRequest, Score
from ..store import SCORE_ROWS, Store, call_arguments, is_exact
from .argument_tree import ArgumentTree
from .prepared import PreparedEvaluator

__all__ = ["DecidedRuns", "Given", "OutlinedEvaluator", "OutlinedRuns"]

Given = Mapping[tuple[str, str, str], Score]
"""Stored verdicts that are used again, by trajectory id, evaluator and version."""

# Instead of the number of a result: the run must be read; the evaluator does not look at it; or
# arguments of its calls decide.
_UNDECIDED, _UNWANTED, _OPEN = -1, -2, -3


@dataclass(frozen=True)
class OutlinedRuns:
    """The runs of a page by their outlines, before any arguments are read.

    Attributes:
        runs: The runs, by place.
        outlines: The number of each run's outline.
        codes: The number of each run's result, or a negative number.
        results: The results of outlines.
        trees: By outline, the results of runs that arguments decide.
        messages: By outline, the number of messages.
    """

    runs: pa.RecordBatch
    outlines: pa.Array
    codes: pa.Array
    results: list[EvaluationResult]
    trees: Mapping[int, ArgumentTree]
    messages: Sequence[int]

    def open_runs(self) -> pa.Table:
        """Return the id, revision and place of the runs that arguments decide."""
        columns = ["trajectory_id", "rev", "place"]
        return pa.table(self.runs.select(columns).filter(pc.equal(self.codes, _OPEN)))

    def read(self, messages: Iterable[tuple[int, str]]) -> pa.Array:
        """Return the code of each run, with those that arguments decide.

        Args:
            messages: The place and the messages of runs, as the store has them. Those that are
                missing stay undecided.
        """
        if not self.trees:
            return self.codes
        at = {place: index for index, place in enumerate(self.runs["place"].to_pylist())}
        codes = [_UNDECIDED if code == _OPEN else code for code in self.codes.to_pylist()]
        outlines = self.outlines.to_pylist()
        for place, text in messages:
            outline = outlines[at[place]]
            arguments = call_arguments(text, self.messages[outline])
            if arguments is not None:
                codes[at[place]] = self.trees[outline].result(arguments)
        return pa.array(codes, pa.int32())


@dataclass(frozen=True)
class DecidedRuns:
    """The runs of a page as one evaluator sees their outlines. A place is an index on the page.

    Attributes:
        rows: The scores of the decided runs as rows, with the run's ``place``.
        given: The stored verdicts that are used again, by place.
        undecided: The places of the runs that must be read.
        results: The results of outlines.
        codes: The number of each row's result.
    """

    rows: pa.Table
    given: dict[int, Score]
    undecided: set[int]
    results: list[EvaluationResult]
    codes: pa.Array

    def scores(self, *, passes: bool) -> dict[int, Score]:
        """Return the scores of decided runs by place; those that passed only if asked for."""
        wanted = [passes or one.status != "ok" or not one.passed for one in self.results]
        if not any(wanted):
            return {}
        mask = pc.take(pa.array(wanted), self.codes)
        rows, codes = self.rows.filter(mask).to_pylist(), self.codes.filter(mask).to_pylist()
        found = {}
        for row, code in zip(rows, codes, strict=True):
            place = row.pop("place")
            row["comment"] = self.results[code].comment
            row["metadata"] = dict(self.results[code].metadata)
            found[place] = Score(**row)
        return found

    def counts(self, *, passes: bool) -> list[tuple[EvaluationResult, int]]:
        """Return the results that `scores` leaves out, and the number of their runs."""
        counts = Counter(self.codes.to_pylist())
        return [
            (one, counts[code])
            for code, one in enumerate(self.results)
            if not passes and one.status == "ok" and one.passed
        ]


class OutlinedEvaluator:
    """An evaluator that decides runs by their outlines."""

    def __init__(self, one: PreparedEvaluator, request: OutlineRequest, salt: str) -> None:
        self._one, self._request, self._salt = one, request, salt

    @classmethod
    def of(cls, one: PreparedEvaluator, salt: str) -> OutlinedEvaluator | None:
        """Return the outline form of a prepared evaluator, or None if runs must be read for it.

        Args:
            one: The evaluator.
            salt: The text that changes samples.
        """
        evaluator, references = one.evaluator, one.references
        if one.concurrency > 1 or not is_exact(one.scorer.where):
            return None
        if references.needs_messages or not has_outline_form(evaluator):
            return None
        request = evaluator.outline_request(references.known)
        if request is None:
            return None
        return cls(one, replace(request, attribute=references.attribute), salt)

    def read(self, store: Store, keys: pa.Table) -> pa.Table:
        """Return the outlines of the runs of a page, to be given to `decide`.

        Args:
            store: The store.
            keys: The page, of `Trajectories.keys`.
        """
        return store.outlines.read(keys, self._request, self._one.scorer.where)

    def decide_rows(self, store: Store, rows: pa.Table, time_ns: int) -> DecidedRuns:
        """Decide runs that were written just now.

        Args:
            store: The store.
            rows: Their rows.
            time_ns: The time of the scores.
        """
        groups = store.outlines.of_rows(rows, self._request, self._one.scorer.where)
        found = self.look(groups)
        places = found.open_runs()["place"]
        messages = rows["messages"].take(places).to_pylist() if len(places) else ()
        open_runs = zip(places.to_pylist(), messages, strict=True)
        return self.decide(found, open_runs, len(rows), time_ns, {})

    def look(self, groups: pa.Table) -> OutlinedRuns:
        """Evaluate the outlines of a page.

        Args:
            groups: The outlines, of `read`.
        """
        results: list[EvaluationResult] = []
        trees: dict[int, ArgumentTree] = {}
        codes = []
        outlines = groups.drop_columns(["runs"]).to_pylist()
        for number, outline in enumerate(outlines):
            code = _UNWANTED
            if outline["is_wanted"]:
                arguments = CallArguments()
                code = self._evaluated(outline, results, arguments)
                if code == _UNDECIDED and arguments.asked:
                    code, asked = _OPEN, next(iter(arguments.asked))
                    evaluate = partial(self._evaluated, outline, results)
                    trees[number] = ArgumentTree(asked, evaluate)
            codes.append(code)
        lists = groups["runs"].combine_chunks()
        runs = pa.RecordBatch.from_struct_array(lists.flatten())
        # In the order of the runs: in that of their outlines, all failures would stand together,
        # and a monitor would take that for dependence.
        order = pc.sort_indices(runs["place"])
        numbers = pc.list_parent_indices(lists).take(order)
        runs = runs.take(order)
        found = self._drawn(runs, pc.take(pa.array(codes, pa.int32()), numbers))
        return OutlinedRuns(
            runs, numbers, found, results, trees, [len(outline["roles"]) for outline in outlines]
        )

    def decide(
        self,
        outlined: OutlinedRuns,
        messages: Iterable[tuple[int, str]],
        count: int,
        time_ns: int,
        given: Given,
    ) -> DecidedRuns:
        """Decide the runs of a page.

        Args:
            outlined: Their outlines, of `look`.
            messages: The messages of the runs that arguments decide, as for `OutlinedRuns.read`.
            count: The number of runs.
            time_ns: The time of the scores.
            given: Stored verdicts to use again.
        """
        runs, results, found = outlined.runs, outlined.results, outlined.read(messages)
        used = self._used(runs, found, given) if given else {}
        done = {*runs["place"].filter(pc.not_equal(found, _UNDECIDED)).to_pylist(), *used}
        mask = pc.greater_equal(found, 0)
        if used:
            mask = pc.and_(mask, pc.invert(pc.is_in(runs["place"], pa.array(used, pa.int32()))))
        kept = found.filter(mask)
        return DecidedRuns(
            self._rows(runs.filter(mask), kept, results, time_ns),
            used,
            set(range(count)) - done,
            results,
            kept,
        )

    def _evaluated(
        self, outline: Outline, results: list[EvaluationResult], arguments: CallArguments
    ) -> int:
        """Evaluate an outline, add the result, and return its number; or that there is none."""
        result = self._result(outline, arguments)
        if result is None:
            return _UNDECIDED
        results.append(result)
        return len(results) - 1

    def _result(self, outline: Outline, arguments: CallArguments) -> EvaluationResult | None:
        try:
            run = run_of(outline, arguments, self._request.attribute)
            reference, problem = self._one.references.of(run)
        except Unread:
            return None
        return self._one.scorer.outlined_result(run, outline, reference, problem)

    def _drawn(self, runs: pa.RecordBatch, codes: pa.Array) -> pa.Array:
        """Return the codes; runs that are not in the evaluator's sample are unwanted."""
        scorer = self._one.scorer
        if scorer.sample >= 1:
            return codes
        traces = runs["trace_id"].to_pylist()
        drawn = [is_drawn(self._salt, scorer.name, trace, scorer.sample) for trace in traces]
        return pc.if_else(pa.array(drawn, pa.bool_()), codes, pa.scalar(_UNWANTED, pa.int32()))

    def _used(self, runs: pa.RecordBatch, codes: pa.Array, given: Given) -> dict[int, Score]:
        """Return the stored verdicts on the runs' current revisions, by place."""
        scorer = self._one.scorer
        columns = (runs["place"], runs["trajectory_id"], runs["rev"], codes)
        found = {}
        for place, name, rev, code in zip(*(c.to_pylist() for c in columns), strict=True):
            score = given.get((name, scorer.name, scorer.version))
            if score is not None and score.rev == rev and code != _UNWANTED:
                found[place] = score
        return found

    def _rows(
        self,
        runs: pa.RecordBatch,
        codes: pa.Array,
        results: list[EvaluationResult],
        time_ns: int,
    ) -> pa.Table:
        scorer = self._one.scorer
        shared = {
            "evaluator": scorer.name,
            "version": scorer.version,
            "sample_p": scorer.sample,
            "time_ns": time_ns,
        }
        columns = {"place": runs["place"]}
        for field in SCORE_ROWS:
            if field.name in shared:
                column = pa.repeat(pa.scalar(shared[field.name], field.type), len(runs))
            elif field.name in runs.schema.names:
                column = runs[field.name].cast(field.type)
            else:
                values = [_column(result, field.name) for result in results]
                column = pc.take(pa.array(values, field.type), codes)
            columns[field.name] = column
        return pa.table(columns)


def _column(result: EvaluationResult, name: str) -> object:
    if name == "metadata":
        return dumps(dict(result.metadata))
    value = getattr(result, name)
    # A comment may name a call of the reference whose name has half of a surrogate pair.
    return encodable(value) if isinstance(value, str) else value
