"""The part of optree that aotlite calls, for machines that have no optree and no network.

`install()` is for `benchmarks/gpu.py` alone: lists, tuples, named tuples and dicts are trees, and
nothing can be registered.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import attrs


@attrs.frozen
class Form:
    """The form of a tree."""

    type: Any
    """None for a leaf."""
    keys: tuple[Any, ...] = ()
    parts: tuple[Form, ...] = ()

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[Form]:
        return list(self.parts)

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum([part.num_leaves for part in self.parts])


def _items(tree: Any, none_is_leaf: bool) -> tuple[tuple[Any, ...], list[Any]] | None:
    if tree is None:
        return None if none_is_leaf else ((), [])
    if type(tree) in (dict, defaultdict):
        keys = tuple(sorted(tree)) if all(type(key) is str for key in tree) else tuple(tree)
        return keys, [tree[key] for key in keys]
    if type(tree) is OrderedDict:
        return tuple(tree), list(tree.values())
    if type(tree) in (list, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return tuple(range(len(tree))), list(tree)
    return None


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None, *, none_is_leaf: bool = False, **_: Any
) -> tuple[list[Any], Form]:
    """The leaves, and the form."""
    leaves: list[Any] = []

    def walk(value: Any) -> Form:
        found = None if is_leaf is not None and is_leaf(value) else _items(value, none_is_leaf)
        if found is None:
            leaves.append(value)
            return Form(None)
        keys, items = found
        return Form(type(value), keys, tuple([walk(item) for item in items]))

    return leaves, walk(tree)


def tree_unflatten(form: Form, leaves: Any) -> Any:
    """The tree of a form."""
    return _made(form, iter(leaves))


def _made(form: Form, leaves: Iterator[Any]) -> Any:
    if form.type is None:
        return next(leaves)
    parts = [_made(part, leaves) for part in form.parts]
    if form.type is type(None):
        return None
    if issubclass(form.type, dict):
        made = zip(form.keys, parts, strict=True)
        return OrderedDict(made) if form.type is OrderedDict else dict(made)
    return form.type(*parts) if hasattr(form.type, "_fields") else form.type(parts)


def tree_leaves(tree: Any, is_leaf: Any = None, **options: Any) -> list[Any]:
    """The leaves."""
    return tree_flatten(tree, is_leaf, **options)[0]


def tree_map(function: Callable[..., Any], tree: Any, *rests: Any, **options: Any) -> Any:
    """The tree with a function of its leaves, and of those of others."""
    leaves, form = tree_flatten(tree, **options)
    others = [tree_flatten(rest, **options)[0] for rest in rests]
    return tree_unflatten(form, [function(*each) for each in zip(leaves, *others, strict=True)])


def tree_paths(tree: Any, is_leaf: Any = None, **options: Any) -> list[tuple[Any, ...]]:
    """The keys that lead to each leaf."""
    found: list[tuple[Any, ...]] = []

    def walk(form: Form, path: tuple[Any, ...]) -> None:
        if form.type is None:
            found.append(path)
        for key, part in zip(form.keys, form.parts, strict=True):
            walk(part, (*path, key))

    walk(tree_flatten(tree, is_leaf, **options)[1], ())
    return found


def install() -> bool:
    """Installs the stand-in if optree is missing; returns whether it does."""
    if "optree" in sys.modules or importlib.util.find_spec("optree") is not None:
        return False
    module = ModuleType("optree", __doc__)
    for each in (tree_flatten, tree_unflatten, tree_leaves, tree_map, tree_paths):
        setattr(module, each.__name__, each)
    module.PyTreeSpec = Form  # type: ignore[attr-defined]
    module.__version__ = "0 (stand-in)"  # type: ignore[attr-defined]
    sys.modules["optree"] = module
    return True
