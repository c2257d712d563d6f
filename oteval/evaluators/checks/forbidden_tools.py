"""A check that a run calls only permitted tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ConfigError
from ...model import OutlineRequest, Reference
from ..factories import with_options_of
from .base import Check, EvaluationContext, EvaluationResult, NotEvaluated, name_matches

__all__ = ["ForbiddenTools", "create_forbidden_tools_evaluator"]


@dataclass(frozen=True, kw_only=True)
class ForbiddenTools(Check):
    """Fails if a run calls a forbidden tool.

    Attributes:
        forbidden: Tools that must not be called; ``*`` matches any text, ``?`` any character.
        allowed: The only tools that may be called.
    """

    type: ClassVar[str] = "forbidden_tools"

    forbidden: Sequence[str] | None = None
    allowed: Sequence[str] | None = None

    def check_combination(self) -> None:
        """Refuse a check without a list."""
        if self.forbidden is None and self.allowed is None:
            raise ConfigError("give forbidden or allowed, a list of tools")

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The columns that every outline has: they name the tools."""
        return OutlineRequest()

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for calls of forbidden tools."""
        wrong = [call for call in context.calls if self._is_wrong(call.call.name)]
        if not wrong:
            context.require_all_calls()
            if unasked := context.gap("unmatched_tool_span"):
                raise NotEvaluated(f"{unasked.code}: {unasked.detail}")
        tools = sorted({call.call.name for call in wrong})
        figures = {"calls": len(context.calls), "wrong_calls": len(wrong), "tools": tools}
        return self.result([f"{call} must not be made" for call in wrong], figures)

    def _is_wrong(self, name: str) -> bool:
        if name_matches(name, self.forbidden or ()):
            return True
        return self.allowed is not None and not name_matches(name, self.allowed)

    def describe(self) -> dict[str, Any]:
        """The options; without a list of forbidden tools, an empty one."""
        return {**super().describe(), "forbidden": self.forbidden or ()}


@with_options_of(ForbiddenTools)
def create_forbidden_tools_evaluator(**options: Any) -> ForbiddenTools:
    """Create an evaluator that fails if a run calls a forbidden tool.

    Args:
        **options: The options of `ForbiddenTools`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ForbiddenTools(**options)
