"""The ways in which scores are attached, as the configuration says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .. import __version__
from ..attach import Attach, Events, Forwarder, Metrics, MetricsExporter, Poster
from ..attach.posting import Target
from ..attach.refused import REFUSED
from ..config import Config, Endpoint, Forward, resolved
from ..errors import ConfigError
from ..text import shown_url

__all__ = ["open_attach", "refused_folders"]

_TRACES, _EVENTS = "traces", "events"


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
    forward = _forward(config, forward_url)
    attach = Attach(Metrics())
    if forward is not None:
        attach.metrics.follow_forward()
        attach.forward = Forwarder(
            folder / _TRACES,
            _target("forward", forward, environment),
            deadline=forward.deadline,
            quota=forward.quota,
            clock=clock,
        )
    if config.events is not None:
        attach.metrics.follow_events()
        target = _target("events", config.events, environment)
        attach.events = Events(folder / _EVENTS, target, version=__version__, clock=clock)
    if config.metrics is not None:
        target = _target("metrics", config.metrics, environment)
        attach.exporter = MetricsExporter(attach.metrics, target, config.metrics.interval)
    return attach


def refused_folders(
    config: Config,
    folder: Path,
    *,
    forward_url: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> list[tuple[Path, Target]]:
    """Return the folders of what was refused for good, each with the endpoint that did.

    Args:
        config: The configuration.
        folder: Where the queues are.
        forward_url: Where traces go on to, in place of what the configuration says.
        environment: Where headers get their secrets from.

    Raises:
        ConfigError: A header needs a variable that is not set.
    """
    endpoints: list[tuple[str, str, Endpoint | None]] = [
        (_TRACES, "forward", _forward(config, forward_url)),
        (_EVENTS, "events", config.events),
    ]
    return [
        (folder / place / REFUSED, _target(name, endpoint, environment))
        for place, name, endpoint in endpoints
        if endpoint is not None
    ]


def _forward(config: Config, url: str | None) -> Forward | None:
    if url is None:
        return config.forward
    try:
        known = config.forward.model_dump() if config.forward is not None else {}
        return Forward.model_validate({**known, "url": url})
    except ValueError:
        raise ConfigError(
            f"--forward {shown_url(url)!r}: write http://HOST:PORT, https://HOST or grpc://HOST:PORT"
        ) from None


def _target(name: str, endpoint: Endpoint, environment: Mapping[str, str]) -> Target:
    try:
        headers = resolved(endpoint.headers, environment)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    made: Callable[..., Target] = Poster
    if endpoint.url.startswith("grpc"):
        # Only who needs it pays for the import.
        from ..attach.posting_grpc import GrpcPoster

        made = GrpcPoster
    return made(endpoint.url, headers, compress=endpoint.gzip, timeout=endpoint.timeout)
