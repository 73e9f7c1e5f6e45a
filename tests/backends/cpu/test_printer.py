"""Kernels printed as C: equal to the interpreter, bit for bit, with contraction off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cpu.emit import staging
from aotlite.backends.cpu.emit.c_program import print_program
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Statement,
    Store,
)
from aotlite.ir.dtypes import float32, uint8
from aotlite.ir.scalar import expression
from aotlite.ir.scalar.expression import Affine, load
from tests.backends.cpu.helpers.chosen_kernels import CHOSEN
from tests.backends.cpu.helpers.chosen_kernels import program as kernel_program
from tests.backends.cpu.helpers.drawn_kernels import Drawn, numbers
from tests.backends.cpu.helpers.printing import Compiled, interpreted, outputs_of, same_bits

Cases = dict[str, tuple[LoopProgram, list[Any]]]


def differences(cases: Cases, **options: Any) -> list[str]:
    """The programs whose memory is not what the interpreter leaves, with 1 and with 3 threads."""
    compiled = Compiled({name: program for name, (program, _) in cases.items()}, **options)
    found = []
    for name, (program, inputs) in cases.items():
        expected = interpreted(program, inputs)
        for threads in (1, 3):
            memory = compiled.run(name, [each.copy() for each in inputs], threads, shift=None)
            written = [*outputs_of(program), *[k for k in program.inputs if k is not None]]
            if not all(same_bits(expected[k], memory[k]) for k in written):
                found.append(f"{name}, {threads} threads\n{program}")
    return found


def drawn(seeds: Iterable[int], *, in_place: bool = False) -> Cases:
    made = {f"p{seed}": Drawn(seed, in_place=in_place) for seed in seeds}
    return {name: (each.program, each.inputs()) for name, each in made.items()}


def chosen() -> Cases:
    return {name: (program, inputs_of(name, program)) for name, program in CHOSEN.items()}


def inputs_of(name: str, program: LoopProgram) -> list[Any]:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return [numbers(generator, b) for b in program.buffers if b.kind is BufferKind.INPUT]


def test_chosen_kernels_give_the_bits_of_the_interpreter() -> None:
    assert [] == differences(chosen(), contract=False)


def test_drawn_kernels_give_the_bits_of_the_interpreter() -> None:
    assert [] == differences(drawn(range(24)), contract=False)


def test_kernels_that_write_what_they_read_give_the_bits_of_the_interpreter() -> None:
    """A store waits for what loads its memory, also where that waits itself (K-6, EMIT-1)."""
    seeds = (*range(100, 148), 1066, 1744)
    assert [] == differences(drawn(seeds, in_place=True), contract=False)


def test_results_stored_past_the_caches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is big, and lines are short."""
    monkeypatch.setattr(staging, "BIG", 0)
    monkeypatch.setattr(staging, "RUN", 0)
    monkeypatch.setattr(staging, "LINE", 24)
    cases = {**chosen(), **drawn(range(40, 48))}
    assert [] == differences(cases, contract=False)


@pytest.mark.parametrize("shift", [1, 3])
def test_arrays_may_begin_at_any_element(shift: int) -> None:
    cases = chosen()
    compiled = Compiled({name: program for name, (program, _) in cases.items()}, contract=False)
    for name, (program, inputs) in cases.items():
        expected = interpreted(program, inputs)
        memory = compiled.run(name, inputs, shift=shift)
        assert all(same_bits(expected[k], memory[k]) for k in outputs_of(program)), name


def test_addresses_beyond_two_to_the_31_are_reached() -> None:
    far = (1 << 31) + 7
    x = load(0, Affine((far, 2), 1), uint8)
    body: list[Statement] = [Store(1, Affine((3, 1)), x + 1)]
    sizes = {0: (uint8, 2 * far)}, {1: (uint8, 6)}
    program = kernel_program(((2, 3), 2, 1), body, *sizes)
    array = np.zeros(2 * far, np.uint8)
    array[[1, 3, 5, far + 1, far + 3, far + 5]] = range(10, 16)
    compiled = Compiled({"far": program}, contract=False)
    memory = compiled.run("far", [array], shift=None)
    assert [11, 12, 13, 14, 15, 16] == memory[1].tolist()


def test_contraction_changes_results_by_rounding_alone() -> None:
    """Products and sums that are rounded once instead of twice."""
    cases = {name: chosen()[name] for name in ("across_f64", "columns_across_kept", "sum")}
    compiled = Compiled({name: program for name, (program, _) in cases.items()}, contract=True)
    for name, (program, inputs) in cases.items():
        expected, memory = interpreted(program, inputs), compiled.run(name, inputs)
        for k in outputs_of(program):
            # Each element is a sum of at most 1000 numbers below 20.
            np.testing.assert_allclose(expected[k], memory[k], rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 2100, 100))
def test_many_drawn_kernels_give_the_bits_of_the_interpreter(first: int) -> None:
    seeds = range(first, first + 100)
    assert [] == differences(drawn(seeds), contract=False)
    assert [] == differences(drawn(seeds, in_place=True), contract=False)


@pytest.mark.long
def test_sanitizers_find_nothing_in_printed_kernels() -> None:
    """Accesses beside buffers, shifts, overflows of signed integers: each would end the child."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("the sanitizers' libraries are asked of gcc")
    names = ("libasan.so", "libubsan.so")
    paths = [subprocess.check_output([gcc, f"-print-file-name={n}"], text=True) for n in names]
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(path.strip() for path in paths),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
    }
    command = [sys.executable, "-c", SANITIZED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "equal" == done.stdout.strip(), done.stderr[-3000:]


SANITIZED = """
from tests.backends.cpu.test_printer import chosen, differences, drawn
for cases in (chosen(), drawn(range(60))):
    assert not differences(cases, contract=False, sanitize="address,undefined")
print("equal")
"""


def test_the_second_pass_over_a_row_asks_for_the_next_row() -> None:
    def text(rows: int) -> str:
        x = load(0, Affine((1024, 1)), float32)
        centered = x - expression.name(0, float32)
        body = (
            Reduce((0,), "sum", (x,), lanes=32),
            Reduce((1,), "sum", (centered * centered,), lanes=32),
            Store(1, Affine((1, 0)), expression.name(1, float32), each_row=True),
        )
        sizes = (1024 * rows, rows)
        kinds = (BufferKind.INPUT, BufferKind.OUTPUT)
        buffers = tuple(ProgramBuffer(k, float32, sizes[k], kind) for k, kind in enumerate(kinds))
        kernel = Kernel("spread", (rows, 1024), 1, body, vector=1)
        return print_program(LoopProgram("p", buffers, (kernel,), (0,), ())).text

    assert "__builtin_prefetch(&b0[i0 * 1024 + 1024 + base + ahead])" in text(1024)
    assert "prefetch" not in text(8)
