"""Views of trajectories, scores and experiments: terminal tables and report files. Read only.

Trace content is hostile: it is shown as plain text with its control characters made visible, never
as markup.
"""

import lazy_loader

# Commands that only start a program, or print a report without a database, need few of them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
