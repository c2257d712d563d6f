"""`oteval.instrument`: record an agent's runs, with two lines in its program.

    import oteval
    oteval.instrument()

A wrong argument is a `ConfigError`. Anything else that goes wrong, now or later, is logged once and
counted: an agent must neither fail nor wait because it is observed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import ConfigError, OtevalError
from ..base.patterns import PatternError
from ..base.redaction import RedactionRule, ValueRedactor, rule_from
from .export_pipeline import MAX_BYTES, ExportPipeline, ExportStats
from .faults import guarded

if TYPE_CHECKING:
    from .providers import Providers
    from .tool_watcher import ToolWatcher
    from .wire.interception import Interception
    from .wire.recording_worker import RecordingWorker

__all__ = [
    "Instrumentation",
    "active_rules",
    "flush_exchanges",
    "instrument",
    "instrumented_captures",
]

_LOG = logging.getLogger("oteval")
# The destination of a recording that only captures read.
_CAPTURES = "oteval.capture"


class Instrumentation:
    """The recording of this process, into one destination.

    Attributes:
        destination: The URL or the path of the destination.
        problem: Why nothing is recorded, "" if something is.
    """

    def __init__(self, destination: str, problem: str = "") -> None:
        self.destination = destination
        self.problem = problem
        self._rules: tuple[RedactionRule, ...] = ()
        self._pipeline: ExportPipeline | None = None
        self._redacting: Any = None

    @property
    def stats(self) -> ExportStats:
        """Counts of the exported and of the lost spans and log records."""
        return self._pipeline.stats if self._pipeline is not None else ExportStats()

    def flush(self, timeout: float = 30.0) -> bool:
        """Export everything that has been recorded up to now.

        Call it before ``os._exit``, and where a function is frozen after it returns.

        Args:
            timeout: The seconds to wait.

        Returns:
            Whether the queue was emptied in time. `stats` shows whether the destination accepted
            it.
        """
        return self._pipeline.flush(timeout) if self._pipeline is not None else True

    def shutdown(self) -> None:
        """Export everything that has been recorded, and stop recording."""
        with _LOCK:
            if _ACTIVE.get(self.destination) is self:
                del _ACTIVE[self.destination]
            if not _ACTIVE:
                _stop()
        if self._pipeline is not None:
            self._pipeline.shutdown()

    def __repr__(self) -> str:
        state = f"problem={self.problem!r}" if self.problem else repr(self.stats)
        return f"Instrumentation({self.destination!r}, {state})"


_LOCK = threading.RLock()
_ACTIVE: dict[str, Instrumentation] = {}
_PROVIDERS: Providers | None = None
_RECORDING: Interception | None = None
_WORKER: RecordingWorker | None = None
_WATCHER: ToolWatcher | None = None


def instrument(
    to: str | Path | None = None,
    *,
    service: str | None = None,
    capture_content: bool = True,
    record_http: bool = True,
    redact: Iterable[RedactionRule | Mapping[str, Any] | str] = (),
    libraries: Sequence[str] | None = None,
    tracer_provider: Any = None,
    logger_provider: Any = None,
    max_queue_bytes: int = MAX_BYTES,
    exit_timeout: float = 5.0,
) -> Instrumentation:
    """Record the agents of this process, and export their spans and log records.

    Call it once, before the agent is created. Without `to`, a process that is recorded already
    keeps its destination. Another destination is added to the destinations of the process.

    Args:
        to: The URL of an OTLP endpoint, a file (``traces.jsonl``, ``traces.jsonl.gz``) or a
            database (``oteval.duckdb``). By default the endpoint of the environment variables
            OTEL_EXPORTER_OTLP_*, else ``http://127.0.0.1:4318``, where `oteval serve` listens.
        service: The name of the service, if the environment has none; by default the name of the
            program.
        capture_content: Whether messages, tool arguments and results are recorded.
        record_http: Whether whole requests to models and their responses are recorded, for replays.
            Without `capture_content`, nothing of them is recorded.
        redact: Rules that remove secrets before anything is exported: `RedactionRule`, mappings
            with the keys of `redact` in oteval.yaml, kinds of personal data (``cards``, ``ibans``,
            ``emails``, ``phones``, ``presidio``), or globs of names of attributes. For a
            destination that the process has already, they are added to its rules.
        libraries: The libraries to instrument; by default all that are installed.
            ``NAME=DISTRIBUTION`` prefers an instrumentation.
        tracer_provider: The tracer provider to join; by default the global one, which is set up
            if the process has none.
        logger_provider: The same for log records.
        max_queue_bytes: The memory of spans that wait for their export. Further spans are dropped.
        exit_timeout: The seconds that the end of the process waits for the last export.

    Raises:
        ConfigError: An argument is invalid.
    """
    rules = _rules(redact)
    if max_queue_bytes <= 0 or exit_timeout < 0:
        raise ConfigError("max_queue_bytes must be above 0, and exit_timeout not below 0")
    if (problem := _missing()) != "":
        return _inactive(str(to or ""), problem)
    from .destinations import parse_destination
    from .discovery import check_libraries

    check_libraries(libraries)
    with _LOCK:
        _forget_closed()
        if to is None and _ACTIVE:
            return _with_rules(next(iter(_ACTIVE.values())), rules)
        destination = parse_destination(to)
        if destination.name in _ACTIVE:
            return _with_rules(_ACTIVE[destination.name], rules)
        try:
            pipeline_options = {"max_bytes": max_queue_bytes, "exit_timeout": exit_timeout}
            exporter = destination.open()
            providers = _providers(service, tracer_provider, logger_provider)
            handle = _start(destination.name, exporter, rules, providers, **pipeline_options)
        except (ImportError, OtevalError, OSError) as error:
            return _inactive(destination.name, _reason(error))
        except Exception as error:  # the agent must not fail because it is observed
            _LOG.debug("oteval.instrument failed", exc_info=True)
            return _inactive(destination.name, f"{type(error).__name__}: {error}")
        _activate(
            handle,
            providers,
            libraries=libraries,
            capture_content=capture_content,
            record_http=record_http,
        )
    return handle


@contextmanager
def instrumented_captures(
    service: str | None = None, redact: Iterable[RedactionRule | Mapping[str, Any] | str] = ()
) -> Iterator[None]:
    """Record the agents of this process for captures while a block runs; nothing is exported.

    A process that is recorded already stays as it is. Inside the block, `instrument` without a
    destination adds none.

    Args:
        service: The name of the service, if neither the environment nor the process has one.
        redact: Rules that remove secrets, as for `instrument`; see `active_rules`.
    """
    from .context_carriers import carries_context, uncarry_context
    from .discovery import turn_off_clients

    handle, rules, is_carried = None, _rules(redact), carries_context()
    with _LOCK:
        _forget_closed()
        if _ACTIVE:
            _with_rules(next(iter(_ACTIVE.values())), rules)
        elif not _missing():
            from .content import redact_content

            redact_content(rules)
            handle = Instrumentation(_CAPTURES)
            handle._rules = rules
            _activate(handle, _providers(service, tracer=None, logger=None))
    try:
        yield
    finally:
        if handle is not None:
            handle.shutdown()
        if not _ACTIVE:
            # The requests of the program are again as it sends them.
            if handle is not None:
                turn_off_clients()
            if not is_carried:
                uncarry_context()


def active_rules() -> tuple[RedactionRule, ...]:
    """The redaction rules of all destinations of the process, each once."""
    with _LOCK:
        return tuple(dict.fromkeys(rule for handle in _ACTIVE.values() for rule in handle._rules))


def flush_exchanges(timeout: float) -> None:
    """Wait until the finished HTTP exchanges have been emitted as log records.

    Args:
        timeout: The seconds to wait.
    """
    if _WORKER is not None:
        _WORKER.flush(timeout)


def _activate(
    handle: Instrumentation,
    providers: Any,
    *,
    libraries: Sequence[str] | None = None,
    capture_content: bool = True,
    record_http: bool = True,
) -> None:
    """Count a recording as active, and turn everything on that its spans come from."""
    _ACTIVE[handle.destination] = handle
    with guarded("turning on the instrumentations"):
        _turn_on(providers, libraries, capture_content=capture_content)
    # Requests and responses have the content of messages.
    if record_http and capture_content:
        with guarded("recording HTTP exchanges"):
            _record_http(providers)


def _start(
    name: str, exporter: Any, rules: tuple[RedactionRule, ...], providers: Any, **options: Any
) -> Instrumentation:
    from .content import redact_content
    from .process_end import watch_process
    from .processors import LogExportProcessor, RedactingExporter, SpanExportProcessor

    redact_content(rules)
    handle = Instrumentation(name)
    handle._redacting = RedactingExporter(exporter, ValueRedactor(rules))
    handle._rules = rules
    handle._pipeline = pipeline = ExportPipeline(handle._redacting, name, **options)
    providers.add(SpanExportProcessor(pipeline), LogExportProcessor(pipeline))
    watch_process(pipeline)
    return handle


def _turn_on(providers: Any, libraries: Sequence[str] | None, *, capture_content: bool) -> None:
    """Turn on the instrumentations of libraries, and carry context to threads and processes."""
    from .content import turn_off_content
    from .context import attach_environ, install_conversation_processor
    from .context_carriers import carry_context
    from .discovery import instrument_libraries

    if not capture_content:
        turn_off_content()
    attach_environ()
    carry_context()
    install_conversation_processor(providers.tracer)
    instrument_libraries(
        libraries,
        capture_content=capture_content,
        tracer_provider=providers.tracer,
        logger_provider=providers.logger,
        on_provider=providers.join,
    )


def _record_http(providers: Any) -> None:
    """Record the exchanges of HTTP clients, once for all destinations, and with all their rules.

    Rules for keys must be applied here: later, a body is text.
    """
    global _RECORDING, _WATCHER, _WORKER
    from ..base.redaction.secrets import SecretRedactor
    from .process_end import renew_in_forks
    from .tool_watcher import ToolWatcher
    from .wire.interception import add
    from .wire.recorder import WireRecorder
    from .wire.recording_worker import RecordingWorker

    if _WATCHER is None:
        _WATCHER = ToolWatcher()
    if _WORKER is None:
        _WORKER = RecordingWorker()
        renew_in_forks(_WORKER)
    for handle in _ACTIVE.values():
        if handle._pipeline is not None:
            handle._pipeline.source = _WORKER
    before = _RECORDING
    redactor = SecretRedactor(active_rules())
    recorder = WireRecorder(
        providers.logger,
        redactor=redactor,
        worker=_WORKER,
        watcher=_WATCHER,
        tracer_provider=providers.tracer,
    )
    _RECORDING = add(recorder)
    if before is not None:
        before.remove()


def _stop() -> None:
    """Stop recording exchanges and watching imports: the last destination is shut down."""
    global _RECORDING, _WATCHER
    from .discovery import stop_watching

    if _RECORDING is not None:
        _RECORDING.remove()
        _RECORDING = None
    if _WORKER is not None:
        _WORKER.finish_open()
    if _WATCHER is not None:
        with guarded("watching functions no longer"):
            _WATCHER.close()
        _WATCHER = None
    with guarded("watching imports no longer"):
        stop_watching()


def _providers(service: str | None, tracer: Any, logger: Any) -> Any:
    """The providers of the process, which the first call sets up."""
    global _PROVIDERS
    from .providers import Providers, process_providers

    if tracer is not None or logger is not None:
        return _announced(Providers(service, tracer, logger))
    _PROVIDERS = _announced(process_providers(service))
    return _PROVIDERS


def _announced(providers: Any) -> Any:
    notes, providers.notes = providers.notes, []
    for note in notes:
        _LOG.warning("oteval.instrument: %s", note)
    return providers


def _forget_closed() -> None:
    """Forget destinations that a provider of the agent closed when it was shut down."""
    for name, handle in tuple(_ACTIVE.items()):
        if handle._pipeline is not None and handle._pipeline.is_closed:
            del _ACTIVE[name]


def _with_rules(handle: Instrumentation, rules: tuple[RedactionRule, ...]) -> Instrumentation:
    """Add rules to a destination: nothing is exported less redacted than any caller required."""
    new = tuple(rule for rule in rules if rule not in handle._rules)
    if new:
        from .content import redact_content

        redact_content(new)
        handle._rules += new
        if handle._redacting is not None:
            handle._redacting.use(ValueRedactor(handle._rules))
        if _RECORDING is not None and _PROVIDERS is not None:
            _record_http(_PROVIDERS)
    return handle


def _rules(redact: Iterable[RedactionRule | Mapping[str, Any] | str]) -> tuple[RedactionRule, ...]:
    if isinstance(redact, (str, bytes, Mapping, RedactionRule)):
        raise ConfigError("redact: give a list of rules, such as ['*.password']")
    rules = tuple(rule_from(rule, f"redact[{number}]") for number, rule in enumerate(redact))
    for number, rule in enumerate(rules):
        try:
            ValueRedactor([rule])
        except PatternError as error:
            raise ConfigError(f"redact[{number}].pattern: {error}") from None
    return rules


def _missing() -> str:
    """The reason why OpenTelemetry cannot be used, or ""."""
    try:
        has_sdk = find_spec("opentelemetry.sdk.trace") is not None
    except ImportError:
        has_sdk = False
    if not has_sdk:
        return "OpenTelemetry's SDK is not installed: pip install oteval"
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error}: pip install oteval"
    return str(error)


def _inactive(destination: str, problem: str) -> Instrumentation:
    _LOG.warning("oteval.instrument records nothing: %s", problem)
    return Instrumentation(destination, problem)
