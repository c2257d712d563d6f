"""Whatever only some installations need: Spark, and other people's trace backends.

In: data frames, or the API of a backend. Out: scores, spans and annotations. Each part is found by
an entry point or imported by its own command, so nothing else imports this room.
"""
