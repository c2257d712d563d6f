"""The destinations of scores that a configuration names, in addition to the store."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.clients.otlp_client import OtlpClient, open_client
from ..base.errors import ConfigError
from ..base.text import shown_url
from ..scoring import AnnotationTarget, Config, Endpoint, Forward, Push, open_target, resolved
from .publish.events import EventExporter
from .publish.forwarder import Forwarder
from .publish.metrics import ScoringMetrics
from .publish.metrics_exporter import MetricsExporter
from .publish.request_log import REFUSED_FOLDER
from .score_push import AnnotationClient, ScorePush

__all__ = [
    "ScoreDestinations",
    "open_destinations",
    "refused_folders",
]


@dataclass
class ScoreDestinations:
    """The destinations that are configured.

    Attributes:
        metrics: The metrics about scores.
        forward: Sends traces on with their scores.
        events: Exports scores as log events.
        exporter: Exports the metrics.
        pushes: Write scores to trace backends.
    """

    metrics: ScoringMetrics
    forward: Forwarder | None = None
    events: EventExporter | None = None
    exporter: MetricsExporter | None = None
    pushes: Sequence[ScorePush] = field(default_factory=tuple)

    def state(self) -> dict[str, Any]:
        """The state for people and /readyz, with `problems` in words."""
        forward = self.forward.state() if self.forward else None
        events = self.events.state() if self.events else None
        pushes = [push.state() for push in self.pushes]
        problems = [*_problems("forward", forward), *_problems("events", events)]
        for state in pushes:
            problems += _problems(f"push to {state['name']}", state, "scores stay in the database")
        return {"forward": forward, "events": events, "push": pushes, "problems": problems}

    def close(self, grace: float = 5.0) -> None:
        """Close all destinations.

        Args:
            grace: How long (s) to go on sending waiting requests; unsent requests stay on disk.
        """
        for part in (self.events, self.forward, *self.pushes):
            if part is not None:
                part.close(grace)
        if self.exporter is not None:
            self.exporter.close()


def _problems(
    name: str, state: Mapping[str, Any] | None, full: str = "requests stay in the spool"
) -> Iterator[str]:
    """Describe the problems of an endpoint, without its URL, which may contain a secret."""
    if state is None:
        return
    if state["error"]:
        yield (
            f"{name}: the endpoint has accepted nothing for {state['failing_seconds']:.0f} s "
            f"({state['error']}); {state['waiting_requests']} requests wait on disk"
        )
    if state["bytes"] >= state.get("quota", math.inf):
        yield f"{name}: the queue has reached its quota; new {full}"
    if state["refused_kept"]:
        yield (
            f"{name}: the endpoint refused {state['refused_kept']} requests for good; they are "
            "kept, and `oteval resend` sends them again"
        )


# The folders of the queues.
_TRACES, _EVENTS, _PUSH = "traces", "events", "push"


def open_destinations(
    config: Config,
    folder: Path,
    *,
    forward_url: str | None = None,
    clock: Callable[[], int] = time.time_ns,
    environment: Mapping[str, str] = os.environ,
) -> ScoreDestinations:
    """Open the destinations of scores and start their threads.

    Args:
        config: The configuration.
        folder: The folder of the queues.
        forward_url: The URL to forward traces to, instead of the configuration's.
        clock: The time (ns).
        environment: The variables that headers may refer to.

    Raises:
        ConfigError: A header refers to a variable that is not set, or a package is missing.
    """
    forward = _forward(config, forward_url)
    opened = ScoreDestinations(ScoringMetrics())
    if forward is not None:
        opened.metrics.register_forward()
        opened.forward = Forwarder(
            folder / _TRACES,
            _client("forward", forward, environment),
            deadline=forward.deadline,
            quota=forward.quota,
            clock=clock,
        )
    if config.events is not None:
        opened.metrics.register_events()
        client = _client("events", config.events, environment)
        opened.events = EventExporter(folder / _EVENTS, client, version=__version__, clock=clock)
    if config.metrics is not None:
        client = _client("metrics", config.metrics, environment)
        opened.exporter = MetricsExporter(opened.metrics, client, config.metrics.interval)
    opened.pushes = [_push(push, folder, environment, clock) for push in config.push]
    return opened


def refused_folders(
    config: Config,
    folder: Path,
    *,
    forward_url: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> list[tuple[Path, OtlpClient]]:
    """The folders of requests that were refused for good, each with its endpoint.

    Args:
        config: The configuration.
        folder: The folder of the queues.
        forward_url: The URL to forward traces to, instead of the configuration's.
        environment: The variables that headers may refer to.

    Raises:
        ConfigError: A header refers to a variable that is not set.
    """
    endpoints: list[tuple[str, str, Endpoint | None]] = [
        (_TRACES, "forward", _forward(config, forward_url)),
        (_EVENTS, "events", config.events),
    ]
    folders: list[tuple[Path, OtlpClient]] = [
        (folder / folder_name / REFUSED_FOLDER, _client(name, endpoint, environment))
        for folder_name, name, endpoint in endpoints
        if endpoint is not None
    ]
    for push in config.push:
        target = _target(push, environment)
        refused_folder = folder / _push_folder(push, target.url) / REFUSED_FOLDER
        folders.append((refused_folder, AnnotationClient(target)))
    return folders


def _push(
    push: Push, folder: Path, environment: Mapping[str, str], clock: Callable[[], int]
) -> ScorePush:
    target = _target(push, environment)
    return ScorePush(
        folder / _push_folder(push, target.url),
        target,
        name=f"{push.backend} at {target.url}",
        evaluators=push.evaluators,
        wait=push.wait,
        quota=push.quota,
        clock=clock,
    )


def _target(push: Push, environment: Mapping[str, str]) -> AnnotationTarget:
    try:
        headers = resolved(push.headers, environment)
    except ValueError as error:
        raise ConfigError(f"push to {push.backend}: {error}") from None
    # While the backend is away, the queue waits, but the request does not.
    return open_target(
        push.backend, push.url, headers, environment, timeout=push.timeout, patience=0.0
    )


def _push_folder(push: Push, url: str) -> str:
    """A folder that stays the same when entries of the file change their order."""
    return f"{_PUSH}-{push.backend}-{blake2b(url.encode(), digest_size=6).hexdigest()}"


def _forward(config: Config, url: str | None) -> Forward | None:
    if url is None:
        return config.forward
    try:
        settings = config.forward.model_dump() if config.forward is not None else {}
        return Forward.model_validate({**settings, "url": url})
    except ValueError:
        raise ConfigError(
            f"--forward {shown_url(url)!r}: write http://HOST:PORT, https://HOST or grpc://HOST:PORT"
        ) from None


def _client(name: str, endpoint: Endpoint, environment: Mapping[str, str]) -> OtlpClient:
    try:
        headers = resolved(endpoint.headers, environment)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return open_client(endpoint.url, headers, compress=endpoint.gzip, timeout=endpoint.timeout)
