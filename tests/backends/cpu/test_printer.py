"""Kernels printed as C: equal to the interpreter, bit for bit, with contraction off."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from aotlite.backends.cpu import emit_kernel
from aotlite.backends.loops.program import Kind, Program
from tests.backends.cpu.chosen_kernels import CHOSEN
from tests.backends.cpu.drawn_kernels import Drawn, numbers
from tests.backends.cpu.printing import Compiled, interpreted, outputs_of, same_bits

Cases = dict[str, tuple[Program, list[Any]]]


def differences(cases: Cases, **options: Any) -> list[str]:
    """The programs whose memory is not what the interpreter leaves, with 1 and with 3 threads."""
    compiled = Compiled({name: program for name, (program, _) in cases.items()}, **options)
    found = []
    for name, (program, inputs) in cases.items():
        expected = interpreted(program, inputs)
        for threads in (1, 3):
            memory = compiled.run(name, [array.copy() for array in inputs], threads)
            written = [*outputs_of(program), *[k for k in program.inputs if k is not None]]
            if not all(same_bits(expected[k], memory[k]) for k in written):
                found.append(f"{name}, {threads} threads\n{program}")
    return found


def drawn(seeds: range) -> Cases:
    made = {f"p{seed}": Drawn(seed) for seed in seeds}
    return {name: (each.program, each.inputs()) for name, each in made.items()}


def chosen() -> Cases:
    return {name: (program, inputs_of(name, program)) for name, program in CHOSEN.items()}


def inputs_of(name: str, program: Program) -> list[Any]:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return [numbers(generator, b) for b in program.buffers if b.kind is Kind.INPUT]


def test_chosen_kernels_give_the_bits_of_the_interpreter() -> None:
    assert [] == differences(chosen(), contract=False)


def test_drawn_kernels_give_the_bits_of_the_interpreter() -> None:
    assert [] == differences(drawn(range(24)), contract=False)


def test_results_stored_past_the_caches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is big, and lines are short."""
    monkeypatch.setattr(emit_kernel, "BIG", 0)
    monkeypatch.setattr(emit_kernel, "LINE", 24)
    cases = {**chosen(), **drawn(range(40, 48))}
    assert [] == differences(cases, contract=False)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 2100, 100))
def test_many_drawn_kernels_give_the_bits_of_the_interpreter(first: int) -> None:
    assert [] == differences(drawn(range(first, first + 100)), contract=False)
