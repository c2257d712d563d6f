"""The arguments that several tools share, and how a tool is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...base.errors import ConfigError
from ...model import FIELDS, Selection, select
from .workspace import Workspace

__all__ = [
    "McpTool",
    "RunFilters",
    "RunName",
    "Texts",
    "ToolArguments",
    "as_list",
    "parse_arguments",
]

_A = TypeVar("_A", bound="ToolArguments")
_MAX_PROBLEMS = 3


class ToolArguments(BaseModel):
    """The arguments of a tool; unknown arguments are errors."""

    model_config = ConfigDict(extra="forbid")


def as_list(value: Any) -> Any:
    """Put a text into a list, and leave other values unchanged: models often leave out the list."""
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[Annotated[str, Field(max_length=2000)]], BeforeValidator(as_list)]
RunName = Annotated[
    str,
    Field(
        min_length=4,
        max_length=128,
        description="Id of the run or its beginning; or the id of its trace or root span.",
    ),
]


class RunFilters(ToolArguments):
    """Filters for runs, the same as on the command line."""

    since: str = Field("", max_length=100, description="2026-11-20, 2026-11-20T08:00 (UTC) or 2h.")
    until: str = Field("", max_length=100, description="Runs before this time, written as since.")
    service: Texts = Field([], max_length=50, description="Runs of one of these services.")
    agent: Texts = Field([], max_length=50, description="Runs of one of these agents.")
    conversation: Texts = Field([], max_length=50, description="Runs of these conversations.")
    model: Texts = Field([], max_length=50, description="Runs answered by one of these models.")
    where: Texts = Field(
        [],
        max_length=20,
        description="Conditions FIELD OP VALUE, all true: errors>0, tool=refund, gap=redacted, "
        "asked~money back, seconds>10, attributes.user.id=u1. OP: = != ~ (regular expression) > < "
        f">= <=. Fields: {' '.join(FIELDS)} attributes.KEY.",
    )

    def selection(self) -> Selection:
        """The filters as a selection.

        Raises:
            ConfigError: A filter cannot be parsed.
        """
        return select(**{name: getattr(self, name) for name in RunFilters.model_fields})


@dataclass(frozen=True)
class McpTool(Generic[_A]):
    """A tool.

    Attributes:
        name: Its name.
        description: Its description for models.
        arguments: The type of its arguments.
        answer: Returns its result. It may block.
        writes: Whether it changes the database or files.
    """

    name: str
    description: str
    arguments: type[_A]
    answer: Callable[[Workspace, _A], str]
    writes: bool = False

    def call(self, workspace: Workspace, arguments: Any) -> str:
        """The result for arguments as a client sent them.

        Raises:
            OtevalError: An argument is wrong, or a file or the database cannot be used.
        """
        return self.answer(workspace, parse_arguments(self.arguments, arguments))


def parse_arguments(kind: type[_A], arguments: Any) -> _A:
    """Arguments that a client sent.

    Raises:
        ConfigError: An argument is wrong.
    """
    try:
        return kind.model_validate(arguments or {})
    except ValidationError as error:
        messages = [
            f"{'.'.join(map(str, detail['loc'])) or 'arguments'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        more = (
            f"; and {len(messages) - _MAX_PROBLEMS} more" if len(messages) > _MAX_PROBLEMS else ""
        )
        names = ", ".join(kind.model_fields)
        problems = "; ".join(messages[:_MAX_PROBLEMS])
        raise ConfigError(f"{problems}{more} (the arguments are {names})") from None
