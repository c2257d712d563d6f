"""The values that the stages of oteval pass to each other: frozen, typed, without I/O.

- A **span** and a **log record** are OpenTelemetry's (`telemetry`).
- A **trajectory** is one agent run: the messages exchanged with the model. In a conversation, a run
  is one turn; its `messages` include those of previous turns, and its first new message has the
  index `new_from`. A **gap** is something that a trace does not contain, with the reason
  (`trajectory`).
- A **score** is one evaluator's verdict on one trajectory. Without a verdict, its `status` has the
  reason, and it never has a number. A **reference** is the expected trajectory, and a **label** is
  a person's verdict (`score`).
- A **dataset** has **examples**, an **experiment** runs a system on them, and **feedback** is one
  evaluator's verdict on a **run** of an experiment (`experiment`).
- An **outline** has the columns of a stored run. Evaluators may decide the run by them, without its
  messages (`score`).
- A **recording** has the answers of models and tools in one session, for its replay (`recording`).

Times are nanoseconds since the Unix epoch, durations nanoseconds. Ids are lower-case hex, as in
OTLP/JSON.
"""

import lazy_loader

# Modules load on first use: evaluators need no experiments, and matchers must import fast.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
