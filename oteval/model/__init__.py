"""The values that the stages of oteval pass to each other: frozen, typed, without I/O.

- A **span** and a **log record** are OpenTelemetry's (`telemetry`).
- A **trajectory** is one agent run: the messages exchanged with the model. In a conversation, a run
  is one turn; its `messages` include those of previous turns, and its first new message has the
  index `new_from`. A **gap** is something that a trace does not contain, with the reason
  (`trajectory`).
- A **score** is one evaluator's verdict on one trajectory. Without a verdict, its `status` has the
  reason, and it never has a number. A **reference** is the expected trajectory, and a **label** is
  a person's verdict (`score`).
- A **dataset** has **examples**, an **experiment** runs a system on them, and **feedback** is one
  evaluator's verdict on a **run** of an experiment (`experiment`).

Times are nanoseconds since the Unix epoch, durations nanoseconds. Ids are lower-case hex, as in
OTLP/JSON.
"""

from __future__ import annotations

from .experiment import Dataset, Example, Experiment, Feedback, Run, Vote, example_id, question_of
from .score import EvaluationResult, Label, Reference, Score, ScoredRun, Status
from .telemetry import Attributes, Event, Link, LogRecord, Span
from .trajectory import (
    Gap,
    Message,
    Rewrite,
    Role,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
    trajectory_id,
)

__all__ = [
    "Attributes",
    "Dataset",
    "EvaluationResult",
    "Event",
    "Example",
    "Experiment",
    "Feedback",
    "Gap",
    "Label",
    "Link",
    "LogRecord",
    "Message",
    "Reference",
    "Rewrite",
    "Role",
    "Run",
    "Score",
    "ScoredRun",
    "Span",
    "SpanRef",
    "Status",
    "ToolCall",
    "Trajectory",
    "Usage",
    "Vote",
    "example_id",
    "question_of",
    "trajectory_id",
]
