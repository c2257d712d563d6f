"""Start a browser with a link that no other user of the machine can read.

Arguments of commands are visible to every user. The browser is therefore started with a file that
only its owner can read; the page in the file leads to the link.
"""

from __future__ import annotations

import html
import os
import tempfile
import webbrowser
from pathlib import Path
from threading import Thread
from types import TracebackType

__all__ = ["BrowserStart"]

_SNAPS = Path("/snap")
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={link}">
<title>oteval</title>
<p><a href="{link}">oteval</a>
"""


class BrowserStart:
    """Opens links, and removes the files that lead to them at the end of a ``with`` block."""

    def __init__(self) -> None:
        self._files: list[Path] = []

    def open(self, link: str) -> None:
        """Start the browser with a link, without waiting for it."""
        redirect = _redirect(link)
        self._files.append(redirect)
        # A browser in the terminal ends with its window.
        Thread(target=webbrowser.open, args=(redirect.as_uri(),), daemon=True).start()

    def __enter__(self) -> BrowserStart:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the files."""
        for redirect in self._files:
            redirect.unlink(missing_ok=True)


def _redirect(link: str) -> Path:
    """Write a file that leads to a link and that only its owner can read; return its path."""
    # mkstemp creates it with mode 0600.
    try:
        descriptor, name = tempfile.mkstemp(".html", "oteval-view-", _folder())
    except OSError:
        descriptor, name = tempfile.mkstemp(".html", "oteval-view-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(link=html.escape(link)))
    return Path(name)


def _folder() -> Path | None:
    """Return the folder of the file; None for the folder of temporary files.

    Browsers from snaps cannot open the folder of temporary files or hidden folders.
    """
    return Path.home() if _SNAPS.is_dir() else None
