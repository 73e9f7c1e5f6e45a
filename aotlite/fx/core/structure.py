"""Nested values as leaves and a template: what a traced function takes and returns.

A graph has a flat list of inputs and of outputs. A template says how the user's tuples, lists and
dicts are made of them. It is plain data, so that a file can hold it. Rule: FXG-6.
Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from aotlite.ir.errors import ArgumentError, FormatError

__all__ = ["Template", "flattened", "matched", "numbered", "rebuilt", "template_from"]

Template = Any
"""{"leaf": n}, {"tuple": [...]}, {"list": [...]}, {"dict": [[key, ...], [...]]}, or
{"value": x}."""


def flattened(value: object, is_leaf: Callable[[object], bool]) -> tuple[Template, list[Any]]:
    """(template, leaves) of nested tuples, lists and dicts; what is no leaf is in the template."""
    leaves: list[object] = []

    def walk(each: object) -> Template:
        if is_leaf(each):
            leaves.append(each)
            return {"leaf": len(leaves) - 1}
        if isinstance(each, (tuple, list)):
            kind = "tuple" if isinstance(each, tuple) else "list"
            return {kind: [walk(item) for item in each]}
        if isinstance(each, Mapping):
            return {"dict": [list(each), [walk(item) for item in each.values()]]}
        return {"value": each}

    return walk(value), leaves


def numbered(count: int) -> Template:
    """The template of a flat tuple."""
    return {"tuple": [{"leaf": index} for index in range(count)]}


def rebuilt(template: Template, leaves: Any) -> Any:
    """The nested value of these leaves."""
    ((kind, held),) = template.items()
    match kind:
        case "leaf":
            return leaves[held]
        case "value":
            return held
        case "dict":
            keys, items = held
            return {k: rebuilt(item, leaves) for k, item in zip(keys, items, strict=True)}
    items = [rebuilt(item, leaves) for item in held]
    return tuple(items) if kind == "tuple" else items


def matched(template: Template, value: Any, what: str) -> Iterator[Any]:
    """The leaves of a value that is nested as the template says, in their order.

    Raises ArgumentError for another nesting, and for another constant.
    """
    ((kind, held),) = template.items()
    if kind == "leaf":
        yield value
    elif kind == "value":
        if type(value) is not type(held) or value != held:
            raise ArgumentError(
                f"{what} is {value!r}, expected {held!r}: the function was traced for that value"
            )
    elif kind == "dict":
        keys, items = held
        if not isinstance(value, Mapping) or set(value) != set(keys):
            raise ArgumentError(f"{what} is {_named(value)}, expected a dict with the keys {keys}")
        for key, item in zip(keys, items, strict=True):
            yield from matched(item, value[key], f"{what}[{key!r}]")
    else:
        is_kind = isinstance(value, tuple) if kind == "tuple" else isinstance(value, list)
        if not is_kind or len(value) != len(held):
            raise ArgumentError(f"{what} is {_named(value)}, expected a {kind} of {len(held)}")
        for index, (item, each) in enumerate(zip(held, value, strict=True)):
            yield from matched(item, each, f"{what}[{index}]")


def _named(value: object) -> str:
    if isinstance(value, (tuple, list, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


_PLAIN = (type(None), bool, int, float, str)


def template_from(value: Any, count: int) -> Template:
    """A template that a file holds: checked, with each leaf below `count`. Raises FormatError."""
    match value:
        case {"leaf": int(index)} if len(value) == 1 and 0 <= index < count:
            return {"leaf": index}
        case {"tuple": list(items)} | {"list": list(items)} if len(value) == 1:
            return {next(iter(value)): _each(items, count)}
        case {"dict": [list(keys), list(items)]} if len(value) == 1 and len(keys) == len(items):
            if all(type(key) in _PLAIN for key in keys):
                return {"dict": [keys, _each(items, count)]}
        case {"value": held} if len(value) == 1 and type(held) in _PLAIN:
            return {"value": held}
    raise FormatError(f"graph module: a template is {str(value)[:60]!r}, expected one of dumps")


def _each(items: Iterable[object], count: int) -> list[Template]:
    return [template_from(item, count) for item in items]
