"""oteval: its trajectories and their gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from oteval.ingest import read as read_file
from oteval.reconstruct import reconstruct


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the trajectories and the gaps."""
    batches = [batch for path in paths for batch in read_file(path)]
    spans = [span for batch in batches for span in batch.spans]
    logs = [log for batch in batches for log in batch.logs]
    yield shown(reconstruct(spans, logs))


def shown(trajectories: Sequence[Any]) -> dict[str, Any]:
    """Return the messages and the gaps of trajectories."""
    notes = [f"{gap.code}: {gap.detail}" for each in trajectories for gap in each.gaps]
    runs = [[_message(message) for message in each.messages] for each in trajectories]
    return {"runs": runs, "notes": notes}


def _message(message: Any) -> dict[str, Any]:
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {
        "role": message.role,
        "content": message.content,
        "calls": calls,
        "call_id": message.tool_call_id,
        "is_error": message.is_error,
    }
