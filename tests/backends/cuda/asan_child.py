"""Printed kernels under AddressSanitizer, whose library a process must have from its start.

`python -m tests.backends.cuda.asan_child FOLDER WHAT`, started by `test_asan.py`. Buffers are of
exactly their bytes, from malloc, so that what is read behind them is seen.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.testing.cuda.host_execution import host_library
from tests.backends.cpu.helpers.printing import interpreted, same_bits
from tests.backends.cuda.helpers import cuda_cases, hosted

FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address")
PLANTED = """
extern "C" __global__ void planted(float *x)
{
    float kept[8];
    float *at = kept;
    for (int k = 0; k < 8; ++k) at[k] = x[k];
    x[threadIdx.x] = at[threadIdx.x + (int)x[0]];
}
extern "C" __global__ void behind(float *x) { x[threadIdx.x] = x[threadIdx.x + 1]; }
"""
_LIBC = ctypes.CDLL(None)
_LIBC.malloc.restype = ctypes.c_void_p
_LIBC.malloc.argtypes = [ctypes.c_size_t]


def exact(array: Any, shift: int = 0) -> Any:
    """A copy in memory of its own, of no more bytes; never given back."""
    memory = _LIBC.malloc(max(array.nbytes, 1))
    room = (ctypes.c_char * array.nbytes).from_address(memory)
    copy = np.frombuffer(room, array.dtype, array.size)
    copy[...] = array.reshape(-1)
    return copy


def run_all(folder: Path, seeds: range) -> list[str]:
    """Programs that do not leave what the interpreter leaves; an access that is wrong ends all."""
    hosted.placed = exact
    cases = {
        **cuda_cases.drawn(seeds),
        **{f"w{key}": case for key, case in cuda_cases.drawn(seeds, in_place=True).items()},
        **cuda_cases.functions(),
        **cuda_cases.ordered(),
    }
    programs = {key: program for key, (program, _) in cases.items()}
    library = hosted.Hosted(programs, folder, *FLAGS, checked=False)
    wrong = []
    for key, (program, inputs) in cases.items():
        expected, found = interpreted(program, inputs), library.run(key, inputs, hosted.SHUFFLED)
        numbers = cuda_cases.written(program)
        if not all(same_bits(expected[n], found[n]) for n in numbers):
            wrong.append(key)
    return wrong


def run_planted(folder: Path, name: str) -> None:
    """A kernel that AddressSanitizer must stop."""
    library = host_library(PLANTED, {"planted": 1, "behind": 1}, folder, *FLAGS)
    array = exact(np.arange(1, 33, dtype=np.float32))
    library.launch(name, [array.ctypes.data], 1, 32)


def main() -> None:
    folder, what = Path(sys.argv[1]), sys.argv[2]
    if what == "all":
        print("wrong:", run_all(folder, range(int(sys.argv[3]))))
    else:
        run_planted(folder, what)


if __name__ == "__main__":
    main()
