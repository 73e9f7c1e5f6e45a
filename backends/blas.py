"""The BLAS that NumPy has loaded: addresses of its matrix products, for compiled code to call.

Found through NumPy's own extension module, whose symbol lookup leads to the library that it was
linked with, whatever else (PyTorch's MKL, SciPy's copy) the process has loaded. What is found is
tried on small products before it is believed. Spec: `specs/cpu_runtime.md`.
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
"""Patterns of names, and whether these functions take integers of 64 bits."""

_CONTROLS = (
    "scipy_openblas_{}64_",
    "openblas_{}64_",
    "scipy_openblas_{}",
    "openblas_{}",
)
_OWN_THREADS = (0, 1)
"""What OpenBLAS says of how it divides work: not, or by threads of its own. With OpenMP (2) the
number of threads is each calling thread's own, so that it cannot be set for a pool."""


@attrs.frozen
class Blas:
    """Addresses of functions of the BLAS, and what is known of it."""

    name: str
    sgemm: int
    dgemm: int
    wide: bool
    """Whether its integers have 64 bits."""
    get_threads: int = 0
    set_threads: int = 0
    """0 where the number of its threads cannot be set."""
    core: str = ""
    """The kind of processor that it has chosen its kernels for; empty where it does not say."""

    def threads(self) -> int | None:
        """How many threads it uses now; None where it does not say."""
        if not self.get_threads:
            return None
        return ctypes.CFUNCTYPE(ctypes.c_int)(self.get_threads)()


def find_blas() -> Blas | None:
    """NumPy's BLAS; None where its products are not found, or do not compute what they should."""
    for library in _extension_modules():
        for pattern, wide in _PRODUCTS:
            sgemm, dgemm = (_address(library, pattern.format(n)) for n in ("sgemm", "dgemm"))
            if sgemm and dgemm and (wide or not _has_unnamed_wide_integers()):
                blas = Blas(pattern.format("gemm"), sgemm, dgemm, wide, **_controls(library))
                return blas if multiplies(blas) else None
    return None


def _extension_modules() -> Iterator[ctypes.CDLL]:
    """Those modules of NumPy that are linked with a BLAS; they are loaded already."""
    for name in ("numpy._core._multiarray_umath", "numpy.linalg._umath_linalg"):
        try:
            path = importlib.import_module(name).__file__
            if path is not None:
                yield ctypes.CDLL(path)
        except (ImportError, OSError):  # another NumPy, or one that is linked statically
            continue


def _address(library: ctypes.CDLL, name: str) -> int:
    """0 where the library and those that it depends on have no such function."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _has_unnamed_wide_integers() -> bool:
    """Whether functions with plain names take integers of 64 bits, as those of MKL's ILP64."""
    dependencies: Any = getattr(np.__config__, "CONFIG", {}).get("Build Dependencies", {})
    return "ilp64" in str(dependencies.get("blas", "")).lower()


def _controls(library: ctypes.CDLL) -> dict[str, Any]:
    """What sets and tells the number of threads, and the core; empty where it is another BLAS."""
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
    """Whether both products of small integers are exact, transposed operands included."""
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
