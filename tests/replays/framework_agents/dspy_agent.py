"""DSPy."""

from __future__ import annotations

import dspy

from . import shop


def react(question: str) -> str:
    """A plain function of a ReAct agent that calls functions natively."""
    model = dspy.LM(f"openai/{shop.MODEL}", api_base=shop.base_url(), api_key=shop.KEY, cache=False)
    adapter = dspy.ChatAdapter(use_native_function_calling=True)
    with dspy.context(lm=model, adapter=adapter):
        predict = dspy.Predict(
            dspy.Signature("question, tools: list[dspy.Tool] -> calls: dspy.ToolCalls")
        )
        calls = predict(question=question, tools=[dspy.Tool(shop.refund)]).calls
        return str([call.execute(functions=[dspy.Tool(shop.refund)]) for call in calls.tool_calls])


KINDS = {"native calls": react}
