"""Data of ``oteval demo``: traces of one agent in several dialects, and how to score them.

The traces are made by ``scripts/make_demo.py`` of the repository.
"""
