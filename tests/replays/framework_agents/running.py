"""How an agent of a framework is asked."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import Any

QUESTION = "Please refund order 17"


def ask(framework: str, kind: str) -> str:
    """Ask the agent of a framework that has one kind of tool."""
    module = importlib.import_module(f"{__package__}.{framework}_agent")
    answer: Any = module.KINDS[kind](QUESTION)
    return str(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)
