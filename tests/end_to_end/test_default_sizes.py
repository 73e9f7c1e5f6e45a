"""Random programs that are called at three vectors of sizes, compiled with the default options.

The first call is compiled with numbers, the next one with symbols for what changed: each call gives
what eager gives, whatever the program asks about its sizes.
"""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from tests.end_to_end.drawn_size_programs import TRIED, SizeProgram, draw
from tests.end_to_end.size_calls import is_same, observed

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")

SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 9, 16)
ASKING = (
    "a0 = a0 * (2.0 if type(n) is int else 3.0)",
    "a0 = a0 + {int: 1.0}.get(type(a0.shape[-1]), 2.0)",
    "a0 = a0 * 2.0 if n is m else a0 * 3.0",
    "a0 = a0 * (2.0 if isinstance(m, int) else 3.0)",
    "a0 = a0 * (2.0 if n.__class__ is int else 3.0)",
    "a0 = a0 * (2.0 if hasattr(n, '__array__') else 3.0)",
    "a0 = a0 + len(f'{n}{k}') + (n in {1, 2}) + [5, 6].count(m) + hash(n)",
)


def asking(program: SizeProgram, drawn: random.Random) -> SizeProgram:
    """The program, of which every second one first asks what its sizes are."""
    if drawn.random() < 0.5:
        return program
    return attrs.evolve(program, lines=(drawn.choice(ASKING), *program.lines))


def compared(seeds: range, backend: str) -> Counter[str]:
    """Compares programs at three vectors of sizes, and the first one again; what was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        drawn = random.Random(seed)
        program = asking(draw(seed), drawn)
        symbols = program.symbols
        others = [{name: drawn.choice(SIZES) for name in symbols} for _ in range(2)]
        first = {name: TRIED[name] for name in symbols}
        eager = program.function()
        compiled = al.compile(program.function(), backend=backend)
        for sizes in (first, *others, first):
            expected = observed(eager, program.arguments(sizes))
            found = observed(compiled, program.arguments(sizes))
            assert is_same(expected, found), f"{seed} at {sizes}\n{program.text}{expected}\n{found}"
        seen["entries"] += len(compiled.entries)
        seen["symbolic"] += any("s0" in str(each.arguments) for each in compiled.regions())
        seen["programs"] += 1
    return seen


@pytest.mark.rules("DYN-3", "DYN-33")
def test_programs_at_three_sizes_are_eagers_by_default() -> None:
    seen = compared(range(3000, 3024), "reference")
    assert seen["symbolic"] >= 0.3 * seen["programs"]


@needs_compiler
@pytest.mark.rules("DYN-3", "DYN-33", "SIZ-6")
def test_kernels_of_programs_at_three_sizes_are_eagers_by_default() -> None:
    compared(range(3100, 3106), "cpu")


@pytest.mark.long
@pytest.mark.rules("DYN-3", "DYN-33")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_many_programs_at_three_sizes_are_eagers_by_default(backend: str) -> None:
    print(dict(compared(range(4000, 4600), backend)))
