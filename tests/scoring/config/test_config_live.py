"""The settings of oteval.yaml for `oteval serve`."""

from __future__ import annotations

import pytest

from oteval.base.errors import ConfigError
from oteval.scoring.config import parse_config, resolved

BASE = "evaluators:\n  - {name: a, type: python, call: 'm:f'}\n"


def test_the_defaults_are_those_of_the_design() -> None:
    """Without a word on it: 5 s quiet, 5 min idle, 1 h at most, nothing forwarded."""
    config = parse_config(BASE)

    completion = config.completion
    assert (completion.quiet, completion.idle, completion.max_age) == (5.0, 300.0, 3600.0)
    assert (config.forward, config.events, config.metrics) == (None, None, None)


def test_durations_and_urls_may_be_short() -> None:
    """500ms and 2m are durations; a URL alone is an endpoint."""
    config = parse_config(
        BASE + "completion: {quiet: 500ms, idle: 2m}\nforward: http://h:1/\nevents: https://h\n"
    )

    assert (config.completion.quiet, config.completion.idle) == (0.5, 120.0)
    assert config.forward is not None
    assert (config.forward.url, config.forward.deadline) == ("http://h:1", 30.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("completion: {quit: 1s}", "oteval.yaml:3: unknown key 'quit'; did you mean 'quiet'?"),
        ("completion: {quiet: soon}", "oteval.yaml:3: completion.quiet: 'soon' is not a duration"),
        ("completion: {quiet: -1}", "oteval.yaml:3: completion.quiet: -1 is not a duration"),
        ("completion: {quiet: true}", "oteval.yaml:3: completion.quiet: write a duration"),
        ("budgets: {b: {}}", "oteval.yaml:3: no evaluator is called 'b'; did you mean 'a'?"),
        ("budgets: {a: {concurency: 1}}", "did you mean 'concurrency'?"),
        ("forward: nowhere", "oteval.yaml:3: forward: 'nowhere' is not a URL"),
        ("forward: {urls: x}", "unknown key 'urls'; did you mean 'url'?"),
        ("redact: [{}]", "redact.0: give keys or a pattern"),
        ("redact: [{pattern: '('}]", "redact.0: pattern: not a valid regular expression"),
        ("redact: [{pattern: 'a*'}]", "redact.0: pattern: it matches the empty text"),
    ],
)
def test_a_fault_names_its_line_and_what_to_do(line: str, says: str) -> None:
    """The error is one line with its place."""
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{BASE}{line}\n")

    assert says in str(caught.value)


def test_secrets_come_from_the_environment() -> None:
    """${NAME} in a header is the variable; one that is not set is named."""
    assert resolved({"a": "Bearer ${T}"}, {"T": "x"}) == {"a": "Bearer x"}
    with pytest.raises(ValueError, match="header 'a': the environment has no T"):
        resolved({"a": "${T}"}, {})


ODD = {
    "a tag that does not fit": "salt: !!timestamp x",
    "a number without digits": "salt: 0x_",
    "a number of 5,000 digits": f"salt: {'9' * 5000}",
    "a list as a key": "? [a, b]\n: 1",
    "a list that holds itself": "gates: &a [*a]",
    "deep lists": f"gates: {'[' * 5000}",
    "deep aliases": "\n".join(
        ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 3000))]
    ),
    "aliases that multiply": "\n".join(
        ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    ),
    "merges that multiply": "\n".join(
        ["a0: &a0 {k: 1}", *(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 60))]
    ),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_no_yaml_raises_anything_else(text: str) -> None:
    """Whatever a file holds is a configuration or an error of one line, and soon."""
    with pytest.raises(ConfigError) as found:
        parse_config(f"evaluators: [{{name: t, type: tool_errors}}]\n{text}")

    assert str(found.value).startswith("oteval.yaml")
    assert "\n" not in str(found.value)


def test_dates_are_text() -> None:
    """A salt that looks like a date, one that does not exist among them, is text."""
    config = parse_config("evaluators: [{name: t, type: tool_errors}]\nsalt: 2024-13-45")

    assert config.salt == "2024-13-45"
