"""Redaction: replace secrets in text and in values by their keys, before anything is kept.

`rules` has the rules that users write, and `personal_data` finds the data that they name. `text`
applies patterns to text, also inside escaped JSON, and `values` applies rules to Python values.

Secrets are found without rules. `secret_names` says which names they have, `secret_values` which
values, and `secret_forms` which texts are secrets wherever they stand. Names and values are found
by `json_secrets`, `form_secrets` and `text_secrets`; `secrets` applies all of them to texts, bodies
and streams.
"""

from .rules import CompiledRules, RedactionRule, key_pattern, rule_from
from .text import TextRedactor
from .values import ValueRedactor

__all__ = [
    "CompiledRules",
    "RedactionRule",
    "TextRedactor",
    "ValueRedactor",
    "key_pattern",
    "rule_from",
]
