"""Other people's trace backends: traces come from them, and scores go back to them.

- `transfer` pulls and pushes: it stores the pages of a `TraceSource` together with the position
  after them, and turns scores into annotations for an `AnnotationTarget`.
- `json_api` sends requests: keys, retries, limits of rate and size, errors in one line.
- One module for each backend: `phoenix`, `mlflow`, `langfuse`, `langsmith`, `clickhouse`,
  `jaeger`, `tempo`.
- `page_lists` reads lists behind a cursor, halves ranges, and stores positions by time.
- `span_fields` makes OpenTelemetry's ids, parses times and checks spans.
- `connections` opens a backend by its name, with its usual environment variables.

No module needs a backend's client library.
"""
