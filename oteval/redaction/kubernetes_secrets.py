"""The values of Secrets of Kubernetes, whatever their names are: ``kind: Secret`` with ``data``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .text_values import QUOTE

__all__ = ["manifest_spans"]

_KIND = re.compile(rf"(?:\b|\\n)kind(?:{QUOTE})?:\s*(?:{QUOTE})?Secret\b")
_LINE = r"(?:\r?\n|\\+n)"
# In YAML a block of lines, in JSON an object.
_DATA = re.compile(
    rf"(?:\b|\\n[ ]*)(?:data|stringData)(?:(?:{QUOTE})?:\s*\{{([^{{}}]*)\}}"
    rf"|:[ \t]*((?:{_LINE}[ ]+[\w./-]+:[ \t]*[^\s\\]+)+))"
)
_VALUE = re.compile(rf":[ \t]*(?:{QUOTE})?([^\s\"'\\,{{}}]{{4,}})")
_NEAR = 4000


def manifest_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values of Secrets in manifests.

    Args:
        text: The text.
    """
    if "Secret" not in text:
        return
    done = 0
    for kind in _KIND.finditer(text):
        for data in _DATA.finditer(text, max(done, kind.start() - _NEAR), kind.end() + _NEAR):
            group = 1 if data[1] is not None else 2
            for value in _VALUE.finditer(text, *data.span(group)):
                yield value.span(1)
            done = data.end()
