"""Installs an environment for each framework of `tests/replays/framework_agents`, with uv.

Frameworks need different versions of their dependencies, so each needs its own environment. Run it
as ``python -m scripts.framework_environments FOLDER``. A framework that cannot be installed is left
out and named in a line; its tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FRAMEWORKS = ROOT / "tests" / "replays" / "framework_agents" / "frameworks.json"
_TESTS = ("pytest>=8.3", "pytest-asyncio>=0.25", "pytest-timeout>=2.4")


def install(folder: Path) -> None:
    """Install the environments that are missing."""
    folder.mkdir(exist_ok=True)
    for name, framework in json.loads(FRAMEWORKS.read_text("utf-8")).items():
        environment = folder / name
        if (environment / "installed").exists():
            continue
        packages = [package.replace("oteval", f"{ROOT}", 1) for package in framework["packages"]]
        editable, others = packages[0], packages[1:]
        uv = [sys.executable, "-m", "uv"]
        target = ["--python", str(environment)]
        install_all = [*uv, "pip", "install", "-q", *target, "-e", editable, *others, *_TESTS]
        venv = [*uv, "venv", "-q", "--clear", "--python", sys.executable, str(environment)]
        try:
            subprocess.run(venv, check=True)  # noqa: S603
            subprocess.run(install_all, check=True)  # noqa: S603
        except subprocess.CalledProcessError:
            print(f"{framework['label']}: not installed", file=sys.stderr)
            continue
        (environment / "installed").touch()


if __name__ == "__main__":
    install(Path(sys.argv[1]))
