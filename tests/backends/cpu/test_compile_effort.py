"""What a compiler makes of kernels takes it little time and memory, whatever does not change in a
loop: gcc 12 writes out what integers are there, and of 31 squares of squares that is 2^31 terms."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

import aotlite as al
from aotlite.backends.cpu.emit.c_program import print_program
from aotlite.backends.loops.analysis.cost import MOST_OPERATIONS, operations
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import BufferKind, Kernel, LoopProgram, ProgramBuffer, Store
from aotlite.backends.native.compiler.compilers import GCC_OPTIMIZE
from aotlite.ir.dtypes import DTYPES
from aotlite.ir.scalar.expression import Affine, Scalar, function, load
from aotlite.ir.scalar.functions import declared, find
from tests.backends.test_functions import EVERY

gcc = shutil.which("gcc")
SECONDS, MEMORY = 100, 1 << 31
OPS = sorted({f.op for f in EVERY if not f.op.startswith("exp2_times")})


def _kernels(op: str) -> LoopProgram:
    """For each dtype of an op a kernel (i, j), and for each of its operands another one, in which
    it is of i alone."""
    buffers: list[ProgramBuffer] = []
    kernels = []

    def operand(k: int, kind: object, of_row: bool) -> Scalar:
        buffers.append(ProgramBuffer(len(buffers), kind, 84, BufferKind.INPUT))  # type: ignore[arg-type]
        steps = (1, 0) if of_row else (6, 1)
        return load(buffers[-1].number, Affine(steps), kind)  # type: ignore[arg-type]

    for kind, count in [
        (dtype, n) for name, n, accepts in declared() if name == op for dtype in DTYPES
        if accepts(dtype)
    ]:  # fmt: skip
        for still in range(count + 1):
            given = [operand(k, kind, k == still) for k in range(count)]
            result = find(op, (kind,) * count).result
            value = function(op, result, *given)
            buffers.append(ProgramBuffer(len(buffers), result, 84, BufferKind.OUTPUT))
            store = Store(buffers[-1].number, Affine((6, 1)), value)
            kernels.append(Kernel(f"{op}_{kind}_{still}", (14, 6), 2, (store,), vector=1))
    return LoopProgram(op, tuple(buffers), tuple(kernels), (), ())


def _assembly(text: str, folder: Path) -> str:
    """Returns what gcc makes of a C text: no further than its own part, which alone takes long."""
    source, made = folder / "kernels.c", folder / "kernels.s"
    source.write_text(text)
    flags = ("-std=gnu11", "-march=native", *GCC_OPTIMIZE, "-fPIC", "-S")
    limit = (MEMORY, MEMORY)
    done = subprocess.run(
        [str(gcc), *flags, str(source), "-o", str(made)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    assert 0 == done.returncode, done.stderr
    return made.read_text()


@pytest.mark.skipif(gcc is None, reason="needs gcc, whose effort it is")
@pytest.mark.thinned(8)
@pytest.mark.parametrize("op", OPS)
def test_a_function_of_what_does_not_change_is_compiled(op: str, tmp_path: Path) -> None:
    _assembly(print_program(_kernels(op)).text, tmp_path)


def _sines(count: int, *, dynamic: bool) -> str:
    """The C text of a chain of sines of a whole tensor, whose results are added."""

    def chained(x: al.Tensor) -> al.Tensor:
        for _ in range(count):
            x = (x * 1.01).sin()
        return x.sum()

    compiled = al.compile(chained, backend="cpu", dynamic=dynamic)
    stages = al.inspect.stages_of(compiled, al.ones(117, 117))
    (kernels,) = [each.made for each in stages if "forward_kernels" in each.name]
    text: str = kernels.text
    return text


@pytest.mark.skipif(gcc is None, reason="needs gcc, whose effort it is")
def test_chains_of_functions_have_little_code(tmp_path: Path) -> None:
    """EMIT-5. With each body in each loop, and a loop for each version, twelve sines were 8 s of
    gcc, and two hundred more than it is given."""
    lines = {
        (count, dynamic): len(_assembly(_sines(count, dynamic=dynamic), tmp_path).splitlines())
        for count in (12, 100)
        for dynamic in (False, True)
    }
    for count in (12, 100):  # 1.57 to 1.61, by the processor for which gcc compiles
        assert lines[count, True] <= 1.7 * lines[count, False]
    for dynamic in (False, True):
        assert lines[100, dynamic] - lines[12, dynamic] <= 88 * 40


@pytest.mark.parametrize("op", ["sin", "exp"])
def test_long_chains_of_functions_are_several_kernels(op: str) -> None:
    """One kernel of all took gcc a time that grew faster than the chain: minutes, and gigabytes."""

    def chained(x: al.Tensor) -> al.Tensor:
        for _ in range(300):
            x = getattr(al, op)(x) * 0.5 + 0.25
        return x

    x = al.linspace(-1, 1, 1000)
    program = improved(program_of(al.capture(chained)(x)), threads=2)
    kernels = [step for step in program.steps if type(step) is Kernel]
    assert max(map(operations, kernels)) <= MOST_OPERATIONS
    assert len(kernels) == -(-300 // (MOST_OPERATIONS // 17))
