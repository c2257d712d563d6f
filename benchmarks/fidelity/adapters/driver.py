"""Reads captures by one adapter: its lines on standard output are what `benchmarks.fidelity` reads.

``python driver.py NAME < captures.json``, where the input is a list of lists of paths.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from pathlib import Path


def main() -> None:
    """Read each capture, and print one JSON object for it and one for the whole."""
    sys.path.insert(0, str(Path(__file__).parent))
    results, sys.stdout = sys.stdout, sys.stderr  # some peers print what they do
    adapter = importlib.import_module(sys.argv[1])
    began = sum(os.times()[:4])
    for paths in json.load(sys.stdin):
        try:
            found = adapter.read(paths)
        except Exception as error:  # a crash is a result
            found = {"crash": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found, default=str), file=results, flush=True)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "cpu": sum(os.times()[:4]) - began,
        "memory": max(each.ru_maxrss for each in usage) * 1024,
    }
    print(json.dumps(figures), file=results)


if __name__ == "__main__":
    main()
