"""Recordings of agents with `@oteval.tool`, made of the spans that their runs write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import oteval
from oteval.model import Recording, Span
from oteval.reconstruct import reconstruct
from oteval.replays.recordings import recording_of
from oteval.store import StoredSession

__all__ = ["recorded_agent", "recording_of_spans"]


def recorded_agent(agent: Callable[[], Any]) -> Recording:
    """Run an agent, and return the recording of its spans; an exception of the agent is ignored."""
    with oteval.capture() as captured, suppress(BaseException):
        agent()
    return recording_of_spans(captured.spans)


def recording_of_spans(spans: list[Span]) -> Recording:
    """Return the recording that the spans of one session make up."""
    members = tuple(trajectory.id for trajectory in reconstruct(spans, []))
    traces = tuple(dict.fromkeys(span.trace_id for span in spans))
    return recording_of(StoredSession("session-1", "trace", members, traces), spans, [])
