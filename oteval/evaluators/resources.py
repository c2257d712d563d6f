"""Files, functions, stored answers and limits that a configured evaluator may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

__all__ = ["RequestLimit", "Resources"]


class RequestLimit(Protocol):
    """A limit on requests to models."""

    def take(self) -> None:
        """Count a request that is about to be sent.

        Raises:
            BudgetSpent: The limit is reached.
        """
        ...


class Resources(NamedTuple):
    """Files, functions and stored answers that a configured evaluator may use.

    Attributes:
        name: The evaluator's name in oteval.yaml.
        has_reference: Whether it has a reference.
        read_text: Reads a file, whose path is relative to the configuration. Raises `ConfigError`.
        load_function: Imports ``module:function``, also from the configuration's folder.
            Raises `ConfigError`.
        environment: Environment variables.
        stored_calls: Returns the stored calls of language models, given the class of a call; None
            if no calls are stored.
        spent_today: Returns the cost of its model calls since midnight UTC, in US dollars.
        is_budgeted: Whether the evaluator keeps its own budget; in live scoring the server does.
        request_limit: A limit on requests to models that several processes share.
        job_budget: Returns a budget that several processes share, given its limit in US dollars.
    """

    name: str
    has_reference: bool
    read_text: Callable[[str], str]
    load_function: Callable[[str], Callable[..., Any]]
    environment: Mapping[str, str]
    stored_calls: Callable[[Any], Any] | None = None
    spent_today: Callable[[], float] = lambda: 0.0
    is_budgeted: bool = True
    request_limit: RequestLimit | None = None
    job_budget: Callable[[float], Any] | None = None
