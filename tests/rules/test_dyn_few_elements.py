"""DYN-3, DYN-4, DYN-25: sizes of 0 and 1 need no entries of their own where their strides can be
written as expressions, and a mark does not refuse them where they do."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.geometry.single_element import is_one, is_several, without_few
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable
from aotlite.nn import functional as F

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
Function = Callable[[Any], Any]
WEIGHT = al.ones(3, 2)
HEADS = al.nn.MultiheadAttention(4, 2)


def leaf(*shape: int) -> al.Tensor:
    numbers = np.arange(np.prod(shape, dtype=int)) * 7 % 11 - 5
    return al.tensor((numbers / 4).reshape(shape).astype(np.float32)).requires_grad_()


def rest_doubled(x: Any) -> Any:
    y = x * 1
    y[1:] *= 2
    return y


def outcome(function: Function, x: al.Tensor) -> list[Any]:
    """The result and the gradient, with their strides."""
    result = function(x)
    (result * 1.5).sum().backward()
    assert x.grad is not None
    return [(each.shape, each.stride(), each.tolist()) for each in (result, x.grad)]


# ------------------------------------------------------------------------------------ how many
ENTRIES: dict[str, tuple[int, Function, tuple[int, ...]]] = {
    "sum": (1, lambda x: x.sum(), (3,)),
    "sum of rows": (1, lambda x: x.sum(0), (3,)),
    "sum of columns": (1, lambda x: x.sum(1), (3,)),
    "sum, kept": (1, lambda x: x.sum(0, True), (3,)),
    "mean": (1, lambda x: x.mean(), (3,)),
    "mean of rows": (1, lambda x: x.mean(0), (3,)),
    "mean of columns": (1, lambda x: x.mean(1), (3,)),
    "a loss": (1, lambda x: ((x @ WEIGHT).relu() ** 2).mean(), (3,)),
    "cross_entropy": (1, lambda x: F.cross_entropy(x, x.new_zeros(x.shape[0]).long()), (3,)),
    "softmax": (1, lambda x: (x.softmax(-1) * x).sum(), (3,)),
    "log_softmax": (1, lambda x: x.log_softmax(0).mean(), (3,)),
    "logsumexp": (1, lambda x: x.logsumexp(1).sum(), (3,)),
    "amax": (1, lambda x: x.amax(1).sum(), (3,)),
    "flip": (1, lambda x: x.flip(0).sum(), (3,)),
    "sort": (1, lambda x: x.sort(0)[0].sum(), (3,)),
    "cumsum": (1, lambda x: x.cumsum(0).mean(), (3,)),
    "conv2d": (1, lambda x: F.conv2d(x, al.ones(2, 3, 3, 3)).relu().mean(), (3, 5, 5)),
    "max_pool2d": (1, lambda x: F.max_pool2d(x, 2), (3, 4, 4)),
    "max_pool2d of a sum": (1, lambda x: F.max_pool2d(x, 2).sum(), (3, 4, 4)),
    "clone of an expanded": (1, lambda x: x.expand(2, *x.shape).clone(), (3,)),
    "an expanded factor": (1, lambda x: x * al.ones(3).expand(x.shape[0], 3), (3,)),
    # The gradient of the second product is transposed: its rows are copied at all sizes.
    "scores": (1, lambda x: ((x @ WEIGHT) @ (x @ WEIGHT).mT).softmax(-1) @ x, (4, 3)),
    "scores of one row": (1, lambda x: (x.mT @ WEIGHT) @ (x.mT @ WEIGHT).mT, (3, 1)),
    "rows of a mask": (1, lambda x: x.masked_select(x > 0).sum(), (3,)),
    "repeat_interleave": (1, lambda x: x.repeat_interleave(x.new_ones(x.shape[0]).long(), 0), (3,)),
    "random factor": (1, lambda x: x * al.ones_like(x).bernoulli(1.0), (3,)),
    "pad": (2, lambda x: F.pad(x, (1, 1)).exp().sum(), (3,)),
    # Strides at few sizes are in the expressions of all: Note [strides of few elements].
    "differences": (1, lambda x: x[:, None] - x[None, :], (3,)),
    "rows of numbers": (1, lambda x: (x * 2).sum(1, True) - x, (1,)),
    "a shift of a column": (2, lambda x: x.T - x.T.mean(1, True), (3,)),
    "var": (1, lambda x: x.var(0), (3,)),
    "std of rows": (1, lambda x: x.std(1, correction=0), (3,)),
    "layer_norm": (1, lambda x: F.layer_norm(x, (3,)), (3,)),
    "group_norm": (1, lambda x: F.group_norm(x, 2), (4, 3)),
    "attention of heads": (1, lambda x: HEADS(x, x, x)[0], (3, 4)),
    "a write of chosen ones": (1, lambda x: (x * 1).masked_fill_(x > 0, 2), (1,)),
    "a write of the rest": (1, rest_doubled, (3,)),
    # A row or column is contiguous, and is no copy.
    "contiguous": (3, lambda x: x.T.contiguous().view(-1).sum(), (3,)),
    # Nothing is dropped from nothing: the result is the argument.
    "dropout": (2, lambda x: F.dropout(x, 0.5).sum() * 0, (3,)),
}
"""The number of entries at the sizes 5, 2, 1 and 0. It may only fall."""


@pytest.mark.rules("DYN-4", "DYN-25")
@pytest.mark.parametrize("name", ENTRIES)
def test_few_elements_make_few_entries(name: str) -> None:
    most, function, rest = ENTRIES[name]
    compiled = al.compile(function, backend="reference")
    for n in (5, 2, 1, 0):
        al.manual_seed(0)
        wanted = outcome(function, leaf(n, *rest))
        al.manual_seed(0)
        batch = leaf(n, *rest)
        al.mark_dynamic(batch, 0)
        found = outcome(compiled, batch)
        np.testing.assert_equal(found, wanted)
    assert len(compiled.entries) == most


@pytest.mark.rules("DYN-4", "DYN-25")
@pytest.mark.parametrize("backend", ["reference", pytest.param("cpu", marks=needs_compiler)])
def test_one_training_step_serves_each_batch(backend: str) -> None:
    weight = al.ones(3, 2).requires_grad_()
    batch = al.Dim("batch", min=0, max=512)
    step = al.compile(
        lambda x: (x @ weight).sin().mean(), dynamic_shapes={"x": {0: batch}}, backend=backend
    )
    for n in (32, 1, 0, 2, 512):
        step(al.ones(n, 3)).backward()
    assert len(step.entries) == 1
    (region,) = step.regions()
    assert not region.guards


EINSUMS = {
    # The result's strides tell a batch of one, and a sum of one product the sign of a zero.
    "bij,bjk->bik": (9, ((3, 2, 3), (3, 3, 2))),
    "ij,jk->ik": (4, ((3, 2), (2, 3))),
    "ij,kj->ik": (8, ((3, 2), (4, 2))),
    "i,j->ij": (2, ((3,), (4,))),
}
"""The number of entries at all sizes from 0 to 2 in the place of each. It may only fall."""


@pytest.mark.rules("DYN-4", "DYN-25")
@pytest.mark.parametrize(
    "equation", [pytest.param(name, marks=[pytest.mark.long] * ("b" in name)) for name in EINSUMS]
)
def test_a_sum_over_names_has_entries_for_what_its_strides_tell(equation: str) -> None:
    most, shapes = EINSUMS[equation]
    inputs = equation.split("->")[0].split(",")
    names = sorted({*"".join(inputs)})
    compiled = al.compile(lambda x, y: al.einsum(equation, x, y), dynamic=True, backend="reference")
    compiled(*[leaf(*shape) for shape in shapes])
    for numbers in itertools.product(range(3), repeat=len(names)):
        size = dict(zip(names, numbers, strict=True))
        given = [[leaf(*[size[name] for name in each]) for each in inputs] for _ in range(2)]
        found, wanted = compiled(*given[0]), al.einsum(equation, *given[1])
        assert (found.shape, found.stride()) == (wanted.shape, wanted.stride())
        found.sum().backward()
        wanted.sum().backward()
        for a, b in ((found, wanted), *[(x.grad, y.grad) for x, y in zip(*given, strict=True)]):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
    assert len(compiled.entries) <= most


# --------------------------------------------------------------------------------------- marks
def with_one_apart(x: Any) -> Any:
    return x.exp().sum() if x.shape[0] != 1 else x.exp().sum() * 2


def counted(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = x + 1
    return x


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("order", [(4, 1, 0, 7), (1, 4, 0, 7), (0, 1, 7, 4)])
@pytest.mark.parametrize("how", ["mark", "bounds", "name"])
def test_a_mark_lets_0_and_1_have_entries_of_their_own(order: tuple[int, ...], how: str) -> None:
    shapes = {"x": {0: al.Dim("n", min=0)}} if how == "name" else None
    compiled = al.compile(with_one_apart, dynamic_shapes=shapes, backend="reference")
    for n in order:
        x = leaf(n, 3)
        if how != "name":
            al.mark_dynamic(x, 0, min=0 if how == "bounds" else None)
        np.testing.assert_equal(outcome(compiled, x), outcome(with_one_apart, leaf(n, 3)))
    assert len(compiled.entries) == 2


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("least", [None, 0, 1, 2])
def test_a_function_that_fixes_a_marked_size_is_refused_from_2_on(least: int | None) -> None:
    compiled = al.compile(counted, backend="reference")
    for n in range(least or 0, 2):
        x = al.ones(n, 3)
        al.mark_dynamic(x, 0, min=least)
        assert compiled(x).tolist() == counted(al.ones(n, 3)).tolist()
    for n in (2, 3):
        x = al.ones(n, 3)
        al.mark_dynamic(x, 0, min=least)
        with pytest.raises(al.GuardError, match=f"fixes it: s0 == {n} .*for _ in range"):
            compiled(x)


def number_of_rest(x: Any) -> Any:
    return x * int(max(x.shape[0] - 1, 0))


def half_of_rest(x: Any) -> Any:
    rest = x[1:]
    return x.sum() * int(rest.shape[0])


@pytest.mark.rules("DYN-3")
@pytest.mark.parametrize("function", [number_of_rest, half_of_rest])
@pytest.mark.parametrize("least", [None, 0, 2])
def test_a_size_is_fixed_by_what_is_computed_of_it(function: Function, least: int | None) -> None:
    x = al.ones(32, 3)
    al.mark_dynamic(x, 0, min=least)
    with pytest.raises(al.GuardError, match=r"fixes it: (s0 == 32|s0 - min\(1, s0\) == 31) "):
        al.compile(function, backend="reference")(x)


# ------------------------------------------------------------------------------------- strides
SIZES = (0, 1, 2, 3)


def expanded(meta: TensorMeta, size: tuple[int, ...]) -> TensorMeta:
    seen: Any = OPS["expand"].result_for((meta, size))
    return seen[0]


@pytest.mark.rules("DYN-4", "TEN-1")
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_an_expanded_tensor_and_its_copy_have_eagers_strides(extra: int) -> None:
    table = SymbolTable()
    names = [f"s{k}" for k in range(extra + 2)]
    sizes = tuple([table.size(3, name, lower=0) for name in names])
    seen = expanded(tensor_meta((1, 4)), (*sizes[: extra + 1], 4))
    copied: Any = OPS["clone"].result_for((seen,))
    assert not table.log
    for numbers in itertools.product(SIZES, repeat=extra + 2):
        values = dict(zip(names, numbers, strict=True))
        plain = expanded(tensor_meta((1, 4)), (*numbers[: extra + 1], 4))
        assert concrete(seen, values) is plain
        assert concrete(copied, values) is OPS["clone"].result_for((plain,))


def permuted(shape: tuple[int, ...], order: tuple[int, ...]) -> TensorMeta:
    """A tensor that lies in memory in this order of its dimensions."""
    lies = tensor_meta([shape[dim] for dim in order]).stride
    return tensor_meta(shape).with_stride([lies[order.index(dim)] for dim in range(len(shape))])


OPERANDS: dict[str, Callable[[Any, Any], list[TensorMeta]]] = {
    "a number": lambda n, m: [tensor_meta((n, m)), tensor_meta(())],
    "a row": lambda n, m: [tensor_meta((n, m)), tensor_meta((m,))],
    "a column": lambda n, m: [tensor_meta((n, m)), tensor_meta((n, 1))],
    "a column and a row": lambda n, m: [tensor_meta((n, 1)), tensor_meta((1, m))],
    "a transposed one": lambda n, m: [permuted((n, m), (1, 0)), tensor_meta((n, m))],
    "transposed, and a row": lambda n, m: [permuted((n, m), (1, 0)), tensor_meta((m,))],
    "rows of three": lambda n, m: [tensor_meta((n, m, 3)), tensor_meta((n, m, 1))],
    "heads": lambda n, m: [permuted((n, 2, m, 3), (0, 2, 1, 3)), tensor_meta((m, 1))],
    "two columns": lambda n, m: [permuted((n, m, 1), (1, 0, 2)), tensor_meta((1, m, 4))],
}


@pytest.mark.rules("DYN-4", "DYN-25")
@pytest.mark.parametrize("name", OPERANDS)
def test_a_pointwise_result_has_eagers_strides_for_all_sizes(name: str) -> None:
    """A size of 0 is in the strides; sizes of 1, and two special ones together, are left out."""
    table = SymbolTable()
    s0, s1 = (table.size(hint, f"x{hint}", lower=0) for hint in (6, 5))
    seen: Any = OPS["mul"].result_for(tuple(OPERANDS[name](s0, s1)))
    special = r"not \(s0 == [01] and s1 == [01]\)|s[01] != 1"
    found = [re.match(special, str(each)) for each in table.log]
    left_out = [each[0] for each in found if each]
    assert len(left_out) == len(found) <= 4
    for n, m in itertools.product(range(5), repeat=2):
        values = {"s0": n, "s1": m}
        if all(eval(each, values) for each in left_out):
            plain = OPS["mul"].result_for(tuple(OPERANDS[name](n, m)))
            assert concrete(seen, values) is plain, (n, m)


@pytest.mark.rules("DYN-4")
def test_simple_strides_lead_to_the_same_addresses() -> None:
    table = SymbolTable()
    s0, s1 = (table.size(3, name, lower=0) for name in ("s0", "s1"))
    shape = (s0, s1, 2)
    stride = (2 * s1 * is_one(s0), 2 * is_several(s0 * s1 * 2), 1)
    simple = without_few(shape, stride)
    assert simple == (0, 2, 1)
    for a, b in itertools.product(SIZES, repeat=2):
        whole = concrete(stride, {"s0": a, "s1": b})
        for place in itertools.product(range(a), range(b), range(2)):
            assert np.dot(place, whole) == np.dot(place, simple)


@pytest.mark.rules("DYN-4")
def test_strides_of_other_dimensions_stay() -> None:
    table = SymbolTable()
    s0, s1 = (table.size(3, name, lower=0) for name in ("s0", "s1"))
    stride = (is_one(s1), is_several(s1))
    assert without_few((s0, s1), stride) == stride


@pytest.mark.rules("DYN-4")
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_products_of_rows_and_columns_have_eagers_strides(turned: tuple[bool, bool]) -> None:
    """Of one row, or one column, nothing but its strides says which it is."""

    def spread(x: Any, y: Any) -> Any:
        return al.kron(x.t() if turned[0] else x, y.t() if turned[1] else y)

    compiled = al.compile(spread, dynamic=True, backend="reference")
    for sizes in itertools.product((1, 3), repeat=4):
        x, y = al.ones(*sizes[:2]), al.ones(*sizes[2:])
        found, expected = compiled(x, y), spread(x, y)
        assert (found.shape, found.stride()) == (expected.shape, expected.stride()), sizes
