"""What declarations say of dimensions and of linearity is so, for every op that says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.op.dims import along, elementwise, reduced_over, spelled
from aotlite.sharding.parts import Cut, cuts_of, linear_groups
from aotlite.testing.laws.ops.runs import bound
from tests.samples import samples_of

CUT = [name for name, op in OPS.items() if isinstance(op, PureOp) and op.dims is not None]
LINEAR = [name for name, op in OPS.items() if isinstance(op, PureOp) and op.linear]
SLACK = {"float16": 1e-2, "bfloat16": 1e-1, "float32": 1e-5, "complex64": 1e-5}
"""Sums of parts are rounded elsewhere than the sum of all; of float64 1e-12 is enough."""


def run(op: Any, args: tuple[Any, ...]) -> list[Tensor]:
    found = call(op.name, *op.schema.given(args)[0], **op.schema.given(args)[1])
    return list(found) if isinstance(found, tuple) else [found]


def with_operands(op: Any, args: tuple[Any, ...], operands: list[Any]) -> tuple[Any, ...]:
    """The arguments with other operands, in the order of `Op.operands`."""
    rest, found = iter(operands), list(args)
    for i in (*op.tensors, *op.mixed):
        if isinstance(args[i], Tensor):
            found[i] = next(rest)
    for i in op.lists:
        found[i] = tuple([next(rest) for _ in args[i]])
    return tuple(found)


def part(tensor: Tensor, dim: int | None, index: int, count: int) -> Tensor:
    if dim is None:
        return tensor
    size = tensor.shape[dim] // count
    return tensor.narrow(dim, index * size, size).clone()


def joined(parts: list[Tensor], dim: int | None, reduction: str | None) -> Tensor:
    if dim is not None:
        return al.cat(parts, dim)
    assert reduction is not None
    whole: Tensor = al.all_reduce(parts, reduction)[0]
    return whole


def parts_of(op: Any, args: tuple[Any, ...], cut: Cut, count: int) -> list[list[Tensor]]:
    """The results of each part."""
    found = []
    for index in range(count):
        operands = [
            al.zeros_like(operand) if cut.added[k] and index else part(operand, dim, index, count)
            for k, (operand, dim) in enumerate(zip(op.operands(args), cut.operands, strict=True))
        ]
        found.append(run(op, with_operands(op, cut.args(op, args, count), operands)))
    return found


def assert_close(expected: Tensor, found: Tensor, what: str, *, exact: bool) -> None:
    assert expected.shape == found.shape, what
    assert expected.dtype is found.dtype, what
    a, b = np.asarray(expected.numpy()), np.asarray(found.numpy())
    if a.dtype.kind == "V" or a.dtype.itemsize == 1 and a.dtype.kind not in "biu":
        a, b = a.astype(np.float32), b.astype(np.float32)
    slack = 0.0 if exact else SLACK.get(expected.dtype.name, 1e-12)
    close = np.allclose(a, b, rtol=slack, atol=slack, equal_nan=a.dtype.kind in "fc")
    assert close, f"{what}: {a} and {b}"


@pytest.mark.parametrize("name", CUT)
@pytest.mark.filterwarnings("ignore")
def test_parts_of_a_call_make_up_the_whole(name: str) -> None:
    """OPS-23. Along a dimension that results have, bit for bit but for the order of sums within."""
    op: Any = OPS[name]
    tried = 0
    for sample in samples_of(name):
        args = bound(op, sample)
        for count in (1, 2, 3):
            for cut in cuts_of(op, args, count):
                whole, parts = run(op, args), parts_of(op, args, cut, count)
                for k, expected in enumerate(whole):
                    found = joined([each[k] for each in parts], cut.results[k], cut.joins)
                    what = f"{name}{sample} in {count} along {cut.label}"
                    assert_close(expected, found, what, exact=False)
                tried += count > 1 and expected.numel() > 0
    assert tried, f"{name}: no sample can be cut"


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_op_of_a_sum_is_the_sum_of_the_results(name: str) -> None:
    """OPS-24."""
    op: Any = OPS[name]
    tried = 0
    for sample in [each for each in samples_of(name) if each.smooth]:
        args = bound(op, sample)
        for group in linear_groups(op, args):
            operands = op.operands(args)
            halves: list[list[Any]] = [[], []]
            for k, (inside, operand) in enumerate(zip(group, operands, strict=True)):
                first = (operand * (k + 2)).sin() if inside else operand
                halves[0].append(first)
                halves[1].append(operand - first if inside else operand)
            parts = [run(op, with_operands(op, args, half)) for half in halves]
            for whole, a, b in zip(run(op, args), *parts, strict=True):
                assert_close(whole, a + b, f"{name}{sample} {group}", exact=False)
            tried += 1
    assert tried, f"{name}: no sample shows it"


@pytest.mark.parametrize(
    ("name", "field", "planted"),
    [
        ("softmax", "dims", elementwise),
        ("amax", "dims", reduced_over("sum")),
        ("addmm", "dims", spelled("mk,kn->mn")),
        ("conv2d_input", "dims", spelled("noij,ocij->ncij")),
        ("gather", "dims", along()),
    ],
)
def test_a_wrong_rule_is_caught(name: str, field: str, planted: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(OPS[name], field, planted)
    with pytest.raises((AssertionError, al.AotliteError)):
        test_parts_of_a_call_make_up_the_whole(name)


@pytest.mark.parametrize("name", ["exp", "maximum", "mul", "matmul"])
def test_a_wrong_claim_of_linearity_is_caught(name: str, monkeypatch: Any) -> None:
    every = tuple([parameter.name for parameter in OPS[name].schema.parameters[:2]])
    monkeypatch.setattr(OPS[name], "linear", (every,))
    with pytest.raises(AssertionError):
        test_a_linear_op_of_a_sum_is_the_sum_of_the_results(name)
