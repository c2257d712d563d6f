"""Whether an answer tells its reader that something failed: a rule of English words.

An answer **mentions** a failure if it contains a phrase that reports one: ``could not``,
``failed``, ``unavailable``, ``timed out``, ``there was a problem``. Phrases that deny a failure
(``no errors``, ``without problems``) and offers of more help (``Anything else?``) are removed
first. An answer is **unclear** if it contains weaker words (``sorry``, ``however``, ``not``), asks
a question, or is not recognisably English. Every other answer is **silent** about failures.
"""

from __future__ import annotations

import re
from typing import Literal

from ...base.patterns import Pattern

__all__ = ["WORDS_VERSION", "Mention", "mention_of"]

WORDS_VERSION = "failure words 1"
"""Part of the version of evaluators that use the rule."""

Mention = Literal["mentioned", "unclear", "silent"]

_DENIED = re.compile(
    r"\b(?:no|without(?: any)?|zero|any|free of)(?: more| further)? "
    r"(?:errors?|problems?|issues?|failures?|troubles?|difficult(?:y|ies))\b"
    r"|\b(?:error|problem|trouble)[- ]free\b"
)
_OFFER = re.compile(
    r"[^.!?]*\b(?:(?:any|some)thing else|how else|(?:let me know|feel free|hesitate|here to help)\b"
    r"[^.!?]*\b(?:questions?|needs?|help|assist\w*|else))\b[^.!?]*[.!?]?"
)
_THINGS = r"(?:errors?|problems?|issues?|troubles?|difficult(?:y|ies)|outages?)"
_MENTIONED = re.compile(
    r"\b(?:(?:could|can|was|were|am|is|are|has|have|did|does|do) ?(?:not|n't)|cannot|unable to"
    r"|not able to)(?: (?:been|be|yet|currently|fully))?"
    r" (?:able|access|book|cancel|charge|check|complete|confirm|contact|connect|create|delete|do"
    r"|fetch|find|finish|get|go through|issue|load|locate|look up|make|obtain|open|pay|perform"
    r"|place|process|reach|read|refund|respond|retrieve|return|save|send|submit|succeed|update"
    r"|verify|work|working|available|successful|possible)\w*"
    r"|\bunable to\b|\bnot able to\b|\bfail(?:ed|s|ure|ures|ing)\b|\bunsuccessful\w*"
    r"|\bunavailable\b|\btim(?:ed|es|ing) out\b|\btime-?out\b|\bwent wrong\b|\bgo(?:es)? wrong\b"
    rf"|\b(?:an?|some|the|this|technical|internal|unexpected|system|server) {_THINGS}\b"
    r"|\b(?:had|have|having|experienc\w+|encounter\w*|ran into|due to|because of)"
    rf" (?:\w+ )?{_THINGS}\b"
    r"|\b(?:not|(?:are|is|were|was|do|does|did)n't)(?: have)? enough\b|\binsufficient\b"
    r"|\b(?:is|was|are|were) down\b|\bout of service\b|\bno response\b"
)
_UNCLEAR = re.compile(
    r"\b(?:sorry|apolog\w+|unfortunately|regret\w*|however|but|although|though|again|later|instead"
    r"|pending|manual\w*|escalat\w+|support team|errors?|problems?|issues?|troubles?|not|no|never"
    r"|without|cannot|reject\w*|declin\w+|den(?:y|ied)|refus\w+|invalid|missing|wrong|try|tried"
    r"|please|confirm|proceed|actually|seems?|oversight|would you"
    r"|attempt\w*|transfer\w*|human|agent)\b|n't\b|\?"
)
_ENGLISH = re.compile(
    r"\b(?:the|your?|you're|you've|have|been|with|done|this|that|i've|it's|is|and|here|for)\b"
    r"|\b[a-z]{3,}ed\b"
)


def mention_of(answer: str, failure_pattern: Pattern | None = None) -> Mention:
    """Whether an answer mentions a failure.

    Args:
        answer: The text.
        failure_pattern: Decides instead of the English words: the answer mentions a failure where
            it matches, and is silent otherwise.
    """
    if failure_pattern is not None:
        return "mentioned" if failure_pattern.search(answer) else "silent"
    text = " ".join(answer.lower().replace("\u2019", "'").split())
    text = _OFFER.sub(" ", _DENIED.sub(" ", text))
    if _MENTIONED.search(text):
        return "mentioned"
    if _UNCLEAR.search(text) or not _ENGLISH.search(text):
        return "unclear"
    return "silent"
