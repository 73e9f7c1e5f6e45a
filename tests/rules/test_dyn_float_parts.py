"""DYN-27: a float is an input of ops that take numbers alone, and of ops of 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.ops.declare import PARTS
from aotlite.testing.laws.samples.sample import Sample
from tests.rules.test_dyn_floats import BACKENDS, EDGES, FLOATS, numbers_in
from tests.samples import samples_of

NUMBERS = (0.5, *FLOATS, *EDGES, -math.inf, 0.25)


def arguments(op: PureOp, sample: Sample, dtype: Any) -> tuple[Any, ...] | None:
    """The arguments of a sample, of this dtype; None where the op refuses them."""

    def put(value: object) -> object:
        if not isinstance(value, np.ndarray):
            return value
        made = al.tensor(value)
        return made.to(dtype) if made.is_floating_point() else made

    try:
        args = op.bind(tuple(map(put, sample.args)), {k: put(v) for k, v in sample.kwargs.items()})
        op.result(args)
    except al.AotliteError:
        return None
    kinds = {each.dtype for each in op.operands(args) if each.is_floating_point()}
    return args if kinds <= {dtype} else None


def words(function: Callable[..., Any], number: float, tensors: list[al.Tensor], run: Any) -> Any:
    """The text of a result, and of its gradients; of an error otherwise."""
    given = [each.detach().clone() for each in tensors]
    inputs = [each.requires_grad_() for each in given if run and each.is_floating_point()]
    try:
        with np.errstate(all="ignore"):
            result = function(number, *given)
            found = [str(result.meta), repr(result.tolist())]
            if inputs and result.requires_grad:
                result.float().sum().backward()
    except al.AotliteError as error:
        return type(error), str(error)
    return *found, *[repr(None if x.grad is None else x.grad.tolist()) for x in inputs]


def takes(op: Any, args: tuple[Any, ...], i: int) -> tuple[Callable[..., Any], list[al.Tensor]]:
    """The op as a function of its number i, and of its tensors; and these."""

    def function(s: float, *tensors: Any) -> Any:
        left = iter(tensors)
        put = [next(left) if isinstance(each, al.Tensor) else each for each in args]
        put[i] = s
        if op.writes:
            put[0] = put[0] * 1
        return al.empty(0)._apply(op, tuple(put))

    return function, [each for each in args if isinstance(each, al.Tensor)]


@pytest.mark.rules("DYN-27")
@pytest.mark.thinned(20)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [al.float32, al.float64], ids=str)
@pytest.mark.parametrize("name", [n for op in PARTS for n in (op.name, f"{op.name}_") if n in OPS])
def test_an_op_in_parts_has_the_same_bits(name: str, dtype: Any, backend: str) -> None:
    """As eager has on the reference backend, and a compilation for the number on others; so have
    gradients."""
    op: Any = OPS[name]
    numbers = [i for i, each in enumerate(op.schema.parameters) if "Scalar" in each.type.text]
    is_exact = backend == "reference"
    chosen = NUMBERS if is_exact else (0.3, 1 - 2**-53)  # a compilation of C for each
    seen = 0
    for sample in samples_of(name.removesuffix("_"))[: 2 if is_exact else 1]:
        args = arguments(op, sample, dtype)
        for i in numbers if args is not None else ():
            assert args is not None
            if isinstance(args[i], (al.Tensor, complex)):
                continue
            function, tensors = takes(op, args, i)
            for run in (False, True):
                compiled = al.compile(function, dynamic=True, backend=backend)
                for number in chosen if not run else chosen[::3]:
                    alone: Any = function
                    if not is_exact:
                        alone = al.compile(function, dynamic=False, backend=backend)
                    expected = words(alone, number, tensors, run)
                    assert words(compiled, number, tensors, run) == expected, (i, number)
                    seen += 1
    assert seen


@pytest.mark.rules("DYN-27")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if isinstance(op, PureOp) and numbers_in(op)]
)
def test_numbers_beside_16_bit_floats_are_rounded_as_in_eager(name: str, dtype: Any) -> None:
    op: Any = OPS[name]
    for sample in samples_of(name)[:2]:
        args = arguments(op, sample, dtype)
        for i in numbers_in(op) if args is not None else ():
            assert args is not None
            if isinstance(args[i], (al.Tensor, complex, type(None))):
                continue
            function, tensors = takes(op, args, i)
            compiled = al.compile(function, dynamic=True, backend="reference")
            for number in (*NUMBERS, 65519.9, 1 + 2**-11, 1 + 2**-11 + 2**-30, 6e-8):
                expected = words(function, number, tensors, False)
                assert words(compiled, number, tensors, False) == expected, (i, number)


def assigned(x: Any, s: float) -> Any:
    x = x * 1
    x[0] = s
    return x


USUAL: dict[str, Callable[[Any, float], Any]] = {
    "clamp": lambda x, s: x.clamp(-s, s),
    "addcmul": lambda x, s: al.addcmul(x, x, x, value=s),
    "leaky_relu": lambda x, s: al.nn.functional.leaky_relu(x, s),
    "softplus": lambda x, s: al.nn.functional.softplus(x, s),
    "lerp": lambda x, s: al.lerp(x, x * 2, s),
    "add": lambda x, s: x.add(1.0, alpha=s),
    "addmm": lambda x, s: al.addmm(x, x, x, alpha=s, beta=s),
    "pad": lambda x, s: al.nn.functional.pad(x, (1, 1), value=s),
    "full": lambda x, s: x + al.full((2,), s),
    "a tensor": lambda x, s: x * al.tensor(s),
    "fill_": lambda x, s: (x * 1).fill_(s),
    "setitem": assigned,
    "half": lambda x, s: x.half() * s + s,
    "bfloat16": lambda x, s: x.bfloat16() / s,
}


@pytest.mark.rules("DYN-27")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", USUAL)
def test_one_compilation_serves_every_number(name: str, backend: str) -> None:
    compiled = al.compile(USUAL[name], dynamic=None, backend=backend)
    for s in (0.1, 0.2, 0.3, 0.45, 0.4):
        x = al.tensor([[0.5, -1.5], [2.0, -3.0]])
        alone = al.compile(USUAL[name], dynamic=False, backend=backend)
        assert repr(compiled(x, s)) == repr(alone(x, s))
    assert len(compiled.entries) == 2
