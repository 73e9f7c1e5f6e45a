"""Kernels printed as CUDA and run on the CPU: the bits of the interpreter, in any thread order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.emit.cuda_program import Launch, print_program, print_units
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Gemm, LoopProgram, MatrixWindow, Store
from aotlite.ir.dtypes import complex64, float32
from aotlite.ir.errors import BackendError
from aotlite.ir.scalar.expression import Affine, load
from tests.backends.cpu.helpers.chosen_kernels import program as kernel_program
from tests.backends.cpu.helpers.printing import interpreted, same_bits
from tests.backends.cuda.helpers import cuda_cases
from tests.backends.cuda.helpers.cuda_cases import Cases, centered, inputs_of, written
from tests.backends.cuda.helpers.hosted import (
    FORWARD,
    REVERSED,
    SHUFFLED,
    Hosted,
    build,
    call,
    compiler,
)

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


def differences(cases: Cases, folder: Path, *flags: str) -> list[str]:
    """Programs and thread orders that do not leave what the interpreter leaves."""
    hosted = Hosted({key: program for key, (program, _) in cases.items()}, folder, *flags)
    found = []
    for key, (program, inputs) in cases.items():
        expected = interpreted(program, inputs)
        # Reversed, a block computes many rows; else it computes one.
        for order, most in ((FORWARD, 1 << 30), (REVERSED, 2), (SHUFFLED, 1 << 30)):
            memory = hosted.run(key, inputs, order, most)
            if not all(same_bits(expected[k], memory[k]) for k in written(program)):
                found.append(f"{key}, order {order}\n{program}")
    return found


@pytest.mark.slow("compiles dozens of kernels for the host")
@needs_compiler
def test_kernels_on_fibers_give_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    """All in one compilation, which takes most of the time."""
    cases = {
        **cuda_cases.chosen(),
        **cuda_cases.drawn(range(5)),
        **{f"w{k}": case for k, case in cuda_cases.drawn(range(4), in_place=True).items()},
        **cuda_cases.functions(),
        **cuda_cases.halves(),
        **cuda_cases.ordered(),
    }
    assert [] == differences(cases, tmp_path)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("first", range(100, 700, 100))
def test_many_drawn_kernels_give_the_bits_of_the_interpreter(first: int, tmp_path: Path) -> None:
    seeds = range(first, first + 100)
    assert [] == differences(cuda_cases.drawn(seeds), tmp_path)
    assert [] == differences(cuda_cases.drawn(seeds, in_place=True), tmp_path)


def outcome(library: Any, launch: Launch, array: Any, order: int) -> bytes | str:
    """What a kernel of one input and one output stores, or what the header reports."""
    result = np.zeros_like(array)
    try:
        call(library, launch, [array, result], order, 1)
    except BackendError as error:
        return str(error)
    return result.tobytes()


@needs_compiler
def test_each_barrier_of_a_reduction_is_missed_in_some_order(tmp_path: Path) -> None:
    """What a kernel of 256 threads a row and several rows a block needs; without one it errs."""
    program = centered(4, 3000, 1024)
    head, printed = print_program(program, "whole").text.split("/* kernel", 1)
    (launch,) = print_program(program, "whole").launches
    parts = printed.split("__syncthreads();")
    texts, launches = [head, f"/* kernel{printed}"], [launch]
    for k in range(1, len(parts)):
        without = "__syncthreads();".join(
            [*parts[: k - 1], parts[k - 1] + parts[k], *parts[k + 1 :]]
        )
        texts.append(f"/* kernel{without}".replace("whole_0", f"without_{k}"))
        launches.append(Launch(f"without_{k}", launch.buffers, launch.blocks, launch.threads))
    library = build("\n".join(texts), launches, tmp_path)
    (array,) = inputs_of("barriers", program)
    expected = interpreted(program, [array])[1].tobytes()
    orders = (FORWARD, REVERSED, SHUFFLED)
    seen = [{outcome(library, each, array, order) for order in orders} for each in launches]
    assert 2 == len(seen) - 1
    assert [{expected}] == [each for each in seen if each == {expected}]
    assert {expected} == seen[0]


def test_rows_of_nothing_add_up_in_order() -> None:
    """One thread of a block: threads that each took a row would write over each other."""
    ((program, _),) = cuda_cases.added_rows().values()
    text = print_program(program).text
    assert "for (i32 row = unit * 5; row < (unit + 1) * 5; ++row) {" in text


def test_only_what_a_kernel_needs_is_printed() -> None:
    """No class for 16-bit floats where there are none; functions once for all kernels."""
    cases = cuda_cases.functions()
    two = {key: cases[key][0] for key in ("gelu_forward", "gelu_back")}
    text, launches = print_units(two)
    assert "struct f16" not in text
    assert 1 == text.count(" fn_erf_f32_f32(f32 x0)\n")
    assert 2 <= sum(len(found) for found in launches.values())


def test_lanes_say_how_many_threads_a_row_has() -> None:
    """Four neighbors a thread; several rows a block where a row has less than a warp."""
    found = {1: (1, 32), 64: (3, 32), 128: (5, 32), 256: (5, 64), 1024: (5, 256), 8192: (5, 1024)}
    for lanes, grid in found.items():
        (launch,) = print_program(centered(5, 3000, lanes)).launches
        assert (*grid, (0, 1)) == (launch.blocks, launch.threads, launch.buffers)


LAST_LOOP = "for (i32 v = 0; v < 1; ++v) {"


def test_one_value_a_thread_is_shuffled() -> None:
    """A thread combines its neighbors first: eight of bfloat16 here, in a row and in a block."""
    for n in (256, 4096):
        x = al.zeros((999, n), dtype=al.bfloat16)
        text = print_program(
            improved_for(program_of(al.capture(lambda x: x.sum(-1))(x)), H100)
        ).text
        assert "near=8" in text
        loops = text.partition("__shfl_xor_sync(")[0].splitlines()
        assert [line for line in loops if "i32 v = 0" in line][-1].strip() == LAST_LOOP
        assert text.count("__shfl_xor_sync(") == 1
        assert "__shared__ f32 s0_f32[" not in text or "s0_f32[threadIdx.x * 1 + v]" in text


def test_steps_that_are_no_kernels_are_refused() -> None:
    window = MatrixWindow(0, 0, (), 2, 1)
    step = Gemm("product", (), 2, 2, 2, window, window, window)
    with pytest.raises(BackendError, match="cuda: a step is Gemm, expected kernels alone"):
        print_program(LoopProgram("product", (), (step,), (), ()))


def test_complex_numbers_are_refused() -> None:
    z = load(0, Affine((1,)), complex64)
    size = (complex64, 3)
    program = kernel_program(((3,), 1, None), [Store(1, Affine((1,)), z)], {0: size}, {1: size})
    with pytest.raises(BackendError, match="computes with complex64, expected a real dtype"):
        print_program(program)


def test_kernels_of_no_rows_are_not_launched() -> None:
    x = load(0, Affine((5, 1)), float32)
    store = Store(1, Affine((5, 1)), x)
    size = (float32, 0)
    program = kernel_program(((0, 5), 2, None), [store], {0: size}, {1: size})
    assert () == print_program(program).launches
