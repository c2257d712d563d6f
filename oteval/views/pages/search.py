"""The search field: filters of the command line in one line, and words of the question.

``agent=shop passed=false since=1d "broken headphones"`` has the conditions of ``--where``, the
times of ``--since`` and ``--until``, the outcome of scores, and text. A run must match all of them.
In quotes, two quotes mean one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ...base.errors import ConfigError
from ...model import FIELDS, Condition, Selection, parse_condition, time_of
from ...store import Outcome, VerdictFilter

__all__ = ["RunSearch", "narrowed", "parse_search", "suggestions"]

_WORD = re.compile(r'(?:"(?:[^"]|"")*"|[^\s"])+')
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_OPERATOR = re.compile(r"([\w.\-:/]+)(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)
_PUNCTUATION = re.compile(r"[!-/:-@\[-^`{-~]")
_TIMES = ("since", "until")
_OUTCOMES: dict[str, dict[str, Outcome]] = {
    "passed": {"true": "pass", "false": "fail"},
    "status": {"error": "error", "not_evaluated": "not_evaluated"},
}
_KINDS = {
    "since": "since=...",
    "until": "until=...",
    "passed": "outcome: passed=... or status=...",
    "status": "outcome: passed=... or status=...",
}
_LONGEST = 2000
_MINUTE = 60 * 10**9


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

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies its results: its text, and the minutes that times such as ``1h`` mean now."""
        times = (self.selection.since_ns, self.selection.until_ns)
        return (self.text, *(time if time is None else time // _MINUTE for time in times))

    def failing(self) -> RunSearch:
        """The search for its failing runs."""
        verdict = self.verdict or VerdictFilter()
        return replace(self, verdict=replace(verdict, outcome="fail"))


def narrowed(text: str, word: str) -> str:
    """A search with another filter, which replaces a filter that contradicts it.

    Args:
        text: The search.
        word: The filter, such as ``passed=false``.
    """
    name = word.partition("=")[0]
    replaced = (*_OUTCOMES,) if name in _OUTCOMES else (name,) if name in _TIMES else ()
    kept_words = (other for other in _WORD.findall(text) if other.partition("=")[0] not in replaced)
    return " ".join([*kept_words, word])


def parse_search(text: str) -> RunSearch:
    """Parse the text of the search field.

    Raises:
        ConfigError: A word is neither a filter nor text; the message names it and the remedy.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"the search has more than {_LONGEST:,} characters")
    if text.count('"') % 2:
        raise ConfigError(
            'a quote in the search has no end: close it with ", or write "" for a quote in quotes'
        )
    times: dict[str, int | None] = {}
    conditions: list[Condition] = []
    outcome: Outcome | None = None
    evaluators: list[str] = []
    words: list[str] = []
    for word in _WORD.findall(text):
        match = None if word.startswith('"') else _OPERATOR.fullmatch(word)
        if match is None:
            phrase = _unquoted(word)
            conditions += _text_condition(phrase)
            words += [phrase.lower()] if _is_plain(phrase) else []
            continue
        name, operator, value = match[1], match[2], _unquoted(match[3])
        if name in (*_TIMES, *_OUTCOMES, "evaluator") and operator != "=":
            raise ConfigError(f"{name}{operator}{value}: write {name}=...")
        if name in times or (name in _OUTCOMES and outcome is not None):
            raise ConfigError(f"{name}={value}: a search has one {_KINDS[name]}")
        if name in _TIMES and not value:
            raise ConfigError(f"{name}=: give a time, such as {name}=1d or {name}=2026-11-01")
        if name in _TIMES:
            times[name] = time_of(value, name)
        elif name in _OUTCOMES:
            outcome = _one_of(name, value, _OUTCOMES[name])
        elif name == "evaluator":
            evaluators.append(value)
        else:
            conditions.append(_condition(name, operator, value))
    selection = Selection(
        since_ns=times.get("since"), until_ns=times.get("until"), conditions=tuple(conditions)
    )
    has_verdict = outcome is not None or bool(evaluators)
    verdict = VerdictFilter(outcome, tuple(evaluators)) if has_verdict else None
    # Spaces count in quotes; names out of traces are in quotes.
    normalized = text.strip() if '"' in text else " ".join(text.split())
    return RunSearch(normalized, selection, verdict, tuple(words))


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda match: match[1].replace('""', '"'), text)


def _is_plain(text: str) -> bool:
    """Whether JSON contains a text unchanged, and upper case has one form in lower case."""
    escaped = "\\" in text or '"' in text
    return text.isascii() and text.isprintable() and not escaped and bool(text.strip())


def _one_of(name: str, value: str, outcomes: dict[str, Outcome]) -> Outcome:
    if value not in outcomes:
        raise ConfigError(
            f"{name}={value}: write {' or '.join(f'{name}={choice}' for choice in outcomes)}"
        )
    return outcomes[value]


def _condition(name: str, operator: str, value: str) -> Condition:
    try:
        return parse_condition(f"{name}{operator}{value}")
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("--where ")) from None


def _text_condition(text: str) -> list[Condition]:
    """The condition that the question contains a text, in upper or lower case."""
    if not text.strip():
        return []
    literal = _PUNCTUATION.sub(lambda match: f"\\{match[0]}", text)
    return [parse_condition(f"asked~(?i){literal}")]


def suggestions() -> tuple[str, ...]:
    """The beginnings of filters, for completion."""
    names = [name for name in FIELDS if name not in ("asked", "errors", "calls", "seconds")]
    words = ["passed=false", "passed=true", "status=error", "status=not_evaluated", "evaluator="]
    words += ["since=1h", "since=1d", "since=7d", "until=", "errors>0", "calls>", "seconds>"]
    return (*words, *(f"{name}=" for name in names), "attributes.")
