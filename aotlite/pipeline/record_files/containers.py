"""Containers of results in a file: nested tuples, lists and dicts, with a number for each leaf.

Those of ops with named results, such as `x.sort()`, are found by name. Namedtuples and registered
classes of users have functions of theirs, and are refused.
Spec: `specs/record_files.md`, REC-4.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import optree
from optree import PyTreeSpec

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.files.values import Unread, count_from, each
from aotlite.ir.op.named_results import known_type

DEEPEST: Final = 16
"""The deepest nesting of containers."""
MOST: Final = 1_000_000
"""The most leaves."""
_NAMES: Final[Mapping[type, str]] = {
    tuple: "tuple",
    list: "list",
    dict: "dict",
    OrderedDict: "OrderedDict",
}


class _Leaf:
    """Stands for a leaf of a tree."""


_LEAF: Final = _Leaf()


def written_spec(spec: PyTreeSpec, key: Callable[[object], Any]) -> object:
    """The JSON of containers; `key` writes the key of a dict."""
    tree = optree.tree_unflatten(spec, [_LEAF] * spec.num_leaves)
    return {"tree": _written(tree, key, 0)}


def _written(tree: Any, key: Callable[[object], Any], depth: int) -> Any:
    if tree is _LEAF:
        return 0
    kind = type(tree)
    if depth > DEEPEST:
        raise UnsupportedError(f"records: results are nested more than {DEEPEST} deep")
    if kind in (tuple, list):
        return {_NAMES[kind]: [_written(item, key, depth + 1) for item in tree]}
    if kind in (dict, OrderedDict):
        pairs = [[key(k), _written(item, key, depth + 1)] for k, item in tree.items()]
        return {_NAMES[kind]: pairs}
    if kind is deque and tree.maxlen is None:
        return {"deque": [_written(item, key, depth + 1) for item in tree]}
    fields = getattr(kind, "_fields", ())
    if fields and known_type(kind.__name__, fields) is kind:
        items = [_written(item, key, depth + 1) for item in tree]
        return {"results": [kind.__name__, list(fields), items]}
    raise noted(
        UnsupportedError(
            f"records: a container is a {kind.__qualname__}, expected a tuple, list or dict"
        ),
        "A file holds built-in containers alone. Return one, and make the object of it outside.",
    )


def spec_from(value: Any, key: Callable[[object], Any]) -> PyTreeSpec:
    """The containers of JSON. Raises Unread."""
    if type(value) is not dict or value.keys() != {"tree"}:
        raise Unread(value, "containers")
    try:
        spec: Any = optree.tree_structure(_tree(value["tree"], key), none_is_leaf=True)
    except (TypeError, ValueError, RecursionError):
        raise Unread(value, "keys that a dict has") from None
    return spec


def _tree(value: Any, key: Callable[[object], Any]) -> Any:
    if type(value) is int and count_from(value) == 0:
        return _LEAF
    if type(value) is not dict or len(value) != 1:
        raise Unread(value, "0 for a leaf, or a container")
    ((tag, items),) = value.items()
    if tag in ("tuple", "list", "deque"):
        found = each(lambda item: _tree(item, key), items, f".{tag}")
        return tuple(found) if tag == "tuple" else deque(found) if tag == "deque" else found
    if tag == "results":
        return _results(items, key)
    if tag not in ("dict", "OrderedDict"):
        raise Unread(value, "a tuple, list or dict")
    pairs = each(lambda item: _pair(item, key), items, f".{tag}")
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Unread(items, "no key twice")
    return made if tag == "dict" else OrderedDict(pairs)


def _results(value: Any, key: Callable[[object], Any]) -> Any:
    """The results of an op by their names, of a type that some op has."""
    match value:
        case [str() as name, list() as fields, list() as items] if len(fields) == len(items):
            kind = known_type(name, tuple(map(str, fields)))
            if kind is not None:
                return kind(*each(lambda item: _tree(item, key), items, ".results"))
    raise Unread(value, "the name of an op with its results")


def _pair(value: Any, key: Callable[[object], Any]) -> tuple[Any, Any]:
    if type(value) is not list or len(value) != 2:
        raise Unread(value, "a key and a value")
    return key(value[0]), _tree(value[1], key)
