"""Views and writes of sharded tensors: memory is shared as eager's is, across ranks too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import AotliteError, SubclassError
from aotlite.sharding import CommDebugMode, Partial, Replicate, Shard, ShardedTensor
from aotlite.sharding.placements import PlacedView
from aotlite.testing.sharding import PoisonedMesh

SHAPE = (4, 6)
Step = tuple[str, int, Any]
"""(what, on which of the tensors so far, with what)."""

VIEWS: dict[str, Any] = {
    "select": lambda x, d, i: x.select(d, i),
    "narrow": lambda x, d, i: x.narrow(d, i, 2),
    "step": lambda x, d, i: al.ops.slice(x, d, i, None, 2),
    "transpose": lambda x, d, i: x.transpose(d, i % max(x.dim(), 1)),
    "flatten": lambda x, d, i: x.view(-1),
    "halves": lambda x, d, i: x.view(2, x.numel() // 2),
    "rows": lambda x, d, i: x.view(*x.shape[:d], 2, x.shape[d] // 2, *x.shape[d + 1 :]),
    "unsqueeze": lambda x, d, i: x.unsqueeze(d),
    "squeeze": lambda x, d, i: x.squeeze(),
    "diagonal": lambda x, d, i: x.diagonal(),
    "chunk": lambda x, d, i: x.chunk(2, d)[i % 2],
    "unbind": lambda x, d, i: x.unbind(d)[i],
    "expand": lambda x, d, i: x.expand(2, *x.shape),
    "unfold": lambda x, d, i: x.unfold(d, 2, 1),
    "detach": lambda x, d, i: x.detach(),
}
WRITES: dict[str, Any] = {
    "mul_": lambda x, y: x.mul_(3),
    "add_": lambda x, y: x.add_(1),
    "add_other_": lambda x, y: x.add_(y.sum()),
    "relu_": lambda x, y: x.relu_(),
    "fill_": lambda x, y: x.fill_(7),
    "copy_": lambda x, y: x.copy_(y.sum() * 2),
    "copy_same_": lambda x, y: x.copy_(y),
    "cumsum_": lambda x, y: x.cumsum_(0),
}
OPS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "double": lambda x, y: x * 2,
    "sum": lambda x, y: x.sum(0),
    "matmul": lambda x, y: x @ y.t(),
    "clone": lambda x, y: x.clone(),
}
PLACEMENTS = [Replicate(), Shard(0), Shard(1), Partial(), Partial("max")]


@st.composite
def programs(draw: Any) -> tuple[int, Any, list[Step]]:
    steps: list[Step] = []
    count = 2
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from([VIEWS, VIEWS, WRITES, OPS]))
        name = draw(st.sampled_from(sorted(kind)))
        on = draw(st.integers(0, count - 1))
        if kind is VIEWS:
            steps.append((name, on, (draw(st.integers(0, 1)), draw(st.integers(0, 3)))))
        else:
            steps.append((name, on, draw(st.integers(0, count - 1))))
        count += kind is not WRITES
    first = draw(st.tuples(st.sampled_from(PLACEMENTS), st.sampled_from(PLACEMENTS)))
    return draw(st.sampled_from([1, 2])), first, steps


def run(pool: list[Any], steps: list[Step]) -> list[Any]:
    """The tensors that there are in the end, and for each step whether it was refused."""
    refused = []
    for name, on, more in steps:
        x = pool[on % len(pool)]
        try:
            if name in VIEWS:
                pool.append(VIEWS[name](x, *more))
            elif name in WRITES:
                WRITES[name](x, pool[more % len(pool)])
            else:
                pool.append(OPS[name](x, pool[more % len(pool)]))
            refused.append(False)
        except (AotliteError, IndexError):
            refused.append(True)
    return refused


def numbers(seed: int) -> Any:
    drawn = np.random.default_rng(seed).integers(-3, 4, SHAPE).astype(np.float64)
    return al.from_numpy(drawn)


def whole(value: Any) -> np.ndarray:
    value = value.full_tensor() if isinstance(value, ShardedTensor) else value
    return np.asarray(value.detach().numpy())


@given(programs())
@settings(max_examples=150)
@example((2, (Shard(0), Replicate()), [("select", 0, (0, 1)), ("mul_", 2, 0)]))
@example((2, (Partial(), Shard(1)), [("narrow", 0, (0, 1)), ("transpose", 2, (0, 1))]))
@example((2, (Shard(1), Shard(1)), [("flatten", 0, (0, 0)), ("fill_", 2, 0), ("add", 0, 1)]))
@example((2, (Shard(1), Shard(0)), [("select", 0, (0, 0)), ("copy_same_", 0, 2)]))
@example((1, (Replicate(), Shard(0)), [("unfold", 0, (0, 0)), ("copy_same_", 2, 2)]))
@example((2, (Partial(), Shard(0)), [("unfold", 0, (0, 0)), ("chunk", 0, (0, 0)), ("fill_", 2, 0)]))
def test_programs_of_views_and_writes_mean_the_same(program: Any) -> None:
    """SHD-6, SHD-11; SUB-15, SUB-17: sums are of whole numbers, so all is exact."""
    ranks, placements, steps = program
    mesh = PoisonedMesh(ranks)
    dense = [numbers(0), numbers(1)]
    sharded: list[Any] = [
        ShardedTensor.from_dense(each.clone(), mesh, placement)
        for each, placement in zip(dense, placements, strict=True)
    ]
    assert run(dense, steps) == run(sharded, steps)
    for k, (a, b) in enumerate(zip(dense, sharded, strict=True)):
        assert a.meta.shape == b.meta.shape
        assert whole(a).tobytes() == (whole(b) + 0.0).tobytes() or np.array_equal(
            whole(a), whole(b)
        ), k
        assert (a.version, a.storage_offset()) == (b.version, b.storage_offset())


def gradients(pool: list[Any], leaves: list[Any]) -> tuple[str, list[Any]]:
    """The error, if there is one, and the gradients of what there is in the end."""
    try:
        total: Any = sum((each * each).sum() for each in pool)
        grads = al.autograd.grad(total, leaves, allow_unused=True)
    except AotliteError as error:
        return type(error).__name__, []
    return "", [None if g is None else whole(g) for g in grads]


@given(programs())
@settings(max_examples=80)
def test_gradients_through_views_and_writes_mean_the_same(program: Any) -> None:
    """SHD-13; TEN-17 above the class."""
    ranks, placements, steps = program
    found = []
    for is_sharded in (False, True):
        leaves: list[Any] = [numbers(0), numbers(1)]
        if is_sharded:
            mesh = PoisonedMesh(ranks)
            pairs = zip(leaves, placements, strict=True)
            leaves = [ShardedTensor.from_dense(each, mesh, p) for each, p in pairs]
        for leaf in leaves:
            leaf.requires_grad_()
        pool = [leaf * 1 for leaf in leaves]
        refused = run(pool, steps)
        found.append((refused, *gradients(pool, leaves)))
    (*errors, expected), (*also, grads) = found
    assert errors == also
    for a, b in zip(expected, grads, strict=True):
        assert (a is None) == (b is None)
        assert a is None or np.array_equal(a, b)


@pytest.mark.parametrize(
    ("shape", "dim", "view", "expected"),
    [
        ((4, 6), 0, lambda x: x.t(), Shard(1)),
        ((4, 6), 0, lambda x: x.view(24), Shard(0)),
        ((4, 6), 1, lambda x: x.view(24), PlacedView),
        ((4, 6), 0, lambda x: x.view(2, 2, 6), Shard(0)),
        ((4, 6), 1, lambda x: x.view(4, 2, 3), Shard(1)),
        ((4, 6), 1, lambda x: x.view(4, 3, 2), PlacedView),
        ((4, 6), 1, lambda x: x[1:3], Shard(1)),
        ((4, 6), 0, lambda x: x[1:3], PlacedView),
        ((4, 6), 0, lambda x: x[1], PlacedView),
        ((4, 6), 1, lambda x: x[1], Shard(0)),
        ((4, 6), 0, lambda x: x.expand(3, 4, 6), Shard(1)),
        ((4, 6), 0, lambda x: x.unsqueeze(0), Shard(1)),
        ((4, 6, 2), 1, lambda x: x.flatten(1), Shard(1)),
        ((4, 6, 2), 2, lambda x: x.flatten(1), PlacedView),
        ((2, 4, 2, 3), 2, lambda x: x.transpose(1, 2), Shard(1)),
        ((2, 2), 0, lambda x: x.diagonal(), PlacedView),
    ],
)
def test_views_of_parts_need_no_collective(shape: Any, dim: int, view: Any, expected: Any) -> None:
    """SHD-6: where parts have the view it is theirs; else nothing is moved before it is read."""
    dense = al.arange(float(np.prod(shape))).view(shape)
    x = ShardedTensor.from_dense(dense, PoisonedMesh(2), Shard(dim))
    with CommDebugMode() as comm:
        shown = view(x)
    assert comm.get_total_counts() == 0
    assert (
        type(shown.placement) is expected if expected is PlacedView else shown.placement == expected
    )
    for part, of in zip(shown.parts, x.parts, strict=True):
        assert part.storage is of.storage
    assert np.array_equal(whole(view(dense)), whole(shown))


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_as_strided_sees_the_elements_where_they_lie_in_the_whole(placement: Any) -> None:
    dense = numbers(0)
    x = ShardedTensor.from_dense(dense, PoisonedMesh(2), placement)
    for each in (x, x.t()):
        like = dense if each is x else dense.t()
        assert whole(each.as_strided((2, 3), (9, 2), 3)).tolist() == (
            like.as_strided((2, 3), (9, 2), 3).tolist()
        )
    x.as_strided((2, 3), (9, 2), 3).mul_(5)
    dense.as_strided((2, 3), (9, 2), 3).mul_(5)
    assert np.array_equal(whole(dense), whole(x))
    with pytest.raises(SubclassError, match=r"as_strided: f64\[24\] at 1 reaches beyond"):
        x.as_strided((24,), (1,), 1)
    with pytest.raises(SubclassError, match="reaches beyond a ShardedTensor"):
        x[1:].as_strided((2,), (1,), 0)[0].as_strided((3,), (1,), 0)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_as_strided_between_the_elements_of_a_view_is_refused(placement: Any) -> None:
    """SHD-6: what lies there is another view's, of which the parts of this one know nothing."""
    x = ShardedTensor.from_dense(numbers(0), PoisonedMesh(2), placement)
    seen = x[..., 0]  # a write between its elements was lost
    with pytest.raises(SubclassError, match="reaches beyond a ShardedTensor"):
        seen.as_strided((2,), (1,))
    step = seen.stride()[-1]
    assert whole(seen.as_strided((2,), (step,))).tolist() == (whole(seen).reshape(-1)[:2].tolist())


def test_a_write_through_a_window_reaches_every_rank() -> None:
    """And through views of it, counted once each."""
    x = ShardedTensor.from_dense(al.zeros(4, 2), PoisonedMesh(4), Shard(0))
    window = x[1:4].t()
    assert isinstance(window.placement, PlacedView)
    assert window[0].add_(1).version == x.version == 1
    window.mul_(3)
    assert whole(x).tolist() == [[0, 0], [3, 0], [3, 0], [3, 0]]


def test_strides_are_those_of_the_whole() -> None:
    """TEN-1 of the outer geometry, whatever the parts' is."""
    dense = al.arange(24.0).view(6, 4).t()
    x = ShardedTensor.from_dense(dense, PoisonedMesh(2), Shard(1))
    assert x.stride() == dense.stride() == (1, 4)
    for op in (lambda x: x + 1, lambda x: x.t() * 2, lambda x: x.sum(0), lambda x: x @ x.t()):
        assert op(x).stride() == op(dense).stride()
