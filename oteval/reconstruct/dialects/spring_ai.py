"""Spring AI: the runs of its chat client and of tools, marked by ``spring.ai.kind``.

Model calls follow the GenAI conventions without content, which Spring AI writes to the
application's log only. Tools have their arguments and results if a property enables it. Source:
https://docs.spring.io/spring-ai/reference/observability/index.html.
"""

from __future__ import annotations

from ...messages import decoded_text
from ...model import Span
from ..dialect import AgentRun, Dialect, Logs, Operation, Wrapper
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = "set spring.ai.tools.observations.include-content=true"
KIND = "spring.ai.kind"
TOOL, CALL_ID = "spring.ai.tool.definition.name", "spring.ai.tool.call.id"
ARGUMENTS, RESULT = "spring.ai.tool.call.arguments", "spring.ai.tool.call.result"


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its kind."""
    attributes = span.attributes
    if TOOL in attributes:
        return tool_of_attributes(
            span,
            (ARGUMENTS, RESULT),
            SWITCH,
            name=attributes[TOOL],
            call_id=attributes.get(CALL_ID),
            result=decoded_text(attributes.get(RESULT)),
        )
    if attributes.get(KIND) == "chat_client":
        return AgentRun(span)
    return Wrapper(span)


DIALECT = Dialect(
    name="spring-ai",
    title="Spring AI",
    precedence=235,
    read=read,
    keys=(KIND, TOOL),
    switch=SWITCH,
)
