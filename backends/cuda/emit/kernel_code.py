"""The parts that all three kernel templates share: the code record, index types, positions.

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.c_family.scalar_text import CScope
from aotlite.backends.cuda.emit.memory_accesses import Sweep
from aotlite.backends.loops.analysis.affine import is_injective
from aotlite.backends.loops.program import (
    Statement,
    Store,
    values_of,
)
from aotlite.ir.geometry.sizes import Size, is_symbolic
from aotlite.ir.scalar.expression import Affine, walk
from aotlite.ir.symbols.proving import known_divisor

WARP = 32


@attrs.frozen
class KernelCode:
    """The lines of a kernel's body, and the grid for which they are written."""

    lines: list[str]
    blocks: Size
    threads: int
    resident: int = 0
    """The resident blocks of a multiprocessor that the launch bounds ask for; 0: no bound."""
    shared: int = 0
    """Bytes of dynamic shared memory."""
    sweeps: tuple[Sweep, ...] = ()
    """The accesses to memory, for `memory_traffic`; of a kernel for all sizes none are known."""
    short: tuple[Size, int, KernelCode] | None = None
    """(points of a row, the most of them, the code of the kernel for rows that are as short): of a
    kernel for all sizes that may keep values between passes."""
    units: Size = 1
    """What the blocks divide among them. A kernel for all sizes is not launched if it is 0."""


def constants_of(row: CScope) -> list[str]:
    """Returns the lines of values that vary over no axis."""
    return row.parent.lines if row.parent else []


def apart(stores: Sequence[Store], extents: Sequence[int], axes: range) -> bool:
    """Whether no two points along these axes store at one address, for sure."""
    if len({store.buffer for store in stores}) < len(stores):
        return False
    return all(not s.each_row and is_one_to_one(s.address, extents, axes) for s in stores)


def is_one_to_one(address: Affine, extents: Sequence[int], axes: range) -> bool:
    if address.dynamic:
        return False
    return is_injective([address.coefficients[k] for k in axes], [extents[k] for k in axes])


def divisor_of(size: Size, most: int) -> int:
    """Returns the largest common divisor of a size and `most`; of a symbolic size the largest one
    that divides it for all sizes.

    >>> divisor_of(12, 8)
    4
    """
    return known_divisor(size, most)


@attrs.frozen
class IndexTypes:
    """The C types of point numbers and positions: 32 bits if all of a kernel's fit."""

    item: str
    """The unsigned type that counts threads, vectors and points."""
    position: str

    @classmethod
    def of(
        cls, extents: Sequence[int], body: Sequence[Statement], *, wide: bool = False
    ) -> IndexTypes:
        """Returns the types for a kernel over these axes. For one of symbolic sizes `wide` says
        which: the text of 32 bits is for sizes at which all `reaches` are below `NARROW`."""
        known = [each for each in reaches(extents, body) if type(each) is int]
        found = wide or max(known, default=0) >= NARROW
        return cls("u64", "i64") if found else cls("u32", "i32")

    def unsigned(self, number: Size) -> str:
        """Returns the C text of a number that divides point numbers."""
        return f"{number}u" if type(number) is int else f"({self.item}){number}"

    def digits(self, names: Sequence[str], extents: Sequence[int], number: str) -> list[str]:
        """Returns declarations of the digits of a number in mixed radix; the last one runs
        fastest."""
        found, step = [], 1
        for place, (text, extent) in reversed(list(enumerate(zip(names, extents, strict=True)))):
            digit = number if step == 1 else f"{number} / {step}"
            digit = f"{digit} % {extent}" if place else digit
            digit = "0" if extent == 1 else digit
            found.append(f"const {self.position} {text} = ({self.position})({digit});")
            step *= extent
        return found[::-1]


def reaches(extents: Sequence[int], body: Sequence[Statement]) -> list[Size]:
    """Returns the number of points of a kernel, and bounds of its addresses' partial sums."""
    roots = [value for each in body for value in values_of(each)]
    addresses = [each.args[1] for each in walk(roots) if each.op == "load"]
    addresses += [each.address for each in body if isinstance(each, Store)]
    return [math.prod(extents), *[_most(address, extents) for address in addresses]]


def _most(address: Affine, extents: Sequence[int]) -> Size:
    """Returns a bound of all partial sums of an address."""
    steps = zip(address.coefficients, extents, strict=False)
    return abs(address.start) + sum(abs(c) * n for c, n in steps)


def is_sized(extents: Sequence[int], body: Sequence[Statement]) -> bool:
    """Whether a kernel is one for all sizes."""
    return is_symbolic((*extents, *reaches(extents, body)))


NARROW = 1 << 30
"""Numbers below this fit in 32 bits, even when a whole grid is added."""


def positions(axes: Sequence[int], extents: Sequence[int], index: str) -> list[str]:
    """Returns declarations of positions along axes, from a point's number in row-major order."""
    found, step = [], 1
    for place, k in reversed(list(enumerate(axes))):
        text = index if step == 1 else f"{index} / {step}"
        found.append(f"const i64 i{k} = {text}{f' % {extents[k]}' if place else ''};")
        step *= extents[k]
    return found[::-1]
