"""The NumPy interpreter of the loop IR: the oracle of printers, and what runs without a compiler.

A statement is evaluated at all points at once; sums are formed in the order that the IR prescribes.
A value that was loaded from beside its buffer may be made, since NumPy computes both sides of a
`where`, but not used: that raises. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.combiners import Combiner, combiner
from aotlite.backends.loops.expr import Affine, Scalar, parameter, walk
from aotlite.backends.loops.program import (
    Check,
    Extern,
    Gemm,
    GivenUp,
    Kernel,
    Kind,
    Let,
    Placed,
    Program,
    Reduce,
    Scan,
    Step,
    Store,
    Window,
    slots,
)
from aotlite.ir.arrays import NUMPY
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import GraphError

Array = Any
Memory = dict[int, Array]
"""The flat array of each buffer."""


def run_program(program: Program, inputs: Sequence[Array | None]) -> Memory:
    """Runs the steps on flat arrays of the inputs; the memory of all buffers afterwards."""
    memory = allocated(program)
    for number, array in zip(program.inputs, inputs, strict=True):
        if number is not None:
            memory[number] = array
    for step in program.steps:
        run_step(step, memory)
    return memory


def interpreted(program: Program) -> Callable[[list[Array]], bool]:
    """What computes a program on the arrays of its `slots`: inputs that are read, and outputs.

    Gives whether a check has given the program up.
    """
    numbers = [buffer.number for buffer in slots(program)]

    def execute(arrays: list[Array]) -> bool:
        memory = dict(zip(numbers, [array.reshape(-1) for array in arrays], strict=True))
        memory |= allocated(program, (Kind.TEMPORARY, Kind.CONSTANT))
        try:
            for step in program.steps:
                run_step(step, memory)
        except GivenUp:
            return True
        return False

    return execute


def allocated(program: Program, kinds: Sequence[Kind] = tuple(Kind)) -> Memory:
    """Memory for the buffers of these kinds, never for the inputs."""
    memory: Memory = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.INPUT or buffer.kind not in kinds:
            continue
        if buffer.kind is Kind.CONSTANT:
            memory[buffer.number] = buffer.value
        else:
            memory[buffer.number] = np.empty(buffer.size, buffer.dtype.numpy)
    return memory


def run_step(step: Step, memory: Memory) -> None:
    """Runs one step on the memory."""
    match step:
        case Kernel():
            NUMPY.quiet(KernelRun(step, memory).run)
        case Gemm():
            NUMPY.quiet(_run_gemm, step, memory)
        case Extern():
            run_extern(step, memory)
        case Check():
            if memory[step.buffer][0]:
                raise GivenUp


def _run_gemm(step: Gemm, memory: Memory) -> None:
    a = _matrix(step.a, step, (step.m, step.k), memory)
    b = _matrix(step.b, step, (step.k, step.n), memory)
    _matrix(step.c, step, (step.m, step.n), memory)[...] = np.matmul(a, b)


def _matrix(window: Window, step: Gemm, shape: tuple[int, int], memory: Memory) -> Array:
    strides = (*window.batch, window.row, window.column)
    return strided(memory[window.buffer], window.start, (*step.batch, *shape), strides)


def strided(flat: Array, start: int, shape: Sequence[int], stride: Sequence[int]) -> Array:
    """The array over flat memory with this geometry, in elements."""
    if 0 in shape:
        return np.empty(shape, flat.dtype)
    size = flat.itemsize
    return np.ndarray(shape, flat.dtype, flat, start * size, [step * size for step in stride])


def run_extern(step: Extern, memory: Memory) -> None:
    """Runs an op by its own kernel."""

    def array(value: Any) -> Any:
        if type(value) is Placed:
            meta = value.meta
            return strided(memory[value.buffer], value.start, meta.shape, meta.stride)
        if type(value) is tuple and value and type(value[0]) is Placed:
            return tuple([array(item) for item in value])
        return value

    library = NUMPY
    results = library.quiet(step.op.kernel, library, step.meta, *map(array, step.args))
    if type(step.meta) is not tuple:
        results = (results,)
    for placed, result in zip(step.results, results, strict=True):
        if placed is not None:
            library.copy(array(placed), result)


# ---------------------------------------------------------------------------------------- kernels
@attrs.frozen(slots=True)
class _Value:
    """An array that broadcasts against the extents, and where it may not be used."""

    array: Array
    invalid: Array | None = None


class KernelRun:
    """The evaluation of one kernel."""

    def __init__(self, kernel: Kernel, memory: Memory) -> None:
        self.kernel = kernel
        self.memory = memory
        self.ndim = len(kernel.extents)
        self.names: dict[int, _Value] = {}
        self.known: dict[Scalar, _Value] = {}

    def run(self) -> None:
        """Runs the statements. Loads see the memory as it was before the kernel."""
        pending: list[tuple[Store, Any, Any]] = []
        for statement in self.kernel.body:
            match statement:
                case Let(name=name, value=value):
                    self.names[name] = self.value(value)
                case Reduce():
                    self._reduce(statement)
                case Scan():
                    self._scan(statement)
                case Store():
                    pending.append((statement, *self._stored(statement)))
        for each in pending:
            self._store(*each)

    # --- values
    def value(self, root: Scalar) -> _Value:
        """The value of an expression at all points."""
        for scalar in walk([root]):
            if scalar not in self.known:
                self.known[scalar] = self._own(scalar)
        return self.known[root]

    def _own(self, scalar: Scalar) -> _Value:
        match scalar.op:
            case "name":
                return self.names[scalar.args[0]]
            case "axis":
                return _Value(self._axis(scalar.args[0]))
            case "const":
                return _Value(filled((1,) * self.ndim, scalar))
            case "load":
                return self._load(*scalar.args)
            case "where":
                return _where(*[self.known[operand] for operand in scalar.args])
        operands = [self.known[operand] for operand in scalar.args]
        invalid = _either([each.invalid for each in operands])
        return _Value(apply(scalar, [each.array for each in operands]), invalid)

    def _axis(self, k: int) -> Array:
        shape = [1] * self.ndim
        shape[k] = self.kernel.extents[k]
        return np.arange(shape[k], dtype=np.int64).reshape(shape)

    def _load(self, buffer: int, address: Affine) -> _Value:
        flat = self.memory[buffer]
        low, high = _range(address, self.kernel.extents)
        if not address.dynamic and 0 <= low and high < flat.size:
            return _Value(self._window(flat, address))
        where = self._address(address)
        invalid: Any = (where.array < 0) | (where.array >= flat.size)
        if not flat.size:
            return _Value(np.zeros(where.array.shape, flat.dtype), invalid)
        array = flat[np.clip(where.array, 0, flat.size - 1)]
        return _Value(array, _either([where.invalid, invalid if invalid.any() else None]))

    def _window(self, flat: Array, address: Affine) -> Array:
        used = [c != 0 for c in address.coefficients]
        shape = [n if u else 1 for n, u in zip(self.kernel.extents, used, strict=True)]
        return strided(flat, address.start, shape, address.coefficients)

    def _address(self, address: Affine) -> _Value:
        total: Any = np.full((1,) * self.ndim, address.start, np.int64)
        for k, coefficient in enumerate(address.coefficients):
            if coefficient:
                total = total + self._axis(k) * coefficient
        invalid = None
        for scalar, step in address.dynamic:
            value = self.value(scalar)
            total = total + value.array.astype(np.int64) * step
            invalid = _either([invalid, value.invalid])
        return _Value(total, invalid)

    # --- over the inner axes
    def _over_inner(self, values: Sequence[Scalar]) -> list[Array]:
        """(rows, inner points) for each value."""
        extents = self.kernel.extents
        rows = int(np.prod(extents[: self.kernel.space], dtype=np.int64))
        points = int(np.prod(extents[self.kernel.space :], dtype=np.int64))
        return [
            np.broadcast_to(_used(self.value(value)), extents).reshape(rows, points)
            for value in values
        ]

    def _reduce(self, statement: Reduce) -> None:
        arrays = self._over_inner(statement.values)
        kinds = [value.dtype for value in statement.values]
        results = reduced(combiner(statement.kind), arrays, kinds, statement.lanes, statement.near)
        shape = (*self.kernel.extents[: self.kernel.space],)
        shape += (1,) * (self.ndim - self.kernel.space)
        for name, result in zip(statement.names, results, strict=True):
            self.names[name] = _Value(result.reshape(shape))

    def _scan(self, statement: Scan) -> None:
        arrays = self._over_inner(statement.values)
        results = scanned(combiner(statement.kind), arrays, statement.values)
        for name, result in zip(statement.names, results, strict=True):
            self.names[name] = _Value(result.reshape(self.kernel.extents))

    # --- stores
    def _stored(self, store: Store) -> tuple[Array, Array | None]:
        """The value, and the addresses where they are not affine, both over the store's points."""
        extents = self.kernel.extents
        if store.each_row:
            extents = extents[: self.kernel.space] + (1,) * (self.ndim - self.kernel.space)
        array = np.broadcast_to(_used(self.value(store.value)), extents)
        if not store.address.dynamic and store.combine is None:
            return array.copy() if self._is_written(array) else array, None
        return array, np.broadcast_to(_used(self._address(store.address)), extents)

    def _is_written(self, array: Array) -> bool:
        """Whether a value is a window of memory that the kernel stores to."""
        stores = [each for each in self.kernel.body if type(each) is Store]
        return any(np.may_share_memory(array, self.memory[each.buffer]) for each in stores)

    def _store(self, store: Store, array: Array, addresses: Array | None) -> None:
        flat = self.memory[store.buffer]
        low, high = _range(store.address, array.shape)
        if array.size and addresses is None and not (0 <= low and high < flat.size):
            raise GraphError(f"loops: {self.kernel.name} stores beside b{store.buffer}: {store}")
        if addresses is None:
            into = strided(flat, store.address.start, array.shape, store.address.coefficients)
            into[...] = array
        elif store.combine is None:
            flat[addresses.ravel()] = array.ravel()
        else:
            _combine_at(flat, addresses.ravel(), array.ravel(), store)


def _combine_at(flat: Array, addresses: Array, values: Array, store: Store) -> None:
    kind = combiner(str(store.combine))
    if store.from_identity:
        flat[addresses] = kind.identity([store.value.dtype])[0].args[0]
    if kind.ufunc is not None:
        getattr(np, kind.ufunc).at(flat, addresses, values)
        return
    dtype = store.value.dtype
    for address, value in zip(addresses, values, strict=True):
        a, b = np.asarray(flat[address : address + 1]), np.asarray(value).reshape(1)
        flat[address] = _joined(kind, [a], [b], [dtype])[0][0]


def _used(value: _Value) -> Array:
    if value.invalid is not None and value.invalid.any():
        raise GraphError("loops: a kernel uses what it loads from beside a buffer")
    return value.array


def _range(address: Affine, extents: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest address of the affine part."""
    low = high = address.start
    for coefficient, extent in zip(address.coefficients, extents, strict=True):
        reach = coefficient * (max(extent, 1) - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


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


# -------------------------------------------------------------------------- reductions and scans
def reduced(
    kind: Combiner, arrays: list[Array], kinds: list[DType], lanes: int, near: int = 1
) -> list[Array]:
    """(rows, n) -> (rows,) for each part, in the order that `Reduce` prescribes."""
    rows, n = arrays[0].shape
    if n == 0:
        if kind.empty is None:
            raise GraphError(f"loops: {kind.name} of no points, expected at least one")
        return [filled((rows,), part) for part in kind.empty(kinds)]
    partial = [filled((rows, lanes), part) for part in kind.identity(kinds)]
    if lanes == 1 and kind.ufunc is not None:
        first = np.concatenate([partial[0], arrays[0]], axis=1)
        return [getattr(np, kind.ufunc).accumulate(first, axis=1, dtype=first.dtype)[:, -1]]
    for begin in range(0, n, lanes):
        part = [array[:, begin : begin + lanes] for array in arrays]
        width = part[0].shape[1]
        for old, new in zip(
            partial, _joined(kind, [p[:, :width] for p in partial], part, kinds), strict=True
        ):
            old[:, :width] = new
    for count in (near, lanes // near):
        grouped = [p.reshape(rows, -1, count) for p in partial]
        while grouped[0].shape[2] > 1:
            half = grouped[0].shape[2] // 2
            halves = [p[..., :half] for p in grouped], [p[..., half:] for p in grouped]
            grouped = _joined(kind, *halves, kinds)
        partial = [p[..., 0] for p in grouped]
    return [p[:, 0] for p in partial]


def filled(shape: tuple[int, ...], number: Scalar) -> Array:
    """An array of one constant."""
    return np.full(shape, number.args[0], number.dtype.numpy)


def scanned(kind: Combiner, arrays: list[Array], values: Sequence[Scalar]) -> list[Array]:
    """(rows, n) -> (rows, n): the combination of all points up to each."""
    if kind.ufunc is not None:
        return [getattr(np, kind.ufunc).accumulate(arrays[0], axis=1, dtype=arrays[0].dtype)]
    results = [np.array(array) for array in arrays]
    kinds = [value.dtype for value in values]
    for k in range(1, results[0].shape[1]):
        before = [result[:, k - 1] for result in results]
        joined = _joined(kind, before, [array[:, k] for array in arrays], kinds)
        for result, new in zip(results, joined, strict=True):
            result[:, k] = new
    return results


def _joined(kind: Combiner, a: list[Array], b: list[Array], kinds: list[DType]) -> list[Array]:
    count = len(kinds)
    first = [parameter(k, dtype) for k, dtype in enumerate(kinds)]
    second = [parameter(count + k, dtype) for k, dtype in enumerate(kinds)]
    return [evaluate(part, [*a, *b]) for part in kind.combine(first, second)]


# ----------------------------------------------------------------------------------- expressions
def evaluate(root: Scalar, parameters: Sequence[Array]) -> Array:
    """The value of a function's body on arrays."""
    found: dict[Scalar, Array] = {}
    for scalar in walk([root]):
        if scalar.op == "parameter":
            found[scalar] = parameters[scalar.args[0]]
        elif scalar.op == "const":
            found[scalar] = np.asarray(scalar.args[0], scalar.dtype.numpy)
        else:
            found[scalar] = apply(scalar, [found[operand] for operand in scalar.args])
    return found[root]


def apply(scalar: Scalar, operands: list[Array]) -> Array:
    """An operation on arrays of its operands."""
    primitive = _PRIMITIVES.get(scalar.op)
    if primitive is not None:
        return primitive(*operands)
    if scalar.op == "cast":
        return operands[0].astype(scalar.dtype.numpy)
    if scalar.op == "bits":
        return operands[0].view(scalar.dtype.numpy)
    from aotlite.backends.loops.functions import find

    kinds = [operand.dtype for operand in scalar.args]
    return evaluate(find(scalar.op, kinds).body, operands)


def _truncated(a: Array, b: Array) -> Array:
    """The quotient of integers, rounded towards 0."""
    quotient = np.floor_divide(a, b)
    return np.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient + 1, quotient).astype(
        a.dtype
    )


_PRIMITIVES: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "abs": np.absolute,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "idiv": _truncated,
    "irem": np.fmod,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "where": np.where,
}
