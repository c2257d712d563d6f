"""The store: spans, trajectories and scores in one DuckDB database. The only package with SQL.

A `Store` opens a database; each of its attributes is an object with the queries on a few tables:

- `spans`: ``spans``, ``logs``, ``spool_position``, ``pull_positions``. `archive`:
  ``archived_files``, ``archived_traces``, and the Parquet files to which old rows of ``spans`` and
  ``logs`` move. `span_outlines` only reads.
- `pending`: ``progress``, the rows that each stage is done with. `related` only reads.
- `trajectories`: ``trajectories``, ``superseded``. `matching`, `outlines`,
  `run_list`, `agent_figures`, `evaluator_figures` and `variants` only read.
- `scores`, `labels`: ``scores``, ``human_labels``. `label_queue` only reads.
- `references`, `datasets`: ``references``, ``datasets``, ``examples``.
- `experiments`: ``experiments``, ``runs``, ``feedback``, ``pair_votes``. `experiment_figures` only
  reads.
- `judge_calls`: ``judge_calls``, ``judge_call_targets``.
- `live`: ``completions``, ``trace_conversations``, ``live_rules``, ``evaluator_spend``.
- `observations`: ``monitor_open_runs``, ``monitor_conversations``. `outbox`: ``notifications``.
  `monitors`: the other tables of monitors.
- `audit`: ``audit_log``. `deletion` deletes from most tables.

Rows are only appended, except that `deletion` deletes them. The newest row counts, and the views
named ``current_...`` show it.

**Transactions** hold writes that belong together: new revisions with the old ones that they
supersede; rows from the spool with the position after them; archived files with the deletion of
their rows; an experiment's runs with their feedback. `query` shows how a Python call becomes SQL.

**Who may open it.** One process at a time. It may share its connection: `Store.sibling` is for
another thread, `Store.serve` for other processes. `Store(path)` in another process then uses the
serving process, with the same methods. `ShardedStore` reads several databases as one.

**Schema.** The statements are in ``migrations/NNNN_name.sql``. Opening a database applies the
missing ones.

**To add a column to ``scores``**, add a field to `EvaluationResult` in ``model/score.py`` (also to
`Score.as_dict`), and write the next migration: ``ALTER TABLE scores ADD COLUMN``, and the views of
``0019_current_scores.sql`` again. Storing, deciding and
reading follow from the fields. Old rows read as the default. To publish, compare or import it, see
``scoring/score_events.py``, ``cli/rescore.py`` and ``ingest/exported_runs.py``.

**To add a column to another table**, for instance to ``trajectories``:

1. Add the field to the value in ``oteval/model/`` (also to `Trajectory.as_dict`, which ``--json``
   prints), and set it where the value is made: ``reconstruct/conversation.py`` for trajectories.
2. Write the next migration: ``ALTER TABLE ... ADD COLUMN``, then create the views on the table
   again, since a view keeps the columns that it was made with. See ``0002_call_keys.sql``.
3. Add the column to the schema and to both directions of the conversion: ``trajectory_rows`` for
   trajectories, ``telemetry_rows`` for spans and log records, else the module of the table. Rows
   are inserted by name, in any order. In ``telemetry_rows`` the column must come last, as in the
   table, because repeated spans are compared by position.
4. Decide about old rows, where the column is NULL. Either read NULL as a default, or let the
   migration fill the column; ``DELETE FROM progress WHERE stage = 'reconstruct'`` reconstructs all
   traces. A reconstructed trajectory gets a new revision only if its fingerprint changes. A new
   column is not part of it, unless you add it to ``_FINGERPRINT_COLUMNS`` in ``trajectory_rows``.
5. Test that the column survives the store: in tests/store, ``test_trajectories.py`` (`full_run` has
   a value in every field), ``test_round_trip.py`` (spans and log records), or the table's test.
6. To select, list, group or watch runs by it, add it to ``model/columns.py`` and ``column_sql``. To
   read it back from ``--json``, extend ``ingest/exported_runs.py``.
"""

import lazy_loader

# A process that only makes rows for the database needs neither DuckDB nor most of the modules.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
