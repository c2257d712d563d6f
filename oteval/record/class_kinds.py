"""The kinds of values that are instances of classes: enums, dataclasses, models, exceptions.

A recording stores the name of such a value's class, and the value's state. The value is built
without calling any code of the class: an empty instance, then its attributes. If the class no
longer has the recorded fields or members, the value is not restored.
"""

from __future__ import annotations

import builtins
import functools
import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from .agent_files import is_agent_module
from .value_kinds import Decoder, Encode, UnrestorableValue, ValueKind

__all__ = ["CLASS_KINDS", "class_name", "is_simple", "kind_of_class", "main_module"]

# Of exceptions; the rest of their state is in these descriptors and in `__dict__`.
_NOT_STATE = frozenset(
    ("args", "__traceback__", "__context__", "__cause__", "__suppress_context__", "__dict__")
)
_ARGS: Any = vars(BaseException)["args"]
_BASES = (str, int, float, bytes, list, dict, set, frozenset, tuple)
_MOST_CAUSES = 8


def main_module() -> str:
    """The name that other programs import the main module of this program by."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def class_name(cls: type) -> str:
    """The full name of a class, as ``module:Class``."""
    module = cls.__module__
    if module in ("__main__", "__mp_main__"):
        module = main_module()
    return f"{module}:{cls.__qualname__}"


# State


def _slots(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a class that its instances keep outside of ``__dict__``."""
    for base in cls.__mro__:
        for name, descriptor in vars(base).items():
            if type(descriptor) is MemberDescriptorType and base.__module__ != "builtins":
                yield name, descriptor


def _state(value: Any) -> dict[str, Any]:
    """The attributes of an instance, read without calling code of its class."""
    state = dict(getattr(value, "__dict__", {}))
    for name, descriptor in _slots(type(value)):
        try:
            state[name] = descriptor.__get__(value)
        except AttributeError:  # never set
            continue
    return state


def _set_state(value: Any, state: Mapping[str, Any]) -> None:
    slots = dict(reversed(list(_slots(type(value)))))
    for name, item in state.items():
        if name in slots:
            slots[name].__set__(value, item)
        else:
            value.__dict__[name] = item


def _require_same(name: str, recorded: set[str], current: set[str]) -> None:
    changed = sorted(recorded ^ current)
    if changed:
        raise UnrestorableValue(f"{name}: has other fields than recorded: {', '.join(changed)}")


def _instance(cls: type, name: str) -> Any:
    try:
        return object.__new__(cls)
    except TypeError as error:
        raise UnrestorableValue(f"{name}: {error}") from error


# Enums


def _encoded_enum(value: Enum, encode: Encode) -> Any:
    if isinstance(value, Flag):
        members = [member.name for member in value]
        union = functools.reduce(operator.or_, value, type(value)(0))
        if union != value:
            raise UnrestorableValue(f"{class_name(type(value))}: has bits without a name")
        return {"class": class_name(type(value)), "flags": members, "value": value.value}
    payload = {"class": class_name(type(value)), "name": value.name}
    with suppress(UnrestorableValue):  # the name identifies the member
        payload["value"] = encode(value.value)
    return payload


def _decoded_enum(payload: Any, decoder: Decoder) -> Enum:
    cls: Any = decoder.class_named(payload["class"])
    if not issubclass(cls, Enum):
        raise UnrestorableValue(f"{payload['class']}: is not an enum any more")
    members: Mapping[str, Any] = cls.__members__
    names = payload["flags"] if "flags" in payload else [payload["name"]]
    for name in names:
        if name not in members:
            raise UnrestorableValue(f"{payload['class']}: has no member {name}")
    if "flags" in payload:
        union: Enum = functools.reduce(operator.or_, (members[name] for name in names), cls(0))
        return union
    member: Enum = members[payload["name"]]
    if "value" in payload and decoder.value(payload["value"]) != member.value:
        raise UnrestorableValue(f"{payload['class']}: {payload['name']} has another value")
    return member


# Dataclasses, models, named tuples


def _encoded_dataclass(value: Any, encode: Encode) -> Any:
    state = {name: encode(item) for name, item in _state(value).items()}
    return {"class": class_name(type(value)), "fields": state}


def _decoded_dataclass(payload: Any, decoder: Decoder) -> Any:
    name, state = payload["class"], payload["fields"]
    cls = decoder.class_named(name)
    if not is_dataclass(cls):
        raise UnrestorableValue(f"{name}: is not a dataclass any more")
    names = {field.name for field in fields(cls)}
    _require_same(name, names & state.keys(), names)
    value = _instance(cls, name)
    _set_state(value, {key: decoder.value(item) for key, item in state.items()})
    return value


_MODEL_STATE = ("__dict__", "__pydantic_extra__", "__pydantic_private__")


def _is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base)


def _encoded_model(value: Any, encode: Encode) -> Any:
    def state(name: str) -> Any:
        part = getattr(value, name, None)
        if part is None:
            return None
        defined = {key: item for key, item in part.items() if _is_defined(item)}
        return {key: encode(item) for key, item in defined.items()}

    return {
        "class": class_name(type(value)),
        "fields": state("__dict__"),
        "extra": state("__pydantic_extra__"),
        "private": state("__pydantic_private__"),
        "set": sorted(value.__pydantic_fields_set__),
    }


def _is_defined(value: Any) -> bool:
    return type(value).__name__ != "PydanticUndefinedType"


def _decoded_model(payload: Any, decoder: Decoder) -> Any:
    name = payload["class"]
    cls: Any = decoder.class_named(name)
    if not _is_model(cls):
        raise UnrestorableValue(f"{name}: is not a pydantic model any more")
    names = set(cls.model_fields)
    _require_same(name, names & payload["fields"].keys(), names)
    parts = [
        part if part is None else {key: decoder.value(item) for key, item in part.items()}
        for part in (payload["fields"], payload["extra"], payload["private"])
    ]
    value = _instance(cls, name)
    for attribute, part in zip(_MODEL_STATE, parts, strict=True):
        object.__setattr__(value, attribute, part)
    object.__setattr__(value, "__pydantic_fields_set__", set(payload["set"]))
    return value


def _encoded_named_tuple(value: Any, encode: Encode) -> Any:
    items = dict(zip(value._fields, map(encode, value), strict=True))
    return {"class": class_name(type(value)), "fields": items}


def _decoded_named_tuple(payload: Any, decoder: Decoder) -> Any:
    name, items = payload["class"], payload["fields"]
    cls: Any = decoder.class_named(name)
    if not issubclass(cls, tuple) or list(getattr(cls, "_fields", ())) != list(items):
        raise UnrestorableValue(f"{name}: has other fields than recorded")
    return tuple.__new__(cls, map(decoder.value, items.values()))


# Classes of the agent's own modules


def _base_of(cls: type) -> type | None:
    return next((base for base in _BASES if issubclass(cls, base)), None)


def is_simple(cls: type) -> bool:
    """Whether a class is the agent's own, and its instances are just their attributes."""
    if not is_agent_module(cls.__module__):
        return False
    special = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
    for base in cls.__mro__:
        if base is not object and base not in _BASES:
            is_native = not base.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE: a class statement
            if is_native or any(name in vars(base) for name in special):
                return False
    return True


def _encoded_instance(value: Any, encode: Encode) -> Any:
    cls = type(value)
    payload = {
        "class": class_name(cls),
        "state": {key: encode(item) for key, item in _state(value).items()},
    }
    base = _base_of(cls)
    if base is None:
        return payload
    # The methods of the base are used, because the class may have overridden them.
    if base is dict:
        plain: Any = dict(dict.items(value))
    elif base in (list, set, frozenset, tuple):
        plain = base(base.__iter__(value))
    else:
        plain = base.__new__(base, base.__getnewargs__(value)[0])  # type: ignore[attr-defined]
    return {**payload, "base": base.__name__, "value": encode(plain)}


def _decoded_instance(payload: Any, decoder: Decoder) -> Any:
    name = payload["class"]
    cls: Any = decoder.class_named(name)
    base = _base_of(cls)
    if not is_simple(cls) or (base.__name__ if base else None) != payload.get("base"):
        raise UnrestorableValue(f"{name}: is another kind of class than recorded")
    if base is None:
        value = _instance(cls, name)
    else:
        plain = decoder.value(payload["value"])
        if base in (list, dict, set):
            value = base.__new__(cls)
            base.__init__(value, plain)
        else:
            value = base.__new__(cls, plain)
    _set_state(value, {key: decoder.value(item) for key, item in payload["state"].items()})
    return value


# Exceptions


def _encoded_error(value: BaseException, encode: Encode) -> Any:
    payload: dict[str, Any] = {
        "class": class_name(type(value)),
        "args": [encode(item) for item in _ARGS.__get__(value)],
    }
    attributes: dict[str, Any] = {}
    lost: list[str] = []
    for name, item in _state(value).items():
        try:
            attributes[name] = encode(item)
        except UnrestorableValue:
            lost.append(name)
    native: dict[str, Any] = {}
    for name, descriptor in _native_state(type(value)):
        with suppress(AttributeError):  # such as the characters that a blocking write has written
            native[name] = descriptor.__get__(value)
    parts = {
        "attributes": attributes,
        "lost": lost,
        "native": {
            name: encode(item)
            for name, item in native.items()
            if isinstance(item, (str, int, bytes))
        },
        "cause": _encoded_cause(value, encode),
    }
    return payload | {name: part for name, part in parts.items() if part}


def _encoded_cause(value: BaseException, encode: Encode) -> Any:
    cause, depth = value.__cause__, 0
    while cause is not None and depth < _MOST_CAUSES:
        cause, depth = cause.__cause__, depth + 1
    try:
        return None if value.__cause__ is None or cause else encode(value.__cause__)
    except UnrestorableValue:
        return None


def _native_state(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that a builtin exception keeps outside of ``args``."""
    for base in cls.__mro__:
        if vars(builtins).get(base.__name__) is base:
            for name, descriptor in vars(base).items():
                is_state = isinstance(descriptor, (MemberDescriptorType, GetSetDescriptorType))
                if is_state and name not in _NOT_STATE:
                    yield name, descriptor


def _decoded_error(payload: Any, decoder: Decoder) -> BaseException:
    name = payload["class"]
    cls: Any = decoder.class_named(name)
    if not issubclass(cls, BaseException):
        raise UnrestorableValue(f"{name}: is not an exception any more")
    for attribute in payload.get("lost", ()):
        if any(attribute in vars(base) for base in cls.__mro__):
            raise UnrestorableValue(f"{name}: its attribute {attribute} was not recorded")
    args = [decoder.value(item) for item in payload["args"]]
    base: Any = next(base for base in cls.__mro__ if vars(builtins).get(base.__name__) is base)
    error: BaseException = base.__new__(cls, *args)
    base.__init__(error, *args)
    _ARGS.__set__(error, tuple(args))
    native = dict(reversed(list(_native_state(cls))))
    for attribute, encoded in payload.get("native", {}).items():
        try:
            native[attribute].__set__(error, decoder.value(encoded))
        except (AttributeError, TypeError):  # read-only, and set by the arguments
            continue
    attributes = payload.get("attributes", {})
    _set_state(error, {key: decoder.value(item) for key, item in attributes.items()})
    if payload.get("cause"):
        error.__cause__ = decoder.value(payload["cause"])
    return error


# pydantic builds its error itself: the error has no arguments.


def _is_validation_error(cls: type) -> bool:
    core = sys.modules.get("pydantic_core")
    return cls is getattr(core, "ValidationError", None)


def _encoded_validation_error(value: Any, encode: Encode) -> Any:
    lines = value.errors(include_url=False)
    return {"title": value.title, "lines": [encode(line) for line in lines]}


def _decoded_validation_error(payload: Any, decoder: Decoder) -> BaseException:
    from pydantic_core import PydanticCustomError, PydanticKnownError, ValidationError

    lines: list[Any] = [decoder.value(line) for line in payload["lines"]]
    for line in lines:
        text = line.pop("msg")
        try:
            PydanticKnownError(line["type"], line.get("ctx"))
        except KeyError:
            line["type"] = PydanticCustomError(line["type"], text, line.pop("ctx", None))
    error = ValidationError.from_exception_data(payload["title"], lines)
    _ARGS.__set__(error, ())
    return error


# Classes themselves


def _is_safe_class(cls: type) -> bool:
    return issubclass(cls, BaseException) or is_agent_module(cls.__module__)


def _encoded_class(value: type, _encode: Encode) -> str:
    if not _is_safe_class(value):
        raise UnrestorableValue(f"{class_name(value)}: classes of libraries are not recorded")
    return class_name(value)


def _decoded_class(name: str, decoder: Decoder) -> type:
    cls = decoder.class_named(name)
    if not _is_safe_class(cls):
        raise UnrestorableValue(f"{name}: is a class of a library")
    return cls


CLASS_KINDS: tuple[tuple[Callable[[type], bool], ValueKind], ...] = (
    (lambda cls: issubclass(cls, type), ValueKind("$class", _encoded_class, _decoded_class)),
    (lambda cls: issubclass(cls, Enum), ValueKind("$enum", _encoded_enum, _decoded_enum)),
    (
        _is_validation_error,
        ValueKind("$validation_error", _encoded_validation_error, _decoded_validation_error),
    ),
    (
        lambda cls: issubclass(cls, BaseException),
        ValueKind("$exception", _encoded_error, _decoded_error),
    ),
    (_is_model, ValueKind("$model", _encoded_model, _decoded_model)),
    (is_dataclass, ValueKind("$dataclass", _encoded_dataclass, _decoded_dataclass)),
    (
        lambda cls: issubclass(cls, tuple) and hasattr(cls, "_fields"),
        ValueKind("$named_tuple", _encoded_named_tuple, _decoded_named_tuple),
    ),
    (is_simple, ValueKind("$instance", _encoded_instance, _decoded_instance)),
)
"""The kinds of instances, each with the test of a class; the first that fits applies."""


def kind_of_class(cls: type) -> ValueKind | None:
    """The kind of the instances of a class, or None."""
    return next((kind for fits, kind in CLASS_KINDS if fits(cls)), None)
