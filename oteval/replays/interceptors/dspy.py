"""The calls of DSPy that run the function of a tool without the tool."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from .calls import call_of, raise_error, value_of
from .table import require

__all__ = ["adapt_dspy"]

_FORM = r"Error executing tool '.*?': (?P<text>.*)"


def adapt_dspy(module: ModuleType) -> None:
    """Wrap ``ToolCalls.ToolCall.execute``, which looks functions up in the code that calls it."""
    owner: Any = require(module, "ToolCalls.ToolCall", "dspy")
    execute = require(module, "ToolCalls.ToolCall.execute", "dspy")

    @functools.wraps(execute)
    def answered(self: Any, functions: Any = None) -> Any:
        if functions is None:
            caller = sys._getframe(1)
            function = caller.f_locals.get(self.name) or caller.f_globals.get(self.name)
            functions = {} if function is None else {self.name: function}
        call = call_of(self.name, self.args or {})
        if call is None:
            return execute(self, functions)
        if (answer := call.answer()) is not None:
            raise_error(answer, _FORM)
            return value_of(answer)
        with call.observed() as report:
            result = execute(self, functions)
            report(result)
        return result

    owner.execute = answered
