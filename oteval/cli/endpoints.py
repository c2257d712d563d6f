"""Options for endpoints that commands read from and send to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import click

from ..base.errors import ConfigError
from ..scoring import resolved

__all__ = ["header_option", "headers_of"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

header_option = click.option(
    "--header",
    "headers",
    metavar="KEY=VALUE",
    multiple=True,
    help="A header of every request; ${NAME} is replaced from the environment. May be repeated.",
)


def headers_of(given: Sequence[str]) -> dict[str, str]:
    """Return the headers that ``--header`` names, with their variables replaced.

    Raises:
        ConfigError: A header is malformed, or a variable is not set.
    """
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not _NAME.fullmatch(name) or "\n" in value:
            raise ConfigError("--header: write KEY=VALUE, for instance authorization='Bearer ${T}'")
        found[name] = value
    try:
        return resolved(found, os.environ)
    except ValueError as error:
        raise ConfigError(f"--header: {error}") from None
