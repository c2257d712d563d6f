"""Texts that are secrets wherever they occur: keys of known forms, tokens and private keys.

The prefixes, alphabets and lengths are facts from the rules that gitleaks publishes
(https://github.com/gitleaks/gitleaks, ``config/gitleaks.toml``, July 2026) and from the services'
own documentation. Lengths are lower here: a key that is cut off is a secret as well.

A search for any of the forms on RE2 takes a tenth of the time of the patterns themselves. It
ignores the conditions on the text around a match. The patterns therefore run only on the few texts
that the search finds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator

from ..patterns import Pattern
from .secret_values import is_plausible

__all__ = ["SecretSearch", "form_spans", "has_form", "occurrences"]


# Not inside a word: "task-12..." has no key.
_START = r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9]-)"
_LONGEST_PATTERN = 5000
_LONGEST_START = 500
_FEW = 12
_BEFORE = 80
_LETTERS = r"[A-Za-z0-9_-]"
_ALPHABETS = {
    "word": "[A-Za-z0-9_-]",
    "alnum": "[A-Za-z0-9]",
    "base64": "[A-Za-z0-9+/=_-]",
    "dotted": "[A-Za-z0-9_=.-]",
    "hex": "[0-9a-fA-F-]",
    "upper": "[A-Z0-9]",
}
# The least length and the alphabet of the rest of a key, then prefixes.
# With a tilde, the match must be plausible: names have the same beginnings.
_PREFIXES = r"""
    10 alnum  [sr]k_(?:live|test|prod)_ whsec_
    ~10 word   xox[abceoprs]- xapp- xoxe[.-]
    12 alnum  sm_[aps]at_ FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-
    16 alnum  gh[pousr]_ AC(?=[0-9a-f]{32}) SK(?=[0-9a-f]{32}) LTAI tfp_
    16 word   gl(?:pat|dt|rt|ft|soat|imt|ptt|oas|ffct|agent|cbt)- GR1348941 _gitlab_session=
    16 base64 sntrys_ ops_ eyJrIjoi glc_ ABSK fm1[ar]_ fm2_ fo1_ bedrock-api-key-
    16 upper  A(?:KIA|SIA|BIA|CCA) A3T[A-Z0-9]
    20 alnum  gsk_ hf_ api_org_ rdme_ sntryu_ ico- pnu_ EZ[AT]K
    20 alnum  duffel_(?:test|live)_ shippo_(?:live|test)_
    20 alnum  fw_ fpk_ tgp_v1_ sbp_ vercel_ nfp_ phc_ phx_ rnd_ dckr_oat_ lin_oauth_ AKCp cmVmd
    ~20 dotted pscale_(?:tkn|oauth|pw)_ dp\.(?:pt|st|ct|sa|scim|audit)\. sl\.
    ~20 dotted figd_ tskey-(?:api|auth|client)-
    ~20 word   xai- pplx- tvly- nvapi- jina_ glsa_ lin_api_ ntn_ shp(?:at|ca|pa|ss)_
    ~20 word   dckr_pat_ e2b_ github_pat_
    ~20 word   lsv2_[ps][tk]_ hv[sbr]\. ya29\. sq0(?:atp|csp)- tk-us- fio-u- dnkey- CLOJARS_ HRKU-
    ~20 word   sgp_ 1//0
    ~20 word   GOCSPX- apify_api_ ak-lf- pcsk_ ctx7sk- fc- lf_[sp]k_ cal_(?:live|test)_ re_
    ~20 word   EAA[A-Z](?=[A-Za-z0-9]{40})
    24 hex    PMAK- NR(?:JS|II|AK|RA)- rubygems_
    24 alnum  NR(?:JS|II|AK|RA)- API-(?=[A-Z0-9]{26})
    ~30 word   AIza AQVN sha256~ ATATT3 ATCTT3 ATBB EAAA bkua_
    30 alnum  npm_ 4b1d r8_ secret_
    32 hex    dapi do[opr]_v1_ key- pubkey- pul- v1\.0-
    32 alnum  p8e-
    80 alnum  xprv
    ~40 word   pypi- xkeysib- xsmtpsib-
"""
# Each with the words that it contains: OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse.
_SPECIAL = (
    rf"{_START}[sp]k-(?={_LETTERS}{{0,80}}[0-9]){_LETTERS}{{12,}}",
    # With these lengths they are keys even if their letters look like a word.
    rf"{_START}(?:A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{{16}}|AIza{_LETTERS}{{35}}|AQVN{_LETTERS}{{35,38}}"
    rf"|GOCSPX-{_LETTERS}{{28}}|dckr_pat_{_LETTERS}{{27}}|NRAK-[A-Z0-9]{{27}})(?![A-Za-z0-9_-])",
    r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9+/_-]+)",
    r"\.webhook\.office\.com/webhookb2/([A-Za-z0-9@/_-]+)",
    r"discord(?:app)?\.com/api/webhooks/([0-9]+/[A-Za-z0-9_-]{20,})",
    rf"{_START}SG\.{_LETTERS}{{16,}}\.{_LETTERS}{{16,}}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    rf"{_START}A3-[A-Z0-9]{{6}}-[A-Z0-9-]{{20,}}",
    rf"{_START}dt0[a-z][0-9]{{2}}\.[A-Z0-9]{{16,}}\.[A-Z0-9]{{40,}}",
    rf"{_START}(?:[ps]at|pk)\.{_LETTERS}{{20,}}\.[A-Za-z0-9_.-]{{20,}}",
    rf"{_START}pat[A-Za-z0-9]{{14}}\.[a-f0-9]{{40,}}",
    rf"{_START}s-s4t2(?:ud|af)-[a-f0-9]{{40,}}",
    rf"{_START}access-(?:sandbox|development|production)-[0-9a-f-]{{36}}",  # Plaid
    rf"{_START}t1\.[A-Za-z0-9_-]{{10,}}=*\.[A-Za-z0-9_-]{{60,}}",
    r"(?<![A-Za-z0-9_/+=-])A{20,22}[A-Za-z0-9%]{80,100}(?![A-Za-z0-9+/=])",  # X
    r"\$2[abxy]\$[0-9]{2}\$[A-Za-z0-9./]{53}|\$(?:[1567y]|gy|apr1|argon2(?:id?|d)|scrypt"
    r"|pbkdf2(?:-sha(?:1|256|512))?)\$[A-Za-z0-9./=,$+-]{20,}"
    r"|\b(?:pbkdf2_sha(?:1|256|512)|argon2|bcrypt_sha256|scrypt)\$[A-Za-z0-9./=,$+-]{20,}",
    # JSON Web Tokens, also as base64 again.
    rf"{_START}eyJ{_LETTERS}{{8,}}\.eyJ{_LETTERS}{{4,}}(?:\.{_LETTERS}*)?",
    rf"{_START}ZXlK[A-Za-z0-9+/_-]{{60,}}",
    r"(?i:\bbearer)(?:[ \t]|%20|\+)+((?=[^\s\"'\\]{0,80}[0-9=])"
    r"[A-Za-z0-9._~+/=-]{7,}[A-Za-z0-9_~+/=-])",
    r"\b[Bb]asic (?=[A-Za-z0-9+/]{0,200}[0-9=])([A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9])",
    # User and password in a URL.
    r"://([^\s/\"'<>@\\:?#\[\]]{0,200}:[^\s/\"'<>@\\?#\[\]]{1,300})@",
)
# Forms that begin with any letters, with the part that finds them.
_LATE = (
    (r"(?<![0-9])[0-9]{8,10}:A[A-Za-z0-9_-]{33,}", r"[0-9]:A[A-Za-z0-9_-]{8,}"),  # Telegram
    (rf"{_START}[A-Za-z0-9]{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{40,}}", r"\.atlasv1\."),
    (
        r"(?<![A-Za-z0-9_~.])[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
        r"[0-9]Q~",
    ),  # Microsoft Entra
    (rf"{_START}[A-Za-z0-9]{{6}}_[A-Za-z0-9]{{29}}_mmk", r"_mmk"),
    (
        rf"{_START}(?:ext|sc|scauth|authress)_[a-z0-9]{{5,30}}\.[a-z0-9]{{4,6}}\.acc[_-][A-Za-z0-9.+/_=-]{{30,}}",
        r"\.acc[_-]",
    ),
    (rf"{_START}[a-f0-9]{{32}}-us[0-9]{{1,2}}(?![A-Za-z0-9])", r"[a-f0-9]-us[0-9]"),  # Mailchimp
    (
        rf"{_START}[MNO][A-Za-z0-9_-]{{23,26}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,40}}",
        r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{8}",
    ),  # Discord
    (rf"{_START}[0-9]{{15,16}}\|{_LETTERS}{{27,40}}", r"[0-9]\|[A-Za-z0-9_-]{8}"),
)
# A user in a URL, which is a token if it looks like one.
_USER = r"://([^\s/\"'<>@\\:?#\[\](){}]{8,300})@"


def _is_varied(text: str) -> bool:
    """Whether a text is not just a word."""
    return text.lower() != text != text.upper() or any(map(str.isdigit, text))


def _forms() -> Iterator[tuple[re.Pattern[str], Callable[[str], bool]]]:
    """Yield patterns of keys, whose group is the secret, and functions that check a match."""
    for line in _PREFIXES.strip().splitlines():
        shortest, alphabet, *prefixes = line.split()
        form = rf"{_START}(?:{'|'.join(prefixes)}){_ALPHABETS[alphabet]}{{{shortest.lstrip('~')},}}"
        check = is_plausible if shortest.startswith("~") else _is_varied
        yield re.compile(form, re.ASCII), check
    for form in (*_SPECIAL, *(form for form, _ in _LATE)):
        yield re.compile(form, re.ASCII), bool
    yield re.compile(_USER, re.ASCII), is_plausible


_FORMS = tuple(_forms())

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
# In JSON, the line ends of a key are escaped; in YAML, lines are indented.
_KEY_TEXT = re.compile(r"[A-Za-z0-9+/=:,. \r\n\t\\\"-]*")
_CUT_KEY = re.compile(r"[A-Za-z0-9+/= \t\r\n\\-]*")
# A private key that is encoded as a whole.
_ENCODED_KEY = re.compile(r"(?<![A-Za-z0-9+/])LS0tLS1CRUdJTi[A-Za-z0-9+/]{20,}={0,2}")

# The beginnings of encoded certificates and public keys.
_PUBLIC_KEYS = re.compile(r"LS0tLS1CRUdJTiB(?:DRVJU|QVUJM|SU0EgUFVC|TU0gy)")

_CONDITION = re.compile(r"\(\?(?:<!|[=!])(?:[^()\\]|\\.)*\)")
_BORDER = re.compile(r"[\s\"'<>]")
_REPEATED = re.compile(r"\{(\d+)(,?)(\d*)\}")


def _shortened(match: re.Match[str]) -> str:
    least = min(int(match[1]), 8)
    return "*" if match[1] in ("0", "1") and match[2] else f"{{{least},}}"


def _search_patterns() -> Iterator[str]:
    """Yield patterns for RE2, whose automaton would be large with many long repetitions."""
    late = {form for form, _ in _LATE}
    forms = [form for form, _ in _FORMS if form.pattern not in late]
    for form in (*forms, _BEGIN, _ENCODED_KEY):
        yield _REPEATED.sub(_shortened, _CONDITION.sub("", form.pattern))
    yield from (part for _, part in _LATE)


_ANY_FORM = "|".join(f"(?:{pattern})" for pattern in _search_patterns())


def has_form(text: str) -> bool:
    """Whether a text may have secrets of known forms."""
    return _any_form().search(text) is not None


def form_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of secrets of known forms; they may overlap."""
    has_key = False
    for start, end in _stretches(text):
        has_key = has_key or text.find("-----BEGIN", start, end) >= 0
        for form, check in _FORMS:
            for match in form.finditer(text, start, end):
                span = match.span(1 if form.groups else 0)
                if check(text[slice(*span)]):
                    yield span
        for match in _ENCODED_KEY.finditer(text, start, end):
            if not _PUBLIC_KEYS.match(match[0]):
                yield match.span()
    if has_key:
        yield from _private_keys(text)


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places between white space or quotes that may contain secrets."""
    done = 0
    for start, end in _any_form().spans(text):
        if start >= done:
            border = _BORDER.search(text, end)
            first = max(done, start - _BEFORE)
            done = border.start() if border else len(text)
            yield first, done


@functools.cache
def _any_form() -> Pattern:
    return Pattern(_ANY_FORM)


class SecretSearch:
    """A search for literal secrets."""

    def __init__(self, literals: Iterable[str]) -> None:
        """Compile the search.

        Args:
            literals: The secrets to find wherever they occur.
        """
        self._literals = sorted(literals)
        # Patterns have a limited length. A few texts are found faster one by one.
        is_many = len(self._literals) > _FEW
        self._any = [Pattern(text) for text in _alternatives(self._literals)] if is_many else []

    def is_in(self, text: str) -> bool:
        """Whether a text has one of the secrets."""
        if self._any:
            return any(pattern.search(text) for pattern in self._any)
        return any(literal in text for literal in self._literals)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of the secrets; they may overlap."""
        if self.is_in(text):
            for literal in self._literals:
                yield from occurrences(text, literal)


def occurrences(text: str, literal: str) -> Iterator[tuple[int, int]]:
    """Yield the places of a text in another text."""
    at = text.find(literal)
    while at >= 0:
        yield at, at + len(literal)
        at = text.find(literal, at + len(literal))


def _alternatives(literals: Iterable[str]) -> Iterator[str]:
    """Yield patterns that match the beginnings of texts."""
    parts: list[str] = []
    for literal in (re.escape(literal_text[:_LONGEST_START]) for literal_text in literals):
        if parts and sum(map(len, parts)) + len(parts) + len(literal) > _LONGEST_PATTERN:
            yield "|".join(parts)
            parts = []
        parts.append(literal)
    if parts:
        yield "|".join(parts)


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of private keys. A key without an end reaches to the end of the text."""
    begins = list(_BEGIN.finditer(text))
    for index, begin in enumerate(begins):
        after = begins[index + 1].start() if index + 1 < len(begins) else len(text)
        end = _END.search(text, begin.end(), after)
        if end and _KEY_TEXT.fullmatch(text, begin.end(), end.start()):
            yield begin.start(), end.end()
        else:
            cut = _CUT_KEY.match(text, begin.end(), after)
            yield begin.start(), cut.end() if cut else begin.end()
