"""Samples of activations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import Sample, array, flipped, special
from tests.samples import register
from tests.samples.pointwise import HALF, floats, whole


@register("silu", "mish", "log_sigmoid", "logsigmoid", "hardsigmoid", "hardswish")
@register("selu", "softsign", "tanhshrink")
def _plain_activation(name: str) -> Iterable[Sample]:
    yield from floats(name)
    if name.startswith("hard"):
        yield Sample((np.array([-3.0, 3.0, -2.99, 2.99]),))


@register("relu6")
def _relu6(name: str) -> Iterable[Sample]:
    yield from floats(name)
    yield from whole()


@register("elu", "celu", "leaky_relu", "softplus", "softshrink", "hardshrink")
def _scaled_activation(name: str) -> Iterable[Sample]:
    yield from floats(name)
    yield Sample((np.tile(special("float64"), 4),))  # fills two vector registers of any CPU
    options: dict[str, tuple[float, ...]] = {
        "elu": (0.5, 2.0, 1.5),
        "celu": (0.5,),
        "leaky_relu": (0.2,),
        "softplus": (2, 0.25),
        "softshrink": (0.1,),
        "hardshrink": (0.1,),
    }
    yield Sample((array((2, 3), "float32"), *options[name]))
    yield from (Sample((array((7,)).astype(dtype), *options[name])) for dtype in HALF)
    yield Sample((array((2, 3)) + 0.03, *options[name]), smooth=True)


@register("hardtanh")
def _hardtanh(name: str) -> Iterable[Sample]:
    yield from floats(name, -0.25, 0.3)
    yield from whole(-1, 2, unsigned=False)
    yield Sample((np.array([-1.0, 1.0, 0.5]),))


@register("threshold")
def _threshold(name: str) -> Iterable[Sample]:
    yield from floats(name, 0.125, 20)
    yield from whole(0, 5)


@register("prelu_kernel")
def _prelu_kernel(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3), "float32"), array((1, 3), "float32", 1)))
    yield Sample((special("float32"), np.array([0.25], np.float32)))
    yield Sample((flipped(array((2, 3))), array((1, 3), seed=1)), smooth=True)
    yield Sample((array((0, 3)), array((1, 1), seed=1)))


@register("prelu")
def _prelu(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3, 2), "float32"), array((3,), "float32", 1)))
    yield Sample((array((3,)), np.array([0.25])), smooth=True)
    yield Sample((array((2, 3)), array((3,), seed=1)), smooth=True)
    yield Sample((array((2, 3)), np.array(0.25)))
    yield Sample((array(()), np.array([0.25])))
