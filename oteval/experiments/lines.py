"""JSON-lines files that people write: datasets and labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..jsontext import loads_exact

__all__ = ["json_lines"]


def json_lines(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield what each line of a file holds, and the place that messages name; empty lines aside.

    Raises:
        InputError: The file cannot be read, or a line is not JSON; with its number.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path}:{number}"
            try:
                yield loads_exact(line), place
            except ValueError as error:
                raise InputError(f"{place}: not valid JSON: {error}") from error
