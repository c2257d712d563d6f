"""Haystack."""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from . import shop


def _ask(question: str, refund: Any, **options: Any) -> str:
    key = Secret.from_token(shop.KEY)
    model = OpenAIChatGenerator(api_key=key, model=shop.MODEL, api_base_url=shop.base_url())
    tool = create_tool_from_function(refund, name="refund")
    agent = Agent(chat_generator=model, tools=[tool], system_prompt=shop.SYSTEM, **options)
    return str(agent.run(messages=[ChatMessage.from_user(question)])["last_message"].text)


def function(question: str) -> str:
    """A function."""
    return _ask(question, shop.refund)


def failing(question: str) -> str:
    """A function that raises an exception."""
    return _ask(question, shop.refund_fails)


KINDS = {"function": function, "failing": failing}
