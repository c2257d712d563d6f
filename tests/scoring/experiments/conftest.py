"""What the tests of experiments share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oteval import ExperimentResults, Store, evaluate

Make = Callable[..., ExperimentResults]


@pytest.fixture
def made(store: Store) -> Make:
    """Return a function that keeps an experiment whose outputs are given, one per example."""

    def make(name: str, outputs: Sequence[Any], *evaluators: Any, **options: Any) -> Any:
        def target(inputs: int) -> Any:
            if isinstance(outputs[inputs], Exception):
                raise outputs[inputs]
            return outputs[inputs]

        data = [{"id": f"e{n}", "inputs": n} for n in range(len(outputs))]
        known = {"name": name, "data": data, "store": store, **options}
        return evaluate(target, evaluators=evaluators, **known)

    return make
