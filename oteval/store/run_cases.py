"""The cases of stored runs in SQL, as numbers: see `oteval.model.experiment`.

Most runs have a short question and no attribute that names their case. Their number is made from
the columns; runs that need more are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from ..base.jsontext import dumps, escaped
from ..base.patterns import SPACES
from ..model import LONGEST_CASE, Trajectory, case_text
from .column_sql import ASKED, attribute_pointer, has_text
from .run_fields import RunExpression

__all__ = ["case_column", "number_of"]

_NAME = "CASE WHEN contains(attributes, ?) THEN json_extract(attributes, ?)::VARCHAR END"
_PARTS = f"""
    coalesce(CASE WHEN contains(messages, '"parts":') THEN list_filter(
        from_json(
            messages, '[{{"role":"VARCHAR","content":"VARCHAR","parts":"JSON"}}]'
        )[-len(roles):],
        lambda m: m.role = 'user' AND {has_text("m.content")}
    )[1].parts::VARCHAR END, '')
"""


def _case_number(text: str) -> int:
    """The number of a case by its text, as `number_of` does in SQL."""
    digest = hashlib.md5(escaped(text).encode(), usedforsecurity=False).hexdigest()
    return int(digest[:15], 16)


def number_of(text: str) -> str:
    """The number of a case by its text, in SQL."""
    return f"('0x' || left(md5({text}), 15))::BIGINT"


# A text with quotes is trimmed of the white space of `str.strip`.
_NAMED = f"""
    CASE WHEN starts_with(run.name, '"') THEN regexp_replace(
        json_extract_string(run.name, '$'), '^[{SPACES}]+|[{SPACES}]+$', '', 'g'
    ) ELSE run.name END
"""
# White space as in `oteval.model.experiment.normal_text`; most questions are already normal.
_BREAKS = SPACES.replace(r"-\x{20}", r"-\x{1f}")
_QUESTION = f"""
    CASE WHEN regexp_matches(run.asked, '^ | $|  |[{_BREAKS}]')
        THEN trim(regexp_replace(run.asked, '[{SPACES}]+', ' ', 'g'), ' ')
        ELSE run.asked END
"""
_TEXT = f"CASE WHEN run.turn > 1 THEN 'turn ' || run.turn || ': ' ELSE '' END || ({_QUESTION})"


def case_column(attributes: Sequence[str]) -> RunExpression:
    """The numbers of the cases of runs.

    Args:
        attributes: The attributes that name a case; the first one present counts.
    """
    names = ", ".join([_NAME] * len(attributes))
    values = [part for key in attributes for part in (dumps(key), attribute_pointer(key))]
    name = f"list_filter([{names}], lambda name: name NOT IN ('null', '\"\"'))[1]"
    # DuckDB copies the columns that a lambda uses, so this lambda uses only narrow ones. Python and
    # JSON write values other than texts and integers differently.
    sql = f"""
        list_transform([{{
                id: trajectory_id, turn: turn, name: {name}, asked: {ASKED}, parts: {_PARTS}
            }}],
            lambda run: CASE
                WHEN NOT regexp_matches(run.name, '^("|-?[0-9]+$)') THEN NULL
                WHEN {_NAMED} <> '' THEN {number_of(_NAMED)}
                WHEN run.asked IS NULL THEN NULL
                WHEN run.asked = '' THEN {number_of("run.id")}
                WHEN run.parts = '' AND length({_QUESTION}) <= {LONGEST_CASE}
                    THEN {number_of(_TEXT)}
                ELSE {number_of(f"chr(0) || {_TEXT} || chr(0) || run.parts")} END)[1]
    """

    def of(run: Trajectory) -> int:
        return _case_number(case_text(run, attributes))

    return RunExpression(sql, tuple(values), of, pa.int64())
