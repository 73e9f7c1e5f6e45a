"""Tensors of random numbers: `rand`, `randn`, `randint`, `randperm`, `normal`.

They draw from the default generator, or from `generator`, which a captured function does not
support (RNG-12).
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.factories import Place, size_of
from aotlite.eager.creation.namespace import into
from aotlite.eager.dispatch import dispatch
from aotlite.eager.rng.generator import Generator
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.op import OPS
from aotlite.ir.ops.random import forms


def _drawn(
    name: str,
    args: tuple[object, ...],
    wishes: tuple[DType | type | None, Place],
    generator: Generator | None,
    requires_grad: builtins.bool,
    out: Tensor | None = None,
) -> Tensor:
    op: Any = OPS[name]
    dtype, device = wishes
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentError(f"{name}: argument 'generator' is {generator!r}, expected a Generator")
    if out is not None:
        dtype = dtype or out.dtype
    bound = op.bind(args, {"dtype": dtype, "device": device or CPU})
    draw = lambda: dispatch(op, bound) if generator is None else generator.draw(op, bound)
    result: Tensor = draw() if out is None else into(name, draw, (), {}, out)
    return result.requires_grad_() if requires_grad else result


def rand(
    *sizes: object,
    size: object = None,
    generator: Generator | None = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return _drawn("rand", (size_of(sizes, size),), (dtype, device), generator, requires_grad, out)


def randn(
    *sizes: object,
    size: object = None,
    generator: Generator | None = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1."""
    return _drawn("randn", (size_of(sizes, size),), (dtype, device), generator, requires_grad, out)


def randint(
    low: int,
    high: object = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Integers from `low` (0 in the form `randint(high, size)`) up to `high`, without it."""
    if size is None and isinstance(high, (tuple, list)):
        high, size = None, high
    if high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError("randint: argument 'size' is missing, expected int[]")
    args = (low, high, size)
    return _drawn("randint", args, (dtype, device), generator, requires_grad, out)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The numbers from 0 up to `n`, without it, in random order."""
    return _drawn("randperm", (n,), (dtype, device), generator, requires_grad, out)


def normal(
    mean: object = 0.0,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Normal numbers: of a size, for one mean and deviation; else one for each of the tensors'."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        if size is not None:
            raise ArgumentError("normal: size and tensors are given, expected one or the other")
        draw = lambda: forms.normal(mean, std, generator)
        made: Tensor = draw() if out is None else into("normal", draw, (), {}, out)
        return made
    if size is None:
        raise ArgumentError("normal: argument 'size' is missing, expected int[] for two numbers")
    forms.check_deviation("normal", std)
    kind = dtype or (dtypes.default_dtype if out is None else out.dtype)
    place = None if out is None else out.device
    numbers = _drawn("randn", (tuple(size),), (kind, device or place), generator, False)
    result: Tensor = numbers * std + mean
    if out is not None:
        return into("normal", lambda: result, (), {}, out)
    return result.requires_grad_() if requires_grad else result
