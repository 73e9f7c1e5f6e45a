"""The header that runs CUDA text on the CPU: what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.emit.cuda_program import Launch
from aotlite.ir.errors import BackendError, MissingExtraError
from aotlite.testing.cuda import host_execution
from aotlite.testing.cuda.host_execution import CheckedRegion, HostLibrary
from tests.backends.cuda.helpers.host_kernels import COMPUTED, NUMBERS, texts
from tests.backends.cuda.helpers.hosted import ORDERS, build, call, compiler, placed

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "unchecked"])
def library(tmp_path_factory: pytest.TempPathFactory, request: Any) -> HostLibrary:
    launches = [Launch(key, (0,), 1, 64) for key in COMPUTED]
    text = texts({key: body for key, (body, _) in COMPUTED.items()})
    return build(text, launches, tmp_path_factory.mktemp("host"), checked=request.param)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("key", COMPUTED)
def test_threads_of_a_block_work_together_as_in_cuda(
    library: HostLibrary, key: str, order: int
) -> None:
    array = placed(np.arange(64, dtype=np.int32))
    call(library, Launch(key, (0,), 1, 64), [array], order, 1)
    assert np.broadcast_to(COMPUTED[key][1], 64).tolist() == array.tolist()


def test_a_missing_barrier_gives_other_numbers_in_each_order(tmp_path: Path) -> None:
    body = "__shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x];"
    body += "x[threadIdx.x] = s[63 - threadIdx.x];"
    library = build(texts({"f": body}), [Launch("f", (0,), 1, 64)], tmp_path, checked=False)
    found = set()
    for order in ORDERS:
        array = np.arange(64, dtype=np.int32)
        call(library, Launch("f", (0,), 1, 64), [array], order, 1)
        found.add(array.tobytes())
    assert 3 == len(found)


PLACES = """
extern "C" __global__ void places(int *x)
{
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    x[block * 24 + thread] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * block;
}
extern "C" __global__ void added(int *x, float *y)
{
    atomicAdd(x, 1);
    atomicMax(x + 1, (int)blockIdx.x);
    atomicCAS(x + 2, 0, 5);
    atomicAdd(y, 0.5f);
}
extern "C" __global__ void turned(const int *x, int *y)
{
    extern __shared__ __align__(16) unsigned char first[];
    extern __shared__ int second[];
    ((int *)first)[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = second[63 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    count = {"places": 1, "added": 2, "turned": 2}
    folder = tmp_path_factory.mktemp("several")
    return host_execution.host_library(PLACES, count, folder, "-O0", *host_execution.CHECKED)


def regions(*arrays: Any) -> list[CheckedRegion]:
    return [CheckedRegion(a.ctypes.data, a.nbytes, a.itemsize, k) for k, a in enumerate(arrays)]


def test_grids_and_blocks_have_three_dimensions(several: HostLibrary) -> None:
    array = np.zeros((5, 3, 2, 4, 3, 2), np.int32)
    several.launch("places", [array.ctypes.data], (2, 3, 5), (2, 3, 4), memory=regions(array))
    block = np.arange(30).reshape(5, 3, 2, 1, 1, 1)
    z, y, x = np.ogrid[:4, :3, :2]
    assert np.array_equal(1000 * block + 100 * z + 10 * y + x, array)


@pytest.mark.parametrize("order", ORDERS)
def test_atomics_of_all_blocks_add_up(several: HostLibrary, order: int) -> None:
    x, y = np.zeros(3, np.int32), np.zeros(1, np.float32)
    several.launch(
        "added", [x.ctypes.data, y.ctypes.data], 3, 40, order=order, memory=regions(x, y)
    )
    assert ([120, 2, 5], [60.0]) == (x.tolist(), y.tolist())


def test_arrays_of_dynamic_shared_memory_begin_where_it_begins(several: HostLibrary) -> None:
    x, y = placed(NUMBERS.astype(np.int32)), np.zeros(64, np.int32)
    several.launch(
        "turned", [x.ctypes.data, y.ctypes.data], 1, 64, shared=256, memory=regions(x, y)
    )
    assert (63 - NUMBERS).tolist() == y.tolist()


def test_16_bit_floats_are_rounded_once(tmp_path: Path) -> None:
    """All of them, and what lies between two: from float32, from float64, and back."""
    text = (
        'extern "C" __global__ void f(const double *x, unsigned short *a, unsigned short *b,'
        "float *c, unsigned short *d, float *e)\n"
        "{ for (int k = threadIdx.x; k < 131072; k += 64) {\n"
        "a[k] = cvt_f16_f64(x[k]); b[k] = cvt_f16_f32((float)x[k]); c[k] = cvt_f32_f16(a[k]);\n"
        "d[k] = cvt_bf16_f32((float)x[k]); e[k] = cvt_f32_bf16(d[k]); } }"
    )
    import ml_dtypes

    library = host_execution.host_library(text, {"f": 6}, tmp_path, "-O1")
    every = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        halves = every.view(np.float16).astype(np.float64)
        x = np.concatenate([halves * (1 + 2.0**-12), every.view(ml_dtypes.bfloat16) * 1.001])
        x = np.ascontiguousarray(x, np.float64)
        bits = [np.zeros(1 << 17, kind) for kind in ("u2", "u2", "f4", "u2", "f4")]
        library.launch("f", [x.ctypes.data, *[each.ctypes.data for each in bits]], 1, 64)
        a, b, c, d, e = bits
        single, brain = x.astype(np.float32), x.astype(np.float32).astype(ml_dtypes.bfloat16)
        number = ~np.isnan(x)
        assert np.array_equal(x.astype(np.float16).view(np.uint16)[number], a[number])
        assert np.array_equal(single.astype(np.float16).view(np.uint16)[number], b[number])
        assert np.array_equal(brain.view(np.uint16)[number], d[number])
        np.testing.assert_array_equal(a.view(np.float16).astype(np.float32), c)
        np.testing.assert_array_equal(d.view(ml_dtypes.bfloat16).astype(np.float32), e)
        assert np.isnan(c[~number]).all() and np.isnan(e[~number]).all()


def test_a_text_that_the_compiler_refuses_is_an_error_with_its_messages(tmp_path: Path) -> None:
    with pytest.raises(
        BackendError, match=r"(?s)cuda on a CPU: .* gives 1, expected a text.*missing"
    ):
        host_execution.host_library("void f() { missing; }", {}, tmp_path)


def test_without_a_compiler_the_error_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"no C\+\+ compiler, expected g\+\+ or clang"):
        host_execution.host_library("", {}, tmp_path)
