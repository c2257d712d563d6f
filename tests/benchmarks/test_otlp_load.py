"""The client that loads a server over OTLP."""

from __future__ import annotations

import gc
import socket
import threading
import warnings

from benchmarks.otlp_load import requests, send


def _hang_up(listening: socket.socket, times: int) -> None:
    for _ in range(times):
        listening.accept()[0].close()


def test_a_server_that_hangs_up_leaves_no_socket_open():
    """A connection broken amid a request is counted by its error, and closed."""
    loads = list(requests(192, batch=512))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        server = threading.Thread(target=_hang_up, args=(listening, len(loads)))
        server.start()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            sent = send(listening.getsockname()[1], loads, senders=1)
            gc.collect()
        server.join()

    assert sum(sent.answers.values()) == len(loads)
    assert "200" not in sent.answers
    assert sent.acknowledged == []
    assert [each for each in said if each.category is ResourceWarning] == []
