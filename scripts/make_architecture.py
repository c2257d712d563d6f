"""Write the generated parts of docs/architecture.md and docs/modules.md; a test keeps them current.

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
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULES = ROOT / "docs" / "modules.md"
BEGIN, END = "<!-- generated: packages -->\n", "<!-- end -->"


def layers() -> list[list[str]]:
    """Return the top-level packages and modules by layer, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [contract for contract in contracts if contract["type"] == "layers"]
    return [
        sorted(name.strip().removeprefix("oteval.") for name in layer.split("|"))
        for layer in contract["layers"]
    ]


def top_level() -> set[str]:
    """Return the packages and modules below `oteval` that hold code."""
    graph = _graph()
    return {
        module.removeprefix("oteval.")
        for module in graph.find_children("oteval")
        if module not in ("oteval.__main__", "oteval.cli.bundled_demo")
    }


def imports_of(name: str) -> list[str]:
    """Return the top-level packages and modules that one of them imports, at any place."""
    graph = _graph()
    root = f"oteval.{name}"
    found = set()
    for module in {root, *graph.find_descendants(root)}:
        for imported in graph.find_modules_directly_imported_by(module):
            parts = imported.split(".")
            if len(parts) > 1 and parts[1] != name:
                found.add(parts[1])
    return sorted(found)


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\w\.)\s(?=[A-Z`])", paragraph)[0].replace("|", "\\|")


def packages_table() -> str:
    """Return the table of packages: layer by layer, with purpose and imports."""
    lines = ["| layer | package | purpose | imports |", "|---:|---|---|---|"]
    for depth, layer in enumerate(layers(), start=1):
        for name in layer:
            path = ROOT / "oteval" / name
            is_package = path.is_dir()
            label = f"`{name}/`" if is_package else f"`{name}.py`"
            source = path / "__init__.py" if is_package else path.with_suffix(".py")
            imported = ", ".join(f"`{one}`" for one in imports_of(name)) or "–"
            lines.append(f"| {depth} | {label} | {first_sentence(source)} | {imported} |")
    return "\n".join(lines) + "\n"


def architecture() -> str:
    """Return docs/architecture.md with its generated part renewed."""
    text = ARCHITECTURE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{packages_table()}\n{END}{after}"


def modules_page() -> str:
    """Return docs/modules.md: every module with the first sentence of its docstring."""
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
