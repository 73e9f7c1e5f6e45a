"""PyTorch's forms of linear algebra, and where ours differ."""

from typing import Any

import numpy as np

from tests.laws.twins.torch_twins import (
    WITHOUT_TWIN,
    Difference,
    differences,
    neither_is_finite,
    twins,
)


def _linalg(name: str) -> Any:
    return lambda torch, *args, **kwargs: getattr(torch.linalg, name)(*args, **kwargs)


def _pinv(torch: Any, x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    return torch.linalg.pinv(x, atol=atol, rtol=rtol, hermitian=hermitian)


twins(
    **{
        f"linalg_{name}": _linalg(name)
        for name in """
        det diagonal eigvalsh inv matmul matrix_exp matrix_norm matrix_power matrix_rank
        norm slogdet svdvals vecdot
        """.split()
    },
    linalg_cholesky=lambda torch, x, upper: torch.linalg.cholesky(x, upper=upper),
    linalg_pinv=_pinv,
    linalg_solve=lambda torch, a, b, left: torch.linalg.solve(a, b, left=left),
    linalg_solve_triangular=lambda torch, a, b, upper, left, unit: torch.linalg.solve_triangular(
        a, b, upper=upper, left=left, unitriangular=unit
    ),
)

_FREE = (
    "signs and phases are free: compared through what they leave alone in tests/ir/test_linalg.py"
)
WITHOUT_TWIN.update(
    {
        "linalg_cofactors": "inside PyTorch's gradient of det",
        **dict.fromkeys(("linalg_qr", "linalg_svd", "linalg_eigh", "qr", "svd"), _FREE),
    }
)


def _arrays(sample: Any) -> list[np.ndarray]:
    return [a for a in sample.args if isinstance(a, np.ndarray)]


def _is_empty(sample: Any) -> bool:
    return any(a.size == 0 for a in _arrays(sample))


def _matrix(sample: Any) -> np.ndarray | None:
    """The first operand, where it is one."""
    a = _arrays(sample)[0]
    return a if a.ndim > 1 and a.size and a.dtype.kind in "fc" else None


def _is_singular(sample: Any) -> bool:
    """Whether rows depend on each other, so that rounding leaves what it will."""
    a = _matrix(sample)
    if a is None or not np.isfinite(a).all():
        return False
    return bool((np.linalg.matrix_rank(a.astype(np.complex128)) < min(a.shape[-2:])).any())


def _has_tiny_diagonal(sample: Any) -> bool:
    a = _matrix(sample)
    return a is not None and bool((np.abs(np.diagonal(a, 0, -2, -1)) < 1e-37).any())


def _has_zero_row(sample: Any) -> bool:
    a = _matrix(sample)
    return a is not None and bool((a == 0).all(-1).any())


def _has_16_bits(sample: Any) -> bool:
    return _arrays(sample)[0].dtype.itemsize == 2


def _overflows(sample: Any) -> bool:
    a = _arrays(sample)[0]
    return a.dtype.kind in "fc" and not bool((np.abs(a) < 1e15).all())


def _within_conditioning(sample: Any, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Where two solutions are no further apart than roundings lead: n units of |T^-1| |T| |x|.

    Source: Higham, "Accuracy and Stability of Numerical Algorithms", theorem 8.5.
    """
    a, x = (array.astype(np.complex128) for array in (sample.args[0], theirs))
    triangle, above = (np.triu, 1) if sample.kwargs["upper"] else (np.tril, -1)
    is_unit = sample.kwargs.get("unitriangular", False)
    t = triangle(a, above) + np.eye(a.shape[-1]) if is_unit else triangle(a)
    inverse, t, x = np.abs(np.linalg.inv(t)), np.abs(t), np.abs(x)
    sizes = inverse @ t @ x if sample.kwargs.get("left", True) else x @ t @ inverse
    return np.abs(ours - theirs) <= a.shape[-1] * float(np.finfo(ours.dtype).eps) * sizes


_POWERS = ("linalg_matrix_power", "matrix_power")
differences(
    Difference(
        ("linalg_solve", *_POWERS),
        "call",
        "PyTorch looks at the dtype only where there are elements",
        lambda sample: _is_empty(sample) and str(_arrays(sample)[0].dtype) not in "float32 float64",
    ),
    Difference(
        ("cholesky",),
        "call",
        "PyTorch looks for square matrices only where there are elements",
        lambda sample: _is_empty(sample) and sample.args[0].shape[-1] != sample.args[0].shape[-2],
    ),
    Difference(
        ("linalg_matrix_exp", "matrix_exp"),
        "values",
        "ours is rounded once, PyTorch's after each of many products",
        _has_16_bits,
    ),
    Difference(
        ("linalg_matrix_exp", "matrix_exp"),
        "gradient",
        "PyTorch's overflows in 16 bits",
        _has_16_bits,
    ),
    Difference(
        ("linalg_matrix_rank",),
        "call",
        "PyTorch looks for square matrices only where there are elements",
        lambda sample: _is_empty(sample) and bool(sample.kwargs.get("hermitian")),
    ),
    Difference(
        ("linalg_solve_triangular",),
        "values",
        "quotients of complex numbers as small as 1e-40 overflow in NumPy, and not in LAPACK",
        _has_tiny_diagonal,
    ),
    Difference(
        ("linalg_solve_triangular",),
        "values",
        "of a matrix that magnifies roundings, theirs are magnified in the order of the CPU's BLAS",
        lambda sample: _matrix(sample) is not None and not _has_tiny_diagonal(sample),
        at=_within_conditioning,
        everywhere=False,
    ),
    Difference(
        ("pinverse", "logdet", "slogdet"),
        "values",
        "of a matrix without full rank, what rounding leaves decides",
        _is_singular,
    ),
    Difference(
        _POWERS,
        "values",
        "where sums overflow, infinity or nan depends on the order of the summands",
        _overflows,
        at=neither_is_finite,
        everywhere=False,
    ),
    Difference(
        ("linalg_det",),
        "gradient",
        "PyTorch's is 0 where one row is 0; the cofactors are not",
        _has_zero_row,
    ),
)
