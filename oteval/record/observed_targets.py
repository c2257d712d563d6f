"""Experiments whose targets are observed: `oteval.evaluate` and `oteval.aevaluate`.

While an experiment calls its target, the process is recorded as by `oteval run`: an agent on any
instrumented library is seen without a change to its code. Each call has a capture, and a root span
that names the example. Spans whose context was lost belong to no call, so that calls that run at
the same time never mix.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec

from opentelemetry import trace

from ..base.errors import ConfigError
from ..base.redaction import RedactionRule, ValueRedactor
from ..base.sync import blocking_form
from ..model import CASE_ATTRIBUTES, Example
from ..scoring import Observation, aevaluate as aevaluate_unobserved, observing
from .instrument import active_rules, flush_exchanges, instrumented_captures
from .span_capture import Capture, opened
from .span_redaction import TelemetryRedactor

__all__ = ["aevaluate", "evaluate", "observed_targets"]

Params = ParamSpec("Params")
_SPAN = "oteval.example"
# Seconds to wait for the HTTP exchanges of a call to be written.
_PATIENCE = 2.0
_NOTHING = "it used no instrumented library in this process (oteval doctor lists them)"


class CallObserver:
    """Observes the calls of a target in this process.

    Args:
        service: The name of the service of its spans.
        redact: Rules that remove secrets from them, as for `oteval.instrument`.
    """

    def __init__(
        self,
        service: str | None = None,
        redact: Iterable[RedactionRule | Mapping[str, Any] | str] = (),
    ) -> None:
        self._service, self._redact = service, tuple(redact)

    def ready(self) -> AbstractContextManager[object]:
        """Turn the instrumentations on while a block runs."""
        return instrumented_captures(self._service, self._redact)

    @contextmanager
    def observe(self, example: Example) -> Iterator[Observation]:
        """Observe the call inside a block; a process that cannot be captured is named."""
        observation = Observation(missing=_NOTHING)
        run = Capture(takes_strays=False, redactor=TelemetryRedactor(ValueRedactor(active_rules())))
        with ExitStack() as stack:
            try:
                stack.enter_context(opened(run))
            except ConfigError as error:
                observation.missing = str(error)
                yield observation
                return
            stack.callback(flush_exchanges, _PATIENCE)
            attributes = {CASE_ATTRIBUTES[0]: example.id} if example.has_own_id else {}
            tracer = trace.get_tracer("oteval")
            stack.enter_context(tracer.start_as_current_span(_SPAN, attributes=attributes))
            yield observation
        if len(run.spans) > 1:
            observation.spans, observation.logs = run.spans, run.logs
            observation.trajectories, observation.missing = run.trajectories, run.missing


@contextmanager
def observed_targets(
    service: str | None = None, redact: Iterable[RedactionRule | Mapping[str, Any] | str] = ()
) -> Iterator[None]:
    """Observe the targets of the experiments that a block starts, also their imports.

    Args:
        service: The name of the service of their spans.
        redact: Rules that remove secrets from them, as for `oteval.instrument`.
    """
    observer = CallObserver(service, redact)
    with observer.ready(), observing(observer):
        yield


def _observed(
    function: Callable[Params, Coroutine[Any, Any, Any]],
) -> Callable[Params, Coroutine[Any, Any, Any]]:
    @wraps(function)
    async def observed(*args: Params.args, **kwargs: Params.kwargs) -> Any:
        with observing(CallObserver()):
            return await function(*args, **kwargs)

    observed.__module__ = __name__
    return observed


aevaluate = _observed(aevaluate_unobserved)
evaluate = blocking_form(aevaluate, "evaluate")
