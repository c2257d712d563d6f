"""Evaluators: a trajectory and a reference in, a score and its reason out.

Users call `create_trajectory_match_evaluator` and the other ``create_*`` functions; `compare` with
a `MatchSpec` gives the same verdict without the result dict. An evaluator of your own is a
subclass of `Evaluator`. Importing this package is cheap. All of it is pure, except for `judge`
and `answers.embeddings`, which call models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
