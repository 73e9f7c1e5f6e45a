"""What a kernel may hold of memory beside its operands and results, as a formula of both.

Ground floor. An op's declaration says it, or its class of cost does. Rule: OPS-26. Spec:
`specs/op_declaration.md`. The law: `tests/laws/test_workspace.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, DataOp, PureOp

Workspace = Mapping[str, int | Callable[..., int]]
"""How many arrays of the size of each a kernel holds at once: of parameters by their names, and of
"results" and "operands", all of them together. An element counts as 8 bytes, 16 in complex ops; a
size of 0 counts as 1. What depends on more than these is a function of the arguments and of the
results' metas that gives elements, by what it counts."""

BLOCK = 1 << 17
"""Elements that a kernel which goes block by block has of an operand at a time."""
_BLOCKS, _BUFFERS = 16, 1 << 18
"""Arrays of a block; bytes of the array library's own buffers, and of Python's objects."""

RESULTS, OPERANDS = "results", "operands"

WORKSPACES: Mapping[Cost, Workspace] = {
    # Steps of a formula, each an array like the result; operands are broadcast, and never copied.
    Cost.POINTWISE: {RESULTS: 24},
    # What NumPy has no reduction for is formed of each element first: squares, ranks, orders.
    Cost.REDUCTION: {RESULTS: 4, OPERANDS: 3},
    # NumPy's BLAS and LAPACK take dense matrices; patches of images are such a matrix, too.
    Cost.CONTRACTION: {RESULTS: 6, OPERANDS: 3},
    # Elements are moved: what they are moved from is never copied, and positions may be.
    Cost.INDEXING: {RESULTS: 6, "index": 2, "indices": 2, "repeats": 2},
    # Counters and words of the generator; weights are summed up.
    Cost.RANDOM: {RESULTS: 20, OPERANDS: 17},
    Cost.FACTORY: {RESULTS: 2},
}


def workspace_of(op: PureOp | DataOp) -> Workspace | None:
    """What the op may hold; None where nobody says (an op of the user's own)."""
    return WORKSPACES.get(op.cost) if op.workspace is None else op.workspace


def fixed() -> int:
    """Bytes that any kernel may hold."""
    return _BLOCKS * BLOCK * 8 + _BUFFERS


def bytes_of(op: PureOp | DataOp, args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
    """Bytes that the kernel may hold beside the results, on arguments that have metas."""
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


def _named(op: PureOp | DataOp, args: tuple[Any, ...], name: str) -> Iterator[TensorMeta]:
    """The metas of what is given for a parameter; none for one that the op does not have."""
    for parameter, value in zip(op.schema.parameters, args, strict=True):
        if parameter.name == name:
            for each in value if type(value) is tuple else (value,):
                if hasattr(each, "meta"):
                    yield each.meta


def stated(op: PureOp | DataOp) -> str:
    """The workspace as a formula, for people."""
    names = {parameter.name for parameter in op.schema.parameters} | {RESULTS, OPERANDS}
    found = (workspace_of(op) or {}).items()
    words = [
        name if callable(n) else f"{n} {name}" for name, n in found if callable(n) or name in names
    ]
    return " + ".join(words)
