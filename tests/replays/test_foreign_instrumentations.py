"""Replays of sessions that other instrumentations of the openai client recorded.

OpenLLMetry's is not in the locked environment: `make test-openllmetry` installs it. The two are
never on in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.model import Recording

from .foreign import ANSWER, APIS, NOWHERE, PARCELS, SYSTEM, ask, record, shop

REASON = "all model calls are rebuilt from spans ({}): no HTTP exchange was recorded"


class Foreign(NamedTuple):
    """An instrumentation: its package, and the dialect of its spans."""

    package: str
    dialect: str

    def instrumentor(self) -> Any:
        """Return the instrumentation of the openai client."""
        return import_module(self.package).OpenAIInstrumentor()


OPENINFERENCE = Foreign("openinference.instrumentation.openai", "openinference")
OPENLLMETRY = Foreign("opentelemetry.instrumentation.openai", "genai")


def is_installed(package: str) -> bool:
    """Return whether a package is installed, whose parents may be missing as well."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


INSTRUMENTATIONS = [
    pytest.param(OPENINFERENCE, id="openinference"),
    pytest.param(
        OPENLLMETRY,
        id="openllmetry",
        marks=[
            pytest.mark.openllmetry,
            pytest.mark.skipif(
                not is_installed(OPENLLMETRY.package),
                reason="opentelemetry-instrumentation-openai is not installed: "
                "run make test-openllmetry",
            ),
            # It declares a model in pydantic's old way.
            pytest.mark.filterwarnings("ignore:Support for class-based `config`"),
        ],
    ),
]


@pytest.fixture(scope="module", params=INSTRUMENTATIONS)
def recordings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Foreign, dict[str, Recording]]:
    """An instrumentation, and the recording that it gave of the agent on each API."""
    foreign = request.param
    file = tmp_path_factory.mktemp("spans") / "spans.jsonl"
    return foreign, record(foreign.instrumentor(), file)


@pytest.fixture(params=APIS)
def session(
    request: pytest.FixtureRequest, recordings: tuple[Foreign, dict[str, Recording]]
) -> tuple[Foreign, str, Recording]:
    """An instrumentation, an API, and the recording that the two gave."""
    foreign, by_api = recordings
    return foreign, request.param, by_api[request.param]


def test_the_agent_is_replayed_without_its_server(session: tuple[Foreign, str, Recording]) -> None:
    """All three model calls are answered, and the fidelity is named with its reason."""
    foreign, api, recording = session

    with oteval.replay(recording) as replay:
        assert ask(NOWHERE, api, shop(PARCELS)) == ANSWER

    assert (replay.result.served, replay.result.model_calls) == (3, 3)
    assert replay.result.fidelity == "semconv"
    assert replay.result.reasons[0] == REASON.format(foreign.dialect)


@pytest.mark.parametrize(
    ("kind", "call", "edit"),
    [
        ("prompt", 1, {"system": SYSTEM + " Be brief."}),
        ("tool_result", 2, {"parcels": {**PARCELS, "A100": "arrives on Monday"}}),
    ],
    ids=["prompt", "tool_result"],
)
def test_one_edit_is_one_divergence(
    session: tuple[Foreign, str, Recording], kind: str, call: int, edit: dict[str, Any]
) -> None:
    """An edited prompt and an edited tool are named, each at its model call."""
    _, api, recording = session
    tools = shop(edit.get("parcels", PARCELS))

    with pytest.raises(ReplayDiverged), oteval.replay(recording, tools="run") as replay:
        ask(NOWHERE, api, tools, edit.get("system", SYSTEM))

    (divergence,) = replay.result.divergences
    assert (divergence.kind, divergence.call) == (kind, call)


def test_tools_are_answered_from_the_calls_in_the_messages(
    session: tuple[Foreign, str, Recording],
) -> None:
    """The spans have no tools, but the messages do: they answer tools that must not run again."""
    _, api, recording = session

    with oteval.replay(recording) as replay:
        assert ask(NOWHERE, api, untouchable()) == ANSWER

    assert (replay.result.served_tools, replay.result.tool_calls) == (3, 3)


def test_a_tool_called_with_other_arguments_is_one_divergence(
    session: tuple[Foreign, str, Recording],
) -> None:
    """The call itself diverges, before its result would reach the model."""
    _, api, recording = session
    tools = untouchable()
    track_parcel = tools["track_parcel"]
    tools["track_parcel"] = lambda order_id: track_parcel(order_id=order_id.lower())

    with pytest.raises(ReplayDiverged), oteval.replay(recording) as replay:
        ask(NOWHERE, api, tools)

    (divergence,) = replay.result.divergences
    assert divergence.kind == "tool_call"


def untouchable() -> dict[str, Callable[..., str]]:
    """Return tools that a replay can answer, and that fail if they run."""
    return {name: oteval.tool(tool) for name, tool in shop({}).items()}
