"""Matrix products equal PyTorch's: values, dtypes, strides, gradients, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.op import OPS
from aotlite.ir.ops.linalg.einsum import _best_splits
from aotlite.ir.ops.linalg.einsum_path import contraction_path
from tests.ir.helpers.op_oracle import (
    FLOATS,
    as_ours,
    as_torch,
    assert_same,
    check_gradients,
    compare_gradients,
    laid_out,
    shapes,
)

EXAMPLES = settings(max_examples=80)


def factors(data, dtype):
    """Two arrays that multiply, of 1 to 4 dimensions each, their batch dimensions broadcasting."""
    m, k, n = (data.draw(st.integers(0, 4)) for _ in range(3))
    batch = data.draw(shapes(max_rank=2, max_size=3))
    left = data.draw(st.sampled_from([(k,), (m, k), (*batch, m, k)]))
    ones = tuple(data.draw(st.sampled_from((1, size))) for size in batch)
    right = data.draw(st.sampled_from([(k,), (k, n), (*ones, k, n)]))
    return laid_out(data.draw, left, dtype), laid_out(data.draw, right, dtype)


@pytest.mark.torch
@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [*FLOATS, "int64"])
@EXAMPLES
@given(data=st.data())
def test_matmul_equals_torch(torch, dtype, data):
    a, b = factors(data, dtype)
    assert_same(torch.matmul(as_torch(torch, a), as_torch(torch, b)), as_ours(a) @ as_ours(b))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_products_accumulate_in_float32(torch, dtype):
    a = np.random.default_rng(0).uniform(0.9, 1.1, (3, 3000)).astype("f4")
    theirs = torch.from_numpy(a).to(getattr(torch, dtype))
    ours = al.from_numpy(a).to(getattr(al, dtype))
    assert_same(theirs @ theirs.T, ours @ ours.T)


A = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]])
B = np.array([[1.0, -0.5], [0.75, 2.0], [-1.5, 0.25]])
BATCH = np.stack([B, -B, B * B])
PRODUCTS = {
    "matrices": (lambda x, y: x @ y, (A, B)),
    "vector on the left": (lambda x, y: x @ y, (A[0], B)),
    "vector on the right": (lambda x, y: x @ y, (A, B[:, 0])),
    "vectors": (lambda x, y: x @ y, (A[0], A[1])),
    "batch on the right": (lambda x, y: x @ y, (A, BATCH)),
    "batch on the left": (lambda x, y: x @ y, (BATCH, A)),
    "broadcast batches": (lambda x, y: x @ y, (np.stack([[A], [A + 1]]), BATCH)),
    "mm": (lambda x, y: x.mm(y), (A, B)),
    "bmm": (lambda x, y: x.bmm(y.transpose(1, 2)), (BATCH, BATCH)),
    "addmm": (lambda c, x, y: c.addmm(x, y, beta=2, alpha=0.5), (A[:, :2], A, B)),
    "outer": (lambda x, y: x.outer(y), (A[0], B[:2, 0])),
}


@pytest.mark.torch
@pytest.mark.parametrize("case", PRODUCTS)
def test_products_and_their_gradients_equal_torch(torch, case):
    function, arrays = PRODUCTS[case]
    assert_same(
        function(*[as_torch(torch, a) for a in arrays]), function(*[as_ours(a) for a in arrays])
    )
    compare_gradients(torch, function, function, *arrays)


@pytest.mark.parametrize("case", PRODUCTS)
def test_gradients_equal_differences(case):
    function, arrays = PRODUCTS[case]
    check_gradients(function, *arrays)


@pytest.mark.torch
def test_the_gradient_of_a_complex_product_is_conjugated(torch):
    a, b = A + 1j * A[::-1], B - 2j * B
    mine = [al.from_numpy(v).requires_grad_() for v in (a, b)]
    yours = [torch.from_numpy(v).requires_grad_() for v in (a, b)]
    (mine[0] @ mine[1]).sum().backward(al.tensor(np.array(1 + 2j)))
    (yours[0] @ yours[1]).sum().backward(torch.tensor(1 + 2j, dtype=torch.complex128))
    for ours, theirs in zip(mine, yours, strict=True):
        np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=1e-12)


def test_matmul_saves_the_other_operand():
    assert OPS["matmul"].vjp.saves((0,)) == ((1,), ())
    assert OPS["matmul"].vjp.saves((1,)) == ((0,), ())


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: x @ x,
            ShapeError,
            "matmul: argument 'other' has shape (2, 3), expected size 3 instead of 2: the last "
            "dimension of 'self' of shape (2, 3)",
        ),
        (
            lambda x: al.ones(2, 2, 3) @ al.ones(3, 3, 4),
            ShapeError,
            "matmul: shapes are (2,) and (3,), expected equal sizes, or 1, in dimension -1",
        ),
        (
            lambda x: x @ al.ones(3, 2, dtype=al.float64),
            DTypeError,
            "matmul: dtypes are float32 and float64, expected one numeric dtype",
        ),
        (
            lambda x: x @ x.sum(),
            ShapeError,
            "matmul: argument 'other' has 0 dimensions, expected at least 1",
        ),
        (lambda x: x @ 2.0, ArgumentError, "matmul: argument 'other' is 2.0, expected Tensor"),
        (
            lambda x: x.mm(al.ones(2, 3, 1)),
            ShapeError,
            "mm: an operand has shape (2, 3, 1), expected 2 dimensions",
        ),
        (
            lambda x: x.mm(x),
            ShapeError,
            "mm: argument 'other' has shape (2, 3), expected size 3 instead of 2: the last "
            "dimension of 'self' of shape (2, 3)",
        ),
        (
            lambda x: al.ones(2, 2, 3).bmm(al.ones(1, 3, 2)),
            ShapeError,
            "bmm: the batches have sizes 2 and 1, expected one size",
        ),
        (
            lambda x: x.outer(x),
            ShapeError,
            "outer: an operand has shape (2, 3), expected 1 dimension",
        ),
        (
            lambda x: (x > 0).mm(x.t() > 0),
            DTypeError,
            "mm: dtypes are bool and bool, expected one numeric dtype",
        ),
        (
            lambda x: al.ones(3, 3).addmm(x, x.t()),
            ShapeError,
            "addmm: shapes are (3, 3) and (2, 2), expected equal sizes, or 1, in dimension -2",
        ),
        (
            lambda x: al.ones(1, 2, 2).addmm(x, x.t()),
            ShapeError,
            "addmm: argument 'self' has shape (1, 2, 2), expected one that expands to (2, 2)",
        ),
        (
            lambda x: al.ones(2, 2, dtype=al.float64).addmm(x, x.t()),
            DTypeError,
            "addmm: argument 'self' has dtype float64, expected float32",
        ),
        (
            lambda x: al.ones(2, 3).long().addr(x[:, 0].long(), x[0].long(), alpha=0.5),
            DTypeError,
            "addr: argument 'alpha' is a float, expected a number that int64 holds",
        ),
        (
            lambda x: al.ones(2, 2).addmm(x, x.t(), beta=1j),
            DTypeError,
            "addmm: argument 'beta' is a complex, expected a number that float32 holds",
        ),
        (
            lambda x: al.ones(2).addmm_(x, x.t()),
            ShapeError,
            "addmm_: the destination has shape (2,), expected (2, 2), the shape of the result",
        ),
        (
            lambda x: x.linalg_cross(x, dim=0),
            ShapeError,
            "linalg_cross: argument 'self' has shape (2, 3), expected size 3 in dimension 0",
        ),
        (
            lambda x: x.linalg_cross(x, dim=2),
            IndexOutOfRangeError,
            "linalg_cross: dimension is 2, expected -2 to 1",
        ),
        (
            lambda x: x.t().contiguous()[:2].cross(al.ones(2, 2)),
            ShapeError,
            "cross: the shape is (2, 2), expected a dimension of size 3",
        ),
        (
            lambda x: al.tensordot(x, x, 1),
            ShapeError,
            "tensordot: dimension 1 of 'a' has size 3 and dimension 0 of 'b' size 2, expected one "
            "size",
        ),
        (
            lambda x: al.tensordot(x, x, 3),
            ArgumentError,
            "tensordot: dims is 3, expected 0 to the fewer dimensions of the two, 2",
        ),
        (
            lambda x: al.tensordot(x, x, ((0,), (0, 1))),
            ArgumentError,
            "tensordot: dims is ((0,), (0, 1)), expected two lists of one length",
        ),
        (
            lambda x: x.inner(al.ones(2)),
            ShapeError,
            "inner: the last sizes of (2, 3) and (2,) differ, expected one size",
        ),
        (
            lambda x: al.linalg_multi_dot((x, x)),
            ShapeError,
            "linalg_multi_dot: neighbors have shapes (2, 3) and (2, 3), expected equal inner sizes",
        ),
        (
            lambda x: al.linalg_multi_dot((x,)),
            ArgumentError,
            "linalg_multi_dot: the number of tensors is 1, expected at least 2",
        ),
        (
            lambda x: al.chain_matmul(x, x[0]),
            ShapeError,
            "chain_matmul: matrix 1 has shape (3,), expected 2 dimensions",
        ),
        (
            lambda x: al.einsum("ij,jk", x),
            ArgumentError,
            "einsum: the equation 'ij,jk' names 2 operands, expected 1, as many as there are "
            "tensors",
        ),
        (
            lambda x: al.einsum("ij,jk", x, x),
            ShapeError,
            "einsum: shapes are (2, 1, 3) and (1, 3, 2), expected equal sizes, or 1, in dimension "
            "-1",
        ),
        (
            lambda x: al.einsum("ijk", x),
            ShapeError,
            "einsum: operand 0 has 2 dimensions, expected 3 by the equation 'ijk'",
        ),
        (
            lambda x: al.einsum("ii", x),
            ShapeError,
            "einsum: operand 0 of shape (2, 3) has the name 'i' for sizes 2 and 3, expected one "
            "size",
        ),
        (
            lambda x: al.einsum("i1", x),
            ArgumentError,
            "einsum: the equation 'i1' has '1', expected letters, ',', '->' and '...'",
        ),
        (
            lambda x: al.einsum("ij->ik", x),
            ArgumentError,
            "einsum: the result of 'ij->ik' has 'k', expected names of operands, each once",
        ),
        (
            lambda x: al.einsum("ij", 2.0),
            ArgumentError,
            "einsum: the arguments are str, float, expected an equation, a str, and tensors",
        ),
    ],
)
def test_bad_factors_say_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function(al.ones(2, 3))
    assert str(caught.value) == message


def test_a_failed_write_leaves_its_destination():
    target, x = al.ones(2, 2), al.ones(2, 3)
    with pytest.raises(ShapeError):
        target.addmm_(x, x)
    assert (target.version, target.tolist()) == (0, [[1.0, 1.0], [1.0, 1.0]])


def test_a_chain_is_multiplied_in_the_cheapest_order():
    """The textbook's six matrices: ((A1 (A2 A3)) ((A4 A5) A6)), 15,125 multiplications."""
    splits = _best_splits([30, 35, 15, 5, 10, 20, 25])
    assert (splits[0, 5], splits[0, 2], splits[3, 5]) == (2, 0, 4)


def test_einsum_multiplies_the_cheapest_pair_first():
    """A matrix on a matrix on a vector: from the right, 2 * 9 * 9 instead of 9 * 9 * 9."""
    assert contraction_path([(9, 9, 1), (1, 9, 9), (1, 1, 9)], 1) == [(1, 2), (0, 1)]
    many = contraction_path([(9, 9, 1, 1, 1, 1, 1)] + [(1, 1, 1, 1, 1, 1, 9)] * 5, 2)
    assert (0, 1) not in many[:1]
