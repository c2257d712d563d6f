"""Check the rules of the house that linters lack: names, small modules, docstrings, English.

    python -m scripts.house_rules [PATH ...]

It lists, for the package and its pages:

- class names that are defined more than once, or have the same nouns in another order,
- generic names of values, in a file where they are more than 5 of 1,000 (see `house_figures`),
- modules under 40 lines, and modules named by a gerund,
- docstrings that repeat another function's,
- imports by string, which the import contracts cannot see,
- imports of a module inside another room: a room's `__init__` has the names that other rooms may
  use,
- sentences with patterns that make a reader stop (`PATTERNS`).

Exceptions are in `house_rules.toml` beside this file, each with its reason; unused exceptions are
findings as well. Its table `phrase` contains phrases that the patterns skip. With paths, only
findings in files below the paths are shown. The exit status is 1 when there are findings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.house_figures import bindings, generic_bindings, imported_module, permuted_classes

ROOT = Path(__file__).resolve().parent.parent
EXCEPTIONS = Path(__file__).with_suffix(".toml")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**/*.md",
    "collector/**/*.md",
    "examples/*.md",
)
SHORTEST_MODULE = 40  # lines
MOST_GENERIC = 5  # of 1,000 bindings
SHORTEST_REPEAT = 60  # characters: shorter docstrings may be equal by chance
CODE = re.compile(r"``.*?``|`[^`]*`", re.DOTALL)

PATTERNS = {
    "'what' as a noun": re.compile(r"\b[Ww]hat\b(?![^.!?]*\?)"),
    "'is no'": re.compile(r"\b(?:is|are|was|were|be) no (?!longer\b|more than\b)\w"),
    "'has not the'": re.compile(r"\b(?:has|have|had) not (?:a|an|any|the|its|their)\b"),
    "', too.'": re.compile(r", too[.,;]"),
    "'as there'": re.compile(r"\b[Aa]s there(?! (?:is|are|was|were)\b)"),
    "'of its own'": re.compile(r"\bof (?:its|their|one's) own\b"),
    "'so long'": re.compile(r"(?:^|\. )So (?:long|often|many|much)\b"),
    "'for ever'": re.compile(r"\bfor ever\b"),
    "'stands there'": re.compile(r"\bstands? (?:there|beside|in|under|for itself)\b"),
    "'hold against'": re.compile(r"\b[Hh](?:old|olds|eld)(?: \w+){0,3} against\b"),
    "'tell of'": re.compile(r"\b(?:tells?|told) (?:of|nothing)\b"),
    "'is had'": re.compile(r"\b(?:is|are|be) had\b"),
    "'comes of'": re.compile(r"\b(?:comes?|came) of\b"),
}


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule.

    Attributes:
        rule: The rule's name, a table of the exceptions file.
        subject: The key of an exception for it.
        path: The file, relative to the repository.
        line: The line, from 1.
        text: The finding for people.
    """

    rule: str
    subject: str
    path: Path
    line: int
    text: str


def modules() -> dict[Path, ast.Module]:
    """Return the package's modules, parsed."""
    paths = sorted((ROOT / "oteval").rglob("*.py"))
    return {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in paths}


def repeated_classes(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield classes with the name of another class."""
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append((path, node.lineno))
    for name, found in places.items():
        for path, line in found if len(found) > 1 else ():
            yield Finding("class", name, path, line, f"class {name} is defined {len(found)} times")


def permuted_names(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield groups of classes with the same nouns in their names."""
    for names in permuted_classes(trees).values():
        first, *further = sorted(names)
        for path, tree in trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and node.name == first:
                    text = f"class {first} has the nouns of {', '.join(further)}"
                    yield Finding("permuted", first, path, node.lineno, text)


def generic_names(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield the generic names of files that have too many; two are not too many in any file."""
    for path, tree in trees.items():
        generic = list(generic_bindings(tree))
        allowed = max(2, MOST_GENERIC * sum(1 for _ in bindings(tree)) // 1000)
        for name, line in generic if len(generic) > allowed else ():
            yield Finding("generic", str(path), path, line, f"{name}: say which value it is")


def misshapen_modules(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield modules that are too small to be a concept, or named by a gerund."""
    for path in trees:
        name = path.stem if path.stem != "__init__" else path.parent.name
        if name.endswith("ing"):
            yield Finding("gerund", str(path), path, 1, "the module is named by a gerund")
        lines = (ROOT / path).read_text("utf-8").count("\n")
        if lines < SHORTEST_MODULE and path.stem not in ("__init__", "__main__"):
            text = f"the module has {lines} lines: fold it into its concept"
            yield Finding("small", str(path), path, 1, text)


def repeated_docstrings(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield functions with equal docstrings; a method may repeat the overridden method's."""
    parents: dict[str, set[str]] = {}
    places: dict[str, list[tuple[Path, str, ast.FunctionDef | ast.AsyncFunctionDef]]]
    places = defaultdict(list)
    for path, tree in trees.items():
        owners = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                parents[node.name] = {getattr(b, "id", getattr(b, "attr", "")) for b in node.bases}
                owners.update(dict.fromkeys(node.body, node.name))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                text = " ".join((ast.get_docstring(node) or "").split())
                if len(text) >= SHORTEST_REPEAT:
                    places[text].append((path, owners.get(node, ""), node))

    for group in places.values():
        methods = {(owner, node.name) for _, owner, node in group if owner}
        found = [
            (path, node)
            for path, owner, node in group
            if not any((one, node.name) in methods for one in _ancestors(owner, parents))
        ]
        for path, node in found if len(found) > 1 else ():
            others = ", ".join(f"{p}:{n.lineno}" for p, n in found if n is not node)
            text = f"the docstring of {node.name} repeats {others}"
            yield Finding("docstring", node.name, path, node.lineno, text)


def _ancestors(name: str, parents: dict[str, set[str]]) -> set[str]:
    """Return the names of all classes above one."""
    above: set[str] = set()
    waiting = set(parents.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in above:
            above.add(one)
            waiting |= parents.get(one, set())
    return above


def imports_by_string(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield calls of ``import_module`` with a module of oteval."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if isinstance(first, ast.JoinedStr) and first.values:
                first = first.values[0]
            text = first.value if isinstance(first, ast.Constant) else ""
            if called in ("import_module", "__import__") and str(text).startswith((".", "oteval")):
                yield Finding("import", str(path), path, node.lineno, f"{called} of {text!r}")


def imports_of_insides(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield imports from a module inside another room; the modules of `base` are open to all."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            package, *inner = imported_module(path, node).split(".")
            is_other = package == "oteval" and len(inner) > 1 and inner[0] != path.parts[1]
            if is_other and inner[0] != "base":
                module = ".".join(inner)
                text = f"import from oteval.{inner[0]} instead of oteval.{module}"
                yield Finding("inside", str(path), path, node.lineno, text)


def sentences(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the comments and texts of a module with their lines."""
    comment: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1:
            if comment:
                yield begin, " ".join(comment)
            comment, begin = [], token.start[0]
        comment.append(token.string.lstrip("# "))
        last = token.start[0]
    if comment:
        yield begin, " ".join(comment)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def stilted_sentences(trees: dict[Path, ast.Module]) -> Iterator[Finding]:
    """Yield texts of modules and pages that match one of `PATTERNS`."""
    phrases = re.compile("|".join(map(re.escape, exceptions().get("phrase", {}))) or "(?!)")
    texts = [
        (path, line, text)
        for path, tree in trees.items()
        for line, text in sentences((ROOT / path).read_text("utf-8"), tree)
    ]
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            text = re.sub(r"^```.*?^```", _blank, page.read_text("utf-8"), flags=re.M | re.S)
            texts.append((page.relative_to(ROOT), 1, text))
    for path, first, text in texts:
        without_code = phrases.sub(_masked, CODE.sub(_masked, text))
        for name, pattern in PATTERNS.items():
            for match in pattern.finditer(without_code):
                line = first + text.count("\n", 0, match.start())
                near = " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())
                yield Finding("sentence", f"{path}: {near}", path, line, f"{name}: {near}")


def _masked(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_", match[0])


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


@cache
def exceptions() -> dict[str, dict[str, str]]:
    """Return the exceptions by rule, each a subject with its reason."""
    return tomllib.loads(EXCEPTIONS.read_text("utf-8")) if EXCEPTIONS.exists() else {}


def findings() -> list[Finding]:
    """Return everything that breaks a rule and is not an exception, and exceptions not needed."""
    trees = modules()
    unused = {
        (rule, subject)
        for rule, table in exceptions().items()
        for subject in table
        if rule != "phrase"
    }
    found = []
    for check in (
        repeated_classes,
        permuted_names,
        generic_names,
        misshapen_modules,
        repeated_docstrings,
        imports_by_string,
        imports_of_insides,
        stilted_sentences,
    ):
        for one in check(trees):
            if one.subject in exceptions().get(one.rule, {}):
                unused.discard((one.rule, one.subject))
            else:
                found.append(one)
    where = EXCEPTIONS.relative_to(ROOT)
    for rule, subject in sorted(unused):
        found.append(Finding("unused", subject, where, 1, f"no {rule} needs {subject!r}: remove"))
    return found


def main() -> int:
    """Print the findings; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="show only findings below these")
    paths = [path.resolve() for path in parser.parse_args().paths]
    shown = [
        one
        for one in findings()
        if not paths or any((ROOT / one.path).is_relative_to(path) for path in paths)
    ]
    for one in shown:
        print(f"{one.path}:{one.line}: {one.text}")
    if shown:
        print(f"{len(shown)} findings; exceptions go into {EXCEPTIONS.relative_to(ROOT)}")
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
