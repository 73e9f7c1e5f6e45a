"""A value that is computed again is the same bits, in whatever kernel and loop.

Where a compiler decides which products and sums are rounded once, the greatest of a row is in no
place of the row: the gradient of a maximum was 0 / 0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")

FORMS: dict[str, Callable[[Any], Any]] = {
    "less a share of the column": lambda x: x - x.amax(0, True) * 0.3,
    "scaled and moved": lambda x: (x * 0.7 + x.mean(1, True) * 1.1) * 0.9 - x.sum(0, True) * 0.1,
    "share of the row": lambda x: x / (x.abs().sum(1, True) + 1),
    "exp": lambda x: (x * 0.3 - 0.1).exp() * 0.7 + x,
    "sin": lambda x: (x * 3.1).sin() * 0.7 - x * x,
    "sin of large": lambda x: (x * 3000.0).sin() * 0.7 - x,
    "gelu": lambda x: al.nn.functional.gelu(x * 0.7 + 0.1) * 1.3 + x * 0.1,
    "softmax": lambda x: x.softmax(1) * 3.3 - x.softmax(0) * 0.7,
    "variance": lambda x: (x - x.mean(0, True)) * (x.var(0, keepdim=True) + 1e-5).rsqrt() * 0.9 + x,
    "tanh": lambda x: (x * 0.3 + 0.2).tanh() * x - 0.1 * x,
}


SHAPES = [(8, 300), (300, 8), (67, 65), (16384, 4)]
KINDS = ["float32", "float64"]
LONG = [
    (form, shape, KINDS[(row + column + 1) % 2])
    for row, form in enumerate(FORMS)
    for column, shape in enumerate(SHAPES)
]
"""Of each form and shape one of the two; the other runs always."""


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("form", "shape", "kind"),
    [
        pytest.param(*case, marks=pytest.mark.long if case in LONG else ())
        for case in product(FORMS, SHAPES, KINDS)
    ],
    ids=str,
)
def test_the_greatest_is_where_it_is(form: str, shape: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(0)
    x = al.tensor(rng.standard_normal(shape)).to(getattr(al, kind)).requires_grad_()

    def greatest(x: al.Tensor) -> tuple[al.Tensor, ...]:
        value = FORMS[form](x)
        of_rows, of_columns = value.amax(1), value.amax(0)
        found = (value == of_rows[:, None]).sum(1), (value == of_columns).sum(0)
        return of_rows, of_columns, *found

    compiled = al.compile(greatest, backend="cpu")
    of_rows, of_columns, in_row, in_column = compiled(x)
    assert min(in_row.tolist() + in_column.tolist()) >= 1
    found: Any
    expected: Any
    (found,) = al.autograd.grad([of_rows.sum() + (of_columns * of_columns).sum()], [x])
    assert not found.isnan().any()
    rows, columns, *_ = greatest(x)
    (expected,) = al.autograd.grad([rows.sum() + (columns * columns).sum()], [x])
    tolerance = 1e-3 if kind == "float32" else 1e-9
    # Of many sines several are the greatest, and in eager others: they share the gradient.
    alone = (in_row.numpy() == 1)[:, None] & (in_column.numpy() == 1)
    assert alone.all() or (form == "sin" and alone.mean() >= 0.5)
    np.testing.assert_allclose(
        found.numpy()[alone], expected.numpy()[alone], rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("backend", ["loops", "cpu"])
def test_a_maximum_has_a_gradient_where_sums_might_be_formed_again(backend: str) -> None:
    """PART-39: in the backward the sums of four would be added up in another order."""

    def greatest(x: al.Tensor) -> al.Tensor:
        share: Any = x / (x.abs().sum(-1, True) + 1)
        return share.amax(0).sum()

    for seed in range(3):
        numbers = np.random.default_rng(seed).standard_normal((16384, 4)).astype(np.float32)
        x = al.from_numpy(numbers).requires_grad_()
        al.compile(greatest, backend=backend)(x).backward()
        assert x.grad is not None
        assert not np.isnan(x.grad.numpy()).any()
