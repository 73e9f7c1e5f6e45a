"""Rows and columns as a GPU's threads compute them: the bits of the interpreter in any order."""

from __future__ import annotations

from pathlib import Path

import pytest

import aotlite as al
from aotlite.backends.cuda import kept
from aotlite.backends.cuda.emit import print_program
from tests.backends.cuda import rows_cases
from tests.backends.cuda.hosted import compiler
from tests.backends.cuda.test_printer import differences

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

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


def test_rows_and_columns_give_the_bits_of_the_interpreter(tmp_path: Path) -> None:
    """All in one compilation."""
    cases = (
        rows_cases.rows(FEW) | rows_cases.online() | rows_cases.rows({"norm": "warps"}, al.bfloat16)
    )
    assert [] == differences(cases, tmp_path)


def test_what_registers_have_no_room_for_stays_in_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the share of a block of 64 threads goes: one operand of two, of 2,048 points."""
    monkeypatch.setattr(kept, "MOST_KEPT", 8)
    cases = rows_cases.rows({"softmax": "blocks", "norm": "odd beside"})
    for program, _ in cases.values():
        printed = print_program(program)
        assert ("extern __shared__" in printed.text) == any(x.shared for x in printed.launches)
    program = cases["softmax_blocks_back_f32"][0]
    assert [2048 * 4] == [launch.shared for launch in print_program(program).launches]
    assert [] == differences(cases, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [al.float32, al.bfloat16, al.float16, al.float64])
@pytest.mark.parametrize("kind", list(rows_cases.KINDS))
def test_all_rows_give_the_bits_of_the_interpreter(
    kind: str, dtype: al.dtype, tmp_path: Path
) -> None:
    assert [] == differences(rows_cases.rows({kind: ALL[kind]}, dtype), tmp_path)
