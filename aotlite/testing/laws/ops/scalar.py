"""The law of scalar expressions: they have the values of kernels, element by element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.op import Op, PureOp
from aotlite.ir.ops.pointwise_expression import expression_of
from aotlite.ir.scalar.evaluation import by_numpy, evaluate
from aotlite.ir.scalar.expression import Scalar, walk
from aotlite.ir.scalar.functions import FUNCTIONS
from aotlite.testing.laws.ops.runs import bound, close, elements, run
from aotlite.testing.laws.samples.sample import Sample

Samples = Sequence[Sample]

WITHOUT_SCALAR = {
    "clone": "a copy: elements are the operand's; it changes strides",
    "restride": "a copy: elements are the operand's; it changes strides",
    "copy": "a copy: elements are the source's, cast",
}
"""Pointwise op without a scalar expression -> the reason."""

# NumPy computes one element and many by different code, which may differ by one unit.
_ULPS = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 5e-7,
    "float64": 1e-15,
    "complex64": 1e-6,
    "complex128": 1e-15,
}


def scalar_is_the_kernel(op: Op, samples: Samples) -> None:
    """L6: the scalar expression, evaluated by NumPy, has the values of the kernel."""
    assert isinstance(op, PureOp)
    if op.name in WITHOUT_SCALAR:
        return
    assert op.scalar is not None, f"{op.name}: it is pointwise, expected a scalar expression"
    for sample in samples:
        args = bound(op, sample)
        tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        arrays = [np.array(args[i].array) for i in tensors]
        got = run(op, args)[0]
        root = expression_of(op, got.dtype, args, tensors)
        with np.errstate(all="ignore"):
            expected = np.broadcast_to(evaluate(root, arrays, by_numpy), got.shape)
        assert _same_values(expected, got.array, _units(root)), (
            f"{op.name}{sample}: the kernel gives {elements(got).tolist()}, expected "
            f"{expected.tolist()} by the scalar expression"
        )


def _units(root: Scalar) -> int:
    """The factor of `_ULPS` by which a kernel may differ: that of the expression's functions."""
    rows = [FUNCTIONS[each.op] for each in walk([root]) if each.op in FUNCTIONS]
    return max([row.units for row in rows], default=1)


def _same_values(a: np.ndarray, b: np.ndarray, units: int) -> bool:
    if a.dtype.kind in "fcV" and b.dtype.kind in "fcV":
        if a.dtype.kind == "V":  # an extension dtype, which NumPy's tests of floats refuse
            a, b, name = a.astype(np.float32), b.astype(np.float32), b.dtype.name
            return close(a, b, units * _ULPS[name])
        zeros = (a == 0) & (b == 0)
        if a.dtype.kind == "f" and (np.signbit(a) != np.signbit(b))[zeros].any():
            return False
        return close(a, b, units * _ULPS.get(b.dtype.name, 0))
    return bool((a == b).all())
