"""What the stages of oteval hand to each other: frozen, typed values without I/O.

A **span** and a **log record** are OpenTelemetry's. A **trajectory** is one agent run: the
messages exchanged with the model, from the first up to the run's end. In a chat a run is one
turn, and the trajectory's `messages` also hold the turns before it; `new_from` says where its
own begin. A **gap** names something that the trace does not hold and why. A **score** is one
evaluator's verdict on one trajectory; a score that could not be had has a `status` that says
so and never a number.

Times are nanoseconds since the Unix epoch; ids are lower-case hex, as in OTLP/JSON.
"""

from __future__ import annotations

from .experiment import Dataset, Example, Experiment, Feedback, Run, Vote, example_id, question_of
from .label import Label
from .score import Reference, Score, ScoredRun, Status
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
