"""The interpreter of one kernel: NumPy operations on a block of points at a time.

Each scalar of the kernel becomes an array that broadcasts over the block. Blocks have at most
`POINTS` points, so that these arrays stay in a cache, and each array is dropped after its last use.
Blocks come in ascending order, so that sums and stores have the order of the IR. Spec:
`specs/loops.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.interpreter.partial_reductions import Partials, Scanned, joined
from aotlite.backends.loops.program import Kernel, Reduce, Scan, Statement, Store, values_of
from aotlite.backends.loops.rewrite import without_lets
from aotlite.ir.arrays import Array
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.evaluation import Uses, apply, filled, uses_of
from aotlite.ir.scalar.expression import Affine, Scalar, unknown

Memory = dict[int, Array]
"""The flat array of each buffer."""
Box: TypeAlias = tuple[tuple[int, int], ...]
"""A block: (begin, end) of the positions along each axis."""

POINTS = 1 << 16
"""The most points of a block: an array of 64-bit values takes half a megabyte, and fits in a
second-level cache."""


def boxes(extents: Sequence[int], most: int) -> Iterator[Box]:
    """Yields all points in ascending order, as boxes of at most `most` consecutive points (at least
    one)."""
    cut = len(extents)
    points = 1
    while cut and points * extents[cut - 1] <= most:
        cut -= 1
        points *= extents[cut]
    rest = tuple([(0, n) for n in extents[cut:]])
    if not cut:
        yield rest
        return
    step = max(most // max(points, 1), 1)
    for outer in np.ndindex(*extents[: cut - 1]):
        ends = tuple([(k, k + 1) for k in outer])
        for begin in range(0, extents[cut - 1], step):
            yield (*ends, (begin, min(begin + step, extents[cut - 1])), *rest)


def _lengths(box: Box) -> tuple[int, ...]:
    return tuple([end - begin for begin, end in box])


def strided(flat: Array, start: int, shape: Sequence[int], stride: Sequence[int]) -> Array:
    """Returns an array over flat memory; start and strides are in elements."""
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    size = flat.itemsize
    return np.ndarray(shape, flat.dtype, flat, start * size, [step * size for step in stride])


def _uses(statements: Iterable[Statement]) -> Uses:
    return uses_of([value for statement in statements for value in values_of(statement)])


# ------------------------------------------------------------------------------------ one block
@attrs.frozen(slots=True)
class _Value:
    """An array that broadcasts over the block, and the mask of points at which it is invalid: it
    comes of a load outside its buffer, in a branch that `where` does not take."""

    array: Array
    invalid: Array | None = None


@attrs.define
class _Block:
    """The values of a kernel's scalars at the points of a box."""

    memory: Memory
    box: Box
    names: dict[int, Array]
    """The results of reductions and scans at these points."""
    uses: Uses
    """The number of uses of each scalar that are still to come."""
    between: Callable[[], None]
    known: dict[Scalar, _Value] = attrs.field(factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of points along each axis."""
        return _lengths(self.box)

    def take(self, root: Scalar) -> Array:
        """Returns the value of an expression at all points, and counts one use of it. Raises
        GraphError if it comes of a load outside a buffer."""
        for scalar in unknown(root, self.known):
            self.between()
            self.known[scalar] = self._own(scalar)
            self._used(dict.fromkeys(scalar.operands))
        value = self.known[root]
        self._used([root])
        if value.invalid is not None and value.invalid.any():
            raise GraphError("loops: a kernel uses what it loads from beside a buffer")
        return value.array

    def _used(self, scalars: Iterable[Scalar]) -> None:
        """Counts a use of each scalar, and drops arrays without further uses."""
        for scalar in scalars:
            self.uses[scalar] -= 1
            if not self.uses[scalar]:
                del self.known[scalar]

    def _own(self, scalar: Scalar) -> _Value:
        match scalar.op:
            case "name":
                return _Value(self.names[scalar.args[0]])
            case "axis":
                return _Value(self._axis(scalar.args[0]))
            case "const":
                return _Value(filled((1,) * len(self.box), scalar))
            case "load":
                return self._load(*scalar.args)
            case "where":
                return _where(*[self.known[operand] for operand in scalar.args])
        operands = [self.known[operand] for operand in scalar.args]
        invalid = _either([each.invalid for each in operands])
        return _Value(apply(scalar, [each.array for each in operands]), invalid)

    def _axis(self, k: int) -> Array:
        shape = [1] * len(self.box)
        shape[k] = -1
        return np.arange(*self.box[k], dtype=np.int64).reshape(shape)

    def _load(self, buffer: int, address: Affine) -> _Value:
        flat = self.memory[buffer]
        low, high = self.reach(address)
        if not address.dynamic and 0 <= low and high < flat.size:
            used = [c != 0 for c in address.coefficients]
            shape = [n if u else 1 for n, u in zip(self.shape, used, strict=True)]
            return _Value(strided(flat, self.start(address), shape, address.coefficients))
        values = [self.known[scalar] for scalar, _ in address.dynamic]
        where = self.address(address, [value.array for value in values])
        invalid: Any = (where < 0) | (where >= flat.size)
        masks = [*[value.invalid for value in values], invalid if invalid.any() else None]
        if not flat.size:
            return _Value(np.zeros(where.shape, flat.dtype), invalid)
        return _Value(flat[np.clip(where, 0, flat.size - 1)], _either(masks))

    def start(self, address: Affine) -> int:
        """Returns the address at the first point, without its dynamic values."""
        steps = zip(address.coefficients, self.box, strict=True)
        return address.start + sum([c * begin for c, (begin, _) in steps])

    def reach(self, address: Affine) -> tuple[int, int]:
        """Returns the least and the greatest address of the affine part."""
        low = high = self.start(address)
        for coefficient, extent in zip(address.coefficients, self.shape, strict=True):
            far = coefficient * (max(extent, 1) - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        return low, high

    def address(self, address: Affine, values: Sequence[Array]) -> Array:
        """Returns the address at each point, with these dynamic values."""
        total: Any = np.full((1,) * len(self.box), address.start, np.int64)
        for k, coefficient in enumerate(address.coefficients):
            if coefficient:
                total = total + self._axis(k) * coefficient
        for value, (_, step) in zip(values, address.dynamic, strict=True):
            total = total + value.astype(np.int64) * step
        return total


def _either(masks: Sequence[Array | None]) -> Array | None:
    found = [mask for mask in masks if mask is not None]
    total = found[0] if found else None
    for mask in found[1:]:
        total = total | mask
    return total


def _where(condition: _Value, then: _Value, other: _Value) -> _Value:
    array = np.where(condition.array, then.array, other.array)
    if then.invalid is None and other.invalid is None:
        return _Value(array, condition.invalid)
    masks = [False if each.invalid is None else each.invalid for each in (then, other)]
    return _Value(array, _either([condition.invalid, np.where(condition.array, *masks)]))


# ---------------------------------------------------------------------------------------- kernels
def nothing() -> None:
    """Does nothing, between operations."""


class KernelRun:
    """The evaluation of one kernel. `between` is called before each operation on a block. It may
    raise, to abandon the run."""

    def __init__(
        self, kernel: Kernel, memory: Memory, between: Callable[[], None] = nothing
    ) -> None:
        self.kernel = kernel = without_lets(kernel)
        self.memory = memory
        self.between = between
        self.space, self.inner = kernel.extents[: kernel.space], kernel.extents[kernel.space :]
        self.stores = [each for each in kernel.body if type(each) is Store]
        self.points = math.prod(self.inner)
        # A buffer with two stores: the first must be complete before the second begins, so that all
        # points are one block.
        apart = len({store.buffer for store in self.stores}) == len(self.stores)
        self.most = POINTS if apart else math.prod(kernel.extents) + 1
        self.uses = _uses(kernel.body)

    def run(self) -> None:
        """Runs the kernel. Loads see the memory as it was before the kernel (K-6)."""
        for store in self.stores:
            if store.from_identity:
                self._reset(store)
        for rows in boxes(self.space, self.most // max(self.points, 1)):
            if self.points <= self.most:
                self._rows(rows)
            else:
                self._row(rows)

    def _block(self, box: Box, names: dict[int, Array], uses: Uses) -> _Block:
        return _Block(self.memory, box, names, uses.copy(), self.between)

    # --- rows that fit in a block
    def _rows(self, rows: Box) -> None:
        """Runs all statements at all inner points of some rows, as one block."""
        block = self._block((*rows, *[(0, n) for n in self.inner]), {}, self.uses)
        pending = []
        for statement in self.kernel.body:
            match statement:
                case Reduce(values=values):
                    partials = self._partials(statement, rows)
                    partials.add(_over_inner(block, values, rows))
                    block.names |= self._reduced(statement, partials, rows)
                case Scan(names=names, values=values):
                    found = _scanned(statement).add(_over_inner(block, values, rows))
                    shaped = [array.reshape(block.shape) for array in found]
                    block.names |= zip(names, shaped, strict=True)
                case Store():
                    pending.append((statement, *self._stored(statement, block)))
        for each in pending:
            self._store(block, *each)

    def _partials(self, statement: Reduce, rows: Box) -> Partials:
        kinds = [value.dtype for value in statement.values]
        kind = combiner(statement.kind)
        return Partials(kind, math.prod(_lengths(rows)), kinds, statement.lanes, self.between)

    def _reduced(self, statement: Reduce, partials: Partials, rows: Box) -> dict[int, Array]:
        shape = _lengths(rows) + (1,) * len(self.inner)
        found = [result.reshape(shape) for result in partials.results(statement.near)]
        return dict(zip(statement.names, found, strict=True))

    # --- a row that does not fit
    def _row(self, row: Box) -> None:
        """Runs the statements along one long row: a pass over its blocks for each reduction and
        scan, and one for the stores."""
        names: dict[int, Array] = {}
        scans: dict[int, Array] = {}
        stores = []
        for statement in self.kernel.body:
            match statement:
                case Reduce():
                    partials = self._partials(statement, row)
                    for block in self._along(row, names, scans, [statement]):
                        partials.add(_over_inner(block, statement.values, row))
                    names |= self._reduced(statement, partials, row)
                case Scan():
                    scans |= self._scan_along(statement, row, names, scans)
                case Store():
                    stores.append(statement)
        ends = self._block((*row, *[(0, 1) for _ in self.inner]), names, _uses(stores))
        of_rows = [(store, *self._stored(store, ends)) for store in stores if store.each_row]
        of_elements = [store for store in stores if not store.each_row]
        for block in self._along(row, names, scans, of_elements):
            pending = [(store, *self._stored(store, block)) for store in of_elements]
            for each in pending:
                self._store(block, *each)
        for each in of_rows:
            self._store(ends, *each)

    def _along(
        self,
        row: Box,
        names: dict[int, Array],
        scans: dict[int, Array],
        statements: Sequence[Statement],
    ) -> Iterator[_Block]:
        """Yields blocks of the inner points of a row, for evaluating these statements."""
        if not statements:
            return
        uses, begin = _uses(statements), 0
        for inner in boxes(self.inner, self.most):
            box = (*row, *inner)
            end = begin + math.prod(_lengths(inner))
            here = {k: array[begin:end].reshape(_lengths(box)) for k, array in scans.items()}
            yield self._block(box, names | here, uses)
            begin = end

    def _scan_along(
        self, statement: Scan, row: Box, names: dict[int, Array], scans: dict[int, Array]
    ) -> dict[int, Array]:
        """Returns, for each name of the scan, its values along the whole row."""
        scan, begin = _scanned(statement), 0
        whole = [np.empty(self.points, value.dtype.numpy) for value in statement.values]
        for block in self._along(row, names, scans, [statement]):
            for array, found in zip(
                whole, scan.add(_over_inner(block, statement.values, row)), strict=True
            ):
                array[begin : begin + found.size] = found[0]
            begin += found.size
        return dict(zip(statement.names, whole, strict=True))

    # --- stores
    def _stored(self, store: Store, block: _Block) -> tuple[Array, Array | None]:
        """Returns the stored values, and the addresses where they are not affine or the store
        combines, at the store's points."""
        shape = block.shape
        if store.each_row:
            shape = shape[: self.kernel.space] + (1,) * len(self.inner)
        array = np.broadcast_to(block.take(store.value), shape)
        values = [block.take(value) for value, _ in store.address.dynamic]
        if not store.address.dynamic and store.combine is None:
            return array.copy() if self._is_written(array) else array, None
        return array, np.broadcast_to(block.address(store.address, values), shape)

    def _is_written(self, array: Array) -> bool:
        """Whether a value is a view of memory that the kernel stores to: it needs a copy."""
        return any(np.may_share_memory(array, self.memory[each.buffer]) for each in self.stores)

    def _store(self, block: _Block, store: Store, array: Array, addresses: Array | None) -> None:
        flat = self.memory[store.buffer]
        low, high = block.reach(store.address)
        if array.size and addresses is None and not (0 <= low and high < flat.size):
            raise GraphError(f"loops: {self.kernel.name} stores beside b{store.buffer}: {store}")
        if addresses is None:
            start = block.start(store.address)
            strided(flat, start, array.shape, store.address.coefficients)[...] = array
        elif store.combine is None:
            flat[addresses.ravel()] = array.ravel()
        else:
            _combine_at(flat, addresses.ravel(), array.ravel(), store)

    def _reset(self, store: Store) -> None:
        """Writes the combiner's identity to each address at which the store will combine."""
        identity = combiner(str(store.combine)).identity([store.value.dtype])[0].args[0]
        address = [value for value, _ in store.address.dynamic]
        uses = uses_of(address)
        for box in boxes(self.kernel.extents, self.most):
            block = self._block(box, {}, uses)
            values = [block.take(value) for value in address]
            self.memory[store.buffer][block.address(store.address, values).ravel()] = identity


def _over_inner(block: _Block, values: Sequence[Scalar], rows: Box) -> list[Array]:
    """Returns an array (rows, inner points) for each value."""
    count = math.prod(_lengths(rows))
    points = math.prod(block.shape[len(rows) :])
    return [
        np.broadcast_to(block.take(value), block.shape).reshape(count, points) for value in values
    ]


def _scanned(statement: Scan) -> Scanned:
    return Scanned(combiner(statement.kind), [value.dtype for value in statement.values])


def _combine_at(flat: Array, addresses: Array, values: Array, store: Store) -> None:
    kind = combiner(str(store.combine))
    if kind.ufunc is not None:
        getattr(np, kind.ufunc).at(flat, addresses, values)
        return
    dtype = store.value.dtype
    for address, value in zip(addresses, values, strict=True):
        a, b = np.asarray(flat[address : address + 1]), np.asarray(value).reshape(1)
        flat[address] = joined(kind, [a], [b], [dtype])[0][0]
