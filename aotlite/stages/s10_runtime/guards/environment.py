"""Quick guards on the form of the objects that a function can reach: a flat list of tests.

`EnvironmentGuard` compares snapshots, and finds the place that differs. `EnvironmentTests` only
says whether all is equal, several times as fast. Stage 10 makes it from the live objects, and keeps
none of them but classes.
Rules: CAP-5, CAP-12. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import flatten, inner_tensors
from aotlite.eager.tracked_objects import TrackedObject
from aotlite.stages.records.guards.snapshots import (
    CALLED,
    IN_ALL,
    MANY,
    Snapshotter,
    Spec,
    is_apart,
)

Look = tuple[int, Any, Callable[..., bool] | None, Any]
"""(number of the holder or -1 for the roots, key, check, expected value)."""


Items = Iterator[tuple[int, Any, Any, bool]]
"""(number of the holder, key, value, whether it is inside a Module) of each."""


class EnvironmentTests:
    """Tests that values have the form that they have now."""

    __slots__ = ("_looks", "_start")

    def __init__(self, roots: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        """`tensors` are different objects; other guards check them."""
        builder = _Builder(roots, tensors)
        self._looks = builder.looks
        self._start = 0 if builder.has_tensors else len(tensors)

    def hold(self, roots: Sequence[Any], tensors: Sequence[Tensor]) -> bool:
        """Whether the values have this form; `roots` and `tensors` are given in the same order.

        Raises KeyError, IndexError or AttributeError if an object is missing.
        """
        holders: list[Any] = []
        seen: list[Any] = list(tensors)
        for holder, key, check, expected in self._looks:
            value = roots[key] if holder < 0 else holders[holder][key]
            if check is None:
                if value is not seen[expected]:
                    return False
            elif not check(value, expected, holders, seen):
                return False
        new = seen[self._start :]
        return len(set(map(id, new))) == len(new)


# ------------------------------------------------------------------------------------ the checks
def _is_module(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    kind, form, accepted = expected
    if type(value) is not kind:
        return False
    own = value.__dict__
    outline = tuple(own), tuple(map(type, own.values()))
    if outline not in accepted:
        # Plain attributes are guarded where they are read: they may come and go.
        if _form(own) != form:
            return False
        if len(accepted) < 8:
            accepted.add(outline)
    holders.append(own)
    seen.append(value)
    return True


def _form(own: dict[str, Any]) -> list[tuple[str, type]]:
    """The attributes of a Module that are no plain values, in order, with their types."""
    parts = (Tensor, TrackedObject, list, tuple, dict, type(None), *CALLED)
    return [(name, type(value)) for name, value in own.items() if isinstance(value, parts)]


def _is_sequence(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    kind, count = expected
    if type(value) is not kind or len(value) != count:
        return False
    holders.append(value)
    if not isinstance(value, tuple):
        seen.append(value)
    return True


def _is_dict(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    kind, keys, key_kinds = expected
    if type(value) is not kind or tuple(value) != keys or tuple(map(type, value)) != key_kinds:
        return False
    holders.append(value)
    seen.append(value)
    return True


def _is_tensor(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    seen.append(value)
    return type(value) is expected[0] and value.meta is expected[1]


def _is_wrapper(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    kind, meta, names, spec = expected
    if type(value) is not kind or value.meta is not meta:
        return False
    found, its = value.__tensor_flatten__()
    if [*found] != names or Spec(its) != spec:
        return False
    holders.append({name: getattr(value, name) for name in names})
    seen.append(value)
    return True


def _is_long(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    return type(value) is expected[0] and len(value) == expected[1]


def _is_plain_value(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    parts = (Tensor, TrackedObject, list, tuple, dict, *CALLED)
    return not isinstance(value, parts) and (value is None) is expected


def _is_leaf(value: Any, expected: Any, holders: list[Any], seen: list[Any]) -> bool:
    return bool(Snapshotter(deep=True).image(value) == expected)


# ----------------------------------------------------------------------------------- the building
class _Builder:
    """Walks the values as a `Snapshotter` does, and adds a test for each."""

    def __init__(self, roots: Sequence[Any], tensors: Sequence[Tensor]) -> None:
        self.looks: list[Look] = []
        self.has_tensors = False
        self.met = {id(tensor): i for i, tensor in enumerate(tensors)}
        self.holders = 0
        self.left = IN_ALL
        self.containers: set[int] = set()
        """Numbers of holders that are containers."""
        stack: list[Items] = [((-1, key, value, False) for key, value in enumerate(roots))]
        while stack:
            for holder, key, value, inside in stack[-1]:
                items = self._look(holder, key, value, inside)
                if items is not None:
                    stack.append(items)
                    break
            else:
                stack.pop()

    def _look(self, holder: int, key: Any, value: Any, inside: bool) -> Items | None:
        """Adds the test of a value; returns the items in it."""
        known = self.met.get(id(value))
        if known is not None:
            self.looks.append((holder, key, None, known))
        elif isinstance(value, Tensor):
            self.has_tensors = True
            if is_apart(value):
                return self._wrapper(holder, key, value)
            self._meet(value)
            self.looks.append((holder, key, _is_tensor, (type(value), value.meta)))
        elif isinstance(value, TrackedObject):
            own = dict(vars(value))
            outline = tuple(own), tuple(map(type, own.values()))
            expected = type(value), _form(own), {outline}
            return self._open(holder, key, value, _is_module, expected, own.items(), True)
        elif isinstance(value, (list, tuple, dict)):
            return self._container(holder, key, value, inside)
        elif not inside:
            self.looks.append((holder, key, _is_leaf, Snapshotter(deep=True).image(value)))
        elif holder in self.containers and not isinstance(value, CALLED):
            # Of what a Module holds, only that it is plain counts.
            self.looks.append((holder, key, _is_plain_value, value is None))
        return None

    def _wrapper(self, holder: int, key: Any, value: Tensor) -> Items:
        """The spec and parts of a wrapper, which a program can read without an op."""
        parts, spec = inner_tensors(value), Spec(flatten(value)[1])
        expected = type(value), value.meta, [*parts], spec
        return self._open(holder, key, value, _is_wrapper, expected, parts.items(), False)

    def _meet(self, value: Any) -> None:
        self.met[id(value)] = len(self.met)

    def _container(self, holder: int, key: Any, value: Any, inside: bool) -> Items | None:
        kind = type(value)
        if len(value) > min(MANY, self.left):
            self.looks.append((holder, key, _is_long, (kind, len(value))))
            return None
        self.left -= len(value)
        if not isinstance(value, dict):
            items = list(enumerate(value))
            return self._open(holder, key, value, _is_sequence, (kind, len(value)), items, inside)
        keys = tuple(value)
        expected = kind, keys, tuple(map(type, keys))
        return self._open(holder, key, value, _is_dict, expected, list(value.items()), inside)

    def _open(
        self, holder: int, key: Any, value: Any, check: Any, expected: Any, items: Any, inside: bool
    ) -> Items:
        self.looks.append((holder, key, check, expected))
        if not isinstance(value, tuple):
            self._meet(value)
        mine = self.holders
        self.holders += 1
        if check is not _is_module:
            self.containers.add(mine)
        return ((mine, name, item, inside) for name, item in items)
