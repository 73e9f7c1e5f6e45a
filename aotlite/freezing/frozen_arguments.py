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
from itertools import compress
from operator import not_
from typing import Any

import attrs
import numpy as np
import optree

from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import substituting
from aotlite.freezing.module_state import FixedPlace, ModuleState
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.nn.module import Module
from aotlite.pipeline.arguments import dict_orders
from aotlite.pipeline.containers.argument_writes import ArgumentCopies
from aotlite.pipeline.containers.leaf_paths import leaf_paths, steps_text
from aotlite.stages.records.guards.access_words import FRAME, name_of
from aotlite.stages.records.guards.snapshots import PLAIN

Function = Callable[..., Any]


@attrs.frozen
class Structure:
    """What the leading arguments are: one function is compiled for each structure."""

    places: tuple[FixedPlace, ...]
    spec: Any
    """The containers of the fixed arguments."""
    orders: Any
    """The orders of the keys of dictionaries in these, which specs do not compare."""
    is_leaf: tuple[bool, ...]
    """Whether each fixed value is a leading argument; Modules and other objects are not."""
    others: tuple[object, ...] = attrs.field(eq=lambda others: tuple(map(id, others)))
    """These Modules and objects, in order."""


class FrozenArguments:
    """The fixed arguments of a function, and the modules among them."""

    def __init__(
        self, function: Function, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = dict(kwargs)
        self._structure: Structure | None = None
        self._state = ModuleState(())
        every: Any = [*args, *self.kwargs.values()]
        flat: list[Any] = optree.tree_leaves(every, none_is_leaf=True)
        is_same = [a is b for a, b in zip(every, flat, strict=False)]
        self._has_containers = len(every) != len(flat) or not all(is_same)
        self._given: list[Any] = []
        """The fixed values that are leading arguments, where nobody can change them."""

    @property
    def _fixed(self) -> Any:
        return self.args, self.kwargs

    def _flattened(self) -> tuple[list[Any], Any]:
        flat, spec = optree.tree_flatten(self._fixed, none_is_leaf=True)
        return flat, spec

    def read(self) -> tuple[list[Any], Structure]:
        """The leading arguments as they are now, and what they are: the same object as before, if
        nothing has moved."""
        known = self._structure
        if known is not None and not self._has_containers:
            leaves = self._state.read()
            if self._state.places is known.places:
                return leaves + self._given, known
        flat, spec = self._flattened()  # a caller may have changed a list
        is_leaf = tuple([isinstance(value, (*PLAIN, Tensor, np.ndarray)) for value in flat])
        self._given = [value for value, given in zip(flat, is_leaf, strict=True) if given]
        others = tuple([value for value, given in zip(flat, is_leaf, strict=True) if not given])
        modules = tuple(self._modules(flat))
        if [each for _, each in modules] != [each for _, each in self._state.modules]:
            self._state = ModuleState(modules)
        leaves = self._state.read()
        orders = dict_orders(self._fixed) if self._has_containers else ()
        found = Structure(self._state.places, spec, orders, is_leaf, others)
        if found != known:
            self._structure = known = found
        assert known is not None
        return leaves + self._given, known

    def _modules(self, flat: Sequence[object]) -> Iterator[tuple[str, Module]]:
        if isinstance(self.function, Module):
            yield "", self.function
        for words, value in zip(self._words(), flat, strict=True):
            if isinstance(value, Module):
                yield words, value

    def _words(self) -> Iterator[str]:
        """The places of the fixed values in words."""
        for kind, first, *rest in leaf_paths(self._fixed):
            name = f"argument {first}" if kind == 0 else f"argument {first!r}"
            yield name + steps_text(rest)

    def _name(self, place: int | str) -> str:
        """The name of the parameter that a fixed argument fills, by its place or name."""
        parameters: list[str] = []
        with suppress(TypeError, ValueError):  # some C functions have none
            parameters = list(inspect.signature(_called(self.function)).parameters)
        if isinstance(place, str):
            return place
        return parameters[place] if place < len(parameters) else f"args[{place}]"

    def _names(self) -> Iterator[str]:
        """The names of the fixed values."""
        for _, first, *rest in leaf_paths(self._fixed):
            yield self._name(first) + steps_text(rest)

    def words(self, structure: Structure) -> list[str]:
        """The places of the leading arguments in words."""
        paths = [place.path for place in structure.places]
        return paths + [*compress(self._words(), structure.is_leaf)]

    def wrapped(self) -> Function:
        """A function in which captures find what a call of the frozen function reads."""
        fixed: Any = partial(self.function, *self.args, **self.kwargs)
        fixed.__dict__[FRAME] = {k: self._name(k) for k in (*range(len(self.args)), *self.kwargs)}

        def call(*args: object, **kwargs: object) -> object:
            return fixed(*args, **kwargs)

        made: Any = call
        made.__name__, made.__wrapped__ = name_of(self.function), fixed
        made.__dict__[FRAME] = {}
        return call

    def bound(self, structure: Structure) -> Function:
        """The function of leading arguments, and of those that are left."""
        function, others = self.function, structure.others

        def bound(*args: object, **kwargs: object) -> object:
            return _call(structure, function, others, *args, **kwargs)

        made: Any = bound
        made.__name__ = name_of(function)
        # Captures find here what the function reads, and the objects that it is given.
        made.__wrapped__ = partial(function, *others) if others else function
        made.__dict__[FRAME] = {}
        if others:
            names = compress(self._names(), map(not_, structure.is_leaf))
            made.__wrapped__.__dict__[FRAME] = dict(enumerate(names))
        leading = self.words(structure)

        def words(index: int) -> str:
            """As the caller of the function itself counts the arguments."""
            if index < len(leading):
                return leading[index]
            return f"argument {index - len(leading) + len(self.args)}"

        made.__argument_words__ = words
        with suppress(TypeError, ValueError):  # some C functions have none
            own = self._signature(len(structure.places) + sum(structure.is_leaf))
            made.__signature__ = own
        return bound

    def _signature(self, count: int) -> inspect.Signature:
        """That of the function without its fixed arguments, after the leading ones."""
        own = list(inspect.signature(_called(self.function)).parameters.values())[len(self.args) :]
        only = inspect.Parameter.POSITIONAL_ONLY
        leading = [inspect.Parameter(f"_frozen_{i}", only) for i in range(count)]
        return inspect.Signature([*leading, *[p for p in own if p.name not in self.kwargs]])


def _called(function: Function) -> Function:
    return function.forward if isinstance(function, Module) else function


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
    copies = ArgumentCopies.of(before, named)
    if STATE.recorder is None:  # eager: in anomaly mode, or at the recompile limit
        result = function(*before, *given, **{**named, **kwargs})
    else:
        tensors = {(id(p.owner), p.name): args[i] for i, p in enumerate(places)}
        with substituting(tensors) as now:
            result = function(*before, *given, **{**named, **kwargs})
            for place in places:
                check_kept(place, tensors, now)
    copies.refuse_writes("pass it to the frozen function instead of fixing it")
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
