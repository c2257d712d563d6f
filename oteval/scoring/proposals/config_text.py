"""oteval.yaml of proposals: each entry below the evidence for it."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from ...base.errors import ConfigError
from ...base.text import printable
from ..config import parse_config, read_yaml
from .proposal import Proposal

__all__ = ["PROPOSED_NAME", "config_text", "entry_lines", "with_learned"]

PROPOSED_NAME = re.compile(r"(?:learned|reference-calls|required-tools|usual-tools)\b")
"""The beginning of names of evaluators whose references are made of stored runs."""
_BEGIN, _END = "# learned: begin", "# learned: end"

_WIDTH = 98
_INDENT = "  "


def config_text(proposals: Sequence[Proposal], notes: Iterable[str]) -> str:
    """The text of oteval.yaml.

    Args:
        proposals: The evaluators and gates; those that are not active become comments.
        notes: Sentences for the head of the file.
    """
    evaluators = [proposal for proposal in proposals if not proposal.is_gate]
    gates = [proposal for proposal in proposals if proposal.is_gate]
    lines = [line for note in notes for line in _comment(note, "")]
    lines += ["", "evaluators:"]
    for proposal in evaluators:
        if not proposal.is_learned:
            lines += entry_lines(proposal)
    if learned := [proposal for proposal in evaluators if proposal.is_learned]:
        lines += [*_learned_lines(learned, _INDENT), ""]
    if gates:
        lines += ["gates:"]
        for proposal in gates:
            lines += entry_lines(proposal)
    return "\n".join(lines).rstrip("\n") + "\n"


def entry_lines(proposal: Proposal, indent: str = _INDENT) -> list[str]:
    """The lines of an entry in its list: the evidence as comments, the entry, an empty line."""
    lines = [line for reason in proposal.reasons for line in _comment(reason, indent)]
    if proposal.counts is not None:
        lines += _comment(f"On stored runs: {proposal.counts.text}.", indent)
        if proposal.counts.failing_run:
            example = f"{proposal.counts.failing_run[:12]}: {proposal.counts.failure}"
            lines += _comment(f"Fails, for instance, {example}", indent)
    text = _entry_text(proposal.entry)
    mark = "" if proposal.is_active else "# "
    lines += [f"{indent}{mark}{line}" for line in text.splitlines()]
    return [*lines, ""]


def _entry_text(entry: Mapping[str, Any]) -> str:
    """An entry as an item of a list: in one line if it is short."""

    def dump(*, is_flow: bool) -> str:
        text: str = yaml.safe_dump(
            dict(entry), default_flow_style=is_flow, sort_keys=False, width=math.inf
        )
        return text.strip()

    if len(dump(is_flow=True)) <= _WIDTH - 6:
        return f"- {dump(is_flow=True)}"
    return textwrap.indent(dump(is_flow=False), "  ").replace("  ", "- ", 1)


def with_learned(text: str, proposals: Sequence[Proposal], source: str) -> str:
    """A configuration with a learned rule, in place of the one that was learned before.

    Args:
        text: The text of oteval.yaml, or "".
        proposals: The evaluators of the rule.
        source: The file's name, for messages.

    Raises:
        ConfigError: The file has no list of evaluators in lines, or the result does not load.
    """
    lines = text.splitlines()
    if any(line.strip() == _BEGIN for line in lines):
        first = next(at for at, line in enumerate(lines) if line.strip() == _BEGIN)
        last = next((at for at, line in enumerate(lines) if line.strip() == _END), len(lines) - 1)
        lines[first : last + 1] = []
    if not any(line.strip() and not line.lstrip().startswith("#") for line in lines):
        lines.append("evaluators:")
    else:
        _, value = read_yaml("\n".join(lines), source)
        if not (isinstance(value, dict) and "evaluators" in value):
            lines.append("evaluators:")
    at, indent = _end_of_evaluators(lines, source)
    lines[at:at] = _learned_lines(proposals, indent)
    result = "\n".join(lines) + "\n"
    parse_config(result, source)
    return result


def _learned_lines(proposals: Sequence[Proposal], indent: str) -> list[str]:
    """The lines of a learned rule, between the marks by which it is replaced."""
    block = [line for proposal in proposals for line in entry_lines(proposal, indent)]
    return [f"{indent}{_BEGIN}", *block, f"{indent}{_END}"]


def _end_of_evaluators(lines: Sequence[str], source: str) -> tuple[int, str]:
    """The line after the last evaluator, and the indent of the list."""
    root, _ = read_yaml("\n".join(lines), source)
    nodes = root.value if isinstance(root, yaml.MappingNode) else []
    key, node = next(pair for pair in nodes if pair[0].value == "evaluators")
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1].end_mark
        line = last.line + (last.column > 0)
        while line > 0 and not lines[line - 1].strip():
            line -= 1
        return line, " " * node.start_mark.column
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return key.end_mark.line + 1, _INDENT
    raise ConfigError(
        f"{source}:{key.start_mark.line + 1}: write the evaluators one below the other, each after "
        "a dash, so that the rule can be added"
    )


def _comment(text: str, indent: str) -> list[str]:
    one_line = printable(" ".join(text.split()))
    return textwrap.wrap(
        one_line,
        width=_WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_on_hyphens=False,
    )
