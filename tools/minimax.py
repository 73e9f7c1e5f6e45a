"""Makes `ir/scalar/functions/coefficients.py`: minimax polynomials by Remez's exchange.

`python tools/minimax.py` prints the file, `--write` writes it; takes a minute and a half. Each fit
is repeated after each coefficient is rounded to its dtype, lowest power first, so that the higher
ones correct the rounding. Arithmetic: mpmath, 60 digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import mpmath as mp
import numpy as np

mp.mp.dps = 60
TARGET = Path(__file__).parent.parent / "backends" / "loops" / "functions" / "coefficients.py"
Real = Callable[[Any], Any]


@attrs.frozen
class Fit:
    """A fit of `of` by a polynomial on [low, high]; `weight` is the weight of the error."""

    name: str
    words: str
    of: Real
    weight: Real
    low: Any
    high: Any
    degree: int
    dtype: str = "float32"
    fixed: tuple[float, ...] = ()
    """The given coefficients, lowest power first."""


def rounded(value: Any, dtype: str) -> float:
    """The nearest number of the dtype."""
    if dtype == "float64":
        return float(value)
    near = np.float32(float(value))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return float(min(around, key=lambda n: abs(mp.mpf(float(n)) - value)))


def fitted(fit: Fit) -> tuple[list[float], Any]:
    """The coefficients, lowest power first, and their largest weighted error."""
    points = _grid(fit)
    values = [fit.of(x) for x in points]
    weights = [abs(fit.weight(x)) for x in points]
    known = list(fit.fixed)
    for power in range(len(known), fit.degree + 1):
        rest = [(v - _value(known, x)) / x**power for x, v in zip(points, values, strict=True)]
        scale = [w * abs(x) ** power for x, w in zip(points, weights, strict=True)]
        found = _remez(points, rest, scale, fit.degree - power)
        known.append(rounded(found[0], fit.dtype))
    errors = [
        abs(w * (v - _value(known, x))) for x, v, w in zip(points, values, weights, strict=True)
    ]
    return known, max(errors)


def _grid(fit: Fit) -> list[Any]:
    """Chebyshev's points, dense at the ends, without points near 0, where weights vanish."""
    count = 20 * (fit.degree + 2)
    middle, reach = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    angles = [mp.pi * (2 * k + 1) / (2 * count) for k in range(count)]
    points = sorted(middle + reach * mp.cos(a) for a in angles)
    return [x for x in points if abs(x) > reach / 1000]


def _value(coefficients: list[float], x: Any) -> Any:
    return mp.polyval(coefficients[::-1], x) if coefficients else mp.mpf(0)


def _remez(points: list[Any], values: list[Any], weights: list[Any], degree: int) -> list[Any]:
    """The polynomial whose largest weighted error at the points is least, lowest power first."""
    count = degree + 2
    chosen = [round((len(points) - 1) * k / (count - 1)) for k in range(count)]
    for _ in range(30):
        system = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, k in enumerate(chosen):
            for column in range(degree + 1):
                system[row, column] = points[k] ** column
            system[row, degree + 1] = (-1) ** row / weights[k]
            right[row] = values[k]
        solved = list(mp.lu_solve(system, right))
        found = solved[: degree + 1]
        errors = [
            w * (v - mp.polyval(found[::-1], x))
            for x, v, w in zip(points, values, weights, strict=True)
        ]
        new = _extremes(errors, count)
        if new == chosen or len(new) < count:
            break
        chosen = new
    return found


def _extremes(errors: list[Any], count: int) -> list[int]:
    """The points of the largest errors between changes of sign: `count` in a row."""
    places: list[int] = []
    for k, error in enumerate(errors):
        if places and (error >= 0) == (errors[places[-1]] >= 0):
            if abs(error) > abs(errors[places[-1]]):
                places[-1] = k
        else:
            places.append(k)
    while len(places) > count:
        _drop(places, errors, spare=len(places) - count)
    return places


def _drop(places: list[int], errors: list[Any], spare: int) -> None:
    """Drops the place of the least error; a neighbor too, unless it is an end: signs alternate."""
    sizes = [abs(errors[k]) for k in places]
    least = min(range(len(places)), key=sizes.__getitem__)
    if spare == 1 or least in (0, len(places) - 1):
        places.pop(0 if sizes[0] < sizes[-1] else -1)
        return
    neighbor = min(least - 1, least + 1, key=sizes.__getitem__)
    del places[min(least, neighbor) : max(least, neighbor) + 1]


# -------------------------------------------------------------------------------------- the fits
_HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.01")
_LOW_LOG, _HIGH_LOG = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
_QUARTER = mp.pi / 4 * mp.mpf("1.01")


def _exp(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "exp(r) = 1 + r + r^2 P(r), |r| <= log(2) / 2",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.exp(r),
        -_HALF_LN2,
        _HALF_LN2,
        degree,
        dtype,
    )


def _exp2(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "2^r = 1 + r P(r), |r| <= 1/2",
        lambda r: mp.expm1(r * mp.log(2)) / r,
        lambda r: r / mp.power(2, r),
        -mp.mpf("0.505"),
        mp.mpf("0.505"),
        degree,
        dtype,
    )


def _expm1(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "exp(r) - 1 = r + r^2 P(r), |r| <= 0.52",
        lambda r: (mp.expm1(r) - r) / r**2,
        lambda r: r**2 / mp.expm1(r),
        -mp.mpf("0.52"),
        mp.mpf("0.52"),
        degree,
        dtype,
    )


def _log(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "log(1 + f) = f - f^2 / 2 + f^3 P(f), sqrt(1/2) - 1 <= f <= sqrt(2) - 1",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        _LOW_LOG,
        _HIGH_LOG,
        degree,
        dtype,
    )


def _log_by_quotient(name: str, degree: int) -> Fit:
    """A fit in s = f / (2 + f), as log(1 + f) = 2 atanh(s)."""

    def of(z: Any) -> Any:
        s = mp.sqrt(z)
        return (mp.log1p(s) - mp.log1p(-s) - 2 * s) / (s * z)

    def weight(z: Any) -> Any:
        s = mp.sqrt(z)
        return s * z / (mp.log1p(s) - mp.log1p(-s))

    limit = (_HIGH_LOG / (2 + _HIGH_LOG)) ** 2 * mp.mpf("1.01")
    words = "log(1 + f) = 2 s + s^3 P(s^2), s = f / (2 + f), |s| <= 3 - 2 sqrt(2)"
    return Fit(name, words, of, weight, mp.mpf(0), limit, degree, "float64")


def _sin(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "sin(x) = x + x^3 P(x^2), |x| <= pi / 4",
        lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z * mp.sqrt(z) / mp.sin(mp.sqrt(z)),
        mp.mpf(0),
        _QUARTER**2,
        degree,
        dtype,
    )


def _cos(name: str, degree: int, dtype: str) -> Fit:
    return Fit(
        name,
        "cos(x) = 1 - x^2 / 2 + x^4 P(x^2), |x| <= pi / 4",
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2 / mp.cos(mp.sqrt(z)),
        mp.mpf(0),
        _QUARTER**2,
        degree,
        dtype,
    )


def _odd(name: str, words: str, of: Real, high: Any, degree: int, dtype: str) -> Fit:
    """f(x) = x + x^3 P(x^2) on [0, high]."""
    return Fit(
        name,
        f"{words}(x) = x + x^3 P(x^2), |x| <= {high}",
        lambda z: (of(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
        lambda z: z * mp.sqrt(z) / of(mp.sqrt(z)),
        mp.mpf(0),
        mp.mpf(high) ** 2,
        degree,
        dtype,
    )


def _erf_near(degree: int) -> Fit:
    middle = mp.mpf("0.375")

    def quotient(y: Any) -> Any:
        x = mp.sqrt(y + middle)
        return mp.erf(x) / x

    return Fit(
        "ERF_NEAR",
        "erf(x) = x + x P(x^2 - 0.375), 0 < x <= 0.98",
        lambda y: quotient(y) - 1,
        lambda y: 1 / quotient(y),
        -middle,
        mp.mpf("0.98") ** 2 - middle,
        degree,
    )


def _erf_far(degree: int) -> Fit:
    """The weight of the error is 2 at 0.97, where roundings add most, and 1 at 3."""
    middle, low = mp.mpf("1.125"), mp.mpf("0.97")

    def of(y: Any) -> Any:
        return mp.root(mp.erfc(y + middle), 4)

    def weight(y: Any) -> Any:
        more = mp.exp(-(y + middle - low) / mp.mpf("0.4"))
        return (1 + more) * 4 * of(y) ** 3 / mp.erf(y + middle)

    words = "erf(x) = 1 - P(x - 1.125)^4, 0.97 <= x <= 3.9"
    return Fit("ERF_FAR", words, of, weight, low - middle, mp.mpf("3.9") - middle, degree)


FITS = (
    _exp("EXP_32", 4, "float32"),
    _exp("EXP_64", 9, "float64"),
    _expm1("EXPM1_32", 5, "float32"),
    _expm1("EXPM1_64", 11, "float64"),
    _exp2("EXP2_32", 5, "float32"),
    _exp2("EXP2_64", 11, "float64"),
    _exp2("EXP2_64_SHORT", 6, "float64"),
    _log("LOG_32", 7, "float32"),
    _log_by_quotient("LOG_64", 6),
    _log_by_quotient("LOG_64_SHORT", 3),
    _sin("SIN_32", 3, "float32"),
    _cos("COS_32", 2, "float32"),
    _sin("SIN_64", 6, "float64"),
    _cos("COS_64", 6, "float64"),
    _sin("SIN_64_SHORT", 3, "float64"),
    _cos("COS_64_SHORT", 3, "float64"),
    _odd("TANH_32", "tanh", mp.tanh, "1.0", 6, "float32"),
    _odd("ATAN_64_SHORT", "atan", mp.atan, "1.0", 11, "float64"),
    _erf_near(5),
    _erf_far(8),
)


def text(fits: tuple[Fit, ...] = FITS) -> str:
    """The module's text."""
    lines = [
        '"""Coefficients of minimax polynomials, highest power first.',
        "",
        "Generated by `tools/minimax.py`: change that, not this file. Errors are those of the",
        "polynomial in exact arithmetic, relative to the function.",
        '"""',
    ]
    for fit in fits:
        known, error = fitted(fit)
        bound = f"2^{float(mp.log(error, 2)):.1f}"
        lines += ["", f"# {fit.words}; {fit.dtype}; error {bound}", f"{fit.name} = ("]
        lines += [f"    {value!r},  # {value.hex()}" for value in reversed(known)]
        lines += [")"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints or writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    if parser.parse_args().write:
        TARGET.write_text(text(), "utf-8")
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
