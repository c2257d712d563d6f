"""The rule for whether a call failed, on results alone; `tests/reconstruct` has it in spans."""

from __future__ import annotations

import json

import pytest

from oteval.messages.call_outcome import decided, near_miss_of, outcome_of, recorded_outcome
from oteval.model import Message

MCP = {"content": [{"type": "text", "text": "order is locked"}]}
ERRORS = [
    "Error",
    "error: no such file",
    "ERROR: no such file",
    "Error, no such file",
    "error fetching the order: no such file",
    "Tool execution error: no such file",
    "Client error '404 Not Found' for url",
    '{"message": "Error: no such file"}',
    "Error - no such file",
    "Error (404): no such order",
    "Error: 404",
    "Error 404: no such order",
    "Error code: 500 - {'error': 'x'}",
    "Error executing tool lookup: order 9999 not found",
    "Error in node A: no such order",
    "Error order 17 is gone",
    "[ERROR] no such order",
    "**Error:** no such order",
    "❌ Error: no such order",
    "<tool_use_error>File not found</tool_use_error>",
    "An error occurred while running the tool. Please try again.",
    "An unexpected error has occurred",
    "Internal Server Error",
    "Failed to invoke Tool `lookup` with parameters {}",
    "Tool execution failed",
    "Request failed with status code 404",
    "Unknown action lookup",
    "Unknown tool: lookup",
    "lookup is not a valid tool, try one of [search].",
    "MCP error -32603: no such order",
    "ValueError: no such order",
    "requests.exceptions.HTTPError: 404 Client Error",
    "java.lang.NullPointerException",
    "KeyError('order')",
    "TimeoutError",
    "Exception: no such order",
    'Exception in thread "main" java.lang.Error',
    "Traceback (most recent call last):\n  File x",
    "HTTP 500",
    "HTTP/1.1 404 Not Found",
    "HTTP Error 403: Forbidden",
    "404 Client Error: Not Found for url",
    "503 Service Unavailable",
    "fatal: not a git repository",
    "cat: a.txt: No such file or directory",
    "bash: foo: command not found",
    json.dumps("Error: no such file"),
    json.dumps(json.dumps("Error: no such file")),
    json.dumps("HTTP 500"),
    '{"error": "no such order"}',
    '{"error": {"code": 17}}',
    '{"error": true}',
    '{"Error": "no such order"}',
    '{"error": "cut in the mid',
    '{"errorMessage": "no", "errorType": "OrderError"}',
    '{"status": "error"}',
    '{"status": "ERROR", "message": "no"}',
    '{"status": "failed", "reason": "no such order"}',
    '{"success": false}',
    '{"ok": false, "detail": "no"}',
    '{"status": 500}',
    '{"statusCode": 404, "body": ""}',
    '{"type": "error", "message": "no"}',
    '{"errors": [{"message": "no such field"}], "data": null}',
    '{"result": "Error: no"}',
    '{"result": {"error": "no"}}',
    "{'error': 'no such order'}",
    '[{"type": "text", "text": "Error: no"}]',
    "content='no' name='f' tool_call_id='c1' status='error'",
    json.dumps({**MCP, "isError": True}),
    json.dumps({"content": [{"type": "text", "text": '{"error": "no"}'}], "isError": False}),
]
FRIENDS = [
    "",
    "sunny",
    "No errors found",
    "Errors: 0",
    "errors: 0",
    "error: none",
    "Error: 0.05",
    "error_rate: 0.1",
    "Error rate: 0.1",
    "Error bars: see the figure",
    "Error handling in Python",
    "error handling: a guide",
    "error codes: 17 and 18",
    "# Error handling",
    "Errors and exceptions: a guide",
    "Exception handling is a feature of many languages",
    "exceptions.py: 17 lines",
    "ValueError is raised when an argument has the wrong value.",
    "An error budget is a share of requests",
    "The HTTP 500 status means that the server failed",
    "HTTP 404 is a status code",
    "HTTP/1.1 200 OK",
    'src/a.py:10: raise ValueError("error")',
    "2026-01-01 ERROR: no such order",
    "3 tests failed",
    '{"error": null}',
    '{"error": false}',
    '{"error": ""}',
    '{"error": "none"}',
    '{"error": 0.05, "iterations": 3}',
    '{"errors": []}',
    '{"errors": [{"message": "unused name"}], "files": 3}',
    '{"status": "ok", "error": "of an earlier attempt"}',
    '{"status": "failed", "job": 4}',
    '{"success": true}',
    '{"status": 200}',
    '{"title": "Error"}',
    '{"logs": ["Error: no"]}',
    '{"jobs": {"error": "no"}, "count": 1}',
    '[{"error": "no"}, {"error": "no"}]',
    '[{"id": 1, "error": "no"}]',
    json.dumps({**MCP, "isError": False}),
    json.dumps({"content": [{"type": "text", "text": "Error: no"}], "isError": False}),
]


@pytest.mark.parametrize("text", ERRORS)
def test_what_tools_return_for_an_error_is_a_failed_call(text: str):
    """A result that reports an error, or that begins as one, is one, and says why."""
    found = outcome_of(text)

    assert found.failed
    assert found.reason


@pytest.mark.parametrize("text", FRIENDS)
def test_a_result_with_the_words_of_an_error_is_not_one(text: str):
    """Counts, documents, logs and empty errors are results like others."""
    assert not outcome_of(text).failed


def test_the_reason_is_the_text_of_the_error():
    """Envelopes are taken off: the comment of a score shows it."""
    assert outcome_of(json.dumps({**MCP, "isError": True})).reason == "order is locked"
    assert outcome_of('{"error": {"code": 4, "message": "no order"}}').reason == "no order"


@pytest.mark.parametrize(
    ("content", "recorded", "failed", "evidence"),
    [
        ("sunny", True, True, "recorded"),
        ("Error: no", False, False, "recorded"),
        ('{"error": "no"}', False, True, "reported"),
        (None, None, None, ""),
        (None, True, True, "recorded"),
        ("Error: no", None, True, "written"),
        (json.dumps({**MCP, "isError": True}), None, True, "flagged"),
        (json.dumps({**MCP, "isError": False}), None, False, "flagged"),
    ],
)
def test_stronger_evidence_outranks_weaker(content, recorded, failed, evidence):
    """What was recorded counts before what the tool reports, and that before what it wrote."""
    found = outcome_of(content, recorded=recorded)

    assert (found.failed, found.evidence) == (failed, evidence)


@pytest.mark.parametrize(
    ("fields", "recorded"),
    [
        ({"is_error": True}, True),
        ({"isError": True, "status": "success"}, True),
        ({"status": "error"}, True),
        ({"error": "no"}, True),
        ({"is_error": False}, False),
        ({"is_error": None, "error": None, "status": "success"}, None),
        ({}, None),
    ],
)
def test_the_fields_beside_a_result(fields, recorded):
    """A default that libraries write on each result records nothing."""
    assert recorded_outcome(fields.get) is recorded


def test_deciding_twice_changes_nothing():
    """Results are completed several times while a conversation grows."""
    for text in (*ERRORS, *FRIENDS):
        once = decided(Message("tool", text))
        assert decided(once) is once


def test_only_the_beginning_of_a_long_text_is_examined():
    """The rule runs on each result: hostile text takes no more time than other text."""
    for text in (" " * 10**6, "(" * 10**6, "a." * 10**6 + "Error", "error " * 10**6, '"' * 10**6):
        outcome_of(text)


@pytest.mark.parametrize(
    ("text", "is_near"),
    [
        ("error_rate: 0.1", True),
        ("Errors: 0", True),
        ('{"error": null}', True),
        ("No errors found", False),
        ("sunny, with an error: 0.1", False),
        ("", False),
        (None, False),
    ],
)
def test_a_near_miss_begins_with_the_word(text: str | None, is_near: bool):
    """A result that has the word in its midst is a result like others."""
    assert bool(near_miss_of(text)) is is_near
