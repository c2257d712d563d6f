"""Log the inputs, outputs, reference outputs and feedback of tests of agents.

    from oteval.replays import testing

    @pytest.mark.oteval
    def test_refund(oteval_trajectory):
        testing.log_inputs({"question": "Refund order 17"})
        agent.ask("Refund order 17")
        result = evaluate(outputs=oteval_trajectory(), reference_outputs=REFERENCE)
        assert result["score"]

oteval's evaluators log their results themselves when a marked test calls them. Outside pytest, or
with the plugin switched off (``-p no:oteval``), the functions here do nothing, so that the same
code runs without it.

`plugin` is the pytest plugin. pytest imports it, with its packages, in every project where oteval
is installed, so it is separate from `oteval.scoring.experiments` and imports little.
"""

from __future__ import annotations

from typing import TypeVar

from .cases import log_feedback, log_inputs, log_outputs, log_reference_outputs

__all__ = [
    "log_feedback",
    "log_inputs",
    "log_outputs",
    "log_reference_outputs",
    "without_nonces",
]

Body = TypeVar("Body")


def without_nonces(body: Body) -> Body:
    """A request's body with zeros in place of the random numbers in a judge's prompt.

    Requests to judges then match their recordings. A body without a judge's prompt is returned
    unchanged.

    Args:
        body: Text or bytes; anything else is returned as it is.
    """
    from ...evaluators import without_nonces as clean

    if isinstance(body, str):
        return clean(body)  # type: ignore[return-value]
    if isinstance(body, bytes):
        text = body.decode("utf-8", "surrogateescape")
        return clean(text).encode("utf-8", "surrogateescape")  # type: ignore[return-value]
    return body
