"""Personal data in text: card numbers, IBANs, mail addresses, phone numbers; more by Presidio.

A card number has the beginning and the length of an issuer and the check digit of Luhn (ISO/IEC
7812). An IBAN has the length of its country and the remainder 1 of division by 97 (ISO 13616).
Order numbers, timestamps and ids therefore stay. Phone numbers begin with ``+`` or ``00`` and a
country code, with a trunk ``0`` and an area code, or are written as in North America.

None of this is on by default: support agents are tested on such data.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ConfigError
from ..patterns import MatchRange, Pattern

__all__ = ["DATA_RULES", "DATA_WORDS", "Matcher", "is_data", "matcher"]

DATA_RULES = {
    "cards": "card",
    "ibans": "IBAN",
    "emails": "email",
    "phones": "phone",
    "presidio": "",
}
"""The kinds of data by their names in rules, with the word in their replacement."""

DATA_WORDS = frozenset(filter(None, DATA_RULES.values()))
"""The words in replacements whose data can be recognised."""

_CARD = re.compile(r"(?<![\w.+-])[2-6](?:[0-9][ -]?){11,17}[0-9](?![\w-]|\.[0-9])", re.ASCII)
# Beginnings and lengths of card numbers: Visa, Mastercard, American Express, Discover, Diners Club,
# JCB, UnionPay, Maestro.
_ISSUERS = (
    (re.compile(r"4"), frozenset((13, 16, 19))),
    (re.compile(r"5[1-5]|22(?:2[1-9]|[3-9])|2[3-6]|27[01]|2720"), frozenset((16,))),
    (re.compile(r"3[47]"), frozenset((15,))),
    (re.compile(r"6011|64[4-9]|65"), frozenset((16, 19))),
    (re.compile(r"30[0-5]|3095|3[689]"), frozenset((14, 16, 19))),
    (re.compile(r"35(?:2[89]|[3-8])"), frozenset((16, 19))),
    (re.compile(r"62"), frozenset((16, 17, 18, 19))),
    (re.compile(r"50|5[6-8]|6"), frozenset((13, 15, 16, 18, 19))),
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?=[ A-Za-z0-9-]{11})")
_IBAN_CHARACTER = re.compile(r"[ -]?([A-Za-z0-9])")
# From the registry of IBANs: the length of each country.
_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (
        line.split(maxsplit=1)
        for line in """\
15 NO
16 BE
18 DK FI FK FO GL NL SD
19 MK SI
20 AT BA EE KZ LT LU MN XK
21 CH HR LI LV
22 BG BH CR DE GB GE IE ME RS VA
23 AE GI IL IQ OM SO TL
24 AD CZ ES MD PK RO SA SE SK TN VG
25 LY PT ST
26 IS TR
27 BI DJ FR GR IT MC MR SM
28 AL AZ BY CY DO GT HN HU LB NI PL SV
29 BR EG PS QA UA
30 JO KW MU YE
31 MT SC
32 LC
33 RU""".splitlines()
    )
    for country in countries.split()
}
_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.!#$%&'*+/=?^{|}~-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
)
_PHONE = re.compile(
    r"(?<![\w.+/=-])(?<![0-9] )(?:"
    r"(?:\+|00(?=[1-9]))[1-9](?:[ ./-]{0,2}\(?[0-9]\)?){6,14}"
    r"|0[1-9][0-9]{1,4}[ /-]{1,3}(?:[0-9][ /-]?){4,9}[0-9]"
    r"|(?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[.-][0-9]{4}"
    r")(?![\w-]|\.[0-9])",
    re.ASCII,
)
_LONGEST_PHONE = 15
_MODEL = "en_core_web_lg"


class DataMatcher:
    """Finds data in text by a function that yields its places."""

    def __init__(self, find: Callable[[str], Iterator[tuple[int, int]]]) -> None:
        """Set the function; the places that it yields are in order and do not overlap."""
        self._find = find

    def search(self, text: str) -> MatchRange | None:
        """The first match in a text."""
        return next(self._find(text), None)

    def spans(self, text: str) -> list[MatchRange]:
        """The matches in a text."""
        return list(self._find(text))

    def replace(self, text: str, replacement: str) -> str:
        """Replace the matches in a text."""
        parts, end = [], 0
        for start, after in self._find(text):
            parts += [text[end:start], replacement]
            end = after
        return "".join([*parts, text[end:]]) if parts else text


Matcher = Pattern | DataMatcher
"""Finds parts of text: a pattern, or data with check digits."""


def matcher(data: str, entities: Sequence[str] = ()) -> DataMatcher:
    """The matcher of a kind of data.

    Args:
        data: The kind, one of `DATA_RULES`.
        entities: For Presidio, the entities to look for; () for all.

    Raises:
        ConfigError: The kind is unknown, or Presidio is not installed.
    """
    if data == "presidio":
        _presidio()  # a missing model is an error now, not when a span ends
        return DataMatcher(functools.partial(_presidio_spans, entities=tuple(entities)))
    if data not in _FINDERS:
        raise ConfigError(f"redact: unknown data {data!r}; use {', '.join(DATA_RULES)}")
    return DataMatcher(_FINDERS[data])


def is_data(text: str, word: str) -> bool:
    """Whether a whole text is data that a replacement such as ``[redacted card]`` names.

    Args:
        text: The text.
        word: The word in the replacement.
    """
    data = next((data for data, its_word in DATA_RULES.items() if its_word == word), "")
    return data in _FINDERS and (0, len(text)) in _FINDERS[data](text)


def _card_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        is_issued = any(form.match(digits) and len(digits) in lengths for form, lengths in _ISSUERS)
        if is_issued and _has_luhn_digit(digits):
            yield match.span()


def _has_luhn_digit(digits: str) -> bool:
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0 and len(set(digits)) > 1


def _iban_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(match[0][:2].upper())
        end, characters = match.end(), [match[0].upper()]
        for _ in range((length or 4) - 4):
            following = _IBAN_CHARACTER.match(text, end)
            if following is None:
                break
            end = following.end()
            characters.append(following[1].upper())
        iban = "".join(characters)
        if len(iban) == length and not text[end : end + 1].isalnum() and _has_iban_digits(iban):
            yield match.start(), end


def _has_iban_digits(iban: str) -> bool:
    number = "".join(str(int(character, 36)) for character in iban[4:] + iban[:4])
    return int(number) % 97 == 1


def _email_spans(text: str) -> Iterator[tuple[int, int]]:
    if "@" in text:
        for match in _EMAIL.finditer(text):
            yield match.span()


def _phone_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _PHONE.finditer(text):
        if sum(map(str.isdigit, match[0])) <= _LONGEST_PHONE:
            yield match.span()


_FINDERS: dict[str, Callable[[str], Iterator[tuple[int, int]]]] = {
    "cards": _card_spans,
    "ibans": _iban_spans,
    "emails": _email_spans,
    "phones": _phone_spans,
}


@functools.cache
def _presidio() -> Any:
    """Presidio's analyzer, which takes seconds to load.

    Raises:
        ConfigError: Presidio or its English model is not installed. Presidio would download a
            missing model.
    """
    for name, install in (
        ("presidio_analyzer", "pip install 'oteval[presidio]'"),
        (_MODEL, f"python -m spacy download {_MODEL}"),
    ):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"redact: presidio needs {name}, which is not installed: {install}")
    try:
        return importlib.import_module("presidio_analyzer").AnalyzerEngine()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"redact: presidio cannot be loaded: {error}") from error


def _presidio_spans(text: str, entities: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    results = _presidio().analyze(text=text, language="en", entities=list(entities) or None)
    merged: list[tuple[int, int]] = []
    for start, end in sorted((result.start, result.end) for result in results):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    yield from merged
