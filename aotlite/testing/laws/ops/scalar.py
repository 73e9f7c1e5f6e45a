"""The law of scalar expressions: they have the values of kernels, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.ir import dtypes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op, PureOp
from aotlite.ir.ops.precision import accumulator, number_in
from aotlite.ir.scalar import evaluate, tree
from aotlite.testing.laws.ops.runs import bound, close, elements, run
from aotlite.testing.laws.samples.sample import Sample

Samples = Sequence[Sample]

WITHOUT_SCALAR = {
    "clone": "a copy: elements are the operand's; it changes strides",
    "restride": "a copy: elements are the operand's; it changes strides",
    "copy": "a copy: elements are the source's, cast",
}
"""Pointwise op without a scalar expression -> the reason."""

_SAME_NAME = (
    "abs exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh floor ceil trunc round isnan isinf conj real imag logical_not invert maximum "
    "minimum where atan2 hypot copysign nextafter fmod remainder floor_divide logical_and "
    "logical_or logical_xor left_shift right_shift gcd lcm sign"
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _SAME_NAME.split()},
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "neg": np.negative,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "signbit": lambda a: a < 0 if a.dtype.kind in "biu" else np.signbit(a),
    "erf": math.erf,
    "erfc": math.erfc,
    "erfinv": lambda a: _exactly(a, _erfinv),
    "lgamma": lambda a: _exactly(a, _lgamma),
    "digamma": lambda a: _exactly(a, _digamma),
    "polygamma": lambda n, a: _exactly(a, lambda x: _polygamma(n, x)),
    "complex": lambda a, b: np.result_type(a, np.complex64).type(complex(a, b)),
    # NumPy takes a root for a single exponent of 0.5, which differs at -0.0 and -inf.
    "pow": lambda a, b: _power(a, b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "cast": lambda a, dtype: np.asarray(a).astype(dtype.numpy)[()],
}
"""NumPy's function for each operation of a scalar expression."""

# NumPy computes one element and many by different code, which may differ by one unit.
_ULPS = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 5e-7,
    "float64": 1e-15,
    "complex64": 1e-6,
    "complex128": 1e-15,
}


_UNITS = {"lgamma": 8, "digamma": 32, "polygamma_of": 32, "erfinv": 8}
"""Op -> the factor of `_ULPS` by which its kernel may differ from mpmath (`specs/functions.md`)."""


def _exactly(a: Any, function: Callable[[float], Any]) -> Any:
    """Returns the result of a function of mpmath for an element, rounded once, in its dtype.

    mpmath, which SymPy depends on, is independent of aotlite's kernels.
    """
    dtype = np.asarray(a).dtype
    kept = dtype.type if dtype.kind == "f" else np.float64
    return kept(a if math.isnan(a) else function(float(a)))


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == int(x)):
        return math.inf
    return float(mpmath.re(mpmath.loggamma(x)))


def _digamma(x: float) -> float:
    if x == 0:
        return -math.copysign(math.inf, x)
    if x == -math.inf or (x < 0 and x == int(x)):
        return math.nan
    return x if math.isinf(x) else float(mpmath.digamma(x))


def _polygamma(n: int, x: float) -> float:
    if n == 0:
        return _digamma(x)
    if math.isinf(x):
        return 0.0 if x > 0 else math.nan
    if x <= 0 and x == int(x):
        return math.inf if n % 2 else math.nan
    return float(mpmath.polygamma(n, x))


def _erfinv(x: float) -> float:
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    return float(mpmath.erfinv(x)) if x else x


def _power(a: Any, b: Any) -> Any:
    """NumPy's power; for integers with a negative exponent, the truncated reciprocal."""
    if np.result_type(a, b).kind not in "iu" or b >= 0:
        return np.power([a, a], [b, b])[0]
    return a ** (-b % 2) if abs(a) == 1 else 0


def scalar_is_the_kernel(op: Op, samples: Samples) -> None:
    """L6: the scalar expression, element by element, has the values of the kernel."""
    assert isinstance(op, PureOp)
    if op.name in WITHOUT_SCALAR:
        return
    assert op.scalar is not None, f"{op.name}: it is pointwise, expected a scalar expression"
    for sample in samples:
        got = run(op, bound(op, sample))[0]
        expected = _by_element(op, bound(op, sample), got.meta)
        assert _same_values(expected, got.array, _UNITS.get(op.name, 1)), (
            f"{op.name}{sample}: the kernel gives {elements(got).tolist()}, expected "
            f"{expected.tolist()} by the scalar expression"
        )


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


def _by_element(op: PureOp, args: tuple[Any, ...], meta: TensorMeta) -> np.ndarray:
    names = [p.name for p in op.schema.parameters]
    operands = {n: a for n, a in zip(names, args, strict=True) if isinstance(a, Tensor)}
    narrow = _computing_dtype(op, args, meta)
    computes = accumulator(narrow)
    held = computes if op.numbers == "wide" else narrow
    stands = [p.type.holds_number for p in op.schema.parameters]
    literals = [
        n if n in operands else number_in(held, a) if number else a
        for n, a, number in zip(names, args, stands, strict=True)
    ]
    expression = tree(op.scalar, tuple(literals))  # type: ignore[arg-type]
    columns = {
        n: np.broadcast_to(_cast(op, n, t, narrow).astype(computes.numpy), meta.shape)
        if computes is not narrow and not (op.numbers == "wide" and n != names[0] and not t.shape)
        else np.broadcast_to(_cast(op, n, t, computes), meta.shape)
        for n, t in operands.items()
    }
    result = np.empty(meta.shape, meta.dtype.numpy)
    with np.errstate(all="ignore"):
        for place in np.ndindex(meta.shape):
            values = {n: column[place] for n, column in columns.items()}
            result[place] = evaluate(expression, values, FUNCTIONS)
    return result


def _computing_dtype(op: PureOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
    """The dtype that operands are cast to: the promoted one for bool results and complex numbers,
    else that of the result."""
    promoted = dtypes.result_type(
        [
            (a.dtype, len(a.shape)) if isinstance(a, Tensor) else a
            for a, parameter in zip(args, op.schema.parameters, strict=True)
            if isinstance(a, Tensor) or (parameter.type.holds_tensor and a is not None)
        ]
    )
    kept = meta.dtype is dtypes.bool_ or promoted.is_complex or meta.dtype.is_complex
    return promoted if kept else meta.dtype


def _cast(op: PureOp, name: str, tensor: Tensor, dtype: Any) -> np.ndarray:
    """The operand, cast to a dtype, except for conditions, masks and the operand of `cast`."""
    keeps = {"where": "self", "masked_fill": "mask", "cast": "self"}.get(op.name) == name
    array = np.array(tensor.array)
    return array if keeps else array.astype(dtype.numpy)
