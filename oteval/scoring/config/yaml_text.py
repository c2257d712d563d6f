"""YAML text to values and their lines; whatever is wrong with the text is a `ConfigError`.

Dates stay text. A file whose aliases multiply beyond a limit, or that contains itself, is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ...base.errors import ConfigError

__all__ = ["read_yaml"]

_MOST_BYTES = 4 << 20
# Nodes with every alias written out, and levels of nesting.
_MOST_NODES = 200_000
_MOST_LEVELS = 100


class _Loader(yaml.SafeLoader):
    """Reads dates as the text they are written as."""


_Loader.yaml_implicit_resolvers = {
    first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, source: str) -> tuple[yaml.Node | None, Any]:
    """The nodes of a YAML text, which know their lines, and its value.

    Args:
        text: The text.
        source: Its name, for messages.

    Raises:
        ConfigError: The text cannot be read, has a key twice, or is too large.
    """
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"{source}: the file has more than {_MOST_BYTES >> 20} MB")
    try:
        root = yaml.compose(text, Loader=_Loader)
        if root is None:
            return None, None
        _check_size(root, source)
        # Merging (<<) changes nodes, so the nodes for lines and for values are different.
        value = yaml.load(text, Loader=_Loader)  # noqa: S506  derived from SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"{source}:{mark.line + 1}" if mark else source
        problem = getattr(error, "problem", None) or next(iter(str(error).splitlines()), "")
        raise ConfigError(f"{position}: no valid YAML: {problem}") from error
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{source}: nested more than {_MOST_LEVELS} levels deep") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # A value that does not fit its tag or form, such as `!!int x` or `0x_`.
        raise ConfigError(
            f"{source}: a value cannot be read ({error}); put text in quotes"
        ) from error
    _refuse_repeated_keys(root, source)
    return root, value


def _check_size(root: yaml.Node, source: str) -> None:
    """Refuse a file that is too large or too deep once its aliases are written out."""
    sizes: dict[int, int] = {}
    levels: dict[int, int] = {}
    for node in _from_the_leaves(root, source):
        below = _children(node)
        sizes[id(node)] = 1 + sum(sizes[id(child)] for child in below)
        levels[id(node)] = 1 + max((levels[id(child)] for child in below), default=0)
        position = f"{source}:{node.start_mark.line + 1}"
        if sizes[id(node)] > _MOST_NODES:
            raise ConfigError(
                f"{position}: more than {_MOST_NODES} values with all aliases; use fewer"
            )
        if levels[id(node)] > _MOST_LEVELS:
            raise ConfigError(f"{position}: nested more than {_MOST_LEVELS} levels deep")


def _from_the_leaves(root: yaml.Node, source: str) -> Iterator[yaml.Node]:
    """Yield each node once, after the nodes inside it."""
    done: set[int] = set()
    open_nodes: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, is_complete = stack.pop()
        if is_complete:
            open_nodes.discard(id(node))
            done.add(id(node))
            yield node
        elif id(node) in open_nodes:
            line = node.start_mark.line + 1
            raise ConfigError(f"{source}:{line}: this part of the file contains itself")
        elif id(node) not in done:
            open_nodes.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in _children(node)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_repeated_keys(root: yaml.Node, source: str) -> None:
    """Refuse a mapping that has a key twice: YAML readers silently keep one of them."""
    for node in _from_the_leaves(root, source):
        if not isinstance(node, yaml.MappingNode):
            continue
        lines_by_name: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines_by_name:
                raise ConfigError(
                    f"{source}:{line}: {name!r} stands on line {lines_by_name[name]} already"
                )
            lines_by_name[name] = line
