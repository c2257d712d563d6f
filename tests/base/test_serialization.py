"""Plain JSON of any value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from oteval.base.serialization import to_jsonable


@dataclass
class Point:
    """A dataclass."""

    x: int
    tags: tuple[str, ...] = ()


class Model(BaseModel):
    """A pydantic model."""

    when: date
    point: dict[str, int]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (1.5, 1.5),
        ("é\ud800", "é\ud800"),
        ({1: (2, {3})}, {"1": [2, [3]]}),
        (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
        (Model(when=date(2026, 1, 2), point={"x": 1}), {"when": "2026-01-02", "point": {"x": 1}}),
        ([Point], [str(Point)]),
        (2**70, 2**70),
    ],
)
def test_any_value_has_a_json_form(value: Any, expected: Any):
    """Containers, dataclasses and models become dicts and lists, anything else its text."""
    assert to_jsonable(value) == expected


def test_the_result_shares_nothing_with_the_value():
    """Changes to the result do not change the original."""
    original = {"list": [1]}
    copy = to_jsonable(original)
    copy["list"].append(2)

    assert original == {"list": [1]}


def test_values_are_converted_first():
    """Special values are converted wherever they occur."""

    def convert(value: Any) -> Any:
        return f"point {value.x}" if isinstance(value, Point) else value

    assert to_jsonable({"p": [Point(1)]}, convert) == {"p": ["point 1"]}
