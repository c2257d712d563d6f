"""Score traces on Apache Spark: `trajectories` and `score` take and return data frames.

It needs the extra ``oteval[spark]`` and Java 17 or later. Importing this package needs neither.
"""

from .scores import score, trajectories

__all__ = ["score", "trajectories"]
