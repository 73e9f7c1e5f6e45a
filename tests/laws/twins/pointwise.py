"""PyTorch's counterparts of the pointwise ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample
from tests.laws.twins.torch_twins import Difference, differences, twins


def _functional(name: str) -> Any:
    return lambda torch, *args: getattr(torch.nn.functional, name)(*args)


def _divided(mode: str, end: str = "") -> Any:
    return lambda torch, a, b: getattr(torch.Tensor, "div" + end)(a, b, rounding_mode=mode)


def _scaled(name: str) -> Any:
    return lambda torch, a, b, alpha: getattr(torch.Tensor, name)(a, b, alpha=alpha)


def _valued(name: str) -> Any:
    return lambda torch, a, b, c, value: getattr(torch.Tensor, name)(a, b, c, value=value)


def _only(name: str, takes: Any) -> Any:
    """PyTorch's method for the kind of operands that the op of ours is for."""

    def call(torch: Any, a: Any, *numbers: Any) -> Any:
        if not takes(a):
            raise RuntimeError(f"{name} of other operands is another op")
        return getattr(a, name)(*numbers)

    return call


def _rounded(name: str) -> Any:
    def call(torch: Any, a: Any, decimals: int) -> Any:
        given = {"decimals": decimals} if decimals else {}  # PyTorch has no decimals of integers
        return getattr(torch.Tensor, name)(a, **given)

    return call


twins(
    angle_of_complex=_only("angle", lambda a: a.is_complex()),
    angle_of_real=_only("angle", lambda a: not a.is_complex()),
    add_scaled=_scaled("add"),
    add_scaled_=_scaled("add_"),
    addcdiv=_valued("addcdiv"),
    addcdiv_=_valued("addcdiv_"),
    addcmul=_valued("addcmul"),
    addcmul_=_valued("addcmul_"),
    celu=_functional("celu"),
    div_floor=_divided("floor"),
    div_floor_=_divided("floor", "_"),
    div_trunc=_divided("trunc"),
    div_trunc_=_divided("trunc", "_"),
    floor_divide=lambda torch, a, b: torch.floor_divide(a, b),
    isneginf=lambda torch, a: torch.isneginf(a),
    isposinf=lambda torch, a: torch.isposinf(a),
    polygamma_of=lambda torch, a, n: torch.polygamma(n, a),
    polygamma_of_=lambda torch, a, n: a.polygamma_(n),
    polygamma=lambda torch, a, n: torch.polygamma(n, a),
    prelu_kernel=lambda torch, a, w: torch.ops.aten._prelu_kernel(a, w),
    remainder=lambda torch, a, b: torch.remainder(a, b),
    replace_nonfinite=_only("nan_to_num", lambda a: a.is_floating_point()),
    replace_nonfinite_=_only("nan_to_num_", lambda a: a.is_floating_point()),
    round=_rounded("round"),
    round_=_rounded("round_"),
    sgn_of_complex=_only("sgn", lambda a: a.is_complex()),
    sgn_of_complex_=_only("sgn_", lambda a: a.is_complex()),
    conj_=lambda torch, a: a.conj_physical_(),
    float_power=lambda torch, a, b: torch.float_power(a, b),
    sub_scaled=_scaled("sub"),
    sub_scaled_=_scaled("sub_"),
    tanhshrink=_functional("tanhshrink"),
)


def _is_empty(sample: Sample) -> bool:
    return bool(sample.args[0].size == 0)


def _is_complex(sample: Sample) -> bool:
    return any(getattr(a, "dtype", np.dtype(bool)).kind == "c" for a in sample.args)


def _is_special(sample: Sample) -> bool:
    return bool(not np.isfinite(sample.args[0]).all())


def _is_nan_for_infinity(sample: Sample, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.isposinf(ours) & np.isnan(theirs)


def _lost_its_angle(sample: Sample, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    is_zero = np.isneginf(ours.real) & np.isneginf(theirs.real)
    return is_zero & np.isfinite(ours.imag) & np.isnan(theirs.imag)


differences(
    Difference(
        ("gelu",),
        "values",
        "with AVX-512, PyTorch's of infinity is nan (oneDNN's); it is infinity",
        at=_is_nan_for_infinity,
        everywhere=False,
    ),
    Difference(
        ("log2", "log2_"),
        "values",
        "without AVX2, PyTorch's of complex zeros has no angle: it divides infinity by a complex "
        "number",
        _is_complex,
        at=_lost_its_angle,
        everywhere=False,
    ),
    Difference(
        ("asinh_", "acosh_", "atanh_"),
        "gradient",
        "PyTorch has no derivative of these in place; ours is that of the same out of place",
    ),
    Difference(
        ("polygamma_of", "polygamma_of_", "polygamma", "polygamma_"),
        "values",
        "PyTorch's trigamma is good to 1e-9 in float64, ours to some 1e-16; its others are nan at "
        "infinity, where they are 0",
        lambda sample: sample.args[1] == 1 or _is_special(sample),
    ),
    Difference(
        ("digamma", "digamma_"),
        "gradient",
        "PyTorch's trigamma is good to 1e-9 in float64, and wrong near poles",
    ),
    Difference(
        ("polygamma_of", "polygamma_of_"),
        "gradient",
        "PyTorch's polygamma is nan at infinity, where it is 0",
        _is_special,
    ),
    Difference(
        (
            *("hardtanh", "hardtanh_", "logit", "logit_", "elu", "elu_", "hardswish"),
            *("hardswish_", "softshrink", "hardshrink"),
        ),
        "gradient",
        "at nan and -0.0 PyTorch's depends on whether the element fell into a vector register",
        _is_special,
    ),
    Difference(
        (
            *("hardtanh", "relu6", "deg2rad", "rad2deg", "prelu_kernel", "prelu", "conj_physical"),
            *("replace_nonfinite", "nan_to_num", "abs", "absolute", "isinf", "isreal"),
        ),
        "strides",
        "of no elements: PyTorch keeps strides of 0 that mean nothing",
        _is_empty,
    ),
    Difference(
        ("silu", "silu_"),
        "gradient",
        "PyTorch refuses gradients of complex numbers, and in place forgets to conjugate",
        lambda sample: sample.args[0].dtype.kind == "c",
    ),
    Difference(
        ("hardsigmoid", "hardsigmoid_"),
        "gradient",
        "PyTorch's factor 1/6 is that of float32 also in float64",
        lambda sample: sample.args[0].dtype == np.float64,
    ),
    Difference(
        ("floor_divide", "floor_divide_", "heaviside", "heaviside_"),
        "gradient",
        "PyTorch has no derivative of it; it is 0",
    ),
    Difference(
        ("remainder",),
        "gradient",
        "PyTorch has no derivative of it by a divisor of a number",
        lambda sample: not isinstance(sample.args[0], np.ndarray),
    ),
    Difference(
        ("conj()",),
        "aliasing",
        "PyTorch's is a view with a flag that says conjugate; ours is a copy",
        _is_complex,
    ),
    Difference(
        ("conj()",),
        "strides",
        "PyTorch's is a view with a flag that says conjugate; ours is a copy",
        _is_complex,
    ),
    Difference(
        ("pow", "pow_", "float_power"),
        "values",
        "of complex infinities, nan, and 1/0: C libraries differ in which parts are nan",
        _is_complex,
    ),
    Difference(
        ("complex",),
        "call",
        "PyTorch has a complex dtype of 16-bit floats, with next to no arithmetic",
        lambda sample: sample.args[0].dtype == np.float16,
    ),
)
