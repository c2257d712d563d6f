"""The files, functions and stored answers that evaluators of oteval.yaml use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..base.errors import ConfigError
from ..base.runner import day_of, start_of_day_ns
from ..evaluators import RequestLimit, Resources, load_function
from .config import EvaluatorSettings

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["JobCalls", "JobLimits", "read_text", "resources_of"]


class JobCalls(Protocol):
    """The calls of the judges of a job."""

    def of(self, evaluator: str, kind: type[Any], *, again: bool = False) -> Any:
        """The calls of an evaluator, which serve as the cache of its judges."""
        ...


class JobLimits(NamedTuple):
    """The answers and limits that the judges of a job in several processes share.

    Attributes:
        calls: Their calls.
        requests: The limit on all requests; None without one.
        budget: Returns the budget of an evaluator, from its name and a limit in US dollars.
    """

    calls: JobCalls
    requests: RequestLimit | None
    budget: Callable[[str, float], Any]


def resources_of(
    settings: EvaluatorSettings,
    base: Path,
    store: Store | None,
    *,
    again: bool = False,
    is_budgeted: bool = True,
    job: JobLimits | None = None,
) -> Resources:
    """The resources of an evaluator.

    Args:
        settings: The evaluator's settings.
        base: The folder for relative paths in the configuration.
        store: The store of the answers of language models; None without models.
        again: Whether to ask models again, ignoring cached answers.
        is_budgeted: Whether the evaluator keeps its own budget.
        job: The answers and limits that the processes of a job share; they replace the store's.
    """

    def stored_calls(kind: type[Any]) -> Any:
        if job is not None:
            return job.calls.of(settings.name, kind, again=again)
        assert store is not None
        return store.judge_calls.of(settings.name, kind, again=again)

    def spent_today() -> float:
        assert store is not None
        today = start_of_day_ns(day_of(time.time_ns()))
        return store.judge_calls.spent(settings.name, today)

    def load(reference: str) -> Callable[..., Any]:
        with _importable(base):
            return load_function(reference)

    return Resources(
        name=settings.name,
        has_reference=settings.reference is not None,
        read_text=lambda path: read_text(base / path),
        load_function=load,
        environment=os.environ,
        folder=str(base.absolute()),
        stored_calls=stored_calls,
        spent_today=spent_today,
        is_budgeted=is_budgeted,
        request_limit=None if job is None else job.requests,
        job_budget=None if job is None else lambda limit: job.budget(settings.name, limit),
    )


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let functions be imported from beside the configuration, as ``python -m`` would.

    Afterwards the folder is the last in the path, so a file there never replaces a package.
    """
    name = str(folder.resolve())
    original_path = list(sys.path)
    sys.path.insert(0, name)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module changed the path itself
            sys.path.remove(name)
        if name not in original_path:
            sys.path.append(name)
