"""Random programs that compute with sizes: compiled once, they are eager at all sizes."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import Any

import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from tests.end_to_end.drawn_size_programs import SizeProgram, draw
from tests.end_to_end.size_calls import TURNS, Caller, Way, is_same
from tests.end_to_end.size_program_lines import FLOATS
from tests.end_to_end.size_programs import check, outcome


def compared(seeds: range, most: int, **options: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        total.update(compared_one(draw(seed), most, **options))
    return total


def compared_one(program: SizeProgram, most: int, **options: Any) -> Counter[str]:
    seen, difference = check(program, most if len(program.symbols) < 3 else 2, **options)
    assert not difference, f"{program}\n{program.text}{difference}"
    return seen


@pytest.mark.rules("DYN-1", "DYN-2", "DYN-4", "DYN-8")
def test_random_programs_of_sizes_are_eagers_at_all_sizes() -> None:
    seen = compared(range(1000, 1014), 4, backend="reference")
    assert seen["refused"] <= 0.05 * seen["points"]
    assert seen["served"] >= 1.2 * seen["entries"]


@pytest.mark.rules("DYN-37", "DYN-38", "DYN-40")
def test_random_programs_of_floats_of_sizes_are_eagers_at_all_sizes() -> None:
    seen: Counter[str] = Counter()
    for seed in range(2000, 2008):
        program = draw(seed, FLOATS)
        seen.update(compared_one(program, 4, backend="reference"))
    assert seen["served"] >= 1.2 * seen["entries"]


@pytest.mark.rules("DYN-1", "DYN-2", "DYN-3", "DYN-5", "DYN-8", "DYN-30")
def test_random_programs_of_all_lines_are_eagers_in_the_ways_of_calling_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(5000, 5006):
        found = outcome(seed, 3, 2, "reference", witnesses=False)
        assert not found.difference, found.difference
        seen.update(found.seen)
    assert seen["refused"] <= 0.1 * seen["points"]
    assert seen["served"] >= 1.2 * seen["entries"]


@pytest.mark.rules("DYN-3", "DYN-8")
def test_a_difference_is_seen_in_each_way_of_calling() -> None:
    """A compiled function that is wrong in every third call."""
    program = SizeProgram((("n",),), ("return [a0 * 2.0]",), requires_grad=(True,))
    right, turns = program.function(), itertools.count()

    def wrong(x: al.Tensor) -> Any:
        return right(x) if next(turns) % 3 else [x.detach() * 2.0]

    for way in map(partial(Way, None), TURNS):
        callers = [Caller(each, way) for each in (right, wrong)]
        seen = [
            [each.observe(program.arguments({"n": n}), n) for each in callers] for n in range(6)
        ]
        assert not all(is_same(*each) for each in seen), way


@pytest.mark.rules("GEN-2")
@pytest.mark.parametrize(("results", "dead"), [("a0 * 2.0", 2), ("v0", 0)])
def test_a_line_that_no_result_needs_may_raise_in_eager_alone(results: str, dead: int) -> None:
    """At sizes 1 and 2; where a result needs the line, the compiled call raises, too."""
    lines = "v0 = a0[al.tensor([2])]", "v1 = a0[:1]", f"return [{results}, v1]"
    program = SizeProgram((("n",),), lines, (False,))
    assert compared_one(program, 4, backend="reference")["dead"] == dead


@pytest.mark.rules("DYN-11", "DYN-25")
def test_programs_that_were_refused_are_eagers() -> None:
    """A window that is inside as a comparison says, which a rule by cases gave as its answer."""
    compared_one(_WINDOW, 4, backend="reference")


_WINDOW = SizeProgram(
    (("n",),),
    (
        "v1 = a0[-(n % 3):]",
        "v5 = v1.as_strided((n % 2, 2), (1, 1))",
        "v6 = al.eye(n + 1) if (n + 1) // 2 > 1 else a0",
        "return [a0, v6]",
    ),
    requires_grad=(True,),
    forms=("plain",),
)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
@pytest.mark.rules("SIZ-6")
def test_programs_that_were_wrong_in_kernels_for_all_sizes_are_eagers() -> None:
    """A vector axis that is known to be shorter than a block, as its size is a minimum."""
    for program in (_SHORT_AXIS, _SHORT_ROWS):
        compared_one(program, 3, backend="cpu")


_SHORT_AXIS = SizeProgram(
    (("m",), ("m", "n", "m")),
    (
        "v0 = al.zeros(n + 1, min(n, 3)) + 1.0",
        "v2 = v0.permute(*range(v0.ndim)[::-1]).var(0)",
        "v5 = v2[1:].sum(0)",
        "v6 = a0.argmax(0) if n - n // 2 == n - n // 2 else a0",
        "return [a1, v0, v5, n - n // 2]",
    ),
    (True, True),
)
_SHORT_ROWS = SizeProgram(
    (("k", "n"), ("k", "k", "n")),
    (
        "v0 = a0.argmax(0)",
        "v1 = v0.t()",
        "v2 = al.maximum(a1, v0)",
        "v0[..., :v1.shape[-1]].fill_(3.0)",
        "if min(a0.shape[-1], m % 3) == 2:",
        "    v2 = v2.expand(a0.shape[-1], *v2.shape)",
        "return [v2, a0, v1, 1]",
    ),
    (False, True),
)


@pytest.mark.long
@pytest.mark.rules("DYN-1", "DYN-2", "DYN-4", "DYN-8")
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_many_random_programs_of_sizes_are_eagers_at_all_sizes(backend: str) -> None:
    print(dict(compared(range(2000, 3000), 6, backend=backend)))
