"""Python ints beyond a tensor's dtype: compiled functions do with them what eager does.

Every op of the table that takes a number where elements are computed, on tensors of every dtype,
with numbers around the ends of all dtypes. Numbers of 64 bits wrap in a narrower dtype, as in
PyTorch; others are refused, whatever the tensor is.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.op import OPS, PureOp

HELD = tuple(
    (1 << end) * sign + step for end in (7, 8, 15, 16, 31, 32, 63) for sign in (1, -1)
    for step in (-1, 0, 1) if (end, sign, step) != (63, -1, -1)
) + ((1 << 64) - 2, (1 << 64) - 1)  # fmt: skip
"""Numbers of 64 bits, at the ends of what dtypes hold."""
SOME = (128, -129, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
BEYOND = (1 << 64, (1 << 64) + 1, -(1 << 63) - 1, -(1 << 64), 10**400)
FRACTIONS = (2.5, -0.75, 1000.5, 1e300)
NO_NUMBERS = (math.nan, math.inf)
STORED = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
DTYPES = tuple(each for each in dtypes.DTYPES if each not in STORED)
FEW = tuple(map(dtypes.by_name, ("int8", "uint64", "bfloat16")))
BACKENDS = ("reference", "loops", "cpu")
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "fill": lambda x, n: x.fill(n),
    "full": lambda x, n: al.full((3,), n, dtype=x.dtype),
    "full_like": lambda x, n: al.full_like(x, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "masked_fill": lambda x, n: x.masked_fill(x == x, n),
    "where": lambda x, n: al.where(x == x, x, n),
    "index_fill": lambda x, n: x.index_fill(0, al.tensor([1]), n),
    "scatter": lambda x, n: x.scatter(0, al.tensor([1]), n),
    "index_put": lambda x, n: _with_item(x, n),
    "constant_pad_nd": lambda x, n: call("constant_pad_nd", x, (1, 1), n),
    "index_add": lambda x, n: x.index_add(0, al.tensor([1]), x[:1], alpha=n),
    "==": operator.eq,
    "!=": operator.ne,
    "<, reflected": lambda x, n: n < x,
    "-, reflected": lambda x, n: n - x,
    "**, reflected": lambda x, n: n**x,
    "add_": lambda x, n: x.clone().add_(n),
    "mul_": lambda x, n: x.clone().mul_(n),
}
"""Forms in which a number is no operand of a pointwise op."""


def _with_item(x: Any, number: float) -> Any:
    copy = x.clone()
    copy[1] = number
    return copy


def forms() -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    """Each place of a pointwise op that takes a number, as a function of a tensor and a number."""
    for op in OPS.values():
        if not isinstance(op, PureOp) or op.scalar is None:
            continue
        kinds = [parameter.type.text for parameter in op.schema.parameters]
        if not all(kind.startswith(("Tensor", "Scalar")) for kind in kinds):
            continue
        for place, kind in enumerate(kinds):
            if "Scalar" in kind:
                yield f"{op.name}[{place}]", partial(_called, op, place)
    yield from OTHERS.items()


def _called(op: PureOp, place: int, x: Any, number: float) -> Any:
    args = [x if p.type.text.startswith("Tensor") else 2 for p in op.schema.parameters]
    args[place] = number
    return call(op.name, *args)


def tensor_of(dtype: DType) -> Any:
    return al.tensor([0, 1, 3, 100]).to(dtype)


def sorted_out(dtype: DType, numbers: Sequence[float]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Eager's results and errors: (form, number) -> which."""
    results, refused = {}, {}
    for name, form in dict(forms()).items():
        for number in numbers:
            try:
                results[name, number] = form(tensor_of(dtype), number)
            except al.AotliteError as error:
                refused[name, number] = error
    return results, refused


def differing(dtype: DType, numbers: Sequence[float], backend: str) -> list[Any]:
    """Cases of which the compiled function gives another result than eager."""
    results, _ = sorted_out(dtype, numbers)
    known = dict(forms())

    def all_of_them(x: Any) -> list[Any]:
        return [known[name](x, number) for name, number in results]

    found = al.compile(all_of_them, backend=backend)(tensor_of(dtype))
    assert len(results) > 20 * len(numbers)
    pairs = zip(results.items(), found, strict=True)
    return [(case, expected, got) for (case, expected), got in pairs if not is_same(expected, got)]


def is_same(expected: Any, got: Any) -> bool:
    """Exact, but for what libraries' functions of floats differ in: some last digits."""
    if expected.dtype is not got.dtype:
        return False
    if expected.dtype.kind <= dtypes.INTEGER:
        return bool(expected.tolist() == got.tolist())
    values = np.array(expected.tolist()), np.array(got.tolist())
    return np.allclose(*values, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_numbers_mean_compiled_what_they_mean_in_eager(dtype: DType, backend: str) -> None:
    assert [] == differing(dtype, SOME, backend)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_numbers_mean_compiled_what_they_mean_in_eager(dtype: DType, backend: str) -> None:
    assert [] == differing(dtype, HELD, backend)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_floats_mean_compiled_what_they_mean_in_eager(dtype: DType, backend: str) -> None:
    """In a tensor of integers some ops cut a fraction off, and others compute with it."""
    assert [] == differing(dtype, FRACTIONS, backend)


@pytest.mark.rules("GEN-2")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_what_eager_refuses_is_refused_compiled(dtype: DType, backend: str) -> None:
    """With the same class and text, by every form and backend."""
    _, refused = sorted_out(dtype, (128, 1 << 63, *FRACTIONS, *NO_NUMBERS))
    assert refused
    known = dict(forms())
    for (name, number), error in refused.items():
        form = known[name]
        compiled = al.compile(form, dynamic=False, backend=backend)
        with pytest.raises(al.AotliteError) as caught:
            compiled(tensor_of(dtype), number)
        assert (type(error), str(error)) == (type(caught.value), str(caught.value)), (name, number)


@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_numbers_beyond_64_bits_are_refused_by_every_op(dtype: DType) -> None:
    results, _ = sorted_out(dtype, BEYOND)
    assert {} == results


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_comparison_with_a_number_beyond_64_bits_is_refused(backend: str) -> None:
    x = al.tensor([0, 2**63 - 1])
    compiled = al.compile(lambda x: x < 2**64, backend=backend)
    for function in (lambda x: x < 2**64, compiled):
        with pytest.raises(al.ArgumentError) as caught:
            function(x)
        expected = "lt: a number is an int of 65 bits, expected one of 64 bits"
        assert expected == str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_of_64_bits_wraps_in_a_comparison(backend: str) -> None:
    x = al.tensor([0, 2**63 - 1])
    compiled = al.compile(lambda x: (x < 2**63, x == 2**64 - 1, x + 2**63), backend=backend)
    for function in (lambda x: (x < 2**63, x == 2**64 - 1, x + 2**63), compiled):
        less, equal, total = function(x)
        assert [False, False] == less.tolist()
        assert [False, False] == equal.tolist()
        assert [-(2**63), -1] == total.tolist()


OPERATORS = (
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, operator.add,
    operator.sub, operator.mul, operator.and_, operator.or_, operator.xor,
)  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_numbers_of_64_bits_mean_what_they_mean_in_pytorch(name: str) -> None:
    import torch

    mine, its = tensor_of(dtypes.by_name(name)), torch.tensor([0, 1, 3, 100])
    its = its.to(getattr(torch, name))
    for function in OPERATORS:
        for number in HELD:
            expected = function(its, number)
            assert expected.tolist() == function(mine, number).tolist(), (function, number)
