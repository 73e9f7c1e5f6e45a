"""Each invariant of the loop IR, broken once."""

from __future__ import annotations

import attrs
import pytest

from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    Let,
    LoopProgram,
    MatrixWindow,
    Placed,
    ProgramBuffer,
    Reduce,
    Statement,
    Store,
    ValueCheck,
)
from aotlite.backends.loops.verify import verify
from aotlite.ir.dtypes import float32, float64
from aotlite.ir.errors import GraphError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, make, name, where

ROW, AT = Affine((1, 0)), Affine((4, 1))
X, WIDE = load(0, AT, float32), load(0, AT, float64)


def program(
    *body: Statement, space: int = 1, steps: tuple = (), shape: tuple = (3, 4)
) -> LoopProgram:
    """A kernel over a (3, 4) input b0 that writes output b1, and may use temporary b2."""
    kernel = Kernel("k", shape, space, body)
    buffers = (
        ProgramBuffer(0, float32, 12, BufferKind.INPUT),
        ProgramBuffer(1, float32, 12, BufferKind.OUTPUT),
        ProgramBuffer(2, float32, 12, BufferKind.TEMPORARY),
    )
    return LoopProgram("p", buffers, (kernel, *steps), (0,), (Placed(1, 0, tensor_meta((3, 4))),))


def loaded(at: Affine) -> Scalar:
    """A load of the input."""
    return load(0, at, float32)


GOOD = Store(1, AT, X)
SUM = Reduce((0,), "sum", (X,))
V0 = name(0, float32)
BEGUN = Store(1, Affine((0, 1)), X, combine="sum", from_identity=True)
BROKEN = {
    "K-1: uses v0": program(Store(1, AT, V0)),
    "K-1: uses v0 of float64": program(SUM, Store(1, AT, cast(name(0, float64), float32))),
    "K-1: defines v0 again": program(SUM, Let(0, X), GOOD),
    "K-1: combines 1 values by argmax": program(Reduce((0,), "argmax", (X,)), GOOD),
    "K-2: loads b0[4*i0 + i1] as float64": program(Store(1, AT, cast(WIDE, float32))),
    "K-2: stores float64": program(Store(1, AT, cast(X, float64))),
    "K-3: has 3 space axes": program(GOOD, space=3),
    "K-3: uses i2": program(Store(1, AT, cast(axis(2), float32))),
    "K-3: has the address b0[i0]": program(Store(1, AT, loaded(Affine((1,))))),
    "K-4: stores b0[4*i0 + i1] each row": program(Store(1, ROW, X, each_row=True)),
    "K-4: marks a store each_row": program(Store(1, AT, X, each_row=True), space=2),
    "K-5: reaches b0[4*i0 + i1 + 1] at 1 to 12": program(Store(1, AT, loaded(Affine((4, 1), 1)))),
    "K-5: reaches b1[4*i0 + i1 - 1] at -1 to 10": program(Store(1, Affine((4, 1), -1), X)),
    "K-5: reaches b0[4*i0 + i1 - 9] at -9 to -2": program(
        Store(1, AT, where(axis(0) < 2, loaded(Affine((4, 1), -9)), 0.0) * loaded(AT)), space=2
    ),
    "K-6: loads b1[4*i0 + i1]": program(  # turned round
        Store(1, Affine((4, -1), 3), load(1, AT, float32)), space=2),
    "K-7: stores twice at b1[i1]": program(Store(1, Affine((0, 1)), X), space=2),
    "K-7: stores twice at b1[2*i0 + i1]": program(Store(1, Affine((2, 1)), X), space=2),
    "K-7: begins anew at b1[i1], expected no other use": program(
        BEGUN, Store(2, AT, load(1, Affine((0, 1)), float32)), space=1),
    "K-7: begins anew at b1[0], expected one combination": program(
        attrs.evolve(BEGUN, address=Affine((0, 0)))),
    "K-7: begins anew at b1[i1], expected one combination": program(
        attrs.evolve(BEGUN, combine=None)),
    "K-8: has 3 lanes": program(attrs.evolve(SUM, lanes=3), GOOD),
    "K-8: combines 3 neighbors": program(attrs.evolve(SUM, lanes=8, near=3), GOOD),
    "K-8: combines 8 neighbors": program(attrs.evolve(SUM, lanes=4, near=8), GOOD),
    "K-9: reads b2": program(Store(1, AT, load(2, AT, float32))),
    "K-9: returns b1": program(Store(2, AT, X)),
    "K-11: looks at": program(GOOD, steps=(ValueCheck(1),)),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_each_broken_invariant_is_told(rule: str) -> None:
    number, text = rule.split(": ")
    with pytest.raises(GraphError) as caught:
        verify(BROKEN[rule])
    assert text in str(caught.value)
    assert f"({number})" in str(caught.value)


def test_a_matrix_beside_its_buffer_is_told() -> None:
    window = MatrixWindow(0, 0, (), 4, 1)
    product = Gemm("mm", (), 3, 4, 4, window, window, MatrixWindow(1, 0, (), 4, 1))
    with pytest.raises(GraphError, match=r"mm has \w*Window.*expected one inside .*K-5"):
        verify(program(GOOD, steps=(product,)))


def test_what_keeps_the_invariants_passes() -> None:
    shifted = loaded(Affine((4, 1), -1))
    guarded = where(make("or", axis(1) > 0, axis(0) > 0), shifted, const(0, float32))
    for body in ((GOOD,), (SUM, Store(1, ROW, V0, each_row=True)), (Store(1, AT, guarded),)):
        verify(program(*body))
    empty = load(0, Affine((4, 1), 90), float32)
    verify(program(Store(1, AT, empty), shape=(0, 4)))
