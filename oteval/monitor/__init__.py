"""Monitors: detect that the behaviour of agents changed, and stay quiet while it did not.

A *monitor* watches one *measure* (a score, a pass rate, a latency) of one or more *groups* of runs.
A measure gives one value in [0, 1] per conversation, an *observation*; lower is worse. A *detector*
compares the observations of a group with the *baseline* that was learned from its first ones, and
raises an alarm within a *budget* of false alarms.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..config import Config

__all__ = ["require_packages"]


def require_packages(config: Config) -> None:
    """Refuse monitors without the packages of the extra ``monitor``.

    Args:
        config: The configuration.

    Raises:
        ConfigError: One is missing; the message has the command that installs it.
    """
    needed = ["numpy"] if config.monitors else []
    used = {name for one in config.monitors for name in one.notify}
    if any(one.apprise for name, one in config.notify.items() if name in used):
        needed.append("apprise")
    for name in needed:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f'monitors need more packages: pip install "oteval[monitor]" ({name})'
            )
