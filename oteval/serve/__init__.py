"""The server, live scoring, and recording in the agent's process.

`oteval serve` consists of three kinds of processes:

- `listener_process` receives requests and writes them to the spool. It opens no database.
- `storage_process` owns the database. `store_writer` moves requests from the spool to the store,
  and `scoring_loop` scores traces that have ended.
- `decoder` processes turn requests into rows.

In live scoring each stage hands a plain record to the next (`scoring_loop` has the picture):
`tracker` decides that a trace has ended, `reconstructor` makes its trajectories, `scheduler`
decides which evaluations are due, `evaluator_runner` runs them (the verdict comes from
`oteval.evaluators.scorer`), and `publisher` hands out the scores.

`inprocess` records the spans of the agent's process, without a server.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
