"""The code of one vector: wide loads, an unrolled loop over its points, wide stores.

Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import attrs

from aotlite.backends.c_family.c_types import from_memory, memory_type, to_memory
from aotlite.backends.c_family.loop_body import Body
from aotlite.backends.c_family.scalar_text import CScope, LocalElement
from aotlite.backends.cuda.emit.atomics import AtomicStores
from aotlite.backends.cuda.emit.kernel_code import IndexTypes
from aotlite.backends.cuda.emit.pointwise.contiguous_runs import (
    BYTES,
    ContiguousRun,
    ThreadMapping,
    moves,
    run_of,
    runs_of_stores,
)
from aotlite.backends.loops.program import Store, values_of
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Affine, Scalar


class VectorPhase(enum.Enum):
    """The phase of a vector that is printed: a thread loads all its vectors, then computes them."""

    LOAD = "load"
    COMPUTE = "compute"
    BOTH = "both"


Chunk = tuple[int, Affine, int]
"""A wide access: (buffer, address, number of elements)."""


class Vector:
    """Prints vectors of points into scopes."""

    def __init__(
        self, spread: ThreadMapping, body: Body, index: IndexTypes, settling: AtomicStores
    ) -> None:
        self.spread, self.body, self.index = spread, body, index
        self.settling = settling
        body.settled = settling.lines
        self.facts = body.facts
        self.masks: dict[int, int] = {}
        """For each buffer the low bits that must be 0 in its address, for wide accesses."""
        self.arrays: dict[Chunk, str] = {}
        self.staged: dict[Scalar, LocalElement] = {}
        """The loads whose values lie in tiles in shared memory."""
        self.operations = 0
        """The estimated operations of a point."""
        self.count = 0

    # --- wide accesses
    def has_runs(self, stores: Sequence[Store]) -> bool:
        """Whether the vector has a wide access."""
        return bool(self.spread.order and (self._loads(stores) or self._stored(stores)))

    def loaded_bytes(self, stores: Sequence[Store]) -> int:
        """Returns the bytes of all runs that a vector loads."""
        runs = {run: each.dtype.itemsize for each, run in self._loads(stores).items()}
        return sum(run.count * size for run, size in runs.items())

    def _loads(self, stores: Sequence[Store]) -> dict[Scalar, ContiguousRun]:
        """Returns the runs of loads that are executed at every point."""
        roots = [value for store in stores for value in values_of(store)]
        written = {store.buffer for store in stores}
        found: dict[Scalar, ContiguousRun] = {}
        for each in self.facts.in_order(roots):
            if each.op == "load" and each not in self.staged and moves(each.args[1], self.spread):
                number, address = each.args
                size, exact = self.facts.sizes[number], number in written
                run = run_of(number, address, self.spread, size, exact=exact)
                found |= {} if run is None else {each: run}
        return found

    def _stored(self, stores: Sequence[Store]) -> dict[int, ContiguousRun]:
        return runs_of_stores(stores, self.spread, self.facts.sizes)

    # --- text
    def printed(self, stores: Sequence[Store], parent: CScope, phase: VectorPhase) -> None:
        """Prints the vector into a scope that knows its first point."""
        if phase is VectorPhase.BOTH:
            self.arrays = {}
        places = self.body.writer.places = dict(self.staged)
        for load, run in self._loads(stores).items():
            chunks = [self._loaded(chunk, load.dtype, parent, phase) for chunk in _chunks(run)]
            element = _element(chunks, run, load.dtype)
            places[load] = LocalElement(self._axes(), element, load.dtype)
        if phase is not VectorPhase.LOAD:
            self._points(stores, parent)
        self.body.writer.places = {}

    def one(self, stores: Sequence[Store], scope: CScope) -> None:
        """Prints one point into a scope that knows it."""
        self.body.writer.places = dict(self.staged)
        self.body.stores(stores, scope)

    def take_arrays(self, abreast: int) -> list[str]:
        """Returns declarations of arrays for the loads of several vectors."""
        if abreast == 1:
            return []
        kinds = {chunk: self._type(self.body.kinds[chunk[0]], chunk[2]) for chunk in self.arrays}
        return [f"{kinds[chunk]} {text}[{abreast}];" for chunk, text in self.arrays.items()]

    def _axes(self) -> int:
        if self.spread.flat:
            return (1 << len(self.spread.extents)) - 1
        return 1 << self.spread.vector

    def _type(self, dtype: DType, count: int) -> str:
        return f"many<{memory_type(dtype)}, {count}>"

    def _name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def _loaded(self, chunk: Chunk, dtype: DType, parent: CScope, phase: VectorPhase) -> str:
        """Returns the name of a wide load, which is printed at its first use."""
        if chunk not in self.arrays:
            text = self.arrays[chunk] = self._name("w")
            place = self._place(chunk, parent)
            call = f"fetched<{chunk[2]}>({place})"
            if phase is VectorPhase.BOTH:
                parent.lines.append(f"const {self._type(dtype, chunk[2])} {text} = {call};")
            else:
                parent.lines.append(f"{text}[u] = {call};")
        return self.arrays[chunk] + ("" if phase is VectorPhase.BOTH else "[u]")

    def _place(self, chunk: Chunk, scope: CScope) -> str:
        """Returns the C text of the pointer of a wide access."""
        number, address, width = chunk
        size = width * self.body.kinds[number].itemsize
        self.masks[number] = max(self.masks.get(number, 0), min(size & -size, BYTES) - 1)
        if self.spread.flat:
            start = f" + {address.start}".replace("+ -", "- ") if address.start else ""
            return f"b{number} + point{start}"
        k = self.spread.vector
        inside = CScope(scope, 1 << k)
        inside.positions[k] = f"v{k}"
        return f"b{number} + ({self.body.writer.address(address, inside)})"

    def _points(self, stores: Sequence[Store], parent: CScope) -> None:
        """Prints the loop over the points, and the wide stores after it."""
        runs = self._stored(stores)
        names: dict[tuple[int, Affine], str] = {}
        for run in runs.values():
            key = run.buffer, run.address
            if key not in names:
                names[key] = self._name("o")
                kind = self._type(self.body.kinds[run.buffer], run.width)
                parent.lines.append(f"{kind} {names[key]}[{run.count // run.width}];")
        scope = CScope(parent, self._axes())
        values = [self.body.writer.value(store.value, scope) for store in stores]
        for k, run in runs.items():
            place = names[run.buffer, run.address] + _stored_element(run)
            kept = to_memory(self.body.kinds[run.buffer], values[k])
            scope.lines.append(f"{place} = {kept};")
        self.body.stores([store for k, store in enumerate(stores) if k not in runs], scope)
        parent.lines += self._loop(scope.lines)
        whole = {(run.buffer, run.address): (k, run) for k, run in runs.items()}
        for key, (k, run) in whole.items():
            for number, chunk in enumerate(_chunks(run)):
                place, made = self._place(chunk, parent), f"{names[key]}[{number}]"
                if stores[k].unordered:
                    kind = self._type(self.body.kinds[chunk[0]], chunk[2])
                    parent.lines.append(self.settling.run(kind, place, made))
                else:
                    parent.lines.append(f"put({place}, {made});")

    def _loop(self, lines: Sequence[str]) -> list[str]:
        """Returns the loop over the points of a vector, which is unrolled."""
        width, k, kind = self.spread.width, self.spread.vector, self.index.position
        if self.spread.flat:
            order = self.spread.order
            extents = [self.spread.extents[axis] for axis in order]
            places = self.index.digits([f"i{axis}" for axis in order], extents, "(point + e)")
        else:
            places = [f"const {kind} i{k} = v{k} + e;"]
        head = [f"for (i32 e = 0; e < {width}; ++e) {{"]
        head = ["#pragma unroll", *head] if width > 1 else ["{", "const i32 e = 0;"]
        return [*head, *places, *lines, "}"]


def _chunks(run: ContiguousRun) -> list[Chunk]:
    """Returns the wide accesses of a run."""
    starts = [run.address.start + k for k in range(0, run.count, run.width)]
    return [(run.buffer, attrs.evolve(run.address, start=start), run.width) for start in starts]


def _position(run: ContiguousRun) -> str:
    """Returns the C text of the run's element at point e."""
    text = {1: "e", -1: "-e"}.get(run.step, f"e * {run.step}")
    return f"{text} + {run.offset}" if run.offset else text


def _element(chunks: Sequence[str], run: ContiguousRun, dtype: DType) -> Callable[[CScope], str]:
    """Returns the C text of the value at point e."""
    place = _position(run)
    text = f"{chunks[-1]}.at[{_less(place, (len(chunks) - 1) * run.width)}]"
    for number in reversed(range(len(chunks) - 1)):
        own = f"{chunks[number]}.at[{_less(place, number * run.width)}]"
        text = f"({place} < {(number + 1) * run.width} ? {own} : {text})"
    found = text if dtype is dtypes.bool_ else from_memory(dtype, text)
    return lambda scope: found


def _less(place: str, number: int) -> str:
    return f"{place} - {number}" if number else place


def _stored_element(run: ContiguousRun) -> str:
    place = _position(run)
    if run.count == run.width:
        return f"[0].at[{place}]"
    return f"[({place}) / {run.width}].at[({place}) % {run.width}]"
