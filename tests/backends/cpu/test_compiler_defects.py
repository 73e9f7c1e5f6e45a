"""What C compilers get wrong in texts that are right, and printers keep away from them.

gcc 12 makes vectors of rows where a branch loads a row of two, and loses some of what it loads; and
it takes a float of an integer of a float for its whole part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")

DTYPES = ("float32", "float64", "int8")
FORMS: dict[str, Callable[[al.Tensor, int, int], al.Tensor]] = {
    "padded": lambda x, low, high: al.nn.functional.pad(x, (0, 0, low, high)),
    "padded and used": lambda x, low, high: al.nn.functional.pad(x, (0, 0, low, high)) * 2 + 1,
    "joined": lambda x, low, high: al.cat([x, x * 0, x], 0)[low:],
    "rolled": lambda x, low, high: x.roll(low, 0),
    "narrowed": lambda x, low, high: al.nn.functional.pad(x[1:], (0, 0, low, high)),
    "three axes": lambda x, low, high: al.nn.functional.pad(
        x.reshape(-1, 1, x.shape[1]), (0, 0, 1, 0, low, high)
    ),
}


@pytest.mark.parametrize("columns", [1, 2, 3, 8])
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_a_branch_loads(form: str, columns: int) -> None:
    """Of three lengths in one text, which has a kernel for each."""
    sizes = [(17, 1, 1), (171, 3, 5), (40, 33, 2)]

    def three(*given: al.Tensor) -> list[al.Tensor]:
        pairs = zip(given, sizes, strict=True)
        return [FORMS[form](x, low, high) for x, (_, low, high) in pairs]

    for dtype in DTYPES:
        counts = [np.arange(1, rows * columns + 1) for rows, _, _ in sizes]
        arrays = [count.reshape(-1, columns).astype(dtype) for count in counts]
        given = [al.tensor(array) for array in arrays]
        every = zip(three(*given), al.compile(three, backend="cpu")(*given), sizes, strict=True)
        for expected, found, size in every:
            assert np.array_equal(np.asarray(expected), np.asarray(found)), (dtype, *size)


@pytest.mark.parametrize("columns", [2, 3])
def test_a_choice_at_each_point_of_loads_that_lie_apart(columns: int) -> None:
    """The branch is in the innermost loop: of one row, or of what is gathered."""

    def chosen(x: al.Tensor, places: al.Tensor) -> al.Tensor:
        inside = places < x.shape[0]
        rows = x[al.where(inside, places, al.zeros_like(places))]
        return al.where(inside[:, None], rows, al.zeros_like(rows)).sum(1)

    x = al.tensor(np.arange(40 * columns, dtype=np.float32).reshape(40, columns))
    places = al.tensor(np.random.default_rng(0).integers(0, 80, 100))
    found = al.compile(chosen, backend="cpu")(x, places)
    assert np.array_equal(np.asarray(chosen(x, places)), np.asarray(found))


@pytest.mark.parametrize("between", ["int16", "int32", "int64"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_a_float_of_an_integer_of_a_float(kind: str, between: str) -> None:
    """Of -0.5 it is 0.0 and not -0.0, and of nan and infinity what the integer is."""
    edges = [-0.5, -0.0, 1.5, -2.5, 1e4, -1e4]
    if between != "int16":
        edges += [np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**63, -(2.0**31)]
    x = al.tensor(np.array(edges * 5)).to(getattr(al, kind))

    def through(x: al.Tensor) -> tuple[al.Tensor, ...]:
        whole = x.to(getattr(al, between))
        return tuple([1.0 / whole.to(getattr(al, each)) for each in ("float32", "float64")])

    with np.errstate(all="ignore"):
        expected = through(x)
    for e, f in zip(expected, al.compile(through, backend="cpu")(x), strict=True):
        assert np.asarray(e).tobytes() == np.asarray(f).tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 64])
def test_a_float_as_64_bits_without_a_sign(kind: str, count: int) -> None:
    """C says nothing of negative ones: with vectors of AVX-512 all were 2^64 - 1."""
    numbers = [-129.0, -1.0, -0.5, -0.0, 1.5, 2.0**40, 2.0**63, 1.5 * 2.0**63, 2.0**64, 1e30]
    numbers += [-(2.0**40), -(2.0**63), -1e30, np.inf, -np.inf, np.nan]
    x = al.tensor(numbers * count).to(getattr(al, kind))
    expected = x.to(al.uint64)
    found = al.compile(lambda x: x.to(al.uint64), backend="cpu")(x)
    assert np.array_equal(np.asarray(expected), np.asarray(found))
