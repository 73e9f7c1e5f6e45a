"""An array library in plain Python with forward derivatives: the model of the autograd rules.

Its memory holds dual numbers: a value, and its derivative for each element of each leaf. Views are
those of `memory_model`, so that writes through any alias need no rule here, and gradients no graph.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.conformance.adapter import Adapter
from aotlite.conformance.models.memory_model import View, dense, nested

_ELEMENTS = itertools.count()


@attrs.frozen
class Dual:
    """A number, and its derivative with regard to each leaf element on which it depends.

    >>> Dual(3.0, {0: 1.0}) * Dual(2.0) + Dual(1.0, {1: 1.0})
    Dual(value=7.0, slopes={0: 2.0, 1: 1.0})
    """

    value: float
    slopes: dict[int, float] = attrs.field(factory=dict)

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, _combined(self, 1.0, other, 1.0))

    def __mul__(self, other: Dual) -> Dual:
        slopes = _combined(self, other.value, other, self.value)
        return Dual(self.value * other.value, slopes)


def _combined(one: Dual, scale: float, two: Dual, factor: float) -> dict[int, float]:
    slopes = {element: slope * scale for element, slope in one.slopes.items()}
    for element, slope in two.slopes.items():
        slopes[element] = slopes.get(element, 0.0) + slope * factor
    return slopes


@attrs.frozen(eq=False)
class Sketch:
    """An array of the model. A detached one reads without slopes, and keeps the slopes of the
    memory that it writes."""

    view: View
    is_detached: bool = False

    def read(self) -> list[Dual]:
        """The elements in row-major order."""
        found = self.view.values()
        return [Dual(each.value) for each in found] if self.is_detached else found


class DualModel(Adapter):
    """The model as an adapter. It refuses nothing: call it only for legal operations."""

    name = "model"

    def __init__(self) -> None:
        self._records = True

    def from_list(self, values: list[Any], dtype: str) -> Sketch:
        array = [values] if not isinstance(values, list) else values
        shape = _shape_of(values)
        for _ in shape[1:]:
            array = list(itertools.chain.from_iterable(array))
        return _new([Dual(float(value)) for value in array], shape)

    def to_list(self, a: Sketch) -> Any:
        return nested([each.value for each in a.read()], a.view.shape)

    def requires_grad_(self, a: Sketch, flag: bool) -> Sketch:
        a.view.update(lambda old: Dual(old.value, {next(_ELEMENTS): 1.0} if flag else {}))
        return a

    def slopes(self, a: Sketch, gradient: Sequence[float], x: Sketch) -> Any:
        """The gradient of leaf `x`, given that of each element of `a`, as nested lists."""
        found = []
        for element in (element for each in x.read() for element in each.slopes):
            each = [dual.slopes.get(element, 0.0) for dual in a.read()]
            found.append(sum(map(operator.mul, gradient, each)))
        return nested(found, x.view.shape)

    def detach(self, a: Sketch) -> Sketch:
        return Sketch(a.view, is_detached=True)

    # --- writes

    def copy_(self, a: Sketch, b: Sketch) -> Sketch:
        return self._write(a, _operand(a, b))

    def fill_(self, a: Sketch, number: float) -> Sketch:
        return self._write(a, _operand(a, number))

    def add_(self, a: Sketch, b: Sketch | float) -> Sketch:
        return self._write(a, _both(a, b, Dual.__add__))

    def mul_(self, a: Sketch, b: Sketch | float) -> Sketch:
        return self._write(a, _both(a, b, Dual.__mul__))

    def _write(self, a: Sketch, values: list[Dual]) -> Sketch:
        if a.is_detached or not self._records:
            old = a.view.values()
            values = [Dual(new.value, was.slopes) for new, was in zip(values, old, strict=True)]
        a.view.write(values)
        return a

    @contextlib.contextmanager
    def no_grad(self) -> Iterator[None]:
        self._records = False
        yield
        self._records = True

    # --- functional ops

    def add(self, a: Sketch, b: Sketch | float) -> Sketch:
        return _new(_both(a, b, Dual.__add__), a.view.shape)

    def mul(self, a: Sketch, b: Sketch | float) -> Sketch:
        return _new(_both(a, b, Dual.__mul__), a.view.shape)

    def clone(self, a: Sketch) -> Sketch:
        return _new(a.read(), a.view.shape)


def _view(name: str) -> Callable[..., object]:
    """A method of `DualModel` that returns the views of `model`."""

    def make(self: DualModel, a: Sketch, *arguments: object) -> Any:
        made = getattr(a.view, name)(*arguments)
        if isinstance(made, View):
            return Sketch(made, a.is_detached)
        return [Sketch(view, a.is_detached) for view in made]

    return make


for _name in (
    "view", "transpose", "expand", "select", "narrow", "slice", "squeeze", "unsqueeze",
    "diagonal", "as_strided", "unfold", "split", "unbind",
):  # fmt: skip
    setattr(DualModel, _name, _view(_name))


def _shape_of(values: object) -> tuple[int, ...]:
    """The shape of nested lists, all as long as the first of them."""
    if not isinstance(values, list):
        return ()
    return len(values), *(_shape_of(values[0]) if values else ())


def _new(cells: list[Dual], shape: tuple[int, ...]) -> Sketch:
    return Sketch(dense(cells, shape))


def _both(a: Sketch, b: Sketch | float, op: Callable[[Dual, Dual], Dual]) -> list[Dual]:
    return [op(one, two) for one, two in zip(a.read(), _operand(a, b), strict=True)]


def _operand(a: Sketch, b: Sketch | float) -> list[Dual]:
    """The elements of an operand, broadcast to the shape of `a`."""
    if isinstance(b, Sketch):
        return Sketch(b.view.expand(a.view.shape), b.is_detached).read()
    return [Dual(float(b))] * math.prod(a.view.shape)
