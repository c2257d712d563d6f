"""Other people's trace backends: traces come from them, and scores go back to them.

- `interface` has the values and protocols that every backend shares: `TraceSource` returns pages
  of spans, `AnnotationTarget` takes annotations.
- `json_api` sends requests: keys, retries, limits of rate and size, errors in one line.
- One module for each backend: `phoenix`, `mlflow`, `langfuse`, `langsmith`, `clickhouse`,
  `jaeger`, `tempo`. If a backend does not answer in OTLP's form, its `*_spans` reads the spans.
- `cursor_pages` reads lists behind a cursor; `ids` makes OpenTelemetry's ids.
- `times` parses times, stores positions by time, and halves ranges.
- `pull` stores pages together with the position after them; `push` turns scores into annotations.
- `connections` opens a backend by its name, with its usual environment variables.

No module needs a backend's client library.
"""
