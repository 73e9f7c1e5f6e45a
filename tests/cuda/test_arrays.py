"""Memory of a device: what becomes a buffer without a copy, which device works, what runs out."""

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aotlite as al
from aotlite.ir.arrays import NUMPY
from aotlite.ir.dtypes import bfloat16, float8_e4m3fn, float8_e5m2, float32
from aotlite.ir.meta import tensor_meta
from aotlite.testing import emulated_cuda
from aotlite.testing.cuda import cupy_runtime
from aotlite.testing.cuda.cupy_array import ndarray

DEVICE = emulated_cuda()
ARRAYS: Any = DEVICE.arrays
CUPY = ARRAYS.cupy


def meta_of(shape, stride=None):
    return tensor_meta(shape, stride, float32, DEVICE)


def test_a_fresh_result_becomes_a_buffer_and_what_others_see_is_copied():
    memory = ARRAYS.allocate(6, float32)
    window = ARRAYS.strided(memory, float32, (2, 3), (3, 1), 0)
    fresh = window + 1
    assert fresh.data.ptr == ARRAYS.adopt(fresh, meta_of((2, 3))).address
    for seen in (window, window[...], window.view(), fresh[:], window.T):
        assert seen.data.ptr != ARRAYS.adopt(seen, meta_of(seen.shape)).address


def test_a_result_that_lies_otherwise_is_taken_if_its_meta_says_so():
    turned = CUPY.asarray(np.asfortranarray(np.ones((2, 3), np.float32))).copy("F")
    assert (4, 8) == turned.strides
    assert turned.data.ptr == ARRAYS.adopt(turned, meta_of((2, 3), (1, 2))).address
    assert turned.data.ptr != ARRAYS.adopt(turned, meta_of((2, 3))).address


def test_an_empty_view_may_start_anywhere():
    memory = ARRAYS.allocate(2, float32)
    assert (0, 3) == ARRAYS.strided(memory, float32, (0, 3), (3, 1), 50).shape


def test_clone_is_other_memory(device):
    x = al.ones(3, device=device)
    assert x.data_ptr() != x.clone().data_ptr()
    assert x.data_ptr() + 4 == x[1:].data_ptr()


def test_work_is_done_on_the_device_of_the_tensor():
    second = emulated_cuda(1)
    assert 0 == CUPY.cuda.runtime.getDevice()
    x = al.ones(3, device=second)
    y = (x + 1).sum()
    y.storage.buffer.bytes()
    assert (1, 6.0, 0) == (y._data.data.device_id, y.item(), CUPY.cuda.runtime.getDevice())


@pytest.fixture
def full():
    """A device with room for 4096 bytes more, none of it kept."""
    gc.collect()
    pool = cupy_runtime.POOLS[0]
    before = pool.limit
    pool.limit = pool.used + 4096
    yield pool
    pool.limit, pool.kept = before, 0


def test_out_of_memory_says_what_was_asked_for_and_what_is_free(full):
    gc.collect()
    used = full.used
    with pytest.raises(al.OutOfMemoryError) as caught:
        al.zeros(2048, device=DEVICE)
    free = full.limit - used
    text = f"emulated:0: 8192 bytes are asked for, expected at most the {free} bytes"
    assert str(caught.value).startswith(text)
    assert isinstance(caught.value, MemoryError)
    del caught
    gc.collect()
    assert used == full.used  # nothing is kept of the attempt
    assert 10.0 == al.ones(10, device=DEVICE).sum().item()


def test_what_was_kept_is_given_back_and_asked_for_once_more(full):
    full.kept = 3000
    before = full.freed
    assert 512.0 == al.ones(512, device=DEVICE).sum().item()
    assert before + 1 == full.freed


def test_a_kernel_that_runs_out_leaves_its_operands(full):
    x = al.ones(16, 8, device=DEVICE)
    with pytest.raises(al.OutOfMemoryError):
        x @ al.ones(8, 400, device=DEVICE)
    with pytest.raises(al.OutOfMemoryError):
        x.repeat(100, 1)
    assert (128.0, 0) == (x.sum().item(), x.storage.version)


def around(numbers):
    return [np.nextafter(numbers, numbers.dtype.type(end)) for end in (-np.inf, np.inf)]


@pytest.mark.parametrize("dtype", [float8_e4m3fn, float8_e5m2], ids=str)
def test_conversions_to_8_bits_round_as_on_the_cpu(dtype):
    with np.errstate(all="ignore"):
        known = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    finite = np.unique(known[np.isfinite(known)])
    middles = (finite[1:] + finite[:-1]) / 2
    values = np.concatenate(
        [finite, middles, *around(middles), *around(middles.astype("f4")), [np.inf, -np.inf]]
    )
    for source in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        with np.errstate(all="ignore"):
            given = al.from_numpy(values.astype(source))
        expected, found = given.to(dtype), given.to(DEVICE).to(dtype)
        assert expected.numpy().tobytes() == found.cpu().numpy().tobytes()
        back = found.to(al.float32)
        assert expected.to(al.float32).numpy().tobytes() == back.cpu().numpy().tobytes()


@pytest.mark.parametrize("dtype", [float8_e4m3fn, bfloat16], ids=str)
def test_storage_dtypes_move_as_bytes(dtype):
    def moved(x):
        return al.cat([x.t().reshape(3, 2).flip(0), x.view(3, 2)]).roll(1, 0).contiguous()

    x = al.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).to(dtype)
    found = moved(x.to(DEVICE))
    assert moved(x).numpy().tobytes() == found.cpu().numpy().tobytes()
    assert [0.0, 0.0] == al.zeros(2, dtype=dtype, device=DEVICE).to(al.float32).tolist()


SCATTERED = "int8 uint8 int16 int32 int64 float16 float32 float64 complex64 bool".split()


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", SCATTERED)
def test_reductions_at_positions_are_numpys(name, dtype):
    if dtype == "complex64" and name in ("maximum", "minimum"):
        pytest.skip("complex numbers have no order")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 5, n).astype(dtype) for n in (4, 50))
    if dtype.startswith("f") and name != "add":
        b[7] = np.nan
    places = rng.integers(0, 4, 50)
    there = [CUPY.asarray(each) for each in (a, places, b)]
    ARRAYS.quiet(getattr(ARRAYS.namespace, name).at, *there)
    with np.errstate(all="ignore"):
        getattr(np, name).at(a, places, b)
    np.testing.assert_allclose(there[0].get(), a, rtol=1e-2 if dtype == "float16" else 1e-6)


def test_reductions_at_positions_take_slices_and_numbers():
    a, expected = CUPY.asarray(np.ones((3, 4), np.float32)), np.ones((3, 4), np.float32)
    places = np.array([2, 0, 2])
    for value in (3.0, np.float32([[1.0], [2.0], [3.0]])):
        held = value if isinstance(value, float) else CUPY.asarray(value)
        ARRAYS.namespace.multiply.at(a, (slice(None), CUPY.asarray(places)), held)
        np.multiply.at(expected, (slice(None), places), value)
    assert expected.tolist() == a.tolist()


def test_numpy_takes_arrays_of_the_device():
    here = np.zeros(2, np.float32)
    NUMPY.copy(here, CUPY.asarray(np.float64([1, 2])))
    assert [1.0, 2.0] == here.tolist()
    assert ndarray is type(ARRAYS.moved(here))
