"""Memory that different storages lie on is found exactly, among few tensors and many (ALI-5)."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.storage_overlap import are_apart, foreign_overlaps, on_one_storage

WINDOWS = st.tuples(st.integers(0, 12), st.integers(0, 5), st.sampled_from((1, 2, 3)))


def tensor_on(memory, window):
    """A tensor over a window of an ndarray; each time it is a storage of its own."""
    start, size, step = window
    return al.from_numpy(memory[start : start + size * step : step])


@given(st.lists(WINDOWS, max_size=9))
@example([(0, 4, 2), (1, 4, 2)])
@example([(0, 4, 2)] * 2 + [(1, 4, 2)] * 3)
def test_foreign_overlaps_are_the_pairs_that_share_a_byte(windows):
    memory = np.arange(32.0)
    tensors = [tensor_on(memory, window) for window in windows]
    expected = [
        (i, j)
        for i, j in combinations(range(len(tensors)), 2)
        if np.shares_memory(tensors[i].array, tensors[j].array)
    ]
    assert expected == list(foreign_overlaps(tensors))
    assert (not expected) == are_apart(*tensors)


def test_views_of_one_storage_are_no_foreign_overlap_and_not_apart():
    base = al.from_numpy(np.ones(4))
    pair = [base[:3], base[1:]]
    assert [[0, 1]] == on_one_storage(pair)
    assert [] == list(foreign_overlaps(pair))
    assert not are_apart(*pair)


def test_interleaved_ndarrays_are_no_reason_to_refuse_a_write():
    memory = np.arange(8.0)
    even, odd = al.from_numpy(memory[::2]), al.from_numpy(memory[1::2])
    compiled = al.compile(lambda x, y: x.mul_(2).add_(y))
    compiled(even, odd)
    assert [1, 1, 7, 3, 13, 5, 19, 7] == memory.tolist()
    with pytest.raises(al.AliasError, match="argument 0 and argument 1 overlap in memory, by nd"):
        compiled(al.from_numpy(memory[:4]), al.from_numpy(memory[2:6]))
    assert [1, 1, 7, 3, 13, 5, 19, 7] == memory.tolist()
