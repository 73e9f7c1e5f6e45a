"""The header that runs CUDA text on the CPU: what it computes, and what it reports."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cuda.emit import Launch
from tests.backends.cuda.hosted import FORWARD, REVERSED, SHUFFLED, build, call, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
ORDERS = (FORWARD, REVERSED, SHUFFLED)
ALL = "0xffffffffu"
BODIES = {
    "places": "x[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x * 1000 + threadIdx.x;",
    "passed_on": "__shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();"
    "x[threadIdx.x] = s[63 - threadIdx.x];",
    "no_barrier": "__shared__ int s[64]; s[threadIdx.x] = x[threadIdx.x];"
    "x[threadIdx.x] = s[63 - threadIdx.x];",
    "down": f"x[threadIdx.x] = __shfl_down_sync({ALL}, x[threadIdx.x], 3);",
    "up": f"x[threadIdx.x] = __shfl_up_sync({ALL}, x[threadIdx.x], 3);",
    "across": f"x[threadIdx.x] = __shfl_xor_sync({ALL}, x[threadIdx.x], 5);",
    "from_one": f"x[threadIdx.x] = __shfl_sync({ALL}, x[threadIdx.x], 7);",
    "votes": f"x[threadIdx.x] = __ballot_sync({ALL}, threadIdx.x % 32 < 5);",
    "half_warps": "if (threadIdx.x % 32 < 16) x[threadIdx.x] = __ballot_sync(0xffffu, 1);"
    "else x[threadIdx.x] = __ballot_sync(0xffff0000u, threadIdx.x % 2);",
    "in_turn": "for (unsigned mask : {0xf8u, 0xfu})"
    "if (threadIdx.x < 32 && mask >> threadIdx.x & 1)"
    "x[threadIdx.x] += 1000 * __ballot_sync(mask, 1);",
    "some_miss": "if (threadIdx.x < 60) __syncthreads();",
    "two_places": "if (threadIdx.x < 60) __syncthreads(); else __syncthreads();",
    "lane_away": f"if (threadIdx.x != 5) __syncwarp({ALL});",
    "two_shuffles": f"if (threadIdx.x < 9) __syncwarp({ALL}); else __syncwarp({ALL});",
    "own_lane_not_named": "__syncwarp(0x7fffffffu);",
    "not_named": "if (threadIdx.x % 32 < 4) x[threadIdx.x] = __shfl_sync(0xfu, 1, 6);",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    kernels = [f'extern "C" __global__ void {k}(int *x)\n{{\n{v}\n}}' for k, v in BODIES.items()]
    launches = [launch_of(key) for key in BODIES]
    return build("\n".join(kernels), launches, tmp_path_factory.mktemp("host"))


def launch_of(key: str) -> Launch:
    return Launch(key, (0,), 1, 64)


def run(library: ctypes.CDLL, key: str, order: int) -> Any:
    array = np.arange(64, dtype=np.int32)
    call(library, launch_of(key), [array], order, 1)
    return array


NUMBERS = np.arange(64)
LANES = NUMBERS % 32


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("places", 1000 + NUMBERS),
        ("passed_on", 63 - NUMBERS),
        ("down", np.where(LANES + 3 < 32, NUMBERS + 3, NUMBERS)),
        ("up", np.where(LANES >= 3, NUMBERS - 3, NUMBERS)),
        ("across", NUMBERS ^ 5),
        ("from_one", NUMBERS // 32 * 32 + 7),
        ("votes", np.full(64, 31)),
        ("in_turn", NUMBERS + 1000 * (15 * (NUMBERS < 4) + 248 * ((NUMBERS > 2) & (NUMBERS < 8)))),
        ("half_warps", np.where(LANES < 16, 0xFFFF, np.int32(-0x55560000))),
    ],
)
def test_threads_of_a_block_work_together_as_in_cuda(
    library: ctypes.CDLL, key: str, expected: Any, order: int
) -> None:
    assert expected.tolist() == run(library, key, order).tolist()


def test_a_missing_barrier_gives_other_numbers_in_each_order(library: ctypes.CDLL) -> None:
    found = {run(library, "no_barrier", order).tobytes() for order in ORDERS}
    assert 3 == len(found)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("some_miss", "barrier: some threads of the block do not reach it"),
        ("two_places", "barrier: threads of the block wait at different ones"),
        ("lane_away", "warp: a lane that a mask names does not come"),
        ("two_shuffles", "warp: a lane that a mask names does not come"),
        ("own_lane_not_named", "warp: a lane that a mask names does not come"),
        ("not_named", "warp: a value is taken from a lane that the mask does not name"),
    ],
)
def test_what_would_hang_is_reported(
    library: ctypes.CDLL, key: str, message: str, order: int
) -> None:
    with pytest.raises(RuntimeError, match=f"^{message}$"):
        run(library, key, order)


def test_a_mask_names_lanes_that_are_there(tmp_path: Path) -> None:
    """A block of 20 threads has no lane 31; one of 2000 is none."""
    kernels = {20: "warp: a mask names a lane that is not there"}
    kernels[2000] = "launch: a block has 1 to 1024 threads"
    text = "\n".join([f"void k{n}(int *x) {{ __syncwarp({ALL}); }}" for n in kernels])
    launches = {n: Launch(f"k{n}", (0,), 1, n) for n in kernels}
    library = build(text, launches.values(), tmp_path)
    for threads, message in kernels.items():
        with pytest.raises(RuntimeError, match=f"^{message}$"):
            call(library, launches[threads], [np.zeros(1, np.int32)], FORWARD, 1)
