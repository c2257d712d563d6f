"""Reconstruct trajectories from spans: an agent's messages, model calls and tool calls.

Pure: spans and log records in, trajectories out; no clock, no file, no database. The steps, in
order:

1. `span_reader` picks the dialect of each span; the dialect (`dialects`) reads its attributes
   with the shared `readers` and returns an operation (`operations`) with messages.
2. `tree` and `run_detection` find the agent runs; `duplicates` and `detached_tools` clean them up.
3. `conversation`, with `trajectory_builder`, `message_thread` and `tool_results`, joins the
   messages of each run and stitches the turns of a conversation.

Missing content becomes a gap (`gaps`) at each step.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
