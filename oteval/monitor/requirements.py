"""The packages and variables that monitors need before they start."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..base.errors import ConfigError

if TYPE_CHECKING:
    from ..scoring import Config

__all__ = ["check_destinations", "require_packages", "unset_variables"]


def require_packages(config: Config) -> None:
    """Refuse the channels of Apprise without the extra ``monitor``.

    Args:
        config: The configuration.

    Raises:
        ConfigError: Apprise is missing, and the message has the command that installs it; or a
            destination is wrong.
    """
    if _apprise_urls(config) and importlib.util.find_spec("apprise") is None:
        raise ConfigError('channels of Apprise need it: pip install "oteval[monitor]"')
    check_destinations(config)


def check_destinations(config: Config) -> None:
    """Refuse Apprise URLs that Apprise does not know, if it is installed.

    URLs with variables that are not set are left for their delivery.

    Args:
        config: The configuration.

    Raises:
        ConfigError: A URL is wrong; the message has its scheme only.
    """
    urls_by_name = _apprise_urls(config)
    if urls_by_name and importlib.util.find_spec("apprise") is not None:
        # Apprise loads a hundred services.
        from .notification.apprise import check_urls

        check_urls(urls_by_name, os.environ)


def unset_variables(config: Config, environment: Mapping[str, str]) -> list[str]:
    """A warning for each destination of monitors whose variables are not set.

    Args:
        config: The configuration.
        environment: The environment's variables.
    """
    warnings = []
    used = {name for monitor in config.monitors for name in monitor.notify}
    for name in [name for name in config.notify if name in used]:
        missing = [
            variable for variable in config.notify[name].variables if variable not in environment
        ]
        if missing:
            names = " and no ".join(missing)
            warnings.append(
                f"notify.{name}: the environment has no {names}; set it and start again"
            )
    return warnings


def _apprise_urls(config: Config) -> dict[str, list[str]]:
    """The Apprise URLs that monitors use, by destination."""
    used = {name for monitor in config.monitors for name in monitor.notify}
    return {
        name: destination.apprise
        for name, destination in config.notify.items()
        if name in used and destination.apprise
    }
