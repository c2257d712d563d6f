"""The graph trajectory match evaluators, with the names and call shapes of agentevals.

They compare the nodes that ran, turn by turn, and ignore the inputs and results of the turns.
Turns are compared by number, from 0. A side with fewer turns has no nodes in the turns that it
lacks. **strict** requires the same number of turns, and in each turn the same nodes at the same
places. The other modes compare the nodes of each turn as the modes of a message trajectory compare
calls. **superset** requires at least the reference's nodes as a multiset, **subset** at most,
**unordered** both. **in_order** requires the reference's nodes in their order.

The figures count nodes as the figures of `comparison` count calls. An alignment pairs indexes of
nodes, counted over all turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any, ClassVar

from ...model import EvaluationResult, Reference
from ..assignment import in_order, longest_order, match_equal
from ..call_pairs import Pairs, unpaired
from ..comparison import Verdict
from ..evaluator import EvaluationContext, NotEvaluated, ReferenceOption
from ..factories import AsyncEvaluator, as_async, async_variant, with_options_of
from ..match import FigureMatch, ScoreType
from ..options import InConfig, Share
from ..spec import Mode
from .forms import Turns, read_turns

__all__ = [
    "GraphMatch",
    "compare_turns",
    "create_async_graph_trajectory_match_evaluator",
    "create_graph_trajectory_match_evaluator",
    "graph_trajectory_strict_match",
    "graph_trajectory_strict_match_async",
]

_LISTED = 3


def compare_turns(out: Turns, ref: Turns, mode: Mode) -> tuple[Verdict, int | None]:
    """Compare the turns of two graph trajectories.

    Args:
        out: The output's nodes by turn.
        ref: The reference's nodes by turn.
        mode: How the nodes of a turn are compared.

    Returns:
        The verdict, and the first turn that differs, or None for a pass.
    """
    alignment: Pairs = []
    first, reasons = None, []
    before_out = before_ref = 0
    for turn, (lefts, rights) in enumerate(zip_longest(out, ref)):
        pairs = _PAIRS[mode](lefts or [], rights or [])
        why = _reason(mode, lefts, rights, pairs)
        if why is not None:
            first = turn if first is None else first
            reasons.append(f"turn {turn}: {why}")
        alignment += [(before_out + i, before_ref + j) for i, j in pairs]
        before_out += len(lefts or ())
        before_ref += len(rights or ())
    matched = len(alignment)
    comment = _comment(mode, reasons, len(out), len(ref)) if reasons else None
    missing, extra = before_ref - matched, before_out - matched
    return Verdict(not reasons, comment, matched, missing, extra, alignment), first


def _comment(mode: Mode, reasons: Sequence[str], turns: int, reference_turns: int) -> str:
    counts = (
        ""
        if turns == reference_turns
        else f" ({_many(turns, 'turn')} against the reference's {reference_turns})"
    )
    if mode == "strict":
        return reasons[0] + counts
    more = f"; and {len(reasons) - _LISTED} more turns" if len(reasons) > _LISTED else ""
    return "; ".join(reasons[:_LISTED]) + more + counts


def _same_place(lefts: Sequence[str], rights: Sequence[str]) -> Pairs:
    node_pairs = enumerate(zip(lefts, rights, strict=False))
    return [(index, index) for index, (left, right) in node_pairs if left == right]


def _any_order(lefts: Sequence[str], rights: Sequence[str]) -> Pairs:
    return match_equal(enumerate(lefts), enumerate(rights))


def _same_order(lefts: Sequence[str], rights: Sequence[str]) -> Pairs:
    pairs = in_order(
        range(len(lefts)), range(len(rights)), lambda i, j: bool(lefts[i] == rights[j])
    )
    if pairs is not None:
        return pairs
    places: dict[str, int] = {}
    for index, node in enumerate(lefts):
        places[node] = places.get(node, 0) | 1 << index
    return longest_order([places.get(node, 0) for node in rights])


_PAIRS: dict[Mode, Callable[[Sequence[str], Sequence[str]], Pairs]] = {
    "strict": _same_place,
    "unordered": _any_order,
    "subset": _any_order,
    "superset": _any_order,
    "in_order": _same_order,
}


def _reason(
    mode: Mode, lefts: Sequence[str] | None, rights: Sequence[str] | None, pairs: Pairs
) -> str | None:
    """Why one turn differs, or None if it does not; a side without the turn is None."""
    if mode == "strict":
        return _first_place(lefts, rights)
    lefts, rights = lefts or [], rights or []
    extra, missing = unpaired(pairs, range(len(lefts)), range(len(rights)))
    parts = []
    if missing and mode == "in_order" and len(_any_order(lefts, rights)) == len(rights):
        names = _names([rights[j] for j in missing])
        return f"every node runs, but not in the reference's order: {names}"
    if missing and mode != "subset":
        parts.append(_listed("missing", [rights[j] for j in missing]))
    if extra and mode in ("unordered", "subset"):
        parts.append(_listed("extra", [lefts[i] for i in extra]))
    return "; ".join(parts) or None


def _first_place(lefts: Sequence[str] | None, rights: Sequence[str] | None) -> str | None:
    if lefts is None or rights is None:
        side, nodes = ("output", rights) if lefts is None else ("reference", lefts)
        return f"the {side} ends where the other side goes on with {_names(nodes or [])}"
    for index, (left, right) in enumerate(zip_longest(lefts, rights)):
        if left == right:
            continue
        counts = f" ({_many(len(lefts), 'node')} against the reference's {len(rights)})"
        counts = "" if len(lefts) == len(rights) else counts
        if left is None or right is None:
            side = "output" if left is None else "reference"
            went = _cut(left or right or "")
            why = f"the {side}'s turn ends where the other side goes on with {went}"
        else:
            why = f"{_cut(left)} in the output, {_cut(right)} in the reference"
        return f"node {index}: {why}{counts}"
    return None


def _listed(what: str, nodes: Sequence[str]) -> str:
    return f"{what} {_many(len(nodes), 'node')}: {_names(nodes)}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _names(nodes: Sequence[str]) -> str:
    if not nodes:
        return "a turn without nodes"
    more = f" and {len(nodes) - _LISTED} more" if len(nodes) > _LISTED else ""
    return ", ".join(_cut(node) for node in nodes[:_LISTED]) + more


def _cut(node: str) -> str:
    text = repr(node)
    return text if len(text) <= 80 else f"{text[:79]}…"


@dataclass(frozen=True, kw_only=True)
class GraphMatch(FigureMatch):
    """Compares the nodes of a graph that ran with a reference's, turn by turn.

    Attributes:
        trajectory_match_mode: How the nodes of each turn are compared: ``strict``, ``unordered``,
            ``subset``, ``superset`` or ``in_order``.
        score_type: The score: ``bool``, or the figure ``f1``, ``recall`` or ``precision``.
        threshold: The lowest score with which a stored run passes, unless `score_type` is ``bool``.
    """

    type: ClassVar[str] = "graph_match"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "A JSON file with steps, {trajectory: ID}, {name: NAME}, {dataset, key}, or {any: [...]} "
        "of these, of which the best match counts.",
        is_required=True,
        form="steps",
        accepts_several=True,
    )
    # Nodes are known even if messages were not captured.
    needs_messages: ClassVar[bool] = False
    reads_outputs: ClassVar[bool] = True

    trajectory_match_mode: Annotated[Mode, InConfig("mode")] = "strict"
    score_type: ScoreType = "bool"
    threshold: Share = 1.0

    @property
    def key(self) -> str:
        """The score's name in results."""
        return self.feedback_key or f"graph_trajectory_{self.trajectory_match_mode}_match"

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the nodes of a run with its reference's.

        A caller may pass both in any form of `oteval.evaluators.graph.forms`. The metadata has the
        figures of a match of calls, how many ``turns`` the two sides have, and the first turn that
        differs (``turn``, or None).

        Raises:
            InputError: A side cannot be read as a graph trajectory; the text names the place.
            NotEvaluated: The run or its reference has no nodes.
        """
        if context.is_call:
            reference_turns = read_turns(context.reference_outputs, "reference_outputs")
            turns = read_turns(context.outputs, "outputs")
        else:
            reference_turns, turns = _reference_turns(context.reference), _turns(context)
        verdict, turn = compare_turns(turns, reference_turns, self.trajectory_match_mode)
        return self.result_of(verdict, turns=[len(turns), len(reference_turns)], turn=turn)

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        return {
            "type": self.type,
            "key": self.key,
            "mode": self.trajectory_match_mode,
            "score_type": self.score_type,
        }


def _reference_turns(reference: Reference | None) -> Turns:
    if reference is None:
        raise NotEvaluated("there is no reference")
    if reference.steps is None:
        raise NotEvaluated(f"the reference {reference.name} has no steps")
    return [list(turn) for turn in reference.steps]


def _turns(context: EvaluationContext) -> Turns:
    turns: Turns = []
    for run in context.runs:
        nodes = [node for step in run.steps for node in step]
        if not nodes:
            raise NotEvaluated(f"the trace of run {run.id} shows no nodes and names no agent")
        turns.append(nodes)
    return turns


@with_options_of(GraphMatch)
def create_graph_trajectory_match_evaluator(**options: Any) -> GraphMatch:
    """Create an evaluator that compares the nodes of a graph trajectory with a reference's.

    Args:
        **options: The options of `GraphMatch`.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return GraphMatch(**options)


@with_options_of(GraphMatch)
def create_async_graph_trajectory_match_evaluator(**options: Any) -> AsyncEvaluator[GraphMatch]:
    """Create a coroutine function that compares the nodes of a graph with a reference's.

    Args:
        **options: The options of `GraphMatch`.

    Returns:
        The evaluator; its ``evaluator`` attribute contains the configuration.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return as_async(GraphMatch(**options))


_STRICT = GraphMatch()


def graph_trajectory_strict_match(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> dict[str, Any]:
    """Compare two graph trajectories node by node.

    Args:
        outputs: The graph trajectory.
        reference_outputs: The expected graph trajectory.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side cannot be read as a graph trajectory; the text names the place.
    """
    return _STRICT(outputs=outputs, reference_outputs=reference_outputs, **extra)


graph_trajectory_strict_match_async = async_variant(graph_trajectory_strict_match)
