"""Rows and columns as a GPU's threads compute them: the bits of the interpreter in any order."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

import aotlite as al
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.driver.kernel_resources import compile_with_resources
from aotlite.backends.cuda.emit.cuda_program import print_program, print_units
from aotlite.backends.cuda.emit.reductions import register_operands
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import H100
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Kernel
from tests.backends.cuda.helpers import rows_cases
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.test_printer import differences

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

FEW = {
    "softmax": "parts_of_warps odd blocks",
    "norm": "warps odd beside",
    "statistics": "parts_of_warps warps blocks",
    "down": "many long",
    "whole": "long",
    "rms": "long",
    "scans": "parts_of_warps",
}
ALL = dict.fromkeys(rows_cases.KINDS, " ".join(rows_cases.SHAPES))


@needs_compiler
def test_rows_and_columns_give_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    """All in one compilation."""
    cases = (
        rows_cases.rows(FEW) | rows_cases.online() | rows_cases.rows({"norm": "warps"}, al.bfloat16)
    )
    assert [] == differences(cases, tmp_path)


@needs_compiler
def test_what_registers_have_no_room_for_stays_in_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the share of a block of 64 threads goes: one operand of two, of 2,048 points."""
    monkeypatch.setattr(register_operands, "MOST_KEPT", 8)
    cases = rows_cases.rows({"softmax": "blocks", "norm": "odd beside"})
    for program, _ in cases.values():
        printed = print_program(program)
        assert ("extern __shared__" in printed.text) == any(x.shared for x in printed.launches)
    program = cases["softmax_blocks_back_f32"][0]
    assert [2048 * 4] == [launch.shared for launch in print_program(program).launches]
    beside = print_program(cases["norm_beside_back_f32"][0]).text
    assert "+ threadIdx.x;" in beside, "sums are there, too"
    assert [] == differences(cases, tmp_path)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("dtype", [al.float32, al.bfloat16, al.float16, al.float64])
@pytest.mark.parametrize("kind", list(rows_cases.KINDS))
def test_all_rows_give_the_bits_of_the_interpreter(
    kind: str, dtype: al.dtype, tmp_path: Path
) -> None:
    assert [] == differences(rows_cases.rows({kind: ALL[kind]}, dtype), tmp_path)


LARGE = 1 << 26
MODULES: dict[str, rows_cases.Function] = {
    "softmax": rows_cases.softmax,
    "log_softmax": lambda x, w, b: al.log_softmax(x, -1),
    "norm": rows_cases.norm,
    "rms": rows_cases.rms,
    "cross_entropy": lambda x, w, b: al.cross_entropy(x, x[:, 0].to(al.int64)),
    "statistics": lambda x, w, b: (x.sum(-1), x.mean(0), x.var(-1), x.amax(0), x.argmax()),
}


@pytest.mark.long
@pytest.mark.skipif(not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("dtype", [al.float32, al.bfloat16, al.float16])
@pytest.mark.parametrize("n", [64, 1024, 4096, 32768, 1 << 20])
def test_what_is_kept_leaves_registers_for_all_else(n: int, dtype: al.dtype) -> None:
    """A few spilled words of a row are less than loading the row again."""
    x = al.zeros((LARGE // n, n), dtype=dtype)
    row = al.zeros((n,), dtype=dtype)
    programs = {}
    for key, function in MODULES.items():
        program = improved_for(program_of(al.capture(function)(x, row, row)), H100)
        kernels = tuple([each for each in program.steps if type(each) is Kernel])
        programs[key] = attrs.evolve(program, steps=kernels)
    text, _ = print_units(programs)
    _, found = compile_with_resources(text, "sm_90")
    assert {} == {key: each for key, each in found.items() if each.spill_stores > 64}
    assert 0 == sum([each.spill_stores for key, each in found.items() if "softmax" in key])
