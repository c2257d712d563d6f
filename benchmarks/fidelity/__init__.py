"""How faithfully tools read the traces of today's frameworks, each held against the truth.

``python -m benchmarks.fidelity`` runs every capture of `tests/data/frameworks` through oteval, and
through the peers whose environments are given, and compares the calls, results and answers with
those that were really exchanged (``truth.json``). An adapter in `adapters` turns a tool's own data
into lists of messages, in less than 60 lines; nothing of the capture is read by the adapter itself
but the spans that the tool wants as its input.
"""
