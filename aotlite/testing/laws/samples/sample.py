"""`Sample`: one call of an op as plain data, and arrays for samples.

Arrays stand for tensors and have their layout; each run makes tensors of them in fresh memory. The
functions here return arrays in every layout, whose values need no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

FLOATS = ("float32", "float64")
NUMERIC = (*FLOATS, "int64")
ALL = (*NUMERIC, "bool")


@attrs.frozen(eq=False, repr=False)
class Sample:
    """One call: arguments with arrays for tensors and tuples of arrays for lists of them.

    >>> Sample((np.zeros((2, 3)), 1), {"keepdim": True}, smooth=True)
    (float64[2, 3][3, 1], 1, keepdim=True)
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    smooth: bool = False
    """Whether all floats are float64 and away from kinks, so that finite differences are valid."""

    def __repr__(self) -> str:
        words = [_shown(a) for a in self.args] + [
            f"{k}={_shown(v)}" for k, v in self.kwargs.items()
        ]
        return f"({', '.join(words)})"

    @property
    def source(self) -> str:
        """The arguments as Python text, with the values of arrays."""
        words = [_source(a) for a in self.args] + [
            f"{k}={_source(v)}" for k, v in self.kwargs.items()
        ]
        return f"({', '.join(words)})"


def _source(value: object) -> str:
    if isinstance(value, np.ndarray):
        steps = tuple(step // value.itemsize for step in value.strides)
        text = f"np.array({value.tolist()}, {str(value.dtype)!r})"
        dense = np.array(value.tolist(), value.dtype).strides == value.strides
        return text if dense or not value.size else f"{text} with strides {list(steps)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_source, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        steps = tuple(step // value.itemsize for step in value.strides)
        return f"{value.dtype}{list(value.shape)}{list(steps)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)


def size_of(sample: Sample) -> tuple[int, int]:
    """The key by which samples are sorted: numbers of elements and of dimensions."""
    arrays = list(arrays_in((sample.args, tuple(sample.kwargs.values()))))
    return sum(a.size for a in arrays), sum(a.ndim for a in arrays)


def arrays_in(value: object) -> Iterator[np.ndarray]:
    """The arrays of an argument tuple, in order."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays_in(item)


# --------------------------------------------------------------------------------------- arrays
def array(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Different values of both signs, none of them 0 (except for bool): multiples of 1/8."""
    count = int(np.prod(shape))
    steps = np.random.default_rng(seed).permutation(count) - count // 2
    values = (steps + (steps >= 0)).reshape(shape)
    if dtype == "bool":
        return np.asarray(values > 0)
    return np.asarray(values / (1 if dtype == "int64" else 8), dtype)


def positive(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Different values from 1/4 upwards, in steps of 1/8."""
    count = int(np.prod(shape))
    values = (np.random.default_rng(seed).permutation(count) + 2).reshape(shape)
    return np.asarray(values / (1 if dtype == "int64" else 8), dtype)


def special(dtype: str) -> np.ndarray:
    """Zeros of both signs, infinities, nan, halves, large values; for integers, few values."""
    if dtype == "bool":
        return np.array([True, False])
    if dtype == "int64":
        return np.array([0, 1, -1, 7, -(2**40)])
    return np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -1.0, 30.0, -30.0], dtype
    )


def flipped(a: np.ndarray) -> np.ndarray:
    """The same elements, transposed in memory."""
    return np.array(a.T, order="C").T


def gapped(a: np.ndarray) -> np.ndarray:
    """The same elements with a gap of one element after each."""
    wide = np.repeat(a, 2, axis=-1)
    return wide[..., ::2]


def expanded(a: np.ndarray, count: int) -> np.ndarray:
    """The array repeated along a new first dimension of stride 0."""
    return np.lib.stride_tricks.as_strided(a, (count, *a.shape), (0, *a.strides))


def channels_last(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


Make = Callable[..., np.ndarray]


def layouts(dtype: str, make: Make = array) -> list[np.ndarray]:
    """One array of each layout: dense, transposed, gapped, expanded, size 1, 0-d, empty, rank 4."""
    a = make((2, 3), dtype)
    return [
        a,
        flipped(a),
        gapped(a),
        expanded(make((3,), dtype), 2),
        make((1, 1), dtype),
        flipped(make((2, 1, 3), dtype)),
        make((), dtype),
        make((0, 3), dtype),
        make((2, 0), dtype),
        channels_last(make((2, 2, 1, 2), dtype)),
    ]


def dense_layouts(dtype: str, make: Make = array) -> list[np.ndarray]:
    """The arrays of `layouts` that may be written: those that are not expanded."""
    return [a for a in layouts(dtype, make) if 0 not in a.strides or a.size == 0]
