"""The resources that a process may use, of its machine or its container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oteval.base import machine

GB = 1 << 30


def written(root: Path, files: dict[str, str]) -> Path:
    """Return a folder that represents the file system of a machine."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_control_groups_the_limits_are_the_machines(tmp_path: Path) -> None:
    """All memory, and all processors on which the process may run."""
    assert machine.memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.processors(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": f"{GB}\n",
                "sys/fs/cgroup/cpu.max": "50000 100000\n",
            },
            id="a container, version 2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/system.slice/oteval.service\n",
                "sys/fs/cgroup/system.slice/oteval.service/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/oteval.service/cpu.max": "max 100000\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{GB}\n",
                "sys/fs/cgroup/system.slice/cpu.max": "100000 100000\n",
            },
            id="a unit in a slice that has the limits, version 2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GB}\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "20000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            id="a container that sees the host's path, version 1",
        ),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, files: dict[str, str]) -> None:
    """The smallest limit of the enclosing groups applies; half a processor counts as one."""
    root = written(tmp_path, files)

    assert machine.memory(root) == GB
    assert machine.processors(root) == 1


def test_groups_without_limits(tmp_path: Path) -> None:
    """For groups without limits, in the notation of version 1, the machine's limits apply."""
    root = written(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu:/a\n0::/\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
        },
    )

    assert machine.memory(root) == machine.memory(tmp_path / "empty")
    assert machine.processors(root) == machine.processors(tmp_path / "empty")


def test_a_real_control_group() -> None:
    """A process in a group with 2 GB gets that limit."""
    group = Path("/sys/fs/cgroup/memory/oteval-test-machine")
    try:
        group.mkdir()
    except OSError:
        pytest.skip("a control group of version 1 cannot be made here")
    enter = f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))"
    script = f"import os; {enter}; from oteval.base import machine; print(machine.memory())"
    try:
        (group / "memory.limit_in_bytes").write_text(str(2 * GB))
        process = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
    finally:
        group.rmdir()

    assert int(process.stdout) == 2 * GB


@pytest.mark.slow
def test_all_modules_are_importable_without_linux_functions() -> None:
    """All modules are importable without fdatasync and affinity, as on macOS."""
    script = """
import importlib, os, pkgutil
for name in ("fdatasync", "sched_getaffinity"):
    delattr(os, name)
import oteval
from oteval.base import machine
found = [m.name for m in pkgutil.walk_packages(oteval.__path__, "oteval.")]
for name in found:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(found), machine.processors())
"""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )

    assert process.stderr == ""
    count, processors = map(int, process.stdout.split())
    assert count > 250
    assert processors >= 1
