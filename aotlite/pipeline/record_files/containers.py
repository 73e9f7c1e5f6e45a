"""Containers of results in a file: nested tuples, lists and dicts, with a number for each leaf.

Those of ops with named results, such as `x.sort()`, are found by name. A named tuple of a user's is
kept by its name and its fields, and read back as a named tuple of these without the class's methods
and bases. Registered classes have functions of theirs, and are refused.
Spec: `specs/record_files.md`, REC-4, REC-11.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
import optree
from optree import PyTreeSpec

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.files.values import Unread, count_from, each
from aotlite.ir.op.named_results import known_type

DEEPEST: Final = 16
"""The deepest nesting of containers."""
MOST: Final = 1_000_000
"""The most leaves."""
MOST_FIELDS: Final = 256
"""The most fields of a named tuple."""
MOST_KINDS: Final = 64
"""The most named tuples of a document; each is a class when it is read."""
FACTORIES: Final[Mapping[str, type]] = {
    each.__name__: each for each in (list, dict, set, tuple, int, float, str, bool)
}
"""What a `defaultdict` in a file may make, by name."""
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
    if kind is defaultdict and tree.default_factory in (None, *FACTORIES.values()):
        pairs = [[key(k), _written(item, key, depth + 1)] for k, item in tree.items()]
        factory = tree.default_factory
        return {"defaultdict": [None if factory is None else factory.__name__, pairs]}
    if kind is deque:
        items = [_written(item, key, depth + 1) for item in tree]
        return {"deque": items} if tree.maxlen is None else {"bounded": [tree.maxlen, items]}
    if optree.is_namedtuple_class(kind):
        tag = "results" if known_type(kind.__name__, kind._fields) is kind else "named"
        if tag == "results" or named_type(kind.__name__, kind._fields) is not None:
            items = [_written(item, key, depth + 1) for item in tree]
            return {tag: [kind.__name__, list(kind._fields), items]}
    raise noted(
        UnsupportedError(
            f"records: a container is a {kind.__qualname__}, expected a tuple, list, dict or named "
            "tuple"
        ),
        "A file holds no classes of users. Pass and return such a container, and make the object "
        "outside.",
    )


# ----------------------------------------------------------------------------------- named tuples
@lru_cache(4 * MOST_KINDS)
def named_type(name: str, fields: tuple[str, ...]) -> Any:
    """The named tuple of this name and these fields, one class for equal ones; None where there is
    no such class.

    >>> named_type("Pair", ("first", "second"))(1, 2)
    Pair(first=1, second=2)
    """
    if len(fields) > MOST_FIELDS:
        return None
    make: Any = namedtuple  # its first argument is a literal for type checkers
    try:  # it checks that all are identifiers, none a keyword, and none there twice
        made = make(name, fields, rename=any(field.startswith("_") for field in fields))
    except ValueError:
        return None
    made.__doc__ = f"{made.__doc__}: a named tuple of a file, by its name and fields."
    made.is_of_file = True
    made.__reduce__ = lambda self: (_remade, (name, fields, tuple(self)))
    return made if made._fields == fields else None


def _remade(name: str, fields: tuple[str, ...], items: tuple[Any, ...]) -> Any:
    """A named tuple in another process: pickles name it so."""
    return named_type(name, fields)(*items)


def has_class_of_user(spec: PyTreeSpec) -> str:
    """The name of a named tuple that a file has by name and fields alone; empty if there is none.

    >>> has_class_of_user(optree.tree_structure((1, {"a": [2]})))
    ''
    """
    kind: Any = spec.type
    if kind is not None and optree.is_namedtuple_class(kind):
        if known_type(kind.__name__, kind._fields) is not kind:
            return str(kind.__qualname__)
    return next(filter(None, map(has_class_of_user, spec.children())), "")


def is_same_by_name(got: PyTreeSpec, expected: PyTreeSpec) -> bool:
    """Whether containers are those of a file, with named tuples of any class in the place of those
    that the file has by name and fields."""
    if not _is_read(expected):
        return False
    try:
        return written_spec(got, repr) == written_spec(expected, repr)
    except UnsupportedError:
        return False


def _is_read(spec: PyTreeSpec) -> bool:
    """Whether a named tuple in it was read from a file."""
    return getattr(spec.type, "is_of_file", False) or any(map(_is_read, spec.children()))


# ----------------------------------------------------------------------------------------- reading
def spec_from(
    value: Any, key: Callable[[object], Any], named: Callable[[str, tuple[str, ...]], Any]
) -> PyTreeSpec:
    """The containers of JSON; `named` gives the class of a named tuple. Raises Unread."""
    if type(value) is not dict or value.keys() != {"tree"}:
        raise Unread(value, "containers")
    try:
        spec: Any = optree.tree_structure(_Trees(key, named).tree(value["tree"]), none_is_leaf=True)
    except (TypeError, ValueError, RecursionError):
        raise Unread(value, "keys that a dict has") from None
    return spec


@attrs.frozen
class _Trees:
    """Reads containers: keys of dicts by `key`, classes of named tuples by `named`."""

    key: Callable[[object], Any]
    named: Callable[[str, tuple[str, ...]], Any]

    def tree(self, value: Any) -> Any:
        """A container or a leaf."""
        if type(value) is int and count_from(value) == 0:
            return _LEAF
        if type(value) is not dict or len(value) != 1:
            raise Unread(value, "0 for a leaf, or a container")
        ((tag, items),) = value.items()
        match tag, items:
            case "tuple" | "list" | "deque", _:
                found = self._items(items, tag)
                return tuple(found) if tag == "tuple" else deque(found) if tag == "deque" else found
            case "dict" | "OrderedDict", _:
                pairs = self._pairs(items, tag)
                return pairs if tag == "dict" else OrderedDict(pairs)
            case "bounded", [int() as most, list() as found] if len(found) <= count_from(most):
                return deque(self._items(found, tag), maxlen=most)
            case "defaultdict", [str() | None as name, list() as pairs]:
                if name is None or name in FACTORIES:
                    factory = None if name is None else FACTORIES[name]
                    return defaultdict(factory, self._pairs(pairs, tag))
            case "results" | "named", [str() as name, list() as fields, list() as found] if len(
                fields
            ) == len(found) and all(type(field) is str for field in fields):
                kind = (known_type if tag == "results" else self.named)(name, tuple(fields))
                if kind is not None:
                    return kind(*self._items(found, tag))
        raise Unread(value, "a tuple, list, dict or named tuple")

    def _items(self, items: Any, tag: str) -> list[Any]:
        return each(self.tree, items, f".{tag}")

    def _pairs(self, items: Any, tag: str) -> dict[Any, Any]:
        pairs = each(self._pair, items, f".{tag}")
        made = dict(pairs)
        if len(made) != len(pairs):
            raise Unread(items, "no key twice")
        return made

    def _pair(self, value: Any) -> tuple[Any, Any]:
        if type(value) is not list or len(value) != 2:
            raise Unread(value, "a key and a value")
        return self.key(value[0]), self.tree(value[1])
