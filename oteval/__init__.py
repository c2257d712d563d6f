"""oteval scores what agents really did, from the OpenTelemetry traces they already emit.

Everything of use is importable from here; a name is loaded when it is first asked for, so that
importing oteval costs next to nothing.

    from oteval import create_trajectory_match_evaluator

    evaluate = create_trajectory_match_evaluator(trajectory_match_mode="superset")
    evaluate(outputs=messages, reference_outputs=reference)

From spans to trajectories: `oteval.reconstruct`. From files to scores: `Store`, `load`, `refresh`,
`score`. The command line is ``oteval --help``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config, load_config
    from .errors import (
        ConfigError,
        InputError,
        NotAStore,
        NotFound,
        NothingEvaluated,
        OtevalError,
        StoreError,
        StoreLocked,
        StoreTooNew,
    )
    from .evaluate import (
        MatchSpec,
        Verdict,
        acompare,
        compare,
        create_async_trajectory_match_evaluator,
        create_trajectory_match_evaluator,
        make_spec,
        to_messages,
        trajectory_strict_match,
        trajectory_strict_match_async,
        trajectory_subset,
        trajectory_subset_async,
        trajectory_superset,
        trajectory_superset_async,
        trajectory_unordered_match,
        trajectory_unordered_match_async,
    )
    from .model import (
        Event,
        Gap,
        Link,
        LogRecord,
        Message,
        Reference,
        Rewrite,
        Score,
        Span,
        SpanRef,
        ToolCall,
        Trajectory,
        Usage,
    )
    from .pipeline import load, refresh, score
    from .selection import Selection
    from .store import Store

__version__ = "0.1.0"

_HOMES = {
    "config": ("Config", "load_config"),
    "errors": (
        *("ConfigError", "InputError", "NotAStore", "NotFound", "NothingEvaluated"),
        *("OtevalError", "StoreError", "StoreLocked", "StoreTooNew"),
    ),
    "evaluate": (
        *("MatchSpec", "Verdict", "acompare", "compare"),
        *("create_async_trajectory_match_evaluator", "create_trajectory_match_evaluator"),
        *("make_spec", "to_messages"),
        *("trajectory_strict_match", "trajectory_strict_match_async"),
        *("trajectory_subset", "trajectory_subset_async"),
        *("trajectory_superset", "trajectory_superset_async"),
        *("trajectory_unordered_match", "trajectory_unordered_match_async"),
    ),
    "model": (
        *("Event", "Gap", "Link", "LogRecord", "Message", "Reference", "Rewrite", "Score"),
        *("Span", "SpanRef", "ToolCall", "Trajectory", "Usage"),
    ),
    "pipeline": ("load", "refresh", "score"),
    "selection": ("Selection",),
    "store": ("Store",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Config",
    "ConfigError",
    "Event",
    "Gap",
    "InputError",
    "Link",
    "LogRecord",
    "MatchSpec",
    "Message",
    "NotAStore",
    "NotFound",
    "NothingEvaluated",
    "OtevalError",
    "Reference",
    "Rewrite",
    "Score",
    "Selection",
    "Span",
    "SpanRef",
    "Store",
    "StoreError",
    "StoreLocked",
    "StoreTooNew",
    "ToolCall",
    "Trajectory",
    "Usage",
    "Verdict",
    "__version__",
    "acompare",
    "compare",
    "create_async_trajectory_match_evaluator",
    "create_trajectory_match_evaluator",
    "load",
    "load_config",
    "make_spec",
    "refresh",
    "score",
    "to_messages",
    "trajectory_strict_match",
    "trajectory_strict_match_async",
    "trajectory_subset",
    "trajectory_subset_async",
    "trajectory_superset",
    "trajectory_superset_async",
    "trajectory_unordered_match",
    "trajectory_unordered_match_async",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module it lives in."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'oteval' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
