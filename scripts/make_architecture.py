"""Write the generated parts of the pages Architecture and Modules; a test keeps them current.

Run it as ``python -m scripts.make_architecture``. Layers come from the import contracts in
pyproject.toml, imports from the code, and descriptions from the first sentence of each docstring.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
MODULES = ROOT / "docs" / "reference" / "modules.md"
BEGIN, END = "<!-- generated: packages -->\n", "<!-- end -->"


def layers() -> list[list[str]]:
    """The rooms by layer, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [c for c in contracts if c.get("containers") == ["oteval"]]
    return [sorted(room.strip() for room in layer.split("|")) for layer in contract["layers"]]


def top_level() -> set[str]:
    """The packages and modules below `oteval`, without the entry point."""
    children = _graph().find_children("oteval")
    return {module.removeprefix("oteval.") for module in children} - {"__main__"}


def imports_of(room: str) -> list[str]:
    """The rooms that a room imports in any of its modules."""
    graph = _graph()
    root = f"oteval.{room}"
    rooms = set()
    for module in {root, *graph.find_descendants(root)}:
        for imported in graph.find_modules_directly_imported_by(module):
            parts = imported.split(".")
            if len(parts) > 1 and parts[1] != room:
                rooms.add(parts[1])
    return sorted(rooms)


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\w\.)\s(?=[A-Z`])", paragraph)[0].replace("|", "\\|")


def packages_table() -> str:
    """The table of rooms: layer by layer, with purpose and imports."""
    lines = ["| layer | room | purpose | imports |", "|---:|---|---|---|"]
    for depth, layer in enumerate(layers(), start=1):
        for room in layer:
            purpose = first_sentence(ROOT / "oteval" / room / "__init__.py")
            imports = ", ".join(f"`{imported}`" for imported in imports_of(room)) or "–"
            lines.append(f"| {depth} | `{room}/` | {purpose} | {imports} |")
    return "\n".join(lines) + "\n"


def architecture() -> str:
    """Return docs/explanation/architecture.md with its generated part renewed."""
    text = ARCHITECTURE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{packages_table()}\n{END}{after}"


def modules_page() -> str:
    """Return docs/reference/modules.md: every module with the first sentence of its docstring."""
    parts = ["# Modules", "", "Every module, from the first sentence of its docstring."]
    folders = sorted({path.parent for path in (ROOT / "oteval").rglob("*.py")})
    for folder in folders:
        modules = sorted(path for path in folder.glob("*.py") if path.stem != "__main__")
        parts += ["", f"## {folder.relative_to(ROOT)}/", ""]
        for path in modules:
            if path.stem == "__init__":
                parts += [first_sentence(path), ""]
        for path in modules:
            if path.stem != "__init__":
                parts.append(f"- `{path.name}`: {first_sentence(path)}")
    return "\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("oteval", cache_dir=None)


def main() -> None:
    """Write both pages."""
    ARCHITECTURE.write_text(architecture(), "utf-8")
    MODULES.write_text(modules_page(), "utf-8")


if __name__ == "__main__":
    main()
