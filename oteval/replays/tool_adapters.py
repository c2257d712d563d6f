"""Interceptors of frameworks' tools, installed for a replay.

Tools with `@oteval.tool` need none. See `interceptors` for the table.
"""

from __future__ import annotations

from collections import defaultdict
from types import ModuleType

from ..import_hook import ImportHook
from .interceptors import ADAPTERS, Adapter, intercepted_names

__all__ = ["ADAPTERS", "install_tool_adapters", "intercepted_names"]

_by_module: dict[str, list[Adapter]] = defaultdict(list)
for _adapter in ADAPTERS:
    _by_module[_adapter.module].append(_adapter)


def _adapt(module: ModuleType) -> None:
    for adapter in _by_module[module.__name__]:
        adapter.apply(module)


_hook = ImportHook(_by_module, _adapt)


def install_tool_adapters() -> None:
    """Adapt the frameworks that are loaded now, and others when they are imported.

    Raises:
        ConfigError: A loaded framework's version is not supported.
    """
    _hook.install()
