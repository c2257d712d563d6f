"""A store with runs of every outcome, and a client of the pages that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oteval.model import Gap, Message, Score, SpanRef, ToolCall, Trajectory, Usage
from oteval.store import Store
from oteval.views.pages.access import PageAccess
from oteval.views.pages.app import create_app
from oteval.views.pages.site import Site

START = 1_795_000_000_000_000_000
SECOND = 10**9

ShowPages = Callable[..., TestClient]


def run(
    number: int,
    question: str = "Where is my order?",
    agent: str = "shop",
    messages: Sequence[Message] = (),
    **fields: object,
) -> Trajectory:
    """Return a run with a call, a result and an answer, begun a second after the one before."""
    call = ToolCall("get_order", {"id": "4711"}, id="c1")
    own = (
        Message("user", question),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", '{"state": "sent"}', tool_call_id="c1"),
        Message("assistant", "It is on its way."),
    )
    values: dict[str, object] = {
        "service": "web",
        "models": ("gpt-5-mini",),
        "usage": Usage(1000, 100, 0, 2),
        "start_ns": START + number * SECOND,
        "end_ns": START + number * SECOND + SECOND // 2,
    }
    return Trajectory(
        f"{number:016x}",
        SpanRef(f"{number:032x}", f"{number:016x}"),
        trace_ids=(f"{number:032x}",),
        tail=tuple(messages or own),
        agent=agent,
        **{**values, **fields},  # type: ignore[arg-type]
    )


def score(trajectory: Trajectory, evaluator: str, **fields: object) -> Score:
    """Return a score of a run; without `fields` it is a pass."""
    values: dict[str, object] = {"status": "ok", "passed": True, "score": 1.0, **fields}
    return Score(
        trajectory_id=trajectory.id,
        trace_id=trajectory.root_span.trace_id,
        span_id=trajectory.root_span.span_id,
        evaluator=evaluator,
        version="v1",
        time_ns=START,
        **values,  # type: ignore[arg-type]
    )


def put(store: Store, *runs: Trajectory) -> None:
    """Write runs to a store."""
    store.trajectories.write(runs, [one.root_span.trace_id for one in runs])


@pytest.fixture
def shop(store: Store) -> Store:
    """Return a store with four runs: a pass, a fail, one not evaluated, and one without a score."""
    runs = [
        run(1),
        run(2, "Refund my <b>headphones</b>"),
        run(3, "Cancel it", gaps=(Gap("redacted", "set KEEP=1", "0" * 16),)),
        run(4, "Say hello", agent="greeter"),
    ]
    put(store, *runs)
    store.scores.write(
        [
            score(runs[0], "calls"),
            score(
                runs[1],
                "calls",
                passed=False,
                score=0.0,
                comment="call 0 get_order({'id': '4711'}) must not be made",
            ),
            score(runs[1], "tone"),
            score(runs[2], "calls", status="not_evaluated", passed=None, score=None, comment="cut"),
        ]
    )
    return store


@pytest.fixture
def pages() -> Iterator[ShowPages]:
    """Return a function that returns a client of the pages of a store."""
    sites: list[Site] = []

    def show(
        store: Store, config: Path | None = None, access: PageAccess | None = None
    ) -> TestClient:
        site = Site("test", store.sibling, config, clock=lambda: START + 60 * SECOND)
        sites.append(site)
        application = create_app(site, access)
        return TestClient(application, base_url="http://127.0.0.1", follow_redirects=False)

    yield show
    for site in sites:
        site.close()
