"""Classes and values of an agent's tools, for recordings that keep their types."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import fractions
import http
import ipaddress
import json
import pathlib
import re
import sqlite3
import subprocess
import types
import typing
import urllib.error
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pydantic
import pydantic_core

__all__ = ["ERRORS", "VALUES"]


T = typing.TypeVar("T")


class Color(enum.Enum):
    """An enum."""

    RED = "red"
    BLUE = ("b", 2)


class Level(enum.IntEnum):
    """An enum of integers."""

    LOW = 1


class Rights(enum.Flag):
    """An enum of bits."""

    READ = 1
    WRITE = 2
    RUN = 4


class Point(typing.NamedTuple):
    """A named tuple."""

    x: int
    y: decimal.Decimal


@dataclass
class Order:
    """A dataclass with others in it."""

    number: int
    total: decimal.Decimal
    lines: list[Line] = field(default_factory=list)
    _note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A dataclass without ``__dict__``."""

    name: str
    tags: frozenset[str] = frozenset()


@dataclass
class Checked:
    """A dataclass that acts when it is made."""

    number: int

    def __post_init__(self) -> None:
        """Count itself."""
        self.number += 1


class Customer(pydantic.BaseModel):
    """A model with an alias, a private attribute and a validator that changes values."""

    model_config = pydantic.ConfigDict(extra="allow")

    name: str = pydantic.Field(alias="full_name")
    since: datetime.date
    level: Level = Level.LOW
    _visits: int = pydantic.PrivateAttr(default=0)

    @pydantic.field_validator("name")
    @classmethod
    def longer(cls, text: str) -> str:
        """Change the name in every validation."""
        return f"{text}!"


class Page(pydantic.BaseModel, typing.Generic[T]):
    """A generic model."""

    items: list[T]


class Token(str):
    """A text of its own class."""

    __slots__ = ()


class Money:
    """A plain class."""

    def __init__(self, amount: int, currency: str) -> None:
        """Take two arguments."""
        self.amount, self.currency = amount, currency

    def __eq__(self, other: object) -> bool:
        """Compare the attributes."""
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Hash the amount."""
        return hash(self.amount)


def _customer() -> Customer:
    customer = Customer(full_name="Ada", since=datetime.date(2020, 1, 2), note=(1, 2))
    customer._visits = 7
    return customer


VALUES: dict[str, object] = {
    "int": 7,
    "negative": -0.0,
    "bool": True,
    "none": None,
    "text": "refunded",
    "text of a number": "7",
    "text of JSON": '{"a":1}',
    "text of a list": "[1]",
    "text of null": "null",
    "empty text": "",
    "half of a pair": "a\ud83d",
    "float": 1.0,
    "infinity": float("-inf"),
    "large int": 2**70,
    "huge int": 3**9000,
    "complex": 1 + 2j,
    "decimal": decimal.Decimal("1.50"),
    "fraction": fractions.Fraction(1, 3),
    "bytes": b"\x00\xffpdf",
    "bytearray": bytearray(b"ab"),
    "date": datetime.date(2024, 2, 29),
    "datetime": datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
    "aware datetime": datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC),
    "zoned datetime": datetime.datetime(
        2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Vienna"), fold=1
    ),
    "time": datetime.time(12, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "X")),
    "timedelta": datetime.timedelta(days=-1, microseconds=5),
    "uuid": uuid.UUID(int=5),
    "path": pathlib.Path("a/b.txt"),
    "pure path": pathlib.PureWindowsPath("c:/x"),
    "tuple": (1, "a", (2.5,)),
    "empty tuple": (),
    "list": [1, "a", None],
    "list of decimals": [decimal.Decimal(1), {"a": decimal.Decimal(2)}],
    "set": {1, 2, 3},
    "frozenset": frozenset({"a"}),
    "dict": {"a": [1, {"b": None}]},
    "dict of numbers": {1: "one", (2, 3): "two", None: 0, False: b"x"},
    "dict with tags": {"$decimal": "1.5", "$$x": 1},
    "ordered dict": OrderedDict(b=1, a=2),
    "defaultdict": defaultdict(list, a=[1]),
    "counter": Counter("aab"),
    "deque": deque([1, 2], maxlen=5),
    "mapping proxy": types.MappingProxyType({"a": (1,)}),
    "namespace": types.SimpleNamespace(a=1, b=(2,)),
    "range": range(1, 10, 2),
    "slice": slice(1, None),
    "pattern": re.compile("a+", re.IGNORECASE),
    "ellipsis": ...,
    "address": ipaddress.ip_address("10.0.0.1"),
    "network": ipaddress.ip_network("10.0.0.0/8"),
    "enum": Color.RED,
    "enum of a tuple": Color.BLUE,
    "int enum": Level.LOW,
    "flag": Rights.READ | Rights.RUN,
    "no flag": Rights(0),
    "enum of the library": http.HTTPStatus.NOT_FOUND,
    "named tuple": Point(1, decimal.Decimal("2.5")),
    "dataclass": Order(17, decimal.Decimal("40.00"), [Line("pen", frozenset({"blue"}))], "n"),
    "dataclass with slots": Line("pen"),
    "dataclass with post init": Checked(1),
    "model": _customer(),
    "generic model": Page[int](items=[1, 2]),
    "text of a class": Token("t"),
    "object": Money(40, "EUR"),
    "exception": ValueError("returned", 7),
    "nested": {"a": [(Color.RED, {Line("x")})], "b": {"c": Order(1, decimal.Decimal(1))}},
}


class ShopError(Exception):
    """An exception with a required argument that it does not pass on."""

    def __init__(self, message: str, status: int) -> None:
        """Keep the status."""
        super().__init__(message)
        self.status = status


class KeywordError(Exception):
    """An exception that passes nothing on."""

    def __init__(self, *, code: int) -> None:
        """Keep the code."""
        self.code = code

    def __str__(self) -> str:
        """Return a text of its own."""
        return f"code {self.code}"


class StrictError(ShopError, LookupError):
    """An exception of two classes, with slots."""

    __slots__ = ("detail",)

    def __init__(self, detail: str) -> None:
        """Keep a detail."""
        super().__init__(f"strict {detail}", 409)
        self.detail = detail


class Stopped(BaseException):
    """An exception that ``except Exception`` does not catch."""


def _noted() -> ValueError:
    error = ValueError("noted")
    error.add_note("a note")
    return error


def _caused() -> ValueError:
    error = ValueError("caused")
    error.__cause__ = ShopError("cause", 5)
    return error


def _raised(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError


def _even(number: int) -> int:
    raise pydantic_core.PydanticCustomError("odd", "{number} is {odd}", {"number": 1})


ERRORS: dict[str, BaseException] = {
    "value": ValueError("no such order"),
    "no text": ValueError(),
    "several arguments": ValueError("a", 7, (1, 2)),
    "key": KeyError("order"),
    "index": IndexError("out of range"),
    "type": TypeError("bad"),
    "lookup": LookupError("none"),
    "timeout": TimeoutError("late"),
    "file": _raised(pathlib.Path("/nowhere/at/all").read_text),
    "permission": PermissionError(13, "denied"),
    "connection": ConnectionResetError(104, "reset by peer"),
    "unicode": _raised(b"\xff".decode),
    "zero division": ZeroDivisionError("division by zero"),
    "not implemented": NotImplementedError(),
    "import": ImportError("no module", name="shop", path="/x"),
    "assertion": AssertionError({"a": 1}),
    "decimal": _raised(lambda: decimal.Decimal("x")),
    "JSON": _raised(lambda: json.loads("{")),
    "database": _raised(lambda: sqlite3.connect(":memory:").execute("select")),
    "program": subprocess.CalledProcessError(2, ["ls"], b"out"),
    "HTTP": urllib.error.URLError("refused"),
    "validation": _raised(lambda: Customer(full_name="Ada", since="x", level=7)),
    "custom validation": _raised(
        lambda: pydantic.TypeAdapter(
            typing.Annotated[int, pydantic.AfterValidator(_even)]
        ).validate_python(1)
    ),
    "value in a validator": _raised(
        lambda: pydantic.TypeAdapter(
            typing.Annotated[int, pydantic.AfterValidator(lambda number: number // 0)]
        ).validate_python(1)
    ),
    "attribute": _raised(lambda: "abc".none),  # type: ignore[attr-defined]
    "queue": asyncio.QueueFull(),
    "cancelled": asyncio.CancelledError(),
    "interrupt": KeyboardInterrupt(),
    "shop": ShopError("conflict", 409),
    "keyword": KeywordError(code=7),
    "strict": StrictError("locked"),
    "noted": _noted(),
    "caused": _caused(),
    "group": ExceptionGroup("several", [ValueError("a"), ShopError("b", 1)]),
    "base group": BaseExceptionGroup("several", [Stopped("x"), ValueError("a")]),
    "exit": SystemExit(3),
    "stopped": Stopped("now"),
}
