"""The search field: filters of the command line in one line, and words of the question.

``agent=shop passed=false since=1d "broken headphones"`` has the conditions of ``--where``, the
times of ``--since`` and ``--until``, the outcome of scores, and text. Everything must hold. In
quotes, two quotes stand for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ..errors import ConfigError
from ..selection import FIELDS, Condition, Selection, parse_condition, time_of
from ..store import VerdictFilter
from ..store.scores import Outcome

__all__ = ["EVERY_RUN", "RunSearch", "parse_search", "suggestions"]

_WORD = re.compile(r'(?:"(?:[^"]|"")*"|[^\s"])+|"[^"]*$')
_QUOTED = re.compile(r'"((?:[^"]|"")*)"?')
_OPERATOR = re.compile(r"([\w.\-:/]+)(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)
_PUNCTUATION = re.compile(r"[!-/:-@\[-^`{-~]")
_TIMES = ("since", "until")
_PASSED: dict[str, Outcome] = {"true": "pass", "false": "fail"}
_STATUS: dict[str, Outcome] = {"error": "error", "not_evaluated": "not_evaluated"}
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class RunSearch:
    """The runs that somebody looks for.

    Attributes:
        text: The text of the search field.
        selection: The filter for runs.
        verdict: The outcome of a score that a run must have, or None.
        words: Texts of the question by which the store can leave out most runs, in lower case.
    """

    text: str = ""
    selection: Selection = field(default_factory=Selection)
    verdict: VerdictFilter | None = None
    words: tuple[str, ...] = ()

    def failing(self) -> RunSearch:
        """Return the search for those of its runs that fail."""
        verdict = self.verdict or VerdictFilter()
        return replace(self, verdict=replace(verdict, outcome="fail"))


EVERY_RUN = RunSearch()


def parse_search(text: str) -> RunSearch:
    """Parse the text of the search field.

    Raises:
        ConfigError: A word is neither a filter nor text; the message names it and the remedy.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"the search has more than {_LONGEST:,} characters")
    times: dict[str, int | None] = {}
    conditions: list[Condition] = []
    outcome: Outcome | None = None
    evaluators: list[str] = []
    words: list[str] = []
    for word in _WORD.findall(text):
        found = None if word.startswith('"') else _OPERATOR.fullmatch(word)
        if found is None:
            said = _unquoted(word)
            conditions += _text_condition(said)
            words += [said.lower()] if _is_plain(said) else []
            continue
        name, operator, value = found[1], found[2], _unquoted(found[3])
        if name in (*_TIMES, "passed", "status", "evaluator") and operator != "=":
            raise ConfigError(f"{name}{operator}{value}: write {name}=...")
        if name in _TIMES:
            times[name] = time_of(value, name)
        elif name == "passed":
            outcome = _one_of("passed", value, _PASSED)
        elif name == "status":
            outcome = _one_of("status", value, _STATUS)
        elif name == "evaluator":
            evaluators.append(value)
        else:
            conditions.append(_condition(name, operator, value))
    selection = Selection(
        since_ns=times.get("since"), until_ns=times.get("until"), conditions=tuple(conditions)
    )
    has_verdict = outcome is not None or bool(evaluators)
    verdict = VerdictFilter(outcome, tuple(evaluators)) if has_verdict else None
    # Spaces count in quotes, which names out of traces are in.
    kept = text.strip() if '"' in text else " ".join(text.split())
    return RunSearch(kept, selection, verdict, tuple(words))


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda found: found[1].replace('""', '"'), text)


def _is_plain(text: str) -> bool:
    """Return whether JSON holds a text as it is, and upper case has one form in lower case."""
    return text.isascii() and text.isprintable() and "\\" not in text and bool(text.strip())


def _one_of(name: str, value: str, known: dict[str, Outcome]) -> Outcome:
    if value not in known:
        raise ConfigError(f"{name}={value}: write {' or '.join(f'{name}={one}' for one in known)}")
    return known[value]


def _condition(name: str, operator: str, value: str) -> Condition:
    try:
        return parse_condition(f"{name}{operator}{value}")
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("--where ")) from None


def _text_condition(text: str) -> list[Condition]:
    """Return the condition that the question contains a text, in upper or lower case."""
    if not text.strip():
        return []
    literal = _PUNCTUATION.sub(lambda found: f"\\{found[0]}", text)
    return [parse_condition(f"asked~(?i){literal}")]


def suggestions() -> tuple[str, ...]:
    """Return the beginnings of filters, for completion."""
    names = [name for name in FIELDS if name not in ("asked", "errors", "calls", "seconds")]
    words = ["passed=false", "passed=true", "status=error", "status=not_evaluated", "evaluator="]
    words += ["since=1h", "since=1d", "since=7d", "until=", "errors>0", "calls>", "seconds>"]
    return (*words, *(f"{name}=" for name in names), "attributes.")
