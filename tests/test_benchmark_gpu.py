"""The benchmarks of GPUs, as far as they go without one."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.backends.cuda import nvrtc
from benchmarks import cuda_modules
from benchmarks.gpu_programs import ROWS, TINY

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_counts_what_it_reads_and_writes(name: str) -> None:
    """Against the tensors that it really takes and gives."""
    row = ROWS[name]
    args = [al.zeros(shape) for shape in row.shapes(TINY)]
    if row.labels:
        args[-1] = args[-1].to(al.int64)
    result = row.function(al, *args)
    read = sum([each.nbytes for each in args])
    if row.backward:
        assert read + result.nbytes + read == row.bytes(TINY, 4)
    else:
        assert read + result.nbytes == row.bytes(TINY, 4)


@needs_nvrtc
def test_modules_are_measured_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    names = "chain,softmax backward"
    code = cuda_modules.main(["--rows", names, "--dtypes", "float32", "--size", "16"])
    printed = capsys.readouterr().out
    assert code == 0
    for text in ("| chain, float32 ", "| softmax backward, float32 ", "sm_80", "sm_90"):
        assert text in printed


@needs_nvrtc
def test_modules_that_spill_or_move_too_much_are_failures(monkeypatch: Any) -> None:
    ((label, program),) = cuda_modules.programs(ROWS["chain"], al.float32, TINY, cuda_modules.H100)
    good = cuda_modules.measured(label, program, cuda_modules.H100)
    for bad in ({"spills": 4}, {"moved": 1.06}):
        found = attrs.evolve(good, **bad)
        monkeypatch.setattr(cuda_modules, "every", lambda *_, found=found: [found])
        assert 1 == cuda_modules.main([])
    monkeypatch.setattr(cuda_modules, "every", lambda *_: [attrs.evolve(good, moved=1.05)])
    assert 0 == cuda_modules.main([])
