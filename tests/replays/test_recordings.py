"""Recordings of stored sessions: their calls, tools, inputs and gaps, from any dialect's spans."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import NotFound
from oteval.ingest import read
from oteval.model import LogRecord, Message, Span, Trajectory
from oteval.model.recording import Recording
from oteval.reconstruct import reconstruct
from oteval.replays.recordings import read_recording, read_recordings, recording_of
from oteval.replays.request_key import difference, key_of
from oteval.scoring import refresh
from oteval.store import Store, StoredSession
from tests.make import ALL_WHEN_SLOW, CAPTURES, ROOT, capture

DATA = ROOT / "tests" / "data"
OTHERS = sorted(
    path
    for folder in ("frameworks", "shapes")
    for path in (DATA / folder).glob("*.json")
    if not path.name.endswith(".logs.json") and path.stem not in ("expected", "truth")
)
# Reasons why a recording has fewer answers than its trajectory has assistant messages.
UNKNOWN = {
    # The history of the first model call has a turn, or its beginning, that no trace has.
    "ai_sdk_parts_genai": "came from no recorded model call",
    "claude_agent_sdk_openinference": "the trace has no model calls",
    "fastmcp_native": "the trace has no model calls",
    "gemini_parts": "came from no recorded model call",
    "genai_openai_chat_nocontent": "content_not_captured",
    "genai_truncated_250": "content_truncated",
    "google_adk_native": "content_not_captured",
    "haystack_pipeline_openinference": "the trace has no model calls",
    "instructor_parallel_openinference": "content_not_captured",
    "openinference_attrcount_28": "attributes_dropped",
    "openinference_hidden": "redacted",
    "responses_items_genai": "came from no recorded model call",
    "responses_items_langfuse": "came from no recorded model call",
    # A client that runs tools itself has one span around several answers of the model.
    "tool_below_model": "came from no recorded model call",
}


def stored(store: Store, spans: list[Span], logs: list[LogRecord]) -> list[str]:
    """Store spans and log records, and return the ids of the traces with trajectories."""
    store.spans.write(spans, logs)
    refresh(store)
    return list(
        dict.fromkeys(trajectory.root_span.trace_id for trajectory in store.trajectories.read())
    )


def files(path: Path) -> tuple[list[Span], list[LogRecord]]:
    """Return the spans and log records of a capture's files."""
    paths = [path, path.with_name(f"{path.stem}.logs.json")]
    batches = [batch for path in paths if path.exists() for batch in read(path)]
    return [s for b in batches for s in b.spans], [r for b in batches for r in b.logs]


def without_store(
    spans: list[Span], logs: list[LogRecord]
) -> tuple[list[Trajectory], list[Recording]]:
    """Return the trajectories, and the recording of each trace that has trajectories."""
    trajectories = reconstruct(spans, logs)
    sessions: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        sessions.setdefault(trajectory.root_span.trace_id, []).append(trajectory)
    traces = tuple({span.trace_id for span in spans})
    return trajectories, [
        recording_of(
            StoredSession(name, "trace", tuple(member.id for member in members), traces),
            spans,
            logs,
        )
        for name, members in sessions.items()
    ]


def answer_counts(messages: list[Message]) -> Counter[Any]:
    """Count the messages of the assistant by text and tools."""
    return Counter(
        (message.content or "", tuple(call.name for call in message.tool_calls))
        for message in messages
        if message.role == "assistant"
    )


def check(name: str, runs: list[Trajectory], recordings: list[Recording]) -> None:
    """Check that recordings have the answers of their trajectories, or say why they do not."""
    trajectories = {trajectory.id: trajectory for trajectory in runs}
    reasons = " ".join(reason for recording in recordings for reason in recording.reasons)
    assert UNKNOWN.get(name, "") in reasons
    for recording in recordings:
        own = [
            m
            for trajectory_id in recording.trajectory_ids
            for m in trajectories[trajectory_id].own_messages
        ]
        answers = [call.answer for call in recording.model_calls if call.answer]
        if name in UNKNOWN:
            assert answer_counts(answers) <= answer_counts(own)
        else:
            assert answer_counts(answers) == answer_counts(own)
        requested = Counter(call.name for message in own for call in message.tool_calls)
        assert requested <= Counter(call.name for call in recording.tool_calls)
        starts = [call.start_ns for call in recording.model_calls]
        assert starts == sorted(starts)
        for call in recording.model_calls:
            assert call.answer or call.error or call.span_id in " ".join(recording.reasons)
        assert recording.fidelity == "semconv"


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
def test_recorded_answers_are_the_messages_of_the_trajectory(name: str) -> None:
    """Every capture gives recordings, whichever framework wrote it."""
    check(name, *without_store(*capture(name)))


@pytest.mark.slow
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_other_captures_give_recordings_too(path: Path) -> None:
    """The captures of frameworks, and the files with single shapes of spans."""
    check(path.stem, *without_store(*files(path)))


def test_sub_agents_belong_to_the_session(store: Store) -> None:
    """A manager's recording has the calls of its sub-agent and the tool that ran it."""
    stored(store, *capture("openai_agents_genai_plus_llm"))
    manager = next(
        trajectory for trajectory in store.trajectories.read() if trajectory.agent == "manager"
    )

    recording = read_recording(store, manager.id[:12])

    assert recording.session == manager.id
    assert len(recording.trajectory_ids) == 2
    assert len(recording.model_calls) == 4
    tools = {(call.name, call.runs_agent) for call in recording.tool_calls}
    assert {name for name, runs_agent in tools if not runs_agent} == {"get_weather_tool"}
    assert any(runs_agent for _, runs_agent in tools)
    assert len(recording.inputs) == 1
    assert recording.reasons[0].startswith("all model calls are rebuilt from spans (genai)")


def test_a_conversation_has_all_turns(store: Store) -> None:
    """Turns come in order; tools have the arguments and results that the model saw."""
    stored(store, *capture("openinference_chat"))
    turns = [trajectory for trajectory in store.trajectories.read() if trajectory.agent]
    conversation = turns[0].conversation_id

    recording = read_recording(store, conversation)

    assert recording.session == conversation
    assert recording.trajectory_ids == tuple(turn.id for turn in turns)
    assert [text[:12] for text in recording.inputs] == [
        (turn.question.content or "")[:12] for turn in turns if turn.question
    ]
    paris, tokyo, order = recording.tool_calls
    assert (paris.arguments["city"], tokyo.arguments["city"]) == ("Paris", "Tokyo")
    assert '"temp_c": 21' in (paris.result or "")
    assert order.name == "lookup_order"
    assert order.is_error
    assert paris.start_ns < paris.end_ns


def test_failed_calls_keep_their_error(store: Store) -> None:
    """A call that failed has an error and no answer."""
    stored(store, *capture("genai_openai_chat"))
    failed = next(trajectory for trajectory in store.trajectories.read() if not trajectory.agent)
    (call,) = read_recording(store, failed.id).model_calls
    assert call.answer is None
    assert "Connection" in call.error


def test_histories_that_the_spans_leave_out_are_completed(store: Store) -> None:
    """With ``previous_response_id`` a span has only new messages; the request has them all."""
    (trace,) = stored(store, *capture("genai_openai_responses_prev_id"))
    calls = read_recording(store, trace).model_calls
    assert [message.role for message in calls[1].request.messages] == [
        *("system", "user", "assistant", "tool", "tool")
    ]
    assert calls[1].request.messages[2].tool_calls[0].name == "get_weather"


def test_requests_are_found_again_by_their_keys(store: Store) -> None:
    """Each request of a session differs from the others, and equals itself."""
    stored(store, *capture("langgraph_openinference"))
    for trajectory in store.trajectories.read():
        calls = read_recording(store, trajectory.id).model_calls
        keys = [key_of(call.request) for call in calls]
        assert len(set(keys)) == len(keys)
        assert [difference(key, key) for key in keys] == [None] * len(keys)


def test_names_of_sessions(store: Store) -> None:
    """The beginning of an id is enough; several candidates are listed."""
    stored(store, *capture("genai_openai_chat"))
    trajectories = list(store.trajectories.read())
    trace = trajectories[0].root_span.trace_id
    assert read_recording(store, trace[:20]).session == trace
    with pytest.raises(NotFound, match="no trajectory, trace or conversation 'zzz'"):
        read_recording(store, "zzz")
    with pytest.raises(NotFound, match="no trajectory"):
        read_recording(store, "")
    several = read_recordings(store, [trajectory.id for trajectory in trajectories])
    assert [recording.session for recording in several] == [
        trajectory.id for trajectory in trajectories
    ]
    ids = sorted(trajectory.id for trajectory in trajectories)
    shared = next((i[0] for i, j in itertools.pairwise(ids) if i[0] == j[0]), "")
    if shared:
        with pytest.raises(NotFound, match="means several trajectories"):
            read_recording(store, shared)


def test_all_captures_are_known() -> None:
    """Every capture that is listed as incomplete exists."""
    assert set(UNKNOWN) <= {*CAPTURES, *(path.stem for path in OTHERS)}
