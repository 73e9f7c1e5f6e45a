"""Strides that are other ones where a tensor has one element or none, as expressions.

Ground floor. `ones(1).expand(n)` has the stride 0, but 1 if n is 1; a copy of it has the stride 1,
but 0 if n is 0. One expression serves all sizes, so that no rule asks which of them it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.ir.geometry.sizes import Shape, Size, Stride, maximum, minimum, numel
from aotlite.ir.symbols.calls import Call
from aotlite.ir.symbols.polynomial import Atom, Terms, substitute
from aotlite.ir.symbols.symint import SymInt

__all__ = ["is_any", "is_one", "is_several", "where", "without_few"]


def is_one(size: Size) -> Size:
    """1 if the size is 1, else 0.

    >>> is_one(1), is_one(0), is_one(5)
    (1, 0, 0)
    """
    return maximum(0, minimum(size, 2 - size))


def is_any(count: Size) -> Size:
    """1 if the count is 1 or more, else 0.

    >>> is_any(0), is_any(1), is_any(5)
    (0, 1, 1)
    """
    return minimum(1, count)


def is_several(count: Size) -> Size:
    """1 if the count is 2 or more, else 0.

    >>> is_several(0), is_several(1), is_several(5)
    (0, 0, 1)
    """
    return minimum(1, maximum(0, count - 1))


def where(factor: Size, stride: Stride, other: Stride) -> Stride:
    """The strides of which the first ones count where the factor is 1, and the others where it is
    0.

    >>> where(is_any(0), (3, 1), (0, 0))
    (0, 0)
    """
    pairs = zip(stride, other, strict=True)
    return tuple([a if a is b else a * factor + b * (1 - factor) for a, b in pairs])


def without_few(shape: Shape, stride: Stride) -> Stride:
    """Strides by which each element of a tensor has the address that it has by these, as simple
    expressions: of a tensor without elements, and along dimensions of size 1, they are any numbers.

    `max(s0, 1)` becomes s0; `is_one` of the dimension's own size becomes 0; `is_any` of each size,
    and `is_any` and `is_several` of the number of elements, become 1.
    """
    if all(type(step) is int for step in stride):
        return stride
    count = numel(shape)
    sure = [(each, _ONE) for each in (is_several(count), is_any(count), *map(is_any, shape))]
    return tuple(
        [
            step if type(step) is int else _simple(step, [(is_one(size), {}), *sure])
            for size, step in zip(shape, stride, strict=True)
        ]
    )


_ONE: Terms = {(): 1}


def _has_one(atom: Call) -> bool:
    """Whether an operand is the number 1: symbols are not asked."""
    return any(type(each) is int and each == 1 for each in (atom.left, atom.right))


def _simple(step: object, known: Iterable[tuple[object, Terms]]) -> Size:
    assert isinstance(step, SymInt)
    values: dict[Atom, Terms] = {}
    for atom in {each for monomial in step.terms for each in monomial if isinstance(each, Call)}:
        value = step.table.of({(atom,): 1})
        values.update([(atom, terms) for other, terms in known if other is value])
        if atom.function == "max" and _has_one(atom):
            size = atom.right if type(atom.left) is int else atom.left
            values[atom] = step.table.terms_of(size)
    found: Size = step.table.of(substitute(step.terms, values))
    return _simple(found, known) if values and type(found) is not int else found
