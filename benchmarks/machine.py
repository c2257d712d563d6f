"""The machine that a benchmark ran on, as its results name it."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

__all__ = ["commit", "describe"]

_RESULTS = ":(top,exclude)benchmarks/RESULTS.md"


def commit() -> str:
    """Return the commit that is measured, with ``-dirty`` if the checkout has other changes.

    The results themselves do not count: they change while a run goes on.
    """
    try:
        name = _git("describe", "--always", "--exclude=*")
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", _RESULTS)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name}-dirty" if changes else name


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def describe() -> dict[str, str]:
    """Return the facts about this machine that readers need, by name."""
    return {
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{_memory() / 2**30:,.0f} GiB",
        "system": _system(),
        "Python": platform.python_version(),
        **{name: metadata.version(name) for name in ("duckdb", "pyarrow", "orjson")},
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (KeyError, OSError):
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}"
