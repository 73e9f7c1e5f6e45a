"""Memory traffic of a program's kernels, beside the least traffic possible. No GPU is needed.

It counts sectors of 32 bytes, exactly for affine addresses, under the model of caches that the spec
states. Tests use it as a measure of fusion. Input: a program and a target; output: `TrafficReport`.
Spec: `specs/cuda_traffic.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from aotlite.backends.c_family.scalar_text import FunctionTexts
from aotlite.backends.cuda.emit.cuda_kernel import body_of
from aotlite.backends.cuda.emit.memory_accesses import SECTOR, Sweep, Touch, sectors
from aotlite.backends.cuda.target import H100, Target
from aotlite.backends.loops.program import BufferKind, Gemm, Kernel, LoopProgram, ProgramBuffer


@attrs.frozen
class Moved:
    """The traffic of one step, in bytes."""

    name: str
    moved: int
    """The bytes of all sectors that are accessed, once for each sweep over the points."""
    least: int
    """The bytes of all elements that are loaded and stored, each element once."""
    sweeps: int = 1
    is_estimate: bool = False
    """Whether addresses depend on loaded values, so that the number is an estimate."""

    @property
    def ratio(self) -> float:
        """Moved bytes over the least bytes."""
        return self.moved / self.least if self.least else 1.0


@attrs.frozen
class TrafficReport:
    """The traffic of a program's kernels."""

    name: str
    steps: tuple[Moved, ...]
    least: int
    """The bytes of all accessed elements of inputs, constants and outputs, each once. Temporaries
    do not count: perfect fusion would need none."""

    @property
    def moved(self) -> int:
        """The bytes that all steps move."""
        return sum(step.moved for step in self.steps)

    @property
    def ratio(self) -> float:
        """Moved bytes over the least bytes, of the whole program."""
        return self.moved / self.least if self.least else 1.0

    @property
    def launches(self) -> int:
        """The number of kernels and products."""
        return len(self.steps)

    def __str__(self) -> str:
        rows = [f"{'kernel':40} {'moved':>14} {'least':>14} {'ratio':>7} {'sweeps':>6}"]
        for step in self.steps:
            mark = " (estimate)" if step.is_estimate else ""
            rows.append(
                f"{step.name[:40]:40} {step.moved:14,} {step.least:14,} "
                f"{step.ratio:7.3f} {step.sweeps:6}{mark}"
            )
        whole = f"{self.name} ({self.launches} launches)"
        rows.append(f"{whole[:40]:40} {self.moved:14,} {self.least:14,} {self.ratio:7.3f}")
        return "\n".join(rows)


def traffic(program: LoopProgram, target: Target = H100) -> TrafficReport:
    """Returns the traffic of a program whose kernels are printed for a target."""
    buffers = {buffer.number: buffer for buffer in program.buffers}
    steps: list[Moved] = []
    loaded: list[Touch] = []
    stored: list[Touch] = []
    for step in program.steps:
        if type(step) is Gemm:
            steps.append(_product(step, buffers))
        elif type(step) is Kernel and step.body and 0 not in step.extents[: step.space]:
            sweeps = body_of(step, buffers, FunctionTexts(), target).sweeps
            steps.append(_moved(step.name, sweeps, buffers))
            loaded += [each for sweep in sweeps for each in sweep.loads]
            stored += [each for sweep in sweeps for each in sweep.stores]
    outer = {
        number for number, buffer in buffers.items() if buffer.kind is not BufferKind.TEMPORARY
    }
    least = _least([x for x in loaded if x.buffer in outer], buffers)
    least += _least([x for x in stored if x.buffer in outer], buffers)
    return TrafficReport(program.name, tuple(steps), least)


def _moved(name: str, sweeps: Iterable[Sweep], buffers: Mapping[int, ProgramBuffer]) -> Moved:
    sweeps = list(sweeps)
    loads = [each for sweep in sweeps for each in sweep.loads]
    stores = [each for sweep in sweeps for each in sweep.stores]
    moved = sum(_bytes(part, buffers) for s in sweeps for part in (s.loads, s.stores))
    least = _least(loads, buffers) + _least(stores, buffers)
    dynamic = any(each.is_estimate for each in (*loads, *stores))
    return Moved(name, moved, least, len(sweeps), dynamic)


def _product(step: Gemm, buffers: Mapping[int, ProgramBuffer]) -> Moved:
    """Returns the traffic of a matrix product, taken to read both operands once."""
    count = step.m * step.k + step.k * step.n + step.m * step.n
    nbytes = math.prod(step.batch) * count * buffers[step.c.buffer].dtype.itemsize
    return Moved(step.name, nbytes, nbytes)


def _bytes(found: Iterable[Touch], buffers: Mapping[int, ProgramBuffer]) -> int:
    """Returns the bytes of the sectors that a sweep loads or stores; of each buffer at most all."""
    totals: dict[int, int] = {}
    scattered = 0
    for each in dict.fromkeys(found):
        if each.scattered:
            scattered += _points(each) * SECTOR
        else:
            totals[each.buffer] = totals.get(each.buffer, 0) + _sectors(each) * SECTOR
    return scattered + sum(
        min(total, -(-_size(buffers[number]) // SECTOR) * SECTOR)
        for number, total in totals.items()
    )


def _least(found: Iterable[Touch], buffers: Mapping[int, ProgramBuffer]) -> int:
    """Returns the bytes of all elements that are accessed, each once."""
    totals: dict[int, int] = {}
    for each in dict.fromkeys([attrs.evolve(x, scattered=False) for x in found]):
        count = _sectors(each, each.itemsize) * each.itemsize
        totals[each.buffer] = totals.get(each.buffer, 0) + count
    return sum(min(total, _size(buffers[number])) for number, total in totals.items())


def _sectors(each: Touch, unit: int = SECTOR) -> int:
    """Returns the units of an access. Loaded positions are taken to differ all."""
    if not each.address.dynamic:
        return sectors(each, unit)
    own = sectors(attrs.evolve(each, address=attrs.evolve(each.address, dynamic=())), unit)
    fixed = math.prod(
        last - first + 1
        for c, (first, last) in zip(each.address.coefficients, each.bounds, strict=True)
        if not c
    )
    return own * fixed


def _size(buffer: ProgramBuffer) -> int:
    nbytes: int = buffer.size * buffer.dtype.itemsize
    return nbytes


def _points(each: Touch) -> int:
    """Returns the number of points with different addresses."""
    pairs = zip(each.address.coefficients, each.bounds, strict=True)
    return math.prod(last - first + 1 for c, (first, last) in pairs if c)
