"""The settings that make instrumentations record the content of messages, or leave it out.

Each family of instrumentations reads different environment variables. A variable that is already
set is never changed. The doctor reports the variables that keep content out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from .libraries import Library

__all__ = ["ContentVariable", "content_variables", "hiding_variables", "set_content_variables"]

_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
# The values with content, and without content.
_COMMON: Mapping[str, tuple[str | None, str | None]] = {
    _CAPTURE: ("SPAN_ONLY", "NO_CONTENT"),
    "OTEL_SEMCONV_STABILITY_OPT_IN": ("gen_ai_latest_experimental",) * 2,
    "TRACELOOP_TRACE_CONTENT": ("true", "false"),
    "OPENINFERENCE_HIDE_INPUTS": (None, "true"),
    "OPENINFERENCE_HIDE_OUTPUTS": (None, "true"),
    "OPENINFERENCE_HIDE_PROMPTS": (None, "true"),
    "OPENINFERENCE_HIDE_LLM_INVOCATION_PARAMETERS": (None, "true"),
    "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS": ("true", "false"),
}
# The prefixes of OpenTelemetry's own instrumentations; other names with "opentelemetry-" are
# OpenLLMetry's.
_OPENTELEMETRY = (
    "opentelemetry-instrumentation-genai-",
    "opentelemetry-instrumentation-google-genai",
    "opentelemetry-instrumentation-openai-v2",
    "opentelemetry-instrumentation-botocore",
)
_OFF = frozenset({"false", "0", "no", "off", "no_content", ""})
_HIDING = (
    "OPENINFERENCE_HIDE_INPUTS",
    "OPENINFERENCE_HIDE_OUTPUTS",
    "OPENINFERENCE_HIDE_INPUT_MESSAGES",
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES",
    "OPENINFERENCE_HIDE_INPUT_TEXT",
    "OPENINFERENCE_HIDE_OUTPUT_TEXT",
)
# Set elsewhere, and of interest to a reader of the doctor's report.
_REPORTED = (
    "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OPENAI_AGENTS_DISABLE_TRACING",
    "OPENAI_AGENTS_DONT_LOG_MODEL_DATA",
    "ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN",
)


@dataclass(frozen=True, slots=True)
class ContentVariable:
    """An environment variable that the content of spans depends on.

    Attributes:
        name: Its name.
        value: Its value; None if it is not set.
        default: The value that oteval sets if the variable has none; None if oteval sets no value.
        note: How the value limits the content; "" if it does not.
    """

    name: str
    value: str | None
    default: str | None
    note: str = ""

    @property
    def hides_content(self) -> bool:
        """Whether the value that is set keeps content out of the spans."""
        return bool(self.note)


def content_variables(
    libraries: Iterable[Library],
    environ: Mapping[str, str] | None = None,
    *,
    capture_content: bool = True,
) -> list[ContentVariable]:
    """The environment variables that matter to these libraries.

    Args:
        libraries: The installed libraries.
        environ: The environment; None for the environment of the process.
        capture_content: Whether content is to be recorded.
    """
    environ = os.environ if environ is None else environ
    defaults = {name: on if capture_content else off for name, (on, off) in _COMMON.items()}
    for library in libraries:
        for name, setting in library.variables.items():
            is_switch = "CONTENT" in name or "SENSITIVE" in name
            defaults[name] = setting if capture_content or not is_switch else "false"
    names = list(dict.fromkeys((*defaults, *_HIDING, *_REPORTED)))
    variables = []
    for name in names:
        value, default = environ.get(name), defaults.get(name)
        if value is not None or default is not None:
            note = "" if value is None else _note(name, value, default)
            variables.append(ContentVariable(name, value, default, note * capture_content))
    return variables


def hiding_variables(
    library: Library, by: str, variables: Iterable[ContentVariable]
) -> list[ContentVariable]:
    """The variables that keep content out of a library's spans.

    Args:
        library: The library.
        by: The distribution that writes the spans, or the library itself.
        variables: The variables, see `content_variables`.
    """
    if by.startswith("openinference-"):
        names = set(_HIDING)
    elif by.startswith(_OPENTELEMETRY):
        names = {_CAPTURE}
    elif by.startswith("opentelemetry-"):
        names = {"TRACELOOP_TRACE_CONTENT"}
    else:
        names = set(library.variables)
        if library.name == "google-adk":
            names |= {_CAPTURE, "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"}
    if library.name == "openai-agents":
        names.add("OPENAI_AGENTS_DISABLE_TRACING")
    return [
        variable
        for variable in variables
        if variable.hides_content
        and (variable.name in names or variable.name.endswith("VALUE_LENGTH_LIMIT"))
    ]


def _note(name: str, value: str, default: str | None) -> str:
    lowered = value.strip().lower()
    if name in _HIDING:
        return "content is hidden" if lowered in ("true", "1", "yes", "on") else ""
    if name == _CAPTURE and lowered == "event_only":
        return "content is in log records only"
    if name.endswith("_VALUE_LENGTH_LIMIT"):
        return f"content is cut at {value} characters" if lowered else ""
    if default is not None and lowered in _OFF and default.lower() not in _OFF:
        return "content is left out"
    if name == "OPENAI_AGENTS_DISABLE_TRACING" and lowered in ("true", "1"):
        return "openai-agents writes no spans"
    return ""


def set_content_variables(
    libraries: Iterable[Library],
    *,
    capture_content: bool,
    environ: MutableMapping[str, str] | None = None,
) -> None:
    """Set the variables that have no value yet. Child processes inherit them."""
    environ = os.environ if environ is None else environ
    for variable in content_variables(libraries, environ, capture_content=capture_content):
        if variable.value is None and variable.default is not None:
            environ[variable.name] = variable.default
