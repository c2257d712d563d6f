"""Attributes of spans as JSON texts, put together from received bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oteval.base.jsontext import dumps
from oteval.model import AttributeColumns, Slices
from oteval.store.span_column_rows import PADDING, ByteTexts, json_objects

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
_OTHERS = st.none() | st.booleans() | st.floats() | st.lists(_TEXTS | _INTEGERS, max_size=3)
_ATTRIBUTES = st.dictionaries(_TEXTS, _TEXTS | _INTEGERS | _OTHERS, max_size=6)


def _columns(spans: list[dict[str, Any]]) -> tuple[bytes, AttributeColumns]:
    """Return attributes as columns, and the bytes of their texts."""
    flat = [(index, key, value) for index, one in enumerate(spans) for key, value in one.items()]
    keys = sorted({key for _, key, _ in flat})
    is_text = np.array([isinstance(value, str) for *_, value in flat], np.bool_)
    is_integer = np.array([type(value) is int for *_, value in flat], np.bool_)
    texts = [value.encode() if isinstance(value, str) else b"" for *_, value in flat]
    sizes = np.array([len(text) for text in texts], np.int64)
    columns = AttributeColumns(
        span=np.array([index for index, *_ in flat], np.int64),
        key=np.array([keys.index(key) for _, key, _ in flat], np.int64),
        keys=keys,
        is_text=is_text,
        is_integer=is_integer,
        text=Slices(np.cumsum(sizes) - sizes, np.cumsum(sizes)),
        number=np.array([v if type(v) is int else 0 for *_, v in flat], np.int64),
        others={
            index: value
            for index, (*_, value) in enumerate(flat)
            if not isinstance(value, str) and type(value) is not int
        },
    )
    return b"".join(texts) + PADDING, columns


@settings(max_examples=200, deadline=None)
@given(st.lists(_ATTRIBUTES, max_size=6), st.randoms())
def test_the_texts_are_those_of_dumps(spans: list[dict[str, Any]], chance: Any) -> None:
    """Whatever the keys and values are, and whichever attributes are left out."""
    data, columns = _columns(spans)
    flat = [(index, key) for index, one in enumerate(spans) for key in one]
    kept = [index for index in range(len(flat)) if chance.random() < 0.7]
    expected: list[dict[str, Any]] = [{} for _ in spans]
    for index, key in (flat[index] for index in kept):
        expected[index][key] = spans[index][key]

    found = json_objects(ByteTexts(data), columns, np.array(kept, np.int64), len(spans))

    assert found.to_pylist() == [dumps(one) for one in expected]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | _TEXTS, max_size=8))
def test_texts_of_any_length_are_copied(texts: list[str | None]) -> None:
    """Short texts, which a view holds itself, long ones, empty ones, and those not there."""
    parts = [(text or "").encode() for text in texts]
    ends = np.cumsum(np.array([len(part) for part in parts], np.int64))
    starts = ends - np.array([len(part) for part in parts], np.int64)
    is_there = np.array([text is not None for text in texts], np.bool_)

    found = ByteTexts(b"".join(parts) + PADDING).array(Slices(starts, ends), is_there)

    assert found.to_pylist() == texts


def test_a_text_that_is_not_utf_8_is_an_error() -> None:
    """Also if it would be valid together with its neighbour."""
    texts = ByteTexts(b"abc\xc3\xa9def" + PADDING)

    with pytest.raises(UnicodeDecodeError):
        texts.array(Slices(np.array([0, 4]), np.array([4, 8])))
    assert texts.array(Slices(np.array([0]), np.array([8]))).to_pylist() == ["abcédef"]
