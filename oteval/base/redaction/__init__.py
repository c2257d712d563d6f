"""Redaction: replace secrets in text and in values by their keys, before anything is kept.

`rules` contains the rules that users write, and `personal_data` finds the data that they name.
`text` applies patterns to text, also inside escaped JSON, and `values` applies rules to Python
values.

Secrets are found without rules. `secret_names` defines their names, `secret_values` their values,
and `secret_forms` the texts that are secrets anywhere. `json_secrets`, `form_secrets` and
`text_secrets` find names and values; `secrets` applies all of them to texts, bodies and streams.
"""

from .rules import CompiledRules, RedactionRule, ValueRedactor, key_pattern, rule_from
from .text import TextRedactor

__all__ = [
    "CompiledRules",
    "RedactionRule",
    "TextRedactor",
    "ValueRedactor",
    "key_pattern",
    "rule_from",
]
