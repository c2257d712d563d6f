"""Named prompts: from any span of a run, with their versions."""

from __future__ import annotations

from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct
from oteval.reconstruct.run_context import prompts_of


@pytest.mark.parametrize(
    ("attributes", "prompts"),
    [
        ({"gen_ai.prompt.name": "greet", "gen_ai.prompt.version": "3"}, ("greet@3",)),
        ({"gen_ai.prompt.name": "greet"}, ("greet",)),
        (
            {"langfuse.observation.prompt.name": "g", "langfuse.observation.prompt.version": 2},
            ("g@2",),
        ),
        ({"traceloop.prompt.key": "g", "traceloop.prompt.version": 1}, ("g@1",)),
        ({"llm.prompt_template.version": "v1.0"}, ("@v1.0",)),
        ({"mlflow.linkedPrompts": '[{"name": "a", "version": "1"}, {"name": "b"}]'}, ("a@1", "b")),
        ({"gen_ai.prompt.name": ""}, ()),
        ({"gen_ai.prompt": "Hello", "gen_ai.prompt.0.content": "Hello"}, ()),
    ],
)
def test_a_prompt_has_a_name_and_a_version(attributes: dict[str, Any], prompts: tuple[str, ...]):
    """Each emitter's attributes are read; the text of a prompt is none."""
    assert prompts_of([Span("1" * 32, "1" * 16, attributes=attributes)], attributes) == prompts


def test_a_run_has_the_prompts_of_all_its_spans():
    """A prompt that only an inner span names belongs to the run."""
    root = Span("1" * 32, "1" * 16, start_ns=1, end_ns=9, attributes={
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a",
    })  # fmt: skip
    chat = Span("1" * 32, "2" * 16, "1" * 16, start_ns=2, end_ns=3, attributes={
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "q"}]}]',
        "gen_ai.output.messages":
            '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]',
        "gen_ai.prompt.name": "greet", "gen_ai.prompt.version": "3",
    })  # fmt: skip

    (run,) = reconstruct([root, chat], [])

    assert run.prompts == ("greet@3",)
