from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from oteval.base.errors import ConfigError
from oteval.model import Message, Trajectory, Usage
from oteval.model.columns import FIELDS
from oteval.model.selection import Selection, parse_asked, parse_condition
from oteval.store import Store

from ..make import asks, call, gap, keep, run

ODD = "o'dd \" %_;--"
RUNS = [
    run(
        number,
        asks(*(call(tool, {}) for tool in tools)),
        Message("tool", "x", is_error=bool(number % 2)),
        agent=agent,
        service=service,
        conversation_id=f"c{number % 3}",
        models=models,
        dialects=("genai",),
        turn=number % 4,
        gaps=(gap(),) if number % 2 else (),
        usage=Usage(number, 0, 0, 1),
        finish_reasons=("stop", "length")[: number % 3],
        prompts=("p@1", "q")[: number % 3],
        user=("", "u1", "u2")[number % 3],
        version=("", "v1")[number % 2],
        attributes={"env": "prod" if number % 2 else "dev", "n": number, "flag": number > 8},
    )
    for number, (agent, service, models, tools) in enumerate(
        product(("a", ODD), ("s", ""), ((), ("m",), ("m", "n")), ((), ("f", "g"))), 1
    )
]
CONDITIONS = [
    *("agent=a", "agent!=a", "service~^s$", "model=m", "model!=m", "tool=f", "tool!=f", "calls>1"),
    *("errors>0", "turn>=2", "turn<2", "gap=content_not_captured", "gap!=redacted", "dialect~gen"),
    *("input_tokens<=5", "output_tokens=0", "seconds<1", "parent=", "conversation=c1"),
    *("attributes.env=prod", "attributes.n>=7", "attributes.flag=true", "attributes.none!=1"),
    *("attributes.n=\uff11\uff10", "attributes.n=+1_0", "attributes.n=1e400"),
    *("asked=q", "asked~q", "finish_reason=length", "finish_reason!=stop", "prompt=p"),
    *("prompt!=q", "prompt~@1", "user=u1", "user!=u1", "user=", "version=v1", "version~^v"),
    *("cached_tokens=0", "tokens>9", "tool_errors>0.4", "tool_errors!=1", "messages=2"),
]

some = st.lists
selections = st.builds(
    Selection,
    ids=some(st.sampled_from([t.id[:1] for t in RUNS] + [RUNS[0].id, "x"]), max_size=2).map(tuple),
    since_ns=st.none() | st.integers(0, 25),
    until_ns=st.none() | st.integers(0, 25),
    agents=some(st.sampled_from(["a", ODD, "none"]), max_size=2).map(tuple),
    services=some(st.sampled_from(["s", ""]), max_size=2).map(tuple),
    conversations=some(st.sampled_from(["c0", "c1", "c9"]), max_size=2).map(tuple),
    models=some(st.sampled_from(["m", "n", "none"]), max_size=2).map(tuple),
    attributes=st.dictionaries(
        st.sampled_from(["env", "n"]),
        st.sampled_from([("prod",), ("3", "dev"), ("\uff11\uff10", "4"), ()]),
        max_size=1,
    ),
    asked=some(st.sampled_from(["~q", "q", "~nothing"]).map(parse_asked), max_size=2).map(tuple),
    conditions=some(st.sampled_from(CONDITIONS).map(parse_condition), max_size=2).map(tuple),
)


@pytest.fixture(scope="module")
def filled():
    """Return a store with the runs."""
    with Store() as store:
        keep(store, *RUNS)
        yield store


@settings(max_examples=80, deadline=None)
@given(selections, st.none() | selections)
def test_sql_and_python_select_the_same_runs(
    filled: Store, selection: Selection, excluded: Selection | None
):
    """For any filters, the store reads the trajectories that `Selection.matches` accepts."""
    selection = replace(selection, excluded=excluded)

    trajectories = list(filled.trajectories.read(selection))

    assert trajectories == [t for t in RUNS if selection.matches(t)]


def test_conditions_of_every_field_are_tried():
    """The conditions above name every field."""
    assert {parse_condition(text).name for text in CONDITIONS} >= set(FIELDS)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("tool=f", [2, 4]),
        ("tool!=f", [1, 3]),
        ("attributes.n=3", [3]),
        ("attributes.n!=3", [1, 2, 4]),
        ("attributes.flag=False", [1, 2, 3, 4]),
        ("attributes.env ~ ^pr", [1, 3]),
        ("agent>1", []),
        ("errors >= 1", [1, 3]),
        ("calls<2.5", [1, 2, 3, 4]),
    ],
)
def test_conditions_hold_as_written(condition: str, expected: list[int]):
    """A condition holds for any of several values, `!=` for none; spaces do not matter."""
    starts = [t.start_ns for t in RUNS[:4] if parse_condition(condition).holds(t)]

    assert starts == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("errors", "write FIELD OPERATOR VALUE, for instance errors>0"),
        ("", "write FIELD OPERATOR VALUE, for instance errors>0"),
        ("error>0", "unknown field 'error', perhaps 'errors'; the fields are agent, service,"),
        ("tool~(", "invalid regular expression"),
        ("errors>many", "> compares with a number"),
        ("errors<=", "<= compares with a number"),
    ],
)
def test_a_condition_that_cannot_hold_is_refused(text: str, reason: str):
    """A condition that can never hold is an error with the remedy, not an empty result."""
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)

    assert str(caught.value).startswith(f"--where {text!r}: ")
    assert reason in str(caught.value)


def test_everything_is_selected_by_default(filled: Store):
    """Without filters every run is selected."""
    assert len(list(filled.trajectories.read())) == len(RUNS)


def test_an_empty_service_is_a_filter():
    """A filter on the empty text selects runs without a service."""
    selected_runs: list[Trajectory] = [t for t in RUNS if Selection(services=("",)).matches(t)]

    assert {t.service for t in selected_runs} == {""}


@pytest.mark.parametrize("attributes", [{"env": ()}, {"env": (), "n": ("3",)}])
def test_no_run_has_one_of_no_values(filled: Store, attributes: dict[str, tuple[str, ...]]):
    """An empty list of accepted values selects no run, and excludes none."""
    selection = Selection(attributes=attributes)

    assert not list(filled.trajectories.read(selection))
    assert list(filled.trajectories.read(Selection(excluded=selection))) == RUNS
