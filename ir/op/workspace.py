"""The scratch memory that a kernel may use beside its operands and results, as a formula of both.

Ground floor. An op's declaration states it, or else its cost class. Rule: OPS-26. Spec:
`specs/op_declaration.md`. The law that kernels keep to it: `tests/laws/test_workspace.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, DataOp, PureOp

Workspace = Mapping[str, int | Callable[..., int]]
"""How many scratch arrays a kernel holds at once, by size: `{"results": 4, "index": 2}` is four as
large as all results together, and two as large as the operand `index`. "operands" stands for all
operands together. An element counts as 8 bytes, 16 in complex ops; a size of 0 counts as 1. Any
other size is a function of the arguments and of the results' metas that gives elements, under a
name for it."""

BLOCK = 1 << 17
"""Elements of an operand that a kernel which works in blocks processes at a time."""
_BLOCKS, _BUFFERS = 16, 1 << 18
"""Scratch arrays of one block; bytes for the array library's buffers and for Python objects."""

RESULTS, OPERANDS = "results", "operands"

WORKSPACES: Mapping[Cost, Workspace] = {
    # Each step of a formula makes an array like the result. Operands are broadcast, not copied.
    Cost.POINTWISE: {RESULTS: 24},
    # Where NumPy lacks a reduction, each element is transformed first: squares, ranks, orders.
    Cost.REDUCTION: {RESULTS: 4, OPERANDS: 3},
    # BLAS and LAPACK take dense matrices: operands are copied, and images unfolded to patches.
    Cost.CONTRACTION: {RESULTS: 6, OPERANDS: 3},
    # Elements are moved. Their source is never copied; indices may be.
    Cost.INDEXING: {RESULTS: 6, "index": 2, "indices": 2, "repeats": 2},
    # Counters and words of the generator; cumulative sums of weights.
    Cost.RANDOM: {RESULTS: 20, OPERANDS: 17},
    Cost.FACTORY: {RESULTS: 2},
}


def workspace_of(op: PureOp | DataOp) -> Workspace | None:
    """The op's workspace, or its cost class's; None where neither states one (a user's op)."""
    return WORKSPACES.get(op.cost) if op.workspace is None else op.workspace


def fixed() -> int:
    """Bytes that any kernel may use, whatever its workspace."""
    return _BLOCKS * BLOCK * 8 + _BUFFERS


def bytes_of(op: PureOp | DataOp, args: tuple[object, ...], results: Sequence[TensorMeta]) -> int:
    """Bytes that the kernel may use beside the results, for arguments that have metas."""
    operands = [value.meta for value in op.operands(args)]
    word = 16 if any(meta.dtype.is_complex for meta in (*operands, *results)) else 8
    stated, elements = workspace_of(op) or {}, 0
    for name, count in stated.items():
        if callable(count):
            elements += count(args, results)
        elif name == RESULTS:
            elements += count * _elements(results)
        elif name == OPERANDS:
            elements += count * _elements(operands)
        else:
            elements += count * _elements(list(_named(op, args, name)))
    return word * elements + fixed()


def _elements(metas: Sequence[TensorMeta]) -> int:
    return sum(prod(max(size, 1) for size in meta.shape) for meta in metas)


def _named(op: PureOp | DataOp, args: tuple[object, ...], name: str) -> Iterator[TensorMeta]:
    """The metas of the argument for the parameter `name`; none where the op has no such one."""
    for parameter, value in zip(op.schema.parameters, args, strict=True):
        if parameter.name == name:
            for each in value if type(value) is tuple else (value,):
                if hasattr(each, "meta"):
                    yield each.meta


def stated(op: PureOp | DataOp) -> str:
    """The workspace as a formula in text."""
    names = {parameter.name for parameter in op.schema.parameters} | {RESULTS, OPERANDS}
    found = (workspace_of(op) or {}).items()
    words = [
        name if callable(n) else f"{n} {name}" for name, n in found if callable(n) or name in names
    ]
    return " + ".join(words)
