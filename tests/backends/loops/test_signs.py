"""exp of what cannot be positive: where it is put, and that it is exp bit for bit (FUS-20)."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import run_program
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.sign_analysis import with_signs
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Store,
)
from aotlite.ir.dtypes import DType, float32, float64
from aotlite.ir.scalar.expression import Affine, Scalar, function, load, name
from aotlite.ir.scalar.functions import find
from benchmarks.function_kernels import evaluated

ROWS, COLUMNS = 4, 8


def element(dtype: DType, buffer: int = 0) -> Scalar:
    return load(buffer, Affine((COLUMNS, 1)), dtype)


def program(kind: str, reduced: Scalar, raised: Scalar) -> LoopProgram:
    """The exponential of a value that may use the reduction of another."""
    dtype = raised.dtype
    body = (
        Reduce((0,), kind, (reduced,)),
        Store(2, Affine((COLUMNS, 1)), function("exp", dtype, raised)),
    )
    kernel = Kernel("k", (ROWS, COLUMNS), 1, body)
    kinds = (BufferKind.INPUT, BufferKind.INPUT, BufferKind.OUTPUT)
    buffers = tuple(ProgramBuffer(k, dtype, ROWS * COLUMNS, kind) for k, kind in enumerate(kinds))
    return LoopProgram("p", buffers, (kernel,), (0, 1), ())


def is_changed(before: LoopProgram) -> bool:
    return "exp_nonpositive" in str(with_signs(before))


X, Y, V = element(float32), element(float32, 1), name(0, float32)


@pytest.mark.parametrize(
    ("kind", "reduced", "raised"),
    [
        ("max", X, X - V),
        ("max", X * Y, X * Y - V),
        ("sum", X, -(X * X)),
        ("sum", X, (X * X) * -0.5),
        ("sum", X, -function("exp", float32, Y)),
    ],
)
def test_what_cannot_be_positive_is_known(kind: str, reduced: Scalar, raised: Scalar) -> None:
    assert is_changed(program(kind, reduced, raised))


@pytest.mark.parametrize(
    ("kind", "reduced", "raised"),
    [
        ("max", X, Y - V),
        ("max", X, V - X),
        ("max", X, X - V * 2.0),
        ("max", X, X),
        ("min", X, X - V),
        ("sum", X, X - V),
        ("sum", X, X * Y),
        ("sum", X, (X * X) * 0.5),
        ("sum", X, -X),
    ],
)
def test_what_may_be_positive_stays(kind: str, reduced: Scalar, raised: Scalar) -> None:
    assert not is_changed(program(kind, reduced, raised))


def special(dtype: DType) -> np.ndarray:
    """Numbers that are not positive, dense where results stop being normal, and nans."""
    bounds = (-87.0, -88.0, -103.0, -104.0, -708.0, -709.0, -745.0, -746.0, -1e30, -1e-30)
    near = [b + d for b in bounds for d in np.linspace(-1.5, 1.5, 301) if b + d <= 0]
    odd = [0.0, -0.0, -np.inf, np.nan, -3e38, -1.2e-38, -1e-45]
    drawn = -(10.0 ** np.random.default_rng(0).uniform(-9, 3, 20_000))
    return np.array([*near, *odd, *drawn]).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_the_exponential_of_nothing_positive_is_exp_bit_for_bit(dtype: DType) -> None:
    x = special(dtype)
    usual = evaluated(find("exp", (dtype,)), x)
    assert usual.tobytes() == evaluated(find("exp_nonpositive", (dtype,)), x).tobytes()


def test_the_exponential_of_nothing_positive_keeps_nans_of_every_payload() -> None:
    x = np.arange(0x7FC00000, 0x7FC00400, dtype=np.uint32).view(np.float32)
    assert np.isnan(evaluated(find("exp_nonpositive", (float32,)), x)).all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("word", ["softmax", "log_softmax", "logsumexp"])
def test_rows_are_raised_as_before_bit_for_bit(word: str, dim: int) -> None:
    x = np.random.default_rng(1).normal(scale=40.0, size=(32, 64)).astype(np.float32)
    x[0, 0], x[1, 1], x[2], x[3, 3] = np.nan, np.inf, -np.inf, -np.inf
    graph = al.capture(lambda x: getattr(al, word)(x, dim))(al.from_numpy(x))
    before = canonical(fused(program_of(graph)))
    after = with_signs(before)
    assert "exp_nonpositive(" in str(after)
    assert "exp(" not in str(after)
    (out,) = before.outputs
    assert out is not None
    with np.errstate(all="ignore"):
        usual, ours = [run_program(p, [x.reshape(-1).copy()]) for p in (before, after)]
    assert usual[out.buffer].tobytes() == ours[out.buffer].tobytes()
