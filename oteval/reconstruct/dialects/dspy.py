"""DSPy, as OpenInference writes it (scope ``openinference.instrumentation.dspy``).

An adapter writes a program's fields into the text of a prompt and reads them from the answer's
text: under headers (``[[ ## question ## ]]``), as XML, or as JSON. So the calls of a ReAct agent
are text too. The answer has the fields ``next_tool_name`` and ``next_tool_args``, and the next
prompt repeats all steps as ``tool_name_0``, ``tool_args_0``, ``observation_0``. Here they become
calls and results. Before its last question, such a prompt contains examples, or the turns of a
``dspy.History``, which have separate runs. Prompts of other programs stay unchanged.

Source: https://github.com/stanfordnlp/dspy (``predict/react.py``, ``adapters/``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...base.jsontext import dumps
from ...messages import decoded_text, mapping_of, parse, parse_arguments, text_message
from ...model import Message, Span, ToolCall
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.openinference_raw import INPUT, OUTPUT
from ..readers.spans import call_arguments
from . import openinference

__all__ = ["DIALECT"]

SCOPE = "openinference.instrumentation.dspy"
_METHODS = (".forward", ".__call__")
_HEADER = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
_ELEMENT = re.compile(r"^<(\w+)>\n?(.*?)\n?</\1>[ \t]*$", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"(thought|tool_name|tool_args|observation)_(\d{1,6})")
# The line below the fields, where an adapter lists the fields of the answer.
_REQUEST = re.compile(
    r"\n+Respond with (?:the corresponding|a JSON object)(?:(?!\n\n).)*\Z", re.DOTALL
)
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
_CALLS = (".__call__", ".acall")
_FORWARDS = (".forward", ".aforward")
_THOUGHTS = ("reasoning", "completed")
_ASIDE = ("trajectory", *_THOUGHTS)


def read(span: Span, logs: Logs) -> Operation:
    """The operation that OpenInference's kind names, in DSPy's terms."""
    operation = openinference.read(span, logs)
    if isinstance(operation, ModelCall):
        return _model_call(operation)
    if isinstance(operation, ToolRun):
        return _tool(operation)
    return (_agent(span) or operation) if isinstance(operation, Wrapper) else operation


def _model_call(call: ModelCall) -> ModelCall:
    # Each answer is one message; a request may request several answers.
    answers = [*call.output, *call.choices]
    questions = [m for m in call.input if m.role == "user"]
    fields = _fields(questions[-1].content or "") if questions else {}
    is_step = any("next_tool_name" in _fields(m.content or "") for m in answers[:1])
    if "trajectory" not in fields and not is_step and not any(map(_STEP.fullmatch, fields)):
        return replace(call, output=tuple(answers[:1]), choices=tuple(answers[1:]))
    prompts = [m for m in call.input if m.role in ("system", "developer")]
    visible = [_with_answer(message) for message in answers]
    return replace(
        call,
        input=(*prompts, *_conversation(questions[-1], fields)) if questions else tuple(prompts),
        output=tuple(visible[:1]),
        choices=tuple(visible[1:]),
    )


def _fields(text: str) -> dict[str, str]:
    """The fields that an adapter wrote into a text, in order."""
    text = text.strip()
    marks = list(_HEADER.finditer(text))
    if marks:
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        fields = {m[1]: text[m.end() : end] for m, end in zip(marks, ends, strict=True)}
        last = marks[-1][1]
        return {
            k: _REQUEST.sub("", v).strip() if k == last else v.strip() for k, v in fields.items()
        }
    fence = _FENCE.match(text)
    value = parse(fence[1] if fence else text).value
    if isinstance(value, Mapping):
        return {key: _as_text(field) for key, field in value.items()}
    return {match[1]: match[2].strip() for match in _ELEMENT.finditer(text)}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _conversation(question: Message, fields: Mapping[str, str]) -> Iterator[Message]:
    """Yield a ReAct agent's question, then its steps so far as calls and results."""
    steps: dict[int, dict[str, str]] = {}
    question_fields: dict[str, str] = {}
    nested = _fields(fields.get("trajectory", ""))
    for name, text in {**fields, **nested}.items():
        step = _STEP.fullmatch(name)
        if step is not None:
            steps.setdefault(int(step[2]), {})[step[1]] = text
        elif name != "trajectory":
            question_fields[name] = text
    yield replace(question, content=_shown(question_fields))
    for number in sorted(steps):
        yield from _step(question, steps[number])


def _shown(fields: Mapping[str, str]) -> str:
    """Return fields as text: a single field alone, several with their names as headers."""
    if len(fields) == 1:
        return next(iter(fields.values()))
    return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items())


def _step(source: Message, step: Mapping[str, str]) -> Iterator[Message]:
    name = step.get("tool_name", "")
    yield _call(source, name, step.get("tool_args"), step.get("thought"))
    if "observation" in step:
        yield replace(source, role="tool", content=step["observation"], name=name)


def _call(source: Message, name: str, arguments: str | None, thought: str | None) -> Message:
    call = ToolCall(name, parse_arguments(arguments))
    return replace(source, role="assistant", content=thought or None, tool_calls=(call,))


def _with_answer(message: Message) -> Message:
    """An answer as the call that it requests, or as the text of its last fields."""
    fields = _fields(message.content or "")
    name = fields.get("next_tool_name")
    if name:
        return _call(message, name, fields.get("next_tool_args"), fields.get("next_thought"))
    visible = {key: text for key, text in fields.items() if key not in _THOUGHTS}
    return replace(message, content=_shown(visible)) if visible else message


def _tool(tool: ToolRun) -> ToolRun:
    name = tool.name
    for suffix in _CALLS:
        name = name.removesuffix(suffix)
    arguments = tool.arguments
    if isinstance(arguments, Mapping):
        arguments = {"kwargs": {}, **arguments} if "args" in arguments else arguments
        arguments = call_arguments(arguments)
    return replace(tool, name=name, arguments=arguments, result=decoded_text(tool.result))


def _agent(span: Span) -> AgentRun | None:
    """The run of a ReAct agent, or None for any other module."""
    name, _, method = span.name.rpartition(".")
    fields = mapping_of(span.attributes.get(OUTPUT))
    if f".{method}" not in _FORWARDS or (name != "ReAct" and "trajectory" not in fields):
        return None
    inputs = mapping_of(span.attributes.get(INPUT))
    inner = inputs.get("input_args", inputs)
    question_fields = {k: _as_text(v) for k, v in inner.items() if k != "history"}
    visible = {k: _as_text(v) for k, v in fields.items() if k not in _ASIDE}
    return AgentRun(
        span,
        name=name,
        input=text_message(_shown(question_fields), span, "user"),
        output=text_message(_shown(visible), span, "assistant"),
    )


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether DSPy wrote the span, by its scope, or by its name if it has no scope."""
    if openinference.KIND not in span.attributes:
        return False
    return span.scope == SCOPE or (not span.scope and span.name.endswith(_METHODS))


DIALECT = Dialect(
    name="dspy",
    title="DSPy",
    precedence=90,
    read=read,
    scopes=(SCOPE,),
    keys=(openinference.KIND,),
    claims=claims,
)
