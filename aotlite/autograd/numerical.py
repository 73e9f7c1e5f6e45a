"""`gradcheck` and `gradgradcheck`: compare gradients with finite differences.

A complex number of an input or result counts as two real ones, so that all Jacobians are real. The
gradient of a real number L with regard to a complex one is dL/d(real) + i dL/d(imag).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.eager.autograd.functional import grad
from aotlite.eager.base.modes import enable_grad, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import as_ndarray
from aotlite.eager.creation.interop import from_numpy
from aotlite.ir.errors import ArgumentError, AutogradError
from aotlite.ir.geometry.overlap import has_internal_overlap

__all__ = ["gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., object],
    inputs: object,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
) -> bool:
    """Whether the gradients of `func(*inputs)` agree with finite differences.

    It checks the inputs that require grad, which should be float64 or complex128, and the results
    that require grad. If no result does, the numerical derivatives of all must be zero. Where the
    Jacobians differ it raises an AutogradError with both, or returns False if `raise_exception` is
    False. `nondet_tol` is the allowed difference between two backwards.

    >>> import aotlite as al
    >>> x = al.tensor([1.0, 2.0], dtype=al.float64, requires_grad=True)
    >>> gradcheck(lambda x: x * x.sin(), x)
    True
    """
    check = _Check("gradcheck", func, _listed(inputs), eps, atol, rtol)
    try:
        check.run(nondet_tol, undefined=check_undefined_grad, dtypes=check_grad_dtypes)
    except AutogradError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., object],
    inputs: object,
    grad_outputs: object = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
) -> bool:
    """Whether the second derivatives of `func` agree with finite differences.

    `grad_outputs` are the gradients of the results; random numbers if left out.
    """
    given = _listed(inputs)
    if grad_outputs is None:
        outs = _tracked("gradgradcheck", func(*given))
        vectors = [_random_like(t, i, gen_non_contig_grad_outputs) for i, t in enumerate(outs)]
    else:
        vectors = list(_listed(grad_outputs))
    count = len(given)

    def gradients(*args: Any) -> Any:
        inner = args[:count]
        wanted = [t for t in inner if isinstance(t, Tensor) and t.requires_grad]
        outs = _tracked("gradgradcheck", func(*inner))
        with enable_grad():
            found = grad(outs, wanted, args[count:], create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        gradients,
        (*given, *vectors),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
    )


@attrs.frozen(eq=False)
class _Check:
    """One comparison of analytical with numerical Jacobians."""

    name: str
    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    eps: float
    atol: float
    rtol: float
    tracked: bool = True
    """Only results that require grad are looked at."""

    def run(self, nondet_tol: float, *, undefined: bool, dtypes: bool) -> None:
        wanted = self._wanted()
        with enable_grad():
            outs = self._outputs()
        if not outs:
            self._check_constant(wanted)
        for k, out in enumerate(outs):
            analytical = self._analytical(out, wanted)
            again = self._analytical(out, wanted)
            numerical = self._numerical(k, out, wanted)
            for i, (a, b, n) in enumerate(zip(analytical, again, numerical, strict=True)):
                self._compare(k, i, n, a)
                self._compare_runs(k, i, a, b, nondet_tol)
        if dtypes:
            self._check_dtypes(outs, wanted)
        if undefined and len(outs) > 1:
            self._check_undefined(outs, wanted)

    def _wanted(self) -> list[Tensor]:
        """The inputs that require grad."""
        wanted = []
        for i, each in enumerate(self.inputs):
            if not isinstance(each, Tensor) or not each.requires_grad:
                continue
            if has_internal_overlap(each.shape, each.stride()):
                raise AutogradError(
                    f"{self.name}: input {i}, {each.meta}, overlaps itself, expected one memory "
                    "place for each element"
                )
            wanted.append(each)
        if not wanted:
            raise ArgumentError(
                f"{self.name}: no input requires grad, expected one that does at least"
            )
        return wanted

    def _outputs(self) -> list[Tensor]:
        found = _tensors(self.name, self.func(*self.inputs))
        return [t for t in found if t.requires_grad] if self.tracked else found

    # --- the two Jacobians
    def _analytical(self, out: Tensor, wanted: Sequence[Tensor]) -> list[np.ndarray]:
        """The analytical Jacobian for each input: a row for each real number of the result."""
        rows: list[list[np.ndarray]] = [[] for _ in wanted]
        for vector in _units(out):
            found = grad(out, wanted, vector, retain_graph=True, allow_unused=True)
            for column, each, given in zip(rows, found, wanted, strict=True):
                column.append(np.zeros(_count(given)) if each is None else _reals(each))
        return [
            np.array(column).reshape(-1, _count(given))
            for column, given in zip(rows, wanted, strict=True)
        ]

    def _numerical(self, k: int, out: Tensor, wanted: Sequence[Tensor]) -> list[np.ndarray]:
        found = []
        for given in wanted:
            columns = [
                (self._at(k, given, place, self.eps) - self._at(k, given, place, -self.eps))
                / (2 * self.eps)
                for place in _places(given)
            ]
            found.append(np.array(columns).reshape(-1, _count(out)).T)
        return found

    def _at(self, k: int, given: Tensor, place: tuple[object, complex], step: float) -> np.ndarray:
        """The result with one real number of an input changed; restores the input."""
        index, direction = place
        array = given.array
        before = array[index].copy()
        array[index] = before + step * direction
        try:
            # In grad mode, since results without a history are left out.
            with enable_grad():
                return _reals(self._outputs()[k])
        finally:
            array[index] = before

    def _check_constant(self, wanted: Sequence[Tensor]) -> None:
        """Checks that numerical derivatives are zero, where no result requires grad."""
        check = attrs.evolve(self, tracked=False)
        for k, out in enumerate(check._outputs()):
            for i, numerical in enumerate(check._numerical(k, out, wanted)):
                self._compare(k, i, numerical, np.zeros_like(numerical))

    # --- what is compared
    def _compare(self, k: int, i: int, numerical: np.ndarray, analytical: np.ndarray) -> None:
        if not np.allclose(analytical, numerical, self.rtol, self.atol, equal_nan=True):
            raise AutogradError(
                f"{self.name}: the Jacobian of result {k} with respect to input {i} (of those that "
                "require grad) is not what finite differences say, expected\n"
                f"numerical:\n{numerical}\nanalytical:\n{analytical}"
            )

    def _compare_runs(
        self, k: int, i: int, first: np.ndarray, second: np.ndarray, tolerance: float
    ) -> None:
        if first.size and np.abs(first - second).max() > tolerance:
            raise AutogradError(
                f"{self.name}: two backwards of result {k} give input {i} gradients that differ by "
                f"{np.abs(first - second).max()}, expected {tolerance} at most"
            )

    def _check_dtypes(self, outs: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        for out in outs:
            vector = next(_units(out), None)
            found = grad(out, wanted, vector, retain_graph=True, allow_unused=True)
            for i, (each, given) in enumerate(zip(found, wanted, strict=True)):
                if each is not None and each.dtype is not given.dtype:
                    raise AutogradError(
                        f"{self.name}: the gradient of input {i} is {each.dtype}, expected "
                        f"{given.dtype}"
                    )

    def _check_undefined(self, outs: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Checks that an absent gradient of a result counts as zeros."""
        for k, out in enumerate(outs):
            ones = [t.new_zeros(t.shape) + (1 if i == k else 0) for i, t in enumerate(outs)]
            alone = grad(out, wanted, ones[k], retain_graph=True, allow_unused=True)
            beside = grad(outs, wanted, ones, retain_graph=True, allow_unused=True)
            for i, (a, b) in enumerate(zip(alone, beside, strict=True)):
                mine = 0.0 if a is None else _reals(a)
                if b is not None and not np.allclose(mine, _reals(b), self.rtol, self.atol):
                    raise AutogradError(
                        f"{self.name}: the gradient of input {i} is another where the gradients of "
                        f"results other than {k} are absent, expected what zeros give"
                    )


# -------------------------------------------------------------------------- real numbers of tensors
def _count(tensor: Tensor) -> int:
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def _reals(tensor: Tensor) -> np.ndarray:
    """The real numbers of a tensor in a row; a complex one is two."""
    flat = np.ascontiguousarray(as_ndarray(tensor.detach().cpu())).reshape(-1)
    wide = flat.astype(np.complex128 if tensor.is_complex() else np.float64)
    return wide.view(np.float64)


def _places(tensor: Tensor) -> Iterator[tuple[object, complex]]:
    """Each real number of a tensor: an index, and 1 or 1j."""
    for index in np.ndindex(tensor.shape):
        yield index, 1
        if tensor.is_complex():
            yield index, 1j


def _units(tensor: Tensor) -> Iterator[Tensor]:
    """The unit vector for each real number of the tensor."""
    for index, direction in _places(tensor):
        made = tensor.detach().new_zeros(tensor.shape)
        made.array[index] = direction
        yield made


def _random_like(tensor: Tensor, seed: int, gapped: bool) -> Tensor:
    """Random numbers in [0, 1), the same in each run; every other element of a buffer if gapped."""
    random = np.random.default_rng(seed)
    shape = (*tensor.shape, 2) if gapped else tensor.shape
    values = random.random(shape)
    if tensor.is_complex():
        values = values + 1j * random.random(shape)
    with no_grad():
        made = from_numpy(np.asarray(values)).to(tensor.dtype)
    made = made[..., 0] if gapped else made
    return made.detach().requires_grad_()


def _listed(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _tracked(name: str, value: object) -> list[Tensor]:
    """The results that require grad."""
    return [t for t in _tensors(name, value) if t.requires_grad]


def _tensors(name: str, value: object) -> list[Tensor]:
    found = list(_listed(value))
    for each in found:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"{name}: the function gave {each!r}, expected tensors")
    return found
