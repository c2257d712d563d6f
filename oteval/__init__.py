"""oteval scores what agents really did, from the OpenTelemetry traces they already emit.

Every public name can be imported from here. Names are loaded on first use, so importing oteval
takes almost no time. `__init__.pyi` lists them.

    from oteval import create_trajectory_match_evaluator

    evaluator = create_trajectory_match_evaluator(trajectory_match_mode="superset")
    evaluator(outputs=messages, reference_outputs=reference)

`oteval.reconstruct` turns spans into trajectories. `Store`, `load`, `refresh` and `score` make
scores from files. `evaluate` runs an experiment. The command line is ``oteval --help``.

PYTEST_DONT_REWRITE: pytest would warn when oteval is imported before its plugin.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
# `from oteval import *` must not replace Python's own `open`.
__all__.remove("open")
