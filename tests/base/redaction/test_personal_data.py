"""Personal data by the names of rules: with check digits, so that other numbers stay."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import get_args

import pytest

from oteval import ConfigError
from oteval.base.redaction import RedactionRule, ValueRedactor, personal_data, rule_from
from oteval.base.redaction.personal_data import DATA_RULES, is_data
from oteval.base.redaction.secrets import SecretRedactor
from oteval.scoring.config.live import Redaction

FOUND = {
    "cards": [
        *("4111 1111 1111 1111", "5555555555554444", "3782-822463-10005", "6011000990139424"),
        *("30569309025904", "3530111333300000", "2223003122003222"),
    ],
    "ibans": [
        *("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "FR1420041010050500013M02606"),
        *("NO9386011117947", "mt84malt011000012345mtlcast001s"),
    ],
    "emails": ["ann@example.com", "ann.smith+x@mail.example.co.uk", "o'hara@example.org"],
    "phones": [
        *("+49 30 901820", "+1 (555) 123-4567", "(212) 555-0123", "030 1234567", "00441632960961"),
    ],
}
KEPT = {
    "cards": [
        "4111 1111 1111 1112",
        "1732549912345678901",
        "0000000000000000",
        "a4111111111111111",
    ],
    "ibans": ["DE89 3704 0044 0532 0130 01", "XX89370400440532013000", "ADE89370400440532013000"],
    "emails": ["root@localhost", "@ann", "a@b", "git@host:x"],
    "phones": ["2026-11-25", "10.0.0.1", "1699999999", "555-1234", "0.123456789", "12-34-56"],
}


@pytest.mark.parametrize("data", FOUND)
def test_data_is_found_by_the_name_of_its_rule(data: str) -> None:
    """In prose, in JSON and in values; the replacement says what was there."""
    values = ValueRedactor([rule_from(data, "redact[0]")])
    placeholder = f"[redacted {DATA_RULES[data]}]"
    for text in FOUND[data]:
        assert values.text(f"it is {text}, thanks") == f"it is {placeholder}, thanks"
        assert values.value({"a": [text]}) == {"a": (placeholder,)}
        body = SecretRedactor([rule_from(data, "redact[0]")], environment={}).body(
            json.dumps({"text": text}).encode()
        )
        assert json.loads(body) == {"text": placeholder}
        assert is_data(text, DATA_RULES[data])
    for text in KEPT[data]:
        assert values.text(f"it is {text}, thanks") == f"it is {text}, thanks"


def test_numbers_are_cards_as_well() -> None:
    """JSON has card numbers as numbers; the replacement may be another text."""
    values = ValueRedactor([RedactionRule(data="cards", replace="[card]")])
    assert values.value({"n": 4111111111111111, "t": 1732549912345678901}) == {
        "n": "[card]",
        "t": 1732549912345678901,
    }


def test_nothing_of_it_is_removed_without_a_rule() -> None:
    """Support agents are tested on such data."""
    text = " ".join(text for texts in FOUND.values() for text in texts)
    assert SecretRedactor(environment={}).text(text) == text


def test_rules_of_oteval_yaml_are_names_or_mappings() -> None:
    """The same names as in `instrument`; a mapping can set the replacement."""
    rules = [
        Redaction.model_validate(rule).rule()
        for rule in ("cards", {"data": "emails", "replace": "x"})
    ]
    assert rules == [RedactionRule(data="cards"), RedactionRule(data="emails", replace="x")]
    assert set(get_args(Redaction.model_fields["data"].annotation)) == {"", *DATA_RULES}
    with pytest.raises(ValueError, match="'cards', 'ibans', 'emails', 'phones' or 'presidio'"):
        Redaction.model_validate("addresses")
    with pytest.raises(ValueError, match="give data: presidio"):
        Redaction.model_validate({"data": "cards", "entities": ["PERSON"]})


def test_a_rule_with_wrong_data_is_an_error() -> None:
    """The message lists the names."""
    with pytest.raises(ConfigError, match=r"redact\[1\].data: unknown data 'card'; use cards, "):
        rule_from({"data": "card"}, "redact[1]")
    with pytest.raises(ConfigError, match=r"redact\[1\].entities: give a list"):
        rule_from({"data": "presidio", "entities": "PERSON"}, "redact[1]")


def test_presidio_is_imported_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results may overlap; entities limit what it looks for."""
    asked = []

    class AnalyzerEngine:
        def analyze(self, *, text: str, language: str, entities: list[str] | None) -> list[object]:
            asked.append((language, entities))
            at = text.index("Ann")
            return [SimpleNamespace(start=at, end=at + 3), SimpleNamespace(start=at, end=at + 9)]

    module = ModuleType("presidio_analyzer")
    module.AnalyzerEngine = AnalyzerEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "presidio_analyzer", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: module)
    personal_data._presidio.cache_clear()
    values = ValueRedactor([RedactionRule(data="presidio", entities=("PERSON",))])
    assert asked == []
    assert values.text("I am Ann Smith.") == "I am [redacted]."
    assert asked[0] == ("en", ["PERSON"])
    personal_data._presidio.cache_clear()


@pytest.mark.parametrize(
    ("installed", "remedy"),
    [
        (set(), r"pip install 'oteval\[presidio\]'"),
        ({"presidio_analyzer"}, "python -m spacy download en_core_web_lg"),
    ],
)
def test_presidio_that_is_missing_is_an_error(
    installed: set[str], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install, before anything is recorded; nothing is downloaded."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in installed or None)
    with pytest.raises(ConfigError, match=remedy):
        ValueRedactor([rule_from("presidio", "redact[0]")])
