"""The dialects, one module each; `DIALECTS` has them in the order of trying them.

Every module of this package is a dialect and defines ``DIALECT``. Readers that several dialects
share are in `oteval.reconstruct.readers`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..dialect import Dialect

__all__ = ["DIALECTS"]


def _found() -> tuple[Dialect, ...]:
    """The dialect of each module of this package, by precedence."""
    modules = [
        import_module(f".{found.name}", __name__) for found in pkgutil.iter_modules(__path__)
    ]
    dialects: list[Dialect] = [module.DIALECT for module in modules]
    return tuple(sorted(dialects, key=lambda dialect: (dialect.precedence, dialect.name)))


DIALECTS = _found()
