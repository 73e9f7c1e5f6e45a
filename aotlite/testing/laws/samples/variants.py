"""Variants of a sample: the same call on operands that lie otherwise in memory, or hold extremes.

Whoever writes samples for an op thinks of what is special about it; these are what is special about
any op: each sample's arrays transposed in memory, with gaps, repeated, overlapping, empty, of size
1, without dimensions, channels-last, and with zeros of both signs, infinities, nan and extremes.
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
    first = np.ascontiguousarray(a[:1])  # with strides of its own: those of `a` lead beyond it
    return np.lib.stride_tricks.as_strided(first, a.shape, (0, *first.strides[1:]))


def _overlapping(a: np.ndarray) -> np.ndarray:
    """Each row begins at the second element of the one before."""
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
"""All finite: where a part is infinite or nan, PyTorch's own answers differ with the length of the
tensor (vector units take another way than the rest), and NumPy's follow C."""


def _extreme(a: np.ndarray) -> np.ndarray:
    """Extremes of the dtype in turn; infinity minus infinity and products that overflow happen."""
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
"""The tensors that may not be written (TEN-7)."""


def variants(sample: Sample, *, writes: bool, counts: bool) -> Iterator[tuple[str, Sample]]:
    """The variants of a sample that differ from it, by name.

    `counts`: values may say how large the result is, and extremes would fill the memory.
    """
    for name, change in VARIANTS.items():
        if (writes and name in SHARED) or (counts and name == "extreme"):
            continue
        made = changed(sample, change)
        if made is not None:
            yield name, made


def changed(sample: Sample, change: Callable[[np.ndarray], np.ndarray]) -> Sample | None:
    """The sample with its main arrays changed, those of the first one's dtype; None if none is."""
    touched = []
    main = next((a.dtype for a in arrays_in(sample.args) if a.dtype.kind in "fcV"), None)
    main = main or next((a.dtype for a in arrays_in(sample.args)), None)

    def one(value: Any) -> Any:
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
