"""Installed packages that exist for one test: modules and their metadata, in a folder."""

from __future__ import annotations

from pathlib import Path

INSTRUMENTOR = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

class Instrumentor(BaseInstrumentor):
    def instrumentation_dependencies(self):
        return {requires!r}
    def _instrument(self, **kwargs):
        {code}
        print({name!r}, "on")
    def _uninstrument(self, **kwargs):
        print({name!r}, "off")
"""


def library(folder: Path, name: str, version: str) -> None:
    """Write a library without content."""
    (folder / f"{name}.py").write_text(f"print({name!r}, 'imported')\n")
    _metadata(folder, name, version)


def instrumentation(folder: Path, name: str, *requires: str, code: str = "pass") -> None:
    """Write a distribution with an instrumentor that prints when it is turned on and off.

    Args:
        folder: Where to write it.
        name: The name of the distribution.
        requires: The requirements on the library that it instruments.
        code: A statement that it runs when it is turned on.
    """
    module = name.replace("-", "_")
    text = INSTRUMENTOR.format(requires=list(requires), name=name, code=code)
    (folder / f"{module}.py").write_text(text)
    points = f"[opentelemetry_instrumentor]\nlibrary = {module}:Instrumentor\n"
    lines = "".join(f'Requires-Dist: {one}; extra == "instruments"\n' for one in requires)
    _metadata(folder, name, "1.0", lines, points)


def _metadata(folder: Path, name: str, version: str, requires: str = "", points: str = "") -> None:
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    )
    (place / "entry_points.txt").write_text(points)
