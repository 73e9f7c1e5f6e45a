"""The loop IR: kernels, and programs of them, from which C and CUDA are printed.

A kernel is a perfect loop nest and a list of statements. The first `space` axes are independent,
as a grid's are; the others are inner axes, over which reductions and scans go. For `x - x.amax(1)`
of f32[4, 8] the record, as `str(kernel)` prints it, and the C that it stands for:

    kernel amax_0_sub_1[i0<4, *i1<8]:          for (i0 = 0; i0 < 4; i0++) {
      v0 = reduce<max lanes=8>(b0[8*i0 + i1])    v0 = -INFINITY;
                                                 for (i1 = 0; i1 < 8; i1++) v0 = max(v0, b0[..]);
      b2[8*i0 + i1] = (b0[8*i0 + i1] - v0)       for (i1 = 0; i1 < 8; i1++) b2[..] = b0[..] - v0;
                                               }

Statements mean what array operations over all points would mean, one after the other. Nothing here
belongs to one device: threads, vectors and tiles are the printers'. `verify` checks the invariants
K-1 to K-11. Spec: `specs/loops.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from aotlite.backends.loops.analysis.expression_facts import facts
from aotlite.ir.dtypes import DType
from aotlite.ir.effects import TokenOp
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.scalar.expression import Affine, Scalar, text_of


class BufferKind(enum.Enum):
    """The kind of memory behind a buffer: who allocates it, and when."""

    INPUT = "input"
    OUTPUT = "output"
    """Allocated at each call, and returned to the caller."""
    TEMPORARY = "temporary"
    CONSTANT = "constant"


@attrs.frozen
class ProgramBuffer:
    """Flat memory of `size` elements. Element 0 of an input is the start of its window."""

    number: int
    dtype: DType
    size: int
    kind: BufferKind
    value: Any = attrs.field(default=None, eq=False, repr=False, kw_only=True)
    """The flat array of a constant."""


# ------------------------------------------------------------------------------------- statements
@attrs.frozen
class Let:
    """Defines a name as a value: `v3 = ...`."""

    name: int
    value: Scalar


@attrs.frozen
class Reduce:
    """Defines names as the combination of values over all inner axes.

    The combiner `kind` (`combiners.py`) has as many parts as there are names and values. The order
    of combination is part of the IR, so that each backend gives the same bits. Of the inner points,
    numbered in order, point j goes to partial j mod `lanes`, in ascending order. Partials are then
    combined in halves, l with l + h for h from half of their number down to 1: first within each
    group of `near` neighbors, then the groups' results. With 4 lanes, near 1, of 8 points:

        p0 = x0+x4   p1 = x1+x5   p2 = x2+x6   p3 = x3+x7       (p0 + p2) + (p1 + p3)

    Both numbers are powers of two.
    """

    names: tuple[int, ...]
    kind: str
    values: tuple[Scalar, ...]
    lanes: int = 1
    near: int = 1


@attrs.frozen
class Scan:
    """Defines names, at each inner point, as the combination of all values up to that point."""

    names: tuple[int, ...]
    kind: str
    values: tuple[Scalar, ...]


@attrs.frozen
class Store:
    """Writes a value at an address, at every point of the kernel, or of each row (`each_row`).

    `combine=None`: the value replaces what lies there. Points of different rows write different
    addresses; of inner points that write one address the last one stays. Otherwise `combine` names
    a combiner of one part, and what lies there is combined with the value, in ascending order of
    the inner axes.
    """

    buffer: int
    address: Affine
    value: Scalar
    combine: str | None = attrs.field(default=None, kw_only=True)
    each_row: bool = attrs.field(default=False, kw_only=True)
    """Stores once a row, at points of the space axes: address and value use no inner axis."""
    from_identity: bool = attrs.field(default=False, kw_only=True)
    """The memory counts as filled with the combiner's identity before the kernel, and is not read.
    Inner points of one row then have different addresses."""
    unordered: bool = attrs.field(default=False, kw_only=True)
    """Points may combine in any order, and at the same time, as atomics do (K-12)."""


Statement: TypeAlias = Let | Reduce | Scan | Store


@attrs.frozen
class Kernel:
    """A loop nest: statements over axes. Axes `extents[:space]` are independent; the others are
    inner axes, over which reductions and scans go in ascending order."""

    name: str
    extents: tuple[int, ...]
    space: int
    body: tuple[Statement, ...]
    vector: int | None = attrs.field(default=None, kw_only=True)
    """The vector axis: neighbors along it are computed together. None: not scheduled yet."""
    loads: Any = attrs.field(default=None, init=False, eq=False, repr=False)
    """A cache: each load once (`loads_of`)."""
    shared: Any = attrs.field(default=None, init=False, eq=False, repr=False)
    """The template that the kernel is known to have, and its buffers (`shared_templates`)."""

    @staticmethod
    def later(
        name: str, extents: tuple[int, ...], space: int, vector: int | None, shared: Any
    ) -> Kernel:
        """Returns a kernel whose statements its template writes when they are read (REG-8)."""
        kernel: Kernel = object.__new__(Kernel)
        _put_name(kernel, name)
        _put_extents(kernel, extents)
        _put_space(kernel, space)
        _put_vector(kernel, vector)
        _put_loads(kernel, None)
        _put_shared(kernel, shared)
        return kernel

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name != "body":
                raise AttributeError(f"Kernel has no attribute {name!r}")
            template, buffers = self.shared
            object.__setattr__(self, "body", template.body_on(buffers))
            return self.body

    def __str__(self) -> str:
        inner = [f"*i{k}<{n}" for k, n in enumerate(self.extents)][self.space :]
        axes = [f"i{k}<{n}" for k, n in enumerate(self.extents)][: self.space]
        lines = [f"kernel {self.name}[{', '.join([*axes, *inner])}]:"]
        texts: dict[Scalar, str] = {}
        return "\n  ".join([*lines, *[_statement_text(each, texts) for each in self.body]])


_put_name, _put_extents, _put_space, _put_vector, _put_loads, _put_shared = [
    getattr(Kernel, field).__set__
    for field in ("name", "extents", "space", "vector", "loads", "shared")
]
"""The setters of all fields of a kernel but its statements."""


@attrs.frozen
class Gemm:
    """A matrix product by BLAS: C = A B for each batch, (m, k) (k, n) -> (m, n).

    The matrices are windows of buffers of one float dtype, each with a row or column stride of 1.
    `batch` has the extents of the batch axes.
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
    """The matrices of a batch in a buffer: start, strides of the batch axes, row and column
    strides. In elements."""

    buffer: int
    start: int
    batch: tuple[int, ...]
    row: int
    column: int


@attrs.frozen
class Placed:
    """A tensor in a buffer: its first element, and the shape, strides and dtype of its meta."""

    buffer: int
    start: int
    meta: TensorMeta


@attrs.frozen
class Extern:
    """The call of an op that has no loop form, by its own kernel. `args` are the op's, with Placed
    for tensors."""

    op: PureOp | TokenOp
    args: tuple[Any, ...]
    results: tuple[Placed | None, ...]
    """The place of each result; None for one that nothing needs."""
    meta: Any = None
    """The op's result meta, or the tuple of them."""


@attrs.frozen
class ValueCheck:
    """Abandons the program if the first element of a bool buffer is true (K-11).

    Kernels cannot raise: a kernel computes whether an index is out of range, and this step looks.
    The caller then runs the graph by the ops' own kernels, of which one raises eager's error. No
    input is written before.
    """

    buffer: int


class GivenUp(Exception):
    """Raised by a `ValueCheck` that found values which an op refuses. Never leaves a backend."""


Step: TypeAlias = Kernel | Gemm | Extern | ValueCheck


@attrs.frozen
class LoopProgram:
    """Steps over buffers, in order. `inputs` has the buffer of each placeholder of the graph, None
    for one that nothing reads; `outputs` has the place of each output."""

    name: str
    buffers: tuple[ProgramBuffer, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[Placed | None, ...]

    def __str__(self) -> str:
        return "\n".join(
            [f"program {self.name}:", *map(_buffer_text, self.buffers), *map(str, self.steps)]
        )


# The names in the release before, for one release.
Kind, Buffer, Window = BufferKind, ProgramBuffer, MatrixWindow
Check, Program = ValueCheck, LoopProgram


# ---------------------------------------------------------------------------------------- queries
def values_of(statement: Statement) -> tuple[Scalar, ...]:
    """Returns the expressions of a statement, and the dynamic ones of a store's address."""
    if isinstance(statement, Store):
        dynamic = statement.address.dynamic
        return (statement.value, *[each for each, _ in dynamic]) if dynamic else (statement.value,)
    return (statement.value,) if isinstance(statement, Let) else statement.values


def names_of(statement: Statement) -> tuple[int, ...]:
    """Returns the names that a statement defines."""
    match statement:
        case Let(name=name):
            return (name,)
        case Store():
            return ()
        case _:
            return statement.names


def loads_of(kernel: Kernel) -> tuple[Scalar, ...]:
    """Returns each load of a kernel once, in order of first use."""
    if kernel.loads is None:
        object.__setattr__(kernel, "loads", tuple(loads_in(kernel.body)))
    found: tuple[Scalar, ...] = kernel.loads
    return found


def loads_in(body: Iterable[Statement]) -> list[Scalar]:
    """Returns each load of the statements once, in order of first use."""
    found = [facts(value).loads for statement in body for value in values_of(statement)]
    if len(found) == 1:
        return list(found[0])
    return list(dict.fromkeys([each for loads in found for each in loads]))


def names_used(statement: Statement) -> set[int]:
    """Returns the names that a statement uses."""
    return {k for value in values_of(statement) for k in facts(value).names}


def stores_of(kernel: Kernel) -> list[Store]:
    """Returns the stores of a kernel."""
    return [statement for statement in kernel.body if type(statement) is Store]


def in_order(kernel: Kernel) -> int:
    """Returns how many of the last space axes run in ascending order within one unit of work (K-7).

    Along these axes a combining store stays at one address, so that the order of sums is theirs.
    """
    most = 0
    for store in stores_of(kernel):
        if store.combine is not None and not store.address.dynamic:
            most = max(most, len(rows_of(store, kernel.space)))
    return most


def rows_of(store: Store, space: int) -> list[int]:
    """Returns the last space axes along which a combining store stays at one address (K-7)."""
    used = [k for k in range(space) if store.address.coefficients[k]]
    return list(range(max(used, default=-1) + 1, space))


def reads(step: Step) -> set[int]:
    """Returns the buffers that a step reads."""
    match step:
        case Kernel():
            if step.shared is not None:
                template, buffers = step.shared
                return {buffers[k] for k in template.read}
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
    """Returns the buffers that a step writes."""
    match step:
        case Kernel():
            return set(stored(step))
        case Gemm():
            return {step.c.buffer}
        case Extern():
            return {placed.buffer for placed in step.results if placed is not None}
        case ValueCheck():
            return set()


def loaded(kernel: Kernel) -> Sequence[int]:
    """Returns the buffer of each load of a kernel, in the order of `loads_of`."""
    if kernel.shared is None:
        return [value.args[0] for value in loads_of(kernel)]
    template, buffers = kernel.shared
    return [buffers[k] for k in template.loaded]


def stored(kernel: Kernel) -> Sequence[int]:
    """Returns the buffer of each store of a kernel, in order."""
    if kernel.shared is None:
        return [store.buffer for store in stores_of(kernel)]
    template, buffers = kernel.shared
    return [buffers[k] for k in template.stored]


def named_by(
    kernel: Kernel, question: Callable[..., Sequence[int]], *arguments: int
) -> Sequence[int]:
    """Returns buffers of a kernel that a function names. It is asked once for kernels that share a
    template."""
    if kernel.shared is None:
        return question(kernel, *arguments)
    template, buffers = kernel.shared
    return [buffers[k] for k in template.places(question, *arguments)]


def happens(step: Step) -> bool:
    """Whether a step has an effect, such as printing: it is never removed, and effects keep their
    order (TOK-6)."""
    return type(step) is Extern and type(step.op) is TokenOp


def operands_of(step: Extern) -> list[Placed]:
    """Returns the tensors among an extern's arguments, also those in lists."""
    found = []
    for value in step.args:
        items = value if type(value) is tuple else (value,)
        found += [item for item in items if type(item) is Placed]
    return found


def slots(program: LoopProgram) -> list[ProgramBuffer]:
    """Returns the buffers whose memory a caller passes: inputs, then outputs, by number."""
    kinds = (BufferKind.INPUT, BufferKind.OUTPUT)
    return [buffer for kind in kinds for buffer in program.buffers if buffer.kind is kind]


# --------------------------------------------------------------------------------------- printing
def _buffer_text(buffer: ProgramBuffer) -> str:
    return f"  b{buffer.number}: {buffer.dtype.short}[{buffer.size}] {buffer.kind.value}"


def _statement_text(statement: Statement, texts: dict[Scalar, str]) -> str:
    """Returns the line of a statement. `texts` keeps the texts of scalars for later lines."""
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
