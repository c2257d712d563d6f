"""Choose the instrumentation of an installed library, without importing either of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .installed_packages import entry_points_of, required_versions, requirement_name
from .libraries import InstrumentingPackage, Library

__all__ = ["Choice", "choose", "installed_version"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The instrumentations that can record a library's calls.

    Attributes:
        candidates: Installed instrumentations that fit the library's version, in order of
            preference.
        refused: Why the other installed ones do not fit.
    """

    candidates: tuple[InstrumentingPackage, ...]
    refused: tuple[str, ...] = ()


def installed_version(library: Library, versions: Mapping[str, str]) -> str:
    """Return the version of a library, "" if it is not installed.

    Args:
        library: The library.
        versions: The versions of the installed distributions, see `installed_versions`.
    """
    return next((versions[one] for one in library.distributions if one in versions), "")


def choose(
    library: Library,
    versions: Mapping[str, str],
    *,
    preferred: str = "",
    covered: frozenset[str] = frozenset(),
) -> Choice:
    """Return the instrumentations that can be turned on.

    Args:
        library: The library.
        versions: The versions of the installed distributions.
        preferred: The distribution that the user prefers.
        covered: Names of the libraries that have an instrumentation.
    """
    installed = [one for one in library.instrumentations if one.distribution in versions]
    refusals = {one: _refusal(one, library, versions) for one in installed}
    # One whose spans are complete only with another library's comes last where that is missing.
    fitting = sorted(
        (one for one in installed if not refusals[one]),
        key=lambda one: (
            one.distribution != preferred,
            bool(one.needs) and one.needs not in covered,
        ),
    )
    return Choice(tuple(fitting), tuple(refusal for refusal in refusals.values() if refusal))


def _refusal(one: InstrumentingPackage, library: Library, versions: Mapping[str, str]) -> str:
    """Return why an instrumentation does not fit the installed library, "" if it fits."""
    from packaging.requirements import InvalidRequirement, Requirement

    label = f"{one.distribution} {versions[one.distribution]}"
    names = [point.name for point in entry_points_of(one.distribution)]
    if one.entry_point and one.entry_point not in names:
        return f"{label} does not know {library.name}: pip install -U {one.distribution}"
    for line in required_versions(one.distribution):
        name = requirement_name(line)
        if name not in library.distributions or name not in versions:
            continue
        try:
            wanted = Requirement(line).specifier
        except InvalidRequirement:
            continue
        if not wanted.contains(versions[name], prereleases=True):
            return f"{label} needs {name}{wanted}, {versions[name]} is installed"
    return ""
