"""The function library: bounds of errors, special values, exact integers, the same bits from C."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aotlite.backends.loops.functions import Function, declared, find
from aotlite.ir.arrays import NUMPY
from aotlite.ir.device import CPU
from aotlite.ir.dtypes import DTYPES, DType, bool_, from_numpy
from aotlite.ir.errors import AotliteError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from benchmarks.function_kernels import evaluated

OPS_BY_FUNCTION = {
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "invert": "bitwise_not",
    "bit_and": "bitwise_and",
    "bit_or": "bitwise_or",
    "bit_xor": "bitwise_xor",
}
"""The ops whose names are not the functions'."""
CANCELS = {"lgamma": 1e-14, "digamma": 1e-14}
"""By how much functions may differ that have zeros where large parts cancel."""
DIVISIONS = ("fmod", "remainder", "floor_divide")
EVERY = [
    find(op, (dtype,) * count)
    for op, count, accepts in declared()
    for dtype in DTYPES
    if accepts(dtype)
]


def named(function: Function) -> str:
    return function.name


# ------------------------------------------------------------------------------------ what it sees
def special_floats(dtype: DType) -> np.ndarray:
    info = ml_dtypes.finfo(dtype.numpy)
    edges = [float(v) for v in (info.max, info.tiny, info.smallest_subnormal, 1 + info.eps)]
    plain = [0.0, 0.5, 1, 1.5, 2, 2.5, 3, 7.25, 100, 1e-3, 88.8, 89.5, 87.5, 103, 104.5, 709.9, 745]
    large = [1e4, 1e9, 1e10, 1e30, 2.0**24 - 1, 2.0**24 + 1, np.inf]
    sizes = np.array([*plain, *edges, *large])
    with np.errstate(all="ignore"):
        return np.concatenate([sizes, -sizes, [np.nan]]).astype(dtype.numpy)


def special_values(dtype: DType) -> np.ndarray:
    """Numbers at which functions are known to go wrong."""
    if dtype.is_floating_point:
        return special_floats(dtype)
    if dtype is bool_:
        return np.array([False, True])
    info: Any = ml_dtypes.iinfo(dtype.numpy)
    values = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, info.max, info.max - 1]
    values += [info.min, info.min + 1, -1, -2, -3, -7, -8, -64]
    return np.array([v for v in values if info.min <= v <= info.max], dtype.numpy)


def operands_of(function: Function, values: np.ndarray) -> list[np.ndarray]:
    """All pairs of values for a function of two operands; integers are not divided by 0."""
    if len(function.parameters) == 1:
        return [values]
    pairs = [a.ravel() for a in np.meshgrid(values, values)]
    if function.op in DIVISIONS and not function.parameters[0].is_floating_point:
        kept = pairs[1] != 0
        pairs = [a[kept] for a in pairs]
    return pairs


def by_kernel(function: Function, operands: list[np.ndarray]) -> np.ndarray | None:
    """What the op's own kernel computes; None without such an op, or where it refuses the dtype."""
    op: Any = OPS.get(OPS_BY_FUNCTION.get(function.op, function.op))
    if op is None:
        return None
    more = (0,) if function.op == "round" else ()
    metas = [tensor_meta(a.shape, None, from_numpy(a.dtype), CPU) for a in operands]
    try:
        meta = op.rule(*metas, *more)
    except AotliteError:
        return None
    return np.asarray(NUMPY.quiet(op.kernel, NUMPY, meta, *operands, *more))


def agree(mine: np.ndarray, theirs: np.ndarray, ulp: float) -> np.ndarray:
    """Where both are nan, the same with the same sign, or some units of the last place apart."""
    if mine.dtype.kind not in "fV":
        return mine == theirs
    a, b = mine.astype(float), theirs.astype(float)
    with np.errstate(all="ignore"):
        alike = (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))
        if not ulp or mine.dtype.kind == "V":
            return alike
        finite = np.isfinite(a) & np.isfinite(b) & (b != 0)
        last = np.spacing(np.abs(np.where(finite, theirs, 1)).astype(mine.dtype)).astype(float)
        return alike | (finite & (np.abs(a - b) <= ulp * last))


@pytest.mark.parametrize("function", EVERY, ids=named)
def test_special_values_are_those_of_the_ops_kernel(function: Function) -> None:
    operands = operands_of(function, special_values(function.parameters[0]))
    theirs = by_kernel(function, operands)
    if theirs is None:
        pytest.skip(f"{function.op} is part of no op of {function.parameters[0]}")
    mine = np.broadcast_to(evaluated(function, *operands), theirs.shape)
    right = agree(mine, theirs, 2 * function.ulp + 2 if function.ulp else 0)
    if function.op in CANCELS:
        right |= np.abs(mine - theirs) <= CANCELS[function.op]
    wrong = np.flatnonzero(~right)
    found = [(*[a[k] for a in operands], mine[k], theirs[k]) for k in wrong[:5]]
    assert [] == found


@pytest.mark.parametrize("function", [f for f in EVERY if f.parameters[0].itemsize == 1], ids=named)
def test_one_byte_operands_agree_with_the_kernel_everywhere(function: Function) -> None:
    dtype = function.parameters[0].numpy
    is_bool = function.parameters[0] is bool_
    every = special_values(bool_) if is_bool else np.arange(256).astype(np.uint8).view(dtype)
    operands = operands_of(function, every)
    theirs = by_kernel(function, operands)
    if theirs is None:
        pytest.skip(f"{function.op} is part of no op of {function.parameters[0]}")
    mine = np.broadcast_to(evaluated(function, *operands), theirs.shape)
    assert np.array_equal(theirs.astype(mine.dtype), mine)
