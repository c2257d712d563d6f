"""Experiments: a system run on a dataset, judged, kept, and compared with others.

`evaluate` runs one, `compare` holds two against each other by their scores (statistics only), and
`evaluate_comparative` by asking which run of an example is better. All is kept in the store, and
goes on where it was when it is resumed.
"""

from __future__ import annotations

from ..model import Dataset, Example, Experiment, Feedback, Run, Vote
from .comparative import ComparativeResults, aevaluate_comparative, evaluate_comparative
from .comparing import Comparison, Difference, compare, compare_experiments
from .datasets import (
    dataset_from_references,
    dataset_from_trajectories,
    dataset_of,
    make_dataset,
    read_dataset,
)
from .evaluators import configured, evaluators_of
from .progress import Progress
from .results import ExperimentResults, Figure, ResultRow, load_experiment
from .running import aevaluate, evaluate
from .votes import Pair, Standing

__all__ = [
    "ComparativeResults",
    "Comparison",
    "Dataset",
    "Difference",
    "Example",
    "Experiment",
    "ExperimentResults",
    "Feedback",
    "Figure",
    "Pair",
    "Progress",
    "ResultRow",
    "Run",
    "Standing",
    "Vote",
    "aevaluate",
    "aevaluate_comparative",
    "compare",
    "compare_experiments",
    "configured",
    "dataset_from_references",
    "dataset_from_trajectories",
    "dataset_of",
    "evaluate",
    "evaluate_comparative",
    "evaluators_of",
    "load_experiment",
    "make_dataset",
    "read_dataset",
]
