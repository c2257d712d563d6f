"""Makes the pictures of the pages in docs/pictures, from the data of ``oteval demo``.

    python -m scripts.make_pictures

It needs playwright and Debian's chromium; ``make pictures`` installs the first.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH = 1280
FAILED_RUN = "fc889bcf01a75dce"
"""The run of the demo that refunds the wrong amount."""

# File, page, height.
PICTURES = (
    ("runs", "/runs", 430),
    ("run", f"/runs/{FAILED_RUN}", 760),
    ("compare", f"/compare?a={FAILED_RUN}&reference=refund-calls", 640),
    ("variants", "/variants", 700),
    ("evaluator", "/evaluators/refund-calls?period=all", 760),
    ("experiment", "/experiments/shorter-prompt?baseline=long-prompt", 760),
)
# Questions of a dataset, and the refunds of an agent with two different prompts.
REFUNDS = (
    ("broken headphones", 42.0, 42.0),
    ("late parcel", 0.0, 9.9),
    ("wrong size", 59.0, 59.0),
    ("missing cable", 12.5, 125.0),
    ("two left shoes", 80.0, 80.0),
    ("paid twice", 31.0, 0.0),
    ("scratched screen", 0.0, 210.0),
    ("gift returned", 25.0, 250.0),
    ("empty box", 64.0, 0.0),
    ("torn book", 8.0, 80.0),
)


def main() -> None:
    """Write every picture."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        _pages(Path(name)) as url,
        sync_playwright() as playwright,
    ):
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--headless"]}
        browser = playwright.chromium.launch(**options)
        page = browser.new_page(color_scheme="light", device_scale_factor=1.5)
        page.goto(url)
        page.wait_for_load_state("networkidle")
        for file, path, height in PICTURES:
            _draw(page, url, path, height, FOLDER / f"{file}.png")
        browser.close()


def _add_experiments(database: Path) -> None:
    """Store two experiments on the same examples; the second is worse."""
    from oteval import evaluate
    from oteval.store import Store

    data = [
        {"id": question, "inputs": question, "reference_outputs": right}
        for question, right, _ in REFUNDS
    ]
    given = {question: refund for question, _, refund in REFUNDS}
    expected = {question: right for question, right, _ in REFUNDS}

    def amount(outputs: float, reference_outputs: float) -> dict[str, Any]:
        comment = f"refunded {outputs:.2f} EUR instead of {reference_outputs:.2f} EUR"
        return {"key": "amount", "score": outputs == reference_outputs, "comment": comment}

    with Store(database) as store:
        for name, answers in (("long-prompt", expected), ("shorter-prompt", given)):
            evaluate(answers.__getitem__, data=data, evaluators=[amount], name=name, store=store)


@contextmanager
def _pages(folder: Path) -> Iterator[str]:
    """Serve the pages of the demo, and yield the first address to open."""
    oteval = [sys.executable, "-m", "oteval"]
    demo = [*oteval, "demo", "--dir", str(folder)]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    _add_experiments(folder / "demo.duckdb")
    view = [*oteval, "view", "--no-open", "--db", str(folder / "demo.duckdb")]
    view += ["-c", str(folder / "oteval.yaml")]
    server = subprocess.Popen(  # noqa: S603
        view, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    try:
        said = server.stdout.readline()
        found = re.search(r"http://\S+", said)
        if found is None:
            raise SystemExit(f"oteval view did not start: {said}")
        yield found[0]
    finally:
        server.terminate()
        server.wait()


def _draw(page: Any, url: str, path: str, height: int, file: Path) -> None:
    page.set_viewport_size({"width": WIDTH, "height": height})
    answer = page.goto(re.sub(r"(://[^/]+).*", rf"\1{path}", url))
    if not answer.ok:
        raise SystemExit(f"{path}: {answer.status} {answer.text()[:200]}")
    page.screenshot(path=file)


if __name__ == "__main__":
    main()
