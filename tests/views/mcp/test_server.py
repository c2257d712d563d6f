"""Messages of clients that cannot be read as JSON-RPC."""

from __future__ import annotations

import mcp_types as types
import pytest

from oteval.views.mcp.server import refusal


def refused(line: str) -> types.JSONRPCError:
    """Return the answer to a line that cannot be read."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    return refusal(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "method": "x", "params": ' + "[" * 9000, 7),
        ('{"params": ' + "[" * 300 + "]" * 300 + ', "id": "a-1", "jsonrpc": "2.0"}', "a-1"),
        ('{"id": 7, "params": {"id": 8, "x": ' + "[" * 300, None),
        ("not JSON", None),
    ],
)
def test_the_answer_has_the_id_where_it_is_certain(line: str, expected: int | str | None) -> None:
    """An id at either end of the line is used; with two of them, none is."""
    found = refused(line)

    assert found.id == expected
    assert found.error.code == types.PARSE_ERROR
