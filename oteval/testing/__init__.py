"""What a test logs about the agent it tests: inputs, outputs, what was wanted, and feedback.

    from oteval import testing

    @pytest.mark.oteval
    def test_refund(oteval_trajectory):
        testing.log_inputs({"question": "Refund order 17"})
        agent.ask("Refund order 17")
        result = evaluate(outputs=oteval_trajectory(), reference_outputs=REFERENCE)
        assert result["score"]

Evaluators of oteval called inside a marked test log their results themselves. Outside pytest, and
where the plugin is switched off (``-p no:oteval``), the functions here do nothing, so that the
same test code runs without it.

The plugin is `plugin`; it stands here and not in `oteval.experiments` because pytest imports it,
with all packages around it, in every project where oteval is installed.
"""

from __future__ import annotations

from .cases import log_feedback, log_inputs, log_outputs, log_reference_outputs
from .recordings import without_nonces

__all__ = [
    "log_feedback",
    "log_inputs",
    "log_outputs",
    "log_reference_outputs",
    "without_nonces",
]
