"""Adapters of `benchmarks.fidelity`: each runs in the environment of its tool.

A module has ``read(paths)``, which returns ``{"runs": [messages, ...], "notes": [text, ...]}``: the
runs that the tool shows, as messages with ``role``, ``content``, ``calls`` (``id``, ``name``,
``arguments``), ``call_id`` and ``is_error``; and each thing that it says is missing. `driver` calls it.
"""
