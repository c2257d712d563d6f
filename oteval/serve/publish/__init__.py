"""Scores published on the traces that they belong to, while the server runs.

`forwarder` sends traces on with their scores as attributes, `events` sends scores as log events,
and `metrics` counts them.
"""
