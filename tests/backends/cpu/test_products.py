"""Matrix products of the runtime: NumPy's BLAS divided over the pool, and loops without it."""

import contextlib
import ctypes
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import attrs
import numpy as np
import pytest

from aotlite.backends.blas import Blas, find_blas, multiplies
from aotlite.backends.cpu.runtime import runtime_library as runtimes
from aotlite.backends.native.libraries.library_loading import load_c
from tests.backends.cpu.helpers.runtimes import own_runtime
from tests.backends.cpu.test_pool import printed

BLAS = find_blas()
NARROW = """
typedef __INT32_TYPE__ i32;
typedef __INT64_TYPE__ i64;
void (*wide_sgemm)(int, int, int, i64, i64, i64, float, const void *, i64, const void *, i64, float,
                   void *, i64);
void (*wide_dgemm)(int, int, int, i64, i64, i64, double, const void *, i64, const void *, i64,
                   double, void *, i64);
void narrow_sgemm(int layout, int ta, int tb, i32 m, i32 n, i32 k, float alpha, const void *a,
                  i32 lda, const void *b, i32 ldb, float beta, void *c, i32 ldc)
{
    wide_sgemm(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void narrow_dgemm(int layout, int ta, int tb, i32 m, i32 n, i32 k, double alpha, const void *a,
                  i32 lda, const void *b, i32 ldb, double beta, void *c, i32 ldc)
{
    wide_dgemm(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
"""


class Product(ctypes.Structure):
    """`al_product`"""

    _fields_ = (
        ("transpose_a", ctypes.c_int32),
        ("transpose_b", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "lda", "ldb", "ldc")),
        *((name, ctypes.c_int64 * 4) for name in ("extents", "a", "b", "c")),
    )


class Functions(ctypes.Structure):
    """`al_runtime`"""

    _fields_ = (
        ("parallel", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("sgemm", "dgemm", "sbatched", "dbatched")),
    )


def narrow() -> Blas:
    """A BLAS with integers of 32 bits, where NumPy's has 64."""
    assert BLAS is not None
    library = load_c(NARROW, "narrow")
    for kind in ("sgemm", "dgemm"):
        ctypes.c_void_p.in_dll(library, f"wide_{kind}").value = getattr(BLAS, kind)
    sgemm, dgemm = (
        ctypes.cast(getattr(library, f"narrow_{kind}"), ctypes.c_void_p).value or 0
        for kind in ("sgemm", "dgemm")
    )
    return attrs.evolve(BLAS, sgemm=sgemm, dgemm=dgemm, wide=False)


KINDS = {
    "found": lambda: BLAS,
    "loops": lambda: None,
    "narrow": narrow,
    "threads of its own": lambda: BLAS and attrs.evolve(BLAS, set_threads=0),
}


@pytest.fixture(params=KINDS)
def runtime(request, tmp_path, monkeypatch):
    if BLAS is None and request.param != "loops":
        pytest.skip("NumPy's BLAS is not found here")
    if request.param == "narrow" and not BLAS.wide:
        pytest.skip("NumPy's BLAS has integers of 32 bits itself")
    monkeypatch.setattr(runtimes, "find_blas", KINDS[request.param])
    return own_runtime(tmp_path, 3)


def multiply(runtime, a, b, c, alpha=1.0, beta=0.0):
    """C = alpha * A B + beta * C over batch axes, by the strides that the arrays have."""
    size, extents = c.itemsize, c.shape[:-2]

    def steps(x):
        return tuple(s // size for s in np.broadcast_to(x, (*extents, *x.shape[-2:])).strides)

    def leading(x):
        *_, row, column = steps(x)
        return (1, column) if x.shape[-2] > 1 and row == 1 != column else (0, row)

    (ta, lda), (tb, ldb), (_, ldc) = map(leading, (a, b, c))
    batch = [(*[0] * (4 - len(extents)), *steps(x)[:-2]) for x in (a, b, c)]
    extents = (*[1] * (4 - len(extents)), *extents)
    shape = (*c.shape[-2:], a.shape[-1])
    product = Product(ta, tb, *shape, lda, ldb, ldc, extents, *batch)
    functions = Functions.from_address(runtime.functions())
    real = ctypes.c_float if size == 4 else ctypes.c_double
    address = functions.sbatched if size == 4 else functions.dbatched
    pointer = ctypes.c_void_p
    call = ctypes.CFUNCTYPE(None, pointer, real, pointer, pointer, real, pointer)(address)
    call(ctypes.addressof(product), alpha, *(x.ctypes.data for x in (a, b)), beta, c.ctypes.data)


def matrices(shape, dtype, seed=0):
    """Small integers: products are exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


SHAPES = [(1, 1, 1), (3, 5, 7), (40, 33, 70), (130, 20, 64), (17, 200, 90), (128, 128, 128)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_exact_in_all_layouts(runtime, dtype):
    for (m, n, k), ta, tb in itertools.product(SHAPES, (False, True), (False, True)):
        a = matrices((k, m), dtype).T if ta else matrices((m, k), dtype)
        b = matrices((n, k), dtype, 1).T if tb else matrices((k, n), dtype, 1)
        c = np.full((m, n), np.nan, dtype)
        multiply(runtime, a, b, c)
        assert (a.astype(int) @ b.astype(int) == c).all(), (m, n, k, ta, tb)


def test_products_scale_add_and_keep_to_their_window(runtime):
    """Rows further apart than they are long, in all three."""
    whole = matrices((50, 60), "f")
    before, a, b = whole.copy(), matrices((50, 90), "f", 1)[:40, 5:85], matrices((99, 40), "f", 2)
    multiply(runtime, a, b[:80, 3:33], whole[7:47, 20:50], alpha=2.0, beta=-1.0)
    expected = before.copy()
    expected[7:47, 20:50] = 2 * (a @ b[:80, 3:33]) - before[7:47, 20:50]
    assert (expected == whole).all()


def test_batches_have_strides_of_their_own(runtime):
    """Heads between batch and rows; B the same for every batch; C written from behind."""
    a = matrices((3, 20, 4, 16), "f").transpose(0, 2, 1, 3)
    b = matrices((4, 16, 24), "f", 1)
    c = np.full((3, 4, 20, 24), np.nan, "f")[::-1]
    multiply(runtime, a, b, c)
    assert (a.astype(int) @ b.astype(int) == c).all()


@pytest.mark.parametrize("batch", [(2,), (5,), (64,), (2, 3, 2, 2)])
def test_large_batches_are_divided_without_loss(runtime, batch):
    a, b = matrices((*batch, 70, 48), "d"), matrices((*batch, 48, 90), "d", 1)
    c = np.full((*batch, 70, 90), np.nan)
    multiply(runtime, a, b, c)
    assert (a.astype(int) @ b.astype(int) == c).all()


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0)])
def test_products_without_elements(runtime, shape):
    """Without inner elements C becomes beta * C, and zeros with a beta of 0, whatever was there."""
    batch, m, n, k = shape
    c, d = np.full((batch, m, n), 3.0, "f"), np.full((batch, m, n), np.nan, "f")
    multiply(runtime, matrices((batch, m, k), "f"), matrices((batch, k, n), "f"), c, beta=2.0)
    multiply(runtime, matrices((batch, m, k), "f"), matrices((batch, k, n), "f"), d)
    assert (c == 6.0).all() and (d == 0.0).all()


def test_rows_that_overlap_are_read_as_they_lie(runtime):
    """A BLAS refuses a leading dimension below the length of a row, and computes nothing."""
    row = matrices(30, "f")
    same = np.ndarray((12, 20), "f", row, 0, (0, 4))
    shifted = np.ndarray((20, 8), "f", row, 0, (4, 4))
    for a, b in ((same, matrices((20, 9), "f", 1)), (matrices((7, 20), "f", 1), shifted)):
        c = np.full((a.shape[0], b.shape[1]), np.nan, "f")
        multiply(runtime, a, b, c)
        assert (a.astype(int) @ b.astype(int) == c).all()


def test_products_of_one_number_of_threads_are_the_same_each_time(runtime):
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((300, 300), "f") for _ in range(2))
    found = []
    for _ in range(20):
        c = np.empty((300, 300), "f")
        multiply(runtime, a, b, c)
        found.append(c.tobytes())
    assert 1 == len(set(found))


@pytest.mark.skipif(BLAS is None or not BLAS.set_threads, reason="NumPy's BLAS cannot be told")
def test_numpy_gets_its_threads_back(tmp_path):
    """Also where several threads multiply at once, and each takes and gives back."""
    runtime, a = own_runtime(tmp_path, 2), matrices((200, 200), "f")

    def work(_):
        for _ in range(30):
            multiply(runtime, a, a, np.empty_like(a))

    for threads in (2, 3, 1):
        with with_threads(threads), ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
            assert threads == BLAS.threads()


@contextlib.contextmanager
def with_threads(number):
    """NumPy's BLAS with so many threads."""
    before, set_threads = BLAS.threads(), ctypes.CFUNCTYPE(None, ctypes.c_int)(BLAS.set_threads)
    set_threads(number)
    try:
        yield
    finally:
        set_threads(before)


SLOW = """
static int threads = 3, running;
int get_threads(void) { return threads; }
void set_threads(int number) { threads = number; }
int is_running(void) { return __atomic_load_n(&running, __ATOMIC_SEQ_CST); }
void gemm(void)
{
    __atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
    for (volatile int i = 0; i < 3000000; i++) {}
    __atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
}
"""


def slow_blas():
    """One that takes some milliseconds, says so, and can be forked at any time."""
    library = load_c(SLOW, "slow")

    def address(name):
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value

    gemm = address("gemm")
    blas = Blas("slow", gemm, gemm, True, address("get_threads"), address("set_threads"))
    return library, blas


FORKS = """
import os, pathlib, tempfile, threading
import numpy as np
import aotlite.backends.cpu.runtime.runtime_library as runtimes
from tests.backends.cpu.helpers.runtimes import own_runtime
from tests.backends.cpu.test_products import matrices, multiply, slow_blas
library, blas = slow_blas()
runtimes.find_blas = lambda: blas
a = matrices((20, 20), "f")
folder = tempfile.TemporaryDirectory()
runtime = own_runtime(pathlib.Path(folder.name), 2)
stop = []
def work():
    while not stop:
        multiply(runtime, a, a, np.empty_like(a))
worker = threading.Thread(target=work)
worker.start()
met = 0
while met < 5:
    while not library.is_running():
        pass
    met += library.is_running()
    child = os.fork()
    if not child:
        multiply(runtime, a, a, np.empty_like(a))
        os._exit(blas.threads() != 3)
    assert 0 == os.waitpid(child, 0)[1]
stop.append(True)
worker.join()
print("right")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forked_children_have_the_threads_that_the_blas_had():
    """Where the fork met another thread in a product, for which there was one."""
    assert "right" == printed(FORKS)


@pytest.mark.skipif(BLAS is None, reason="NumPy's BLAS is not found here")
def test_blas_that_computes_something_else_is_not_used():
    assert multiplies(BLAS)
    does_nothing = ctypes.cast(load_c("void nothing(void) {}", "nothing").nothing, ctypes.c_void_p)
    assert not multiplies(attrs.evolve(BLAS, sgemm=does_nothing.value))
    assert not multiplies(attrs.evolve(BLAS, dgemm=does_nothing.value))


def test_blas_is_numpy_s():
    """A wheel of NumPy's brings its own library, whose functions have names of their own."""
    config = np.__config__.CONFIG["Build Dependencies"]["blas"]
    if "openblas" not in config.get("name", ""):
        pytest.skip("NumPy here is made with another BLAS")
    assert isinstance(BLAS, Blas) and "openblas" in str(config) and BLAS.core
    assert ("USE64BITINT" in config["openblas configuration"]) is BLAS.wide
