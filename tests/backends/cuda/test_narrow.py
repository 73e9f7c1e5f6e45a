"""Products of 16-bit matrices: the copies that go, and the values that stay."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.passes.mixed_precision_products import narrowed
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Gemm, LoopProgram
from aotlite.backends.loops.verify import verify
from tests.backends.cuda.helpers.devices import Relabeled, plain, results

F = al.nn.functional
HALVES = (al.float16, al.bfloat16)


def compiled(function: Any) -> Any:
    return al.compile(function, backend=Relabeled(plain()))


def program(function: Any, *given: Any) -> LoopProgram:
    run = al.compile(function, backend="reference")
    run(*given)
    found = narrowed(program_of(run.forward_graph))
    verify(found)
    return found


def half(*shape: int, dtype: Any = al.bfloat16) -> Any:
    return al.randn(*shape).to(dtype)


def dtypes_of_products(found: LoopProgram) -> list[str]:
    kinds = {buffer.number: buffer.dtype for buffer in found.buffers}
    return [kinds[s.c.buffer].name for s in found.steps if type(s) is Gemm]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_linear_layer_is_one_product_without_copies(dtype: Any) -> None:
    x, w = half(3, 4, 6, dtype=dtype), half(5, 6, dtype=dtype)
    found = program(lambda x, w: x @ w.t(), x, w)
    assert [type(step) for step in found.steps] == [Gemm]
    assert dtypes_of_products(found) == [dtype.name]


def test_products_of_other_dtypes_and_of_two_stay() -> None:
    assert dtypes_of_products(program(lambda x: x @ x.t(), al.randn(4, 6))) == ["float32"]

    def wide(x: Any, w: Any) -> Any:
        return (x.float() @ w.float()).to(al.float16)

    assert dtypes_of_products(program(wide, half(4, 6), half(6, 5))) == ["float32"]


def test_a_product_whose_exact_value_is_used_stays() -> None:
    def both(x: Any, w: Any) -> Any:
        wide = x.float() @ w.float()
        return wide.to(al.bfloat16), wide

    assert dtypes_of_products(program(both, half(4, 6), half(6, 5))) == ["float32"]


LAYOUTS = {
    "rows": lambda t: t,
    "columns": lambda t: t.mT.contiguous().mT,
    "part": lambda t: F.pad(t, (1, 2))[..., 1:-2],
    "every other": lambda t: t.repeat_interleave(2, -1)[..., ::2],
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, repeat=2)), ids="-".join)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_products_of_every_layout_are_rounded_as_before(
    dtype: Any, layouts: tuple[str, str], batch: tuple[int, ...]
) -> None:
    al.manual_seed(1)
    a, b = half(*batch, 4, 6, dtype=dtype), half(*batch, 6, 5, dtype=dtype)
    a, b = LAYOUTS[layouts[0]](a), LAYOUTS[layouts[1]](b)
    verify(program(lambda a, b: a @ b, a, b))
    (mine,) = results(compiled(lambda a, b: a @ b)(a, b))
    (wide,) = results((a.float() @ b.float()).to(dtype))
    np.testing.assert_array_equal(mine, wide)


def test_a_matrix_for_all_batches_and_one_that_moves() -> None:
    x, w = half(2, 3, 4, 6), half(6, 5)
    assert [type(step) for step in program(lambda x, w: x @ w, x, w).steps] == [Gemm]
    (mine,) = results(compiled(lambda x, w: x.transpose(0, 1) @ w)(x, w))
    (wide,) = results((x.transpose(0, 1).float() @ w.float()).to(al.bfloat16))
    np.testing.assert_array_equal(mine, wide)


def test_training_in_16_bits_is_eagers() -> None:
    def loss(w: Any, v: Any, x: Any) -> Any:
        return (F.gelu(x @ w.t()) @ v).float().pow(2).mean()

    def gradients(run: Any) -> list[Any]:
        al.manual_seed(2)
        w, v = half(8, 6).requires_grad_(), half(8, 3).requires_grad_()
        run(w, v, half(5, 6)).backward()
        return results((w.grad.float(), v.grad.float()))

    for mine, its in zip(gradients(compiled(loss)), gradients(loss), strict=True):
        np.testing.assert_allclose(mine, its, atol=3e-2 * np.abs(its).max())
