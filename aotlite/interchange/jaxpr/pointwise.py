"""Primitives of JAX that compute element by element, in operand methods.

A function takes the parameters of the equation, and its operands: values of a graph, and numbers
for literals. Spec: `specs/jaxpr.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aotlite.ir.dtypes import from_numpy
from aotlite.ir.op import OPS

Parameters = Mapping[str, Any]
Lowering = Callable[..., Any]

SAME = """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 log log1p expm1 sqrt
rsqrt abs neg floor ceil erf erfc lgamma digamma add sub mul atan2 nextafter eq ne lt le gt ge conj
complex"""
"""Primitives that are ops of the same name."""

NAMED = {
    "logistic": "sigmoid",
    "erf_inv": "erfinv",
    "is_finite": "isfinite",
    "not": "bitwise_not",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "max": "maximum",
    "min": "minimum",
    "rem": "fmod",
    "add_any": "add",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
}
"""Primitives that are ops of another name."""


def like(number: Any, x: Any) -> Any:
    """A number as a value of the dtype of another one."""
    if hasattr(number, "meta"):
        return number
    return x._filled((), number, x.meta.dtype, x.meta.device)


def _op(name: str) -> Lowering:
    op = OPS[name]
    takes = [parameter.type.text for parameter in op.schema.parameters]

    def lowering(params: Parameters, *args: Any) -> Any:
        known = next(each for each in args if hasattr(each, "meta"))
        given = [
            x if "Scalar" in kind else like(x, known) for kind, x in zip(takes, args, strict=False)
        ]
        return known._apply(op, op.bind(tuple(given), {}))

    return lowering


def _div(params: Parameters, x: Any, y: Any) -> Any:
    known = x if hasattr(x, "meta") else y
    x = like(x, known)
    is_integer = x.meta.dtype.kind < 2
    return x._do("div_trunc" if is_integer else "div", y)


def _pow(params: Parameters, x: Any, y: Any) -> Any:
    known = x if hasattr(x, "meta") else y
    return known._apply(OPS["pow"], OPS["pow"].bind((x, y), {}))


def _integer_pow(params: Parameters, x: Any) -> Any:
    y = params["y"]
    if y < 0 and x.meta.dtype.kind > 1:
        return x._do("pow", -y)._do("reciprocal")
    return x._do("pow", y)


def _sign(params: Parameters, x: Any) -> Any:
    if x.meta.dtype.is_complex:
        return x._do("sgn_of_complex")
    signs = x._do("sign")
    return x.isnan().where(x, signs) if x.meta.dtype.kind == 2 else signs


def _round(params: Parameters, x: Any) -> Any:
    if int(params["rounding_method"]) == 1:
        return x._do("round")
    whole = x._do("trunc")  # halves away from 0
    return whole + (x - whole).abs()._do("ge", 0.5).to(x.meta.dtype) * x._do("sign")


def _clamp(params: Parameters, low: Any, x: Any, high: Any) -> Any:
    return x._do("maximum", like(low, x))._do("minimum", like(high, x))


def _select_n(params: Parameters, which: Any, *cases: Any) -> Any:
    known = next((each for each in cases if hasattr(each, "meta")), None)
    cases = cases if known is None else tuple([like(each, known) for each in cases])
    if which.meta.dtype.kind == 0:
        return which._do("where", cases[1], cases[0])
    found = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        found = which._do("eq", number)._do("where", cases[number], found)
    return found


def _convert(params: Parameters, x: Any) -> Any:
    dtype = from_numpy(params["new_dtype"])
    if x.meta.dtype.is_complex and not dtype.is_complex:
        x = x.real
    return x if x.meta.dtype is dtype else x._do("cast", dtype)


def _cbrt(params: Parameters, x: Any) -> Any:
    return x._do("sign") * x._do("abs")._do("pow", 1 / 3)


def _polygamma(params: Parameters, order: Any, x: Any) -> Any:
    if hasattr(order, "meta") or not hasattr(x, "meta"):
        return NotImplemented
    return x._do("polygamma_of", int(order))


def _shift_right_logical(params: Parameters, x: Any, y: Any) -> Any:
    if x.meta.dtype.name.startswith("u"):
        return x._do("bitwise_right_shift", y)
    return NotImplemented


POINTWISE: dict[str, Lowering] = {
    **{name: _op(name) for name in SAME.split()},
    **{name: _op(own) for name, own in NAMED.items()},
    "div": _div,
    "pow": _pow,
    "integer_pow": _integer_pow,
    "sign": _sign,
    "round": _round,
    "clamp": _clamp,
    "select_n": _select_n,
    "convert_element_type": _convert,
    "cbrt": _cbrt,
    "shift_right_logical": _shift_right_logical,
    "polygamma": _polygamma,
    "square": lambda params, x: x * x,
    "real": lambda params, x: x.real,
    "imag": lambda params, x: x.imag,
    "copy": lambda params, x: x,
    "copy_p": lambda params, x: x,
    "stop_gradient": lambda params, x: x,
}
"""Primitive -> its form."""
