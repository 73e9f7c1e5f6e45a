"""Small kernels of 64 threads on 64 numbers: bodies and what they leave, bodies that are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ALL = "0xffffffffu"
NUMBERS = np.arange(64)
LANES = NUMBERS % 32
WARPS = NUMBERS // 32
I = "threadIdx.x"
SHARED = f"__shared__ int s[64]; s[{I}] = x[{I}];"


def texts(bodies: Mapping[str, str]) -> str:
    """A kernel of one argument for each body."""
    kernels = [f'extern "C" __global__ void {k}(int *x)\n{{\n{v}\n}}' for k, v in bodies.items()]
    return "\n".join(kernels)


def put(value: str) -> str:
    """A body that stores a value of each thread."""
    return f"x[{I}] = {value};"


COMPUTED: dict[str, tuple[str, Any]] = {
    "places": ("x[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x * 9 + threadIdx.x;",
               9 + NUMBERS),
    "passed_on": (f"{SHARED} __syncthreads(); {put(f's[63 - {I}]')}", 63 - NUMBERS),
    "within_a_warp": (f"{SHARED} __syncwarp(); {put(f's[{I} ^ 3]')}", NUMBERS ^ 3),
    # Shuffles.
    "down": (put(f"__shfl_down_sync({ALL}, x[{I}], 3)"),
             np.where(LANES + 3 < 32, NUMBERS + 3, NUMBERS)),
    "up": (put(f"__shfl_up_sync({ALL}, x[{I}], 3)"), np.where(LANES >= 3, NUMBERS - 3, NUMBERS)),
    "across": (put(f"__shfl_xor_sync({ALL}, x[{I}], 5)"), NUMBERS ^ 5),
    "from_one": (put(f"__shfl_sync({ALL}, x[{I}], 7)"), WARPS * 32 + 7),
    "down_8": (put(f"__shfl_down_sync({ALL}, x[{I}], 3, 8)"),
               np.where(NUMBERS % 8 + 3 < 8, NUMBERS + 3, NUMBERS)),
    "up_8": (put(f"__shfl_up_sync({ALL}, x[{I}], 3, 8)"),
             np.where(NUMBERS % 8 >= 3, NUMBERS - 3, NUMBERS)),
    "from_one_8": (put(f"__shfl_sync({ALL}, x[{I}], 11, 8)"), NUMBERS // 8 * 8 + 3),
    # The segment before may be reached, the one behind may not.
    "across_8": (put(f"__shfl_xor_sync({ALL}, x[{I}], 8, 8)"),
                 np.where(NUMBERS // 8 % 2, NUMBERS - 8, NUMBERS)),
    "halves": (put(f"(int)__shfl_down_sync({ALL}, (double)x[{I}], 1)"),
               np.where(LANES < 31, NUMBERS + 1, NUMBERS)),
    # Votes.
    "votes": (put(f"__ballot_sync({ALL}, {I} % 32 < 5)"), 31),
    "any": (put(f"__any_sync({ALL}, {I} == 40)"), WARPS),
    "all": (put(f"__all_sync({ALL}, {I} != 40)"), 1 - WARPS),
    "matching": (put(f"__match_any_sync({ALL}, {I} % 16)"),
                 np.uint32(0x10001 << LANES % 16).view(np.int32)),
    "half_warps": (f"if ({I} % 32 < 16) x[{I}] = __ballot_sync(0xffffu, 1);"
                   f"else x[{I}] = __ballot_sync(0xffff0000u, {I} % 2);",
                   np.where(LANES < 16, 0xFFFF, -0x55560000)),
    "in_turn": ("const unsigned masks[2] = {0xf8u, 0xfu}; for (unsigned mask : masks)"
                f"if ({I} < 32 && mask >> {I} & 1) x[{I}] += 1000 * __ballot_sync(mask, 1);",
                NUMBERS + 1000 * (15 * (NUMBERS < 4) + 248 * ((NUMBERS > 2) & (NUMBERS < 8)))),
    "sums": (put(f"__reduce_add_sync({ALL}, x[{I}])"), 496 + 1024 * WARPS),
    "least": (put(f"__reduce_min_sync({ALL}, 7 - x[{I}])"), -24 - 32 * WARPS),
    "most": (put(f"__reduce_max_sync({ALL}, x[{I}] - 9)"), 22 + 32 * WARPS),
    "bits": (put(f"(int)__reduce_or_sync({ALL}, (unsigned)x[{I}])"), 31 + 32 * WARPS),
    "odd_bits": (put(f"(int)__reduce_xor_sync({ALL}, (unsigned)({I} % 32 < 3) << {I} % 4)"), 7),
    "lanes_there": (put("__popc(__activemask())"), 32),
    # Votes of the block.
    "counted": (put(f"__syncthreads_count({I} % 3 == 0)"), 22),
    "some": (put(f"__syncthreads_or({I} == 63) + 2 * __syncthreads_or(0)"), 1),
    "every": (put(f"__syncthreads_and({I} < 64) + 2 * __syncthreads_and({I})"), 1),
    # Memory.
    "vectors": (f"if ({I} < 16) ((int4 *)x)[{I}] = make_int4({I}, 1, 2, 3);",
                np.where(NUMBERS % 4, NUMBERS % 4, NUMBERS // 4)),
    "hints": (f"const int v = __ldg(x + {I}); __stcs(x + {I}, v + 1);", NUMBERS + 1),
    "atomics": (f"__shared__ int s[1]; if (!{I}) s[0] = 0; __syncthreads();"
                f"atomicAdd(s, x[{I}]); __syncthreads(); {put('s[0]')}", 2016),
    # Numbers.
    "high": (put(f"__umulhi(0x80000000u, {I}) + __mulhi(-1, 5)"), NUMBERS // 2 - 1),
    "high_64": (put(f"(int)__umul64hi(1ull << 63, {I})"), NUMBERS // 2),
    "leading": (put(f"__clz({I}) + __popc({I})"),
                [32 - int(k).bit_length() + int(k).bit_count() for k in NUMBERS]),
    "turned_bits": (put(f"__funnelshift_l({I}, {I}, 31) == __funnelshift_r({I}, {I}, 1)"), 1),
    "extremes": (put(f"min((int){I}, 9) + max((int){I}, 50)"),
                 np.minimum(NUMBERS, 9) + np.maximum(NUMBERS, 50)),
}  # fmt: skip

READ = f"x[0] += x[{I}];"
REPORTED: dict[str, tuple[str, str]] = {
    # CUDA-1
    "some_miss": (f"if ({I} < 60) __syncthreads();",
                  "barrier: some threads of the block do not reach it"),
    "two_places": (f"if ({I} < 60) __syncthreads(); else __syncthreads();",
                   "barrier: threads of the block wait at different ones"),
    "left": (f"if ({I} == 5) return; __syncthreads();",
             "barrier: some threads of the block do not reach it"),
    # CUDA-2
    "lane_away": (f"if ({I} != 5) __syncwarp({ALL});",
                  "warp: a lane that a mask names does not come"),
    "two_shuffles": (f"if ({I} < 9) __syncwarp({ALL}); else __syncwarp({ALL});",
                     "warp: a lane that a mask names does not come"),
    "two_masks": (f"__ballot_sync({I} % 32 < 9 ? {ALL} : 0xffffff00u, 1);",
                  "warp: a lane that a mask names does not come"),
    "own_lane_not_named": ("__syncwarp(0x7fffffffu);",
                           "warp: a lane comes that its own mask does not name"),
    "no_lane_named": ("__ballot_sync(0, 1);",
                      "warp: a lane comes that its own mask does not name"),
    "not_named": (f"if ({I} % 32 < 4) {put('__shfl_sync(0xfu, 1, 6)')}",
                  "warp: a value is taken from a lane that the mask does not name"),
    "down_not_named": (f"if ({I} % 32 < 4) {put('__shfl_down_sync(0xfu, 1, 2)')}",
                       "warp: a value is taken from a lane that the mask does not name"),
    "across_not_named": (f"if ({I} % 32 < 4) {put('__shfl_xor_sync(0xfu, 1, 4)')}",
                         "warp: a value is taken from a lane that the mask does not name"),
    "odd_width": (put(f"__shfl_sync({ALL}, 1, 0, 6)"),
                  "warp: the width of a shuffle is no power of two up to 32"),
    "trapped": (f"if ({I} == 3) __trap();", "trap: the kernel gives up"),
}  # fmt: skip

CHECKED: dict[str, tuple[str, str]] = {
    # CUDA-3
    "unwritten": (f"__shared__ int s[64]; if ({I} < 9) s[{I}] = 1; __syncthreads();"
                  f"{put(f's[{I}]')}",
                  "unwritten: thread .* of block 0 reads 4 bytes at byte .* of shared memory"),
    # CUDA-4
    "read_behind": (put(f"x[{I} + 1]").replace("x[t", "if (threadIdx.x == 63) x[t", 1),
                    "out of bounds: thread 63 of block 0 reads 4 bytes at byte 256 of buffer 0, "
                    "which has 256"),
    "read_before": (f"if ({I} == 9) {put('x[-1]')}",
                    "out of bounds: thread 9 of block 0 reads 4 bytes at byte -4 of buffer 0"),
    "written_behind": (f"x[{I} + 1] = 1;",
                       "out of bounds: thread 63 of block 0 writes 4 bytes at byte 256"),
    "far_away": (f"if ({I} == 9) x[1ll << 40] = 1;", "out of bounds: thread 9 .* at address 0x"),
    "part_behind": (f"if ({I} == 1) *(long long *)(x + 63) = 1;",
                    "out of bounds: thread 1 of block 0 writes 8 bytes at byte 252"),
    "atomic_behind": (f"if ({I} == 1) atomicAdd(x + 64, 1);",
                      "out of bounds: thread 1 of block 0 changes 4 bytes at byte 256"),
    "local_behind": (f"int s[4]; for (int k = 0; k <= 4; ++k) s[k] = x[k]; {put('s[0]')}",
                     "out of bounds: thread .* of block 0 has index 4 of an array, line"),
    "shared_behind": (f"__shared__ int s[64]; s[{I} + 1] = 1;",
                      "out of bounds: thread 63 of block 0 has index 64 of an array, line"),
    "dynamic_behind": (f"extern __shared__ int s[]; s[{I}] = 1;",
                       "out of bounds: thread .* of block 0 writes 4 bytes"),
    # CUDA-5
    "misaligned": (f"if ({I} == 2) *(int4 *)(x + 1) = make_int4(1, 2, 3, 4);",
                   "misaligned: thread 2 of block 0 writes 16 bytes at byte 4 of buffer 0"),
    "misaligned_2": (f"if ({I} == 2) *(float2 *)(x + 3) = make_float2(1, 2);",
                     "misaligned: thread 2 of block 0 writes 8 bytes at byte 12 of buffer 0"),
    "misaligned_read": (f"const uint4 v = *(const uint4 *)(x + 2); if ({I} == 0) {put('v.x')}",
                        "misaligned: thread .* of block 0 reads 16 bytes at byte 8"),
    # CUDA-7
    "no_barrier": (f"{SHARED} s[{I} ^ 33] += 1;",
                   "race in a block: thread .* of block 0 .* of shared memory|unwritten"),
    "read_then_written": (f"{SHARED} __syncthreads(); const int v = s[{I} ^ 1]; s[{I}] = v;",
                          "race in a block: thread .* of block 0 .* of shared memory"),
    "shuffle_is_no_order": (f"{SHARED} __shfl_sync({ALL}, 1, 0); {put(f's[{I} ^ 1]')}",
                            "race in a block|unwritten"),
    "warps_are_not_in_step": (f"{SHARED} __syncwarp(); {put(f's[{I} ^ 32]')}",
                              "race in a block|unwritten"),
    "global_in_block": (f"x[{I} / 2] = 1;",
                        "race in a block: thread .* of block 0 writes 4 bytes at byte .* of buf"),
    "loads_and_stores": (f"const int v = x[{I} ^ 1]; if ({I} % 2) {put('v')}", "race in a block"),
    "atomic_and_plain": (f"atomicAdd(x, 1); if ({I} == 5) {put('x[0]')}", "race in a block"),
}  # fmt: skip

BETWEEN: dict[str, tuple[str, str]] = {
    # CUDA-6
    "both_write": (put("1"), "race between blocks: thread .* of block . writes 4 bytes"),
    "one_reads": (f"if (blockIdx.x) x[{I}] = 1; else if ({I} == 7) {put('x[7]')}",
                  "race between blocks: thread 7 of block ."),
    "atomic_and_write": (f"if (blockIdx.x) atomicAdd(x, 1); else if (!{I}) x[0] = 1;",
                         "race between blocks"),
    "after_a_barrier": (f"if (blockIdx.x) x[{I}] = 1; __syncthreads();"
                        f"if (!blockIdx.x) x[{I}] = 1;", "race between blocks"),
}  # fmt: skip
