"""Reads captures by one adapter, and prints a line of JSON for each to `benchmarks.fidelity`.

``python driver.py ADAPTER PACKAGE MODULE < captures.json``: the input is a list of lists of paths.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import sys
import traceback
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class _Notes(logging.Handler):
    """Keeps the texts of warnings and errors that a tool's module logs."""

    def __init__(self, module: str) -> None:
        super().__init__(logging.WARNING)
        self.module, self.texts = module, list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's text."""
        if record.name.partition(".")[0] == self.module:
            self.texts.append(f"{record.name}: {record.getMessage()}"[:300])


def main() -> None:
    """Read each capture, and print one JSON object for it and one for the whole."""
    sys.path.insert(0, str(HERE))
    results, sys.stdout = sys.stdout, sys.stderr  # some tools print their progress
    adapter = importlib.import_module(sys.argv[1])
    notes = _Notes(sys.argv[3])
    logging.getLogger().addHandler(notes)
    warnings.simplefilter("ignore")
    began = sum(os.times()[:4])
    for paths in json.load(sys.stdin):
        notes.texts = []
        capture: dict[str, Any] = {"readings": [], "crash": ""}
        try:
            for reading in adapter.read(paths):
                reading["notes"] += notes.texts
                notes.texts = []
                capture["readings"].append(reading)
        except Exception as error:  # a crash is a result, unless the adapter is at fault
            if Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent == HERE:
                raise
            capture["crash"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(capture, default=str), file=results, flush=True)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures = {
        "cpu": sum(os.times()[:4]) - began,
        "version": version(sys.argv[2]),
        "memory": max(each.ru_maxrss for each in usage) * 1024,
    }
    print(json.dumps(figures), file=results)


if __name__ == "__main__":
    main()
