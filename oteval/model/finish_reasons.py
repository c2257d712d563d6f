"""Why a model stopped, in the words of OpenTelemetry's GenAI conventions.

They are ``stop``, ``length``, ``content_filter``, ``tool_call``, ``error`` and ``compaction``. A
reason that is in no provider's list is kept as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["ANSWERED", "normal_finish_reason", "unusual_reasons"]

ANSWERED = frozenset({"stop", "length", "content_filter", "tool_call", "compaction", "pause_turn"})
"""The reasons of a model or its provider to end an answer."""

_SPELLINGS = {
    "stop": "end end_turn stop_sequence stop_sequences eos eos_token eos_found complete completed "
    "finish finished natural_end",
    "length": "max_tokens max_output_tokens max_length max_token token_limit max_tokens_reached "
    "model_length model_context_window_exceeded context_window_exceeded incomplete error_limit",
    "content_filter": "content_filtered filtered refusal safety recitation blocklist spii "
    "prohibited_content guardrail_intervened guardrails error_toxic image_safety "
    "image_prohibited_content image_recitation model_armor jailbreak",
    "tool_call": "tool_calls tool_use function_call function_calls toolcalls requires_action",
    "error": "failed malformed_function_call malformed_tool_use malformed_model_output "
    "unexpected_tool_call too_many_tool_calls",
}
_NORMAL = {
    spelling: reason for reason, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SEPARATOR = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=256)
def normal_finish_reason(reason: str) -> str:
    """A finish reason in the words of the conventions.

    Args:
        reason: The reason in any provider's spelling: ``max_tokens``, ``MAX_TOKENS``,
            ``FinishReason.MAX_TOKENS``, ``FINISH_REASON_MAX_TOKENS``, ``tool-calls``.

    Returns:
        The reason of the conventions, or else the reason as it was written.
    """
    last = reason.strip().rpartition(".")[2]
    plain = _SEPARATOR.sub("_", _HUMP.sub("_", last).lower()).strip("_")
    plain = plain.removeprefix("finish_reason_")
    return _NORMAL.get(plain) or (plain if plain in _SPELLINGS or plain in ANSWERED else reason)


def unusual_reasons(reasons: Iterable[str]) -> list[str]:
    """The reasons, each once, except that a model had finished or called tools."""
    return [reason for reason in dict.fromkeys(reasons) if reason not in ("stop", "tool_call")]
