"""Samples of an op, made from its schema.

Tensors get each layout and dtype; floats, bools and scalars get fixed values. A schema does not say
which ints, lists of ints, strings or dtypes make sense, so that an op that requires one needs
samples from its author. A call that the op refuses with an error is no sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from aotlite.ir.errors import AotliteError, ArgumentError, noted
from aotlite.ir.op import DataOp, InplaceOp, Op
from aotlite.ir.op.schema import REQUIRED, SchemaParameter
from aotlite.testing.laws.ops.runs import bound, has_gradient, run
from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    Sample,
    array,
    flipped,
    layouts,
    size_of,
    special,
)

__all__ = ["samples_for"]

_BY_TYPE: dict[str, tuple[object, ...]] = {
    "bool": (False, True),
    "float": (0.5,),
    "Scalar": (2, -0.5),
}
_BY_NAME: dict[str, tuple[object, ...]] = {
    "dim": (0, -1),
    "size": ((2, 3), (), (4,)),
}
"""Values of parameters without a default, by type and, for ints, by name."""

_ADVICE = (
    "give samples: laws.check_op(op, samples=[laws.Sample((array, 1), smooth=True), ...]); arrays "
    "stand for tensors"
)


def samples_for(op: Op) -> list[Sample]:
    """Returns the suggested calls that the op accepts, smallest first.

    Raises ArgumentError for an op with a parameter of unknown meaning, and for an op that accepts
    none of the calls.
    """
    tried = list(_suggested(op, _alike))
    taken = [sample for sample in tried if _refusal(op, sample) is None]
    if not taken or (has_gradient(op) and not any(sample.smooth for sample in taken)):
        mixed = list(_suggested(op, _mixed))  # one of the tensors is a mask or an index
        tried += mixed
        taken += [sample for sample in mixed if _refusal(op, sample) is None]
    if not taken:
        raise noted(
            ArgumentError(
                f"laws: {op.name} takes none of {len(tried)} calls that {op.schema} suggests, "
                "expected samples"
            ),
            f"the first says: {_refusal(op, tried[0])}" if tried else None,
            _ADVICE,
        )
    return sorted(taken, key=size_of)


Spread = Callable[[list[np.ndarray]], Iterable[list[np.ndarray]]]
"""A function from a row of arrays, one for each tensor, to the rows to try instead."""


def _suggested(op: Op, spread: Spread) -> Iterator[Sample]:
    parameters = op.schema.parameters
    literals = [_literals(op, parameter) for parameter in parameters]
    for choice in itertools.product(*literals):
        holes = sum(value is _TENSOR for value in choice)
        rows = [*_rows(holes), *_special_rows(holes, op)] if holes else [[]]
        for row in rows:
            for columns in spread(row):
                yield _filled(choice, parameters, columns)
        for row in _smooth_rows(holes) if holes and has_gradient(op) else ():
            for columns in spread(row):
                yield _filled(choice, parameters, columns, smooth=True)


def _alike(row: list[np.ndarray]) -> Iterable[list[np.ndarray]]:
    return [row]


def _mixed(row: list[np.ndarray]) -> Iterable[list[np.ndarray]]:
    """Yields the row with each tensor in turn as a mask, or as indices of the first dimension."""
    for k in range(len(row) if len(row) > 1 else 0):
        shape = row[k].shape
        places = np.arange(shape[0] if shape else 1)[::-1]
        everywhere = np.broadcast_to(places.reshape(shape[:1] + (1,) * (len(shape) - 1)), shape)
        for instead in (array(shape, "bool", k), np.array(everywhere), places[:2].copy()):
            yield [*row[:k], instead, *row[k + 1 :]]


class _Tensor:
    """The placeholder of a tensor in a suggested call."""


_TENSOR = _Tensor()


def _literals(op: Op, parameter: SchemaParameter) -> tuple[object, ...]:
    """The values to try for one parameter."""
    if parameter.type.holds_tensor:
        optional = parameter.default is not REQUIRED
        return (parameter.default, _TENSOR) if optional else (_TENSOR,)
    if parameter.default is not REQUIRED:
        return (parameter.default,)
    known = _BY_TYPE.get(parameter.type.text) or _BY_NAME.get(parameter.name)
    if known is None:
        raise noted(
            ArgumentError(
                f"laws: parameter {parameter.name!r} of {op.schema} is of type "
                f"{parameter.type.text}, expected samples that say what it may be"
            ),
            _ADVICE,
        )
    return known


def _filled(
    choice: Sequence[object],
    parameters: Sequence[SchemaParameter],
    columns: Sequence[np.ndarray],
    *,
    smooth: bool = False,
) -> Sample:
    arrays = iter(columns)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for value, parameter in zip(choice, parameters, strict=True):
        if value is _TENSOR:
            filled: Any = next(arrays)
            value = (filled, np.array(filled)) if parameter.type.is_tensor_list else filled
        if parameter.keyword_only:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return Sample(tuple(args), kwargs, smooth)


# ---------------------------------------------------------------------------------------- arrays
def _rows(count: int) -> Iterator[list[np.ndarray]]:
    """Yields rows of each dtype and layout, with equal and with different layouts in a row."""
    for dtype in ALL:
        columns = [_every_layout(dtype, seed) for seed in range(count)]
        yield from map(list, zip(*columns, strict=True))
        if count > 1:
            dense = [array((2, 3), dtype, seed) for seed in range(count)]
            yield [dense[0], *map(flipped, dense[1:])]
            yield [dense[0], *[a[0] for a in dense[1:]]]
    for dtype in FLOATS:
        yield [special(dtype)[:, None].copy(), *[special(dtype) for _ in range(count - 1)]]


def _special_rows(count: int, op: Op) -> Iterator[list[np.ndarray]]:
    """Yields rows of special values of one shape, for in-place ops."""
    if isinstance(op, InplaceOp) and count > 1:
        for dtype in FLOATS:
            yield [np.roll(special(dtype), k) for k in range(count)]


def _every_layout(dtype: str, seed: int) -> list[np.ndarray]:
    make = partial(array, seed=seed)
    return [*layouts(dtype, make), *[make(shape, dtype) for shape in ((4,), (0,), (3, 3))]]


def _smooth_rows(count: int) -> Iterator[list[np.ndarray]]:
    """Yields rows of values between 0 and 1, above 1, and of both signs, for different domains."""
    for make in (_unit, _above, _signed):
        for shape in ((2, 3), (), (4,), (3, 3)):
            yield [make(shape, seed) for seed in range(count)]
        yield [flipped(make((2, 3), seed)) for seed in range(count)]


def _unit(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Different values between 0.1 and 0.9; different seeds give different values."""
    count = int(np.prod(shape))
    steps = np.random.default_rng(seed + 10).permutation(count) + 0.5
    return np.asarray(0.1 + 0.75 * (steps / count).reshape(shape) + 0.013 * seed)


def _above(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(_unit(shape, seed) + 1.5)


def _signed(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Different values of both signs, none of them a multiple of 1/8."""
    return np.asarray(array(shape, "float64", seed) + 0.03 + 0.013 * seed)


# ---------------------------------------------------------------------------------------- trying
def _refusal(op: Op, sample: Sample) -> Exception | None:
    """Returns the error of a call that is no sample of this op, else None.

    A call that the meta rule refuses, by any error, is no sample. A call that the rule accepts and
    the kernel fails on is one, so that a law reports it. Results of smooth samples have to be
    finite.
    """
    try:
        args = bound(op, sample)
        _ = op.outlines(args) if isinstance(op, DataOp) else op.infer(args)
    except Exception as error:
        return error
    try:
        with np.errstate(all="ignore"):
            outs = run(op, args)
    except AotliteError as error:
        return error
    except Exception:
        return None
    finite = all(np.isfinite(o.array).all() for o in outs if o.dtype.is_differentiable)
    return None if finite or not sample.smooth else ValueError("a result is not finite")
