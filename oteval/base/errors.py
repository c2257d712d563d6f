"""The exceptions oteval raises, each named for the condition it reports.

    OtevalError
    ├── InputError          a file, stream or message cannot be read
    │   └── VariableMissing a variable of a judge's prompt has no value
    ├── ConfigError         a configuration file or an argument of an evaluator is invalid
    ├── StoreError          the database cannot be used
    │   ├── StoreLocked     another process has it open
    │   ├── StoreTooNew     a newer version of oteval wrote it
    │   ├── NotAStore       the file is not an oteval database
    │   ├── StoreCorrupt    the file is damaged
    │   ├── ArchiveMissing  a file with archived rows is missing
    │   └── TooLarge        the result does not fit into memory
    ├── BackendError        a trace backend gives no answer, or refuses a request
    ├── JudgeError          a judge could not be called, or returned no valid verdict
    │   └── BudgetSpent     the judge was not called because its budget is spent
    ├── NotFound            the id or name does not exist
    └── NothingEvaluated    nothing, or too little, could be evaluated

    BaseException
    └── ReplayDiverged      a replayed agent did something other than the recording shows
        └── ReplayUnguarded a tool of the agent would have run, so that the replay has stopped

`ReplayDiverged` is outside the tree, so that an agent's ``except Exception`` cannot hide it. Every
message is one line that names the file, line or key, and the remedy; of a whole configuration, a
line for each fault. This module imports nothing from the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "ArchiveMissing",
    "BackendError",
    "BudgetSpent",
    "ConfigError",
    "InputError",
    "JudgeError",
    "NotAStore",
    "NotFound",
    "NothingEvaluated",
    "OtevalError",
    "ReplayDiverged",
    "ReplayUnguarded",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreTooNew",
    "TooLarge",
    "VariableMissing",
]


class OtevalError(Exception):
    """The base class of all exceptions that oteval raises on purpose."""


class InputError(OtevalError, ValueError):
    """A file, stream or message cannot be read; the message names the place."""


class VariableMissing(InputError, KeyError):
    """A variable of a judge's prompt has no value; the message names it.

    It is also a `KeyError`, as in openevals.
    """

    __str__ = Exception.__str__


class ConfigError(OtevalError, ValueError):
    """A configuration or an evaluator's argument is invalid; the message names the key or line.

    Attributes:
        faults: All faults, a line each, if the message is about a whole configuration.
    """

    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, faults: Iterable[str]) -> ConfigError:
        """The error of a configuration with these faults."""
        lines = tuple(" ".join(fault.split()) for fault in faults)
        error = cls("\n".join(lines))
        error.faults = lines
        return error


class StoreError(OtevalError):
    """The database cannot be used."""


class StoreLocked(StoreError):
    """Another process has the database open; the message names it."""


class StoreTooNew(StoreError):
    """A newer version of oteval wrote the database."""


class NotAStore(StoreError):
    """The file is not a DuckDB database, or not an oteval database."""


class StoreCorrupt(StoreError):
    """The database's file or its write-ahead log is damaged."""


class ArchiveMissing(StoreError):
    """A file with archived rows is missing or cannot be read; the message names it."""


class TooLarge(StoreError):
    """The result of a query does not fit into memory."""


class BackendError(OtevalError):
    """A trace backend does not answer, or refuses a request; the message names it and the remedy.

    Attributes:
        status: The HTTP status; 0 without an answer.
        retry_after: Seconds that the backend asks to wait; 0 if it does not.
    """

    def __init__(self, message: str, status: int = 0, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class JudgeError(OtevalError):
    """A judge could not be called, or returned no valid verdict; the message has the reason."""


class BudgetSpent(JudgeError):
    """A judge was not called because its budget is spent."""


class NotFound(OtevalError, LookupError):
    """The id or name does not exist."""


class NothingEvaluated(OtevalError):
    """Nothing, or less than required, could be evaluated."""


class ReplayDiverged(BaseException):
    """A replayed agent did something other than the recording shows.

    It is not an `Exception`, so that ``except Exception`` around a model call cannot hide it.

    Attributes:
        divergence: The difference, an `oteval.replays.divergence.Divergence`.
    """

    def __init__(self, message: str, divergence: Any = None) -> None:
        super().__init__(message, divergence)
        self.divergence = divergence

    def __str__(self) -> str:
        return str(self.args[0])


class ReplayUnguarded(ReplayDiverged):
    """A replay has stopped, because a tool of the agent would have run for real.

    Whether the agent behaves as recorded is unknown. The message names the tool, and the option
    that lets the replay answer it.
    """
