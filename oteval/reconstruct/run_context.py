"""The context of a run, from any of its spans: documents that it retrieved, and named prompts.

The model does not call a retriever, and no message contains its results, but judges compare a
run's answers with them. Emitters write them as flat attributes (OpenInference), or as a list in the
retriever's output, in the fields of LangChain's or Haystack's documents.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..messages import hidden, list_of, parse
from ..model import Gap, RetrievedDocument, Span, first, own_names, own_value
from .dialects import haystack, langfuse, langsmith, langwatch, mlflow, openinference, traceloop
from .gaps import gap
from .readers.flat_lists import nested
from .runs import TracedRun

__all__ = ["PROMPT_KEYS", "RETRIEVER_KEYS", "Retrieved", "prompts_of", "retrieved_in"]

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


class _Emitter(NamedTuple):
    """How an emitter marks the span of a retriever.

    Attributes:
        key: The attribute with the span's kind.
        ending: How its value ends, in lower case.
        output: The attribute with the documents.
        switch: How the emitter is made to write their text.
        condition: Another attribute that such a span has, with its value, or ().
    """

    key: str
    ending: str
    output: str
    switch: str
    condition: tuple[str, str] | tuple[()] = ()


_FLAT = "retrieval.documents."
_EMITTERS = (
    _Emitter(openinference.KIND, "retriever", "output.value", openinference.SWITCH),
    _Emitter(langsmith.KIND, "retriever", langsmith.OUTPUT, langsmith.SWITCH),
    _Emitter(langfuse.TYPE, "retriever", langfuse.OUTPUT, langfuse.SWITCH),
    _Emitter(mlflow.TYPE, "retriever", mlflow.OUTPUT, mlflow.SWITCH),
    _Emitter(
        *(haystack.COMPONENT_TYPE, "retriever"),
        *(f"{haystack.COMPONENT_CONTENT}.output", haystack.SWITCH),
    ),
    *(
        _Emitter(langwatch.TYPE, "rag", key, "pass contexts to langwatch.get_current_span().update")
        for key in ("langwatch.contexts", "langwatch.rag_contexts")
    ),
    _Emitter(  # LlamaIndex's classes
        *(traceloop.NAME, "retriever", traceloop.OUTPUT, traceloop.SWITCH),
        (traceloop.KIND, "task"),
    ),
    _Emitter(
        *("gen_ai.operation.name", "retrieval", "gen_ai.retrieval.documents"),
        "the conventions have only their ids: instrument with OpenInference instead",
    ),
)
RETRIEVER_KEYS = frozenset(emitter.key for emitter in _EMITTERS)
"""The attributes that mark the span of a retriever."""
_LISTS, _TEXTS = ("documents", "nodes", "output", "value"), ("page_content", "content", "text")
_IDS = ("id", "id_", "document_id")


class Retrieved(NamedTuple):
    """The results of a run's retrievers.

    Attributes:
        documents: The documents whose text is known, each once.
        gaps: A gap for each retriever whose documents are not all known. Documents that a tool
            retrieved are in its result as well, so they leave no gap.
    """

    documents: tuple[RetrievedDocument, ...]
    gaps: tuple[Gap, ...]


def retrieved_in(runs: Sequence[TracedRun]) -> Retrieved:
    """The documents that the parts of a run retrieved."""
    documents: dict[tuple[str, str], RetrievedDocument] = {}
    gaps = []
    for run in runs:
        for span, emitter in _retrievers(run):
            if span.is_error:
                continue
            span_documents, is_whole = _documents(span, emitter)
            for document in span_documents:
                documents.setdefault((document.id, document.text), document)
            if not is_whole and not _is_in_tool(span, run):
                gaps.append(gap("documents_not_captured", span.span_id, switch=emitter.switch))
    return Retrieved(tuple(documents.values()), tuple(gaps))


def _retrievers(run: TracedRun) -> list[tuple[Span, _Emitter]]:
    """The spans of retrievers, each with the emitter that marks it."""
    emitters = [e for e in _EMITTERS if e.key in run.names and _is_used(e, run.spans)]
    spans = [(span, _emitter_of(span, emitters)) for span in run.spans] if emitters else []
    return [(span, emitter) for span, emitter in spans if emitter is not None]


def _is_used(emitter: _Emitter, spans: Sequence[Span]) -> bool:
    """Whether any span is of the kind that marks an emitter's retrievers."""
    key, ending = emitter.key, emitter.ending
    for span in spans:
        kind = span.attributes.get(key)
        if isinstance(kind, str) and _ends_with(kind, ending):
            return True
    return False


def _emitter_of(span: Span, emitters: Sequence[_Emitter]) -> _Emitter | None:
    """Which of some emitters wrote a retriever's span; None for any other span."""
    attributes, unread = span.attributes, None
    for emitter in emitters:
        kind = attributes.get(emitter.key)
        if not isinstance(kind, str) or not _ends_with(kind, emitter.ending):
            continue
        if emitter.condition and attributes.get(emitter.condition[0]) != emitter.condition[1]:
            continue
        if emitter.output in attributes:
            return emitter
        unread = unread or emitter
    return unread


@lru_cache(maxsize=256)
def _ends_with(kind: str, ending: str) -> bool:
    """Whether the kind of a span ends with a word, in any spelling."""
    return kind.strip('"').lower().endswith(ending)


def _documents(span: Span, emitter: _Emitter) -> tuple[list[RetrievedDocument], bool]:
    """The documents of a span whose text is known, and whether these are all documents."""
    flat = nested(span.attributes, _FLAT)
    items: Any = [item.get("document") for item in flat if isinstance(item, Mapping)]
    is_whole = not span.dropped_attributes
    if not items:
        output = parse(span.attributes.get(emitter.output))
        items, is_whole = output.value, is_whole and not output.truncated
        if isinstance(items, Mapping):
            items = next((items[key] for key in _LISTS if key in items), None)
        is_whole = is_whole and isinstance(items, list)
    documents = list(_read(list_of(items), span))
    readable = [document for document in documents if document is not None]
    return readable, is_whole and None not in documents


def _read(items: Sequence[Any], span: Span) -> Iterator[RetrievedDocument | None]:
    """Yield each document, or None if its text is not known."""
    for item in items:
        fields = item if isinstance(item, Mapping) else {}
        inner = fields.get("node")  # LlamaIndex's, next to its score
        fields = inner if isinstance(inner, Mapping) else fields
        texts = (fields.get(key) for key in _TEXTS)
        text = next(
            (value for value in texts if isinstance(value, str) and not hidden(value)), None
        )
        id_ = first(fields, _IDS)
        yield RetrievedDocument(text, str(id_ or ""), span.span_id) if text else None


def _is_in_tool(span: Span, run: TracedRun) -> bool:
    """Whether a span is inside of the span of a tool."""
    parents = {member.span_id: member.parent_id for member in run.spans}
    tools = {tool.span.span_id for tool in run.tool_runs}
    at = span.parent_id
    while at in parents and at not in tools:
        at = parents.pop(at)
    return at in tools


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
