"""Asks one agent: ``python -m tests.replays.framework_agents FRAMEWORK KIND``."""

from __future__ import annotations

import sys

from .running import ask

if __name__ == "__main__":
    print(ask(*sys.argv[1:3]))
