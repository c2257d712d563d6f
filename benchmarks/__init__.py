"""Benchmarks of oteval: ratios against a peer or a limit that is measured in the same run.

Absolute times move between machines and with what else these do; ratios do so far less. So each
part measures oteval and the other side one after the other, in the same run and on the same
input, and takes the median of several repetitions (the best one where a repetition is short).

`run` runs all parts, each in a process of its own, and writes `RESULTS.md`. Each part can be run
alone: ``python -m benchmarks.ingest``.
"""
