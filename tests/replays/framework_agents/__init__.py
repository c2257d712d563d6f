"""Agents of many frameworks, each with every kind of tool that the framework has.

`python -m tests.replays.framework_agents FRAMEWORK KIND` asks one question. The model is an OpenAI
endpoint at ``OPENAI_BASE_URL``; every tool writes a line into the file that ``EFFECTS`` names, so
that a tool that runs during a replay is seen.
"""
