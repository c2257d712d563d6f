"""The objects of some types that are alive in this process, taken without disturbing its threads.

``gc.get_objects`` also returns tuples that another thread is still making. While anyone else has a
reference to such a tuple, it cannot grow, and ``tuple(...)`` raises `SystemError` in that thread.
So no other thread may run from the moment the list of all objects exists until it is gone: both
happen inside one call of C code, which does not give up the interpreter lock.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain, repeat, starmap
from typing import Any

__all__ = ["live_objects"]


def live_objects(*types: type) -> list[Any]:
    """Return the objects of these types, and of types derived from them.

    Only types are looked at. No object runs code for it.

    Args:
        types: The types, which must be known to the garbage collector.
    """
    # A collection in between would run finalizers, and with them other threads.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _objects_of(frozenset(types))
    finally:
        if is_collecting:
            gc.enable()


def _objects_of(types: frozenset[type]) -> list[Any]:
    # These two calls, of `set` and of `list`, are the ones that the module's docstring speaks of.
    kinds = set(map(type, _everything()))
    others = {kind: None for kind in kinds if types.isdisjoint(kind.__mro__)}
    # Each object comes twice: its type is looked up, and the object itself is the default. `zip`
    # keeps the last pair.
    twice = chain.from_iterable(map(repeat, chain(_everything(), (None,)), repeat(2)))
    chosen = list(starmap(others.get, zip(map(type, twice), twice, strict=False)))
    return [
        item for item in chosen if item is not None and not types.isdisjoint(type(item).__mro__)
    ]


def _everything() -> Iterator[Any]:
    """Return all objects; their list is made when the first one is asked for."""
    return chain.from_iterable(map(gc.get_objects, (None,)))
