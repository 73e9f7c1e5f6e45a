"""The function library: bounds of errors, special values, exact integers, the same bits from C."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import aotlite.ir.ops
from aotlite.backends.loops.interpreter.program_interpreter import evaluate
from aotlite.ir.arrays import NUMPY
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DTYPES, DType, bool_, complex64, float32, float64, from_numpy, int32
from aotlite.ir.errors import AotliteError, GraphError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.scalar.expression import function as called
from aotlite.ir.scalar.expression import parameter, walk
from aotlite.ir.scalar.functions import (
    ScalarFunction,
    coefficients,
    declared,
    expand,
    find,
    has,
)
from aotlite.ir.scalar.functions.bodies.number_bases import power_of_number
from aotlite.ir.scalar.functions.bodies.powers import power_of_constant
from aotlite.ir.scalar.primitives import PRIMITIVES
from benchmarks import functions
from benchmarks.function_kernels import COMPILER, Compiled, evaluated

assert aotlite.ir.ops  # importing it fills the table of ops

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "specs" / "functions.md"
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


def named(function: ScalarFunction) -> str:
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


def operands_of(function: ScalarFunction, values: np.ndarray) -> list[np.ndarray]:
    """All pairs of values for a function of two operands; integers are not divided by 0."""
    if len(function.parameters) != 2:
        return [np.roll(values, 3 * k) for k in range(len(function.parameters))]
    pairs = [a.ravel() for a in np.meshgrid(values, values)]
    if function.op in DIVISIONS and not function.parameters[0].is_floating_point:
        kept = pairs[1] != 0
        pairs = [a[kept] for a in pairs]
    return pairs


def by_kernel(function: ScalarFunction, operands: list[np.ndarray]) -> np.ndarray | None:
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
def test_special_values_are_those_of_the_ops_kernel(function: ScalarFunction) -> None:
    operands = operands_of(function, special_values(function.parameters[0]))
    theirs = by_kernel(function, operands)
    if theirs is None:
        pytest.skip(f"{function.op} is part of no op of {function.parameters[0]}")
    mine = np.broadcast_to(evaluated(function, *operands), theirs.shape)
    right = agree(mine, theirs, 2 * function.ulp + 2 if function.ulp else 0)
    if function.op in CANCELS:
        with np.errstate(invalid="ignore"):
            right |= np.abs(mine - theirs) <= CANCELS[function.op]
    wrong = np.flatnonzero(~right)
    found = [(*[a[k] for a in operands], mine[k], theirs[k]) for k in wrong[:5]]
    assert [] == found


@pytest.mark.parametrize("function", [f for f in EVERY if f.parameters[0].itemsize == 1], ids=named)
def test_one_byte_operands_agree_with_the_kernel_everywhere(function: ScalarFunction) -> None:
    dtype = function.parameters[0].numpy
    is_bool = function.parameters[0] is bool_
    every = special_values(bool_) if is_bool else np.arange(256).astype(np.uint8).view(dtype)
    operands = operands_of(function, every)
    theirs = by_kernel(function, operands)
    if theirs is None:
        pytest.skip(f"{function.op} is part of no op of {function.parameters[0]}")
    mine = np.broadcast_to(evaluated(function, *operands), theirs.shape)
    assert np.array_equal(theirs.astype(mine.dtype), mine)


# --------------------------------------------------------------------------------------- how exact
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="gcc is not installed")
ROUNDING = functions.floating()
PRINTED = [f for f in EVERY if f.parameters[0].itemsize > 2 or f.parameters[0] is bool_]
CONTRACTION = ("-ffp-contract=off", "-ffp-contract=off -DCONTRACT")


def has_avx2() -> bool:
    """Whether /proc/cpuinfo says so."""
    told = Path("/proc/cpuinfo")
    return told.exists() and "avx2" in told.read_text("utf-8")


@pytest.fixture(scope="module", params=CONTRACTION)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(PRINTED, tmp_path_factory.mktemp("functions"), *request.param.split())


@pytest.mark.slow("compiles the functions, and tries thousands of numbers")
@needs_compiler
@pytest.mark.thinned(12)
@pytest.mark.parametrize("stride", [1_048_573, pytest.param(262_139, marks=pytest.mark.long)])
@pytest.mark.parametrize("function", [f for f in ROUNDING if "near" not in f.domain], ids=named)
def test_errors_are_within_the_bound(function: ScalarFunction, stride: int, run: Compiled) -> None:
    found = functions.worst(function, run, stride)
    if found is None:
        pytest.skip(f"NumPy has no {function.op} of more bits")
    assert (found.ulp <= function.ulp) is True, found


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("function", [f for f in ROUNDING if f.parameters == (float32,)], ids=named)
def test_errors_of_every_float32_are_within_the_bound(
    function: ScalarFunction, run: Compiled
) -> None:
    slow = function.op in ("erf", "erfc", "lgamma")  # whose reference is Python's, a number a call
    found = functions.worst(function, run, 257 if slow else 1)
    assert found is None or found.ulp <= function.ulp, found


@pytest.mark.long
@needs_compiler
def test_errors_of_erf_are_within_the_bound_at_every_float32(run: Compiled) -> None:
    """From where it is a product on, to where it is 1; negative ones differ by their sign."""
    function = find("erf", (float32,))
    first, last = np.array([2.0**-14, 4.0], np.float32).view(np.uint32).tolist()
    exact = functions.reference("erf", float32)
    assert exact is not None
    for start in range(first, last, 1 << 20):
        x = np.arange(start, min(start + (1 << 20), last), dtype=np.uint32).view(np.float32)
        found = functions.errors(run(function, x), np.asarray(exact(x)))
        assert found.max() <= function.ulp, x[found.argmax()]


@pytest.mark.parametrize("function", [f for f in EVERY if f.usual], ids=lambda f: f.name)
def test_the_body_for_usual_numbers_gives_the_same_bits(function: ScalarFunction) -> None:
    assert function.usual is not None
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 1 << 32, 1 << 16, np.uint32).view(np.float32)
    near = [*10 ** rng.uniform(-3, 5, 1 << 16), 0.0, -0.0, 6431.9995, 6432.0]
    x = np.concatenate([patterns, np.array(near, np.float32)])
    with np.errstate(all="ignore"):
        usual = evaluate(function.usual.condition, [x])
        short = evaluate(function.usual.body, [x])
    assert usual[np.abs(x) <= 1000].all()
    assert not usual[~np.isfinite(x)].any()
    assert short[usual].tobytes() == evaluated(function, x)[usual].tobytes()


@needs_compiler
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("op", ["erf", "exp", "exp2", "expm1", "tanh"])
def test_nan_of_either_sign_passes_limits(op: str, dtype: DType, run: Compiled) -> None:
    """Some limits compare integers, which are large for one nan and negative for the other."""
    function, x = find(op, (dtype,)), np.full(64, np.nan, dtype.numpy)
    for given in (x, -x):
        assert np.isnan(evaluated(function, given)).all()
        assert np.isnan(run(function, given)).all()


@needs_compiler
def test_erf_is_one_from_where_it_rounds_to_one(run: Compiled) -> None:
    function = find("erf", (float32,))
    x = np.array([3.92, 3.9375, 4, 5, 1e10, 3e38, np.inf], np.float32)
    for given, one in ((x, 1.0), (-x, -1.0)):
        assert (evaluated(function, given) == one).all()
        assert (run(function, given) == one).all()


@needs_compiler
def test_exp_is_infinite_and_zero_where_it_should_be(run: Compiled) -> None:
    """Whatever is left of x when its power of two is limited."""
    function = find("exp", (float32,))
    large = np.array([88.723, 88.8, 89.5, 90, 91, 200, 1e9, 1e30, np.inf], np.float32)
    both: list[Callable[..., Any]] = [evaluated, run]
    for compute in both:
        assert np.isposinf(compute(function, large)).all()
        assert (compute(function, -large[5:]) == 0).all()


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("op", ["erfinv", "digamma"])
def test_errors_against_more_digits(op: str, dtype: DType) -> None:
    """Of functions that NumPy has not, at a few numbers."""
    function = find(op, (dtype,))
    rng = np.random.default_rng(0)
    low, high = (-1.0, 1.0) if op == "erfinv" else (3.0, 40.0)
    drawn = rng.uniform(low, high, 50)
    near_one = 1 - 2.0 ** -np.arange(1, 20) if op == "erfinv" else 10.0 ** np.arange(20)
    x = np.concatenate([drawn, near_one, 10.0 ** -np.arange(1, 30, 3)]).astype(dtype.numpy)
    mine = evaluated(function, x)
    exact = getattr(mpmath, op)
    with mpmath.workdps(40):
        for a, b in zip(x.tolist(), mine, strict=True):
            last = mpmath.mpf(float(np.spacing(abs(b))))
            assert abs(mpmath.mpf(float(b)) - exact(mpmath.mpf(a))) <= function.ulp * last


@needs_compiler
def test_powers_of_a_number_are_within_the_bound(run: Compiled) -> None:
    """With contraction too, where products that are split lose what they were split for."""
    function = find("exp2_times", (float64,) * 3)
    y = np.random.default_rng(0).uniform(-300, 300, 200)
    for base in (0.9, 0.999, 1e-3, 3.7):
        body = power_of_number(base, parameter(0, float64))
        assert body is not None
        given = [y, *[np.full(200, part.args[0]) for part in body.args[1:]]]
        with mpmath.workdps(40):
            for a, b in zip(y.tolist(), run(function, *given).tolist(), strict=True):
                exact = mpmath.power(mpmath.mpf(base), mpmath.mpf(a))
                if 1e-300 < exact < 1e300:
                    assert abs(mpmath.mpf(b) - exact) <= function.ulp * float(np.spacing(b))


# ---------------------------------------------------------------------------------- one result
@needs_compiler
@pytest.mark.parametrize("run", ["-ffp-contract=off"], indirect=True)
def test_compiled_bits_are_numpys(run: Compiled) -> None:
    """Every function, on special values and on numbers of all sizes."""
    rng = np.random.default_rng(0)
    for function in PRINTED:
        dtype = function.parameters[0].numpy
        raw = rng.integers(0, 256, (40 if len(function.parameters) == 2 else 4096) * dtype.itemsize)
        drawn = raw.astype(np.uint8).view(dtype) if dtype.kind != "b" else np.array([True])
        values = np.concatenate([special_values(function.parameters[0]), drawn])
        operands = operands_of(function, values)
        mine = np.broadcast_to(evaluated(function, *operands), operands[0].shape)
        theirs = run(function, *operands)
        assert agree(mine, theirs, 0).all(), function.name


@needs_compiler
@pytest.mark.skipif(not has_avx2(), reason="fewer vectors where there is no AVX2")
def test_loops_over_functions_of_floats_are_vectors(run: Compiled) -> None:
    """Not lgamma's, which gcc finds too entangled, and not plain copies."""
    of_floats = {f.name for f in PRINTED if f.parameters[0] in (float32, float64)}
    others = {f.name for f in PRINTED if f.op in ("lgamma", "conj", "real")}
    assert set() == (run.scalar_loops() & of_floats) - others


# ----------------------------------------------------------------------------------- the library
def test_bodies_are_of_primitives_alone() -> None:
    for f in EVERY:
        given = [parameter(k, dtype) for k, dtype in enumerate(f.parameters)]
        body = expand(called(f.op, f.result, *given))
        assert {value.op for value in walk([body])} <= PRIMITIVES
        assert body.dtype is f.result


def test_a_missing_function_is_refused() -> None:
    assert not has("exp", (complex64,))
    with pytest.raises(GraphError, match=r"exp is called with \(complex64\), expected one that"):
        find("exp", (complex64,))


def test_operands_of_two_dtypes_are_refused() -> None:
    assert has("pow", (float32, float32))
    assert not has("pow", (float32, float64))
    assert not has("pow", (float32,))


@pytest.mark.parametrize("exponent", [-1, -0.5, 0, 0.5, 1, 2, 3, 4])
def test_constant_exponents_are_powers(exponent: float) -> None:
    x = parameter(0, float32)
    body = power_of_constant(x, exponent)
    assert body is not None
    values = np.array([0.5, 1.5, 3.0, 1e-3, 100.0], np.float32)
    found = evaluated(ScalarFunction("power", (float32,), body, "all", 1.5, float32), values)
    exact = values.astype(float) ** exponent
    assert functions.errors(np.broadcast_to(found, values.shape), exact).max() <= 1.5


def test_other_exponents_are_left_to_pow() -> None:
    assert power_of_constant(parameter(0, float32), 1.7) is None
    assert power_of_constant(parameter(0, int32), 9) is None
    assert power_of_constant(parameter(0, int32), -1) is None


def test_spec_has_the_table_of_the_library() -> None:
    """`python -m benchmarks.functions --table` prints it."""
    assert functions.stated(ROUNDING) in PAGE.read_text("utf-8")


def test_coefficients_are_what_the_tool_makes() -> None:
    """Of the shortest polynomial; all of them take ten seconds."""
    spec = importlib.util.spec_from_file_location("minimax", ROOT / "tools" / "minimax.py")
    assert spec is not None and spec.loader is not None
    minimax = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(minimax)
    fit = next(f for f in minimax.FITS if f.name == "COS_32")
    known, error = minimax.fitted(fit)
    assert tuple(reversed(known)) == coefficients.COS_32
    assert error < 2.0**-32
