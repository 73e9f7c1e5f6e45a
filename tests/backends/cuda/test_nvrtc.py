"""Printed CUDA texts are taken by NVRTC, for GPUs that need not be here."""

from __future__ import annotations

import sys

import pytest

from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.emit.cuda_program import print_units
from aotlite.ir.errors import BackendError, MissingExtraError
from tests.backends.cuda.helpers import cuda_cases
from tests.backends.cuda.helpers.single_kernels import quick_flags

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)
NAMES = ("across_bf16", "picked", "scattered", "sum", "prod_short", "max_f16", "sum_i8", "any")


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_every_kind_of_kernel_becomes_a_cubin(architecture: str) -> None:
    cases = cuda_cases.chosen()
    programs = {key: cases[key][0] for key in NAMES}
    programs |= {key: program for key, (program, _) in cuda_cases.functions().items()}
    text, launches = print_units(programs)
    flags = nvrtc.FLAGS if architecture == "sm_90" else quick_flags()
    cubin = nvrtc.compile_cubin(text, architecture, flags)
    assert cubin.startswith(b"\x7fELF")
    names = [launch.name for found in launches.values() for launch in found]
    assert len(programs) <= len(names)
    assert [] == [name for name in names if f".text.{name}\0".encode() not in cubin]


@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize("first", [0, 100])
def test_many_drawn_kernels_become_cubins(first: int) -> None:
    drawn = cuda_cases.drawn(range(first, first + 100))
    text, _ = print_units({key: program for key, (program, _) in drawn.items()})
    assert nvrtc.compile_cubin(text, "sm_90").startswith(b"\x7fELF")


@needs_nvrtc
def test_products_and_sums_are_not_contracted() -> None:
    """The flag makes a difference, and NVRTC takes the flags that are said."""
    text = 'extern "C" __global__ void f(float *x) { x[0] = x[1] * x[2] + x[3]; }'
    apart = nvrtc.compile_cubin(text, "sm_90")
    together = nvrtc.compile_cubin(text, "sm_90", ("--fmad=true",))
    assert apart != together


@needs_nvrtc
def test_a_text_that_does_not_compile_is_an_error_with_the_log() -> None:
    with pytest.raises(BackendError, match='identifier "missing" is undefined') as caught:
        nvrtc.compile_cubin("__global__ void f() { missing; }", "sm_80")
    assert str(caught.value).startswith("cuda: NVRTC gives NVRTC_ERROR_COMPILATION, expected")


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc._library.cache_clear()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MissingExtraError, match=r"cuda: NVRTC is not installed.*aotlite\[cuda13\]"):
        nvrtc.compile_cubin("", "sm_80")
    nvrtc._library.cache_clear()
