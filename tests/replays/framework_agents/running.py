"""How an agent of a framework is asked."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
from typing import Any

QUESTION = "Please refund order 17"


# LiteLLM would ask a server for prices.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def ask(framework: str, kind: str) -> str:
    """Ask the agent of a framework that has one kind of tool."""
    module = importlib.import_module(f"{__package__}.{framework}_agent")
    answer: Any = module.KINDS[kind](QUESTION)
    return str(asyncio.run(answer) if inspect.iscoroutine(answer) else answer)
