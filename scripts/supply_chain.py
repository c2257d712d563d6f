"""Bill of materials of the locked environment, and known advisories about it.

``python scripts/supply_chain.py sbom FILE`` writes a CycloneDX document and checks that it names
every locked package. ``python scripts/supply_chain.py audit`` asks for advisories. Exit status: 0
nothing known, or no index of advisories is reachable (reported on standard error); 1 an advisory
applies, or the document is incomplete.

Both run in a separate environment (`make sbom`, `make audit`).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_SERVICES = ("pypi", "osv")
_SECONDS = 300


def locked() -> dict[str, str]:
    """Return the versions of the locked packages, by normalised name."""
    found = _PACKAGE.findall(LOCK.read_text("utf-8"))
    return {_normal(name): version for name, version in found}


def sbom(target: Path) -> int:
    """Write a CycloneDX document of the lock; return the exit status."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(  # noqa: S603
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(LOCK)),
            *("--output-format", "JSON", "--output-reproducible", "--output-file", str(target)),
        ],
        check=True,
        timeout=_SECONDS,
    )
    components = json.loads(target.read_text("utf-8"))["components"]
    named = {_normal(one["name"]): one.get("version") for one in components}
    missing = sorted(name for name, version in locked().items() if named.get(name) != version)
    if missing:
        print(f"sbom: {target} lacks {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"sbom: {target} names all {len(named)} locked packages")
    return 0


def audit() -> int:
    """Ask for advisories about the locked packages; return the exit status."""
    for service in _SERVICES:
        report = _advisories(service)
        if report is None:
            continue
        audited = [one for one in report["dependencies"] if "skip_reason" not in one]
        found = [(one, advisory) for one in audited for advisory in one["vulns"]]
        for one, advisory in found:
            fixed = ", ".join(advisory["fix_versions"]) or "none"
            name = f"{one['name']} {one['version']}"
            print(f"audit: {name}: {advisory['id']}, fixed in {fixed}", file=sys.stderr)
        if found:
            return 1
        if audited:
            print(f"audit: no advisory about {len(audited)} of {len(locked())} packages")
            return 0
    print("audit: no index of advisories is reachable; nothing was audited", file=sys.stderr)
    return 0


def _advisories(service: str) -> dict[str, Any] | None:
    """Return the advisories of a service; None if it cannot be reached."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(LOCK), "--disable-pip", "--no-deps"]
    options = ["--format", "json", "--progress-spinner", "off", "-s", service]
    try:
        done = subprocess.run(  # noqa: S603
            [*command, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        report: dict[str, Any] = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return None
    return report


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name."""
    if arguments == ["audit"]:
        return audit()
    if len(arguments) == 2 and arguments[0] == "sbom":
        return sbom(Path(arguments[1]))
    print((__doc__ or "").strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
