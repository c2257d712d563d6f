"""Runs appear on the open list before their trace is complete, with the default configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served

from ..views.pages.test_pages_browser import browser
from .test_pages_in_browser import TOKENS, answer_refund, enter

__all__ = ["browser"]

pytestmark = pytest.mark.browser

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
"""


def is_previewed(served: Served, page: Any, number: int) -> bool:
    """Send a run, and return whether the open list first shows it without its scores."""
    answer_refund(served, f"Refund order {number}", ["look", "refund"], failing="refund")
    row = page.wait_for_selector(f"li.item:has-text('Refund order {number}')")
    return "just ended; scores follow" in row.inner_text()


def test_a_run_appears_before_it_is_scored_and_opens(
    browser: Any, start: Callable[..., Served], tmp_path: Path
) -> None:
    """The list, which is not reloaded, has the run as just ended; its page gives way to the run."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    served = start(tmp_path, environment=TOKENS)
    lists, reader = enter(browser, served), enter(browser, served)

    # A machine that stands still for five seconds sees the stored run first.
    sent = next(number for number in range(1, 7) if is_previewed(served, lists.page, number))
    reader.page.click(f"li.item a.to >> text=Refund order {sent}")
    lists.page.wait_for_selector(f"li.item.fail >> text=Refund order {sent}")
    reader.page.wait_for_selector("#scores >> text=the order is locked")

    assert lists.page.locator("li.item").count() == sent
    assert re.search(r"/runs/[0-9a-f]{16}$", reader.page.url)
    for visit in (lists, reader):
        visit.context.close()
    assert (lists.faults, reader.faults) == ([], [])
    assert served.stop() == 0
