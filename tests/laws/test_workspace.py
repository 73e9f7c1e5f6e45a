"""OPS-26: a kernel holds no more than its results and the workspace that its op states.

Calls whose operands are large and lie in hardly any memory: a kernel that copies one is seen, since
NumPy reports what it allocates to `tracemalloc`.
"""

import ast
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import AotliteError
from aotlite.ir.op import OPS, DataOp, InplaceOp, Op, RandomOp, workspace
from aotlite.testing.laws.ops.runs import bound, kernel_op, tensors_in
from aotlite.testing.laws.samples.sample import Sample, arrays_in
from tests.laws.helpers.stretching import stretched, window_of
from tests.samples import samples_of

LARGE, MOST = 1 << 17, 1 << 20
"""Elements of a stretched dimension; of an operand, or a result, of the calls that are tried."""
REFUSED = (AotliteError, ArithmeticError, LookupError, TypeError, ValueError)
SLOW = frozenset(
    "adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_max_pool2d conv2d "
    "linalg_matrix_exp linalg_pinv linalg_svd linalg_eigh linalg_qr".split()
)
"""Ops whose kernels take a second for such operands: tried in the long run alone."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that go block by block have small ones, or operands would have to be far larger."""
    monkeypatch.setattr(workspace, "BLOCK", 1 << 10)


def calls_of(op: Op) -> Iterator[tuple[Sample, tuple[Any, ...], bool]]:
    """Large calls that the op takes: as a sample, bound, and whether its results are small."""
    seen = set()
    for sample in samples_of(op.name):
        like = tuple((a.shape, a.dtype.kind) for a in arrays_in(sample.args))
        if like in seen:
            continue
        seen.add(like)
        for each in stretched(sample, LARGE):
            indices = [a.shape for a in arrays_in(each.args) if a.dtype.kind in "iu"]
            try:
                args = bound(op, each, window_of)
                meta: Any = () if isinstance(op, DataOp) else op.infer(args)
                places = prod(np.broadcast_shapes(*indices)) if op.lists else 1
            except REFUSED:
                continue
            count = sum(m.numel for m in (meta if type(meta) is tuple else (meta,)))
            if max(count, places, *[t.numel() for t in tensors_in(args)]) <= MOST:
                yield each, args, count < LARGE


def most_held(op: Op, args: tuple[Any, ...]) -> tuple[int, int] | None:
    """Bytes that a call held at once beside its results, and may hold; None where it is refused."""
    computing: Any = kernel_op(op)
    given = (0, 0, 0, *args) if isinstance(op, RandomOp) else args
    # Started for the call alone: it makes all else, above all the calls themselves, take longer.
    tracemalloc.start()
    try:
        found = tensors_in(dispatch(op, args))
        held = tracemalloc.get_traced_memory()[1]
    except (*REFUSED, MemoryError):  # as many elements as the repeats of repeat_interleave say
        return None
    finally:
        tracemalloc.stop()
    metas = [tensor.meta for tensor in found]
    results = 0 if isinstance(op, InplaceOp) else sum(meta.nbytes for meta in metas)
    return held - results, workspace.bytes_of(computing, given, metas) + (
        sum(meta.nbytes for meta in metas) - results
    )


def check(op: Op, count: int) -> int:
    """Tries so many calls with small results, and as many others; gives how many there were."""
    tried, computing = 0, kernel_op(op)
    assert computing is not None
    calls = list(islice(calls_of(op), 40 * count))
    for small in (True, False):
        for sample, args, _ in [call for call in calls if call[2] is small][:count]:
            found = most_held(op, args)
            if found is None:
                continue
            tried += 1
            held, may = found
            assert held <= may, (
                f"{op.name}{sample}: the kernel holds {held} bytes beside its results, expected at "
                f"most {may} ({workspace.stated(computing)})"
            )
    return tried


CHECKED = [op for op in OPS.values() if kernel_op(op) is not None and samples_of(op.name)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("op", [op for op in CHECKED if op.name.strip("_") not in SLOW], ids=str)
def test_a_kernel_holds_no_more_than_its_op_states(op: Op) -> None:
    check(op, 2)


@pytest.mark.long
@pytest.mark.parametrize("op", CHECKED, ids=str)
def test_a_kernel_holds_no_more_than_its_op_states_in_many_calls(op: Op) -> None:
    check(op, 12)


def test_most_ops_have_large_calls_with_small_results() -> None:
    """What the law above tries is not next to nothing."""
    large = small = 0
    for op in CHECKED:
        calls = islice(calls_of(op), 80)
        first = next(calls, None)
        large += first is not None
        small += first is not None and any(call[2] for call in chain([first], calls))
    assert large > 350 and small > 200


def test_every_op_of_the_table_states_a_workspace() -> None:
    stated = [computing for op in CHECKED if (computing := kernel_op(op)) is not None]
    assert [] == [op.name for op in stated if workspace.workspace_of(op) is None]


@pytest.mark.slow("fills an operand of gigabytes")
@pytest.mark.thinned(4)
@pytest.mark.parametrize("way", ["eager", "reference", "loops", "cpu"])
def test_reading_some_elements_of_a_huge_operand_takes_little_memory(way: str) -> None:
    """2**33 elements and more, in a process that may take 256 MiB."""
    command = [sys.executable, "-m", "tests.laws.huge_calls", way, "16" if way == "cpu" else "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    counts = ast.literal_eval(done.stdout)
    assert len(counts) == 9 and sum(counts.values()) >= (25 if way == "cpu" else 400)


TABLES = {
    "expanded": lambda: al.arange(4.0).expand(LARGE, 4),
    "transposed": lambda: al.arange(4.0 * LARGE).reshape(4, LARGE).t(),
    "with gaps": lambda: al.arange(8.0 * LARGE).reshape(LARGE, 8)[:, ::2],
}
READS = {
    "index_select": lambda table, rows: table.index_select(0, rows),
    "embedding": lambda table, rows: al.nn.functional.embedding(rows, table),
    "take": lambda table, rows: table.take(rows),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_a_table_is_read_without_a_copy_of_the_table(table: str, read: str) -> None:
    rows, large = al.tensor([2, LARGE - 1]), TABLES[table]()
    expected = READS[read](al.from_numpy(np.array(large.numpy())), rows)
    tracemalloc.start()
    try:
        found = READS[read](large, rows)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
    assert expected.tolist() == found.tolist()


def test_a_kernel_that_goes_block_by_block_gives_what_it_gives_at_once() -> None:
    """Elements that meet in one place are added in the order that they have in memory."""
    values = np.random.default_rng(0).normal(size=(70, 60)).astype(np.float32)
    index = al.from_numpy(np.random.default_rng(1).integers(0, 5, (70, 60)))
    source, zeros = al.from_numpy(values), al.zeros(70, 60)
    found = [
        zeros.scatter_add(0, index, source),
        zeros.scatter(1, index, source),
        zeros.put(index, source, True),
        zeros.index_add(0, index[:, 0], source),
        zeros.scatter_reduce(0, index, source, "mean", include_self=False),
    ]
    expected = np.zeros((5, 70, 60), np.float32)
    places = index.numpy()
    count = np.zeros((70, 60), np.int64)
    for (i, j), value in np.ndenumerate(values):
        k = places[i, j]
        expected[0, k, j] += value
        expected[1, i, k] = value
        expected[2].reshape(-1)[k] += value
        expected[3, places[i, 0], j] += value
        expected[4, k, j] += value
        count[k, j] += 1
    expected[4] /= np.maximum(count, 1)
    for mine, its in zip(expected, found, strict=True):
        np.testing.assert_array_equal(mine, its.numpy())
