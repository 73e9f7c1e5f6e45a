"""Samples of the composites in `ir/ops/shape/conversions.py`."""

from collections.abc import Iterable

import numpy as np

import aotlite as al
from aotlite.testing.laws.samples.sample import (
    Sample,
    array,
    channels_last,
    expanded,
    flipped,
    gapped,
    layouts,
)
from tests.samples import register

FORMATS = (al.contiguous_format, al.channels_last)
IMAGE = (2, 3, 2, 2)


def _images() -> list[np.ndarray]:
    a = array(IMAGE, "float32")
    one = array((2, 1, 2, 2), "float32")
    return [a, channels_last(a), gapped(a), expanded(array((3, 1, 2), "float32"), 2), one]


@register("to")
def _to(name: str) -> Iterable[Sample]:
    for a in [*layouts("float32"), flipped(array((2, 3, 2)))[:, ::2]]:
        yield from (Sample((a, dtype)) for dtype in (al.float32, al.int64))
        yield Sample((a, al.float32), {"copy": True})
    for a in _images():
        for kept in (*FORMATS, al.preserve_format):
            yield Sample((a,), {"memory_format": kept})
            yield Sample((a, al.float64), {"memory_format": kept})
    yield Sample((array((0, 3, 2, 2)),), {"memory_format": al.channels_last})
    yield Sample((array((1, 2, 1, 2, 3)),), {"memory_format": al.channels_last_3d})
    a = array((2, 3), "float32")
    yield Sample((a, "cpu"))
    yield Sample((a, "cpu", al.float64))
    yield Sample((a, al.ir.arrays.device.CPU), {"dtype": al.float16})
    yield Sample((a, None, al.float64))
    yield Sample((a, array((), "int64")))
    yield Sample((a,), {"tensor": array((), "float64"), "copy": True})
    yield Sample((array((2, 3)), al.float32), smooth=True)
    yield Sample((array(IMAGE),), {"memory_format": al.channels_last}, smooth=True)
    yield Sample((array((2, 3)), al.complex128), smooth=True)


_CASTS = "float double half bfloat16 char byte short int long bool cfloat cdouble".split()


@register(*_CASTS)
def _casts(name: str) -> Iterable[Sample]:
    yield from (Sample((array((2, 3), dtype),)) for dtype in ("float64", "int64", "bool"))
    yield Sample((flipped(array((2, 3), "float32")),))
    yield Sample((channels_last(array(IMAGE)),), {"memory_format": al.contiguous_format})
    yield Sample((array((2, 3)),), smooth=name in ("float", "double", "cdouble"))


@register("type_as")
def _type_as(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3), "float32"), array((), "float32")))
    yield Sample((flipped(array((2, 3), "float32")), array((4,), "int64")))
    yield Sample((array((2, 3)), array((2,), "float32")), smooth=True)


@register("cpu")
def _cpu(name: str) -> Iterable[Sample]:
    yield Sample((gapped(array((2, 3))),), smooth=True)
    yield Sample((array(IMAGE),), {"memory_format": al.channels_last})


@register("cuda")
def _cuda(name: str) -> Iterable[Sample]:
    """To where the law runs; devices have tests of their own, in tests/cuda."""
    yield Sample((gapped(array((2, 3))), "cpu"), smooth=True)


@register("clone()", "contiguous")
def _in_format(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("float32"))
    for a in _images():
        yield from (Sample((a,), {"memory_format": kept}) for kept in FORMATS)
    if name != "contiguous":
        yield Sample((gapped(array((2, 3))),), {"memory_format": al.preserve_format})
    yield Sample((array((2, 3, 1, 0)),), {"memory_format": al.channels_last})
    yield Sample((array((1, 2, 1, 2, 3)),), {"memory_format": al.channels_last_3d})
    yield Sample((flipped(array((2, 3))),), smooth=True)
    yield Sample((array(IMAGE),), {"memory_format": al.channels_last}, smooth=True)
