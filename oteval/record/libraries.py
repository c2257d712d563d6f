"""The libraries that oteval knows, and the instrumentations of each in order of preference.

OpenTelemetry's own instrumentations come first, then OpenInference's, then OpenLLMetry's. A library
that writes spans by itself needs no instrumentation: an added one would record every call twice.
Names of distributions are as on PyPI. Instrumentors are found by distribution, because several
distributions claim the same entry point.

LangChain is the reason that OpenTelemetry's instrumentation comes first where several write good
spans: this instrumentation runs the nodes of a graph in the context of its spans. OpenInference's
does not: a model client called in a node starts another trace, and the run loses its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "HTTP_CLIENTS",
    "LIBRARIES",
    "InstrumentingPackage",
    "Library",
    "OwnSpans",
    "library_named",
]

_GENAI = "opentelemetry-instrumentation-genai-"
_OPENINFERENCE = "openinference-instrumentation-"
_OPENLLMETRY = "opentelemetry-instrumentation-"


@dataclass(frozen=True, slots=True)
class InstrumentingPackage:
    """A distribution that instruments a library.

    Attributes:
        distribution: Its name on PyPI.
        entry_point: The entry point to use, for a distribution that has several.
        needs: The library that must be instrumented as well for the spans to be complete.
    """

    distribution: str
    entry_point: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class OwnSpans:
    """Spans that a library writes by itself, once a tracer provider is set.

    Attributes:
        since: The first version that writes them.
        before: The first version that no longer writes them; "" for none.
    """

    since: str = "0"
    before: str = ""

    def covers(self, version: str) -> bool:
        """Whether this version of the library writes spans."""
        number = version_numbers(version)
        if number < version_numbers(self.since):
            return False
        return not self.before or number < version_numbers(self.before)


@dataclass(frozen=True, slots=True)
class Library:
    """A library whose calls can be recorded as spans.

    Attributes:
        name: Its short name.
        distributions: Its names on PyPI; the first installed distribution determines the version.
        module: The module whose import turns the instrumentation on.
        instrumentations: In order of preference.
        own: The spans that it writes by itself.
        is_client: Whether it sends requests to models. If a framework's span of the same call
            encloses it, the call is recorded once.
        variables: Environment variables without which the spans have no content.
        methods: Methods that instrumentations wrap, as ``module:Class.method``.
        extra: The extra of oteval that installs the instrumentation.
    """

    name: str
    distributions: tuple[str, ...]
    module: str
    instrumentations: tuple[InstrumentingPackage, ...] = ()
    own: OwnSpans | None = None
    is_client: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    extra: str = ""

    @property
    def install_command(self) -> str:
        """The command that installs the preferred instrumentation; "" if there is none."""
        if self.extra:
            return f'pip install "oteval[{self.extra}]"'
        return next(
            (f"pip install {package.distribution}" for package in self.instrumentations), ""
        )


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparisons."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _by(
    genai: str = "", openinference: str = "", openllmetry: str = "", *, official: str = ""
) -> tuple[InstrumentingPackage, ...]:
    """The instrumentations with these endings of their names, the preferred one first."""
    names = (
        _GENAI + genai if genai else "",
        _OPENLLMETRY + official if official else "",
        _OPENINFERENCE + openinference if openinference else "",
        _OPENLLMETRY + openllmetry if openllmetry else "",
    )
    return tuple(InstrumentingPackage(name) for name in names if name)


_OPENAI_AGENTS = (
    # It writes agents and tools, but no model calls.
    InstrumentingPackage(_GENAI + "openai-agents", needs="openai"),
    *_by("", "openai-agents", "openai-agents"),
)

LIBRARIES: tuple[Library, ...] = (
    Library(
        "openai",
        ("openai",),
        "openai",
        _by("openai", "openai", "openai", official="openai-v2"),
        is_client=True,
        methods=(
            "openai.resources.chat.completions:Completions.create",
            "openai.resources.responses:Responses.create",
        ),
        extra="openai",
    ),
    Library(
        "anthropic",
        ("anthropic",),
        "anthropic",
        _by("anthropic", "anthropic", "anthropic"),
        is_client=True,
        methods=("anthropic.resources.messages:Messages.create",),
        extra="anthropic",
    ),
    Library(
        "google-genai",
        ("google-genai",),
        "google.genai",
        _by("", "google-genai", "google-generativeai", official="google-genai"),
        is_client=True,
        methods=("google.genai.models:Models.generate_content",),
        extra="google-genai",
    ),
    Library(
        "langchain",
        ("langchain-core", "langchain", "langgraph"),
        "langchain_core",
        _by("langchain", "langchain", "langchain"),
        methods=("langchain_core.callbacks:BaseCallbackManager.__init__",),
        extra="langgraph",
    ),
    Library(
        "openai-agents", ("openai-agents",), "agents", _OPENAI_AGENTS, extra="openai-agents"
    ),
    Library(
        "pydantic-ai",
        ("pydantic-ai-slim", "pydantic-ai"),
        "pydantic_ai",
        own=OwnSpans(),
    ),
    Library(
        "mcp",
        ("mcp",),
        "mcp",
        # OpenInference's only passes the context on, so that client and server share a trace.
        _by("", "mcp", "mcp"),
        own=OwnSpans(since="2"),
    ),
    Library(
        "llama-index",
        ("llama-index-core",),
        "llama_index.core",
        _by("llama-index", "llama-index", "llamaindex"),
        extra="llama-index",
    ),
    Library("crewai", ("crewai",), "crewai", _by("", "crewai", "crewai"), extra="crewai"),
    Library("dspy", ("dspy", "dspy-ai"), "dspy", _by("dspy", "dspy"), extra="dspy"),
    Library("agno", ("agno",), "agno", _by("agno", "agno", "agno")),
    Library("smolagents", ("smolagents",), "smolagents", _by("smolagents", "smolagents")),
    Library(
        "haystack",
        ("haystack-ai",),
        "haystack",
        _by("", "haystack", "haystack"),
        own=OwnSpans(since="2", before="3"),
        variables={"HAYSTACK_CONTENT_TRACING_ENABLED": "true"},
    ),
    Library(
        "autogen",
        ("autogen-agentchat",),
        "autogen_agentchat",
        _by("", "autogen-agentchat"),
    ),
    Library("ag2", ("ag2", "pyautogen"), "autogen", _by("", "ag2")),
    Library("google-adk", ("google-adk",), "google.adk", own=OwnSpans()),
    Library("strands", ("strands-agents",), "strands", own=OwnSpans()),
    Library(
        "semantic-kernel",
        ("semantic-kernel",),
        "semantic_kernel",
        own=OwnSpans(),
        variables={
            "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS": "true",
            "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE": "true",
        },
    ),
    Library(
        "agent-framework",
        ("agent-framework-core", "agent-framework"),
        "agent_framework",
        own=OwnSpans(),
        variables={"ENABLE_INSTRUMENTATION": "true", "ENABLE_SENSITIVE_DATA": "true"},
    ),
    Library("claude-agent-sdk", ("claude-agent-sdk",), "claude_agent_sdk",
            _by("", "claude-agent-sdk")),
    Library("beeai", ("beeai-framework",), "beeai_framework", _by("", "beeai")),
    Library("qwen-agent", ("qwen-agent",), "qwen_agent", _by("qwen-agent")),
    Library("instructor", ("instructor",), "instructor", _by("", "instructor")),
    Library("litellm", ("litellm",), "litellm", _by("", "litellm", "litellm"), is_client=True),
    Library(
        "bedrock",
        ("boto3", "botocore"),
        "botocore",
        _by("bedrock", "bedrock", "bedrock", official="botocore"),
        is_client=True,
    ),
    Library(
        "vertexai",
        ("google-cloud-aiplatform",),
        "vertexai",
        _by("", "vertexai", "vertexai"),
        is_client=True,
    ),
    Library(
        "mistralai", ("mistralai",), "mistralai", _by("", "mistralai", "mistralai"), is_client=True
    ),
    Library("cohere", ("cohere",), "cohere", _by("", "cohere", "cohere"), is_client=True),
    Library("groq", ("groq",), "groq", _by("", "groq", "groq"), is_client=True),
    Library("ollama", ("ollama",), "ollama", _by("", "ollama", "ollama"), is_client=True),
    Library("together", ("together",), "together", _by("", "together", "together"), is_client=True),
    Library("portkey", ("portkey-ai",), "portkey_ai", _by("portkey", "portkey"), is_client=True),
    Library("replicate", ("replicate",), "replicate", _by("", "", "replicate"), is_client=True),
    Library("watsonx", ("ibm-watsonx-ai",), "ibm_watsonx_ai", _by("", "", "watsonx"),
            is_client=True),
    Library("writer", ("writer-sdk",), "writerai", _by("", "", "writer"), is_client=True),
    Library("transformers", ("transformers",), "transformers", _by("", "", "transformers")),
)  # fmt: skip
"""Libraries of agents and models."""

_HTTPX = "opentelemetry-instrumentation-httpx"

HTTP_CLIENTS: tuple[Library, ...] = (
    Library("httpx", ("httpx",), "httpx", (InstrumentingPackage(_HTTPX, "httpx"),)),
    Library("httpx2", ("httpx2",), "httpx2", (InstrumentingPackage(_HTTPX, "httpx2"),)),
    Library("requests", ("requests",), "requests", _by(official="requests")),
    Library("aiohttp", ("aiohttp",), "aiohttp", _by(official="aiohttp-client")),
)
"""HTTP clients, whose spans carry the trace context on to the servers."""


def library_named(name: str) -> Library | None:
    """Find a library by its short name or its name on PyPI."""
    normalized = name.lower().replace("_", "-")
    normalized = "langchain" if normalized == "langgraph" else normalized
    for library in (*LIBRARIES, *HTTP_CLIENTS):
        if normalized == library.name or normalized in library.distributions:
            return library
    return None
