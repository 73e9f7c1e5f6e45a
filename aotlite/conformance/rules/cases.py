"""Shapes, layouts and arguments of cases as plain data, smallest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from aotlite.conformance.models.memory_model import Shape
from aotlite.conformance.models.model_arrays import Chain, Step, is_possible

SHAPES: tuple[Shape, ...] = (
    (1,), (2,), (3,), (0,), (), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (0, 2), (2, 0), (2, 1, 3),
)  # fmt: skip

LAYOUTS: dict[int, tuple[tuple[Step, ...], ...]] = {
    0: ((),),
    1: ((), (("slice", 0, 0, 2, 2),), (("slice", 0, 0, 3, 2),), (("narrow", 0, 1, 1),)),
    2: ((), (("transpose", 0, 1),), (("slice", 0, 0, 2, 2),), (("narrow", 1, 1, 1),)),
    3: ((), (("permute", (2, 0, 1)),)),
}
"""Number of dimensions -> steps to a dense, transposed, gapped or shifted layout."""


def layouts(shapes: Sequence[Shape] = SHAPES) -> Iterator[Chain]:
    """Every shape in every possible layout. A layout may reduce the shape."""
    for shape in shapes:
        for steps in LAYOUTS[len(shape)]:
            if is_possible((shape, steps)):
                yield shape, steps


def views(name: str, arguments: Sequence[tuple[object, ...]]) -> Iterator[Chain]:
    """Every layout followed by the view `name`, with each of the arguments that are possible."""
    for (shape, steps), given in itertools.product(layouts(), arguments):
        case = shape, (*steps, (name, *given))
        if is_possible(case):
            yield case
