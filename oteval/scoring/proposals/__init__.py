"""Proposals for oteval.yaml: stored runs in, entries with their evidence out.

`evidence` reads facts about runs once. `check_proposals` and `references_of_runs` make entries of
them, `learned_rules` chooses the rule that agrees best with labels, `run_verdicts` counts the
verdicts of each entry on the stored runs, and `config_text` writes the file. `proposed_config`
connects them. Only `run_labels` reads the store, and only `recorded_references` reads files.
"""

from __future__ import annotations

from .config_text import PROPOSED_NAME, entry_lines, with_learned
from .evidence import QUESTION, Evidence, read_evidence
from .learned_rules import FewLabels, LabelAgreement, LearnedRule, ReferenceSource, learn_rule
from .proposal import Counts, Proposal
from .proposed_config import ProposedConfig, propose_config, propose_first_config
from .recorded_references import recorded_references, reference_source
from .run_labels import RunLabels, labels_of_runs
from .run_verdicts import with_counts, write_files

__all__ = [
    "PROPOSED_NAME",
    "QUESTION",
    "Counts",
    "Evidence",
    "FewLabels",
    "LabelAgreement",
    "LearnedRule",
    "Proposal",
    "ProposedConfig",
    "ReferenceSource",
    "RunLabels",
    "entry_lines",
    "labels_of_runs",
    "learn_rule",
    "propose_config",
    "propose_first_config",
    "read_evidence",
    "recorded_references",
    "reference_source",
    "with_counts",
    "with_learned",
    "write_files",
]
