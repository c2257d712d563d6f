"""Runs agentevals' own match tests against oteval: the check behind `make conformance`.

The tests are those of agentevals 0.0.9's source distribution, unchanged. `aliases.py`, loaded as
a pytest plugin, makes their imports find oteval. They build LangChain messages, so that the
interpreter needs:

    pip install langchain-core pytest pytest-asyncio

    python tests/conformance/run.py                  download the source distribution first
    python tests/conformance/run.py --sdist PATH     use one already here (.tar.gz or unpacked)
    python tests/conformance/run.py --python PATH    run the tests with another interpreter

Prints pytest's closing line and exits with pytest's status; exits with 2 when the tests cannot be
had or are not as many as they should be.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

RELEASE = "agentevals==0.0.9"
TESTS = ("test_trajectory.py", "test_trajectory_async.py")
EXPECTED = 112
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def fail(message: str) -> int:
    """Say why the conformance cannot be told, and return the exit status for that."""
    print(f"conformance: {message}", file=sys.stderr)
    return 2


def download(folder: Path) -> Path:
    """Download the source distribution and return its path."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", "--no-binary", ":all:", "--dest", str(folder), RELEASE], check=True
    )
    return next(folder.glob("*.tar.gz"))


def copy_tests(sdist: Path, folder: Path) -> list[Path]:
    """Copy the match tests out of a source distribution; those it lacks are left out."""
    if sdist.is_file():
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "sdist", filter="data")
        sdist = next((folder / "sdist").iterdir())
    tests = folder / "tests"
    tests.mkdir()
    found = []
    for name in TESTS:
        source = sdist / "tests" / name
        if source.is_file():
            (tests / name).write_bytes(source.read_bytes())
            found.append(tests / name)
    return found


def run_pytest(python: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run the tests, away from the project's own pytest configuration.

    Other plugins stay out: langsmith's, which comes with langchain-core, would ask a server to
    log every test that carries its marker.
    """
    folder = files[0].parent
    command = [python, "-m", "pytest", "-q", "--tb=short", f"--rootdir={folder}"]
    command += ["-p", "pytest_asyncio.plugin", "-p", "aliases", "-p", "no:cacheprovider"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", "--import-mode=importlib"]
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LANGSMITH_TRACING": "false"}
    search = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, "-c", os.devnull, *map(str, files)],
        cwd=folder,
        env={**os.environ, **quiet, "PYTHONPATH": search.rstrip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
    )


def report(done: subprocess.CompletedProcess[str]) -> int:
    """Print pytest's summary and return the exit status."""
    lines = done.stdout.strip().splitlines() or [""]
    counts = re.findall(
        r"(\d+) (?:passed|failed|error|errors|skipped|xfailed|xpassed)\b", lines[-1]
    )
    collected = sum(map(int, counts))
    if done.returncode or collected != EXPECTED:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    print(lines[-1])
    if collected != EXPECTED:
        return fail(f"{collected} tests ran, expected the {EXPECTED} of {RELEASE}")
    return done.returncode


def main() -> int:
    """Run the conformance tests from the command line."""
    parser = argparse.ArgumentParser(description=f"Run the match tests of {RELEASE} on oteval.")
    parser.add_argument("--sdist", type=Path, help="the source distribution, packed or unpacked")
    parser.add_argument("--python", default=sys.executable, help="the interpreter for the tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            sdist = (options.sdist or download(folder)).resolve(strict=True)
            files = copy_tests(sdist, folder)
        except (OSError, tarfile.TarError, subprocess.CalledProcessError, StopIteration) as error:
            return fail(f"no source distribution of {RELEASE}: {error!r}; pass --sdist PATH")
        if len(files) != len(TESTS):
            return fail(f"{sdist} does not hold tests/{' and tests/'.join(TESTS)}")
        return report(run_pytest(options.python, files))


if __name__ == "__main__":
    sys.exit(main())
