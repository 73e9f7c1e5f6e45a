"""Samples of pointwise ops: elementary functions, rounding, special functions, activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import ml_dtypes
import numpy as np

from aotlite.testing.laws.samples.sample import (
    Make,
    Sample,
    array,
    expanded,
    flipped,
    gapped,
    layouts,
    positive,
    special,
)
from tests.samples import register

HALF = (np.float16, ml_dtypes.bfloat16)


def unit(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Different values of both signs inside of -1 and 1."""
    return np.asarray(array(shape, "float64", seed) / 4, dtype)


def fraction(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Different values between 0 and 1."""
    return np.asarray(positive(shape, "float64", seed) / 8, dtype)


def above_one(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.asarray(positive(shape, "float64", seed) + 1, dtype)


COMPLEX = np.array([1 + 2j, 0.25 - 0.5j, -3 + 0.75j, -0.5 - 2j, 0.5 + 0.25j])

_DOMAINS: dict[str, Make] = {
    **dict.fromkeys(("log2", "log10", "lgamma", "digamma", "polygamma_of"), positive),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), unit),
    "acosh": above_one,
    "logit": fraction,
}
_COMPLEX_TOO = (
    "exp2 log2 log10 tan asin acos atan sinh cosh tanh asinh acosh atanh sinc sgn silu angle "
    "square softsign tanhshrink"
).split()


def floats(name: str, *args: object, complex_too: bool = False) -> Iterable[Sample]:
    """Samples of an op of floats: layouts, special values, 16-bit floats, complex, smooth ones."""
    make = _DOMAINS.get(name, array)
    yield from (Sample((a, *args)) for a in layouts("float32", make))
    yield from (Sample((special(dtype), *args)) for dtype in ("float32", "float64"))
    yield from (Sample((make((7,), "float64").astype(dtype), *args)) for dtype in HALF)
    if complex_too or name in _COMPLEX_TOO:
        yield Sample((COMPLEX.copy(), *args), smooth=True)
        yield Sample((COMPLEX.astype(np.complex64), *args))
    for a in (make((2, 3)), flipped(make((2, 3), seed=1)), make((), seed=2)):
        yield Sample((np.add(a, 0.03, out=a), *args), smooth=True)


def whole(*args: object, unsigned: bool = True) -> Iterable[Sample]:
    """Integers: their extremes too."""
    yield Sample((np.array([0, 1, -1, 7, -(2**62), 2**62]), *args))
    yield Sample((flipped(array((2, 3), "int64")), *args))
    yield Sample((np.array([-128, -1, 0, 127], np.int8), *args))
    if unsigned:
        yield Sample((np.array([0, 1, 255], np.uint8), *args))


@register(*"exp2 log2 log10 tan asin acos atan sinh cosh asinh acosh atanh sinc".split())
@register("erfc", "erfinv", "lgamma", "digamma", "deg2rad", "rad2deg", "angle", "angle_of_real")
def _elementary(name: str) -> Iterable[Sample]:
    yield from floats(name)
    yield Sample((np.array([1, 2, 3]),))
    yield Sample((np.array([True, False]),))
    yield Sample((np.array([1, 3], np.uint16),))


@register("deg2rad_", "rad2deg_")
def _degrees(name: str) -> Iterable[Sample]:
    yield Sample((flipped(array((2, 3), "float32")),))
    yield Sample((special("float64"),))


@register("angle_of_complex")
def _angle(name: str) -> Iterable[Sample]:
    yield Sample((COMPLEX.copy(),), smooth=True)
    yield Sample((flipped(COMPLEX[:4].reshape(2, 2).astype(np.complex64)),))
    yield Sample((np.array([0j, complex(-0.0, 0.0), complex(-1, -0.0), complex(np.inf, np.inf)]),))


@register("logit")
def _logit(name: str) -> Iterable[Sample]:
    yield from floats(name)
    yield Sample((np.array([0, 1]),))
    yield Sample((np.array([-0.5, 0.0, 0.05, 0.5, 0.95, 1.0, 1.5, np.nan]), 0.1))
    yield Sample((fraction((2, 3)) + 0.03, 0.01), smooth=True)


@register("polygamma_of")
def _polygamma(name: str) -> Iterable[Sample]:
    for n in (1, 2):
        yield from (Sample((a, n)) for a in layouts("float32", positive)[:4])
        yield Sample((np.array([np.nan, np.inf, 0.5, -0.5, -2.5, 1e-3, 30.0]), n))
        yield Sample((positive((2, 3)) + 0.3, n), smooth=True)


@register("polygamma_")
def _polygamma_in_place(name: str) -> Iterable[Sample]:
    yield from (Sample((positive((2, 3)), n)) for n in (0, 1, 3))


@register("polygamma")
def _polygamma_face(name: str) -> Iterable[Sample]:
    yield from (Sample((positive((2, 3)), n)) for n in (0, 1, 3))


@register("sgn_of_complex")
def _sgn(name: str) -> Iterable[Sample]:
    yield from _angle(name)


@register("trunc", "frac", "round", "sgn")
def _rounding(name: str) -> Iterable[Sample]:
    yield from floats(name)
    if name != "frac":
        yield from whole()
    if name == "sgn":
        yield Sample((special("bool"),))
        yield Sample((COMPLEX.copy(),))
    if name == "round":
        for decimals in (2, -1):
            yield Sample((array((2, 3)) * 12.345,), {"decimals": decimals})
        yield Sample((array((2, 3)) * 1.37 + 0.01,), {"decimals": 1}, smooth=True)


@register("isinf", "isfinite", "isposinf", "isneginf", "signbit")
def _questions(name: str) -> Iterable[Sample]:
    for dtype in ("float32", "float64", "int64", "bool"):
        yield Sample((special(dtype),))
    yield from (Sample((a,)) for a in layouts("float32"))
    yield from (Sample((special("float32").astype(dtype),)) for dtype in HALF)
    if name in ("isinf", "isfinite"):
        yield Sample((np.array([1 + 2j, np.inf * 1j, complex(np.nan, np.inf), np.nan]),))


# ----------------------------------------------------------------------------- of two and more
def pairs(make: Make = array, *, ints: bool = True, exact: bool = True) -> Iterable[Sample]:
    """Layouts, broadcasting, promotion, special values and smooth ones of two tensors."""
    a, b = make((2, 3), "float32"), make((2, 3), "float32", 1)
    yield Sample((a, b))
    yield Sample((flipped(a), flipped(b)))
    yield Sample((gapped(a), make((3,), "float32", 2)))
    yield Sample((make((3,), "float32"), expanded(make((3,), "float32", 1), 2)))
    yield Sample((make((), "float32"), make((), "float32", 1)))
    yield Sample((make((0, 3), "float32"), make((1, 3), "float32")))
    for dtype in HALF:
        yield Sample((make((7,), "float64").astype(dtype), make((7,), "float64", 1).astype(dtype)))
    # Of no dimensions and wider: rounded to 16 bits first, or not.
    yield Sample((make((7,), "float64").astype(HALF[1]), np.array(0.3, np.float32)))
    for name in ("float32", "float64"):
        values = special(name)
        yield Sample((values[:, None].copy(), values))
    if not exact:
        yield Sample((a, make((3,), "float64", 1)))
    if ints:
        yield Sample((a, make((3,), "int64", 1)))
        yield Sample((make((2, 3), "int64"), make((3,), "int64", 1)))
    yield from smooth_pairs(make)


def smooth_pairs(make: Make = array) -> Iterable[Sample]:
    for a, b in (
        (make((2, 3)), make((2, 3), seed=5)),
        (flipped(make((2, 3))), make((3,), seed=5)),
        (make(()), make((), seed=6)),
    ):
        yield Sample((a, np.add(b, 0.05, out=b)), smooth=True)


@register("atan2", "copysign", "fmax", "fmin")
def _real_pairs(name: str) -> Iterable[Sample]:
    yield from pairs()
    if name == "copysign":
        yield from (Sample((array((2, 3)), number)) for number in (-1, 1.5))


@register("hypot", "logaddexp", "logaddexp2", "nextafter")
def _float_pairs(name: str) -> Iterable[Sample]:
    yield from pairs(ints=False)
    if name == "logaddexp":
        yield Sample((COMPLEX.copy(), COMPLEX[::-1].copy()), smooth=True)


@register("heaviside")
def _heaviside(name: str) -> Iterable[Sample]:
    yield Sample((special("float32"), array((12,), "float32")))
    yield Sample((flipped(array((2, 3))), array((3,))), smooth=True)
    yield Sample((np.array([-1.0, 0.0, 2.0]), np.array([5.0, 6.0, 7.0])))
    yield Sample((np.array([-1, 0, 2]), np.array([5, 6, 7])))


@register("xlogy")
def _xlogy(name: str) -> Iterable[Sample]:
    yield from pairs(positive)
    yield Sample((np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, -1.0, np.nan, 0.0])))
    yield Sample((2, positive((2, 3))), smooth=True)
    yield Sample((positive((2, 3)), 2), smooth=True)
    yield Sample((np.array([0, 3]), np.array([0, 3])))


@register("floor_divide", "div_floor", "div_trunc", "fmod", "remainder")
def _division(name: str) -> Iterable[Sample]:
    yield from (s for s in pairs() if not s.smooth and not _divides_by_zero(s))
    for s in smooth_pairs():  # off the quotients at which they jump
        yield Sample((np.asarray(s.args[0] + 0.013), s.args[1]), smooth=True)
    for a, b in ((np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 5])),):
        yield Sample((a, b))
        yield Sample((a.astype(np.int8), b.astype(np.int8)))
    yield Sample((np.array([7, 250], np.uint8), 3))
    for number in (3, -3, 2.5, -0.1):
        yield Sample((array((2, 3), "float32"), number))
        yield Sample((array((7,)).astype(HALF[1]), number))
        yield Sample((np.array([7, -7, 6, 0]), number))
    yield Sample((array((2, 3)) + 0.01, 0.3), smooth=True)
    if name in ("floor_divide", "remainder"):
        yield Sample((7, np.array([2, -2])))
        yield Sample((7.5, array((2, 3), "float32")))


def _divides_by_zero(sample: Sample) -> bool:
    kinds = [a.dtype.kind for a in sample.args]
    return "f" not in kinds and not sample.args[1].all()


@register("add_scaled", "sub_scaled")
def _scaled(name: str) -> Iterable[Sample]:
    for alpha in (2, -0.5):
        yield Sample((array((2, 3), "float32"), array((3,), "float32", 1), alpha))
        yield Sample((flipped(array((2, 3))), array((2, 3), seed=1), alpha), smooth=True)
        yield from (Sample((array((7,)).astype(d), array((7,)).astype(d), alpha)) for d in HALF)
    yield Sample((special("float64")[:, None].copy(), special("float64"), 2))
    yield Sample((np.array([0, 1, 255], np.uint8), np.array([1, 255, 255], np.uint8), 3))
    yield Sample((array((2, 3), "int64"), 5, 3))
    yield Sample((array((2, 3)), 5, 0.5), smooth=True)
    yield Sample((COMPLEX.copy(), COMPLEX[::-1].copy(), 2j), smooth=True)


@register("addcmul", "addcdiv")
def _addcmul(name: str) -> Iterable[Sample]:
    for value in (1, -0.5):
        given = {"value": value}
        for dtype in ("float32", *HALF):
            parts = [array((2, 3), "float64", k).astype(dtype) for k in range(3)]
            yield Sample(tuple(parts), given)
        mixed = flipped(array((2, 3))), array((3,), seed=1), array((2, 1), seed=2)
        yield Sample(mixed, given)
        smooth = [array((2, 3), seed=k) for k in range(3)]
        yield Sample((smooth[0], smooth[1], smooth[2] + 0.05), given, smooth=True)
    values = special("float64")
    yield Sample((values, values[::-1].copy(), values.copy()), {"value": 2})
    yield Sample((np.ones((0, 2)), np.ones(2), np.ones(())))
    complex_ones = COMPLEX.copy(), COMPLEX.copy(), COMPLEX[::-1].copy()
    yield Sample(complex_ones, {"value": 2j}, smooth=True)
    if name == "addcmul":
        yield Sample((np.array([1, 2]), np.array([3, 4]), np.array([2**62, 6])), {"value": 3})


@register("lerp")
def _lerp(name: str) -> Iterable[Sample]:
    for weight in (0.25, 0.75, 1, np.array(0.5)):
        yield Sample((array((2, 3), "float32"), array((3,), "float32", 1), weight))
    for dtype in HALF:
        yield Sample((array((7,)).astype(dtype), array((7,), seed=1).astype(dtype), 0.3))
    yield Sample((flipped(array((2, 3))), array((2, 3), seed=1), unit((3,)) + 0.05), smooth=True)
    yield Sample((array((2, 3)), array((3,), seed=1), 0.3), smooth=True)
    yield Sample((special("float64"), special("float64")[::-1].copy(), 0.75))
    yield Sample((COMPLEX.copy(), COMPLEX[::-1].copy(), 0.25j), smooth=True)


@register("replace_nonfinite")
def _replace_nonfinite(name: str) -> Iterable[Sample]:
    yield from floats(name, 1.0, 2.0, -3.0)


@register("nan_to_num")
def _nan_to_num(name: str) -> Iterable[Sample]:
    yield Sample((special("float32"),))
    yield Sample((special("float32").astype(np.float16),))
    yield Sample((flipped(array((2, 3), "int64")),))
    yield Sample((special("float64"), 1.0, 2.0, 3.0))
    yield Sample((array((2, 3)),), smooth=True)


@register("isclose")
def _isclose(name: str) -> Iterable[Sample]:
    values = special("float64")
    for equal_nan in (False, True):
        yield Sample((values[:, None].copy(), values, 1e-05, 1e-08, equal_nan))
    yield Sample((np.array([1.0, 2.0, 100.0]), np.array([1.05, 2.3, 109.0]), 0.1, 0.0))
    yield Sample((np.array([1, 2, 100]), np.array([2, 2, 109]), 0.1, 0.5))
    yield Sample((special("bool"), np.array([True, True])))
    yield Sample((COMPLEX.copy(), COMPLEX + 1e-6))
    yield Sample((values, values[::-1].copy(), 0.0, 0.0))


# --------------------------------------------------------------------------------- bits and wholes
@register("bitwise_and", "bitwise_or", "bitwise_xor")
def _bitwise(name: str) -> Iterable[Sample]:
    a, b = array((2, 3), "int64"), array((2, 3), "int64", 1)
    yield Sample((a, b))
    yield Sample((flipped(a), b[0]))
    yield Sample((array((0,), "int64"), array((), "int64")))
    yield Sample((a, 3))
    yield Sample((3, a))
    yield Sample((special("bool"), np.array([True, True])))
    yield Sample((special("bool"), 2))
    yield Sample((np.array([1, 255], np.uint8), 300))
    yield Sample((np.array([1, 255], np.uint16), np.array([3, 6], np.uint16)))


@register("bitwise_not")
def _bitwise_not(name: str) -> Iterable[Sample]:
    yield from whole()
    yield Sample((special("bool"),))
    yield Sample((array((0, 2), "int64"),))


@register("bitwise_left_shift", "bitwise_right_shift")
def _shifts(name: str) -> Iterable[Sample]:
    yield Sample((np.array([1, -7, 5, 2**62]), np.array([1, 2, 70, -1])))
    yield Sample((flipped(array((2, 3), "int64")), 2))
    yield Sample((np.array([200, 3], np.uint8), np.array([1, 9], np.uint8)))
    yield Sample((3, np.array([0, 1, 2])))


@register("gcd", "lcm")
def _whole_pairs(name: str) -> Iterable[Sample]:
    yield Sample((np.array([0, 12, -18, 7]), np.array([0, 18, 12, -21])))
    yield Sample((flipped(array((2, 3), "int64")), array((3,), "int64")))
    yield Sample((np.array([12, 250], np.uint8), np.array([18, 100], np.uint8)))


# ---------------------------------------------------------------------------------------- complex
@register("complex", "polar")
def _from_parts(name: str) -> Iterable[Sample]:
    for dtype in ("float32", "float64"):
        yield Sample((flipped(array((2, 3), dtype)), array((3,), dtype, 1)))
        yield Sample((special(dtype)[:, None].copy(), special(dtype)))
    yield Sample((array((0, 2)), array((1,))))
    # PyTorch's gradient of polar takes sizes for granted that are above 0.
    yield Sample((flipped(positive((2, 3))), array((3,), seed=1)), smooth=True)


@register("conj()", "conj_physical", "resolve_conj", "resolve_neg", "positive", "isreal")
def _of_complex(name: str) -> Iterable[Sample]:
    yield Sample((COMPLEX.copy(),))
    yield Sample((flipped(array((2, 3), "float32")),))
    yield Sample((array((2, 3), "int64"),))
    if name != "isreal":
        yield Sample((array((2, 3)),), smooth=True)


@register("conj_physical_")
def _conj_in_place(name: str) -> Iterable[Sample]:
    yield Sample((COMPLEX.copy(),))
    yield Sample((flipped(array((2, 3), "float32")),))


# ------------------------------------------------------------------------------- faces and aliases
@register("square", "square_")
def _square(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3), "float32"),))
    yield Sample((array((2, 3), "int64"),))
    yield Sample((COMPLEX.copy(),))
    if name == "square":
        yield Sample((special("bool"),))
        yield Sample((array((2, 3)),), smooth=True)


@register("float_power_")
def _float_power_in_place(name: str) -> Iterable[Sample]:
    yield Sample((positive((2, 3)), positive((3,), "int64")))
    yield Sample((flipped(positive((2, 3))), 0.3))


@register("float_power")
def _float_power(name: str) -> Iterable[Sample]:
    yield Sample((positive((2, 3), "float32"), 2))
    yield Sample((positive((2, 3), "int64"), positive((3,), "float32")))
    yield Sample((2, positive((3,), "int64")))
    yield Sample((np.array([1 + 1j], np.complex64), 2))
    yield Sample((positive((2, 3)), positive((3,), seed=1)), smooth=True)


_ALPHA = ("add()", "sub()", "add_()", "sub_()", "rsub()")


@register(*_ALPHA)
def _alpha(name: str) -> Iterable[Sample]:
    for alpha in (1, 2, -0.5):
        yield Sample((array((2, 3)), array((3,), seed=1)), {"alpha": alpha})
        yield Sample((array((2, 3), "float32"), 2), {"alpha": alpha})
        if not name.endswith("_()"):
            yield Sample((array((2, 3)), array((3,), seed=1)), {"alpha": alpha}, smooth=True)
    yield Sample((array((2, 3), "int64"), array((3,), "int64", 1)), {"alpha": 3})


@register("div()", "div_()")
def _div(name: str) -> Iterable[Sample]:
    for mode in (None, "floor", "trunc"):
        a, b = array((2, 3)), array((3,), seed=1)
        yield Sample((a, b), {"rounding_mode": mode}, smooth=not name.endswith("_()"))
        if mode or name == "div()":
            yield Sample((array((2, 3), "int64"), 3), {"rounding_mode": mode})


@register("true_divide", "true_divide_")
def _true_divide(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)), array((3,), seed=1)), smooth=name == "true_divide")
    yield Sample((array((2, 3), "float32"), 3))


@register("clamp_min", "clamp_max", "clamp_min_", "clamp_max_")
def _clamped(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3), "float32"), 0.25))
    yield Sample((array((2, 3), "int64"), 1))
    yield Sample((array((2, 3)), array((3,), seed=1) + 0.03), smooth=not name.endswith("_"))


@register("where()")
def _where_method(name: str) -> Iterable[Sample]:
    mask = array((2, 3), "bool")
    yield Sample((array((2, 3)), mask, array((3,), seed=1)), smooth=True)
    yield Sample((array((2, 3), "int64"), mask, 0.5))
    yield Sample((mask, mask, array((3,), "bool", 1)))
    yield Sample((array((2, 3)), mask.astype("uint8") * 2, array((3,), seed=1)))
    yield Sample((mask, mask.astype("uint8"), array((3,), "bool", 1)))


def _first_of(target: str) -> Callable[[str], list[Sample]]:
    def few(name: str) -> list[Sample]:
        from tests.samples import samples_of

        found = samples_of(target)
        # A leaf is not written, so in-place forms have no gradients of their own to compare.
        smooth = [] if name.endswith("_") else [s for s in found if s.smooth][:1]
        return [*[s for s in found if not s.smooth][:3], *smooth]

    return few


def _register_aliases() -> None:
    from aotlite.ir.op.composite import COMPOSITES

    for name, made in COMPOSITES.items():
        target = made.another_name_of
        if target is not None:
            register(name)(_first_of(f"{target}()" if target in COMPOSITES else target))


_register_aliases()
