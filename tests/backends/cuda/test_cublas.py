"""Products of matrices by cuBLAS: what it is asked for, on a library that records it."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.driver import cublas
from aotlite.backends.cuda.driver.cublas import Cublas, opened, workspace_of
from aotlite.backends.cuda.driver.cublas_products import PLAIN, _numbers, arranged, product
from aotlite.backends.cuda.driver.cupy_driver import CupyDriver
from aotlite.backends.cuda.target import A100, H100
from aotlite.backends.loops.interpreter.program_interpreter import strided
from aotlite.backends.loops.program import Gemm, MatrixWindow
from aotlite.ir import dtypes
from aotlite.ir.errors import BackendError, DeviceError
from tests.backends.cuda.helpers.fake_cupy import CUDADriverError, FakeCupy


class FakeCublas:
    """Does what cuBLAS's text says of matrices in columns, on memory of this process."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.calls = 0
        self.computed = 0
        self.asked: list[tuple[Any, ...]] = []
        """Streams and memory that were set."""
        self.status = 0

    def cublasSetStream_v2(self, *args: Any) -> int:
        self.asked.append(args)
        return 0

    def cublasSetWorkspace_v2(self, *args: Any) -> int:
        self.asked.append(args)
        return 0

    def cublasGemmEx(self, *args: Any) -> int:
        head, x, y, d, tail = args[:7], args[7:10], args[10:13], args[13:17], args[17:]
        return self.cublasGemmStridedBatchedEx(*head, *x, 0, *y, 0, *d, 0, 1, *tail)

    def cublasGemmStridedBatchedEx(self, *args: Any) -> int:
        handle, turn_x, turn_y, m, n, k, one, x, _, leading_x, step_x, *rest = args
        y, _, leading_y, step_y, zero, d, _, leading_d, step_d, count, self.computed, _ = rest
        assert handle == 55
        self.calls += 1
        kind = ctypes.c_double if self.dtype is dtypes.float64 else ctypes.c_float
        assert (kind.from_address(one).value, kind.from_address(zero).value) == (1.0, 0.0)
        for b in range(count):
            left = self._columns(x, b * step_x, leading_x, (k, m) if turn_x else (m, k))
            right = self._columns(y, b * step_y, leading_y, (n, k) if turn_y else (k, n))
            left, right = (left.T if turn_x else left), (right.T if turn_y else right)
            self._columns(d, b * step_d, leading_d, (m, n))[...] = left @ right
        return self.status

    def _columns(self, place: int, start: int, leading: int, shape: tuple[int, int]) -> Any:
        assert leading >= max(shape[0], 1), "cuBLAS refuses it"
        size = self.dtype.itemsize
        count = max((shape[1] - 1) * leading + shape[0], 1) if 0 not in shape else 1
        memory = (ctypes.c_char * (size * count)).from_address(place + size * start)
        flat = np.frombuffer(memory, self.dtype.numpy)
        return strided(flat, 0, shape, (1, leading))


def window(shape: tuple[int, ...], order: str, pad: int) -> tuple[MatrixWindow, int]:
    """A window of a matrix of each batch, by rows or by columns, with room behind each line."""
    *batch, rows, columns = shape
    line = (columns if order == "C" else rows) + pad
    whole = line * (rows if order == "C" else columns) + 3 * pad
    steps, step = [], whole
    for n in reversed(batch):
        steps.append(step)
        step *= n
        step += 5 * pad
    strides = (line, 1) if order == "C" else (1, line)
    return MatrixWindow(0, 0, tuple(steps[::-1]), *strides), step


def cublas_of(library: Any) -> Cublas:
    return Cublas(library, lambda: 55, lambda status: CUDADriverError(f"status {status}"))


def launcher(library: Any, gemm: Gemm, dtype: Any) -> Any:
    return product(FakeCupy().cuda.runtime, cublas_of(library), gemm, dtype, tf32=False)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4, 1), (4, 1, 1), (1, 1, 6), (2, 3, 1)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (1, 3), (2, 1)])
@pytest.mark.parametrize("pad", [0, 2])
def test_products_are_right_in_every_layout(
    dtype: Any, shape: tuple[int, int, int], batch: tuple[int, ...], pad: int
) -> None:
    m, n, k = shape
    generator = np.random.default_rng(1)
    for orders in itertools.product("CF", repeat=3):
        shapes = ((*batch, m, k), (*batch, k, n), (*batch, m, n))
        windows, arrays = [], []
        for each, order in zip(shapes, orders, strict=True):
            found, size = window(each, order, pad)
            windows.append(found)
            arrays.append(generator.integers(-4, 5, size + 1).astype(dtype.numpy))
        gemm = Gemm("g", batch, m, n, k, *windows)
        launch = launcher(FakeCublas(dtype), gemm, dtype)
        launch(0, *[a.ctypes.data for a in arrays])
        a, b, c = (
            strided(array, 0, each, (*w.batch, w.row, w.column))
            for array, each, w in zip(arrays, shapes, windows, strict=True)
        )
        np.testing.assert_array_equal(np.matmul(a, b), c)


def test_batch_axes_that_continue_each_other_are_one_call() -> None:
    def dense(rows: int, columns: int, batch: tuple[int, ...]) -> MatrixWindow:
        return MatrixWindow(0, 0, batch, columns, 1)

    a, b, c = dense(3, 5, (30, 15)), dense(5, 4, (40, 20)), dense(3, 4, (24, 12))
    call = arranged(Gemm("g", (6, 2), 3, 4, 5, a, b, c))
    assert call.batch == (12, (20, 15, 12))
    assert call.starts == ((0, 0, 0),)
    shared = dense(5, 4, (0, 20))
    apart = arranged(Gemm("g", (6, 2), 3, 4, 5, a, shared, c))
    assert apart.batch[0] == 2
    assert len(apart.starts) == 6
    assert call.x.turned == call.y.turned == PLAIN


@pytest.mark.parametrize(
    ("dtype", "tf32", "computed"),
    [
        (dtypes.float32, False, 68),
        (dtypes.float32, True, 77),
        (dtypes.float64, True, 70),
        (dtypes.bfloat16, True, 68),
    ],
)
def test_only_float32_is_computed_with_fewer_bits_where_that_is_allowed(
    dtype: Any, tf32: bool, computed: int
) -> None:
    assert _numbers(dtype, tf32=tf32)[2] == computed


# ------------------------------------------------------------------------------- streams and memory
SQUARE = Gemm("g", (), 2, 2, 2, *[MatrixWindow(0, 0, (), 2, 1)] * 3)


@pytest.fixture
def arrays() -> list[Any]:
    """Two matrices of ones, and room for their product."""
    return [np.ones((2, 2), np.float32) for _ in range(3)]


def places_of(arrays: list[Any]) -> list[int]:
    return [array.ctypes.data for array in arrays]


def test_a_product_goes_to_the_stream_of_its_launch(arrays: Any) -> None:
    library = FakeCublas(dtypes.float32)
    launcher(library, SQUARE, dtypes.float32)(7, *places_of(arrays))
    assert library.asked == [(55, 7)]
    np.testing.assert_array_equal(arrays[2], np.full((2, 2), 2.0))


def test_recorded_products_have_memory_of_their_own(arrays: Any) -> None:
    """And the library has its own again behind them."""
    library, fake = FakeCublas(dtypes.float32), FakeCupy()
    driver = CupyDriver(SimpleNamespace(cupy=fake, index=0))
    driver.__dict__["_cublas"] = cublas_of(library)
    launch = driver.product(SQUARE, dtypes.float32, tf32=False)
    places = places_of(arrays)
    driver.capture(lambda: launch(driver.current_stream(), *places), products=(4096, 1024))
    launch(3, *places)
    assert library.asked == [(55, 77), (55, 4096, 1024), (55, 0), (55, 3)]
    asked = len(library.asked)
    driver.capture(lambda: None)
    assert len(library.asked) == asked


def test_recorded_work_that_fails_leaves_the_library_its_memory() -> None:
    library = FakeCublas(dtypes.float32)
    driver = CupyDriver(SimpleNamespace(cupy=FakeCupy(), index=0))
    driver.__dict__["_cublas"] = cublas_of(library)
    with pytest.raises(ZeroDivisionError):
        driver.capture(lambda: 1 // 0, products=(4096, 1024))
    assert library.asked == [(55, 0)]


def test_what_cublas_refuses_is_cupys_error_and_then_ours(arrays: Any) -> None:
    library = FakeCublas(dtypes.float32)
    library.status = 13
    driver = CupyDriver(SimpleNamespace(cupy=FakeCupy(), index=0))
    driver.__dict__["_cublas"] = cublas_of(library)
    launch = driver.product(SQUARE, dtypes.float32, tf32=False)
    places = places_of(arrays)
    with pytest.raises(CUDADriverError, match="status 13"):
        launch(0, *places)
    with pytest.raises(DeviceError, match="status 13"):
        driver.capture(lambda: launch(77, *places), products=(4096, 1024))


def test_sizes_that_cublas_does_not_take_are_refused() -> None:
    wide = Gemm("g", (), 2, 2**31, 2, *[MatrixWindow(0, 0, (), 2**31, 1)] * 3)
    with pytest.raises(BackendError, match="a size or a stride of 2147483648"):
        launcher(FakeCublas(dtypes.float32), wide, dtypes.float32)


def test_a_dtype_without_products_is_refused() -> None:
    with pytest.raises(BackendError, match="a product is of int32, expected float16"):
        launcher(FakeCublas(dtypes.int32), SQUARE, dtypes.int32)


def test_the_memory_of_products_is_what_their_device_wants() -> None:
    assert [workspace_of(each) for each in (A100, H100)] == [8 << 20, 32 << 20]


# ------------------------------------------------------------------------------------- the library
_LIBRARY = """
#include <stdint.h>
typedef void *P; typedef long long L;
int cublasSetStream_v2(P h, P s) { return (int)(intptr_t)h + (int)(intptr_t)s; }
int cublasSetWorkspace_v2(P h, P p, size_t n) { return n == (1ull << 33) + 1 ? 0 : 7; }
int cublasGemmEx(P h, int ta, int tb, int m, int n, int k, P one, P a, int at, int la, P b, int bt,
                 int lb, P zero, P c, int ct, int lc, int computed, int how)
{
    L *to = c;
    L given[] = {ta, tb, m, n, k, (L)a, at, la, (L)b, bt, lb, ct, lc, computed, how};
    for (int i = 0; i < 15; i++) to[i] = given[i];
    return *(float *)one != 1 || *(float *)zero != 0;
}
int cublasGemmStridedBatchedEx(P h, int ta, int tb, int m, int n, int k, P one, P a, int at, int la,
                               L sa, P b, int bt, int lb, L sb, P zero, P c, int ct, int lc, L sc,
                               int count, int computed, int how)
{
    L *to = c;
    L given[] = {ta, tb, m, n, k, (L)a, at, la, sa, (L)b, bt, lb, sb, ct, lc, sc, count,
                 computed, how};
    for (int i = 0; i < 19; i++) to[i] = given[i];
    return *(float *)one != 1 || *(float *)zero != 0;
}
"""


class OfCupy(RuntimeError):
    """As CuPy's, of a status."""


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cublas:
    """A library that says what it was given, behind a module that is linked with it."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "library.c").write_text("#include <stddef.h>\n" + _LIBRARY, "utf-8")
    (tmp_path / "module.c").write_text(
        "int cublasGemmEx(void); int used(void) { return cublasGemmEx(); }\n", "utf-8"
    )
    library, module = str(tmp_path / "libcublas.so.99"), str(tmp_path / "module.so")
    build = ["gcc", "-shared", "-fPIC", "-o"]
    own = ["-Wl,-soname,libcublas.so.99"]
    subprocess.run([*build, library, str(tmp_path / "library.c"), *own], check=True)
    found = [library, f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*build, module, str(tmp_path / "module.c"), *found], check=True)
    loaded = SimpleNamespace(__file__=module, CUBLASError=OfCupy)
    monkeypatch.setattr(cublas, "_module", lambda: loaded)
    return opened(FakeCupy())


def test_the_library_is_found_behind_the_module_that_is_linked_with_it(linked: Cublas) -> None:
    linked.check(linked.set_workspace(55, 1, (1 << 33) + 1))
    with pytest.raises(OfCupy, match="7"):
        linked.check(linked.set_workspace(55, 1, 1))
    with pytest.raises(OfCupy, match="58"):
        linked.begin(3)


def test_the_library_is_given_each_argument_in_its_width(linked: Cublas) -> None:
    linked.set_stream = lambda *args: 0
    runtime = FakeCupy().cuda.runtime
    told = np.zeros(32, np.int64)
    far, by, to = 1 << 40, 1 << 41, told.ctypes.data
    big = 1 << 33
    a, b, c = (
        MatrixWindow(0, 0, (step,), row, 1) for step, row in ((big, 5), (big + 1, 6), (big + 2, 7))
    )
    call = product(runtime, linked, Gemm("g", (3,), 2, 6, 5, a, b, c), dtypes.float32, tf32=True)
    call(0, far, by, to)
    given = [0, 0, 6, 2, 5, by, 0, 6, big + 1, far, 0, 5, big, 0, 7, big + 2, 3, 77, -1]
    assert told.tolist()[:19] == given
    alone = Gemm("g", (), 2, 6, 5, *[MatrixWindow(0, 0, (), w.row, 1) for w in (a, b, c)])
    product(runtime, linked, alone, dtypes.bfloat16, tf32=False)(0, far, by, to)
    assert told.tolist()[:15] == [0, 0, 6, 2, 5, by, 14, 6, far, 14, 5, 14, 7, 68, -1]


def test_a_library_that_is_not_there_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent() -> Any:
        raise ImportError("libcublas.so.13: cannot open shared object file")

    monkeypatch.setattr(cublas, "_module", absent)
    with pytest.raises(BackendError, match=r"libcublas.so.13.*pip install 'cupy-cuda13x\[ctk\]'"):
        opened(FakeCupy())


def test_the_library_of_cupy_has_these_functions() -> None:
    """Needs the packages and no GPU: a status says that there is no handle."""
    pytest.importorskip("cupy")
    libs = pytest.importorskip("cupy_backends.cuda.libs", exc_type=ImportError)
    try:
        assert libs.cublas
    except ImportError as error:
        pytest.skip(str(error))
    found = opened(FakeCupy())
    assert found.set_stream(None, 0) == 1, "CUBLAS_STATUS_NOT_INITIALIZED"
    assert "NOT_INITIALIZED" in str(found.error(1))


def test_the_library_is_loaded_by_cupys_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """That finds it where a wheel has put it; the module alone asks the system."""
    folder = ModuleType("cupy_backends.cuda.libs")
    module: Any = SimpleNamespace(__file__="cublas.so", CUBLASError=CUDADriverError)
    asked: list[str] = []

    def part(name: str) -> Any:
        asked.append(name)
        if name != "cublas":
            raise AttributeError(name)
        return module

    parts: Any = folder
    parts.__path__, parts.__getattr__ = [], part
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, folder.__name__, folder)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeCublas(dtypes.float32))
    monkeypatch.setattr(cublas, "typed", lambda library: library)
    assert opened(FakeCupy()).error is CUDADriverError
    assert "cublas" in asked
