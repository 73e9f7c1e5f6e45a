"""Composites of the draws: `*_like`, the in-place forms, and the forms of `normal` and `bernoulli`.

All take a `generator`; without one they draw from the default generator.
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.creation.like import OF_SELF, made_like
from aotlite.ir.ops.kinds import require_floating, require_inexact
from aotlite.ir.ops.random.distributions import whole_range

_GENERATOR = "generator? generator=None"
_LIKE = (
    f"*, {_GENERATOR}, dtype? dtype=None, device? device=None, bool requires_grad=False, "
    "memory_format? memory_format=None"
)


def drawn(self: Operand, name: str, args: tuple[object, ...], generator: Any) -> Operand:
    """The result of a random op, drawn from this generator or the default one."""
    op = OPS[name]
    bound = op.bind(args, {})
    return self._apply(op, bound) if generator is None else generator.draw(op, bound)


def _with_history(operand: Any, result: Operand) -> Operand:
    """The draw, with zeros as the gradient of its operand, as in PyTorch."""
    if not getattr(operand, "requires_grad", False):
        return result
    return operand.expand(result.shape).contiguous()._do("copy", result)


# ----------------------------------------------------------------------------------- like another
def _declare_like(op: str, numbers: str) -> None:
    def make(
        self: Operand, generator: object, dtype: DType | None, device: Device, *rest: Any
    ) -> Operand:
        args = (self.shape, dtype or self.dtype, device or self.device)
        return made_like(self, _of_size(self, op, args, generator), f"{op}_like", *rest)

    make.__doc__ = f"{numbers} numbers {OF_SELF}"
    composite(f"{op}_like(Tensor self, {_LIKE}) -> Tensor", is_method=False)(make)


_declare_like("rand", "Uniform")
_declare_like("randn", "Normal")


def _of_size(self: Operand, name: str, args: tuple[object, ...], generator: Any) -> Operand:
    *front, size, dtype, device = args
    op = OPS[name]
    bound = op.bind((*front, size), {"dtype": dtype, "device": device})
    return self._apply(op, bound) if generator is None else generator.draw(op, bound)


@composite(
    f"randint_like(Tensor self, int? low=None, int? high=None, {_LIKE}) -> Tensor", is_method=False
)
def randint_like(
    self: Operand,
    low: int | None,
    high: int | None,
    generator: object,
    dtype: DType,
    device: Device,
    *rest: Any,
) -> Operand:
    """Integers below the one bound, or from `low` up to `high`, like a tensor."""
    first, end = (0, low) if high is None else (low or 0, high)
    if end is None:
        raise ArgumentError("randint_like: argument 'high' is missing, expected int")
    args = (first, end, self.shape, dtype or self.dtype, device or self.device)
    made = _of_size(self, "randint", args, generator)
    return made_like(self, made, "randint_like", *rest)


# ---------------------------------------------------------------------------- bernoulli and normal
@composite(f"bernoulli(Tensor self, float? p=None, *, {_GENERATOR}) -> Tensor")
def bernoulli(self: Operand, p: float | None, generator: object) -> Operand:
    """1 with probability `p`, or with the probability that each element is, else 0."""
    if p is None:
        return _with_history(self, drawn(self, "bernoulli", (self,), generator))
    return _truths(self, self.shape, p, generator).to(self.dtype)


def _truths(self: Operand, shape: tuple[int, ...], p: float, generator: object) -> Operand:
    if isinstance(p, complex) or not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli: p is {p}, expected 0 <= p <= 1")
    args = (shape, dtypes.default_dtype, self.device)
    return _of_size(self, "rand", args, generator) < p


@composite(f"bernoulli_(Tensor self, Tensor|Scalar p=0.5, *, {_GENERATOR}) -> Tensor")
def bernoulli_(self: Operand, p: Any, generator: object) -> Operand:
    """Overwrites each element with 1, with probability `p`, or with 0."""
    if not hasattr(p, "meta"):
        return self.copy_(_truths(self, self.shape, p, generator))
    spread = p.detach().expand(self.shape)
    return self.copy_(drawn(self, "bernoulli", (spread,), generator))


def normal(mean: Any, std: Any, generator: object) -> Any:
    """Normal numbers with tensors, or a tensor and a number, for mean and deviation."""
    operand = mean if hasattr(mean, "meta") else std
    if not hasattr(std, "meta"):
        check_deviation("normal", std)
    result = drawn(operand, "normal_of", tuple(map(_detached, (mean, std))), generator)
    for each in (mean, std):
        result = _with_history(each, result) if hasattr(each, "meta") else result
    return result


def _detached(value: Operand) -> Operand:
    return value.detach() if hasattr(value, "meta") else value


def check_deviation(op: str, std: float) -> None:
    """Raises ArgumentError for a standard deviation below 0."""
    if not std >= 0:
        raise ArgumentError(f"{op}: std is {std}, expected at least 0")


# -------------------------------------------------------------------------------------- in place
def _uniform_numbers(op: str, self: Operand, generator: object) -> Operand:
    require_floating(op, self.dtype)
    return _of_size(self, "rand", (self.shape, self.dtype, self.device), generator)


@composite(f"uniform_(Tensor self, float from=0.0, float to=1.0, *, {_GENERATOR}) -> Tensor")
def uniform_(self: Operand, start: float, end: float, generator: object) -> Operand:
    """Overwrites the elements with uniform numbers of [from, to)."""
    if not start <= end:
        raise ArgumentError(f"uniform_: from is {start} and to {end}, expected from <= to")
    numbers = _uniform_numbers("uniform_", self, generator)
    if (start, end) != (0.0, 1.0):
        numbers = numbers * (end - start) + start
    return self.copy_(numbers)


@composite(f"normal_(Tensor self, float mean=0.0, float std=1.0, *, {_GENERATOR}) -> Tensor")
def normal_(self: Operand, mean: float, std: float, generator: object) -> Operand:
    """Overwrites the elements with normal numbers."""
    return self.copy_(_normal_numbers("normal_", self, mean, std, generator))


def _normal_numbers(op: str, self: Operand, mean: float, std: float, generator: object) -> Operand:
    check_deviation(op, std)
    require_inexact(op, self.dtype)
    args = (self.shape, self.dtype, self.device)
    return _of_size(self, "randn", args, generator) * std + mean


@composite(f"log_normal_(Tensor self, float mean=1.0, float std=2.0, *, {_GENERATOR}) -> Tensor")
def log_normal_(self: Operand, mean: float, std: float, generator: object) -> Operand:
    """Overwrites the elements with numbers whose logarithms are normal."""
    if not std > 0:
        raise ArgumentError(f"log_normal_: std is {std}, expected more than 0")
    return self.copy_(_normal_numbers("log_normal_", self, mean, std, generator).exp())


@composite(f"exponential_(Tensor self, float lambd=1.0, *, {_GENERATOR}) -> Tensor")
def exponential_(self: Operand, lambd: float, generator: object) -> Operand:
    """Overwrites the elements with numbers of density lambd * exp(-lambd * x)."""
    if not lambd > 0:
        raise ArgumentError(f"exponential_: lambd is {lambd}, expected more than 0")
    numbers = _uniform_numbers("exponential_", self, generator)
    return self.copy_((-numbers).log1p() / -lambd)


@composite(f"geometric_(Tensor self, float p, *, {_GENERATOR}) -> Tensor")
def geometric_(self: Operand, p: float, generator: object) -> Operand:
    """Overwrites the elements with the number of trials of probability `p` until a success."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_: p is {p}, expected 0 < p < 1")
    args = (self.shape, dtypes.float64, self.device)
    numbers = _of_size(self, "rand", args, generator)
    return self.copy_(((-numbers).log1p() / math.log1p(-p)).floor() + 1)


@composite(f"random_(Tensor self, int? from=None, int? to=None, *, {_GENERATOR}) -> Tensor")
def random_(self: Operand, start: int | None, end: int | None, generator: object) -> Operand:
    """Overwrites the elements with integers of [from, to).

    `random_(to)` starts at 0, `random_()` takes all that the dtype holds from 0 on.
    """
    if end is None:
        start, end = 0, whole_range(self.dtype)[1] if start is None else start
    args = (start or 0, end, self.shape, self.dtype, self.device)
    return self.copy_(_of_size(self, "randint", args, generator))
