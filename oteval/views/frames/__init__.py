"""Frames: the runs, messages, calls, scores, experiments and labels of databases as tables.

- `database.open` gives a `Database`, which opens its files only while it reads them.
- `frame.Frame` is one of its tables: lazy, filtered as by the command line, and read row by row or
  as a data frame.
- `rows` reads the rows of a table, whose columns are those of `oteval.model.TABLES`.
- `csv_files` writes tables as CSV.
"""
