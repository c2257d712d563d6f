"""Where in a text secrets may be: one search for all names, and the manifests of Kubernetes.

Most texts have no name of a secret. In other texts, only the stretches around the names are
searched for the forms, one after another. The values of Secrets in manifests (``kind: Secret`` with
``data``) and the parts of private keys are secret, whatever their names are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from ..patterns import Pattern
from .json_secrets import JSON_TAIL, PARAMETER
from .secret_names import NAME_ENDS
from .text_secrets import OTHER_FORMS, TEXT_TAILS
from .text_values import QUOTE

__all__ = ["manifest_spans", "name_stretches"]

_NAMES = rf"(?i:(?:{NAME_ENDS})(?:{TEXT_TAILS}|{JSON_TAIL}))|{PARAMETER}|{OTHER_FORMS}"
_BEFORE = 80
_AFTER = 1000

_KIND = re.compile(rf"(?:\b|\\n)kind(?:{QUOTE})?:\s*(?:{QUOTE})?Secret\b")
_LINE = r"(?:\r?\n|\\+n)"
# In YAML a block of lines, in JSON an object.
_DATA = re.compile(
    rf"(?:\b|\\n[ ]*)(?:data|stringData)(?:(?:{QUOTE})?:\s*\{{([^{{}}]*)\}}"
    rf"|:[ \t]*((?:{_LINE}[ ]+[\w./-]+:[ \t]*[^\s\\]+)+))"
)
_VALUE = re.compile(rf":[ \t]*(?:{QUOTE})?([^\s\"'\\,{{}}]{{4,}})")
_NEAR = 4000
# A JSON Web Key, and the private parts of keys in XML and in PuTTY's files.
_KEY_PARTS = re.compile(
    r"\"(?:d|k|p|q|dp|dq|qi)\\*\"\s*:\s*\\*\"([A-Za-z0-9_-]{16,})\\*\""
    r"|<(?:D|P|Q|DP|DQ|InverseQ)>([A-Za-z0-9+/=\s]{16,})</"
    rf"|Private-Lines: \d+((?:{_LINE}[A-Za-z0-9+/=]{{4,}})+)"
)


def name_stretches(text: str) -> list[tuple[int, int]]:
    """The stretches of a text that may contain names of secrets, in order."""
    stretches: list[tuple[int, int]] = []
    for start, end in _names().spans(text):
        first = max(0, start - _BEFORE)
        last = min(len(text), end + _AFTER)
        if stretches and first <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(last, stretches[-1][1])
        else:
            stretches.append((first, last))
    return stretches


@functools.cache
def _names() -> Pattern:
    return Pattern(_NAMES)


def manifest_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values of Secrets in manifests, and of the parts of private keys.

    Args:
        text: The text.
    """
    if "kty" in text or "RSAKeyValue" in text or "Private-Lines" in text:
        for parts in _KEY_PARTS.finditer(text):
            yield parts.span(parts.lastindex or 0)
    if "Secret" not in text:
        return
    done = 0
    for kind in _KIND.finditer(text):
        for data in _DATA.finditer(text, max(done, kind.start() - _NEAR), kind.end() + _NEAR):
            group = 1 if data[1] is not None else 2
            for value in _VALUE.finditer(text, *data.span(group)):
                yield value.span(1)
            done = data.end()
