"""The BLAS that NumPy has loaded: addresses of its matrix products, which compiled code calls.

A symbol lookup in NumPy's own extension module finds the library that NumPy was linked with,
whichever others (PyTorch's MKL, SciPy's OpenBLAS) the process has loaded. Before an address is used
it is tried on small products: a name may hide integers of another width. Spec:
`specs/cpu_runtime.md`.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

_PRODUCTS = (
    ("scipy_cblas_{}64_", True),
    ("cblas_{}64_", True),
    ("cblas_{}$NEWLAPACK$ILP64", True),
    ("scipy_cblas_{}", False),
    ("cblas_{}$NEWLAPACK", False),
    ("cblas_{}", False),
)
"""(pattern of the functions' names, whether they take integers of 64 bits), in order of trial."""

_CONTROLS = (
    "scipy_openblas_{}64_",
    "openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}",
)
_OWN_THREADS = (0, 1)
"""Results of OpenBLAS's get_parallel with which the number of threads can be set: 0 for sequential,
1 for OpenBLAS's own threads. With OpenMP (2) each calling thread has its own number, so that one
thread cannot set it for a pool."""


@attrs.frozen
class Blas:
    """A BLAS: the addresses of its products and controls, 0 for one that it has not."""

    name: str
    sgemm: int
    dgemm: int
    wide: bool
    """Whether its functions take integers of 64 bits (ILP64)."""
    get_threads: int = 0
    set_threads: int = 0
    """0 where the number of its threads cannot be set."""
    core: str = ""
    """The processor that it has chosen its kernels for, such as "Haswell"; empty: unknown."""

    def threads(self) -> int | None:
        """Returns the number of threads that it uses now; None where it does not say."""
        if not self.get_threads:
            return None
        return ctypes.CFUNCTYPE(ctypes.c_int)(self.get_threads)()


def find_blas() -> Blas | None:
    """Returns NumPy's BLAS; None where its products are not found or fail the trial."""
    for library in _extension_modules():
        for pattern, wide in _PRODUCTS:
            sgemm, dgemm = (_address(library, pattern.format(n)) for n in ("sgemm", "dgemm"))
            if sgemm and dgemm and (wide or not _has_unnamed_wide_integers()):
                blas = Blas(pattern.format("gemm"), sgemm, dgemm, wide, **_controls(library))
                return blas if multiplies(blas) else None
    return None


def _extension_modules() -> Iterator[ctypes.CDLL]:
    """Yields the modules of NumPy that are linked with a BLAS; they are loaded already."""
    for name in ("numpy._core._multiarray_umath", "numpy.linalg._umath_linalg"):
        try:
            path = importlib.import_module(name).__file__
            if path is not None:
                yield ctypes.CDLL(path)
        except (ImportError, OSError):  # another NumPy, or one that is linked statically
            continue


def _address(library: ctypes.CDLL, name: str) -> int:
    """Returns a function's address; 0 where the library and its dependencies have none."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _has_unnamed_wide_integers() -> bool:
    """Whether functions without `64` in their names take integers of 64 bits, as MKL's ILP64 do."""
    dependencies: Any = getattr(np.__config__, "CONFIG", {}).get("Build Dependencies", {})
    return "ilp64" in str(dependencies.get("blas", "")).lower()


def _controls(library: ctypes.CDLL) -> dict[str, Any]:
    """Returns the fields of `Blas` that only OpenBLAS has; empty for another BLAS."""
    for pattern in _CONTROLS:
        names = ("get_num_threads", "set_num_threads", "get_parallel")
        get_threads, set_threads, kind = (_address(library, pattern.format(n)) for n in names)
        if not (get_threads and set_threads and kind):
            continue
        core = _address(library, pattern.format("get_corename"))
        found: dict[str, Any] = {"core": _text(core), "get_threads": get_threads}
        if ctypes.CFUNCTYPE(ctypes.c_int)(kind)() in _OWN_THREADS:
            found["set_threads"] = set_threads
        return found
    return {}


def _text(address: int) -> str:
    text = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)() if address else b""
    return (text or b"").decode("ascii", "replace")


_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112


def multiplies(blas: Blas) -> bool:
    """Whether sgemm and dgemm multiply small integers exactly, with B plain and transposed."""
    return all(
        _multiplies(address, blas.wide, dtype, transposed)
        for address, dtype in ((blas.sgemm, np.float32), (blas.dgemm, np.float64))
        for transposed in (False, True)
    )


def _multiplies(address: int, wide: bool, dtype: type[np.floating[Any]], transposed: bool) -> bool:
    m, n, k = 5, 7, 3
    a = np.arange(m * k, dtype=dtype).reshape(m, k)
    b = np.arange(k * n, dtype=dtype).reshape(k, n)[:, ::-1].copy()
    c = np.full((m, n), np.nan, dtype)
    stored = np.ascontiguousarray(b.T) if transposed else b
    size = ctypes.c_int64 if wide else ctypes.c_int32
    real = ctypes.c_float if dtype is np.float32 else ctypes.c_double
    kinds = (ctypes.c_int, ctypes.c_int, ctypes.c_int, size, size, size, real, ctypes.c_void_p)
    rest = (size, ctypes.c_void_p, size, real, ctypes.c_void_p, size)
    layout = (_ROW_MAJOR, _PLAIN, _TRANSPOSED if transposed else _PLAIN)
    operands = (a.ctypes.data, k, stored.ctypes.data, k if transposed else n)
    ctypes.CFUNCTYPE(None, *kinds, *rest)(address)(
        *layout, m, n, k, 1.0, *operands, 0.0, c.ctypes.data, n
    )
    expected = a.astype(int) @ b.astype(int)
    return bool((c == expected).all())
