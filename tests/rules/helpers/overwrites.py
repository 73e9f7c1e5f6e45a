"""Calls that write a tensor, from the op table and the methods, and programs around each of them.

A `Write` writes its target; `covers` says, by running it twice, whether nothing of the target's old
value is left. A `Program` writes what an argument holds, or what is seen of it through a view, and
gives it to a custom function that has a gradient for some of its operands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS, PureOp
from aotlite.testing.laws.samples.sample import Sample, arrays_in
from tests.samples import samples_of

GEOMETRY = ("t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_")
"""What other laws try: these write no element, nor do the next."""
STATE = ("requires_grad_", "detach_", "resize_", "resize_as_")


# ---------------------------------------------------------------------------------------- writes
@attrs.frozen(eq=False)
class Write:
    """A call that writes its first argument, of float64."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    run: Callable[..., Any]
    """Writes a target with operands and the call's keywords."""

    def __str__(self) -> str:
        return f"{self.name}{Sample(self.args, self.kwargs)}"

    @property
    def target(self) -> np.ndarray:
        """The array that is written."""
        found: np.ndarray = self.args[0]
        return found

    def written(self, start: np.ndarray) -> Any:
        """The target's bytes after the write, where it held `start` before."""
        al.manual_seed(1)
        target = al.from_numpy(start.copy())
        self.run(target, *map(tensors, self.args[1:]), **self.kwargs)
        return target.numpy().tobytes(), target.shape

    def covers(self) -> bool:
        """Whether nothing of the old value is left."""
        values = [self.target, *[np.full_like(self.target, each) for each in (2.5, -7.25, 0.0)]]
        found = [self.written(each) for each in values]
        return all(each == found[0] for each in found)


def tensors(value: Any, *, require: bool = False) -> Any:
    """A tensor for each array; those of floats are leaves that require grad, if asked for."""
    if isinstance(value, np.ndarray):
        made = al.from_numpy(value.copy())
        return made.requires_grad_(require and made.dtype.is_floating_point)
    if isinstance(value, (tuple, list)):
        return type(value)([tensors(each, require=require) for each in value])
    return value


def _method(name: str) -> Callable[..., Any]:
    if name in OPS:
        return partial(call, name)
    return lambda target, *args, **kwargs: getattr(target, name)(*args, **kwargs)


def _setitem(target: Any, key: Any, value: Any) -> None:
    target[key] = value


def _out(name: str) -> Callable[..., Any]:
    def run(target: Any, *args: Any, **kwargs: Any) -> None:
        with al.no_grad():  # a destination with a history is refused elsewhere
            getattr(al, name)(*args, out=target, **kwargs)

    return run


def _is_small(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float64 and 0 < array.size <= 64


def _spread(sample: Sample) -> Iterator[Sample]:
    """The sample, and it with masks that hold everywhere and indices that name all there is."""
    yield sample
    first = sample.args[0]
    if any(isinstance(a, np.ndarray) and a.dtype == bool for a in sample.args[1:]):
        yield attrs.evolve(sample, args=(first, *[_all_of(a, 0) for a in sample.args[1:]]))
    for size in sorted({*first.shape, first.size}):
        yield attrs.evolve(sample, args=(first, *[_all_of(a, size) for a in sample.args[1:]]))
        for values in (np.arange(size) + 0.5, first + 10):
            rest = [_all_of(a, size, values) for a in sample.args[1:]]
            yield attrs.evolve(sample, args=(first, *rest))


def _all_of(value: Any, size: int, values: np.ndarray | None = None) -> Any:
    """An argument with masks that hold, or `size` indices; with `values` as many of these."""
    if isinstance(value, tuple):
        return tuple([_all_of(each, size, values) for each in value])
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bool and not size:
        return np.ones_like(value)
    if value.dtype == np.int64 and size:
        found = np.arange(value.size).reshape(value.shape) if values is None else np.arange(size)
        return np.array(found % size)
    return value if values is None or value.dtype != np.float64 else values


def _runs(write: Write) -> bool:
    try:
        return write.written(write.target)[1] == write.target.shape
    except (al.AotliteError, TypeError):
        return False


def _of_methods() -> Iterator[Write]:
    """What every method whose name ends with `_` does with samples, or with what fits."""
    target = np.arange(6.0).reshape(2, 3) + 1
    for name in dir(al.Tensor):
        if not name.endswith("_") or name.startswith("_") or name in (*GEOMETRY, *STATE):
            continue
        given = [s for s in samples_of(name) if _is_small(s.args[0])] or [
            Sample((target,)), Sample((target, target + 10))
        ]  # fmt: skip
        for sample in given:
            for each in _spread(sample):
                yield Write(name, each.args, each.kwargs, _method(name))


def _of_indices() -> Iterator[Write]:
    """What is written by an index, which a sample of reading has, and `...`."""
    target = np.arange(6.0).reshape(2, 3) + 1
    keys = (..., slice(None), (0, slice(None)), (slice(None), 1), target > 3, target > 0, (None,))
    for key, value in product(keys, (np.array(0.5), 2.0)):
        yield Write("__setitem__", (target, key, value), {}, _setitem)
    yield Write("__setitem__", (target, ..., target * 3), {}, _setitem)
    yield Write("__setitem__", (target, np.array([1, 0]), target * 3), {}, _setitem)


def _of_out() -> Iterator[Write]:
    """What each op writes into `out=`, of which the samples say the shape."""
    for name, op in OPS.items():
        if not isinstance(op, PureOp) or not hasattr(al, name):
            continue
        for sample in samples_of(name)[:40]:
            try:
                result = getattr(al, name)(*map(tensors, sample.args), **sample.kwargs)
            except (al.AotliteError, TypeError):
                continue
            if isinstance(result, al.Tensor) and result.dtype is al.float64:
                start = np.ones(result.shape)
                if _is_small(start):
                    yield Write(f"{name}(out=)", (start, *sample.args), sample.kwargs, _out(name))


@cache
def writes() -> tuple[Write, ...]:
    """Of each way to write one that leaves nothing of the old value, if there is one, or else one
    that leaves something."""
    found: dict[tuple[str, bool], Write] = {}
    for write in (*_of_methods(), *_of_indices(), *_of_out()):
        if (write.name, True) not in found and _runs(write):
            found.setdefault((write.name, write.covers()), write)
    return tuple([w for (name, covers), w in found.items() if covers or (name, True) not in found])


def covering() -> tuple[Write, ...]:
    """The writes that leave nothing of the old value."""
    return tuple([write for write in writes() if write.covers()])


# ----------------------------------------------------------------------------------------- views
View = tuple[Callable[[np.ndarray], np.ndarray], Callable[[Any], Any]]
"""The array of which the target is a view, from the target's; and the view."""


def _reversed(array: np.ndarray) -> np.ndarray:
    return np.array(array.T)


VIEWS: dict[str, View] = {
    "itself": (np.array, lambda y: y),
    "alias": (np.array, lambda y: y.view_as(y)),
    "whole": (lambda a: np.array(a).reshape(-1), lambda y: y),
    "part": (lambda a: np.stack([a, a + 1]), lambda y: y[0]),
    "transposed": (_reversed, lambda y: y.permute(*reversed(range(y.dim())))),
    "bytes": (np.array, lambda y: y.view(al.int64).view(al.float64)),
}


# -------------------------------------------------------------------------------------- programs
def multiplied(gives: tuple[bool, bool], *, materialize: bool = True) -> Any:
    """A custom function of two tensors, with gradients of those that `gives` says."""

    class Multiplied(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return a * b, a + b

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            grad = second if first is None else first
            return tuple([grad if each else None for each in gives])

    return Multiplied


@attrs.frozen
class Program:
    """One function of a written argument; `taken` are the results that are differentiated."""

    write: Write = attrs.field(eq=False)
    view: str
    gives: tuple[bool, bool]
    materialize: bool
    taken: tuple[int, ...]

    def function(self) -> Callable[..., Any]:
        """The function of the argument, another tensor of its shape, and the operands."""
        see, write = VIEWS[self.view][1], self.write
        shape, kwargs = write.target.shape, write.kwargs
        apply = multiplied(self.gives, materialize=self.materialize).apply
        rest = write.args[1:]

        def written(y: Any, w: Any, *operands: Any) -> Any:
            target = see(y) if self.view != "whole" else y.view(shape)
            write.run(target, *_placed(rest, iter(operands)), **kwargs)
            first, second = apply(w, y)
            return first, second, w * 2

        return written

    def __str__(self) -> str:
        return f"{self.write} through {self.view}, {self.gives}, {self.materialize}, {self.taken}"


def programs(chosen: Iterable[Write]) -> Iterator[Program]:
    """All programs of these writes."""
    takes = ((0,), (1,), (2,), (0, 1), (0, 2))
    gives = ((True, True), (True, False), (False, True), (False, False))
    ways = product(VIEWS, gives, (True, False), takes)
    choices = list(ways)
    for write in chosen:
        for view, given, materialize, taken in choices:
            yield Program(write, view, given, materialize, taken)


def leaves_of(program: Program, make: Callable[[np.ndarray], Any] | None = None) -> list[Any]:
    """What the argument is computed from, the other tensor, and the operands; `make` makes the
    first two, where they are no plain tensors."""
    start = VIEWS[program.view][0](program.write.target)
    first = [start, np.full_like(start, 1.5)]
    made = [tensors(each, require=True) if make is None else make(each) for each in first]
    return made + [tensors(each, require=True) for each in arrays_in(program.write.args[1:])]


def gradients(
    program: Program,
    function: Callable[..., Any],
    make: Callable[[np.ndarray], Any] | None = None,
) -> Any:
    """The gradients of all leaves after a backward, None where there are none; or the error."""
    al.manual_seed(3)
    leaf, other, *operands = leaves_of(program, make)
    try:
        results = function(leaf * 1.0, other, *operands)
        total: Any = sum((results[k] * (k + 1)).sum() for k in program.taken)
        if total.requires_grad:
            total.backward()
    except al.AotliteError as error:
        return type(error)
    return [each.grad for each in (leaf, other, *operands)]


def _placed(args: tuple[Any, ...], operands: Iterator[Any]) -> tuple[Any, ...]:
    """The arguments of a call, with the operands in the places of its arrays."""
    found: list[Any] = []
    for each in args:
        if isinstance(each, np.ndarray):
            found.append(next(operands))
        else:
            found.append(_placed(each, operands) if isinstance(each, tuple) else each)
    return tuple(found)


def shown(found: Any) -> Any:
    """Gradients as lists, None where there are none."""
    if not isinstance(found, list):
        return found
    return [None if grad is None else grad.tolist() for grad in found]


def nones(found: Any) -> Any:
    """Whether each gradient is None."""
    return [grad is None for grad in found] if isinstance(found, list) else found
