"""Interceptors of frameworks: a replay answers the tools of an agent from its recording.

Before a framework runs a tool, its interceptor asks the tool hook of this context
(`oteval.record.hooks`). The hook returns the recorded answer, or lets the tool run; then the
interceptor reports the call to the hook. Interceptors are installed when a framework is imported,
stay in place, and do nothing without a hook. If a framework lacks the method that they need, its
version is not supported. Importing it during a replay is then an error, because its tools would act
for real.

`intercepted_names` returns the tools that an interceptor answers in this process. A recorded answer
that requests any other tool is not returned to the agent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import ModuleType

from ...base.import_hook import ImportHook
from .frameworks import INTERCEPTORS, adapt_dspy
from .langchain import adapt_langchain
from .openai_agents import adapt_actions, adapt_openai_agents
from .pydantic_ai import PYDANTIC_AI, adapt_tool_names
from .tool_objects import intercepted_names

__all__ = ["install_tool_adapters", "intercepted_names"]

_ADAPTERS = (
    ("langchain_core.tools.base", adapt_langchain),
    ("agents.tool", adapt_openai_agents),
    ("agents.run_internal.tool_actions", adapt_actions),
    ("pydantic_ai.toolsets.combined", adapt_tool_names),
    ("dspy.adapters.types.tool", adapt_dspy),
    *((entry.module, entry.apply) for entry in (PYDANTIC_AI, *INTERCEPTORS)),
)
"""The modules that are changed when they are imported, and the functions that change them."""

_by_module: dict[str, list[Callable[[ModuleType], None]]] = defaultdict(list)
for _name, _apply in _ADAPTERS:
    _by_module[_name].append(_apply)


def _adapt(module: ModuleType) -> None:
    for apply in _by_module[module.__name__]:
        apply(module)


_hook = ImportHook(_by_module, _adapt)


def install_tool_adapters() -> None:
    """Adapt the frameworks that are loaded now, and others when they are imported.

    Raises:
        ConfigError: A loaded framework's version is not supported.
    """
    _hook.install()
