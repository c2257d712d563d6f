"""Addresses that servers listen on."""

from __future__ import annotations

import socket

from oteval.base.addresses import listening_socket


def test_responses_do_not_wait_for_acknowledgements():
    """A connection sends the second part of a response without waiting for the client."""
    with listening_socket("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
