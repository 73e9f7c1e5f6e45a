"""`Dim`, and what `dynamic_shapes=` says of the arguments of a call.

    compile(f, dynamic_shapes={"x": {0: Dim("batch")}})    by the names of the parameters
    compile(f, dynamic_shapes=({0: Dim("batch")},))        by their order

Each part of it must speak of some argument: a name that the function does not have is an error, not
a size that stays a number. Used by `choice`. Rules: DYN-1, DYN-3, DYN-26. Spec:
`specs/size_regions.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import attrs
import optree

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.tracked_objects import TrackedCallable
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.sizes import wrap_dim
from aotlite.pipeline.arguments import FlatArguments
from aotlite.pipeline.containers.leaf_paths import leaf_paths, steps_text
from aotlite.stages.records.symbolic_sizes import NumberSource, SizeRequest, SizeSource, Source


# ------------------------------------------------------------------------------------ dimensions
@attrs.frozen
class Dim:
    """A named dimension for `dynamic_shapes=`: equal names are one size, in every argument.

    `min` and `max` bound the sizes, both included.

    >>> import aotlite as al
    >>> batch = al.Dim("batch", max=512)
    >>> double = al.compile(lambda x: x * 2, dynamic_shapes={"x": {0: batch}})
    >>> [double(al.ones(n)).shape for n in (4, 5, 6)], len(double.entries)
    ([(4,), (5,), (6,)], 1)
    """

    name: str
    min: int | None = attrs.field(default=None, kw_only=True)
    max: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ArgumentError(f"Dim: its name is {self.name!r}, expected an identifier")
        check_bounds("Dim", self.min, self.max)

    def _no_arithmetic(self, other: object) -> NoReturn:
        raise ArgumentError(
            f"Dim: {self.name} is calculated with, expected Dims alone. Give each size a Dim of "
            "its own: what the function needs of them becomes a condition"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = _no_arithmetic
    __mul__ = __rmul__ = __floordiv__ = __mod__ = _no_arithmetic


def check_bounds(what: str, least: object, most: object) -> None:
    """Raises ArgumentError for bounds that are no sizes, or between which no size lies."""
    for name, bound in (("min", least), ("max", most)):
        if bound is not None and (type(bound) is not int or bound < 0):
            raise ArgumentError(f"{what}: {name} is {bound!r}, expected a size of at least 0")
    if least is not None and most is not None and least > most:  # type: ignore[operator]
        raise ArgumentError(
            f"{what}: min is {least} and max is {most}, expected bounds with a size between them"
        )


def wrapped_dim(what: str, dim: int, ndim: int) -> int:
    """`wrap_dim`, which takes True for 1, and 0 of a number. Raises ArgumentError for both."""
    if type(dim) is bool:
        raise ArgumentError(f"{what}: a dimension is {dim!r}, expected an int")
    if ndim == 0:
        has = "the tensor has no dimension"
        raise ArgumentError(f"{what}: {has}, expected one of dimension {dim!r}")
    return wrap_dim(dim, ndim, op=what)


# ------------------------------------------------------------------------- sizes that have a name
def named_sizes(
    function: Callable[..., object], call: FlatArguments, shapes: object
) -> dict[Source, SizeRequest | None]:
    """The sizes and ints of a call that `dynamic_shapes=` speaks of; None for one that is static.

    Raises ArgumentError where it speaks of no argument of the function.
    """
    if shapes is None:
        return {}
    asked = _Asked(function, call, shapes)
    found: dict[Source, SizeRequest | None] = {}
    whole: Any = (call.args, call.kwargs)
    places = zip(optree.tree_paths(whole, none_is_leaf=True), leaf_paths(whole), strict=True)
    for index, (path, named) in enumerate(places):
        found |= _of_leaf(index, call.leaves[index], asked.at(path), asked.where(named))
    asked.check_all_met()
    return {source: each and _agreed(each, found.values()) for source, each in found.items()}


_UNSAID = object()
_Path = tuple[object, ...]


class _Asked:
    """`dynamic_shapes=` for one call; remembers which parts of it were about some argument."""

    def __init__(
        self, function: Callable[..., object], call: FlatArguments, shapes: object
    ) -> None:
        self.shapes = shapes
        self.is_by_name = isinstance(shapes, Mapping)
        self.parameters = _parameters(function)
        kind = inspect.Parameter
        self.positional = self._of_kind(kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD)
        self.call = call
        self.met: set[_Path] = set()
        """The paths in `shapes` that lead to an argument."""
        self.leaves: set[_Path] = set()
        """Those that lead to a tensor or number: what is there is not for containers."""

    def at(self, path: _Path) -> object:
        """What is said of the leaf at a path of (args, kwargs)."""
        shapes, steps = self.shapes, tuple(self._steps(path))
        for n, step in enumerate(steps):
            if isinstance(shapes, Mapping):
                shapes = shapes.get(step, _UNSAID)
            elif isinstance(shapes, (list, tuple)) and type(step) is int and step < len(shapes):
                shapes = shapes[step]
            else:
                return _UNSAID
            self.met.add(steps[: n + 1])
        self.leaves.add(steps)
        return shapes

    def where(self, path: _Path) -> str:
        """The name of a leaf, as `dynamic_shapes=` has it."""
        return _where(tuple(self._steps(path)))

    def _steps(self, path: _Path) -> Iterator[object]:
        """The steps from `dynamic_shapes=` to what it says of a leaf."""
        which, key, *rest = path
        if isinstance(self.shapes, Mapping):
            yield from self._by_name(which == 1, key)
        else:
            yield key
        yield from rest

    def _by_name(self, is_keyword: bool, key: object) -> Iterator[object]:
        """A parameter's name, and for `*args` and `**kwargs` the position or key there."""
        if is_keyword:
            extra = self._of_kind(inspect.Parameter.VAR_KEYWORD)
            if key not in self.parameters and extra and extra[0] in dict(_items(self.shapes)):
                yield extra[0]
            yield key
            return
        assert isinstance(key, int)
        if key < len(self.positional):
            yield self.positional[key]
        elif rest := self._of_kind(inspect.Parameter.VAR_POSITIONAL):
            yield from (rest[0], key - len(self.positional))
        else:
            yield key

    def _of_kind(self, *kinds: object) -> list[str]:
        return [name for name, each in self.parameters.items() if each.kind in kinds]

    def check_all_met(self) -> None:
        """Raises ArgumentError for a part of `dynamic_shapes=` that is about no argument."""
        for key, each in _items(self.shapes):
            if (key,) in self.met or (key in self._rest() and self.is_by_name):
                self._check(each, (key,))
            elif not self._is_parameter(key):
                raise ArgumentError(
                    f"compile: dynamic_shapes has {key!r}, which is no parameter of the function, "
                    f"expected {self._expected()}"
                )

    def _check(self, shapes: object, path: _Path) -> None:
        if path in self.leaves or shapes is None:
            return
        where = _where(path)
        if not isinstance(shapes, (Mapping, list, tuple)):
            raise ArgumentError(
                f"compile: dynamic_shapes has {shapes!r} for {where}, which is a container, "
                "expected one for each of its elements"
            )
        for key, each in _items(shapes):
            if (*path, key) in self.met:
                self._check(each, (*path, key))
            elif each is not None and not self._may_be_left_out(path, key):
                raise ArgumentError(
                    f"compile: dynamic_shapes has {where}[{key!r}], which the call does not have, "
                    "expected an element of the argument"
                )

    def _may_be_left_out(self, path: _Path, key: object) -> bool:
        """Whether it is one of `*args` or `**kwargs`, which other calls may have."""
        kinds: dict[Any, type] = {
            inspect.Parameter.VAR_POSITIONAL: int,
            inspect.Parameter.VAR_KEYWORD: str,
        }
        if len(path) > 1 or not self.is_by_name or path[0] not in self._rest():
            return False
        is_known = type(key) is kinds[self.parameters[str(path[0])].kind]
        return is_known and (type(key) is not int or key >= 0)

    def _rest(self) -> list[str]:
        kind = inspect.Parameter
        return self._of_kind(kind.VAR_POSITIONAL, kind.VAR_KEYWORD)

    def _is_parameter(self, key: object) -> bool:
        """Whether it is a parameter; the call may have left it out."""
        if isinstance(self.shapes, Mapping):
            return key in self.parameters
        has_rest = bool(self._of_kind(inspect.Parameter.VAR_POSITIONAL))
        return has_rest or type(key) is int and key < len(self.parameters)

    def _expected(self) -> str:
        names = ", ".join(map(repr, self.parameters))
        if not names:
            return "a tuple in the order of the arguments"
        return (
            f"{names}" if isinstance(self.shapes, Mapping) else f"at most one for each of {names}"
        )


def _where(path: _Path) -> str:
    first = path[0] if type(path[0]) is str else f"argument {path[0]}"
    return f"{first}{steps_text(path[1:])}"


def _items(shapes: object) -> Iterator[tuple[object, object]]:
    if isinstance(shapes, Mapping):
        yield from shapes.items()
    elif isinstance(shapes, (list, tuple)):
        yield from enumerate(shapes)


def _parameters(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """The parameters by name: those of `forward` for a Module, none for some C functions."""
    try:
        whole = function.forward if isinstance(function, TrackedCallable) else function
        return inspect.signature(whole).parameters
    except (TypeError, ValueError):
        return {}


# ------------------------------------------------------------------------------- of one argument
def _of_leaf(
    index: int, leaf: object, asked: object, where: str
) -> Iterable[tuple[Source, SizeRequest | None]]:
    if asked is _UNSAID or leaf is None:
        return []
    if type(leaf) in (int, float):
        if isinstance(asked, (Mapping, list, tuple)):
            raise ArgumentError(
                f"compile: dynamic_shapes has {asked!r} for {where}, which is {leaf!r} in this "
                "call, expected a tensor there, or a Dim, True or None"
            )
        return [(NumberSource(index), _request(asked, where))]
    if asked is None:
        return []
    return [(SizeSource(index, dim), each) for dim, each in _of_tensor(asked, leaf, where).items()]


def _of_tensor(shapes: object, leaf: object, where: str) -> dict[int, SizeRequest | None]:
    """What is said of the dimensions of one leaf."""
    if not isinstance(leaf, Tensor):
        raise ArgumentError(
            f"compile: dynamic_shapes speaks of {where}, which is {leaf!r} in this call, expected "
            "tensors, ints and floats"
        )
    if not isinstance(shapes, Mapping):
        raise ArgumentError(
            f"compile: dynamic_shapes has {shapes!r} for {where}, a tensor, expected a dict from "
            "dimensions to Dims"
        )
    found: dict[int, SizeRequest | None] = {}
    for dim, each in shapes.items():
        wrapped = wrapped_dim(f"dynamic_shapes of {where}", dim, leaf.ndim)
        if wrapped in found:
            raise ArgumentError(
                f"compile: dynamic_shapes has dimension {wrapped} of {where} twice, the second "
                f"time as {dim}, expected it once"
            )
        found[wrapped] = _request(each, f"dimension {wrapped} of {where}")
    return found


def _request(each: object, where: str) -> SizeRequest | None:
    if each is None:
        return None
    if each is True:
        return SizeRequest(is_marked=True, in_shapes=True)
    if isinstance(each, Dim):
        return SizeRequest(each.min, each.max, each.name, is_marked=True, in_shapes=True)
    raise ArgumentError(
        f"compile: dynamic_shapes has {each!r} for {where}, expected a Dim, True or None"
    )


def _agreed(asked: SizeRequest, others: Iterable[SizeRequest | None]) -> SizeRequest:
    """The request with the bounds of all dimensions of its name."""
    of_name = [each for each in others if each is not None and each.name == asked.name]
    if asked.name is None or len(of_name) == 1:
        return asked
    least = max([each.least for each in of_name if each.least is not None], default=None)
    most = min([each.most for each in of_name if each.most is not None], default=None)
    if least is not None and most is not None and least > most:
        raise ArgumentError(
            f"compile: dimension {asked.name!r} has min={least} in one place and max={most} in "
            "another, expected bounds with a size between them"
        )
    return attrs.evolve(asked, least=least, most=most)
