"""Samples of the ops of layers: convolution, pooling, normalization."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import (
    FLOATS,
    Sample,
    array,
    channels_last,
    flipped,
    gapped,
    positive,
    special,
)
from tests.samples import register

IMAGE = (2, 4, 5, 4)


def images(dtype: str) -> list[np.ndarray]:
    """One image of each layout: dense, channels-last, transposed, with gaps, repeated."""
    a = array((2, 4, 3, 4), dtype)
    row = array((4, 1, 1), dtype)
    repeated = np.lib.stride_tricks.as_strided(row, a.shape, (0, row.strides[0], 0, 0))
    return [a, channels_last(a), flipped(a), gapped(a), repeated]


# -------------------------------------------------------------------------------- convolution
@register("conv1d")
def _conv1d(name: str) -> Iterable[Sample]:
    x, w, b = array((2, 4, 6)), array((6, 4, 3), seed=1), array((6,), seed=2)
    yield Sample((x, w, b), smooth=True)
    yield Sample((x[0], w, b, 2, 1, 2), smooth=True)
    yield Sample((x, array((6, 2, 2), seed=1), None, 1, "same", 1, 2), smooth=True)
    yield Sample((flipped(x), w), {"padding": "valid"})
    yield Sample((array((2, 4, 6), "int64"), array((6, 4, 3), "int64", 1)))
    yield Sample((array((0, 4, 6), "float32"), array((6, 4, 3), "float32", 1)))
    yield Sample((x.astype("complex128") * 1j, w.astype("complex128")))


@register("conv2d()")
def _conv2d_face(name: str) -> Iterable[Sample]:
    x, w, b = array((2, 4, 4, 3)), array((6, 2, 2, 3), seed=1), array((6,), seed=2)
    yield Sample((x, w, b, (2, 1), (0, 1), 1, 2), smooth=True)
    yield Sample((x[0], array((3, 4, 2, 2), seed=1)), {"padding": "same"}, smooth=True)
    yield Sample((channels_last(x), w, b), {"groups": 2, "padding": "same", "dilation": (2, 1)})
    yield Sample((flipped(x), w), {"groups": 2, "padding": "valid"})
    yield Sample((x.astype("complex128") * 1j, w.astype("complex128"), None, 1, 0, 1, 2))


@register("conv_transpose2d")
def _conv_transpose2d(name: str) -> Iterable[Sample]:
    x, w, b = array((2, 4, 3, 2)), array((4, 2, 2, 3), seed=1), array((2,), seed=2)
    yield Sample((x, w, b), smooth=True)
    yield Sample((x[0], w, array((4,), seed=2), (2, 3), (1, 0), (1, 2), 2, (2, 1)), smooth=True)
    yield Sample((x, w, b, 1, 0, 1, 1, 2), smooth=True)
    yield Sample((channels_last(x), w))
    yield Sample((flipped(x), gapped(w), None, 2))
    yield Sample((x, channels_last(w)))
    yield Sample((array((0, 4, 3, 2), "float32"), w.astype("float32")))
    yield Sample((array((2, 4, 3, 2), "int64"), array((4, 2, 2, 3), "int64", 1)))


@register("conv_transpose1d")
def _conv_transpose1d(name: str) -> Iterable[Sample]:
    x, w, b = array((2, 4, 3)), array((4, 2, 3), seed=1), array((2,), seed=2)
    yield Sample((x, w, b), smooth=True)
    yield Sample((x[0], w, array((4,), seed=2), 2, 1, 1, 2, 2), smooth=True)


# ------------------------------------------------------------------------------------ pooling
POOLS = [
    ((2,),),
    ((3, 2), (2, 1), (1,), True),
    ((3,), (2,), (1,), True, False),
    ((2,), (3,), (1,), False, True, -3),
    ((2, 3), (3, 2), (0, 1), True, False, 5),
]
"""Arguments of avg_pool2d after the image."""


@register("avg_pool2d")
def _avg_pool2d(name: str) -> Iterable[Sample]:
    for dtype in (*FLOATS, "int64"):
        for a in images(dtype):
            yield Sample((a, (2,)))
        yield from (Sample((array(IMAGE, dtype), *rest)) for rest in POOLS)
    yield Sample((array((4, 5, 4), "float32"), (3,)))
    yield Sample((np.zeros((0, 1, 2, 2)), (2,)))
    yield Sample((special("float64").reshape(1, 3, 4), (2,), (1,)))
    yield from (Sample((array((1, 2, 5, 4)), *rest), smooth=True) for rest in POOLS[1:])


@register("avg_pool2d_backward")
def _avg_pool2d_backward(name: str) -> Iterable[Sample]:
    for rest, out in zip(POOLS, [(2, 2), (3, 5), (3, 3), (2, 2), (2, 3)], strict=True):
        full = (*rest, *((2,), (), (0,), False, True, None)[len(rest) :])
        for dtype in FLOATS:
            a = array((2, 4, 5, 4), dtype)
            yield Sample((array((2, 4, *out), dtype), a, *full))
            yield Sample((array((2, 4, *out), dtype), channels_last(a), *full))
        yield Sample((array((2, *out)), array((2, 5, 4)), *full), smooth=True)


@register("avg_pool2d()")
def _avg_pool2d_face(name: str) -> Iterable[Sample]:
    yield Sample((array(IMAGE), 2), smooth=True)
    yield Sample((array(IMAGE), (3, 2), None, 1, True, False), smooth=True)
    yield Sample((array(IMAGE)[0], 2, 1), {"divisor_override": 3}, smooth=True)


@register("avg_pool1d")
def _avg_pool1d(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3, 7)), 3), smooth=True)
    yield Sample((array((3, 7)), 2, 3, 1, True, False), smooth=True)
    yield Sample((array((2, 3, 7), "int64"), (2,)))
    yield Sample((np.zeros((0, 1, 2)), 2))


@register("max_pool2d")
def _max_pool2d(name: str) -> Iterable[Sample]:
    yield Sample((array(IMAGE), 2), smooth=True)
    yield Sample((array(IMAGE), (3, 2), None, 1, (1, 2), True), smooth=True)
    yield Sample((channels_last(array(IMAGE)), 2, 1), {"return_indices": True})


@register("max_pool1d")
def _max_pool1d(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3, 7)), 3), smooth=True)
    yield Sample((array((3, 7)), 3, 2, 1, 2, True), smooth=True)
    yield Sample((array((3, 7), "float32"), (2,)), {"return_indices": True})
    yield Sample((np.zeros((0, 1, 2)), 2))


@register("adaptive_avg_pool2d")
def _adaptive_avg_pool2d(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        for a in images(dtype):
            yield Sample((a, (2,)))
        for size in ((3, 5), (5, 4), (1, 3), (1,), (7, 9)):
            yield Sample((array(IMAGE, dtype), size))
    yield Sample((array((4, 5, 4), "float32"), (3,)))
    yield Sample((array(IMAGE), (0, 2)))
    yield Sample((np.zeros((0, 1, 2, 2)), (2,)))
    yield Sample((np.zeros((1, 0, 2, 2)), (2,)))
    yield Sample((special("float64").reshape(1, 3, 4), (2, 3)))
    for size in ((3, 3), (1, 2), (7, 5)):
        yield Sample((array((2, 5, 4)), size), smooth=True)


@register("adaptive_max_pool2d")
def _adaptive_max_pool2d(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield from (Sample((a, (2,))) for a in images(dtype))
        for size in ((3, 5), (1, 1), (7, 9)):
            yield Sample((array(IMAGE, dtype), size))
    yield Sample((array((4, 5, 4), "float32"), (3,)))
    yield Sample((np.zeros((0, 1, 2, 2)), (2,)))
    yield Sample((special("float64").reshape(1, 3, 4), (2, 3)))
    yield Sample((np.full((1, 2, 3), -np.inf), (2, 2)))
    for size in ((3, 3), (1, 2), (7, 5)):
        yield Sample((array((2, 5, 4)), size), smooth=True)


@register("adaptive_max_pool2d()")
def _adaptive_max_face(name: str) -> Iterable[Sample]:
    yield Sample((array(IMAGE), (3, None)), smooth=True)
    yield Sample((channels_last(array(IMAGE)), 2, True))


@register("adaptive_avg_pool2d()")
def _adaptive_face(name: str) -> Iterable[Sample]:
    for size in (2, (3, None), 1, (1, 1)):
        yield Sample((array(IMAGE), size), smooth=True)
    yield Sample((channels_last(array(IMAGE)), 1))
    yield Sample((array((4, 5, 4)), (1, 1)))


@register("adaptive_avg_pool2d_backward")
def _adaptive_back(name: str) -> Iterable[Sample]:
    for out in ((2, 3), (5, 4), (7, 9)):
        for dtype in FLOATS:
            a = array(IMAGE, dtype)
            yield Sample((array((2, 4, *out), dtype), a))
            yield Sample((array((2, 4, *out), dtype), channels_last(a)))
        yield Sample((array((2, *out)), array((2, 5, 4))), smooth=True)


@register("adaptive_avg_pool1d")
def _adaptive_avg_pool1d(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3, 7)), 3), smooth=True)
    yield Sample((array((3, 7)), (1,)), smooth=True)


# ------------------------------------------------------------------------------ normalization
def _affine(dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    return array((4,), dtype, 1), array((4,), dtype, 2)


@register("group_norm")
def _group_norm(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield from (Sample((a, 2, *_affine(dtype))) for a in images(dtype)[:4])
        yield Sample((array((3, 4), dtype), 1))
        yield Sample((array((3, 4, 2), dtype), 4, None, _affine(dtype)[1], 0.5))
    yield Sample((np.zeros((0, 4, 3)), 2, *_affine()))
    yield Sample((array((2, 4, 3)), 2, *_affine()), smooth=True)
    yield Sample((array((2, 4, 2, 2)), 1, None, None, 0.1), smooth=True)


@register("rms_norm")
def _rms_norm(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield from (Sample((a, (4,), _affine(dtype)[0])) for a in images(dtype)[:4])
        yield from (Sample((a, (3, 4))) for a in images(dtype)[:3])
        yield Sample((np.zeros((2, 3), dtype), (3,)))
    yield Sample((np.zeros((0, 4)), (4,), _affine()[0]))
    yield Sample((array((2, 4)) * (1 + 2j), (4,), _affine()[0] * (1 - 1j)))
    yield Sample((array((2, 4)), (4,), _affine()[0]), smooth=True)
    yield Sample((array((2, 2, 3)), (2, 3), None, 0.1), smooth=True)


@register("batch_norm_train")
def _batch_norm_train(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield from (Sample((a, *_affine(dtype))) for a in images(dtype)[:4])
        yield Sample((array((3, 4), dtype), None, None, 0.5))
        yield Sample((array((3, 4, 2), dtype), _affine(dtype)[0], None))
    yield Sample((array((3, 4, 2)), *_affine()), smooth=True)
    yield Sample((array((3, 2, 2, 2)), None, None, 0.1), smooth=True)


@register("batch_norm_eval")
def _batch_norm_eval(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        running = array((4,), dtype, 3), positive((4,), dtype, 4)
        yield from (Sample((a, *running, *_affine(dtype))) for a in images(dtype))
        yield Sample((array((3, 4), dtype), *running, None, _affine(dtype)[1], 0.5))
    yield Sample((np.zeros((0, 4, 2)), array((4,), seed=3), positive((4,)), *_affine()))
    running = array((4,), seed=3), positive((4,), seed=4)
    yield Sample((array((2, 4, 3)), *running, *_affine()), smooth=True)
    yield Sample((array((3, 4)), *running, None, None, 0.1), smooth=True)


# ------------------------------------------------------------------------- directions and pixels
@register("normalize")
def _normalize(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)),), smooth=True)
    yield Sample((array((2, 3)), 1.0, 0), smooth=True)
    yield Sample((array((2, 3, 2)), 3.0, -1, 2.0), smooth=True)
    yield Sample((np.zeros((2, 3)),))
    yield Sample((flipped(array((2, 3), "float32")),))
    yield Sample((array((2, 3)) * (1 + 2j),))


@register("cosine_similarity")
def _cosine_similarity(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)), array((2, 3), seed=1)), smooth=True)
    yield Sample((array((2, 3, 2)), array((3, 1), seed=1), -2), smooth=True)
    yield Sample((array((2, 3)), np.zeros((2, 3))))
    yield Sample((np.zeros((0, 3)), np.zeros((0, 3))))


@register("pixel_shuffle", "pixel_unshuffle")
def _pixels(name: str) -> Iterable[Sample]:
    shape = (2, 8, 2, 3) if name == "pixel_shuffle" else (2, 2, 4, 6)
    yield Sample((array(shape), 2), smooth=True)
    yield Sample((array(shape)[0], 2), smooth=True)
    yield Sample((flipped(array(shape, "int64")), 1))
    yield Sample((channels_last(array(shape)), 2))
    if name == "pixel_shuffle":  # PyTorch's other one keeps the shape of an empty tensor
        yield Sample((np.zeros((0, *shape[1:])), 2))


# ----------------------------------------------------------------------------------- other sizes
@register("upsample_nearest2d", "upsample_nearest_exact2d", "upsample_bilinear2d")
def _upsample(name: str) -> Iterable[Sample]:
    choices = [()] if "nearest" in name else [(False,), (True,)]
    for options in choices:
        for dtype in FLOATS:
            yield from (Sample((a, (5, 7), *options)) for a in images(dtype))
            yield Sample((array((1, 2, 4, 5), dtype), (3, 2), *options, 0.75, 0.5))
        yield Sample((array((1, 2, 4, 5)), (1, 1), *options))
        yield Sample((np.zeros((0, 1, 2, 2)), (3, 3), *options))
        yield Sample((special("float64").reshape(1, 2, 2, 3), (4, 2), *options))
        for size in ((3, 2), (6, 9)):
            yield Sample((array((1, 2, 4, 5)), size, *options), smooth=True)


@register(
    "upsample_nearest2d_backward",
    "upsample_nearest_exact2d_backward",
    "upsample_bilinear2d_backward",
)
def _upsample_backward(name: str) -> Iterable[Sample]:
    choices = [()] if "nearest" in name else [(False,), (True,)]
    for options in choices:
        for dtype in FLOATS:
            grad = array((1, 2, 3, 7), dtype)
            yield Sample((grad, (3, 7), (1, 2, 4, 5), *options))
            yield Sample((channels_last(grad), (3, 7), (1, 2, 4, 5), *options))
        yield Sample((array((1, 2, 3, 7)), (3, 7), (1, 2, 4, 5), *options), smooth=True)


@register("interpolate")
def _interpolate(name: str) -> Iterable[Sample]:
    image, line = array((1, 2, 4, 5)), array((2, 3, 5))
    for mode in ("nearest", "nearest-exact", "bilinear"):
        yield Sample((image, 6), {"mode": mode}, smooth=True)
        yield Sample((image, None, (1.5, 0.7)), {"mode": mode}, smooth=True)
        yield Sample((image, None, 2), {"mode": mode, "recompute_scale_factor": True})
    yield Sample((image, (7, 3), None, "bilinear", True), smooth=True)
    for mode in ("nearest", "nearest-exact", "linear"):
        yield Sample((line, None, 1.7), {"mode": mode}, smooth=True)
