"""The verifier of the loop IR: raises GraphError where a program breaks an invariant.

The message names the kernel, the statement and the rule. Tests run it between passes. Bounds and
overlaps are decided by ranges of affine forms, and point by point for small kernels only. Spec:
`specs/loops.md`, K-1 to K-11.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.loops.analysis.affine import is_injective, reach, whole
from aotlite.backends.loops.analysis.conditions import executed
from aotlite.backends.loops.combiners import COMBINERS
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    Placed,
    ProgramBuffer,
    Reduce,
    Scan,
    Statement,
    Step,
    Store,
    ValueCheck,
    in_order,
    loads_of,
    names_of,
    operands_of,
    reads,
    stores_of,
    values_of,
    writes,
)
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import GraphError
from aotlite.ir.scalar.expression import Affine, Scalar, walk
from aotlite.ir.scalar.primitives import ARITHMETIC, COMPARISONS, LOGICAL

SMALL = 4096
"""The most points whose addresses are compared one by one, where strides do not decide."""


def verify(program: LoopProgram) -> None:
    """Raises GraphError where an invariant does not hold."""
    buffers = {buffer.number: buffer for buffer in program.buffers}
    for step in program.steps:
        for number in sorted(reads(step) | writes(step)):
            if number not in buffers:
                _fail("K-5", _called(step), f"uses b{number}", "a buffer of the program")
        match step:
            case Kernel():
                _Check(step, buffers).run()
            case Gemm():
                _check_gemm(step, buffers)
            case ValueCheck(buffer=number) if buffers[number].dtype is not bool_:
                _fail("K-11", "check", f"looks at b{number}", "a bool buffer")
    _check_order(program, buffers)


def _fail(rule: str, where: str, got: str, expected: str) -> None:
    raise GraphError(f"loops: {where} {got}, expected {expected} ({rule})")


def _called(step: Step) -> str:
    match step:
        case Kernel() | Gemm():
            return step.name
        case Extern():
            return f"extern {step.op.name}"
    return "check"


# --------------------------------------------------------------------------------------- programs
def _check_order(program: LoopProgram, buffers: dict[int, ProgramBuffer]) -> None:
    """Checks K-9: buffers are written before they are read, constants never."""
    given = {b.number for b in program.buffers if b.kind in (BufferKind.INPUT, BufferKind.CONSTANT)}
    written = given | {b.number for b in program.buffers if not b.size}
    for step in program.steps:
        for number in sorted(reads(step) - written):
            _fail("K-9", _called(step), f"reads b{number}", "a buffer that is written before")
        for number in writes(step):
            if buffers[number].kind is BufferKind.CONSTANT:
                _fail("K-9", _called(step), f"stores to constant b{number}", "another buffer")
        written |= writes(step)
    for placed in program.outputs:
        if placed is not None and placed.buffer not in written:
            _fail("K-9", program.name, f"returns b{placed.buffer}", "a buffer that is written")
    for placed in [*program.outputs, *_placed(program)]:
        if placed is not None and not _lies(placed, buffers):
            _fail("K-5", program.name, f"has {placed}", "a window inside its buffer")


def _placed(program: LoopProgram) -> list[Placed | None]:
    found: list[Placed | None] = []
    for step in program.steps:
        if isinstance(step, Extern):
            found += [*operands_of(step), *step.results]
    return found


def _lies(placed: Placed, buffers: dict[int, ProgramBuffer]) -> bool:
    meta = placed.meta
    if 0 in meta.shape:
        return True
    low, high = reach(Affine(meta.stride, placed.start), whole(meta.shape))
    buffer = buffers[placed.buffer]
    # Starts and strides count elements of the value's dtype, which may differ from the buffer's.
    return low >= 0 and (high + 1) * meta.dtype.itemsize <= buffer.size * buffer.dtype.itemsize


def _check_gemm(step: Gemm, buffers: dict[int, ProgramBuffer]) -> None:
    shapes = ((step.a, step.m, step.k), (step.b, step.k, step.n), (step.c, step.m, step.n))
    for window, rows, columns in shapes:
        _check_window(step, window, (*step.batch, rows, columns), buffers[window.buffer])
    if len({buffers[window.buffer].dtype for window, _, _ in shapes}) > 1:
        _fail("K-2", step.name, "multiplies matrices of several dtypes", "one dtype")


def _check_window(
    step: Gemm, window: MatrixWindow, extents: Sequence[int], buffer: ProgramBuffer
) -> None:
    if 0 in extents:
        return
    address = Affine((*window.batch, window.row, window.column), window.start)
    low, high = reach(address, whole(extents))
    if low < 0 or high >= buffer.size:
        _fail("K-5", step.name, f"has {window} of {tuple(extents)}", f"one inside {buffer}")


# ---------------------------------------------------------------------------------------- kernels
def _always_executed(roots: Sequence[Scalar]) -> set[Scalar]:
    found: set[Scalar] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack += value.operands[:1] if value.op == "where" else value.operands
    return found


class _Check:
    """The check of one kernel."""

    def __init__(self, kernel: Kernel, buffers: dict[int, ProgramBuffer]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.count = len(kernel.extents)
        self.names: dict[int, Scalar] = {}
        self.done: set[Scalar] = set()
        """Scalars that are checked already."""
        self.of_rows: set[Scalar] = set()
        """Scalars that are known to use no inner axis."""

    def run(self) -> None:
        """Raises GraphError where an invariant does not hold."""
        kernel = self.kernel
        if not 0 <= kernel.space <= self.count:
            self.fail("K-3", f"has {kernel.space} space axes", f"0 to {self.count}")
        for statement in kernel.body:
            self._statement(statement)
        if 0 not in kernel.extents:
            self._addresses([value for each in kernel.body for value in values_of(each)])
        self._loads_and_stores()

    def fail(self, rule: str, got: str, expected: str) -> None:
        """Raises."""
        _fail(rule, f"kernel {self.kernel.name}", got, expected)

    def _statement(self, statement: Statement) -> None:
        for value in walk(values_of(statement), self.done):
            self._scalar(value)
        match statement:
            case Store():
                self._store(statement)
            case Reduce(lanes=lanes, near=near):
                if lanes < 1 or lanes & (lanes - 1):
                    self.fail("K-8", f"has {lanes} lanes", "a power of two")
                if not 1 <= near <= lanes or near & (near - 1):
                    expected = f"a power of two up to {lanes}"
                    self.fail("K-8", f"combines {near} neighbors first", expected)
                self._combined(statement)
            case Scan():
                self._combined(statement)
        values = values_of(statement)
        for k, value in zip(names_of(statement), values, strict=False):
            if k in self.names:
                self.fail("K-1", f"defines v{k} again", "names that are defined once")
            self.names[k] = value

    def _combined(self, statement: Reduce | Scan) -> None:
        known = COMBINERS.get(statement.kind)
        parts = len(statement.names)
        if known is None or not known.parts == parts == len(statement.values):
            self.fail("K-1", f"combines {parts} values by {statement.kind}", "its parts' number")

    def _scalar(self, value: Scalar) -> None:
        op, args = value.op, value.args
        if op == "name":
            made = self.names.get(args[0])
            if made is None or made.dtype is not value.dtype:
                self.fail("K-1", f"uses {value} of {value.dtype}", "a name of this dtype")
        elif op == "axis" and not 0 <= args[0] < self.count:
            self.fail("K-3", f"uses {value}", f"one of {self.count} axes")
        elif op == "load":
            self._load(value)
        elif op in COMPARISONS or op in ARITHMETIC or op in LOGICAL:
            if len({each.dtype for each in args}) != 1:
                self.fail("K-2", f"computes {value}", "operands of one dtype")
        elif op == "where" and not (
            args[0].dtype is bool_ and args[1].dtype is args[2].dtype is value.dtype
        ):
            self.fail("K-2", f"computes {value}", "a bool and operands of one dtype")

    def _load(self, value: Scalar) -> None:
        buffer, address = value.args
        if self.buffers[buffer].dtype is not value.dtype:
            self.fail("K-2", f"loads {value} as {value.dtype}", f"{self.buffers[buffer].dtype}")
        self._is_of_axes(address, value)

    def _is_of_axes(self, address: Affine, shown: object) -> None:
        if len(address.coefficients) != self.count:
            self.fail("K-3", f"has the address {shown}", f"coefficients of {self.count} axes")

    def _addresses(self, roots: Sequence[Scalar]) -> None:
        """Checks K-5 of loads. Inside a `where` the points are known as bounds only: there a load
        is refused only if all addresses within the bounds lie outside the buffer."""
        bounds = executed(roots, whole(self.kernel.extents))
        always = _always_executed(roots)
        for value, inside in bounds.items():
            if value.op == "load" and inside is not None and not value.args[1].dynamic:
                low, high = reach(value.args[1], inside)
                if value not in always:
                    low, high = high, low
                self._range(value.args[0], low, high, value)

    def _range(self, buffer: int, low: int, high: int, shown: object) -> None:
        size = self.buffers[buffer].size
        if low < 0 or high >= size:
            first, last = sorted((low, high))
            self.fail("K-5", f"reaches {shown} at {first} to {last}", f"0 to {size - 1}")

    def _store(self, store: Store) -> None:
        kernel, address = self.kernel, store.address
        text = f"b{store.buffer}[{address}]"
        self._is_of_axes(address, text)
        if self.buffers[store.buffer].dtype is not store.value.dtype:
            self.fail("K-2", f"stores {store.value.dtype}", f"{self.buffers[store.buffer].dtype}")
        if store.each_row:
            self._row_level(store)
        if store.from_identity:
            self._from_identity(store, text)
        if 0 in kernel.extents:
            return
        if address.dynamic:
            return
        self._range(store.buffer, *reach(address, whole(kernel.extents)), text)
        if not self._distinct(address.coefficients[: kernel.space - in_order(kernel)]):
            self.fail("K-7", f"stores twice at {text}", "one store of each address")

    def _from_identity(self, store: Store, text: str) -> None:
        """Checks K-7 of `from_identity`: no other statement uses the buffer, and a row stores once
        at each address."""
        kernel, inner = self.kernel, self.kernel.extents[self.kernel.space :]
        used = [each for each in stores_of(kernel) if each.buffer == store.buffer]
        if len(used) > 1 or any(x.args[0] == store.buffer for x in loads_of(kernel)):
            self.fail("K-7", f"begins anew at {text}", "no other use of the buffer")
        steps, is_known = store.address.coefficients[kernel.space :], not store.address.dynamic
        once = is_known and (store.each_row or is_injective(steps, inner))
        if store.combine is None or not once:
            self.fail("K-7", f"begins anew at {text}", "one combination of a row at each address")

    def _row_level(self, store: Store) -> None:
        kernel = self.kernel
        if kernel.space == self.count:
            self.fail("K-4", "marks a store each_row", "no mark without inner axes")
        inner = any(store.address.coefficients[kernel.space :])
        if inner or any(map(self._uses_inner, walk(values_of(store), self.of_rows))):
            self.fail("K-4", f"stores {store.value} each row", "a value of space axes alone")

    def _uses_inner(self, value: Scalar) -> bool:
        space = self.kernel.space
        if value.op == "axis":
            return bool(value.args[0] >= space)
        if value.op == "load":
            return any(value.args[1].coefficients[space:])
        scans = [s for s in self.kernel.body if type(s) is Scan]
        return value.op == "name" and any(value.args[0] in s.names for s in scans)

    def _distinct(self, coefficients: Sequence[int]) -> bool:
        """Whether points of the space axes have different addresses. True if too many to tell."""
        extents = self.kernel.extents[: len(coefficients)]
        if is_injective(coefficients, extents):
            return True
        if any(c == 0 and n > 1 for c, n in zip(coefficients, extents, strict=True)):
            return False
        addresses = [0]
        for coefficient, extent in zip(coefficients, extents, strict=True):
            if len(addresses) * extent > SMALL:
                return True
            addresses = [a + coefficient * i for a in addresses for i in range(extent)]
        return len(set(addresses)) == len(addresses)

    def _loads_and_stores(self) -> None:
        """Checks K-6: a buffer that is stored is loaded at the store's address only."""
        stores = {store.buffer: store for store in stores_of(self.kernel)}
        for value in loads_of(self.kernel):
            store = stores.get(value.args[0])
            if store is not None and value.args[1] != store.address:
                self.fail("K-6", f"loads {value} and stores b{store.buffer}[{store.address}]",
                          "loads at the store's own address")  # fmt: skip
