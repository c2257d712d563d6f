"""Monitors: detect that the behaviour of agents changed, and stay quiet while it did not.

A *monitor* watches one *measure* (a score, a pass rate, a latency) of one or more *groups* of runs.
A measure has one value in [0, 1] per conversation, an *observation*; lower is worse. A *detector*
compares the observations of a group with its *baseline*, learned from the first observations, and
raises an alarm within a *budget* of false alarms.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
