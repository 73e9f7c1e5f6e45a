"""What becomes of placements: the ops that programs have most need no collective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.nn import functional
from aotlite.sharding import CommDebugMode, Partial, Replicate, Shard, ShardedTensor
from aotlite.testing.sharding import PoisonedMesh

MESH = PoisonedMesh(2)
ROWS, COLUMNS, WHOLE, SUM = Shard(0), Shard(1), Replicate(), Partial()


def drawn(*shape: int) -> Any:
    return al.from_numpy(np.random.default_rng(0).standard_normal(shape))


def labels(*shape: int) -> Any:
    return al.from_numpy(np.random.default_rng(1).integers(0, 4, shape))


WIDE = (drawn(4, 6), drawn(6, 8))
BIAS = drawn(8)
IMAGES = (drawn(2, 4, 6, 6), drawn(6, 4, 3, 3))
CASES: list[tuple[str, Any, tuple[Any, ...], tuple[Any, ...], Any]] = [
    # name, function, operands, their placements, that of the result
    ("column parallel", lambda x, w: x @ w, WIDE, (WHOLE, COLUMNS), COLUMNS),
    ("row parallel", lambda x, w: x @ w, WIDE, (COLUMNS, ROWS), SUM),
    ("data parallel", lambda x, w: x @ w, WIDE, (ROWS, WHOLE), ROWS),
    ("a sum over ranks times a matrix", lambda x, w: x @ w, WIDE, (SUM, WHOLE), SUM),
    ("linear", lambda x, w: functional.linear(x, w.t()), WIDE, (WHOLE, COLUMNS), COLUMNS),
    ("addmm", lambda x, w: al.addmm(BIAS, x, w), WIDE, (COLUMNS, ROWS), SUM),
    ("batches", lambda x, w: x.unsqueeze(1) @ w, WIDE, (ROWS, WHOLE), ROWS),
    ("pointwise", lambda x: x.gelu() * 2 + 1, WIDE[:1], (COLUMNS,), COLUMNS),
    ("broadcast", lambda x, y: x + y[:1], (WIDE[0], WIDE[0]), (COLUMNS, COLUMNS), COLUMNS),
    ("sums of sums", lambda x, y: x * 2 - y, (WIDE[0], WIDE[0]), (SUM, SUM), SUM),
    ("sum across", lambda x: x.sum(0), WIDE[:1], (ROWS,), SUM),
    ("sum along", lambda x: x.sum(1), WIDE[:1], (ROWS,), ROWS),
    ("mean", lambda x: x.mean(), WIDE[:1], (ROWS,), Partial("avg")),
    ("amax", lambda x: x.amax(0), WIDE[:1], (ROWS,), Partial("max")),
    ("all", lambda x: (x > 0).all(), WIDE[:1], (ROWS,), Partial("min")),
    ("argmax", lambda x: x.argmax(1), WIDE[:1], (ROWS,), ROWS),
    ("softmax", lambda x: x.softmax(-1), WIDE[:1], (ROWS,), ROWS),
    ("log_softmax", lambda x: x.log_softmax(-1), WIDE[:1], (ROWS,), ROWS),
    ("layer_norm", lambda x: functional.layer_norm(x, (6,)), WIDE[:1], (ROWS,), ROWS),
    ("cumsum", lambda x: x.cumsum(1), WIDE[:1], (ROWS,), ROWS),
    ("sort", lambda x: x.sort(1).values, WIDE[:1], (ROWS,), ROWS),
    ("cat", lambda x, y: al.cat([x, y], 1), (WIDE[0], WIDE[0]), (ROWS, ROWS), ROWS),
    ("stack", lambda x, y: al.stack([x, y]), (WIDE[0], WIDE[0]), (ROWS, ROWS), COLUMNS),
    ("gather", lambda x, i: x.gather(1, i), (WIDE[0], labels(4, 3)), (ROWS, ROWS), ROWS),
    (
        "embedding by columns",
        lambda w, i: functional.embedding(i, w),
        (WIDE[0], labels(3)),
        (COLUMNS, WHOLE),
        COLUMNS,
    ),
    (
        "embedding of a batch",
        lambda w, i: functional.embedding(i, w),
        (WIDE[0], labels(6)),
        (WHOLE, ROWS),
        ROWS,
    ),
    (
        "rows that are added up",
        lambda g, i: al.zeros(4, 8, dtype=al.float64).index_add(0, i, g),
        (WIDE[1], labels(6)),
        (ROWS, ROWS),
        SUM,
    ),
    (
        "classes",
        lambda x, i: functional.cross_entropy(x, i, reduction="none"),
        (WIDE[0], labels(4)),
        (ROWS, ROWS),
        ROWS,
    ),
    ("images", lambda x, w: al.conv2d(x, w), IMAGES, (ROWS, WHOLE), ROWS),
    ("channels out", lambda x, w: al.conv2d(x, w), IMAGES, (WHOLE, ROWS), COLUMNS),
    ("channels in", lambda x, w: al.conv2d(x, w), IMAGES, (COLUMNS, COLUMNS), SUM),
    ("pooling", lambda x: functional.max_pool2d(x, 2), IMAGES[:1], (COLUMNS,), COLUMNS),
    (
        "heads of attention",
        lambda x: x.view(2, 2, 4, 2).transpose(1, 2),
        (drawn(2, 2, 8),),
        (Shard(2),),
        COLUMNS,
    ),
    (
        "heads put together",
        lambda x: x.transpose(1, 2).reshape(2, 6, 8),
        (drawn(2, 4, 6, 2),),
        (COLUMNS,),
        Shard(2),
    ),
    (
        "attention of heads",
        lambda q, k: functional.scaled_dot_product_attention(q, k, q),
        (drawn(2, 4, 3, 2), drawn(2, 4, 3, 2)),
        (COLUMNS, COLUMNS),
        COLUMNS,
    ),
]


@pytest.mark.parametrize(
    ("function", "operands", "placements", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_ops_on_parts_that_fit_move_nothing(
    function: Any, operands: Any, placements: Any, expected: Any
) -> None:
    """SHD-7 to SHD-10."""
    pairs = zip(operands, placements, strict=True)
    given = [ShardedTensor.from_dense(each, MESH, p) for each, p in pairs]
    with CommDebugMode() as comm:
        found = function(*given)
    assert (found.placement, comm.get_total_counts()) == (expected, 0)
    # Of float64, sums over ranks go in another order.
    assert np.allclose(function(*operands).numpy(), found.full_tensor().numpy(), atol=1e-12)


def test_what_moves_less_is_moved() -> None:
    """SHD-10: of two ways to multiply, that which moves the smaller operand."""
    small, large = drawn(2, 4), drawn(4, 64)
    x = ShardedTensor.from_dense(small, MESH, ROWS)
    for placement in (ROWS, COLUMNS):
        w = ShardedTensor.from_dense(large, MESH, placement)
        with CommDebugMode() as comm:
            found = x @ w
        assert all("f64[2, 4]" in line for line in comm.implicit)
        assert len(comm.implicit) == 1
        assert np.allclose((small @ large).numpy(), found.full_tensor().numpy())


def test_a_dimension_that_ranks_do_not_divide_is_replicated_and_not_padded() -> None:
    """SHD-2, SHD-10: a view of five rows of six is on no rank alone."""
    x = ShardedTensor.from_dense(drawn(6, 4), MESH, ROWS)
    with CommDebugMode() as comm:
        found = x[:5] * 2
    assert found.placement == WHOLE
    assert comm.get_comm_counts() == {"all_gather": 1}
    assert np.array_equal((drawn(6, 4)[:5] * 2).numpy(), found.full_tensor().numpy())
