"""Checks of the tools that were called: whether they may be, and whether they failed."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from ...errors import ConfigError
from ...patterns import Pattern
from ..spec import ERROR_PATTERN
from ..views import is_error, results_of
from .base import Call, Check, Found, NotEvaluated, Seen, listed, pattern, strings, whole

__all__ = [
    "ForbiddenTools",
    "ToolErrors",
    "create_forbidden_tools_evaluator",
    "create_tool_error_evaluator",
]


@dataclass(frozen=True)
class ForbiddenTools(Check):
    """Fails where a tool is called that must not be.

    Attributes:
        key: The score's name.
        forbidden: Names that must not be called; ``*`` and ``?`` stand for any text or character.
        allowed: The only names that may be called; none given allows all.
    """

    type: ClassVar[str] = "forbidden_tools"

    key: str = "forbidden_tools"
    forbidden: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None

    def check(self, seen: Seen) -> Found:
        """Look for calls of such tools."""
        wrong = [call for call in seen.calls if self._is_wrong(call.call.name)]
        if not wrong:
            seen.require_all_calls()
            if unasked := seen.gap("unmatched_tool_span"):
                raise NotEvaluated(f"{unasked.code}: {unasked.detail}")
        tools = sorted({call.call.name for call in wrong})
        figures = {"calls": len(seen.calls), "wrong_calls": len(wrong), "tools": tools}
        return Found([f"{call} must not be made" for call in wrong], figures)

    def _is_wrong(self, name: str) -> bool:
        if any(fnmatchcase(name, one) for one in self.forbidden):
            return True
        return self.allowed is not None and not any(fnmatchcase(name, a) for a in self.allowed)


def create_forbidden_tools_evaluator(
    *, forbidden: Any = None, allowed: Any = None, feedback_key: str = "forbidden_tools"
) -> ForbiddenTools:
    """Create an evaluator that fails where a tool is called that must not be.

    Args:
        forbidden: Tools that must not be called; ``*`` and ``?`` stand for any text or character.
        allowed: The only tools that may be called.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: Neither list is given, or one is no list of names.
    """
    if forbidden is None and allowed is None:
        raise ConfigError("give forbidden=[...] or allowed=[...]")
    named = None if allowed is None else strings(allowed, "allowed")
    return ForbiddenTools(feedback_key, strings(forbidden, "forbidden"), named)


@dataclass(frozen=True)
class ToolErrors(Check):
    """Fails where too many calls failed.

    A call failed when its result says so by a flag (``is_error``, ``error``, ``status="error"``)
    or by its text. Of a call whose result is not known, it is not known either.

    Attributes:
        key: The score's name.
        max_errors: How many calls may fail.
        tools: The tools that count; none given counts all.
        error_pattern: Searched in a result's text to see that the call failed.
        missing_ok: Whether a call without a result counts as one that did not fail.
    """

    type: ClassVar[str] = "tool_errors"

    key: str = "tool_errors"
    max_errors: int = 0
    tools: tuple[str, ...] | None = None
    error_pattern: str = ERROR_PATTERN.pattern
    missing_ok: bool = False

    def check(self, seen: Seen) -> Found:
        """Look for failed calls."""
        failed, unknown = self._failed(seen)
        counted = [call for call in seen.calls if self._counts(call)]
        figures = {
            "calls": len(counted),
            "errors": len(failed),
            "unknown": len(unknown),
            "error_rate": len(failed) / len(counted) if counted else 0.0,
            "tools": sorted({call.call.name for call, _ in failed}),
        }
        if len(failed) > self.max_errors:
            count = f"{len(failed)} of {len(counted)} calls failed (at most {self.max_errors}): "
            return Found([count + listed([f"{call}: {why}" for call, why in failed])], figures)
        if len(failed) + len(unknown) > self.max_errors:
            raise NotEvaluated(f"no result of {listed(unknown)} is in the trace")
        seen.require_all_calls()
        return Found((), figures)

    def _counts(self, call: Call) -> bool:
        return self.tools is None or any(fnmatchcase(call.call.name, one) for one in self.tools)

    def _failed(self, seen: Seen) -> tuple[list[tuple[Call, str]], list[Call]]:
        """Return the calls that failed, each with its result, and those of which one cannot say."""
        results, compiled = results_of(seen.messages), Pattern(self.error_pattern)
        failed, unknown = [], []
        lost = seen.lost() is not None
        for call in filter(self._counts, seen.calls):
            result = results.get(call.index)
            if result is None:
                if not self.missing_ok:
                    unknown.append(call)
            elif is_error(result, compiled):
                text = " ".join((result.content or "failed").split())
                failed.append((call, text if len(text) <= 80 else f"{text[:79]}…"))
            elif result.content is None and lost:
                unknown.append(call)
        return failed, unknown


def create_tool_error_evaluator(
    *,
    max_errors: int = 0,
    tools: Any = None,
    error_pattern: Any = None,
    missing_ok: bool = False,
    feedback_key: str = "tool_errors",
) -> ToolErrors:
    """Create an evaluator that fails where too many tool calls failed.

    Args:
        max_errors: How many calls may fail.
        tools: The tools that count; ``*`` and ``?`` stand for any text or character.
        error_pattern: A regular expression searched in a result's text; by default the text must
            begin with Error, Exception, Traceback or Unknown action.
        missing_ok: Whether a call without a result counts as one that did not fail; otherwise
            such a run is not evaluated.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it.
    """
    return ToolErrors(
        feedback_key,
        whole(max_errors, "max_errors"),
        None if tools is None else strings(tools, "tools"),
        ERROR_PATTERN.pattern if error_pattern is None else pattern(error_pattern, "error_pattern"),
        missing_ok,
    )
