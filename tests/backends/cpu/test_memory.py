"""Memory of results is taken again when nobody has it, and never sooner."""

import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest

from aotlite.backends.cpu.runtime import result_memory
from aotlite.backends.cpu.runtime.result_memory import SMALLEST, ResultMemory, rounded
from tests.backends.cpu.test_pool import printed

MEGABYTE = 1 << 20
recycles = pytest.mark.skipif(
    not result_memory.COUNTS_REFERENCES, reason="this Python does not count"
)


def bytes_of(count, recycler):
    return recycler.allocator((count,), np.dtype(np.uint8))


def address(array):
    return array.ctypes.data


@recycles
def test_memory_is_taken_again_when_the_last_array_is_gone():
    make = bytes_of(MEGABYTE, ResultMemory(8 * MEGABYTE))
    array = make()
    first = address(array)
    part = array[5:10]
    del array
    other = make()
    assert first != address(other)  # a part is still there
    del part
    assert first == address(make())


@recycles
@pytest.mark.parametrize(
    "hold",
    [
        memoryview,
        lambda a: a.view(np.float32).reshape(2, -1).T,
        lambda a: np.frombuffer(a, np.int16),
        lambda a: a.__dlpack__(),
        lambda a: a.base,
        lambda a: np.from_dlpack(a),
        lambda a: np.asarray(memoryview(a)[8:]),
        iter,
    ],
    ids=["memoryview", "view", "frombuffer", "capsule", "base", "dlpack", "slice", "iterator"],
)
def test_memory_that_anything_holds_is_not_taken(hold):
    make = bytes_of(MEGABYTE, ResultMemory(32 * MEGABYTE))
    first = address(array := make())
    held = hold(array)
    del array
    others = [make() for _ in range(20)]
    assert first not in map(address, others)
    del held, others
    gc.collect()
    assert first in {address(each) for each in [make() for _ in range(30)]}


def test_arrays_are_new_each_time():
    """Only the memory is used again: weak references and flags are those of one array."""
    make = bytes_of(MEGABYTE, ResultMemory(8 * MEGABYTE))
    array = make()
    array.flags.writeable = False
    gone = weakref.ref(array)
    del array
    assert gone() is None
    assert make().flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (7,), (300, 500), (64, 64, 64)])
@pytest.mark.parametrize("dtype", ["bool", "float32", "complex128"])
def test_arrays_have_the_shape_and_the_dtype_that_are_asked_for(shape, dtype):
    array = ResultMemory(MEGABYTE).allocator(shape, np.dtype(dtype))()
    flags = array.flags
    assert (shape, np.dtype(dtype)) == (array.shape, array.dtype)
    assert flags.c_contiguous and flags.writeable and flags.aligned


@recycles
def test_what_is_kept_has_a_limit():
    """Blocks of other sizes go first where they were lent longer ago."""
    recycler = ResultMemory(4 * MEGABYTE)
    held = [bytes_of(MEGABYTE, recycler)() for _ in range(10)]
    assert 4 * MEGABYTE == recycler.kept()
    assert len(set(map(address, held))) == 10
    two = bytes_of(2 * MEGABYTE, recycler)()
    assert 4 * MEGABYTE == recycler.kept()
    last = address(held[-1])
    del held, two
    assert last in {address(each) for each in [bytes_of(MEGABYTE, recycler)() for _ in range(3)]}
    bytes_of(5 * MEGABYTE, recycler)()
    assert recycler.kept() <= 4 * MEGABYTE
    recycler.keep(0)
    assert 0 == recycler.kept()


@recycles
def test_live_results_do_not_keep_others_from_being_taken_again():
    """Those that live long leave the list; a result that ends at once has the same memory."""
    recycler = ResultMemory(64 * MEGABYTE)
    make = bytes_of(MEGABYTE, recycler)
    held = [make() for _ in range(100)]
    addresses = [address(make()) for _ in range(60)]
    assert len(set(addresses[-20:])) < 20 and set(addresses).isdisjoint(map(address, held))


def test_threads_never_have_the_same_memory():
    make = bytes_of(SMALLEST, ResultMemory(8 * MEGABYTE))
    wrong = []

    def work(number):
        for _ in range(2000):
            array = make()
            array[:8] = number
            again = make()
            again[:8] = number + 100
            if (array[:8] != number).any():
                wrong.append(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [] == wrong


@pytest.mark.parametrize("size", [1, 4096, SMALLEST, SMALLEST + 1, 10**6, 4 * 10**6 + 1, 2**26])
def test_rounding_is_up_and_small(size):
    assert size <= rounded(size) <= max(size + 4095, size * 9 / 8)
    assert rounded(size) == rounded(rounded(size))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_child_does_not_write_its_parent_s_results():
    """Anonymous pages are shared with children unless told otherwise."""
    code = (
        "import os, numpy as np; from aotlite.backends.cpu.runtime.result_memory import RESULTS;"
        "make = RESULTS.allocator((10**6,), np.dtype('f')); a = make(); a[:] = 1; b = make();\n"
        "if not os.fork(): a[:] = 2; os._exit(0)\n"
        "os.wait(); print(a.min(), a.max())"
    )
    assert "1.0 1.0" == printed(code)
