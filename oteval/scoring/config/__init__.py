"""oteval.yaml: the evaluators, their references, gates and monitors.

An unknown key is an error that names its line and the nearest known key. ``oteval config schema``
prints the JSON schema.
"""

from __future__ import annotations

from .base import (
    AnyReference,
    DatasetReference,
    ExampleReference,
    ReferenceSource,
    StoredReference,
    Where,
    is_in_store,
)
from .evaluators import EvaluatorSettings
from .file import (
    DEFAULT_PATH,
    Config,
    Gate,
    load_config,
    parse_config,
    read_config,
    require_evaluators,
)
from .live import (
    DEFAULT_ARCHIVE,
    Completion,
    Endpoint,
    Forward,
    Limits,
    Metrics,
    Push,
    Redaction,
    Retention,
    resolved,
)
from .monitors import (
    EVALUATOR_MEASURES,
    RUN_MEASURES,
    Alertmanager,
    BaselineSettings,
    EDetectorSettings,
    MonitorSettings,
    NotifyDestination,
    ThresholdSettings,
    TwoWindowsSettings,
    Webhook,
)
from .tokens import TokenEntry, load_tokens
from .yaml_text import read_yaml

__all__ = [
    "DEFAULT_ARCHIVE",
    "DEFAULT_PATH",
    "EVALUATOR_MEASURES",
    "RUN_MEASURES",
    "Alertmanager",
    "AnyReference",
    "BaselineSettings",
    "Completion",
    "Config",
    "DatasetReference",
    "EDetectorSettings",
    "Endpoint",
    "EvaluatorSettings",
    "ExampleReference",
    "Forward",
    "Gate",
    "Limits",
    "Metrics",
    "MonitorSettings",
    "NotifyDestination",
    "Push",
    "Redaction",
    "ReferenceSource",
    "Retention",
    "StoredReference",
    "ThresholdSettings",
    "TokenEntry",
    "TwoWindowsSettings",
    "Webhook",
    "Where",
    "is_in_store",
    "load_config",
    "load_tokens",
    "parse_config",
    "read_config",
    "read_yaml",
    "require_evaluators",
    "resolved",
]
