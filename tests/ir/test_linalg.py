"""Decompositions by what signs and phases leave alone; errors; the namespace `aotlite.linalg`."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import LinAlgError
from tests.ir.helpers.op_oracle import check_gradients
from tests.samples.linalg import matrices, symmetric

TIGHT = {"float32": 2e-6, "float64": 1e-13, "complex64": 4e-6, "complex128": 1e-13}
DTYPES = tuple(TIGHT)
SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 2), (2, 2, 3), (1, 1), (0, 3), (3, 0), (0, 2, 2)]


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


def assert_near(expected, found):
    assert expected.shape == found.shape
    tolerance = 50 * TIGHT[found.dtype.name]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_orthonormal(a):
    """The columns, or the rows of a wide matrix."""
    product = adjoint(a) @ a if a.shape[-2] >= a.shape[-1] else a @ adjoint(a)
    assert_near(np.broadcast_to(np.eye(product.shape[-1]), product.shape), product)


def arrays(results):
    return [each.array for each in results]


# ---------------------------------------------------------------------------------------- factors
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_multiply_to_the_matrix(shape, dtype):
    a = matrices(shape, dtype)
    x = al.tensor(a)
    for mode in ("reduced", "complete"):
        q, r = arrays(al.linalg.qr(x, mode))
        assert_near(a, q @ r)
        assert_orthonormal(q)
        assert not np.tril(r, -1).any()
    for full in (True, False):
        u, s, vh = arrays(al.linalg.svd(x, full))
        k = s.shape[-1]
        assert_near(a, u[..., :k] * s[..., None, :] @ vh[..., :k, :])
        assert_orthonormal(u)
        assert_orthonormal(vh)
        assert (s >= 0).all() and (np.diff(s) <= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (0, 0), (0, 2, 2)], ids=str)
def test_eigenvectors_are_turned_into_multiples(shape, dtype):
    a = symmetric(shape, dtype)
    values, vectors = arrays(al.linalg.eigh(al.tensor(a)))
    assert_near(a @ vectors, vectors * values[..., None, :])
    assert_orthonormal(vectors)
    assert (np.diff(values) >= 0).all()


@pytest.mark.torch
@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_have_the_form_of_pytorchs(torch, dtype):
    for shape in SHAPES:
        a = matrices(shape, dtype)
        x, y = al.tensor(a), torch.from_numpy(a)
        calls = [("qr", {"mode": m}) for m in ("reduced", "complete", "r")]
        calls += [("svd", {"full_matrices": f}) for f in (True, False)]
        if shape[-1] == shape[-2]:
            x, y = al.tensor(symmetric(shape, dtype)), torch.from_numpy(symmetric(shape, dtype))
            calls += [("eigh", {})]
        for name, kwargs in calls:
            ours = getattr(al.linalg, name)(x, **kwargs)
            theirs = getattr(torch.linalg, name)(y, **kwargs)
            for field, a, b in zip(ours._fields, theirs, ours, strict=True):
                assert (tuple(a.shape), a.stride()) == (b.shape, b.stride()), (name, shape, field)
                assert str(a.dtype).removeprefix("torch.") == b.dtype.name
                if field in ("S", "eigenvalues"):
                    assert_near(a.numpy(), b.array)


# -------------------------------------------------------------------------------------- gradients
def column_weights(x):
    """Weights that differ from element to element."""
    return al.tensor(np.cos(np.arange(x.numel()) + 1.0).reshape(x.shape))


def of_qr(library, x, weight):
    q, r = library.linalg.qr(x)
    return (abs(q) * abs(r.sum())).sum() + (abs(r) ** 2 * weight(r)).sum()


def of_svd(library, x, weight):
    """Projections on the spaces of the first vectors, the values, and the whole."""
    u, s, vh = library.linalg.svd(x, full_matrices=False)
    whole = (u * s.unsqueeze(-2) ** 2) @ vh
    first = u[..., :1] @ u[..., :1].mH + 0
    last = vh[..., :1, :].mH @ vh[..., :1, :]
    total = (abs(whole) ** 2 * weight(whole)).sum() + (s * weight(s)).sum()
    return total + (abs(first) ** 2 * weight(first)).sum() + (abs(last) ** 2 * weight(last)).sum()


def of_eigh(library, x, weight):
    a = x + x.mH
    values, vectors = library.linalg.eigh(a)
    whole = (vectors * values.exp().unsqueeze(-2)) @ vectors.mH
    return (abs(whole) ** 2 * weight(whole)).sum() + (values * weight(values)).sum()


def of_cholesky(library, x, weight):
    factor = library.linalg.cholesky(x + x.mH)
    return (abs(factor) ** 2 * weight(factor)).sum() + (factor * factor).sum().abs()


def of_cholesky_upper(library, x, weight):
    factor = library.linalg.cholesky(x + x.mH, upper=True)
    return (abs(factor) ** 2 * weight(factor)).sum()


CASES = [
    (of_qr, (3, 3)),
    (of_qr, (2, 4, 2)),
    (of_qr, (2, 4)),
    (of_svd, (3, 3)),
    (of_svd, (2, 4, 2)),
    (of_svd, (2, 4)),
    (of_eigh, (2, 3, 3)),
    (of_cholesky, (2, 3, 3)),
    (of_cholesky_upper, (3, 3)),
]


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("loss", "shape"), CASES)
def test_gradients_equal_torch(torch, loss, shape, dtype):
    a = matrices(shape, dtype)
    x, y = al.tensor(a, requires_grad=True), torch.from_numpy(a.copy()).requires_grad_()
    loss(al, x, column_weights).backward()
    loss(torch, y, lambda v: torch.from_numpy(column_weights(v).numpy())).backward()
    assert_near(y.grad.resolve_conj().numpy(), x.grad.array)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("loss", "shape"), CASES)
def test_gradients_of_both_orders_equal_differences(loss, shape):
    check_gradients(lambda x: loss(al, x, column_weights).reshape(1), matrices(shape))


def test_values_that_repeat_have_gradients_and_their_vectors_none():
    x = al.eye(3, dtype=al.float64, requires_grad=True)
    al.linalg.svdvals(x).sum().backward()
    assert_near(np.eye(3), x.grad.array)
    u, _, _ = al.linalg.svd(x)
    (grad,) = al.autograd.grad((u * column_weights(u)).sum(), [x])
    assert not np.isfinite(grad.array).all()


def test_the_determinant_of_a_singular_matrix_has_its_cofactors_as_gradient():
    x = al.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]], dtype=al.float64)
    al.det(x.requires_grad_()).backward()
    assert_near(np.diag([0.0, 6.0, 0.0]), x.grad.array)


# --------------------------------------------------------------------------------- compiled = eager
@pytest.mark.parametrize(("loss", "shape"), CASES)
def test_compiled_functions_and_their_gradients_equal_eager(loss, shape):
    function = lambda x: loss(al, x, column_weights)
    expected, found = [al.tensor(matrices(shape), requires_grad=True) for _ in range(2)]
    one, other = function(expected), al.compile(function)(found)
    one.backward()
    other.backward()
    assert one.item() == other.item()
    assert_near(expected.grad.array, found.grad.array)


# ------------------------------------------------------------------------------------------ errors
SINGULAR = al.zeros(2, 3, 3)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda: al.linalg.inv(SINGULAR),
            LinAlgError,
            "linalg_inv: a matrix is singular, expected matrices that have an inverse",
        ),
        (
            lambda: al.linalg.solve(SINGULAR, al.ones(3)),
            LinAlgError,
            "linalg_solve: a matrix is singular, expected matrices that have an inverse",
        ),
        (
            lambda: al.linalg.cholesky(-al.eye(2)),
            LinAlgError,
            "linalg_cholesky: a matrix is not positive-definite, expected matrices that are",
        ),
        (
            lambda: al.linalg.svd(al.full((2, 2), float("nan"))),
            LinAlgError,
            "linalg_svd: the iteration did not converge, expected finite matrices",
        ),
        (
            lambda: al.linalg.inv(al.ones(2, 3)),
            al.ShapeError,
            "linalg_inv: argument 'A' has shape (2, 3), expected square matrices",
        ),
        (
            lambda: al.linalg.det(al.ones(3)),
            al.ShapeError,
            "linalg_det: argument 'A' has shape (3,), expected at least 2 dimensions",
        ),
        (
            lambda: al.linalg.slogdet(al.ones(2, 2).long()),
            al.DTypeError,
            "linalg_slogdet: dtype is int64, expected a floating or complex one of 32 bits or more",
        ),
        (
            lambda: al.linalg.solve(al.eye(3), al.ones(2, 2)),
            al.ShapeError,
            "linalg_solve: argument 'B' has shape (2, 2), expected 3 rows, as many as 'A' has",
        ),
        (
            lambda: al.linalg.solve(al.eye(3), al.ones(3).double()),
            al.DTypeError,
            "linalg_solve: argument 'B' has dtype float64, expected float32, that of 'A'",
        ),
        (
            lambda: al.linalg.solve(al.eye(3), al.ones(3), left=False),
            al.ShapeError,
            "linalg_solve: argument 'B' has shape (3,), expected matrices where left is False",
        ),
        (
            lambda: al.linalg.solve_triangular(al.eye(3), al.ones(3), upper=True),
            al.ShapeError,
            "linalg_solve_triangular: argument 'B' has shape (3,), expected at least 2 dimensions",
        ),
        (
            lambda: al.linalg.qr(al.ones(2, 2), "full"),
            al.ArgumentError,
            "linalg_qr: mode is 'full', expected 'reduced', 'complete' or 'r'",
        ),
        (
            lambda: al.linalg.qr(al.ones(3, 2, requires_grad=True), "complete").Q.sum().backward(),
            al.AutogradError,
            "linalg_qr: mode is 'complete' for a matrix of shape (3, 2), expected 'reduced': a "
            "gradient needs Q, and none of its columns free to choose",
        ),
        (
            lambda: al.linalg.eigh(al.eye(2), "X"),
            al.ArgumentError,
            "linalg_eigh: UPLO is 'X', expected 'L' or 'U'",
        ),
        (
            lambda: al.linalg.matrix_power(al.ones(2, 3), 2),
            al.ShapeError,
            "linalg_matrix_power: argument 'self' has shape (2, 3), expected square matrices",
        ),
        (
            lambda: al.linalg.matrix_norm(al.ones(2, 3), 3),
            al.ArgumentError,
            "linalg_matrix_norm: ord is 3, expected 'fro', 'nuc', inf, 1, 2 or -these",
        ),
        (
            lambda: al.linalg.matrix_norm(al.ones(2, 3), dim=(0,)),
            al.ArgumentError,
            "linalg_matrix_norm: dim is (0,), expected two dimensions",
        ),
        (
            lambda: al.linalg.norm(al.ones(2, 3, 4), 2),
            al.ShapeError,
            "linalg_norm: argument 'A' has shape (2, 3, 4), expected 1 or 2 dimensions where ord "
            "is given and dim is not",
        ),
    ],
)
def test_bad_input_says_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function()
    assert message == str(caught.value).partition("\n")[0]


def test_a_singular_matrix_in_a_compiled_function_is_refused_alike():
    with pytest.raises(LinAlgError, match="linalg_inv: a matrix is singular"):
        al.compile(lambda x: al.linalg.inv(x))(SINGULAR)
    assert issubclass(LinAlgError, RuntimeError)
    assert al.linalg.LinAlgError is LinAlgError


# --------------------------------------------------------------------------------------- namespace
def test_the_namespace_is_the_table_of_ops():
    assert {"inv", "svd", "norm", "solve_triangular", "multi_dot", "cross"} <= set(dir(al.linalg))
    for name in dir(al.linalg):
        assert getattr(al.linalg, name) is getattr(al.linalg, name)
    for name in ("cofactors", "nonsense", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(al.linalg, name)


def test_results_have_names_and_out_holds_them():
    x = al.tensor(matrices((3, 3)))
    assert ("U", "S", "Vh") == al.linalg.svd(x)._fields
    target = al.zeros(3, 3, dtype=al.float64)
    assert al.linalg.inv(x, out=target) is target
    assert_near(np.linalg.inv(x.array), target.array)


def test_functions_of_matrices_are_what_their_series_say():
    a = matrices((2, 3, 3)) / 2
    term, total = np.broadcast_to(np.eye(3), a.shape), np.zeros_like(a)
    for k in range(1, 40):
        total = total + term
        term = term @ a / k
    assert_near(total, al.linalg.matrix_exp(al.tensor(a)).array)
    pinv = al.linalg.pinv(al.tensor(matrices((4, 2)))).array
    assert_near(np.eye(2), pinv @ matrices((4, 2)))
