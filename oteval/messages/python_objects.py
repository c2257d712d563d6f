"""Python objects as plain data: objects of client libraries, and objects from their ``repr``.

A live object is recognised by its fields and never by its class, so that no library is imported.

Emitters write a repr if they cannot serialise an object.
``ChatMessage(role=<Role.USER: 'user'>, content=[Text(text='hi')])`` becomes the mapping of its
fields, with the class as ``type`` if it has no field of that name. LangChain's messages print only
their fields: ``content='hi' name='f' tool_call_id='k'``. Nothing is executed: the text is parsed,
not evaluated.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import warnings
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import EllipsisType
from typing import Any

from ..base.jsontext import loads
from ..model import Message, ToolCall

__all__ = [
    "field_of",
    "literal_of",
    "object_of",
    "plain_data",
    "printed_fields",
]

_PLAIN = frozenset({str, int, float, bool, type(None)})
_OWN = (Message, ToolCall)
# Deeper than any message: deeper values are the caller's own data, and stay as they are.
_MAX_DEPTH = 50


def field_of(value: Any, name: str, default: Any = None) -> Any:
    """A field of a dict or of an object; the default if it has none or it is None."""
    if type(value) is dict or isinstance(value, Mapping):
        field_value = value.get(name)
    else:
        field_value = getattr(value, name, None)
    return default if field_value is None else field_value


def plain_data(value: Any, depth: int = 0) -> Any:
    """A value as dicts, lists and scalars.

    Args:
        value: The value, which is not changed. Our own messages and calls, and values that have
            no fields, stay as they are.
        depth: How deep the value is nested.
    """
    if type(value) in _PLAIN or isinstance(value, _OWN) or depth > _MAX_DEPTH:
        return value
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
        return value
    if isinstance(value, Mapping):
        return {key: plain_data(item, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain_data(value._asdict(), depth + 1)
    if isinstance(value, (list, tuple, Set)):
        return [plain_data(item, depth + 1) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return _text_of_bytes(bytes(value))
    object_fields = {} if isinstance(value, type) or callable(value) else _fields(value)
    return plain_data(object_fields, depth + 1) if object_fields else value


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _fields(value: Any) -> dict[str, Any]:
    """The public fields of an object: of a model, a dataclass, or any other class."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        kind = type(value)
        slots = getattr(kind, "__struct_fields__", getattr(kind, "__slots__", ()))
        extra = getattr(value, "__pydantic_extra__", None) or ()
        names = [*getattr(value, "__dict__", ()), *extra, *slots]
    public = {name: getattr(value, name, None) for name in names if not name.startswith("_")}
    to_dict = getattr(type(value), "to_dict", None)
    if public or not names or not callable(to_dict):
        return public
    converted = to_dict(value)  # such as Haystack's messages, whose fields are private
    return converted if isinstance(converted, dict) else {}


_MAX_REPR = 1_000_000
_TEXT = r"""[bru]{0,2}'(?:[^'\\\n]|\\.)*'|[bru]{0,2}"(?:[^"\\\n]|\\.)*\""""
# A text in quotes, or an enum's member or opaque object in angle brackets.
_TOKEN = re.compile(
    rf"""(?P<text>{_TEXT})"""
    r"""|<(?P<name>[\w.]+): (?P<value>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|-?\d+)>"""
    r"""|(?P<opaque><[^<>'"]*>)"""
)
_OBJECT = re.compile(r"\s*\[?\s*[A-Z]\w*\(")
# Between two fields of a message that LangChain prints, outside of texts.
_NEXT_FIELD = re.compile(rf"(?P<text>{_TEXT})|(?<![,(\[{{])(?P<gap> +)(?=[a-zA-Z_]+=)")


def object_of(text: str) -> Any:
    """The fields of the objects that a repr shows; None if the text is not a repr.

    Args:
        text: The repr of an object or of a list of objects, or a message as LangChain prints it.
            Positional arguments of a call become the list under ``args``; an opaque object becomes
            its text.
    """
    if text.startswith("content=") and text.endswith(("'", '"', "}", "]")):
        return printed_fields(text, "Message")
    return _parsed(text) if text[-1:] in (")", "]") and _OBJECT.match(text) else None


def printed_fields(text: str, name: str) -> Any:
    """The fields of an object that prints only its fields, as Pydantic's models do, or None.

    Args:
        text: The object as text, such as ``status='success' result='21 C'``.
        name: The object's class.
    """
    return _parsed(f"{name}({_NEXT_FIELD.sub(_with_comma, text)})")


# Each call of a model repeats the definitions of its tools.
@lru_cache(maxsize=16)
def literal_of(text: str) -> Any:
    """The value of the repr of a list, dict or tuple that JSON can represent, else None."""
    if not text.endswith((")", "]", "}")):
        return None
    try:
        return loads(json.dumps(_parsed(text, is_whole=True)))
    except (ValueError, TypeError, RecursionError):
        return None


def _parsed(text: str, *, is_whole: bool = False) -> Any:
    """The value of a repr, or None.

    Args:
        text: The repr.
        is_whole: Whether all of it must be a value, without opaque parts.
    """
    if len(text) > _MAX_REPR:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an odd escape, as in a regular expression
            source = text if is_whole and "<" not in text else _TOKEN.sub(_as_literal, text)
            if is_whole and "<" in text and any(token["opaque"] for token in _TOKEN.finditer(text)):
                return None
            tree = ast.parse(source.strip(), mode="eval")
        return _value(tree.body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _as_literal(match: re.Match[str]) -> str:
    if match["value"] is not None:
        return match["value"]
    return repr(match["opaque"]) if match["opaque"] is not None else match["text"]


def _with_comma(match: re.Match[str]) -> str:
    return match["text"] if match["gap"] is None else ", "


def _value(node: ast.expr, *, is_field: bool = False) -> Any:
    """The value of a node.

    Args:
        node: The node.
        is_field: Whether it is inside an object, where a name is a constant.

    Raises:
        ValueError: The node is code, not a value.
    """
    match node:
        case ast.Constant(value=bytes() | complex() | EllipsisType()):
            if is_field:
                return repr(node.value)
        case ast.Constant():
            return node.value
        case ast.Set() if is_field:
            return [_value(item, is_field=is_field) for item in node.elts]
        case ast.List() | ast.Tuple():
            return [_value(item, is_field=is_field) for item in node.elts]
        case ast.Dict():
            return _mapping(node, is_field=is_field)
        case ast.Call():
            return _object(node, is_field=is_field)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name() | ast.Attribute() if is_field:
            return ast.unparse(node)
    raise ValueError(f"not a value: {type(node).__name__}")


def _mapping(node: ast.Dict, *, is_field: bool) -> dict[str, Any]:
    if None in node.keys:
        raise ValueError("not a value: a dict that is unpacked")
    pairs = zip(node.keys, node.values, strict=True)
    return {_key(key): _value(value, is_field=is_field) for key, value in pairs if key is not None}


def _key(node: ast.expr) -> str:
    key = node.value if isinstance(node, ast.Constant) else ast.literal_eval(node)
    if not isinstance(key, (str, int, float, bool, type(None))):
        raise ValueError("not a key")
    return str(key)


def _object(node: ast.Call, *, is_field: bool) -> Any:
    name = ast.unparse(node.func).rpartition(".")[2]
    if not is_field and not name[:1].isupper() and name != "datetime":
        raise ValueError("not a value: a call")
    if node.args and not node.keywords:
        return ast.unparse(node)  # such as a date's
    fields = {word.arg: _value(word.value, is_field=True) for word in node.keywords if word.arg}
    if node.args:
        fields["args"] = [_value(item, is_field=True) for item in node.args]
    return fields if fields.get("type") else {"type": name, **fields}
