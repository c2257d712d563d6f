"""Instrument agents: set up OpenTelemetry in the agent's process, and write spans by hand.

`oteval.instrument()` turns on the installed instrumentations and exports their spans. The
decorators `oteval.agent` and `oteval.tool` write spans for agents without a framework. Nothing here
may break or slow the agent: errors are counted and logged once, never raised.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
