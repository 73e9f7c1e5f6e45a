"""Pointwise kernels are vectorized: what a C compiler branches for takes ten times as long."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import aotlite as al
from aotlite.backends.native.compiler.compilers import GCC_OPTIMIZE

FUNCTIONS = """
acos acosh asin asinh atan atanh ceil cos cosh elu erf erfc exp exp2 expm1 floor frac gelu
hardswish log log10 log1p log2 log_sigmoid mish nan_to_num reciprocal relu round rsqrt selu
sigmoid sign silu sin sinh softplus softsign sqrt square tan tanh trunc
""".split()

FLAGS = (
    "-march=native",
    "-mprefer-vector-width=512",
    "-fno-math-errno",
    "-fno-trapping-math",
    *("-ffp-contract=off", "-DCONTRACT"),
    "-fPIC",
    "-S",
    "-fopt-info-vec-optimized",
)
gcc = shutil.which("gcc")


def _function(name: str) -> object:
    return getattr(al.Tensor, name, None) or getattr(al.nn.functional, name)


@pytest.mark.skipif(gcc is None, reason="needs gcc, which says what it vectorized")
@pytest.mark.thinned(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_among_choices_is_vectorized(name: str, tmp_path: Path) -> None:
    """Of the choice that softplus makes: a condition of two comparisons in the function, joined by
    `and`, became branches there, though the function alone was vectorized.
    """
    function = _function(name)

    def chosen(x: al.Tensor) -> al.Tensor:
        return al.where(x * 2.0 > 20.0, x, function(x.exp()) + 1.0)  # type: ignore[operator]

    stages = al.inspect.stages_of(al.compile(chosen, backend="cpu"), al.ones(1 << 14))
    (kernels,) = [each.made for each in stages if "forward_kernels" in each.name]
    source = tmp_path / "kernel.c"
    source.write_text(kernels.text)
    command = [str(gcc), *GCC_OPTIMIZE, *FLAGS, str(source), "-o", str(tmp_path / "kernel.s")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    loops = _loops_of_usual_numbers(kernels.text)
    told = re.findall(r"kernel\.c:(\d+):\d+: optimized: loop vectorized", said)
    assert loops
    assert loops <= set(map(int, told))


def _loops_of_usual_numbers(text: str) -> set[int]:
    """The numbers of lines where kernels loop over points, but for what takes the rest."""
    lines = text.splitlines()
    starts = {number for number, line in enumerate(lines, 1) if "for (i64 i0 = " in line}
    return {number for number in starts if "} else {" not in lines[number - 2]}
