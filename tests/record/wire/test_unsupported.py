"""Clients that are not intercepted are named."""

from __future__ import annotations

from oteval.record.wire.unsupported import unsupported_clients


def test_imported_clients_are_named_with_a_remedy() -> None:
    """Clients that are intercepted are not."""
    found = unsupported_clients({"httpx", "json", "grpc", "aiohttp", "botocore", "pycurl"})
    assert [client.library for client in found] == ["grpc", "pycurl"]
    assert str(found[1]) == (
        "pycurl (HTTP) is imported: its requests are neither recorded nor replayed; use httpx, "
        "requests or aiohttp, or mark the function that calls it with @oteval.tool"
    )


def test_the_modules_of_this_process_are_the_default() -> None:
    import grpc

    assert grpc.__name__ in [each.library for each in unsupported_clients()]
