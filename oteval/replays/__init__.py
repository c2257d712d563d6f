"""Replays: the recorded answers of a session, given back to the agent.

Inputs are a session's spans and HTTP exchanges, from the store or a file, and the agent: a
function, a command, a test, or a client of an endpoint.

The output is a `ReplayResult`: it has each `Divergence` from the recording, with the line of the
agent's code that caused it. A repetition with a live model (``whatif``) also returns two
experiments. A replay never acts: it refuses a request or a tool that it cannot answer. A replay
with something that it cannot guard is never a pass.

Nothing here imports `cli`, `views` or `extras`. `player` and the modules that it uses do no I/O.

Read in this order:

1. `recordings`, with `model_calls` and `recorded_executions`, reads a session from the store;
   `recording_files` and `cassettes` keep it in files.
2. `player` answers requests. `request_key` (with `canonical_messages`, `wire_requests` and
   `text_comparison`) finds the recorded one; `recorded_requests`, `recorded_exchanges`,
   `recorded_tools` and `replay_order` keep count of them; `divergence` describes a difference.
3. `session` runs it in the agent's process. `transport`, `interceptors` and `tool_gate` answer
   requests and tools; `network_guard` and `child_processes` refuse the rest; `open_replays` knows
   which replay a thread belongs to.
4. `verify` replays many sessions, by `target` or `command_runner`; `server` and `mcp_server` answer
   other processes; `written_tests` and `testing` make tests of sessions.
5. `whatif` repeats sessions, with `what_if_player`, `tool_ladder` and `agent_threads`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
