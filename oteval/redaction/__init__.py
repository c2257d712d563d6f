"""Redaction: replace secrets in text and in values by their keys, before anything is kept.

`rules` has the rules that users write, and `text` applies patterns to text, also inside escaped
JSON.
"""

from .rules import RedactionRule, key_pattern
from .text import TextRedactor

__all__ = ["RedactionRule", "TextRedactor", "key_pattern"]
