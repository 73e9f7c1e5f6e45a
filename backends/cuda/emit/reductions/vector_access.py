"""Vectorized accesses of kernels of rows, in CUDA C++.

`copy_block` copies bytes by aligned accesses of at most 16. A kernel tests its buffers' alignment
once, since an input is a window that may begin anywhere. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotlite.backends.cuda.emit.reductions.thread_layout import ACCESS

VECTORS = """\
struct alignas(2) block2 { u16 part; };
struct alignas(4) block4 { u32 part; };
struct alignas(8) block8 { u32 part[2]; };
struct alignas(16) block16 { u32 part[4]; };
template <class Block, int count, class To, class From>
INLINE void copy_block(To *to, const From *from)
{
#pragma unroll
    for (int k = 0; k < count; ++k) ((Block *)to)[k] = ((const Block *)from)[k];
}
"""


def copied(nbytes: int, to: str, source: str) -> str:
    """Returns the statement that copies `nbytes` bytes, a power of two, between aligned places."""
    if nbytes == 1:
        return f"*({to}) = *({source});"
    block = min(nbytes, ACCESS)
    return f"copy_block<block{block}, {nbytes // block}>({to}, {source});"


def are_aligned(buffers: Sequence[int], nbytes: int) -> str:
    """Returns the condition that buffers begin at multiples of `nbytes`."""
    places = " | ".join([f"(u64)b{number}" for number in buffers])
    return f"(({places}) & {nbytes - 1}) == 0"


def unrolled(head: str, lines: Sequence[str]) -> list[str]:
    """Returns a loop that the compiler unrolls."""
    return ["#pragma unroll", f"{head} {{", *lines, "}"]
