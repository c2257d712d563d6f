"""The search field, and the runs that it finds, page by page.

``agent=shop passed=false since=1d "broken headphones"`` has the conditions of ``--where``, the
times of ``--since`` and ``--until``, the outcome of scores, and text. A run must match all of them.
In quotes, two quotes mean one.

Most filters are conditions on columns. Other filters need the messages or the attributes of runs:
then runs are read, the newest first, until a page is full or the time is over. The next page then
continues at the last run that was looked at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ...base.errors import ConfigError, NotFound
from ...model import FIELDS, Condition, Score, Selection, Trajectory, parse_condition, time_of
from ...store import Outcome, RunKey, Store, VerdictFilter, is_exact

__all__ = [
    "FoundRuns",
    "ListedScores",
    "RunSearch",
    "find_runs",
    "narrowed",
    "parse_search",
    "run_with_id",
    "stored_run",
    "suggestions",
]

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
# A search stops looking after this many seconds.
_PATIENCE = 0.5
_FIRST_BATCH, _LARGEST_BATCH = 200, 8000
# The characters of a score's comment in lists, and the number of runs whose scores are kept with
# comments.
_COMMENT, _KEPT = 4000, 200
# How many runs are read at once, and how many are searched for words.
_LARGEST_READ, _LARGEST_SCAN = 400, 4000


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


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Some runs of a search.

    Attributes:
        keys: Their keys, in the order of the search.
        after: The key at which the next page begins; None if this is the last page.
        looked_at: How many runs were looked at, if they were looked at one by one.
        is_cut: Whether the time was over before the page was full.
    """

    keys: tuple[RunKey, ...]
    after: RunKey | None = None
    looked_at: int = 0
    is_cut: bool = False


class ListedScores:
    """The newest scores of runs, with as much as lists show of them, each read once.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, list[Score]] = {}

    def of(self, ids: Sequence[str]) -> dict[str, list[Score]]:
        """The newest score of each evaluator by run; for many runs, without comments."""
        missing = [name for name in ids if name not in self._known]
        if len(missing) > _KEPT:
            return self._store.scores.of(ids, longest=0)
        if missing:
            self._known |= self._store.scores.of(missing, longest=_COMMENT)
        return {name: self._known[name] for name in ids}


def find_runs(
    store: Store,
    search: RunSearch,
    most: int,
    *,
    after: RunKey | None = None,
    is_forward: bool = False,
    scores: ListedScores | None = None,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
) -> FoundRuns:
    """The next runs of a search, the newest first.

    Args:
        store: The store.
        search: The search.
        most: The most runs.
        after: Only runs after this one.
        is_forward: The oldest first instead.
        scores: The scores that are read for the search, for the lines of its runs.
        patience: Seconds after which the search stops looking.
        clock: Returns the time in seconds.
    """
    selection = replace(search.selection, limit=None)
    is_read = not is_exact(selection)
    if search.verdict is None and not is_read:
        keys = store.run_list.keys(selection, most + 1, after=after, is_forward=is_forward)
        return FoundRuns(tuple(keys[:most]), keys[most - 1] if len(keys) > most else None)
    until, size, looked_at = clock() + patience, max(_FIRST_BATCH, most + 1), 0
    run_keys: list[RunKey] = []
    listed_scores = scores or ListedScores(store)
    while True:
        batch = store.run_list.keys(
            selection, size, after=after, verdict=search.verdict, is_forward=is_forward
        )
        offset = 0
        while offset < len(batch):
            part, matching = _looked_at(
                store, search, batch[offset:], listed_scores, is_read=is_read
            )
            offset += len(part)
            for key in part:
                if key in matching and len(run_keys) == most:
                    return FoundRuns(tuple(run_keys), run_keys[-1], looked_at)
                looked_at += 1
                run_keys += [key] if key in matching else []
            if clock() > until and (offset < len(batch) or len(batch) == size):
                return FoundRuns(tuple(run_keys), part[-1], looked_at, is_cut=True)
        if len(batch) < size:
            return FoundRuns(tuple(run_keys), None, looked_at)
        after, size = batch[-1], min(_LARGEST_BATCH, 4 * size)


def _looked_at(
    store: Store,
    search: RunSearch,
    keys: Sequence[RunKey],
    listed_scores: ListedScores,
    *,
    is_read: bool,
) -> tuple[Sequence[RunKey], set[RunKey]]:
    """The first of some runs, as many as can be tested at once, and the runs that match."""
    part = keys
    if is_read:
        part = keys[: _LARGEST_SCAN if search.words else _LARGEST_READ]
    candidates = store.run_list.containing(part, search.words)
    if is_read and len(candidates) > _LARGEST_READ:
        part = part[: part.index(candidates[_LARGEST_READ])]
        candidates = candidates[:_LARGEST_READ]
    if search.verdict is not None:
        scores = listed_scores.of([key.id for key in candidates])
        candidates = [key for key in candidates if _has_verdict(scores[key.id], search.verdict)]
    if is_read and candidates:
        starts = pa.array([key.start_ns for key in candidates], pa.int64())
        table = pa.table({"trajectory_id": [key.id for key in candidates], "start_ns": starts})
        matching = store.trajectories.matching(table, search.selection)
        candidates = [key for key in candidates if key.id in matching]
    return part, set(candidates)


def _has_verdict(scores: Sequence[Score], verdict_filter: VerdictFilter) -> bool:
    """Whether one of a run's newest scores has an outcome."""
    for score in scores:
        if verdict_filter.evaluators and score.evaluator not in verdict_filter.evaluators:
            continue
        outcome: str = score.status
        if outcome == "ok" and score.passed is not None:
            outcome = "pass" if score.passed else "fail"
        if verdict_filter.outcome is None or outcome == verdict_filter.outcome:
            return True
    return False


def stored_run(store: Store, name: str) -> Trajectory:
    """The run with an id.

    Raises:
        NotFound: No run has this id.
    """
    run = run_with_id(store, name)
    if run is None:
        raise NotFound(f"no run {name!r}")
    return run


def run_with_id(store: Store, name: str) -> Trajectory | None:
    """The run with an id, or None."""
    key = store.run_list.find(name)
    return store.trajectories.starting_at({key.id: key.start_ns}).get(name) if key else None
