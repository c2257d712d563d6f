"""The named prompts that a run used, with their versions, from any of its spans."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..messages import hidden, list_of, parse
from ..model import Span, own_names, own_value

__all__ = ["PROMPT_KEYS", "prompts_of"]

# The attributes with a prompt's name and its version, by emitter.
_NAMED = (
    ("gen_ai.prompt.name", "gen_ai.prompt.version"),
    ("langfuse.observation.prompt.name", "langfuse.observation.prompt.version"),
    ("traceloop.prompt.key", "traceloop.prompt.version"),
    ("llm.prompt_template.name", "llm.prompt_template.version"),
    ("langsmith.metadata.lc_hub_repo", "langsmith.metadata.lc_hub_commit_hash"),
)
_LINKED = "mlflow.linkedPrompts"
PROMPT_KEYS = frozenset([_LINKED, *(key for pair in _NAMED for key in pair)])
"""The attributes that name a prompt or its version."""
_LONGEST = 200


def prompts_of(spans: Iterable[Span], names: Collection[str]) -> tuple[str, ...]:
    """The prompts of some spans, each once, as ``name`` or ``name@version``.

    A prompt without a known name is ``@version``.

    Args:
        spans: The spans.
        names: The names of these attributes that the spans or their resources have.
    """
    if PROMPT_KEYS.isdisjoint(names) and not any(name in names for name in own_names("prompt")):
        return ()
    prompts: dict[str, None] = {}
    for span in spans:
        attributes = span.attributes
        prompts[_text(own_value("prompt", attributes, span.resource))] = None
        if attributes.keys().isdisjoint(PROMPT_KEYS):
            continue
        for name_key, version_key in _NAMED:
            if name_key in attributes or version_key in attributes:
                prompts[_prompt(attributes.get(name_key), attributes.get(version_key))] = None
        for item in list_of(parse(attributes.get(_LINKED)).value) if _LINKED in attributes else ():
            if isinstance(item, Mapping):
                prompts[_prompt(item.get("name"), item.get("version"))] = None
    prompts.pop("", None)
    return tuple(prompts)


def _prompt(name: object, version: object) -> str:
    name_text, version_text = _text(name), _text(version)
    return f"{name_text}@{version_text}" if version_text else name_text


def _text(value: object) -> str:
    if value is None or hidden(value) or not isinstance(value, (str, int, float)):
        return ""
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else ""
