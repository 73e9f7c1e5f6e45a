"""Kernels of independent points: vectors of 16 bytes, wherever windows begin."""

from __future__ import annotations

import itertools
import operator
import random
from pathlib import Path

import pytest

from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.emit.cuda_program import print_program, print_units
from aotlite.backends.cuda.emit.pointwise.contiguous_runs import (
    ContiguousRun,
    ThreadMapping,
    run_of,
    together,
)
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import LoopProgram
from aotlite.ir.scalar.expression import Affine
from tests.backends.cuda.helpers import point_cases
from tests.backends.cuda.helpers.anywhere import SMALL, Built
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.helpers.point_cases import PROGRAMS
from tests.backends.cuda.helpers.single_kernels import quick_flags

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)


@needs_compiler
def test_points_are_the_interpreters_wherever_inputs_begin(tmp_path: Path) -> None:
    assert [] == Built(point_cases.cases(), tmp_path).differences()


@needs_compiler
def test_what_vectors_need_is_seen_where_it_is_missing(tmp_path: Path) -> None:
    """Each change of a printed text gives other bits somewhere."""
    plants = {
        "one_axis": ("i0 < 1003", "i0 < 1001"),
        "over_odd_rows": ("? 648 : 0", "? 650 : 0"),
        "stencil": ("v1 >= 1 &&", "v1 >= 0 &&"),
        "inside": ("e + 1 < 4", "e + 2 < 4"),
        "groups": ("at[e * 2 + 1]", "at[e * 2]"),
        "crossed": ("            __syncthreads();\n            #pragma", "            #pragma"),
        "crossed_odd": ("i1 < 37 && i2 < 75", "i1 < 36 && i2 < 75"),
        "scattered": ("== stripe", ">= stripe"),
        "last_put": ("point = 0; point < 60; ++point", "point = 60; point-- > 0;"),
        "many": ("first + u * 256", "first"),
    }
    found = Built({key: point_cases.cases()[key] for key in plants}, tmp_path, plants)
    seen = {each.split(",")[0] for each in found.differences()}
    assert set(plants) == seen


def text_of(program: LoopProgram, target: Target = SMALL) -> str:
    text = print_program(program, target=target).text
    return text[text.index("/* kernel") :]


def test_no_access_of_a_vector_is_of_one_element_where_memory_allows_more() -> None:
    """In the version for inputs that begin at multiples of 16 bytes."""
    for key in ("one_axis", "whole", "halves", "bytes", "over_rows", "stencil", "groups_f16"):
        text = text_of(PROGRAMS[key])
        vectors = text.split("#pragma unroll 1\n")[0].split("} else {\n        #pragma unroll 4")[0]
        loads = [line for line in vectors.split("\n") if "= b" in line and "/*" not in line]
        assert [] == [line for line in loads if "b1[" not in line or key != "over_rows"], key


def test_positions_have_64_bits_only_where_they_must() -> None:
    assert "u64 first" not in text_of(PROGRAMS["whole"])
    text = text_of(point_cases.flat(1 << 31, point_cases.float32))
    assert "const i64 v0" in text and "for (u64 first" in text


def test_a_vector_fills_16_bytes_of_the_narrowest_and_32_of_the_widest() -> None:
    for sizes, width in (([4], 4), ([2, 4], 8), ([1, 4], 8), ([8, 2], 4), ([1], 16), ([8], 2)):
        assert width == together(sizes)


def accesses(run: ContiguousRun, spread: ThreadMapping) -> list[tuple[int, int]]:
    """The first element and the width of all accesses of all vectors along the last axis."""
    found = []
    *outer, last = spread.extents
    for place in itertools.product(*map(range, outer)):
        for first in range(0, last - spread.width + 1, spread.width):
            point = (*place, first)
            start = run.address.start + sum(map(operator.mul, run.address.coefficients, point))
            starts = range(start, start + run.count, run.width)
            found += [(each, run.width) for each in starts]
    return found


def drawn_run(draw: random.Random) -> None:
    """One address, and what is true of its run."""
    width, step = draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 1, -1, 2, 3, 4))
    spread = ThreadMapping((draw.randint(1, 4), draw.choice((8, 16, 20, 32))), (0, 1), width)
    rows, columns = spread.extents
    row = abs(step) * columns + draw.randint(0, 8)
    start = draw.randint(0, 9) + (columns - 1 if step < 0 else 0)
    size = start + row * (rows - 1) + max(step, 0) * (columns - 1) + 1 + draw.randint(0, 8)
    exact = draw.random() < 0.5
    run = run_of(0, Affine((row, step), start), spread, size, exact=exact)
    if run is None:
        return
    for first, count in accesses(run, spread):
        assert 0 == first % (count & -count)
        assert 0 <= first <= size - count
    shift = run.address.start + run.offset
    assert [start + e * step for e in range(width)] == [shift + e * run.step for e in range(width)]
    assert run.count == width * abs(step) or not exact


def test_accesses_of_runs_are_aligned_and_stay_in_their_buffers() -> None:
    """Of drawn addresses, by counting; each element of the points is where the run says."""
    for seed in range(400):
        drawn_run(random.Random(seed))


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_of_points_become_cubins(architecture: str) -> None:
    text, _ = print_units(PROGRAMS)
    flags = nvrtc.FLAGS if architecture == "sm_90" else quick_flags()
    assert nvrtc.compile_cubin(text, architecture, flags).startswith(b"\x7fELF")
