"""Agents' programs in a folder: Python files that use a library for models or agents."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["agent_programs"]

_LIBRARIES = r"""
    agents agno anthropic autogen autogen_agentchat boto3 crewai dspy google\.adk google\.genai
    google_adk haystack huggingface_hub langchain langgraph letta litellm llama_index mistralai
    ollama openai pydantic_ai smolagents strands
"""
_IMPORT = re.compile(
    rf"^[ \t]*(?:import|from)[ \t]+(?:{'|'.join(_LIBRARIES.split())})\b", re.MULTILINE
)
_MAIN = re.compile(r"^if __name__ == ['\"]__main__['\"]", re.MULTILINE)
_SKIPPED = frozenset({"node_modules", "site-packages", "tests", "test", "docs", "build", "dist"})
_MOST_FILES, _DEEPEST, _LARGEST = 500, 2, 1 << 20


def agent_programs(folder: Path) -> list[str]:
    """Return the programs in a folder and below, the one that is most likely started first.

    Programs with a main block come first, then those nearest to the folder, by name.
    """
    ranked = []
    for number, path in enumerate(_python_files(folder)):
        if number >= _MOST_FILES:
            break
        try:
            with path.open("rb") as file:
                text = file.read(_LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        if _IMPORT.search(text):
            name = path.relative_to(folder).as_posix()
            ranked.append((_MAIN.search(text) is None, name.count("/"), name))
    return [name for *_, name in sorted(ranked)]


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        depth = len(Path(parent).relative_to(folder).parts)
        folders[:] = sorted(
            name
            for name in folders
            if depth < _DEEPEST
            and not name.startswith((".", "_"))
            and name not in _SKIPPED
            and not (Path(parent) / name / "pyvenv.cfg").exists()
        )
        yield from (
            Path(parent) / name
            for name in sorted(names)
            if name.endswith(".py") and not name.startswith(("test_", "conftest"))
        )
