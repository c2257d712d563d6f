"""Replays: the recorded answers of a session, given back to the agent.

A recording is read from the store; a player answers the agent's requests from it, and reports
where the agent diverges from it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
