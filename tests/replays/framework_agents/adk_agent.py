"""Google's Agent Development Kit, with a model of LiteLLM."""

from __future__ import annotations

from typing import Any

import litellm
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import BaseTool, FunctionTool, LongRunningFunctionTool
from google.genai import types

from . import shop

# Requests of aiohttp are not recorded.
litellm.disable_aiohttp_transport = True


async def _ask(question: str, refund: Any, *, is_confirmed: bool = False) -> str:
    model = LiteLlm(f"openai/{shop.MODEL}", api_base=shop.base_url(), api_key=shop.KEY)
    agent = LlmAgent(name="clerk", model=model, instruction=shop.SYSTEM, tools=[refund])
    runner = InMemoryRunner(agent, app_name="shop")
    session = await runner.session_service.create_session(app_name="shop", user_id="u")
    content = types.Content(role="user", parts=[types.Part(text=question)])
    texts: list[str] = []
    while content is not None:
        message, content = content, None
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message
        ):
            parts = event.content.parts if event.content and event.content.parts else []
            texts += [part.text for part in parts if part.text]
            for part in parts:
                if part.function_call and part.function_call.name == "adk_request_confirmation":
                    answer = types.FunctionResponse(
                        id=part.function_call.id,
                        name=part.function_call.name,
                        response={"confirmed": is_confirmed},
                    )
                    reply = types.Part(function_response=answer)
                    content = types.Content(role="user", parts=[reply])
    return texts[-1]


async def function(question: str) -> str:
    """A plain function."""
    return await _ask(question, shop.refund)


async def coroutine(question: str) -> str:
    """A coroutine function."""

    async def refund(order_id: int, amount: int) -> dict:
        """Refund an order."""
        return shop.act(order_id, amount)

    return await _ask(question, refund)


async def long_running(question: str) -> str:
    """A long-running function."""
    return await _ask(question, LongRunningFunctionTool(shop.refund))


async def confirmation(question: str) -> str:
    """A function that needs a confirmation."""
    refund = FunctionTool(shop.refund, require_confirmation=True)
    return await _ask(question, refund, is_confirmed=True)


class _Refund(BaseTool):
    def _get_declaration(self) -> types.FunctionDeclaration:
        integer = types.Schema(type=types.Type.INTEGER)
        schema = types.Schema(
            type=types.Type.OBJECT, properties={"order_id": integer, "amount": integer}
        )
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters=schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        return shop.act(**args)


async def own_class(question: str) -> str:
    """A class of tools."""
    return await _ask(question, _Refund(name="refund", description="Refund an order."))


KINDS = {
    "function": function,
    "coroutine": coroutine,
    "LongRunningFunctionTool": long_running,
    "confirmation": confirmation,
    "BaseTool": own_class,
}
