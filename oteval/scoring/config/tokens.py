"""The file of tokens that ``oteval serve --tokens`` takes."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from ...base.errors import ConfigError
from .base import Strict
from .error_text import explain_errors
from .yaml_text import read_yaml

__all__ = ["TokenEntry", "load_tokens"]


class TokenEntry(Strict):
    """A token of a team or a tool."""

    name: str = Field(min_length=1, description="Unique; named in the log.")
    token: str | None = Field(None, min_length=16, description="The token, 16 characters or more.")
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="In place of the token: its SHA-256 in hex."
    )
    may: Literal["ingest", "read", "write"] = Field(
        "ingest",
        description="Whether it permits sending, reading, or acting on runs, which includes "
        "reading.",
    )
    attributes: dict[str, str] = Field(
        default_factory=dict,
        description="Resource attributes that are set on everything sent with it.",
    )
    requests_per_second: float | None = Field(
        None, gt=0, description="How many requests are taken in the long run."
    )

    @model_validator(mode="after")
    def _one_secret(self) -> TokenEntry:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("give either token or sha256")
        if self.may != "ingest" and (self.attributes or self.requests_per_second):
            raise ValueError("attributes and requests_per_second are for tokens that may ingest")
        return self

    @property
    def digest(self) -> str:
        """The token's SHA-256 in hex."""
        return self.sha256 or hashlib.sha256((self.token or "").encode()).hexdigest()


class _TokenFile(Strict):
    tokens: list[TokenEntry] = Field(min_length=1)

    @field_validator("tokens")
    @classmethod
    def _unique(cls, value: list[TokenEntry]) -> list[TokenEntry]:
        for attribute in ("name", "digest"):
            texts: set[str] = set()
            for entry in value:
                text = getattr(entry, attribute)
                if text in texts:
                    what = f"name {text!r}" if attribute == "name" else f"token of {entry.name!r}"
                    raise ValueError(f"the {what} is given twice")
                texts.add(text)
        return value


def load_tokens(path: str | Path) -> list[TokenEntry]:
    """The tokens of a file.

    Raises:
        ConfigError: The file cannot be read, others may read it, or it is wrong; with the line.
    """
    file = Path(path)
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{path}: others may read it; run chmod 600 {path}")
    root, value = read_yaml(text, str(path))
    try:
        return _TokenFile.model_validate(value or {}).tokens
    except ValidationError as error:
        # Not the error's own text, which would show the token.
        faults = explain_errors(error, root, str(path), _TokenFile, value)
        raise ConfigError.of(faults) from None
