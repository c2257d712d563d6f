"""What redaction removes and what it leaves: planted secrets in many places, and ordinary text.

Secrets of recognisable shape are planted in every place in which agents meet them: files of
settings, code, commands, logs, HTTP bodies, JSON in JSON. Keys of known forms also stand in free
prose; random passwords, keys and tokens only at names. The secrets are random, with a fixed seed. A
secret counts as removed if no eight of its characters in a row are left.

The ordinary text is code (the package itself, Python's standard library, installed packages),
documentation, captured traces, and lists of files with their hashes. A token is a text between
spaces, quotes and brackets. It counts as changed if an edit touches it, also in examples of
passwords. The time is that of all ordinary texts, in one process.
"""

from __future__ import annotations

import itertools
import random
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oteval.base.redaction.secrets import SecretRedactor

from . import parts
from .checks import check
from .clock import ROOT
from .planted_secrets import KEY_SHAPES, NAMED_PLACES, PROSE_PLACES, VALUE_SHAPES, key, value
from .report import Row

FULL = {"rounds": 5, "megabytes": 20}
QUICK = {"rounds": 1, "megabytes": 2, "every": 5}
REMOVED_GOAL, CHANGED_GOAL = 0.95, 0.001
"""The least share of secrets removed, and the largest of tokens changed."""

_TOKEN = re.compile(r"[^\s\"'`<>()\[\]{},;]+")
_LEFT = 8
_CORPUS = {
    "code": (("oteval", "**/*.py"), ("tests", "**/*.py")),
    "documentation": (("docs", "**/*.md"), (".", "*.md")),
    "traces": (("tests/data", "**/*.json"),),
}
# The tests in which secrets are planted.
_PLANTED = re.compile(r"tests/(?:base/redaction/|.*(?:planted_secrets|span_redaction))|benchmarks/")


def measure(*, rounds: int, megabytes: float, every: int = 1, seed: int = 1) -> dict[str, Any]:
    """Measure redaction.

    Args:
        rounds: How many random secrets of each shape are planted in each place.
        megabytes: How much ordinary text of each kind is read at most.
        every: Plants every n-th pair of a shape and a place.
        seed: Makes the secrets repeatable.

    Returns:
        ``forms``, ``prose`` and ``values`` with ``planted`` and ``removed`` (keys of known forms at
        names and in prose, other secrets at names), ``survivors`` by place, and ``ordinary`` with
        ``tokens``, ``changed`` and ``megabytes_per_second`` by kind of text.
    """
    redactor = SecretRedactor(environment={})
    chance = random.Random(seed)
    survivors: Counter[str] = Counter()
    figures: dict[str, Any] = {}
    for name, shapes, places, make in (
        ("forms", KEY_SHAPES, NAMED_PLACES, key),
        ("prose", KEY_SHAPES, PROSE_PLACES, key),
        ("values", VALUE_SHAPES, NAMED_PLACES, value),
    ):
        pairs = list(itertools.product(shapes * rounds, places))[::every]
        for shape, form in pairs:
            secret = make(shape, chance)
            text = form.format(secret) if isinstance(form, str) else form(secret)
            if _is_left(secret, redactor.text(text)):
                survivors[f"{name}: {shape} in {text.replace(secret, '...')[:80]!r}"] += 1
        check(pairs, f"secrets are planted: {name}")
        removed = len(pairs) - sum(
            count for text, count in survivors.items() if text.startswith(f"{name}:")
        )
        figures[name] = {"planted": len(pairs), "removed": removed}
    figures["survivors"] = dict(survivors.most_common())
    figures["ordinary"] = {
        kind: _ordinary(redactor, files, megabytes * 1e6) for kind, files in _files()
    }
    return figures


def _is_left(secret: str, text: str) -> bool:
    """Return whether a part of a secret is left in a text, other than the prefix of its form."""
    tail = secret[len(secret) // 3 :]
    starts = range(max(1, len(tail) - _LEFT + 1))
    return any(tail[at : at + _LEFT] in text for at in starts)


def _files() -> Iterator[tuple[str, list[Path]]]:
    """Yield the files of each kind of ordinary text, without those that plant secrets."""
    for kind, patterns in _CORPUS.items():
        files = (
            file for folder, glob in patterns for file in sorted(Path(ROOT, folder).glob(glob))
        )
        yield kind, [file for file in files if not _PLANTED.match(str(file.relative_to(ROOT)))]
    paths = sysconfig.get_paths()
    yield "standard library", sorted(Path(paths["stdlib"]).glob("*.py"))
    yield "packages", sorted(Path(paths["purelib"]).rglob("*.py"))[::7]
    yield "hashes", [ROOT / "requirements.lock", *sorted(Path(paths["purelib"]).glob("*/RECORD"))]


def _ordinary(redactor: SecretRedactor, files: list[Path], most: float) -> dict[str, Any]:
    tokens = changed = size = 0
    seconds = 0.0
    examples: list[str] = []
    for file in files:
        if size >= most:
            break
        text = file.read_text("utf-8", "replace")
        size += len(text)
        tokens += sum(1 for _ in _TOKEN.finditer(text))
        start = time.process_time()
        redacted = redactor.text(text)
        seconds += time.process_time() - start
        if redacted != text:
            before, after = Counter(_TOKEN.findall(text)), Counter(_TOKEN.findall(redacted))
            gone = before - after
            changed += gone.total()
            examples += [f"{file.name}: {token[:60]}" for token in gone]
    check(tokens, "there is ordinary text", [str(file) for file in files[:3]])
    return {
        "tokens": tokens,
        "changed": changed,
        "megabytes_per_second": size / 1e6 / max(seconds, 1e-9),
        "examples": examples[:40],
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for name, figure in (
        ("forms", "keys of known forms at names, share removed"),
        ("prose", "keys of known forms in prose, share removed"),
        ("values", "other secrets at names, share removed"),
    ):
        out.append(_share(figure, figures[name]["removed"], figures[name]["planted"]))
    planted = sum(figures[name]["planted"] for name in ("forms", "prose", "values"))
    removed = sum(figures[name]["removed"] for name in ("forms", "prose", "values"))
    out.append(_share(f"all {planted:,} planted secrets, share removed", removed, planted))
    ordinary = figures["ordinary"].values()
    tokens = sum(kind["tokens"] for kind in ordinary)
    share = sum(kind["changed"] for kind in ordinary) / max(tokens, 1)
    out.append(
        Row(
            f"{tokens:,} ordinary tokens, share changed",
            f"{share:.4%}",
            target=f"at most {CHANGED_GOAL:.1%}",
            held=share <= CHANGED_GOAL,
        )
    )
    for kind, text in figures["ordinary"].items():
        share = text["changed"] / max(text["tokens"], 1)
        out.append(
            Row(
                f"{kind}: tokens changed",
                f"{share:.4%}",
                f"{text['megabytes_per_second']:.0f} MB/s",
            )
        )
    return out


def _share(figure: str, removed: int, planted: int) -> Row:
    share = removed / planted
    target = f"at least {REMOVED_GOAL:.0%}"
    return Row(figure, f"{share:.2%}", target=target, held=share >= REMOVED_GOAL)


if __name__ == "__main__":
    parts.main("redaction")
