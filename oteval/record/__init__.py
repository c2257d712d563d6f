"""Record agents: set up OpenTelemetry in the agent's process, and write spans by hand.

In: `oteval.instrument()`, the decorators `oteval.agent` and `oteval.tool`, `oteval.model_call`, and
the command of `oteval run`. Out: spans, and HTTP exchanges as log events, in an OTLP endpoint, a
file or a database; replays use the same hooks to answer tools and requests.

Nothing here may break or slow the agent: errors are counted and logged once, never raised. So
OpenTelemetry, DuckDB and the frameworks are imported where they are needed, never with this
package, and `ingest`, `store`, `evaluators` and `replays` not at all.

Reading order: `instrument`, `providers` and `processors`; `export_pipeline`, `destinations` and
`process_end`; `libraries`, `installed_packages`, `library_activation` and `discovery`;
`decorators`, `function_wrappers`, `tool_spans`, `model_calls` and `conventions`; `typed_values`;
`tool_watcher`, `tool_functions` and `exchanged_code`; `wire/`; `instrumented_command` and
`bootstrap/`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
