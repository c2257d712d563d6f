"""The pipeline: functions that connect the stages, for the command line and other programs.

- `load` reads files into a store; `refresh` reconstructs the trajectories of new spans, and
  `explain` shows how each span of a trace was used.
- `score` runs the evaluators of a configuration; `check_gates` compares the results with its gates.
  `variants` groups runs by the tools that they called.
- `export_jsonl` and `export_parquet` write a store's contents to files.
- `plan_deletion` and `delete_traces` delete traces; `delete_expired` and `archive_due` apply the
  retention periods of a configuration.

Each stage owns its logic. This package only connects the stages, and decides which stored verdicts
are used again. The classes and functions of `oteval.evaluators` and `oteval.reconstruct` in
`__all__` are part of the results of these functions, or of the views on them.
"""

import lazy_loader

# Commands that only start a program, or print a report without a database, need few of them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
