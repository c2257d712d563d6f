"""The installed packages, and the instrumentations that fit them, without importing either.

Reading the metadata of every package takes a tenth of a second in a usual environment; the names of
the metadata folders provide the same in a hundredth of a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution
from pathlib import Path

from .libraries import InstrumentingPackage, Library

__all__ = [
    "Choice",
    "choose",
    "entry_points_of",
    "installed_version",
    "installed_versions",
    "required_versions",
    "requirement_name",
]

_ENDINGS = (".dist-info", ".egg-info")
_GROUP = "opentelemetry_instrumentor"


def installed_versions(path: Sequence[str] | None = None) -> dict[str, str]:
    """The versions of the installed distributions, by normalized name.

    Args:
        path: The folders to look in, where the first takes precedence; None for ``sys.path``.
    """
    versions: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        for name, version in _in_folder(folder or ".", _modified(folder or ".")):
            versions.setdefault(name, version)
    return versions


@lru_cache(maxsize=256)
def _in_folder(folder: str, _modified_ns: int) -> tuple[tuple[str, str], ...]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ()
    stems = (name.rpartition(".")[0] for name in names if name.endswith(_ENDINGS))
    pairs = (stem.split("-")[:2] for stem in stems)
    return tuple((_normalized(pair[0]), pair[1]) for pair in pairs if len(pair) > 1)


def _modified(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def requirement_name(requirement: str) -> str:
    """The normalized package name in a requirement."""
    end = next(
        (at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")),
        len(requirement),
    )
    return _normalized(requirement[:end])


def entry_points_of(name: str) -> list[EntryPoint]:
    """The instrumentors that a distribution registers; none if it is not installed."""
    package = _distribution(name)
    return [point for point in package.entry_points if point.group == _GROUP] if package else []


def required_versions(name: str) -> list[str]:
    """An instrumentation's requirements on the libraries that it instruments."""
    package = _distribution(name)
    lines = (package.requires or []) if package else []
    return [line.partition(";")[0].strip() for line in lines if "instruments" in line]


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Choice:
    """The instrumentations that can record a library's calls.

    Attributes:
        candidates: Installed instrumentations that fit the library's version, in order of
            preference.
        refused: Why the other installed instrumentations do not fit.
    """

    candidates: tuple[InstrumentingPackage, ...]
    refused: tuple[str, ...] = ()


def installed_version(library: Library, versions: Mapping[str, str]) -> str:
    """The version of a library, "" if it is not installed.

    Args:
        library: The library.
        versions: The versions of the installed distributions, see `installed_versions`.
    """
    return next((versions[name] for name in library.distributions if name in versions), "")


def choose(
    library: Library,
    versions: Mapping[str, str],
    *,
    preferred: str = "",
    covered: frozenset[str] = frozenset(),
) -> Choice:
    """Choose the instrumentations that can be turned on.

    Args:
        library: The library.
        versions: The versions of the installed distributions.
        preferred: The distribution that the user prefers.
        covered: Names of the libraries that have an instrumentation.
    """
    installed = [
        package for package in library.instrumentations if package.distribution in versions
    ]
    refusals = {package: _refusal(package, library, versions) for package in installed}
    # An instrumentation that needs another library's spans is last if these spans are missing.
    fitting = sorted(
        (package for package in installed if not refusals[package]),
        key=lambda package: (
            package.distribution != preferred,
            bool(package.needs) and package.needs not in covered,
        ),
    )
    return Choice(tuple(fitting), tuple(refusal for refusal in refusals.values() if refusal))


def _refusal(package: InstrumentingPackage, library: Library, versions: Mapping[str, str]) -> str:
    """The reason why an instrumentation does not fit the installed library, or ""."""
    from packaging.requirements import InvalidRequirement, Requirement

    label = f"{package.distribution} {versions[package.distribution]}"
    names = [point.name for point in entry_points_of(package.distribution)]
    if package.entry_point and package.entry_point not in names:
        return f"{label} does not know {library.name}: pip install -U {package.distribution}"
    for line in required_versions(package.distribution):
        name = requirement_name(line)
        if name not in library.distributions or name not in versions:
            continue
        try:
            specifier = Requirement(line).specifier
        except InvalidRequirement:
            continue
        if not specifier.contains(versions[name], prereleases=True):
            return f"{label} needs {name}{specifier}, {versions[name]} is installed"
    return ""
