"""The view that a script's user has at one moment, and the differences of two views.

Looking changes nothing: not the facts that guards go by, and not the tape, whose nodes scripts ask
for in lines of their own. Rules: GEN-11, META-10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.tensor_facts import Mark, facts_of
from aotlite.eager.tracked_objects import TrackedObject


@attrs.frozen
class Seen:
    """The observation of one tensor; a gradient has fewer fields."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool
    storage: int
    values: Any
    offset: int | None = None
    version: int | None = None
    base: int | None = None
    is_leaf: bool | str | None = None


@attrs.define
class View:
    """Everything at one moment. Objects and storages are numbered as they first appear."""

    shapes: dict[str, Any] = attrs.field(factory=dict)
    """Each variable: a number for each object, in its containers, and other values as they are."""
    tensors: list[Seen] = attrs.field(factory=list)
    generator: Any = None
    grad_mode: bool = True


class _Observer:
    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.names: list[str] = []
        self.numbers: dict[int, int] = {}
        self.gradients: set[int] = set()
        self.returned: list[tuple[str, Any]] = []

    def shape(self, value: Any, name: str) -> Any:
        """The value with numbers for tensors and ndarrays, which are noted."""
        if isinstance(value, al.Tensor) and name.startswith("g"):
            self.returned.append((name, value))
            return "a gradient"
        if isinstance(value, (al.Tensor, np.ndarray)):
            return f"object {self.number(value, name)}"
        if isinstance(value, (list, tuple)):
            items = [self.shape(item, f"{name}[{i}]") for i, item in enumerate(value)]
            return [type(value).__name__, *items]
        if isinstance(value, dict):
            return {key: self.shape(item, f"{name}[{key!r}]") for key, item in value.items()}
        if isinstance(value, TrackedObject):
            items = [(k, self.shape(v, f"{name}.{k}")) for k, v in vars(value).items()]
            return [type(value).__name__, *items]
        plain = value is None or isinstance(value, (bool, int, float, complex, str))
        return (type(value).__name__, repr(value) if plain else "")

    def number(self, value: Any, name: str) -> int:
        found = self.numbers.get(id(value))
        if found is None:
            found = self.numbers[id(value)] = len(self.kept)
            self.kept.append(value)
            self.names.append(name)
            if name.endswith(".grad"):
                self.gradients.add(found)
            if isinstance(value, al.Tensor) and value.grad is not None:
                self.number(value.grad, f"{name}.grad")
        return found


def observe(scope: dict[str, Any]) -> View:
    """The view of a script's variables, those in capitals and helpers aside."""
    from tests.end_to_end.helpers.scripts import HELPERS

    observer = _Observer()
    view = View(generator=al.get_rng_state(), grad_mode=al.is_grad_enabled())
    for name, value in scope.items():
        own = name not in HELPERS and not name.startswith("__")
        if own and (isinstance(value, TrackedObject) or not callable(value)):
            view.shapes[name] = observer.shape(value, name)
    storages: dict[int, int] = {}
    for number, value in enumerate(observer.kept):
        view.tensors.append(_seen(observer, number, value, storages))
    view.tensors += [_returned(name, value) for name, value in observer.returned]
    return view


def _returned(name: str, value: Any) -> Seen:
    """Of a gradient that `grad` gave: eager's may be the very one that was given, or lie on it."""
    shape = tuple(value.shape)
    return Seen(name, "Tensor", str(value.dtype), shape, (), False, -2, value.detach().tolist())


def _seen(observer: _Observer, number: int, value: Any, storages: dict[int, int]) -> Seen:
    name = observer.names[number]
    if isinstance(value, np.ndarray):
        return Seen(
            name, "ndarray", str(value.dtype), value.shape, value.strides, False, -1, value.tolist()
        )
    check_facts(value)
    storage = storages.setdefault(id(value.storage), len(storages))
    shape, stride = tuple(value.shape), tuple(value.stride())
    values = value.detach().tolist()
    if number in observer.gradients:
        telling = [s for n, s in zip(shape, stride, strict=True) if n > 1]
        stride = tuple(telling) if value.numel() else ()
        kind, dtype = type(value).__name__, str(value.dtype)
        return Seen(name, kind, dtype, shape, stride, value.requires_grad, storage, values)
    base = value.base
    return Seen(
        name,
        type(value).__name__,
        str(value.dtype),
        shape,
        stride,
        value.requires_grad,
        storage,
        values,
        value.storage_offset(),
        value.version,
        None if base is None else observer.numbers.get(id(base), -1),
        value.is_leaf if value.base is None else "not asked",
    )


def check_facts(value: Any) -> None:
    """Checks that the facts cached for guards are those computed anew, and stay cached."""
    kept, value.facts = value.facts, None
    found = facts_of(value)
    value.facts = kept
    known = kept.facts if isinstance(kept, Mark) else kept
    assert known is None or known is found, f"{value.meta} remembers {known}, and is {found}"


# ---------------------------------------------------------------------------------- the comparing
def differences(compiled: View, eager: View) -> list[str]:
    """The differences, one line each."""
    found = []
    for field in ("shapes", "generator", "grad_mode"):
        mine, its = getattr(compiled, field), getattr(eager, field)
        if field == "shapes":
            changed = {name for name in {*mine, *its} if mine.get(name) != its.get(name)}
            mine, its = [{k: v for k, v in each.items() if k in changed} for each in (mine, its)]
        if mine != its:
            found.append(f"{field}: compiled {mine}, eager {its}")
    if found:
        return found
    unreachable = _unreachable_storages(eager)
    for mine, its in zip(compiled.tensors, eager.tensors, strict=True):
        found += _tensor_differences(compiled, mine, its, unreachable)
    return found


def _unreachable_storages(eager: View) -> set[int]:
    """The storages that tensors lie on whose base nobody can reach (META-10)."""
    return {each.storage for each in eager.tensors if each.base == -1}


def _tensor_differences(compiled: View, mine: Seen, its: Seen, unreachable: set[int]) -> list[str]:
    if mine == its:
        return []
    found = []
    for field in attrs.fields(Seen):
        a, b = getattr(mine, field.name), getattr(its, field.name)
        same = a == b or (field.name == "values" and same_numbers(a, b, its.dtype))
        may_differ = its.storage in unreachable and _is_unobservable(
            field.name, compiled, mine, its
        )
        if not same and not may_differ:
            found.append(f"{its.name}.{field.name}: compiled {a}, eager {b}")
    return found


def _is_unobservable(name: str, compiled: View, mine: Seen, its: Seen) -> bool:
    """META-10: the first to be seen on a storage may be its base, and start where it starts."""
    first = next(each for each in compiled.tensors if each.storage == mine.storage)
    match name:
        case "base":
            return its.base == -1 and (mine.base is None or compiled.tensors[mine.base] is first)
        case "is_leaf":
            return its.base == -1
        case "offset":
            return first.base is None and first.offset == 0
    return False


_CLOSE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4}


def same_numbers(a: Any, b: Any, dtype: str) -> bool:
    """Equal; of floating dtypes but for the order of sums."""
    close = _CLOSE.get(dtype.rpartition(".")[2], 5e-2 if "float" in dtype else 0.0)
    mine, its = list(_flat(a)), list(_flat(b))
    if len(mine) != len(its):
        return False
    finite = [abs(x) for x in its if np.isfinite(x)]
    room = close * max([1.0, *finite])
    return all(_near(x, y, room) for x, y in zip(mine, its, strict=True))


def _near(x: Any, y: Any, room: float) -> bool:
    if x == y or (x != x and y != y):
        return True
    return bool(np.isfinite(x) and np.isfinite(y) and abs(x - y) <= room)


def _flat(values: Any) -> Sequence[Any]:
    if not isinstance(values, list):
        return [values]
    return [number for item in values for number in _flat(item)]
