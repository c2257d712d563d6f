"""Parts that only some installations need: Spark, and other people's trace backends.

In: data frames, or the API of a backend. Out: scores, spans and annotations. Each part is found by
an entry point or imported by its own command, so nothing else imports this room.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
