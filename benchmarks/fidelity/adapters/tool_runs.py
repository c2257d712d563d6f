"""Runs from the tool spans of a trace, and what they lack from the messages of its model spans.

A person who looks at a trace sees both: the calls as spans, and the messages of the model. Every
adapter whose tool shows both returns this view beside the others.
"""

from __future__ import annotations

from typing import Any

Run = list[dict[str, Any]]


def tool_messages(
    call_id: str, *, name: str, arguments: Any, content: Any, is_error: bool
) -> list[dict[str, Any]]:
    """Return the messages of a tool span: the call, and its result."""
    call = {"id": call_id, "name": name, "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "calls": [call]},
        {"role": "tool", "content": content, "call_id": call_id, "is_error": is_error},
    ]


def tool_run(question: Any, tools: Run, answer: Any, chats: list[Run]) -> Run:
    """Return a run of tool messages; what is missing comes from the chats of the same trace.

    Args:
        question: The input of the agent's span, or None.
        tools: The messages of `tool_messages`.
        answer: The output of the agent's span, or None.
        chats: The messages of the trace's model spans, in the order of time.
    """
    chats = [chat for chat in chats if chat]
    first = chats[0] if chats else []
    answers = [answer] if answer else [chat[-1]["content"] for chat in chats]
    questions = [at for at, each in enumerate(first) if _is_question(each)]
    turn = max(chats, key=len)[questions[-1] :] if questions else []
    unused = [call for message in turn for call in message.get("calls") or ()]
    for call in (call for message in tools for call in message.get("calls") or ()):
        same = [each for each in unused if each["id"] == call["id"]]
        same = same or [each for each in unused if str(each["name"]) in str(call["name"])]
        if same and not call["arguments"]:
            call["arguments"] = same[0]["arguments"]
        if same:
            unused.remove(same[0])
    last_question = first[questions[-1]]["content"] if questions else None
    return [
        {"role": "user", "content": question or last_question},
        *tools,
        *({"role": "assistant", "content": text} for text in answers),
    ]


def _is_question(message: dict[str, Any]) -> bool:
    return message["role"] in ("user", "human") and not message.get("call_id")
