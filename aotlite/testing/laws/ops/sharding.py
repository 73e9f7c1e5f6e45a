"""L13 and L14: what a declaration claims of its op, `linear` and `dims`, is so.

Sharding trusts both claims (OPS-23, OPS-24). Input is an op and samples; no other law reads these
fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite import all_reduce, cat, zeros_like
from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.op import Op, PureOp
from aotlite.sharding.parts import Cut, cuts_of, linear_groups, operand_names
from aotlite.testing.laws.ops.runs import bound, run
from aotlite.testing.laws.samples.sample import Sample

Args = tuple[Any, ...]
Samples = Sequence[Sample]

SLACK = {"float16": 1e-2, "bfloat16": 1e-1, "float32": 1e-5, "complex64": 1e-5}
"""Sums of parts are rounded elsewhere than the sum of all; of float64 1e-12 is enough."""


def claims_linearity(op: Op) -> bool:
    """Whether the declaration says that the op is linear in some operands."""
    return isinstance(op, PureOp) and bool(op.linear)


def claims_dims(op: Op) -> bool:
    """Whether the declaration says how the op's results are cut."""
    return isinstance(op, PureOp) and op.dims is not None


# ------------------------------------------------------------------------------------ the laws
def linear_is_linear(op: Op, samples: Samples) -> None:
    """L13: for operands that are declared `linear`, f(a + a') = f(a) + f(a')."""
    for sample in [each for each in samples if each.smooth]:
        args = bound(op, sample)
        for marks in linear_groups(op, args):
            pairs = zip(operand_names(op, args), marks, strict=True)
            names = tuple(dict.fromkeys(name for name, inside in pairs if inside))
            first, second = _halves(op, args, marks)
            results = zip(run(op, args), run(op, first), run(op, second), strict=True)
            for whole, a, b in results:
                assert _is_close(whole, a + b), (
                    f"{op.name}{sample}: declared linear in {names}, but f(a + a') != f(a) + f(a')"
                    f": {whole.tolist()} and {(a + b).tolist()}"
                )


def dims_cut_the_op(op: Op, samples: Samples) -> None:
    """L14: the results of parts, cut as `dims` says, make up the result of the whole."""
    for sample in samples:
        args = bound(op, sample)
        for count in (1, 2, 3):
            for cut in cuts_of(op, args, count):
                whole, parts = run(op, args), _results_of_parts(op, args, cut, count)
                for k, expected in enumerate(whole):
                    if cut.joins is not None and not _has_sums(expected):
                        continue
                    found = _joined([each[k] for each in parts], cut.results[k], cut.joins)
                    assert _is_close(expected, found), (
                        f"{op.name}{sample}: declared that {cut.label!r} can be cut, but {count} "
                        f"parts make up {found.tolist()}, and the whole is {expected.tolist()}"
                    )


# ------------------------------------------------------------------------------- sums and parts
def _halves(op: Op, args: Args, marks: tuple[bool, ...]) -> tuple[Args, Args]:
    """Two argument tuples: the marked operands of both add up to those given, others are equal."""
    first, second = [], []
    for k, (inside, operand) in enumerate(zip(marks, op.operands(args), strict=True)):
        half = (operand * (k + 2)).sin() if inside else operand
        first.append(half)
        second.append(operand - half if inside else operand)
    return _with_operands(op, args, first), _with_operands(op, args, second)


def _with_operands(op: Op, args: Args, operands: list[Tensor]) -> Args:
    """The arguments with other operands, in the order of `Op.operands`."""
    rest, found = iter(operands), list(args)
    for i in (*op.tensors, *op.mixed):
        if isinstance(args[i], Tensor):
            found[i] = next(rest)
    for i in op.lists:
        found[i] = tuple([next(rest) for _ in args[i]])
    return tuple(found)


def _results_of_parts(op: Op, args: Args, cut: Cut, count: int) -> list[tuple[Tensor, ...]]:
    """The results of each part."""
    found = []
    for index in range(count):
        operands = [
            zeros_like(operand) if cut.added[k] and index else _part(operand, dim, index, count)
            for k, (operand, dim) in enumerate(zip(op.operands(args), cut.operands, strict=True))
        ]
        found.append(run(op, _with_operands(op, cut.args(op, args, count), operands)))
    return found


def _part(tensor: Tensor, dim: int | None, index: int, count: int) -> Tensor:
    if dim is None:
        return tensor
    size = tensor.shape[dim] // count
    part: Tensor = tensor.narrow(dim, index * size, size).clone()
    return part


def _joined(parts: list[Tensor], dim: int | None, reduction: str | None) -> Tensor:
    if dim is not None:
        return cat(parts, dim)
    assert reduction is not None
    whole: Tensor = all_reduce(parts, reduction)[0]
    return whole


def _has_sums(tensor: Tensor) -> bool:
    """Whether parts of a tensor can be joined: no reduction of ranks takes bools."""
    return tensor.dtype is not dtypes.bool_


def _is_close(expected: Tensor, found: Tensor) -> bool:
    if expected.shape != found.shape or expected.dtype is not found.dtype:
        return False
    a, b = np.asarray(expected.numpy()), np.asarray(found.numpy())
    if a.dtype.kind == "V" or a.dtype.itemsize == 1 and a.dtype.kind not in "biu":
        a, b = a.astype(np.float32), b.astype(np.float32)
    slack = SLACK.get(expected.dtype.name, 1e-12)
    with np.errstate(all="ignore"):
        return np.allclose(a, b, rtol=slack, atol=slack, equal_nan=a.dtype.kind in "fc")
