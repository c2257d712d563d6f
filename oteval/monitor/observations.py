"""Observations of a monitor: one for each conversation of a group, in the order of storage.

The store reads them (`oteval.store.observations`); here they become arrays by group. A value is
raw, in the unit of its measure: a share, seconds, tokens, US dollars or messages. `scales` makes it
a value in [0, 1] that detectors compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .detector import Floats, Ints

__all__ = ["Observations", "by_group", "joined"]

# Integers of 16 bits are sorted in linear time.
_CODES = np.int16


@dataclass(frozen=True, slots=True)
class Observations:
    """Observations of a group, in order.

    Attributes:
        values: The raw values.
        times: The ends (ns) of their last runs.
        variants: The shapes of all their runs, by hashes of the names of the tools called; empty
            for measures that do not look at them.
        sizes: The number of runs of each observation, in `variants`.
        versions: The version of the evaluator that scored each, as an index into `version_names`.
        version_names: The versions.
        runs: The id of the worst run of each, as Arrow text: few of them are looked at.
    """

    values: Floats
    times: Ints
    variants: Ints
    sizes: Ints
    versions: Ints
    version_names: tuple[str, ...]
    runs: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    def select(self, chosen: npt.NDArray[Any]) -> Observations:
        """Some observations, by a boolean array or by indices in order."""
        is_chosen = np.zeros(len(self), bool)
        is_chosen[chosen] = True
        flat = np.repeat(is_chosen, self.sizes) if len(self.variants) else np.zeros(0, bool)
        return Observations(
            self.values[is_chosen],
            self.times[is_chosen],
            self.variants[flat],
            self.sizes[is_chosen],
            self.versions[is_chosen],
            self.version_names,
            self.runs.filter(pa.array(is_chosen)),
        )

    @property
    def last_version(self) -> str:
        """The version of the evaluator that scored the last observation."""
        return self.version_names[int(self.versions[-1])]

    def of_version(self, version: str) -> Observations:
        """The observations that a version of the evaluator scored."""
        chosen = self.versions == self.version_names.index(version)
        return self if chosen.all() else self.select(chosen)

    def first(self, size: int) -> Observations:
        """The first observations."""
        return self.between(0, min(size, len(self)))

    def after(self, size: int) -> Observations:
        """The observations after the first ones."""
        return self.between(min(size, len(self)), len(self))

    def between(self, start: int, end: int) -> Observations:
        """The observations from one index up to another."""
        part = slice(start, end)
        variants = self.variants
        if len(variants):
            first = int(self.sizes[:start].sum())
            variants = variants[first : first + int(self.sizes[part].sum())]
        return Observations(
            self.values[part],
            self.times[part],
            variants,
            self.sizes[part],
            self.versions[part],
            self.version_names,
            self.runs.slice(start, end - start),
        )

    def variant_lists(self) -> pa.Array:
        """The variants of each observation as Arrow lists; nulls without variants."""
        if not len(self.variants):
            return pa.nulls(len(self), pa.list_(pa.int64()))
        offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(self.variants))


def joined(parts: Sequence[Observations]) -> Observations:
    """Return parts of the observations of a group, of one version of the evaluator, as one."""
    if len(parts) == 1:
        return parts[0]
    version = parts[-1].last_version
    return Observations(
        values=np.concatenate([part.values for part in parts]),
        times=np.concatenate([part.times for part in parts]),
        variants=np.concatenate([part.variants for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        versions=np.zeros(sum(map(len, parts)), np.int64),
        version_names=(version,),
        runs=pa.concat_arrays([part.runs for part in parts]),
    )


def by_group(table: pa.Table) -> Iterator[tuple[str, Observations]]:
    """Yield the observations of a table that `oteval.store` read, by group.

    Args:
        table: Its rows are in order; rows of different groups may alternate.
    """
    if not table.num_rows:
        return
    groups = _dictionary(table["group"])
    codes = groups.indices.to_numpy().astype(
        _CODES if len(groups.dictionary) < 1 << 15 else np.int32
    )
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(groups.dictionary) + 1))
    # Frees the rows in the order of storage, if the caller does not keep them.
    table = table.take(pa.array(order))
    observations = _observations(table)
    del table
    for group_index, group in enumerate(groups.dictionary.to_pylist()):
        if bounds[group_index] < bounds[group_index + 1]:
            yield (
                group,
                observations.between(int(bounds[group_index]), int(bounds[group_index + 1])),
            )


def _observations(table: pa.Table) -> Observations:
    lists = table["variants"].combine_chunks()
    flat = lists.flatten()
    versions = _dictionary(table["version"])
    sizes = lists.value_lengths().fill_null(0)
    return Observations(
        values=_array(table["value"], np.float64),
        times=_array(table["time_ns"], np.int64),
        variants=np.asarray(flat.to_numpy(zero_copy_only=False), np.int64),
        sizes=np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64),
        versions=np.asarray(versions.indices.to_numpy(), np.int64),
        version_names=tuple(versions.dictionary.to_pylist()),
        runs=table["trajectory_id"].combine_chunks(),
    )


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column of texts as one dictionary."""
    if pa.types.is_dictionary(column.type):
        encoded = column.unify_dictionaries().combine_chunks()
    else:
        encoded = column.fill_null("").combine_chunks().dictionary_encode()
    return encoded


def _array(column: pa.ChunkedArray, kind: Any) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy(), kind)
