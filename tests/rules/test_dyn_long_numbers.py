"""DYN-26: an int that is computed of sizes or counts is an int64 where an op computes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]


def assigned(x: al.Tensor, n: int) -> al.Tensor:
    x = x * 1
    x[0] = n
    return x


TAKERS: dict[str, Callable[[Any, int], Any]] = {
    "a sum": lambda i, n: i + n,
    "from the right": lambda i, n: n - i * n,
    "compared": lambda i, n: i == n,
    "chosen": lambda i, n: al.where(i > 0, i, n),
    "of int32": lambda i, n: i.to(al.int32) + n,
    "of bools": lambda i, n: (i > 0) * n,
    "of floats": lambda i, n: i.float() * n + i.double() / n,
    "as alpha": lambda i, n: i.add(i, alpha=n),
    "as value": lambda i, n: al.addcmul(i, i, i, value=n),
    "clamped": lambda i, n: i.clamp(max=n),
    "bits": lambda i, n: i & n,
    "filled": lambda i, n: (i * 1).fill_(n),
    "assigned": assigned,
    "a tensor": lambda i, n: i + al.tensor(n),
    "full": lambda i, n: al.full((2,), n),
    "a slice": lambda i, n: i[:n],
    "turned": lambda i, n: i.roll(n),
    "returned": lambda i, n: (i * 2, n),
}
NUMBERS: dict[str, tuple[Callable[[Any], int], tuple[int, ...]]] = {
    "a power of a size": (lambda i: i.shape[0] ** 31 - 1, (2, 3, 4, 5, 2)),
    "a power to a size": (lambda i: 7 ** i.shape[0], (2, 3, 22, 23, 24)),
    "a product": (lambda i: i.shape[0] * 6364136223846793005 - 2**60, (1, 2, 3, 1)),
    "a negative product": (lambda i: -i.shape[0] * 2**62, (1, 2, 3, 1)),
    "a count": (lambda i: i[0].item() * i[0].item(), (3, 3_037_000_500, 5_000_000_000, 4)),
    "a count and 1": (lambda i: i[0].item() + 1, (3, 2**63 - 1, -(2**63))),
    "a count less 1": (lambda i: i[0].item() - 1, (3, 2**63 - 1, -(2**63))),
}


def made(name: str, number: int) -> al.Tensor:
    if "count" in name:
        return al.tensor([number, 1, 0])
    return al.arange(number)


def outcome(function: Callable[..., Any], *args: Any) -> object:
    try:
        with np.errstate(all="ignore"):
            found = function(*args)
    except Exception as error:
        return type(error), str(error)
    return repr(found)


@pytest.mark.rules("DYN-26", "DYN-30")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("taker", TAKERS)
def test_ints_of_sizes_and_counts_are_eagers(taker: str, name: str, backend: str) -> None:
    """The same result, or the same error, as far as 64 bits and beyond."""
    number_of, numbers = NUMBERS[name]

    def function(i: Any) -> Any:
        return TAKERS[taker](i, number_of(i))

    compiled = al.compile(function, dynamic=True, backend=backend)
    for number in numbers:
        x = made(name, number)
        assert outcome(compiled, x) == outcome(function, x), number


@pytest.mark.rules("DYN-26", "DYN-30")
@pytest.mark.parametrize(
    ("number_of", "expected"),
    [
        (lambda i: i.shape[0], []),
        (lambda i: i.numel() * 100 - 7, []),
        (lambda i: i.shape[0] * i.shape[1] + i.shape[0] // 2 * 8, []),
        (lambda i: i[0, 0].item(), []),
        (lambda i: i[i > 1].shape[0] + 1, []),
        (lambda i: i.shape[0] ** 2, ["s0*s0 < 2**63"]),
        (lambda i: i.shape[0] * (i.shape[0] // 2), ["s0*(s0//2) < 2**63"]),
        (lambda i: i[0, 0].item() * 2, ["2*u0 < 2**63", "2*u0 >= -2**63"]),
    ],
)
def test_only_what_may_be_too_long_is_a_condition(number_of: Any, expected: list[str]) -> None:
    """Sizes are those of tensors in memory."""
    compiled = al.compile(lambda i: i + number_of(i), dynamic=True, backend="reference")
    for rows in (3, 5, 4):
        compiled(al.arange(rows * 4).reshape(rows, 4))
    (region,) = compiled.regions()
    texts = [guard.text.replace(str(2**63), "2**63") for guard in region.guards]
    assert [text for text in texts if "2**63" in text] == expected
