"""Makes rows of the table ``spans`` from spans that are in columns already.

`telemetry_rows.span_table` makes the same rows from `Span` objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..base.jsontext import dumps
from ..model import Slices, Span, SpanColumns
from .arrow_rows import encodable_array
from .attribute_json import json_objects
from .byte_texts import ByteTexts
from .telemetry_rows import (
    CONTENTS,
    PROMOTED_NUMBERS,
    PROMOTED_TEXTS,
    SPAN_SCHEMA,
    events_text,
    links_text,
    rest_text,
    with_identities,
)

__all__ = ["span_column_table"]

_Integers = npt.NDArray[np.int64]
_MISSING = -1


def span_column_table(spans: SpanColumns) -> pa.Table:
    """Return spans as rows of ``spans``, numbered from 0.

    Args:
        spans: The spans.

    Raises:
        UnicodeDecodeError: A text of a span is not UTF-8.
    """
    attributes = _Attributes(spans)
    inputs, outputs = (attributes.first_text(names) for names in CONTENTS)
    texts = [attributes.promoted(names) for names in PROMOTED_TEXTS]
    numbers = [attributes.number(names) for names in PROMOTED_NUMBERS]
    origin = spans.origin
    columns = [
        _ids(spans.trace_id, 16),
        _ids(spans.span_id, 8),
        _ids(spans.parent_id, 8),
        attributes.source.array(spans.name),
        pa.array(spans.kind.astype(np.uint8)),
        pa.array(spans.start_ns),
        pa.array(spans.end_ns),
        pa.array(spans.status_code.astype(np.uint8)),
        attributes.source.array(spans.status_message),
        *(_shared(values, origin) for values in _of_origins(spans)),
        *texts,
        *numbers,
        attributes.key_names(inputs),
        attributes.texts(inputs),
        attributes.key_names(outputs),
        attributes.texts(outputs),
        attributes.remaining(inputs, outputs),
        *_rare(spans),
        pa.array(np.arange(len(spans), dtype=np.int64)),
    ]
    # The resource comes between the links and the rest.
    resources = _shared([dumps(origin.resource) for origin in spans.origins], origin)
    columns.insert(-2, resources)
    return with_identities(pa.Table.from_arrays(columns, schema=SPAN_SCHEMA))


def _of_origins(spans: SpanColumns) -> tuple[list[str], list[str], list[str]]:
    """The service, the scope and its version of each origin."""
    services = [str(origin.resource.get("service.name", "")) for origin in spans.origins]
    return (
        services,
        [origin.scope for origin in spans.origins],
        [origin.version for origin in spans.origins],
    )


def _shared(values: Sequence[str], origin: _Integers) -> pa.Array:
    return encodable_array(values, pa.string()).take(pa.array(origin))


def _rare(spans: SpanColumns) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns ``events``, ``links`` and ``rest``, which most spans leave empty."""
    whole_spans: Mapping[int, Span] = spans.whole
    events: list[str | None] = [None] * len(spans)
    links, other_fields = events.copy(), events.copy()
    texts: dict[tuple[int, int], str | None] = {}
    with_attributes = [index for index, origin in enumerate(spans.origins) if origin.attributes]
    filled = np.flatnonzero((spans.flags != 0) | np.isin(spans.origin, with_attributes))
    for index in filled.tolist():
        key = int(spans.origin[index]), int(spans.flags[index])
        if key not in texts:
            attributes = spans.origins[key[0]].attributes
            texts[key] = rest_text(Span("", "", scope_attributes=attributes, flags=key[1]))
        other_fields[index] = texts[key]
    for index, span in whole_spans.items():
        events[index] = events_text(span.events) if span.events else None
        links[index] = links_text(span.links) if span.links else None
        other_fields[index] = rest_text(span)
    arrays = (encodable_array(column, pa.string()) for column in (events, links, other_fields))
    return next(arrays), next(arrays), next(arrays)


def _ids(ids: bytes, size: int) -> pa.Array:
    """Return ids in hexadecimal digits; an id of zeros is empty."""
    words = np.frombuffer(ids, np.uint64).reshape(-1, size // 8)
    is_there: npt.NDArray[np.bool_] = (words != 0).any(axis=1)
    text = (ids if is_there.all() else words[is_there].tobytes()).hex()
    bounds = np.zeros(len(is_there) + 1, np.int32)
    np.cumsum(np.where(is_there, 2 * size, 0), out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text.encode())]
    return pa.Array.from_buffers(pa.string(), len(is_there), buffers)


class _Attributes:
    """The columns that attributes fill.

    `_MISSING` is the index of a missing attribute. It refers to the last value, so each array below
    has one more value for it.
    """

    def __init__(self, spans: SpanColumns) -> None:
        self._spans, self._all = spans, spans.attributes
        self.source = ByteTexts(spans.data)
        codes = {key: code for code, key in enumerate(self._all.keys)}
        self._is_text = np.append(self._all.is_text, False)
        self._start = np.append(self._all.text.start, 0)
        self._end = np.append(self._all.text.end, 0)
        self._key = np.append(self._all.key, len(codes))
        self._number = np.append(self._all.number, 0)
        self._of_key = {key: np.flatnonzero(self._all.key == code) for key, code in codes.items()}

    def _preferred(self, names: Sequence[str], is_valid: npt.NDArray[np.bool_]) -> _Integers:
        """Each span's attribute with the first of some names that has a valid value."""
        preferred = np.full(len(self._spans), _MISSING)
        for name in reversed(names):
            if (indexes := self._of_key.get(name)) is not None:
                indexes = indexes[is_valid[indexes]]
                preferred[self._all.span[indexes]] = indexes
        return preferred

    def first_text(self, names: Sequence[str]) -> _Integers:
        """Each span's attribute of some names that is a text."""
        return self._preferred(names, self._all.is_text)

    def promoted(self, names: Sequence[str]) -> pa.Array:
        """The first value of some names that is not empty, as a text."""
        attributes = self._all
        is_valid = np.ones(len(attributes.key), np.bool_)
        is_valid[attributes.is_text] = (attributes.text.end > attributes.text.start)[
            attributes.is_text
        ]
        for index, value in attributes.others.items():
            is_valid[index] = value is not None
        preferred = self._preferred(names, is_valid)
        odd = np.flatnonzero((preferred != _MISSING) & ~self._is_text[preferred])
        if not odd.size:
            return self.texts(preferred)
        values = self.texts(np.where(self._is_text[preferred], preferred, _MISSING)).to_pylist()
        for span in odd.tolist():
            values[span] = dumps(self._value(int(preferred[span])))
        return encodable_array(values, pa.string())

    def number(self, names: Sequence[str]) -> pa.Array:
        """The first integer of some names."""
        preferred = self._preferred(names, self._all.is_integer)
        is_missing = preferred == _MISSING
        if is_missing.all():
            return pa.nulls(len(preferred), pa.int64())
        return pa.array(self._number[preferred], pa.int64(), mask=is_missing)

    def texts(self, indexes: _Integers) -> pa.Array:
        """The texts of some attributes, null for a span without the attribute."""
        is_there = indexes != _MISSING
        if not is_there.any():
            return pa.nulls(len(indexes), pa.string())
        return self.source.array(Slices(self._start[indexes], self._end[indexes]), is_there)

    def key_names(self, indexes: _Integers) -> pa.Array:
        """The keys of some attributes, null for a span without the attribute."""
        keys = encodable_array([*self._all.keys, None], pa.string())
        return keys.take(pa.array(self._key[indexes]))

    def _value(self, index: int) -> Any:
        attributes = self._all
        if attributes.is_text[index]:
            return self._spans.data[
                attributes.text.start[index] : attributes.text.end[index]
            ].decode()
        return (
            int(attributes.number[index])
            if attributes.is_integer[index]
            else attributes.others[index]
        )

    def remaining(self, *stored: _Integers) -> pa.Array:
        """The attributes that have no column, as one JSON text for each span."""
        is_kept = np.ones(len(self._all.key), np.bool_)
        for indexes in stored:
            is_kept[indexes[indexes != _MISSING]] = False
        return json_objects(self.source, self._all, np.flatnonzero(is_kept), len(self._spans))
