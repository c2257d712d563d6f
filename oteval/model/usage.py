"""Tokens of model calls: one reader for every spelling of every provider, framework and backend.

Emitters differ in two ways. They spell the counts differently (``prompt_tokens``, ``inputTokens``,
``gen_ai.usage.cache_read.input_tokens``, ``usageMetadata.thoughtsTokenCount``), and they count
cached, written and reasoning tokens within the input and output, or separately. `TokenCounts`
always contains totals: `input` includes tokens read from and written to a cache, `output` includes
reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from .telemetry import record

__all__ = ["NO_TOKENS", "TokenCounts", "Usage", "count_of", "read_tokens", "span_tokens"]

# More than any possible count; sums of such counts are still 64-bit numbers.
_MAX_COUNT = 1 << 48


@record
class Usage:
    """The token usage that the model calls of a run report.

    Attributes:
        input_tokens: The input tokens, including tokens read from and written to a cache.
        output_tokens: The output tokens, including reasoning.
        cached_tokens: The input tokens that came from a cache.
        model_calls: The number of model calls.
        cache_write_tokens: The input tokens that were written to a cache.
        reasoning_tokens: The output tokens of reasoning.
        input_audio_tokens: The input tokens of audio.
        output_audio_tokens: The output tokens of audio.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    input_audio_tokens: int = 0
    output_audio_tokens: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the input was reported: a model that answered has read something."""
        return self.input_tokens > 0 or self.cached_tokens + self.cache_write_tokens > 0

    def __add__(self, other: Usage) -> Usage:
        """The sum of two usages."""
        return Usage.total((self, other))

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """The sum of usages."""
        usages = list(usages)
        if len(usages) == 1:
            return usages[0]
        return cls(*map(sum, zip(*map(_counts_in, usages), strict=True)))

    def as_dict(self) -> dict[str, int]:
        """The JSON form."""
        return {name: getattr(self, name) for name in _USAGE_FIELDS}


_USAGE_FIELDS = tuple(Usage.__annotations__)
_counts_in = attrgetter(*_USAGE_FIELDS)


class TokenCounts(NamedTuple):
    """The tokens of one model call; None if nothing reports them.

    Attributes:
        input: The input tokens, including tokens read from and written to a cache.
        output: The output tokens, including reasoning.
        cached: The input tokens that came from a cache.
        reasoning: The output tokens of reasoning.
        cache_write: The input tokens that were written to a cache.
        input_audio: The input tokens of audio.
        output_audio: The output tokens of audio.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None
    input_audio: int | None = None
    output_audio: int | None = None

    @property
    def usage(self) -> Usage:
        """The usage of a model call with these counts; a count that is not reported is 0."""
        return Usage(
            self.input or 0,
            self.output or 0,
            self.cached or 0,
            1,
            self.cache_write or 0,
            self.reasoning or 0,
            self.input_audio or 0,
            self.output_audio or 0,
        )


NO_TOKENS = TokenCounts()


def count_of(value: Any) -> int | None:
    """A count of tokens; None for anything that cannot be one."""
    if type(value) is int:
        return value if 0 <= value < _MAX_COUNT else None
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        count = int(value)
    except (ValueError, OverflowError):
        return None
    return count if 0 <= count < _MAX_COUNT else None


_Kind = Literal[
    "input", "output", "cached", "cache_write", "reasoning", "input_audio", "output_audio", "total"
]
_Side = Literal["input", "output"]


class _Count(NamedTuple):
    """The meaning of a count's name.

    Attributes:
        kind: The counted tokens.
        is_beside: Whether providers that use the name count these tokens separately from the input
            or output.
        is_share: Whether the input or output is the sum of such amounts (Langfuse).
        is_extra: Whether it is added to an amount that is also reported.
    """

    kind: _Kind
    is_beside: bool = False
    is_share: bool = False
    is_extra: bool = False


# Attributes of spans with these prefixes contain counts.
_PREFIXES = (
    "gen_ai.usage.",
    "llm.token_count.",
    "ai.usage.",
    "llm.usage.",
    "gen_ai.response.prompt_tokens",
    "gen_ai.response.completion_tokens",
)
_PREFIX = re.compile(r"(?:gen_ai\.usage|llm\.token_count|(?:ai|llm)\.usage|gen_ai\.response)\.")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"[^a-z0-9]+")

_FILLERS = frozenset({"token", "tokens", "count", "num", "number"})
_INPUT_WORDS = frozenset({"input", "prompt"})
_OUTPUT_WORDS = frozenset({"output", "completion", "candidates", "response"})
_REASONING_WORDS = frozenset({"reasoning", "thoughts", "thinking"})
_CACHE_WORDS = frozenset({"cache", "cached"})
_WRITE_WORDS = frozenset({"creation", "write", "written"})
_READ_WORDS = frozenset({"read", "hit", "content"})
_WORDS = (
    _FILLERS
    | (_INPUT_WORDS | _OUTPUT_WORDS | _REASONING_WORDS)
    | (_CACHE_WORDS | _WRITE_WORDS | _READ_WORDS)
    | {"audio", "details", "total", "usage"}
)
# Anthropic and Bedrock count these separately from the input.
_BESIDE = frozenset({"cache_read_input", "cache_creation_input", "cache_write_input"})


@lru_cache(maxsize=2048)
def _meaning(name: str) -> _Count | None:
    """The meaning of a name in a provider's usage, or None.

    Names are understood by their words, so an unlisted spelling counts as well. A name with a word
    that is not about tokens (``cost``, ``miss``, ``image``, ``5m``) has no meaning.
    """
    listed = _SEPARATOR.sub("_", _HUMP.sub("_", name).lower()).strip("_").split("_")
    if listed[:3] == ["tool", "use", "prompt"]:  # Gemini: results of the tools that it runs
        return _Count("input", is_extra=True) if "details" not in listed else None
    words = frozenset(listed)
    if not words <= _WORDS:
        return None
    bare = words - _FILLERS
    if words & _CACHE_WORDS:
        return _cache_meaning([word for word in listed if word not in _FILLERS])
    if words & _REASONING_WORDS:
        return _Count("reasoning", is_beside="thoughts" in words)  # Gemini
    if "audio" in words and bool(words & _INPUT_WORDS) != bool(words & _OUTPUT_WORDS):
        return _Count("input_audio" if words & _INPUT_WORDS else "output_audio")
    if bare == {"total"}:
        return _Count("total")
    for kind, own_words in _SIDES:
        if bare and bare <= own_words:
            return _Count(kind, is_share=name == kind)
    return None


_SIDES: tuple[tuple[_Side, frozenset[str]], ...] = (
    ("input", _INPUT_WORDS),
    ("output", _OUTPUT_WORDS),
)


def _cache_meaning(words: Sequence[str]) -> _Count | None:
    if "audio" in words:
        return None
    if _WRITE_WORDS.intersection(words):
        return _Count("cache_write", is_beside="_".join(words) in _BESIDE)
    if _READ_WORDS.intersection(words) or "cached" in words:
        return _Count("cached", is_beside="_".join(words) in _BESIDE)
    return None


@lru_cache(maxsize=2048)
def _attribute_meaning(key: str) -> _Count | None:
    """The meaning of a span's attribute.

    The conventions count everything that was read as input. Instrumentations that write a
    provider's name follow them; only Gemini's thoughts stay separate from the output.
    """
    meaning = _meaning(_PREFIX.sub("", key, count=1))
    if meaning is None or meaning.kind == "reasoning":
        return meaning
    return meaning._replace(is_beside=False, is_share=False)


# Kinds that add nothing to a side.
_SIDES_AND_TOTAL = frozenset({"input", "output", "total"})


class _Reported:
    """The counts of one model call, as they were reported."""

    __slots__ = ("beside", "counts", "extra_input", "shares")

    def __init__(self) -> None:
        self.counts: dict[_Kind, int] = {}
        self.beside: set[_Kind] = set()
        self.shares: set[_Kind] = set()
        self.extra_input = 0

    def add(self, meaning: _Count | None, value: Any) -> None:
        """Add a count, unless another name reported it already."""
        if meaning is None or (count := count_of(value)) is None:
            return
        kind, is_beside, is_share, is_extra = meaning
        if is_extra:
            self.extra_input += count
        elif not self.counts.get(kind):
            self.counts[kind] = count
            if is_beside:
                self.beside.add(kind)
            if is_share:
                self.shares.add(kind)

    def add_mapping(self, usage: Mapping[Any, Any]) -> None:
        """Add the counts of a provider's usage, and then the counts of nested objects."""
        nested: list[tuple[str, Any]] = []
        for key, value in usage.items():
            if isinstance(value, (Mapping, list)):
                nested.append((str(key), value))
            else:
                self.add(_meaning(str(key)), value)
        for key, value in nested:
            if isinstance(value, list):
                self._add_modalities(key, value)
                continue
            for name, inner in value.items():
                self.add(_meaning(f"{key}_{name}"), inner)

    def _add_modalities(self, key: str, items: list[Any]) -> None:
        """Add the audio of Gemini's lists of tokens by modality."""
        for item in items:
            if isinstance(item, Mapping) and str(item.get("modality")).upper() == "AUDIO":
                count = item.get("tokenCount", item.get("token_count"))
                self.add(_meaning(f"{key}_audio"), count)

    def totals(self) -> TokenCounts:
        """The counts; separate counts are added to the input and output."""
        counts = self.counts
        if not counts:
            return NO_TOKENS
        if counts.keys() <= _SIDES_AND_TOTAL and not self.extra_input:
            return TokenCounts(counts.get("input"), counts.get("output"))
        cached, written = counts.get("cached"), counts.get("cache_write")
        sent, received = counts.get("input"), counts.get("output")
        reasoning = counts.get("reasoning")
        if received is not None:
            if reasoning and self._is_reasoning_beside(reasoning, received):
                received += reasoning
            received += self._share_of_audio("output")
        apart = (cached or 0) + (written or 0)
        if sent is not None:
            if apart and self._is_cache_beside(apart, sent, received or 0):
                sent += apart
            sent += self._share_of_audio("input") + self.extra_input
        return TokenCounts(
            sent,
            received,
            cached,
            reasoning,
            written,
            counts.get("input_audio"),
            counts.get("output_audio"),
        )

    def _share_of_audio(self, side: _Side) -> int:
        """The tokens of audio if the input or output leaves them out."""
        if side not in self.shares:
            return 0
        listed = self.counts.get("input", 0) + self.counts.get("output", 0)
        is_apart = self.counts.get("total") != listed
        return self.counts.get("input_audio" if side == "input" else "output_audio", 0) * is_apart

    def _is_cache_beside(self, apart: int, sent: int, received: int) -> bool:
        """Whether the input leaves cached and written tokens out.

        More of them than of the input proves it. A total proves it as well. Otherwise the names
        decide.
        """
        total = self.counts.get("total")
        if apart > sent or total == sent + apart + received:
            return True
        if total == sent + received:
            # Libraries that add up Anthropic's counts themselves forget the cache.
            return "cache_write" in self.beside
        return bool(self.beside & {"cached", "cache_write"}) or "input" in self.shares

    def _is_reasoning_beside(self, reasoning: int, received: int) -> bool:
        """Whether the output leaves tokens of reasoning out."""
        total, sent = self.counts.get("total"), self.counts.get("input", 0) + self.extra_input
        if reasoning > received or total == sent + received + reasoning:
            return True
        is_beside = "reasoning" in self.beside or "output" in self.shares
        return is_beside and total != sent + received


def read_tokens(usage: Any) -> TokenCounts:
    """The tokens of a provider's or framework's usage, in whatever spelling.

    Args:
        usage: A mapping, such as ``usage`` of an answer by OpenAI, Anthropic or Bedrock, Gemini's
            ``usageMetadata``, LangChain's ``usage_metadata`` or Langfuse's ``usage_details``. For
            anything else no count is known.
    """
    if not isinstance(usage, Mapping):
        return NO_TOKENS
    reported = _Reported()
    reported.add_mapping(usage)
    if "prompt_tokens" in usage or "promptTokens" in usage:
        reported.beside.clear()  # Anthropic's names next to OpenAI's, as LiteLLM writes them
    return reported.totals()


def span_tokens(attributes: Mapping[str, Any], keys: Collection[str] | None = None) -> TokenCounts:
    """The tokens that the attributes of a span report, in whatever spelling.

    Args:
        attributes: The attributes.
        keys: The names to look at, if others are known to contain no counts.
    """
    keys = attributes if keys is None else keys
    find = _counts_among if len(attributes) <= _FEW_KEYS else _counts_among.__wrapped__
    counts, are_sides = find(*keys)
    if not counts:
        return NO_TOKENS
    if are_sides:
        return TokenCounts(*[count_of(attributes[key]) for key, _ in counts])
    reported = _Reported()
    for key, meaning in counts:
        reported.add(meaning, attributes[key])
    return reported.totals()


# Long histories in flat attributes have thousands of names, and none of them occurs again.
_FEW_KEYS = 64


# An instrumentation writes few sets of names: most spans have a known set.
@lru_cache(maxsize=1024)
def _counts_among(*keys: str) -> tuple[list[tuple[str, _Count]], bool]:
    """The attributes with counts, with their meaning, and whether they are exactly two sides.

    Two sides are one input and then one output; nothing has to be added to them.
    """
    counts = [
        (key, meaning)
        for key in keys
        if key.startswith(_PREFIXES) and (meaning := _attribute_meaning(key)) is not None
    ]
    # "gen_ai.usage.details.*" repeat the counts of the conventions.
    counts.sort(key=lambda count: ".details." in count[0])
    return counts, [meaning.kind for _, meaning in counts] == ["input", "output"]
