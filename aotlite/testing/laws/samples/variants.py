"""Variants of a sample: the same call on operands of other layouts, or with extreme values.

The author of samples covers the cases of one op. Variants cover the cases of all ops: the sample's
arrays transposed in memory, with gaps, expanded, overlapping, empty, of size 1, without dimensions,
channels-last, and with zeros of both signs, infinities, nan and extreme values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample, arrays_in


def _transposed(a: np.ndarray) -> np.ndarray:
    return np.array(a.T, order="C").T


def _gapped(a: np.ndarray) -> np.ndarray:
    return np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a


def _repeated(a: np.ndarray) -> np.ndarray:
    if not a.ndim or not a.size:
        return a
    first = np.ascontiguousarray(a[:1])  # with new strides, as those of `a` would leave its memory
    return np.lib.stride_tricks.as_strided(first, a.shape, (0, *first.strides[1:]))


def _overlapping(a: np.ndarray) -> np.ndarray:
    """An array with half the strides, whose elements overlap."""
    if a.ndim < 2 or not a.size:
        return a
    flat = np.ascontiguousarray(a).reshape(-1)
    steps = [a.itemsize * max(1, step // a.itemsize // 2) for step in np.array(a).strides]
    return np.lib.stride_tricks.as_strided(flat, a.shape, steps)


def _empty(a: np.ndarray) -> np.ndarray:
    return np.array(a[:0]) if a.ndim else a


def _empty_last(a: np.ndarray) -> np.ndarray:
    return np.array(a[..., :0]) if a.ndim else a


def _single(a: np.ndarray) -> np.ndarray:
    return np.array(a[tuple([slice(0, 1)] * a.ndim)])


def _bare(a: np.ndarray) -> np.ndarray:
    return np.array(a.reshape(-1)[:1].reshape(())) if a.size else a


def _channels_last(a: np.ndarray) -> np.ndarray:
    if a.ndim != 4:
        return a
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


_FLOATS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1.0, 0.5, 1e30, -3.5]
_COMPLEX = [0, -0.0, 1j, -1j, 0.5 + 1j, -1.0, 2j, -3.5]
"""All finite. With an infinite or nan part, PyTorch's results depend on the length of the tensor
(vector code and scalar code differ), and NumPy's follow C."""


def _extreme(a: np.ndarray) -> np.ndarray:
    """The array filled with extreme values of its dtype in turn."""
    made = np.empty(a.shape, a.dtype)
    values: list[Any]
    if a.dtype.kind in "iu":
        info = np.iinfo(a.dtype)
        values = [info.max, info.min, 0, 1, info.max // 2]
    elif a.dtype.kind == "b":
        values = [True, False]
    else:
        values = list(_COMPLEX if a.dtype.kind == "c" else _FLOATS)
    with np.errstate(all="ignore"):
        made[...] = np.resize(np.array(values).astype(a.dtype), a.shape)
    return made


VARIANTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": _transposed,
    "gapped": _gapped,
    "repeated": _repeated,
    "overlapping": _overlapping,
    "empty": _empty,
    "empty last": _empty_last,
    "size 1": _single,
    "0-d": _bare,
    "channels last": _channels_last,
    "extreme": _extreme,
}
SHARED = ("repeated", "overlapping")
"""The variants whose elements overlap, which may not be written (TEN-7)."""


def variants(sample: Sample, *, writes: bool, counts: bool) -> Iterator[tuple[str, Sample]]:
    """Yields the names and variants of a sample, without those equal to it.

    `writes`: the op writes an operand. `counts`: values may be sizes of the result, so that extreme
    values would fill the memory.
    """
    for name, change in VARIANTS.items():
        if (writes and name in SHARED) or (counts and name == "extreme"):
            continue
        made = changed(sample, change)
        if made is not None:
            yield name, made


def changed(sample: Sample, change: Callable[[np.ndarray], np.ndarray]) -> Sample | None:
    """Returns the sample with its main arrays changed; None if none changes.

    The main arrays are those of the first float dtype, or else of the first dtype.
    """
    touched = []
    main = next((a.dtype for a in arrays_in(sample.args) if a.dtype.kind in "fcV"), None)
    main = main or next((a.dtype for a in arrays_in(sample.args)), None)

    def one(value: object) -> Any:
        if isinstance(value, np.ndarray):
            made = change(value) if value.dtype == main else value
            touched.append(made is not value)
            return made
        if isinstance(value, (tuple, list)):
            return type(value)(map(one, value))
        return value

    args = tuple(map(one, sample.args))
    kwargs = {key: one(value) for key, value in sample.kwargs.items()}
    return Sample(args, kwargs) if any(touched) else None
