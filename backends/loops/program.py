"""Kernels, and programs of them: the loop IR that C and CUDA are printed from.

A kernel is a perfect nest of axes and a list of statements, each a scalar expression at every point
of the axes that it uses. Nothing in it is of one device. Statements mean what they would mean as
array operations, one after the other. Invariants K-1 to K-9 are checked by `verify`.
Spec: `specs/loops.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, TypeAlias

import attrs

from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.backends.loops.expr import Affine, Scalar, text_of
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import TokenOp
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp


class BufferKind(enum.Enum):
    """Whose memory a buffer is."""

    INPUT = "input"
    OUTPUT = "output"
    """Allocated at each call and given away."""
    TEMPORARY = "temporary"
    CONSTANT = "constant"


@attrs.frozen
class ProgramBuffer:
    """Flat memory of `size` elements. An input's first element is where its window starts."""

    number: int
    dtype: DType
    size: int
    kind: BufferKind
    value: Any = attrs.field(default=None, eq=False, repr=False, kw_only=True)
    """Of a constant: the array, flat."""


# ------------------------------------------------------------------------------------- statements
@attrs.frozen
class Let:
    """Defines a name as a value."""

    name: int
    value: Scalar


@attrs.frozen
class Reduce:
    """Defines names as the combination of values over all inner axes.

    The combiner `kind` (`combiners.py`) has as many parts as there are names and values. Of n inner
    points in order, flattened, point j goes to partial j mod `lanes`, in ascending order. Partials
    are combined in halves: first each `near` neighbours, then what these gave. Halves are l with
    l + h, for h from half of their number to 1. Both numbers are powers of two.
    """

    names: tuple[int, ...]
    kind: str
    values: tuple[Scalar, ...]
    lanes: int = 1
    near: int = 1


@attrs.frozen
class Scan:
    """Defines names, at each inner point, as the combination of all values up to it."""

    names: tuple[int, ...]
    kind: str
    values: tuple[Scalar, ...]


@attrs.frozen
class Store:
    """Writes a value at an address, at every point of the kernel's `level` axes.

    `combine` None: replaces; two points never write one address, or do so in ascending order of the
    inner axes and the last one stays. Otherwise the name of a combiner of one part: what lies there
    is combined with the value, in ascending order of the inner axes.
    """

    buffer: int
    address: Affine
    value: Scalar
    combine: str | None = attrs.field(default=None, kw_only=True)
    each_row: bool = attrs.field(default=False, kw_only=True)
    """At points of the space axes only: address and value use no inner axis."""
    from_identity: bool = attrs.field(default=False, kw_only=True)
    """What is combined first is combined with the combiner's identity: what lies there before the
    kernel is not read. Inner points of one row then have different addresses."""
    unordered: bool = attrs.field(default=False, kw_only=True)
    """Points may store in any order, and at once, instead (K-12)."""


Statement: TypeAlias = Let | Reduce | Scan | Store


@attrs.frozen
class Kernel:
    """Statements over axes. Axes `extents[:space]` are independent; the others are inner axes,
    which reductions and scans go over in ascending order."""

    name: str
    extents: tuple[int, ...]
    space: int
    body: tuple[Statement, ...]
    vector: int | None = attrs.field(default=None, kw_only=True)
    """The axis along which neighbouring points are computed at once; None: not decided."""

    def __str__(self) -> str:
        inner = [f"*i{k}<{n}" for k, n in enumerate(self.extents)][self.space :]
        axes = [f"i{k}<{n}" for k, n in enumerate(self.extents)][: self.space]
        lines = [f"kernel {self.name}[{', '.join([*axes, *inner])}]:"]
        texts: dict[Scalar, str] = {}
        return "\n  ".join([*lines, *[_statement_text(each, texts) for each in self.body]])


@attrs.frozen
class Gemm:
    """C = A B for each batch: (m, k) (k, n) -> (m, n) windows of buffers in one float dtype.

    A window is (buffer, start, strides of the batch axes, row stride, column stride); one of the
    last two strides of each is 1. `batch` are the extents of the batch axes.
    """

    name: str
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: MatrixWindow
    b: MatrixWindow
    c: MatrixWindow


@attrs.frozen
class MatrixWindow:
    """Where a matrix of each batch lies in a buffer. Elements."""

    buffer: int
    start: int
    batch: tuple[int, ...]
    row: int
    column: int


@attrs.frozen
class Placed:
    """A value that lies in a buffer with the geometry of its meta."""

    buffer: int
    start: int
    meta: TensorMeta


@attrs.frozen
class Extern:
    """An op that has no loop form, by its own kernel. `args` are the op's, with Placed for
    tensors."""

    op: PureOp | TokenOp
    args: tuple[Any, ...]
    results: tuple[Placed | None, ...]
    """Where each result goes; None for one that nobody needs."""
    meta: Any = None
    """The op's result meta, or the tuple of them."""


@attrs.frozen
class ValueCheck:
    """Gives the program up if the first element of a bool buffer is true.

    The caller runs the graph by the ops' own kernels instead, of which one raises. No input is
    written before.
    """

    buffer: int


class GivenUp(Exception):
    """A check found values that an op refuses. Never leaves a backend."""


Step: TypeAlias = Kernel | Gemm | Extern | ValueCheck


@attrs.frozen
class LoopProgram:
    """Steps in order over buffers. `inputs` are the buffers of the graph's placeholders, None for
    those that nothing reads; `outputs` what it returns, in order."""

    name: str
    buffers: tuple[ProgramBuffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[Placed | None, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"program {self.name}:", *map(_buffer_text, self.buffers), *map(str, self.steps)]
        )


# ---------------------------------------------------------------------------------------- queries
def values_of(statement: Statement) -> tuple[Scalar, ...]:
    """The expressions of a statement; a store's address's too."""
    if isinstance(statement, Store):
        dynamic = statement.address.dynamic
        return (statement.value, *[each for each, _ in dynamic]) if dynamic else (statement.value,)
    return (statement.value,) if isinstance(statement, Let) else statement.values


def names_of(statement: Statement) -> tuple[int, ...]:
    """The names that a statement defines."""
    match statement:
        case Let(name=name):
            return (name,)
        case Store():
            return ()
        case _:
            return statement.names


def loads_of(kernel: Kernel) -> list[Scalar]:
    """Every load of a kernel once, in order of first use."""
    return loads_in(kernel.body)


def loads_in(body: Iterable[Statement]) -> list[Scalar]:
    """Every load of the statements once, in order of first use."""
    found = [facts(value).loads for statement in body for value in values_of(statement)]
    if len(found) == 1:
        return list(found[0])
    return list(dict.fromkeys([each for loads in found for each in loads]))


def names_used(statement: Statement) -> set[int]:
    """The names that a statement uses."""
    return {k for value in values_of(statement) for k in facts(value).names}


def stores_of(kernel: Kernel) -> list[Store]:
    """The stores of a kernel."""
    return [statement for statement in kernel.body if type(statement) is Store]


def in_order(kernel: Kernel) -> int:
    """How many of the last space axes a combining store does not use: they run in ascending order
    within one unit of work (K-7)."""
    most = 0
    for store in stores_of(kernel):
        if store.combine is not None and not store.address.dynamic:
            most = max(most, len(rows_of(store, kernel.space)))
    return most


def rows_of(store: Store, space: int) -> list[int]:
    """The last space axes, along which a combining store stays at one address: in order (K-7)."""
    used = [k for k in range(space) if store.address.coefficients[k]]
    return list(range(max(used, default=-1) + 1, space))


def reads(step: Step) -> set[int]:
    """The buffers that a step reads."""
    match step:
        case Kernel():
            stores = [each for each in stores_of(step) if each.combine and not each.from_identity]
            combined = {store.buffer for store in stores}
            return {value.args[0] for value in loads_of(step)} | combined
        case Gemm():
            return {step.a.buffer, step.b.buffer}
        case Extern():
            return {placed.buffer for placed in operands_of(step)}
        case ValueCheck():
            return {step.buffer}


def writes(step: Step) -> set[int]:
    """The buffers that a step writes."""
    match step:
        case Kernel():
            return {store.buffer for store in stores_of(step)}
        case Gemm():
            return {step.c.buffer}
        case Extern():
            return {placed.buffer for placed in step.results if placed is not None}
        case ValueCheck():
            return set()


def happens(step: Step) -> bool:
    """Whether a step does more than compute: it is kept, and in order among its like (TOK-6)."""
    return type(step) is Extern and type(step.op) is TokenOp


def operands_of(step: Extern) -> list[Placed]:
    """The tensors among an extern's arguments, those in lists too."""
    found = []
    for value in step.args:
        items = value if type(value) is tuple else (value,)
        found += [item for item in items if type(item) is Placed]
    return found


def slots(program: LoopProgram) -> list[ProgramBuffer]:
    """The buffers of which a caller has the memory: inputs, then outputs, by number."""
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT)
    return [buffer for kind in kinds for buffer in program.buffers if buffer.kind is kind]


# --------------------------------------------------------------------------------------- printing
def _buffer_text(buffer: ProgramBuffer) -> str:
    return f"  b{buffer.number}: {buffer.dtype.short}[{buffer.size}] {buffer.kind.value}"


def _statement_text(statement: Statement, texts: dict[Scalar, str]) -> str:
    """A line. `texts` has those of scalars of the statements before."""
    match statement:
        case Let(name=name, value=value):
            return f"v{name} = {text_of(value, texts)}"
        case Store(buffer=buffer, combine=combine):
            stored, *places = [text_of(each, texts) for each in values_of(statement)]
            address = statement.address.text(places)
            how = f" {combine}=" if combine else " ="
            when = "each row: " if statement.each_row else ""
            when = "in any order: " if statement.unordered else when
            when += "from identity: " if statement.from_identity else ""
            return f"{when}b{buffer}[{address}]{how} {stored}"
        case _:
            names = ", ".join([f"v{k}" for k in statement.names])
            values = ", ".join([text_of(each, texts) for each in statement.values])
            lanes = ""
            if type(statement) is Reduce:
                near = f" near={statement.near}" if statement.near > 1 else ""
                lanes = f" lanes={statement.lanes}{near}"
            word = type(statement).__name__.lower()
            return f"{names} = {word}<{statement.kind}{lanes}>({values})"
