"""Data of ``oteval demo``: traces of one agent in several dialects, and the configuration to score them.

The traces are made by ``scripts/make_demo.py`` of the repository.
"""
