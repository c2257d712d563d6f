"""Redaction: replace secrets in text and in values by their keys, before anything is kept.

`rules` has the rules that users write, `text` applies patterns to text, also inside escaped JSON,
and `values` applies rules to Python values.
"""

from .rules import RedactionRule, key_pattern
from .text import TextRedactor
from .values import ValueRedactor

__all__ = ["RedactionRule", "TextRedactor", "ValueRedactor", "key_pattern"]
