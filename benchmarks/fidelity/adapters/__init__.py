"""Adapters of `benchmarks.fidelity`: each runs in the environment of its tool.

A module has ``read(paths)``, which yields readings ``{"runs": [...], "notes": [...]}`` of a
capture. Where the tool's user has to choose a mapper or an importer, each choice is a reading; most
tools have one. A run is a list of messages with ``role``, ``content``, ``calls`` (``id``, ``name``,
``arguments``), ``call_id`` and ``is_error``. Notes are the gaps that the tool names. An adapter
reads nothing but the objects that its tool makes of the spans. `driver` calls it, and adds the
warnings that the tool logs.
"""
