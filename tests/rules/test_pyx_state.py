"""PYX-2, PYX-8: the state of a file shares memory as the function's tensors do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.export import program
from aotlite.python_export.values.state_arrays import shared_copies
from tests.python_export.comparison import module_of


def files(function: Any, *args: al.Tensor) -> list[Any]:
    """The module of the function's file, and that of its program."""
    texts = al.compile(function).to_python(args=args), program(function, *args).to_python()
    return [module_of(text) for text in texts]


@pytest.mark.rules("PYX-2")
def test_written_state_that_overlaps_is_one_memory() -> None:
    base = al.zeros(4)
    first, last = base[:3], base[1:]

    def add(x: al.Tensor) -> al.Tensor:
        first.add_(x)
        return last * 1

    ones = np.ones(3, np.float32)
    for file in files(add, al.ones(3)):
        assert file.add(ones).tolist() == [1.0, 1.0, 0.0]
        assert file.add(ones).tolist() == [2.0, 2.0, 0.0]
        assert file.STATE["last"].tolist() == [2.0, 2.0, 0.0]
        assert np.shares_memory(file.STATE["first"], file.STATE["last"])
    assert base.tolist() == [0.0] * 4


@pytest.mark.rules("PYX-2")
def test_state_has_its_strides() -> None:
    weight = al.arange(6.0).reshape(2, 3).t()

    def scale(x: al.Tensor) -> al.Tensor:
        weight.mul_(x)
        return weight + 0

    for file in files(scale, al.full((2,), 2.0)):
        found = file.scale(np.full(2, 2, np.float32))
        assert found.tolist() == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]
        assert found.strides == file.STATE["weight"].strides == (4, 12)


@pytest.mark.rules("PYX-2", "FUN-11")
def test_windows_of_state_have_the_memory_that_they_reach() -> None:
    window = al.arange(4.0)[1:3]

    def read(x: al.Tensor) -> al.Tensor:
        return window.as_strided((4,), (1,), 0) * x

    for file in files(read, al.ones(())):
        assert file.read(np.ones((), np.float32)).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert file.STATE["window"].tolist() == [1.0, 2.0]


@pytest.mark.rules("PYX-2", "FUN-11")
def test_a_window_beyond_the_memory_of_an_argument_is_refused() -> None:
    def read(x: al.Tensor) -> al.Tensor:
        return x.as_strided((4,), (1,), 0) * 2

    array = np.arange(4, dtype=np.float32)
    for file in files(read, al.arange(4.0)[1:3]):
        assert file.read(array[1:3]).tolist() == [0.0, 2.0, 4.0, 6.0]
        with pytest.raises(ValueError, match=r"bytes -4 to 12 of the memory .* which has 8: pass"):
            file.read(array[1:3].copy())


PARTS = st.tuples(
    st.integers(0, 11), st.integers(0, 3), st.integers(0, 2), st.sampled_from(["f4", "i2", "u1"])
)


@pytest.mark.rules("PYX-8")
@settings(max_examples=60)
@given(st.lists(PARTS, min_size=1, max_size=5))
def test_copies_of_a_state_share_memory_as_its_arrays_do(parts: list[Any]) -> None:
    memories = [np.arange(24, dtype="f4"), np.arange(100, 124, dtype="f4")]
    arrays = []
    for place, (start, size, step, dtype) in enumerate(parts):
        flat = memories[place % 2].view(dtype)[start:]
        arrays.append(
            np.lib.stride_tricks.as_strided(flat, (size, 2), (step * flat.itemsize, flat.itemsize))
        )
    copies = shared_copies(arrays)
    for k, (a, b) in enumerate(zip(arrays, copies, strict=True)):
        assert (a.tobytes(), a.dtype, a.strides) == (b.tobytes(), b.dtype, b.strides)
        assert not np.shares_memory(a, b)
        for one, other in zip(arrays[:k], copies[:k], strict=True):
            assert np.shares_memory(one, a) == np.shares_memory(other, b)
    for each in copies:
        each[...] = 7
    for each in arrays:
        each[...] = 7
    assert [each.tobytes() for each in arrays] == [each.tobytes() for each in copies]
