"""Benchmarks of oteval: ratios against a peer or a limit that is measured in the same run.

Absolute times vary with the machine and its load; ratios vary far less. So each
part measures oteval and the other side one after the other, in the same run and on the same
input, and takes the median of several repetitions (the best one where a repetition is short).

`run` runs all parts, each in a separate process, and writes `RESULTS.md`. Each part can be run
alone: ``python -m benchmarks.ingest``.
"""
