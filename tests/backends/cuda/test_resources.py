"""Registers, spills and memory of kernels, as NVRTC's assembler says them, without a GPU."""

from __future__ import annotations

import pytest

from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.driver.kernel_resources import (
    Resources,
    compile_with_resources,
    compile_without_spills,
    parsed,
)
from aotlite.backends.cuda.target import A100, H100, Target
from aotlite.ir.errors import BackendError

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)
PLAIN = """
extern "C" __global__ void plain(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
HEAVY = """
extern "C" __global__ void __launch_bounds__(1024, 2) heavy(const float *x, float *y)
{
    __shared__ float s[96];
    float kept[64];
    #pragma unroll
    for (int k = 0; k < 64; ++k) kept[k] = x[k * 1024 + threadIdx.x];
    s[threadIdx.x % 96] = kept[5];
    __syncthreads();
    float total = s[3];
    for (int round = 0; round < 9; ++round) {
        #pragma unroll
        for (int k = 0; k < 64; ++k) total = total * kept[k] + kept[63 - k];
    }
    y[threadIdx.x] = total;
}
extern "C" __global__ void indexed(const int *x, float *y)
{
    float kept[40];
    for (int k = 0; k < 40; ++k) kept[(k * x[2]) % 40] = y[k];
    y[0] = kept[x[0]] + kept[x[1]];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_what_kernels_use_is_told(architecture: str) -> None:
    """64 values do not fit into the 32 registers that two blocks of 1024 threads leave."""
    cubin, found = compile_with_resources(PLAIN + HEAVY, architecture)
    assert cubin.startswith(b"\x7fELF")
    assert {"plain", "heavy", "indexed"} == set(found)
    plain, heavy, indexed = found["plain"], found["heavy"], found["indexed"]
    assert (0, 0, 0, 0, 0) == (
        plain.spill_stores, plain.spill_loads, plain.stack, plain.shared, plain.barriers
    )  # fmt: skip
    assert heavy.registers == 32 and heavy.spill_stores and heavy.spill_loads and heavy.stack
    assert (384, 1) == (heavy.shared, heavy.barriers)
    assert indexed.stack >= 160 and not indexed.spill_stores


@needs_nvrtc
@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", [A100, H100], ids=["sm_80", "sm_90"])
def test_what_spills_gets_registers_as_long_as_a_block_leaves_any(target: Target) -> None:
    """64 values need more registers than 1024 threads can have, and than 256 do four times."""
    few = HEAVY.replace("(1024, 2)", "(256, 8)").replace("1024", "256")
    _, spilled = compile_with_resources(few, target.architecture)
    assert spilled["heavy"].spill_loads and 32 == spilled["heavy"].registers
    _, found = compile_without_spills(few, target)
    assert (0, 0) == (found["heavy"].spill_stores, found["heavy"].spill_loads)
    assert 64 < found["heavy"].registers <= 128
    assert spilled["indexed"] == found["indexed"]
    _, found = compile_without_spills(HEAVY, target)
    assert 64 == found["heavy"].registers and found["heavy"].spill_loads


def used(registers: int = 32, shared: int = 0) -> Resources:
    return Resources("f", registers, 0, 0, 0, shared, 0, 1)


def test_blocks_of_a_multiprocessor_are_bounded_by_what_runs_out_first() -> None:
    assert 2 == used(32).blocks(1024, H100)
    assert 1 == used(33).blocks(1024, H100)
    assert 32 == used(16).blocks(32, H100)
    assert 2 == used(255).blocks(128, A100)
    assert 4 == used(32, 50_000).blocks(256, H100)
    assert 4 == used(32).blocks(256, H100, dynamic=50_000)
    assert 1 == used(32).blocks(256, H100, dynamic=227 << 10)
    assert 0.75 == used(40).occupancy(256, A100)


def test_a_log_of_another_kind_is_an_error() -> None:
    with pytest.raises(BackendError, match="cuda: ptxas says .* expected registers and spills"):
        parsed("Compiling entry function 'f' for 'sm_90'\n")
    assert {} == parsed("")
