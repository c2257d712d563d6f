"""How objects show themselves in notebooks: by the report's templates, which lie in a higher layer.

The templates are loaded when a notebook shows the first object, so that classes of the lower layers
have ``_repr_html_`` and ``plot`` at no cost.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ShownPlot", "html_of", "plot_of"]


class ShownPlot(Protocol):
    """A chart that notebooks show."""

    @property
    def svg(self) -> str:
        """The chart as an SVG document."""

    def save(self, path: str | Path) -> None:
        """Write the chart to an SVG file."""

    def _repr_html_(self) -> str: ...


def html_of(value: Any) -> str:
    """An object as a piece of HTML that is safe in a notebook."""
    html: str = _views().html_of(value)
    return html


def plot_of(value: Any) -> ShownPlot:
    """The chart of an object."""
    plot: ShownPlot = _views().plot_of(value)
    return plot


def _views() -> Any:
    return import_module("oteval.views.notebook")
