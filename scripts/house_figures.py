"""Print the figures of the house: its rooms, arrows, files, lines, classes, names and prose.

    python -m scripts.house_figures [--names] [--json]

Lines are code lines: without blanks, comments and docstrings. A *binding* is an assignment, a loop
variable or an argument; a *generic* name does not show which value it is (`GENERIC`). Classes are
*permuted* when their names have the same nouns in another order or number.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERIC = frozenset(
    re.findall(
        r"\w+",
        """
        found one known given place asked wanted said held made shown told had both two kept got
        seen taken named ones others rest whole it them this that some every each thing things
        """,
    )
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def sources() -> dict[Path, str]:
    """The text of each module of the package, by its path in the repository."""
    paths = sorted((ROOT / "oteval").rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text("utf-8") for path in paths}


def generic_bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each binding with a generic name, with its line."""
    for name, line in bindings(tree):
        if name in GENERIC:
            yield name, line


def permuted_classes(trees: dict[Path, ast.Module]) -> dict[tuple[str, ...], set[str]]:
    """The names of classes that have the same nouns, by these nouns."""
    groups: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                groups[_nouns(node.name)].add(node.name)
    return {nouns: names for nouns, names in groups.items() if len(names) > 1 and len(nouns) > 1}


def figures() -> dict[str, float]:
    """All figures, by name."""
    texts = sources()
    trees = {path: ast.parse(text) for path, text in texts.items()}
    binding_count = sum(1 for tree in trees.values() for _ in bindings(tree))
    generic = sum(1 for tree in trees.values() for _ in generic_bindings(tree))
    docstrings = [text for tree in trees.values() for text in _function_docstrings(tree)]
    words = re.findall(r"[A-Za-z']+", " ".join(_prose()))
    those = sum(word.lower() == "those" for word in words)
    relative = len(re.findall(r"\b(?:of|in|for) which\b", " ".join(words)))
    return {
        "rooms": len({path.parts[1] for path in texts if len(path.parts) > 2}),
        "loose modules": sum(len(path.parts) == 2 and path.stem[0] != "_" for path in texts),
        "arrows between rooms": len(_arrows(trees)),
        "files": len(texts),
        "code lines": sum(map(_code_lines, texts.values())),
        "classes": sum(
            isinstance(node, ast.ClassDef) for tree in trees.values() for node in ast.walk(tree)
        ),
        "permuted class names": len(permuted_classes(trees)),
        "generic names of 1,000 bindings": round(1000 * generic / binding_count, 1),
        "docstrings that begin with Return, %": round(
            100 * sum(text.startswith("Return") for text in docstrings) / len(docstrings)
        ),
        "'those' of 10,000 words": round(1e4 * those / len(words), 1),
        "'of, in, for which' of 10,000 words": round(1e4 * relative / len(words), 1),
        "decisions": len(list((ROOT / "docs" / "decisions").glob("[0-9]*.md"))),
    }


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each name that is assigned, looped over or an argument, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def _nouns(name: str) -> tuple[str, ...]:
    """The words of a class name in alphabetical order, without a tense."""
    words = re.findall(r"[A-Z][a-z0-9]*|[A-Z]+(?![a-z])", name)
    return tuple(sorted(word.removesuffix("d") for word in words))


def _function_docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and (text := ast.get_docstring(node)):
            yield text


def _prose() -> Iterator[str]:
    """Docstrings and comments of the package, and the pages."""
    for text in sources().values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)):
                yield docstring
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if page.name not in ("modules.md", "CHANGELOG.md"):
            yield page.read_text("utf-8")


def _arrows(trees: dict[Path, ast.Module]) -> set[tuple[str, str]]:
    arrows = set()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and len(path.parts) > 2:
                target = imported_module(path, node).split(".")
                if target[0] == "oteval" and len(target) > 1 and target[1] != path.parts[1]:
                    arrows.add((path.parts[1], target[1]))
    return arrows


def imported_module(path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of the module that a statement in a file imports from."""
    if not node.level:
        return node.module or ""
    package = path.parent.parts[: len(path.parent.parts) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def _statements(node: ast.AST) -> list[ast.stmt]:
    """The statements of a body; a lambda's body is an expression."""
    body = getattr(node, "body", None)
    return body if isinstance(body, list) else []


def _code_lines(text: str) -> int:
    """The lines of code, without blanks, comments and docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for statement in _statements(node):
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def main() -> None:
    """Print the figures, or every generic name and permuted class name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", action="store_true", help="list generic names and their lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.names:
        trees = {path: ast.parse(text) for path, text in sources().items()}
        for path, tree in trees.items():
            for name, line in generic_bindings(tree):
                print(f"{path}:{line}: {name}")
        for names in permuted_classes(trees).values():
            print("permuted:", ", ".join(sorted(names)))
    elif options.json:
        print(json.dumps(figures()))
    else:
        for name, value in figures().items():
            print(f"{name:40} {value:>10,}")


if __name__ == "__main__":
    main()
