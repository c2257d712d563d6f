"""The exceptions oteval raises, each named for the condition it reports.

    OtevalError
    ├── InputError          a file, stream or message that cannot be read
    │   └── VariableMissing a variable of a judge's prompt has no value
    ├── ConfigError         a configuration file or evaluator argument that is wrong
    ├── StoreError          the database cannot be used
    │   ├── StoreLocked     another process holds it
    │   ├── StoreTooNew     a newer oteval wrote it
    │   ├── NotAStore       the file is no oteval database
    │   ├── ArchiveMissing  a file that it moved old rows to is not there
    │   └── TooLarge        what was asked of it has more bytes than can be dealt with at once
    ├── JudgeError          a judge could not be asked, or gave no verdict
    │   └── BudgetSpent     what it may cost is spent; it was not asked
    ├── NotFound            an id or name that nothing has
    └── NothingEvaluated    a run that had nothing, or too little, to evaluate

Every message is one line that names the file, line or key and says what to do.
This module imports nothing of the package.
"""

from __future__ import annotations

__all__ = [
    "ArchiveMissing",
    "BudgetSpent",
    "ConfigError",
    "InputError",
    "JudgeError",
    "NotAStore",
    "NotFound",
    "NothingEvaluated",
    "OtevalError",
    "StoreError",
    "StoreLocked",
    "StoreTooNew",
    "TooLarge",
    "VariableMissing",
]


class OtevalError(Exception):
    """The base of everything oteval raises on purpose."""


class InputError(OtevalError, ValueError):
    """A file, stream or message cannot be read; the message names the place."""


class VariableMissing(InputError, KeyError):
    """A variable that a judge's prompt shows has no value; the message names it.

    It is a `KeyError` too, which openevals raises.
    """

    __str__ = Exception.__str__


class ConfigError(OtevalError, ValueError):
    """A configuration or an evaluator's argument is wrong; the message names the key or line."""


class StoreError(OtevalError):
    """The database cannot be used."""


class StoreLocked(StoreError):
    """Another process holds the database; the message names it."""


class StoreTooNew(StoreError):
    """The database was written by a newer oteval."""


class NotAStore(StoreError):
    """The file is not a DuckDB database, or not one of oteval's."""


class ArchiveMissing(StoreError):
    """A file of archived rows is not there, or cannot be read; the message names it."""


class TooLarge(StoreError):
    """What was asked of the database has more bytes than can be dealt with at once."""


class JudgeError(OtevalError):
    """A judge could not be asked, or what it answered is no verdict; the message says why."""


class BudgetSpent(JudgeError):
    """A judge was not asked, because what it may cost is spent."""


class NotFound(OtevalError, LookupError):
    """Nothing has the id or name that was asked for."""


class NothingEvaluated(OtevalError):
    """Nothing, or less than was asked for, could be evaluated."""
