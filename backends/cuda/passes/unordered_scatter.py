"""Scatters made independent of the order of points, so that all points run at once (K-12).

    b1[i] += n, integers                    marked as it is: atomics give the same bits in any order
    b1[i] = v, the last one stays           a kernel finds the last point of each address by an
                                            atomic maximum, then all points store that one's value
    b1[i] += x, floats                      an exact sum of integers (`exact_sums.py`), if that is
                                            faster than stripes (`owner_scatter.py`)

With `deterministic=False` all scatters are marked, whatever the order does to their bits. Input: a
program after its other passes; output: one with the same results; but exact sums have other bits,
which are the same at each call. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math

import attrs

from aotlite.backends.cuda.emit.kernel_code import NARROW, apart
from aotlite.backends.cuda.emit.owner_scatter import cycles
from aotlite.backends.cuda.passes.exact_sums import MOST, ExactSum
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.analysis.affine import Forms, fixed, unit
from aotlite.backends.loops.analysis.expression_facts import facts, varies_along
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Step,
    Store,
    in_order,
    stores_of,
    values_of,
)
from aotlite.backends.loops.rewrite import Memo, moved, moved_body, without_lets
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import Size, hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, make

BYTES = 16
"""The bytes that a multiprocessor moves in a cycle, roughly."""
LAUNCH = 2000
"""The cycles of one more launch."""
SECTOR = 32
"""The bytes that one scattered access moves."""


def with_unordered(
    program: LoopProgram, target: Target, *, deterministic: bool = True, wide: bool = False
) -> LoopProgram:
    """Returns the program with stores in any order where that is right and faster. `wide`: a number
    of points that is symbolic may be any, else it is below `NARROW`."""
    if not any(_is_candidate(step) for step in program.steps):
        return program
    buffers, steps = list(program.buffers), list[Step]()
    for step in program.steps:
        if type(step) is Kernel and _is_candidate(step):
            scatter = _Scatter(step, buffers, target, None if wide else NARROW)
            steps += scatter.kernels(deterministic=deterministic)
        else:
            steps.append(step)
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(steps))


def _is_candidate(step: Step) -> bool:
    """Whether a kernel only scatters: stores alone, at loaded positions along inner axes."""
    if type(step) is not Kernel or 0 in step.extents or in_order(step):
        return False
    step = without_lets(step)
    stores = stores_of(step)
    if len(stores) < len(step.body) or math.prod(step.extents[step.space :]) == 1:
        return False
    written = {store.buffer for store in stores}
    loaded = {load.args[0] for s in stores for v in values_of(s) for load in facts(v).loads}
    if len(written) < len(stores) or written & loaded or any(store.each_row for store in stores):
        return False
    return any(store.address.dynamic for store in stores)


class _Scatter:
    """The rewriting of one kernel of stores."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: list[ProgramBuffer],
        target: Target,
        bound: int | None,
    ) -> None:
        self.kernel = without_lets(kernel)
        self.buffers, self.target = buffers, target
        self.inner = range(kernel.space, len(kernel.extents))
        points: Size = math.prod([kernel.extents[k] for k in self.inner])
        self.points = hint_of(points)
        """The number of points of a row; of symbolic sizes by the hints."""
        self.bound = points if type(points) is int else bound
        """The most points; None: any number."""

    def kernels(self, *, deterministic: bool) -> list[Step]:
        """Returns the kernels that replace it; itself if a store needs its order."""
        stores = stores_of(self.kernel)
        body = [self._marked(store, deterministic=deterministic) for store in stores]
        ordered = [store for store in body if not store.unordered]
        if apart(ordered, self.kernel.extents, range(len(self.kernel.extents))):
            return [attrs.evolve(self.kernel, body=tuple(body))]
        if len(body) == 1 and self.bound is not None and self.bound <= MOST:
            if body[0].combine is None and self._is_worth(body[0]):
                return self._by_last(body[0])
            if body[0].combine == "sum" and self._is_worth_exactly(body[0]):
                return self._by_exact_sums(body[0], self.bound)
        return [self.kernel]

    def _marked(self, store: Store, *, deterministic: bool) -> Store:
        if not store.address.dynamic:
            return store
        if store.combine is None:
            free = not any(self._varies(store.value, k) for k in self.inner)
        else:
            free = store.value.dtype.kind < dtypes.FLOATING and combiner(store.combine).is_exact
        return attrs.evolve(store, unordered=free or not deterministic)

    def _varies(self, value: Scalar, k: int) -> bool:
        """Whether a value may differ between points along an axis."""
        return is_axis(self.kernel.extents[k]) and varies_along(value, k)

    # --- sums of floats
    def _is_worth_exactly(self, store: Store) -> bool:
        """Whether exact sums take less time than stripes, by a model of both."""
        rows = hint_of(math.prod(self.kernel.extents[: self.kernel.space]))
        size, itemsize = hint_of(self._size(store.buffer)), store.value.dtype.itemsize
        places = 4 + 8 * ExactSum(store.value.dtype, self.points).parts
        units = self.points * rows
        moved_bytes = size * 2 * (places + itemsize) + units * 2 * (SECTOR + itemsize)
        return self._time(moved_bytes, 3) < self._stripes(store)

    def _by_exact_sums(self, store: Store, most: int) -> list[Step]:
        """Returns the kernels that clear sums and exponents, find the largest exponents, add, and
        store."""
        kernel, dtype = self.kernel, store.value.dtype
        exact, size = ExactSum(dtype, most), self._size(store.buffer)
        codes = self._temporary(dtypes.int32, size)
        sums = [self._temporary(dtypes.int64, size) for _ in range(exact.parts)]
        each = Affine((1,))
        nothing = [Store(codes, each, const(0, dtypes.int32))]
        nothing += [Store(number, each, const(0, dtypes.int64)) for number in sums]
        code = exact.code(store.value)
        find = Store(codes, store.address, code, combine="max", unordered=True)
        largest = load(codes, store.address, dtypes.int32)
        add = [
            Store(number, store.address, term, combine="sum", unordered=True)
            for number, term in zip(sums, exact.terms(store.value, largest), strict=True)
        ]
        found = [load(number, each, dtypes.int64) for number in sums]
        old = load(store.buffer, each, dtype)
        total = exact.added(old, found, load(codes, each, dtypes.int32))
        return [
            Kernel(f"{kernel.name}_none", (size,), 1, tuple(nothing)),
            attrs.evolve(kernel, name=f"{kernel.name}_largest", body=(find,), vector=None),
            attrs.evolve(kernel, name=f"{kernel.name}_sums", body=tuple(add), vector=None),
            Kernel(kernel.name, (size,), 1, (Store(store.buffer, each, total),)),
        ]

    # --- the last one stays
    def _is_worth(self, store: Store) -> bool:
        """Whether finding the last points takes less time than stripes, by a model of both."""
        rows = hint_of(math.prod(self.kernel.extents[: self.kernel.space]))
        size, _, forms = self._places(store)
        places = hint_of(size)
        units = self.points if forms is not None else self.points * rows
        moved_bytes = places * 4 + units * 2 * SECTOR + self.points * rows * SECTOR
        return self._time(moved_bytes, 2) < self._stripes(store)

    def _by_last(self, store: Store) -> list[Step]:
        """Returns the kernels that clear a place for each address, find the last point there, and
        store."""
        kernel = self.kernel
        size, address, forms = self._places(store)
        dtype = dtypes.int32
        number = self._temporary(dtype, size)
        nothing = Store(number, Affine((1,)), const(-1, dtype))
        first = Kernel(f"{kernel.name}_none", (size,), 1, (nothing,))
        find = Store(number, address, cast(self._point(), dtype), combine="max", unordered=True)
        last = attrs.evolve(kernel, name=f"{kernel.name}_last", body=(find,), vector=None)
        if forms is not None:
            count = len(self.inner)
            extents = kernel.extents[kernel.space :]
            body = moved_body((find,), forms, count)
            last = Kernel(last.name, extents, 0, body)
        value = self._of(store.value, cast(load(number, address, dtype), dtypes.int64))
        put = attrs.evolve(store, value=value, unordered=True)
        return [first, last, attrs.evolve(kernel, body=(put,))]

    def _places(self, store: Store) -> tuple[Size, Affine, Forms | None]:
        """Returns the number of places, the address of a point's place, and forms of the inner axes
        if neighboring rows share their last points; else None."""
        address, space = store.address, self.kernel.space
        size = self._size(store.buffer)
        if any(varies_along(v, k) for v, _ in address.dynamic for k in range(space)):
            return size, address, None
        count, inner = len(self.inner), address.coefficients[space:]
        if is_symbolic((size, *inner, address.start, *[step for _, step in address.dynamic])):
            return size, address, None
        grain = math.gcd(*inner, *[step for _, step in address.dynamic]) or 1
        # Where the first row stores, but with nothing between its addresses.
        first = Affine(
            (*[0] * space, *[c // grain for c in inner]),
            address.start // grain,
            tuple([(value, step // grain) for value, step in address.dynamic]),
        )
        forms = (*[fixed(0, count)] * space, *[unit(k, count) for k in range(count)])
        return (size - 1) // grain + 1, first, forms

    def _point(self) -> Scalar:
        """Returns the number of a point of its row, in order."""
        total: Scalar = const(0, dtypes.int64)
        for k in self.inner:
            total = total * self.kernel.extents[k] + axis(k) if k > self.inner[0] else axis(k)
        return total

    def _of(self, value: Scalar, point: Scalar) -> Scalar:
        """Returns a value at another point of the row, given by its number."""
        kernel, count = self.kernel, len(self.kernel.extents)
        forms = [unit(k, count) for k in range(count)]
        step = 1
        for k in reversed(self.inner):
            is_last = type(step) is int and step == 1
            digit = point if is_last else make("idiv", point, step)
            digit = make("irem", digit, kernel.extents[k]) if k > self.inner[0] else digit
            forms[k] = Affine((0,) * count, 0, ((digit, 1),))
            step *= kernel.extents[k]
        memo: Memo = {}
        return moved(value, tuple(forms), count, memo)

    # --- both
    def _time(self, moved_bytes: int, launches: int) -> float:
        """Returns the estimated cycles of kernels that move so many bytes."""
        return moved_bytes / (BYTES * self.target.multiprocessors) + launches * LAUNCH

    def _stripes(self, store: Store) -> int:
        """Returns the estimated cycles of stripes."""
        rows = hint_of(math.prod(self.kernel.extents[: self.kernel.space]))
        return cycles(rows, self.points, store, hint_of(self._size(store.buffer)), self.target)

    def _temporary(self, dtype: DType, size: Size) -> int:
        number = 1 + max([buffer.number for buffer in self.buffers])
        self.buffers.append(ProgramBuffer(number, dtype, size, BufferKind.TEMPORARY))
        return number

    def _size(self, number: int) -> Size:
        (found,) = [buffer.size for buffer in self.buffers if buffer.number == number]
        return found
