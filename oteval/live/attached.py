"""The ways in which scores are attached, as the configuration says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .. import __version__
from ..attach import Attach, Events, Forwarder, Metrics, MetricsExporter, Poster
from ..config import Config, Endpoint, Forward, resolved
from ..errors import ConfigError

__all__ = ["open_attach"]


def open_attach(
    config: Config,
    folder: Path,
    *,
    forward_url: str | None = None,
    clock: Callable[[], int] = time.time_ns,
    environment: Mapping[str, str] = os.environ,
) -> Attach:
    """Return what attaches scores, its threads running.

    Args:
        config: The configuration.
        folder: Where the queues are.
        forward_url: Where traces go on to, in place of what the configuration says.
        clock: The time (ns).
        environment: Where headers get their secrets from.

    Raises:
        ConfigError: A header needs a variable that is not set, or a package is missing.
    """
    forward = config.forward
    if forward_url is not None:
        try:
            known = forward.model_dump() if forward is not None else {}
            forward = Forward.model_validate({**known, "url": forward_url})
        except ValueError:
            raise ConfigError(f"--forward {forward_url!r}: write http://HOST:PORT") from None
    attach = Attach(Metrics())
    if forward is not None:
        attach.forward = Forwarder(
            folder / "traces",
            _poster("forward", forward, environment),
            deadline=forward.deadline,
            quota=forward.quota,
            clock=clock,
        )
    if config.events is not None:
        poster = _poster("events", config.events, environment)
        attach.events = Events(folder / "events", poster, version=__version__, clock=clock)
    if config.metrics is not None:
        poster = _poster("metrics", config.metrics, environment)
        attach.exporter = MetricsExporter(attach.metrics, poster, config.metrics.interval)
    return attach


def _poster(name: str, endpoint: Endpoint, environment: Mapping[str, str]) -> Poster:
    try:
        headers = resolved(endpoint.headers, environment)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return Poster(endpoint.url, headers, compress=endpoint.gzip, timeout=endpoint.timeout)
