"""Live scoring: which trajectory is scored when, while traces come in.

`completion` says when a trace is complete, `rules` keeps the configuration current, `lanes` runs
what takes its time beside the rest, `budgets` limits it, and `worker` drives them all.
"""
