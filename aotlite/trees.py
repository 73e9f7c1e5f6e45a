"""Flattening of arguments and results, with errors for what no tree is."""

from __future__ import annotations

from typing import Any

import optree

from aotlite.ir.errors import ArgumentError


def flattened(tree: Any, what: str) -> tuple[list[Any], Any]:
    """The leaves of nested containers, None among them, and their form.

    Raises ArgumentError, naming `what`, for containers that contain themselves or are nested
    deeper than optree goes.

    >>> flattened({"a": [1, None]}, "the arguments")[0]
    [1, None]
    """
    try:
        leaves, form = optree.tree_flatten(tree, none_is_leaf=True)
    except RecursionError:
        how = "contain themselves" if contains_itself(tree) else "are nested too deep for optree"
        raise ArgumentError(
            f"compile: {what} {how}, expected lists, tuples and dicts in finite nesting"
        ) from None
    return leaves, form


def contains_itself(tree: Any) -> bool:
    """Whether a list, tuple or dict is, over any number of steps, an item of its own.

    >>> loop = []
    >>> loop.append(loop)
    >>> contains_itself(loop), contains_itself([[], []])
    (True, False)
    """
    above: set[int] = set()
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        value, left = stack.pop()
        if left:
            above.discard(id(value))
        elif isinstance(value, (list, tuple, dict)):
            if id(value) in above:
                return True
            above.add(id(value))
            stack.append((value, True))
            items = value.values() if isinstance(value, dict) else value
            stack.extend((item, False) for item in items)
    return False


def dict_orders(tree: Any) -> tuple[Any, ...]:
    """The order of the keys of every dict in nested containers, in the order they are met.

    >>> dict_orders(({"b": 1, "a": {}},))
    (((<class 'str'>, 'b'), (<class 'str'>, 'a')),)
    """
    found = []
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value:
                found.append(tuple([(type(key), key) for key in value]))
                stack.extend(reversed(value.values()))
        elif type(value) in (list, tuple):
            stack.extend(reversed(value))
    return tuple(found)
