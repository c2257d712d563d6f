"""The prompts that come with oteval, a text file each, in this folder.

Each shows ``{inputs}``, ``{outputs}`` (graphs: ``{thread}``), ``{reference_outputs}`` where it has
one, and ``{rubric}``, which is empty unless the evaluator is called with ``rubric=``.
"""

from __future__ import annotations

from importlib import resources

__all__ = [
    "GRAPH_TRAJECTORY_ACCURACY_PROMPT",
    "PROMPTS",
    "TRAJECTORY_ACCURACY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
]


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.txt").read_text("utf-8")


TRAJECTORY_ACCURACY_PROMPT = _text("trajectory_accuracy")
TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE = _text("trajectory_accuracy_with_reference")
GRAPH_TRAJECTORY_ACCURACY_PROMPT = _text("graph_trajectory_accuracy")

PROMPTS = {
    "trajectory_accuracy": TRAJECTORY_ACCURACY_PROMPT,
    "trajectory_accuracy_with_reference": TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    "graph_trajectory_accuracy": GRAPH_TRAJECTORY_ACCURACY_PROMPT,
}
"""The prompts by the name that ``prompt:`` in oteval.yaml takes."""
