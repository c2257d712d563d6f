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
    """Refuse monitors without the packages of the extra ``monitor``.

    Args:
        config: The configuration.

    Raises:
        ConfigError: One is missing, and the message has the command that installs it; or a
            destination is wrong.
    """
    needed = ["numpy"] if config.monitors else []
    if _apprise_urls(config):
        needed.append("apprise")
    for name in needed:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f'monitors need more packages: pip install "oteval[monitor]" ({name})'
            )
    check_destinations(config)


def check_destinations(config: Config) -> None:
    """Refuse Apprise URLs that Apprise does not know, if it is installed.

    URLs with variables that are not set are left for their delivery.

    Args:
        config: The configuration.

    Raises:
        ConfigError: A URL is wrong; the message has its scheme only.
    """
    found = _apprise_urls(config)
    if found and importlib.util.find_spec("apprise") is not None:
        # Apprise loads a hundred services.
        from .notification.apprise import check_urls

        check_urls(found, os.environ)


def unset_variables(config: Config, environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each destination of monitors whose variables are not set.

    Args:
        config: The configuration.
        environment: The environment's variables.
    """
    found = []
    used = {name for one in config.monitors for name in one.notify}
    for name in [name for name in config.notify if name in used]:
        missing = [one for one in config.notify[name].variables if one not in environment]
        if missing:
            names = " and no ".join(missing)
            found.append(f"notify.{name}: the environment has no {names}; set it and start again")
    return found


def _apprise_urls(config: Config) -> dict[str, list[str]]:
    """Return the Apprise URLs that monitors use, by destination."""
    used = {name for one in config.monitors for name in one.notify}
    return {
        name: one.apprise for name, one in config.notify.items() if name in used and one.apprise
    }
