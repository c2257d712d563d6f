from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import RetrievedDocument, Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import DATA, agent, capture, chat, codes, names, only, said, span, tool, user

CAPTURES = DATA / "retrieval"
WITH_TEXT = [name for name in names(CAPTURES, without="") if name != "langchain_genai"]
SHOES = "Shoes may be returned within 30 days if they are unworn."
REFUNDS = "Refunds are paid within 5 working days."


def retrieved(
    attributes: dict[str, Any], parent: str = "a1", **fields: Any
) -> tuple[Trajectory, Span]:
    """Return the run of an agent with a tool and a retriever, and the retriever's span."""
    retriever = replace(span("r1", 10, parent=parent, attributes=attributes), **fields)
    call = chat("c1", 20, [user("q")], said("a"), parent="a1")
    used = tool("t1", 5, end=15, parent="a1")
    return only(agent("a1", 1, end=99), used, retriever, call), retriever


@pytest.mark.parametrize("name", WITH_TEXT)
def test_the_documents_of_a_retriever_are_those_of_the_run(name: str):
    """The run has the texts that the retriever returned, in any emitter's form."""
    (run,) = reconstruct(*capture(name, CAPTURES))

    assert {document.text for document in run.documents} == {SHOES, REFUNDS}
    assert "documents_not_captured" not in codes(run)
    assert run.as_dict()["documents"][0]["text"] == run.documents[0].text


def test_documents_without_their_text_leave_a_gap():
    """OpenTelemetry's conventions name the documents and do not show them."""
    (run,) = reconstruct(*capture("langchain_genai", CAPTURES))

    assert run.documents == ()
    assert codes(run) == ["documents_not_captured"]
    assert "documents" not in run.as_dict()


LANGSMITH = {"langsmith.span.kind": "retriever"}
OPENINFERENCE = {"openinference.span.kind": "RETRIEVER"}


@pytest.mark.parametrize(
    ("attributes", "texts", "is_whole"),
    [
        ({**LANGSMITH, "gen_ai.completion": json.dumps({"documents": []})}, [], True),
        ({**LANGSMITH}, [], False),
        ({**LANGSMITH, "gen_ai.completion": json.dumps({"output": "a text"})}, [], False),
        (
            {**LANGSMITH, "gen_ai.completion": json.dumps({"output": [{"page_content": "one"}]})},
            ["one"],
            True,
        ),
        (
            {**LANGSMITH, "gen_ai.completion": '{"documents":[{"page_content":"one"},{"page_c'},
            ["one"],
            False,
        ),
        ({**OPENINFERENCE, "output.value": "__REDACTED__"}, [], False),
        (
            {
                "langwatch.span.type": "rag",
                "langwatch.contexts": json.dumps(
                    [{"document_id": "1", "chunk_id": "0", "content": "one"}]
                ),
            },
            ["one"],
            True,
        ),
        (
            {
                "langwatch.span.type": "rag",
                "langwatch.rag_contexts": json.dumps(
                    {"type": "json", "value": [{"content": "one"}]}
                ),
            },
            ["one"],
            True,
        ),
        ({"langwatch.span.type": "rag"}, [], False),
        (
            {
                "traceloop.span.kind": "task",
                "traceloop.entity.name": "VectorIndexRetriever",
                "traceloop.entity.output": json.dumps(
                    [{"node": {"id_": "1", "text": "one"}, "score": 0.9}]
                ),
            },
            ["one"],
            True,
        ),
        (
            {"traceloop.span.kind": "task", "traceloop.entity.name": "VectorIndexRetriever"},
            [],
            False,
        ),
        (
            {
                **OPENINFERENCE,
                "retrieval.documents.0.document.content": "one",
                "retrieval.documents.1.document.content": "__REDACTED__",
            },
            ["one"],
            False,
        ),
        (
            {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.documents": [{"id": "1", "content": "one"}],
            },
            ["one"],
            True,
        ),
    ],
)
def test_a_retriever_says_what_it_returned_or_there_is_a_gap(
    attributes: dict[str, Any], texts: list[str], is_whole: bool
):
    """An empty result is known; hidden, cut and unread documents are a gap."""
    run, _ = retrieved(attributes)

    assert [document.text for document in run.documents] == texts
    assert ("documents_not_captured" not in codes(run)) == is_whole


def test_the_oldest_documents_may_have_been_dropped():
    """A span that lost attributes may have lost documents."""
    flat = {**OPENINFERENCE, "retrieval.documents.0.document.content": "one"}
    run, retriever = retrieved(flat, dropped_attributes=2)

    assert run.documents == (RetrievedDocument("one", span_id=retriever.span_id),)
    assert "documents_not_captured" in codes(run)


def test_a_retriever_within_a_tool_leaves_no_gap():
    """The tool's result has the retriever's documents."""
    run, _ = retrieved({**LANGSMITH}, parent="t1")

    assert "documents_not_captured" not in codes(run)


def test_a_retriever_that_failed_returned_nothing():
    """The agent went on without documents."""
    run, _ = retrieved({**LANGSMITH}, status_code=2)

    assert (run.documents, "documents_not_captured" in codes(run)) == ((), False)
