"""What ``oteval demo`` shows: traces of one agent in several dialects, and how they are scored.

The traces are made by ``scripts/make_demo.py`` of the repository.
"""
