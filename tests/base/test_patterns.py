"""Users' patterns: the syntax and meaning of Python, in the linear time of RE2."""

from __future__ import annotations

import pickle
import random
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from oteval import create_trajectory_match_evaluator
from oteval.base import patterns
from oteval.base.errors import ConfigError
from oteval.base.patterns import Pattern, PatternError, compile_pattern
from oteval.model import SpanRef, Trajectory
from oteval.model.selection import parse_condition
from oteval.scoring.config import parse_config

EVIL = ("(a+)+$", "(a|aa)+$", "(a|a)*b", "(.*a){20}$", "([a-zA-Z]+)*$", r"(\w+\s?)+:")
SAME = (
    *(
        r"\d{4}-\d{4}",
        r"[\w.+-]+@[\w-]+",
        r"\s+",
        r"\S+",
        r"[\s\S]b",
        r"[^\w]",
        r"[\W\d]x",
        r"(?i)É",
    ),
    *(
        r"\Aa\Z",
        "[]a]",
        "[^]a]",
        "[[a]",
        r"\u00e9+",
        r"\x41\101",
        r"\0",
        "(?P<n>a)b",
        "(?#c)a",
        "é",
    ),
    *(
        "(?s).+",
        "(?x) a  # c\n b",
        r"[\b]",
        "(?i:a)b",
        "(?a)\\w+",
        "(?a)\\d\\s",
        r"[a\]b]+",
        "a{,2}b",
    ),
    *("(?m)^a", r"[\D]", "a{", "{a}", r"[\w\-]+", r"\-\.\/", "x*y"),
)
ATOMS = (
    *(*SAME, *"abé.^$|", r"\b", r"\B", r"\d", r"\W", "[^é]"),
    *("(?i:k)", "(?P<before>a)", "(?P<match>b|)"),
)
TEXT = "abxyÉéA١² \n\t.@-_]5[41\x00\x08{},\u2028\u00a0BC#\x0b\x1c٣字"


@pytest.fixture(params=["google-re2", "pyarrow"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a test once with each engine."""
    if request.param == "pyarrow":
        monkeypatch.setitem(sys.modules, "re2", None)
    patterns._compile.cache_clear()
    yield
    patterns._compile.cache_clear()


@pytest.mark.parametrize("text", SAME)
def test_patterns_match_as_python_does(text: str) -> None:
    """The first match in random texts is the one that Python's `re` finds."""
    chance = random.Random(text)
    pattern = Pattern(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = re.compile(text)

    for _ in range(500):
        subject = "".join(chance.choices(TEXT, k=chance.randrange(9)))
        found = own.search(subject)
        assert pattern.search(subject) == (found and found.span()), subject
        assert pattern.fullmatch(subject) == (own.fullmatch(subject) is not None)
        if "*" not in text:
            assert pattern.replace(subject, "é") == own.sub("é", subject)


def outcomes(pattern: str, text: str) -> object:
    """Return all that an engine says about a pattern and a text."""
    patterns._compile.cache_clear()
    try:
        compiled = Pattern(pattern)
    except PatternError:
        return "refused"
    replaced = compiled.replace(text, r"\0é")
    return compiled.search(text), compiled.fullmatch(text), compiled.spans(text), replaced


PARTS = st.sampled_from(ATOMS)
FORMS = st.recursive(
    st.builds("".join, st.lists(PARTS, min_size=1, max_size=3)),
    lambda inner: st.one_of(
        st.builds(
            "({}){}".format, inner, st.sampled_from(["", "*", "+", "?", "*?", "{0,2}", "{2}"])
        ),
        st.builds("{}|{}".format, inner, inner),
        st.builds("(?:{}){}".format, inner, inner),
    ),
    max_leaves=4,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pattern=FORMS, texts=st.lists(st.text(TEXT + "\ud800K", max_size=12), min_size=1, max_size=4)
)
def test_both_engines_agree(pattern: str, texts: list[str]) -> None:
    """Without google-re2, random patterns are refused or match as with it."""
    expected = [outcomes(pattern, text) for text in texts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "re2", None)
        actual = [outcomes(pattern, text) for text in texts]
    patterns._compile.cache_clear()

    assert actual == expected


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("text", EVIL)
def test_patterns_that_backtrack_for_hours_take_no_time(text: str) -> None:
    """A condition on 100,000 characters that `re` would not finish is decided."""
    pattern = compile_pattern(text)
    begun = time.process_time()

    pattern.search("a" * 100_000 + "!")
    pattern.fullmatch("a" * 100_000 + "é")

    assert time.process_time() - begun < 5


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "text",
    [
        *(r"(?=a)", r"(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "(?>a)", "(a)(?(1)b|c)", "a*+", "(a"),
        *(r"\N{BULLET}", "x" * 10_001, "((a{100}){100}){100}"),
    ],
)
def test_patterns_that_need_backtracking_are_errors(text: str) -> None:
    """Conditions, rules and evaluators name the unsupported pattern in one line."""
    with pytest.raises(PatternError):
        Pattern(text)
    with pytest.raises(ConfigError):
        parse_condition(f"agent~{text}")
    with pytest.raises(ConfigError):
        parse_config(
            f"evaluators: [{{name: t, type: tool_errors}}]\nredact: [{{pattern: '{text}'}}]"
        )
    with pytest.raises(ConfigError):
        create_trajectory_match_evaluator(tool_args_match_overrides={"a": {"regex": {"x": text}}})


def test_conditions_on_lone_surrogates() -> None:
    """A lone surrogate in a run's data does not fail the search."""
    condition = parse_condition("agent~^sh.p$")

    assert condition.holds(Trajectory("t", SpanRef("t", "s"), agent="sh\ud800p"))


def test_patterns_are_values() -> None:
    """Patterns are equal by text and flags, also after pickling."""
    pattern = compile_pattern(re.compile("é", re.IGNORECASE))

    assert pickle.loads(pickle.dumps(pattern)) == pattern == Pattern("é", re.IGNORECASE)
    assert pattern != Pattern("é")
    assert pattern.search("É")


FORK_WHILE_IMPORTING = """
import os, sys, threading, time
from oteval.base.patterns import compile_pattern

begun = threading.Event()

class Slow:
    def find_spec(self, name, *_):
        if name == "re2":
            begun.set()
            time.sleep(0.05)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=compile_pattern, args=("a+",))
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    os._exit(0 if compile_pattern("b+").search("abb") == (1, 3) else 1)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_while_a_thread_imports_re2_has_patterns():
    """The fork waits for the import, because a child cannot complete it."""
    command = [sys.executable, "-W", "ignore", "-c", FORK_WHILE_IMPORTING]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
