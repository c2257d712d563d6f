"""Experiments: run a system on a dataset, evaluate and store its runs, and compare experiments.

`evaluate` runs an experiment. `compare` compares two experiments by their scores, with statistics
only; `evaluate_comparative` asks which run of an example is better. Everything is stored as it
happens, so that an experiment can be resumed.
"""

from __future__ import annotations

from ...model import Dataset, Example, Experiment, Feedback, Run, Vote
from .comparative import ComparativeResults, aevaluate_comparative, evaluate_comparative
from .comparison import Comparison, Difference, compare, compare_experiments
from .datasets import (
    dataset_from_references,
    dataset_from_trajectories,
    dataset_of,
    dataset_with_run,
    is_dataset_file,
    make_dataset,
    read_dataset,
)
from .experiment import aevaluate, evaluate
from .results import ExperimentResults, Figure, ResultRow, load_experiment
from .run_evaluators import configured, evaluators_of
from .run_options import Progress
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
    "dataset_with_run",
    "evaluate",
    "evaluate_comparative",
    "evaluators_of",
    "is_dataset_file",
    "load_experiment",
    "make_dataset",
    "read_dataset",
]
