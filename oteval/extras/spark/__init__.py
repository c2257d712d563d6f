"""Score traces on Apache Spark: `read_traces` and `score` make data frames, `score_files` a folder.

It needs the extra ``oteval[spark]`` and Java 17 or later. Importing this package needs neither.
"""

from .columns import FIELDS
from .job import score_files
from .output import Output, write_results
from .scores import Scored, score, trajectories
from .sources import FileProblems, Traces, map_columns, read_traces

__all__ = [
    "FIELDS",
    "FileProblems",
    "Output",
    "Scored",
    "Traces",
    "map_columns",
    "read_traces",
    "score",
    "score_files",
    "trajectories",
    "write_results",
]
