"""Collectives over virtual ranks: what they give, in which order, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import (
    AotliteError,
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
)
from aotlite.ir.op import OPS

COLLECTIVES = (
    "all_reduce all_reduce_nonlinear all_gather reduce_scatter reduce_scatter_nonlinear "
    "all_to_all broadcast wait"
).split()


def ranks_of(count: int, shape: tuple[int, ...], *, seed: int = 0) -> list[Any]:
    """A float32 tensor a rank, of which sums depend on the order."""
    drawn = np.random.default_rng(seed).standard_normal((count, *shape))
    scales = np.float32(10) ** np.arange(count)
    return [al.from_numpy((drawn[r] * scales[r]).astype(np.float32)) for r in range(count)]


def arrays_of(tensors: Any) -> list[np.ndarray]:
    return [np.array(each.detach().numpy()) for each in tensors]


# ------------------------------------------------------------------------------- what they give
@given(st.integers(1, 5), st.integers(0, 9))
def test_sums_go_in_the_order_of_the_ranks(count: int, seed: int) -> None:
    """COL-3: bit for bit, and the same on each rank."""
    tensors = ranks_of(count, (4, 3), seed=seed)
    total = arrays_of(tensors)[0]
    for each in arrays_of(tensors)[1:]:
        total = total + each
    for found in arrays_of(al.all_reduce(tensors)):
        assert total.tobytes() == found.tobytes()
    whole = np.concatenate(arrays_of(al.reduce_scatter([t.repeat(count, 1) for t in tensors])))
    assert np.tile(total, (count, 1)).tobytes() == whole.tobytes()


def test_sums_of_16_bits_are_rounded_once() -> None:
    """COL-3: 1 + 2**-9 + 2**-9 is more than 1 in bfloat16 only if it is added up wider."""
    small = 2.0**-8
    tensors = [al.tensor([x], dtype=al.bfloat16) for x in (1.0, small / 2, small / 2, small)]
    assert al.all_reduce(tensors)[0].item() == 1.0 + 2 * small


@given(st.integers(1, 4), st.integers(0, 1), st.integers(0, 1))
def test_moves_are_those_of_numpy(count: int, split: int, concat: int) -> None:
    shape = (2 * count, 3 * count)
    tensors = ranks_of(count, shape)
    whole = arrays_of(tensors)
    for found in arrays_of(al.all_gather(tensors, split)):
        assert np.array_equal(np.concatenate(whole, split), found)
    for rank, found in enumerate(arrays_of(al.all_to_all(tensors, split, concat))):
        parts = [np.split(each, count, split)[rank] for each in whole]
        assert np.array_equal(np.concatenate(parts, concat), found)
    for found in arrays_of(al.broadcast(tensors, count - 1)):
        assert np.array_equal(whole[-1], found)


@given(st.integers(1, 4), st.sampled_from([(0, 0), (0, 1), (1, 0), (1, 1)]))
def test_there_and_back_again_changes_nothing(count: int, dims: tuple[int, int]) -> None:
    """COL-7, of values: the gradient's collective undoes the other."""
    split, concat = dims
    tensors = ranks_of(count, (2 * count, 3 * count))
    there = al.all_to_all(tensors, split, concat)
    for before, after in zip(tensors, al.all_to_all(there, concat, split), strict=True):
        assert np.array_equal(before.numpy(), after.numpy())
    averaged = al.reduce_scatter(al.all_gather(tensors, split), split, "sum")
    for before, after in zip(tensors, averaged, strict=True):
        assert np.allclose(before.numpy() * count, after.numpy(), rtol=1e-6)


MORE: dict[str, tuple[Any, ...]] = {
    "all_reduce_nonlinear": ("max",),
    "reduce_scatter_nonlinear": (0, "max"),
}
"""Arguments that have no default."""


@pytest.mark.parametrize("name", COLLECTIVES)
def test_no_two_results_share_memory(name: str) -> None:
    """COL-5: nor with an operand."""
    tensors = ranks_of(3, (3, 6))
    before = arrays_of(tensors)
    found = call(name, tensors, *MORE.get(name, ()))
    for rank, each in enumerate(found):
        assert each.is_contiguous()
        each.fill_(rank)
    assert [{float(rank)} for rank in range(3)] == [set(each.flatten().tolist()) for each in found]
    for expected, after in zip(before, arrays_of(tensors), strict=True):
        assert np.array_equal(expected, after)


def test_faces_take_every_reduction() -> None:
    """COL-4."""
    tensors = [al.tensor([2.0, 8.0]), al.tensor([4.0, 2.0])]
    given = {op: al.all_reduce(tensors, op)[1].tolist() for op in ("sum", "avg", "product")}
    assert given == {"sum": [6.0, 10.0], "avg": [3.0, 5.0], "product": [8.0, 16.0]}
    given = {op: al.reduce_scatter(tensors, 0, op)[1].tolist() for op in ("max", "min")}
    assert given == {"max": [8.0], "min": [2.0]}


def test_extremes_share_a_gradient() -> None:
    """COL-7: ranks that hold the largest get equal parts; nan is the largest."""
    x: list[Any] = [al.tensor([1.0, 5.0, float("nan")]).requires_grad_() for _ in range(2)]
    x += [al.tensor([7.0, 5.0, 0.0]).requires_grad_()]
    sum(each.sum() for each in al.all_reduce(x, "max")).backward()
    assert [each.grad.tolist() for each in x] == [[0.0, 1.0, 1.5], [0.0, 1.0, 1.5], [3.0, 1.0, 0.0]]


def test_a_result_that_nobody_uses_has_gradient_zero() -> None:
    x: list[Any] = [al.ones(2).requires_grad_() for _ in range(3)]
    (al.all_gather(x)[1] * al.arange(6.0)).sum().backward()
    assert [each.grad.tolist() for each in x] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


# ------------------------------------------------------------------------------------- compiled
def exchange(a: Any, b: Any) -> Any:
    """A column and a row of what two ranks have, multiplied."""
    a, b = al.wait(al.all_to_all([a.exp(), b.exp()], 0, 1))
    a, b = al.wait(al.all_reduce([(a * 2).sum(0), (b * 3).sum(0)], "avg"))
    return (a * b).sum()


@pytest.mark.parametrize("backend", ["reference", "loops", "cpu"])
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_compiled_collectives_equal_eager(backend: str, partition: str, request: Any) -> None:
    if backend == "cpu":
        from aotlite.backends.native.compiler import toolchain

        if toolchain.find_compiler() is None:
            pytest.skip("no C compiler works here")
    compiled = al.compile(exchange, backend=backend, partition=partition)
    expected: list[Any] = []
    found: list[Any] = []
    for function, into in ((exchange, expected), (compiled, found)):
        leaves = [each.requires_grad_() for each in ranks_of(2, (2, 3))]
        result = function(*leaves)
        result.backward()
        into += [result.item(), *(leaf.grad.tolist() for leaf in leaves)]
    assert np.allclose(expected[0], found[0], rtol=1e-5)
    assert np.allclose(expected[1:], found[1:], rtol=1e-5)


def keeps(a: Any, b: Any) -> Any:
    """Of which the backward needs what was gathered."""
    a, b = al.wait(al.all_gather([a.sin(), b.cos()]))
    return (a * a).sum() + (a * b).exp().sum()


def loose_ends(graph: Any) -> list[str]:
    """Results of collectives that something other than their wait reads, or that leave a graph."""
    found = []
    taken = [n for n in graph.calls if n.target.name == "getitem"]
    results = [n for n in taken if n.args[0].target.name in SENT]
    for node in results:
        readers = [n.target.name for n in graph.calls if node in nodes_in(n.args)]
        returned = node in nodes_in(graph.outputs)
        if readers != ["wait"] or returned:
            found.append(f"{node.args[0].target.name}: {readers}, returned: {returned}")
    return found


SENT = [name for name in COLLECTIVES if name != "wait"]


def nodes_in(args: Any) -> list[Any]:
    """The nodes among arguments, those in lists too."""
    found = []
    for value in args:
        found += list(value) if type(value) is tuple else [value]
    return found


@pytest.mark.parametrize("function", [exchange, keeps])
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_a_backward_waits_for_its_collectives(function: Any, partition: str) -> None:
    """COL-6: in either graph, what a collective gives goes to its wait and nowhere else: nothing
    that was not waited for is saved."""
    leaves = [each.requires_grad_() for each in ranks_of(2, (2, 3))]
    compiled = al.compile(function, backend="reference", partition=partition)
    compiled(*leaves).backward()
    graphs: list[Any] = [compiled.forward_graph, compiled.backward_graph]
    for graph in graphs:
        names = [node.target.name for node in graph.calls]
        sent = [name for name in names if name in SENT]
        assert sent
        assert names.count("wait") == len(sent)
        assert loose_ends(graph) == []


def test_a_collective_is_a_call_of_its_kernel() -> None:
    """COL-8: nothing is told to compilers but the kernel."""
    for name in COLLECTIVES:
        op: Any = OPS[name]
        assert (op.loops, op.expands, op.scalar, op.cost.name) == (None, None, None, "OPAQUE")


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (
            lambda: al.all_reduce([al.ones(2), al.ones(3)]),
            ShapeError,
            "all_reduce: the tensor of rank 1 has shape (3,), expected (2,), that of rank 0",
        ),
        (
            lambda: al.all_gather([al.ones(2), al.ones(2).long()]),
            DTypeError,
            "all_gather: the tensor of rank 1 is int64, expected float32, that of rank 0",
        ),
        (
            lambda: al.reduce_scatter([al.ones(3), al.ones(3)]),
            ShapeError,
            "reduce_scatter: dimension 0 has size 3, expected a multiple of 2, the number of ranks",
        ),
        (
            lambda: al.all_to_all([al.ones(2, 3), al.ones(2, 3)], 1, 0),
            ShapeError,
            "all_to_all: dimension 1 has size 3, expected a multiple of 2, the number of ranks",
        ),
        (
            lambda: al.all_gather([al.tensor(1.0)]),
            ShapeError,
            "all_gather: the tensors have no dimensions, expected at least one",
        ),
        (
            lambda: al.all_reduce([]),
            ArgumentError,
            "all_reduce: argument 'tensors' is empty, expected one tensor a rank",
        ),
        (
            lambda: al.wait([]),
            ArgumentError,
            "wait: argument 'tensors' is empty, expected one tensor a rank",
        ),
        (
            lambda: al.all_reduce([al.ones(2)], "median"),
            ArgumentError,
            "all_reduce: argument 'op' is 'median', expected one of ['sum', 'avg', 'product', "
            "'max', 'min']",
        ),
        (
            lambda: al.ops.reduce_scatter([al.ones(2)], 0, "max"),
            ArgumentError,
            "reduce_scatter: argument 'op' is 'max', expected one of ['sum', 'avg']",
        ),
        (
            lambda: al.all_reduce([al.ones(2).bool()]),
            DTypeError,
            "all_reduce: dtype is bool, expected one of numbers",
        ),
        (
            lambda: al.all_reduce([al.ones(2).long()], "avg"),
            DTypeError,
            "all_reduce: dtype is int64, expected a floating or complex one",
        ),
        (
            lambda: al.broadcast([al.ones(2)], 1),
            IndexOutOfRangeError,
            "broadcast: argument 'source' is 1, expected a rank below 1",
        ),
    ],
)
def test_bad_ranks_are_refused(run: Any, error: type[AotliteError], message: str) -> None:
    """COL-1, COL-2, COL-4."""
    with pytest.raises(error) as caught:
        run()
    assert message == str(caught.value)
