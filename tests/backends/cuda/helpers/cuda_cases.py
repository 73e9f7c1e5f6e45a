"""Programs that are printed as CUDA: chosen and drawn kernels, real functions after all passes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.backends.cuda.passes.device_passes import on_reduces, with_neighbors
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    Reduce,
    Statement,
    Step,
    Store,
)
from aotlite.ir.dtypes import float16, float32, float64, int64
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, name, where
from tests.backends.cpu.helpers.chosen_kernels import CHOSEN
from tests.backends.cpu.helpers.chosen_kernels import program as kernel_program
from tests.backends.cpu.helpers.drawn_kernels import Drawn, numbers

Cases = dict[str, tuple[LoopProgram, list[Any]]]


def chosen() -> Cases:
    """The kernels that were chosen for the C printer."""
    return {name: (program, inputs_of(name, program)) for name, program in CHOSEN.items()}


def drawn(seeds: range, *, in_place: bool = False) -> Cases:
    """Drawn kernels; `in_place`: they write what they read."""
    made = {seed: Drawn(seed, in_place=in_place) for seed in seeds}
    return {f"p{n}": (combined(each.program, n), each.inputs()) for n, each in made.items()}


def combined(program: LoopProgram, number: int) -> LoopProgram:
    """The program, in every other one of which a thread combines its neighbors first."""
    steps = list[Step]()
    for step in program.steps:
        assert type(step) is Kernel
        bare = on_reduces(step, lambda each: attrs.evolve(each, near=1))
        steps.append(with_neighbors(bare) if number % 2 else bare)
    return attrs.evolve(program, steps=tuple(steps))


def inputs_of(name: str, program: LoopProgram) -> list[Any]:
    """Small numbers for the inputs."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    by_number = {buffer.number: buffer for buffer in program.buffers}
    read = [by_number[number] for number in program.inputs if number is not None]
    return [numbers(generator, buffer) for buffer in read]


def floats(*shape: int) -> al.Tensor:
    """A leaf of some numbers."""
    count = int(np.prod(shape))
    return al.tensor(np.sin(np.arange(count, dtype=np.float32)).reshape(shape), requires_grad=True)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[al.Tensor, ...]]] = {
    "softmax": (lambda x: al.softmax(x, -1), (floats(6, 300),)),
    "layer_norm": (
        lambda x, w, b: al.layer_norm(x, (40,), w, b),
        (floats(6, 40), floats(40), floats(40)),
    ),
    "gelu": (lambda x, w: al.gelu(x * w) + x, (floats(6, 8), floats(8))),
    "transposed": (lambda x, y: al.tanh(x.t() + y), (floats(6, 8), floats(8, 6))),
    "stencil": (lambda x: al.roll(x, 1, 0) + al.roll(x, -1, 1) - 2 * x, (floats(6, 8),)),
}


def functions() -> Cases:
    """The forward and the backward graph of each function, as few kernels."""
    found: Cases = {}
    for key, (function, args) in FUNCTIONS.items():
        compiled = al.compile(function)
        compiled(*args)
        for way, graph in (("forward", compiled.forward_graph), ("back", compiled.backward_graph)):
            assert graph is not None
            program = improved(program_of(graph), 2)
            found[f"{key}_{way}"] = program, inputs_of(key, program)
    return found


def halves() -> Cases:
    """Every float16, what lies between two of them, and a little beside that, as float16."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    positive = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    positive[-1] = 65536.0
    middle = (positive[1:] + positive[:-1]) / 2
    beside = [np.nextafter(middle, 0), np.nextafter(middle, np.inf)]
    wide = np.concatenate([every, middle, -middle, *beside, -beside[1], [1e300, -1e-300, 5e-324]])
    count = wide.size
    at = Affine((1,))
    double, single = load(0, at, float64), load(1, at, float32)
    body: list[Statement] = [
        Store(2, at, cast(double, float16)),
        Store(3, at, cast(single, float16)),
        Store(4, at, cast(cast(double, float16), float64)),
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = [wide, wide.astype(np.float32)]
    sizes = {0: (float64, count), 1: (float32, count)}
    outputs = {2: (float16, count), 3: (float16, count), 4: (float64, count)}
    return {"halves": (kernel_program(((count,), 1, None), body, sizes, outputs), inputs)}


def centered(rows: int, n: int, lanes: int) -> LoopProgram:
    """Rows without their sums: a reduction through shared memory, and a pass behind it."""
    x: Scalar = load(0, Affine((n, 1)), float32)
    body: list[Statement] = [Reduce((0,), "sum", (x,), lanes)]
    body.append(Store(1, Affine((n, 1)), x - name(0, float32)))
    size = (float32, rows * n)
    return kernel_program(((rows, n), 1, 1), body, {0: size}, {1: size})


def added_rows() -> Cases:
    """Rows of no points, which add what a sum of nothing gives to one place, in order (K-7)."""
    x: Scalar = load(0, Affine((5, 5, 1)), float32)
    body: list[Statement] = [Reduce((0,), "prod", (x,), 4)]
    value = name(0, float32) + cast(axis(1), float32)
    body.append(Store(1, Affine((1, 0, 0)), value, combine="sum", each_row=True))
    program = kernel_program(((3, 5, 0), 2, None), body, {0: (float32, 0)}, {1: (float32, 3)})
    return {"added_rows": (program, [np.zeros(0, np.float32)])}


def last_stays(second: int) -> LoopProgram:
    """Points of a row that store at one address, in order: along one axis, or along both."""
    x: Scalar = load(0, Affine((63, 7, 1)), float32)
    body: list[Statement] = [Store(1, Affine((20, 1, second)), x)]
    return kernel_program(((3, 9, 7), 1, 2), body, {0: (float32, 189)}, {1: (float32, 60)})


def added_where_read() -> LoopProgram:
    """Rows that add up at positions that are read, without anything else that goes in order."""
    at = load(1, Affine((0, 1)), int64)
    body: list[Statement] = [
        Store(2, Affine((7, 0), 3, ((at, 1),)), load(0, Affine((90, 1)), float32), combine="sum")
    ]
    inputs = {0: (float32, 270), 1: (int64, 90)}
    return kernel_program(((3, 90), 1, 1), body, inputs, {2: (float32, 21)})


def stored_twice() -> LoopProgram:
    """Rows that are stored, and over them other ones, back to front."""
    x: Scalar = load(0, Affine((90, 1)), float32)
    body: list[Statement] = [
        Store(1, Affine((90, 1)), x),
        Store(1, Affine((90, -1), 89), where(axis(1) < 50, x * 2.0, x)),
    ]
    size = (float32, 270)
    return kernel_program(((3, 90), 1, 1), body, {0: size}, {1: size})


def row_in_place() -> LoopProgram:
    """A number of each row that all of the row loads, and one thread stores."""
    factor = load(1, Affine((1, 0)), float32)
    body: list[Statement] = [
        Store(1, Affine((1, 0)), factor * 3.0, each_row=True),
        Store(2, Affine((90, 1)), load(0, Affine((90, 1)), float32) * factor),
    ]
    sizes = {0: (float32, 270), 1: (float32, 3)}
    return kernel_program(((3, 90), 1, 1), body, sizes, {2: (float32, 270)})


def many_lanes(n: int) -> LoopProgram:
    """Reductions of several parts, with more lanes than a block has threads."""
    x: Scalar = load(0, Affine((n, 1)), float32)
    one, zero = const(1, float32), const(0, float32)
    body: list[Statement] = [
        Reduce((0,), "sum", (x,), 1024),
        Reduce((1, 2, 3), "moments", (one, x, zero), 1024),
        Reduce((4, 5), "argmax", (x, axis(1)), 1024),
        Store(1, Affine((n, 1)), (x - name(0, float32)) * name(2, float32) + name(3, float32)),
        Store(2, Affine((1, 0)), name(5, int64), each_row=True),
    ]
    outputs = {1: (float32, 2 * n), 2: (int64, 2)}
    return kernel_program(((2, n), 1, 1), body, {0: (float32, 2 * n)}, outputs)


def ordered() -> Cases:
    """Kernels in which threads must wait for each other, or one must do all."""
    programs = {
        "last_stays": last_stays(0),
        "last_of_diagonals": last_stays(1),
        "added_where_read": added_where_read(),
        "stored_twice": stored_twice(),
        "row_in_place": row_in_place(),
        "many_lanes": many_lanes(3000),
        "fewer_points_than_lanes": many_lanes(700),
    }
    found: Cases = {key: (each, inputs_of(key, each)) for key, each in programs.items()}
    return found | added_rows()


def written(program: LoopProgram) -> list[int]:
    """The buffers that are compared: inputs, which may be written to, and outputs."""
    outputs = [buffer.number for buffer in program.buffers if buffer.kind is BufferKind.OUTPUT]
    return [*outputs, *[number for number in program.inputs if number is not None]]
