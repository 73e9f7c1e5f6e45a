"""`FrozenArguments`: the arguments that a caller fixes, as leading arguments of a function.

    freeze(f, x, kwargs={"scale": s})       bound(x, s, *args, **kwargs) = f(x, *args, scale=s, ...)
    freeze(module)                          bound(weight, bias, *args) = module(*args)

Fixed containers are flattened. Of a Module, also of one among the fixed arguments, the parameters
and buffers are leading arguments; they are read from the module at each call, so that one which was
replaced is noticed. Rules: FRZ-1, FRZ-6. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import own_attributes, substituting
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.nn.module import Module
from aotlite.nn.parameter import Buffer, Parameter
from aotlite.stages.records.guards.snapshots import PLAIN

Function = Callable[..., Any]


@attrs.frozen
class FixedPlace:
    """Where a parameter or buffer is an attribute."""

    path: str
    owner: Any = attrs.field(eq=id)
    name: str


@attrs.frozen
class Structure:
    """What the leading arguments are: one function is compiled for each structure."""

    places: tuple[FixedPlace, ...]
    spec: Any
    """The containers of the fixed arguments."""
    is_leaf: tuple[bool, ...]
    """Whether each fixed value is a leading argument; Modules and other objects are not."""


class FrozenArguments:
    """The fixed arguments of a function, and the modules among them."""

    def __init__(
        self, function: Function, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = dict(kwargs)
        flat: list[Any] = optree.tree_leaves(self._fixed, none_is_leaf=True)
        self._has_containers = len(flat) != len(args) + len(self.kwargs)
        self._flat = self._flattened() if not self._has_containers else None

    @property
    def _fixed(self) -> Any:
        return self.args, self.kwargs

    def _flattened(self) -> tuple[list[Any], Any]:
        flat, spec = optree.tree_flatten(self._fixed, none_is_leaf=True)
        return flat, spec

    def read(self) -> tuple[list[Any], Structure]:
        """The leading arguments as they are now, and what they are."""
        flat, spec = self._flat or self._flattened()  # a caller may have changed a list
        places = tuple(self._places(flat))
        leaves = [own_attributes(place.owner)[place.name] for place in places]
        is_leaf = tuple([isinstance(value, (*PLAIN, Tensor, np.ndarray)) for value in flat])
        leaves += [value for value, is_given in zip(flat, is_leaf, strict=True) if is_given]
        return leaves, Structure(places, spec, is_leaf)

    def _places(self, flat: Sequence[object]) -> Iterator[FixedPlace]:
        seen: set[int] = set()
        if isinstance(self.function, Module):
            yield from fixed_places(self.function, "", seen)
        for index, value in enumerate(flat):
            if isinstance(value, Module):
                yield from fixed_places(value, f"argument {index}", seen)

    def words(self, structure: Structure) -> list[str]:
        """The places of the leading arguments in words."""
        paths = [place.path for place in structure.places]
        found = optree.tree_paths(self._fixed, none_is_leaf=True)
        for (kind, first, *rest), is_given in zip(found, structure.is_leaf, strict=True):
            if is_given:
                name = f"argument {first}" if kind == 0 else f"argument {first!r}"
                paths.append(name + "".join([f"[{key!r}]" for key in rest]))
        return paths

    def bound(self, structure: Structure) -> Function:
        """The function of leading arguments, and of those that are left."""
        flat = optree.tree_leaves(self._fixed, none_is_leaf=True)
        pairs = zip(flat, structure.is_leaf, strict=True)
        others = tuple([value for value, is_given in pairs if not is_given])
        # A partial, in which captures find the function and the objects that it is given.
        bound: Any = partial(_call, structure, self.function, others)
        bound.__name__ = getattr(self.function, "__name__", type(self.function).__name__)
        with suppress(TypeError, ValueError):  # some C functions have none
            bound.__signature__ = self._signature(len(structure.places) + sum(structure.is_leaf))
        return bound

    def _signature(self, count: int) -> inspect.Signature:
        """That of the function without its fixed arguments, after the leading ones."""
        of = self.function.forward if isinstance(self.function, Module) else self.function
        own = list(inspect.signature(of).parameters.values())[len(self.args) :]
        only = inspect.Parameter.POSITIONAL_ONLY
        leading = [inspect.Parameter(f"_frozen_{i}", only) for i in range(count)]
        return inspect.Signature([*leading, *[p for p in own if p.name not in self.kwargs]])


def _call(
    structure: Structure,
    function: Function,
    others: tuple[object, ...],
    /,
    *args: object,
    **kwargs: object,
) -> object:
    """Calls the function with its fixed arguments, of which the leading ones are given."""
    places, first = structure.places, len(structure.places)
    given, rest = iter(args[first:]), iter(others)
    values = [next(given) if is_given else next(rest) for is_given in structure.is_leaf]
    fixed: Any = optree.tree_unflatten(structure.spec, values)
    before, named = fixed
    if STATE.recorder is None:  # eager: in anomaly mode, or at the recompile limit
        return function(*before, *given, **{**named, **kwargs})
    tensors = {(id(p.owner), p.name): args[i] for i, p in enumerate(places)}
    with substituting(tensors) as now:
        result = function(*before, *given, **{**named, **kwargs})
        for place in places:
            check_kept(place, tensors, now)
    return result


def check_kept(place: FixedPlace, given: Mapping[Any, object], now: Mapping[Any, object]) -> None:
    """Raises UnsupportedError if the function has put another tensor into an attribute."""
    key = id(place.owner), place.name
    if now[key] is not given[key]:
        raise noted(
            UnsupportedError(
                f"freeze: the function writes attribute {place.path!r} of its module, expected one "
                "that keeps what changes in a buffer and writes it in place"
            ),
            f"Write {place.name}.copy_(value). (FRZ-1)",
        )


def fixed_places(module: Module, prefix: str, seen: set[int]) -> Iterator[FixedPlace]:
    """The places of parameters and buffers of a module and those below it, each module once."""
    if id(module) in seen:
        return
    seen.add(id(module))
    below = []
    for name, value in own_attributes(module).items():
        kind = _kind(value)
        if kind is Module:
            below.append((name, value))
        elif kind is Parameter:
            yield FixedPlace(f"{prefix}.{name}" if prefix else name, module, name)
    for name, child in below:
        yield from fixed_places(child, f"{prefix}.{name}" if prefix else name, seen)  # type: ignore[arg-type]


_KINDS: dict[type, type] = {}
"""What instances of a class are: `Module`, `Parameter` (also buffers), or `object`."""


def _kind(value: object) -> type:
    kind: Any = type(value)
    found = _KINDS.get(kind)
    if found is None:
        if isinstance(value, Tensor) and kind.__tensor_dispatch__ is not None:
            return Parameter if isinstance(value, (Parameter, Buffer)) else object
        is_state = issubclass(kind, Tensor) and isinstance(value, (Parameter, Buffer))
        found = Parameter if is_state else Module if isinstance(value, Module) else object
        if len(_KINDS) < 4096:
            _KINDS[kind] = found
    return found
