"""Clients that are not intercepted are named."""

from __future__ import annotations

from oteval.wire.unsupported import unsupported_clients


def test_imported_clients_are_named_with_a_remedy() -> None:
    found = unsupported_clients({"httpx", "json", "grpc", "aiohttp"})
    assert [client.library for client in found] == ["aiohttp", "grpc"]
    assert str(found[0]) == (
        "aiohttp (HTTP) is imported: its requests are neither recorded nor replayed; "
        "use httpx or requests, or mark the function that calls it with @oteval.tool"
    )


def test_a_library_below_another_is_not_named_twice() -> None:
    """Requests is intercepted, so urllib3 below it is too; alone, it is not."""
    assert unsupported_clients({"requests", "urllib3"}) == []
    assert [each.library for each in unsupported_clients({"botocore", "urllib3"})] == ["botocore"]
    assert [each.library for each in unsupported_clients({"urllib3"})] == ["urllib3"]


def test_the_modules_of_this_process_are_the_default() -> None:
    import grpc

    assert grpc.__name__ in [each.library for each in unsupported_clients()]
