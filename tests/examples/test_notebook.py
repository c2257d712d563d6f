"""The notebook of `examples/` runs from its first cell to its last."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from ..make import ROOT

NOTEBOOK = ROOT / "examples" / "runs.ipynb"
CONTENT = json.loads(NOTEBOOK.read_text("utf-8"))
CODE = ["".join(cell["source"]) for cell in CONTENT["cells"] if cell["cell_type"] == "code"]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pandas") is None, reason="pandas is not installed"
)


def test_no_outputs_are_stored():
    """The notebook in the repository has sources alone."""
    for cell in CONTENT["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def value_of(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line, as a kernel does."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_every_cell_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Loading, looking, scoring, comparing and labels, each with a value that can be shown."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [value_of(source, names) for source in CODE]
    pieces = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]

    assert sum('class="oteval"' in piece for piece in pieces) >= 6
    assert any("is 420.0 in the output, 42.0 in the reference" in piece for piece in pieces)
    assert any("broke</span>" in piece for piece in pieces)
    assert len(names["disagreed"]) == 1


@pytest.mark.notebook
def test_the_notebook_runs_in_a_kernel(tmp_path: Path):
    """A real kernel executes it end to end, and its views are HTML."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)

    resources = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    html = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    assert sum('class="oteval"' in piece for piece in html) >= 6
