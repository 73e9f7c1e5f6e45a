"""Kernels printed as C: equal to the interpreter, bit for bit, with contraction off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.cpu.drawn_kernels import Drawn
from tests.backends.cpu.printing import Compiled, interpreted, outputs_of, same_bits


def differences(seeds: range, **options: Any) -> list[str]:
    """The programs whose outputs are not the interpreter's, with 1 and with 3 threads."""
    drawn = {f"p{seed}": Drawn(seed) for seed in seeds}
    compiled = Compiled({name: each.program for name, each in drawn.items()}, **options)
    found = []
    for name, each in drawn.items():
        expected = interpreted(each.program, each.inputs())
        for threads in (1, 3):
            memory = compiled.run(name, each.inputs(), threads)
            outputs = outputs_of(each.program)
            if not all(same_bits(expected[k], memory[k]) for k in outputs):
                found.append(f"{threads} threads\n{each.program}")
    return found


def test_drawn_kernels_give_the_bits_of_the_interpreter() -> None:
    assert [] == differences(range(40), contract=False)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 2100, 100))
def test_many_drawn_kernels_give_the_bits_of_the_interpreter(first: int) -> None:
    assert [] == differences(range(first, first + 100), contract=False)
