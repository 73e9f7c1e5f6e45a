"""DYN-27: a float among the arguments is an input of the graph, where it changes or is named."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.ops.precision import COMPUTED_NUMBERS
from aotlite.testing.laws.samples.sample import Sample
from tests.samples import samples_of

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", pytest.param("cpu", marks=needs_compiler)]
FLOATS = (0.1, 0.2, -0.3, 0.0, -0.0, 2.0, 1e300, math.inf, math.nan)
EDGES = (0.9, 0.9999999, 1 - 2**-53, 1 + 1e-9, 0.49999999999, -0.9999999, 1e-45, 2.5e-310, 3.5e38)
"""Doubles that are other numbers as float32, on the other side of 1 or 0.5, or at an end."""


def words(result: Any) -> object:
    return str(result.meta), repr(result.tolist())


def step(p: al.Tensor, g: al.Tensor, lr: float) -> al.Tensor:
    p.mul_(1 - lr * 0.01)
    p.add_(g, alpha=-lr)
    return p * 2


@pytest.mark.rules("DYN-3", "DYN-27")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_compilation_serves_every_learning_rate(backend: str, dtype: str) -> None:
    compiled = al.compile(step, dynamic=None, backend=backend)
    numbers = np.arange(6).astype(dtype) / 3
    for lr in FLOATS:
        expected = step(al.tensor(numbers), al.tensor(numbers + 1), lr)
        found = compiled(al.tensor(numbers), al.tensor(numbers + 1), lr)
        assert words(found) == words(expected)
    assert len(compiled.entries) == 2
    inputs = [str(each.meta) for each in compiled.entries[1].meta.inputs]
    short = "f32" if dtype == "float32" else "f64"
    assert inputs[2:] == [f"{short}[]", f"{short}[]"]
    assert [each.place for each in compiled.entries[1].meta.inputs[2:]] == [
        "1 - (argument 2 * 0.01)",
        "-argument 2",
    ]


@pytest.mark.rules("DYN-27")
def test_a_named_float_is_an_input_from_the_first_call_on() -> None:
    compiled = al.compile(lambda x, s: x * s, dynamic_shapes={"s": True}, backend="reference")
    for s in FLOATS:
        assert words(compiled(al.ones(2), s)) == words(al.ones(2) * s)
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize("x", [al.ones(2), al.ones(2, dtype=al.int64), al.ones(())])
def test_a_number_has_the_dtype_that_eager_gives_it(x: al.Tensor) -> None:
    def promoted(x: al.Tensor, s: float) -> tuple[al.Tensor, ...]:
        return x * s, x + s, s - x, x / s, x > s, al.where(x > 0, x, s), al.maximum(x * s, x * 0.1)

    compiled = al.compile(promoted, dynamic=True, backend="reference")
    for s in FLOATS:
        assert list(map(words, compiled(x, s))) == list(map(words, promoted(x, s)))
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
def test_a_comparison_is_a_guard() -> None:
    def branches(x: al.Tensor, s: float) -> al.Tensor:
        return x * s if s > 0.5 else x / (s + 1)

    compiled = al.compile(branches, dynamic=True, backend="reference")
    for s in (0.7, 0.8, 0.1, 0.2, 0.9, -3.0):
        assert words(compiled(al.ones(2), s)) == words(branches(al.ones(2), s))
    assert len(compiled.entries) == 2
    (why,) = list(compiled.explain_recompiles())[1].reasons
    assert "argument 1 > 0.5 is True" in str(why)


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: x * math.sqrt(s),
        lambda x, s: (x * s, f"{s:.1f}"),
        lambda x, s: (x, s * 2),
        lambda x, s: x * int(s),
        lambda x, s: x * {0.5: 2, 1.5: 3}.get(s, 1),
        lambda x, s: x * al.tensor([s, 1.0]),
        lambda x, s: x.long().clamp(max=s),
        lambda x, s: al.nn.functional.layer_norm(x, (2,), eps=s),
        lambda x, s: x**s,
    ],
)
def test_what_needs_the_value_is_compiled_for_it(function: Callable[..., Any]) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    for s in (0.5, 1.5, 0.5, 2.5):
        found, expected = compiled(al.ones(2), s), function(al.ones(2), s)
        if isinstance(expected, tuple):
            assert found[1:] == expected[1:]
            found, expected = found[0], expected[0]
        assert words(found) == words(expected)
    assert len(compiled.entries) == 3


@pytest.mark.rules("DYN-27")
def test_an_error_of_arithmetic_is_eagers() -> None:
    def divided(x: al.Tensor, s: float, t: float) -> al.Tensor:
        return x * (s / t) + 10.0**s

    compiled = al.compile(divided, dynamic=True, backend="reference")
    assert words(compiled(al.ones(2), 1.0, 2.0)) == words(divided(al.ones(2), 1.0, 2.0))
    with pytest.raises(ZeroDivisionError):
        compiled(al.ones(2), 1.0, 0.0)
    with pytest.raises(OverflowError):
        compiled(al.ones(2), 400.0, 2.0)
    assert words(compiled(al.ones(2), 3.0, 4.0)) == words(divided(al.ones(2), 3.0, 4.0))
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
def test_a_number_that_is_0_in_the_dtype_is_compiled_by_itself() -> None:
    def both(x: al.Tensor, s: float) -> al.Tensor:
        return al.logical_and(x, s)

    compiled = al.compile(both, dynamic=True, backend="reference")
    for s in (1.0, 1e-300, 0.0, 2.0):
        assert words(compiled(al.ones(2), s)) == words(both(al.ones(2), s))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-27")
def test_gradients_inside_of_the_function() -> None:
    def descended(w: al.Tensor, lr: float) -> al.Tensor:
        leaf = w.detach().requires_grad_()
        (grad,) = al.autograd.grad((leaf * lr).exp().sum(), [leaf])
        assert grad is not None
        return w - lr * grad

    compiled = al.compile(descended, dynamic=True, backend="reference")
    for lr in (0.1, 0.25, -2.0):
        assert words(compiled(al.ones(3), lr)) == words(descended(al.ones(3), lr))
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27")
def test_a_named_float_that_the_function_fixes_is_an_error() -> None:
    def rooted(x: al.Tensor, s: float) -> al.Tensor:
        return x * math.sqrt(s)

    compiled = al.compile(rooted, dynamic_shapes={"s": True}, backend="reference")
    with pytest.raises(al.GuardError, match=r"argument 1 is True in dynamic_shapes.*math\.sqrt"):
        compiled(al.ones(2), 0.5)
    with pytest.raises(al.ArgumentError, match="a Dim for the float"):
        al.compile(rooted, dynamic_shapes={"s": al.Dim("s")})(al.ones(2), 0.5)


@pytest.mark.rules("DYN-27")
def test_a_float_that_the_function_stores_is_compiled_by_itself() -> None:
    kept = {"last": 0.0}

    def stores(x: al.Tensor, s: float) -> al.Tensor:
        kept["last"] = s
        return x * s

    compiled = al.compile(stores, dynamic=True, backend="reference")
    for s in (0.5, 0.25):
        compiled(al.ones(2), s)
        assert kept["last"] == s and type(kept["last"]) is float


@pytest.mark.rules("DYN-27")
def test_floats_and_sizes_change_together() -> None:
    def scaled(x: al.Tensor, s: float, n: int) -> al.Tensor:
        return x[:n] * s + x.shape[0]

    compiled = al.compile(scaled, dynamic=True, backend="reference")
    for (rows, n), s in itertools.product([(4, 2), (5, 3)], FLOATS):
        assert words(compiled(al.ones(rows), s, n)) == words(scaled(al.ones(rows), s, n))
    assert len(compiled.entries) == 1 and len(next(iter(compiled.regions())).sizes) == 2


# ------------------------------------------------------------------------- the law beneath it
def numbers_in(op: PureOp) -> list[int]:
    names = [each.name for each in op.schema.parameters]
    if op.numbers == "unwrapped" or op.numbers in COMPUTED_NUMBERS or "seed" in names:
        return []
    return [i for i, each in enumerate(op.schema.parameters) if each.type.holds_number]


def arguments(op: PureOp, sample: Sample) -> tuple[Any, ...] | None:
    """The arguments of a sample of one floating-point dtype; None for another one."""

    def put(value: object) -> object:
        return al.tensor(value) if isinstance(value, np.ndarray) else value

    try:
        args = op.bind(tuple(map(put, sample.args)), {k: put(v) for k, v in sample.kwargs.items()})
    except al.AotliteError:
        return None
    kinds = {each.dtype for each in op.operands(args) if each.is_floating_point()}
    return args if kinds in ({al.float32}, {al.float64}) else None


@pytest.mark.rules("DYN-27")
@pytest.mark.parametrize(
    "name", [n for n, op in OPS.items() if isinstance(op, PureOp) and numbers_in(op)]
)
def test_a_tensor_of_no_dimensions_is_a_number(name: str) -> None:
    """Bit for bit, where the op takes such a tensor and gives the same meta."""
    op = OPS[name]
    assert isinstance(op, PureOp)
    for sample, i in itertools.product(samples_of(name)[:40], numbers_in(op)):
        args = arguments(op, sample)
        if args is None:
            continue
        for number in (*FLOATS, *EDGES, 0.5, 1 / 3):
            first = (*args[:i], number, *args[i + 1 :])
            tensors = op.operands(first)
            kinds = {each.dtype for each in tensors if each.is_floating_point()}
            if len(kinds) != 1:
                continue
            with np.errstate(all="ignore"):
                held = al.tensor(np.array(number).astype(kinds.pop().numpy))
            if held == 0 != number:
                continue  # the op takes the number
            second = (*args[:i], held, *args[i + 1 :])
            try:
                if op.result(first) != op.result(second):
                    continue
            except al.AotliteError:
                continue
            with np.errstate(all="ignore"):
                one, other = (tensors[0]._apply(op, each) for each in (first, second))
            np.testing.assert_array_equal(one.numpy(), other.numpy())
            assert np.signbit(one.numpy()).tolist() == np.signbit(other.numpy()).tolist() or (
                not one.is_floating_point() or np.isnan(one.numpy()).any()
            )


COMPUTED: dict[str, Callable[[Any, Any, float], Any]] = {
    "a weight": lambda x, y, s: al.lerp(x, y, s),
    "a weight, in place": lambda x, y, s: (x * 1).lerp_(y, s),
    "a sum": lambda x, y, s: x.add(s, alpha=0.3) - y,
    "a difference, in place": lambda x, y, s: (x * 1).sub_(s, alpha=0.3) - y,
}


@pytest.mark.rules("DYN-27")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", COMPUTED)
def test_an_op_that_computes_with_the_double_has_its_bits(
    name: str, backend: str, requires_grad: bool
) -> None:
    """`lerp` computes 1 - weight, which is another number of a weight that is rounded."""
    compiled = al.compile(COMPUTED[name], dynamic=None, backend=backend)
    for number in (*EDGES, *FLOATS)[:: 1 if backend == "reference" else 4]:
        found = []
        for each in (COMPUTED[name], compiled):
            x, y = al.ones(1, requires_grad=requires_grad), al.zeros(1)
            with np.errstate(all="ignore"):
                result = each(x, y, number)
                if requires_grad:
                    result.sum().backward()
            found.append((words(result), repr(x.grad)))
        assert found[0] == found[1]


@pytest.mark.rules("DYN-27")
def test_a_named_float_may_be_too_small_for_a_tensor() -> None:
    def scaled(x: Any, rate: float) -> Any:
        return x * rate + 1

    compiled = al.compile(scaled, dynamic_shapes={"rate": True}, backend="reference")
    for rate in (0.5, 1e-310, 0.25, -1e-46, 0.0, 1e-310, 3.0):
        assert compiled(al.ones(2), rate).tolist() == scaled(al.ones(2), rate).tolist()
    assert 3 == len(compiled.entries)  # two for the small ones


@pytest.mark.rules("DYN-27", "DYN-8")
def test_conditions_on_floats_are_shown_where_no_size_is_a_symbol() -> None:
    def stepped(x: Any, rate: float) -> Any:
        return x * rate if rate > 0.5 else x - rate

    compiled = al.compile(stepped, dynamic_shapes={"rate": True}, backend="reference")
    for rate in (0.6, 0.7, 0.1):
        compiled(al.ones(3), rate)
    assert [[fact.text for fact in region.floats] for region in compiled.regions()] == [
        ["argument 1 > 0.5 is True"],
        ["argument 1 > 0.5 is False"],
    ]
    assert repr(compiled.regions()).count("in stepped: ") == 2


MIXED: dict[str, Callable[[Any, float], Any]] = {
    "a mean": lambda x, lr: x * (lr / x.shape[0]),
    "from the right": lambda x, lr: x * (x.shape[0] * lr) - (x.shape[0] - lr),
    "with a float of sizes": lambda x, lr: x + (x.shape[0] / 3) * lr - lr * x.shape[0] ** 0.5,
    "compared": lambda x, lr: x * lr if x.shape[0] / 4 > lr else x,
    "compared with a size": lambda x, lr: x * 2 if lr < x.shape[0] else x,
}


@pytest.mark.rules("DYN-27", "DYN-37")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MIXED)
def test_a_float_argument_computes_with_sizes(name: str, backend: str) -> None:
    function = MIXED[name]
    compiled = al.compile(function, dynamic=True, backend=backend)
    for rows, lr in ((6, 0.5), (7, 0.5), (7, 0.25), (9, 0.1), (6, 1.9), (12, 2.75)):
        x = np.arange(rows, dtype=np.float32)
        assert words(compiled(al.tensor(x), lr)) == words(function(al.tensor(x), lr))
    assert len(compiled.entries) == 1 + (name == "compared")


@pytest.mark.rules("DYN-27", "DYN-37")
def test_a_float_argument_over_a_size_that_may_be_0() -> None:
    def function(x: al.Tensor, n: int, lr: float) -> al.Tensor:
        return x * (lr / n)

    compiled = al.compile(function, dynamic=True, backend="reference")
    for n, lr in ((3, 0.5), (5, 0.25), (0, 0.5), (4, 0.1)):
        for each in (function, compiled):
            if n:
                assert words(each(al.ones(2), n, lr)) == words(al.ones(2) * (lr / n))
            else:
                with pytest.raises(ZeroDivisionError):
                    each(al.ones(2), n, lr)
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-27", "DYN-37")
def test_gradients_with_a_float_argument_over_a_size() -> None:
    def function(x: al.Tensor, lr: float) -> al.Tensor:
        return (x * x * (lr / x.shape[0])).sum()

    compiled = al.compile(function, dynamic=True, backend="reference")
    for rows, lr in ((6, 0.5), (7, 0.5), (7, 0.25)):
        found = []
        for each in (function, compiled):
            x = al.ones(rows).requires_grad_()
            each(x, lr).backward()
            assert x.grad is not None
            found.append(x.grad.tolist())
        assert found[0] == found[1]


@pytest.mark.rules("DYN-27")
def test_a_float_that_is_used_twice_in_each_step_is_taken() -> None:
    """Written out, 60 doublings would be 2**60 sums."""

    def function(x: al.Tensor, lr: float) -> al.Tensor:
        for _ in range(60):
            lr = lr * 0.5 + lr * 0.5
        return x * lr

    compiled = al.compile(function, dynamic=True, backend="reference")
    for lr in (0.5, 0.25, 3.0):
        assert words(compiled(al.ones(2), lr)) == words(al.ones(2) * lr)
    assert len(compiled.entries) == 3


@pytest.mark.rules("DYN-3", "DYN-27")
def test_a_mark_on_a_size_that_a_taken_float_reads_is_an_error() -> None:
    x = al.ones(6)
    al.mark_dynamic(x, 0)
    compiled = al.compile(lambda x, lr: (f"{lr / x.shape[0]}", x * 1), dynamic_shapes={"lr": True})
    with pytest.raises(al.GuardError, match="argument 1 is True in dynamic_shapes"):
        compiled(x, 0.5)
