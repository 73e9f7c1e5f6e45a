"""Equal kernels are printed once, and each step runs the text on its own buffers."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.emit.c_program import print_program
from aotlite.backends.cpu.emit.calls import shared_steps
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import (
    BufferKind,
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    ProgramBuffer,
    Step,
    Store,
)
from aotlite.backends.loops.templates.kernel_template import instance_of, renamed
from aotlite.ir import logs
from aotlite.ir.dtypes import float32
from aotlite.ir.scalar.expression import Affine, load
from aotlite.pipeline.logs import loggers
from tests.backends.cpu.helpers.printing import Compiled, interpreted, outputs_of, same_bits
from tests.backends.loops.helpers.drawn_programs import drawn
from tests.backends.loops.helpers.repeated_programs import repeated

AT = Affine((1,))


def _functions(text: str) -> list[str]:
    return re.findall(r"static NEVER_INLINE void (\w+_k\d+)\(", text)


def _kernels(program: LoopProgram) -> list[Kernel]:
    return [step for step in program.steps if type(step) is Kernel and step.body]


@pytest.mark.parametrize("fewest", [1, 10_000], ids=["in tables", "in calls"])
def test_drawn_programs_with_planted_repetitions_give_the_interpreters_bits(
    fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program is there three times, on buffers of its own: no kernel is printed thrice."""
    monkeypatch.setattr(shared_steps, "FEWEST", fewest)
    found: dict[str, tuple[LoopProgram, list[Any]]] = {}
    for seed in range(10):
        program, inputs = drawn(seed, 8)
        program = improved(program, 2) if seed % 2 else program
        found[f"s{seed}"] = repeated(program, inputs, times=3)
    compiled = Compiled({name: program for name, (program, _) in found.items()}, contract=False)
    saved = 0
    for name, (program, inputs) in found.items():
        own = [each for each in _functions(compiled.text) if each.startswith(f"{name}_k")]
        saved += len(_kernels(program)) - len(own)
        assert len(own) <= max(len(_kernels(program)) // 2, 1), f"{name}: {program}"
        expected = interpreted(program, [array.copy() for array in inputs])
        memory = compiled.run(name, [array.copy() for array in inputs])
        for number in outputs_of(program):
            assert same_bits(expected[number], memory[number]), f"{name}, b{number}: {program}"
    assert saved > 40
    assert ("run_steps(" in compiled.text) is (fewest == 1)


def test_kernels_that_differ_in_what_shares_memory_have_texts_of_their_own() -> None:
    """`b2 = b1 + 1` writes in the place of b1, which dies; `b4 = b3 + 1` must not."""
    kinds = [BufferKind.INPUT, *[BufferKind.TEMPORARY] * 4, BufferKind.OUTPUT]
    buffers = tuple([ProgramBuffer(k, float32, 64, kind) for k, kind in enumerate(kinds)])
    x = [load(k, AT, float32) for k in range(6)]

    def kernel(name: str, out: int, value: object) -> Kernel:
        return Kernel(name, (64,), 1, (Store(out, AT, value),), vector=0)  # type: ignore[arg-type]

    total = x[2] + x[3] * x[4]
    steps = [kernel("a", 1, x[0] * 2.0), kernel("b", 3, x[0] * 3.0), kernel("c", 2, x[1] + 1.0)]
    steps += [kernel("d", 4, x[3] + 1.0), kernel("e", 5, total)]
    program = LoopProgram("places", buffers, tuple(steps), (0,), ())
    assert instance_of(steps[2]).template == instance_of(steps[3]).template
    assert 5 == len(_functions(print_program(program).text))
    values = np.arange(64, dtype=np.float32)
    memory = Compiled({"p": program}).run("p", [values])
    assert same_bits(2 * values + 1 + 3 * values * (3 * values + 1), memory[5])


def test_equal_products_have_one_record() -> None:
    """Products of other windows have records of their own, and so has a single one."""
    buffers = [ProgramBuffer(0, float32, 64, BufferKind.INPUT)]
    buffers += [ProgramBuffer(k, float32, 64, BufferKind.OUTPUT) for k in (1, 2, 3)]

    def product(name: str, a: int, c: int, start: int = 0, k: int = 4) -> Gemm:
        windows = [MatrixWindow(n, s, (), 8, 1) for n, s in ((a, start), (0, 0), (c, 0))]
        return Gemm(name, (), 4, 4, k, *windows)

    def text(*steps: Step) -> str:
        program = LoopProgram("products", tuple(buffers), steps, (0,), ())
        memory = Compiled({"p": program}).run("p", [np.arange(64, dtype=np.float32)])
        expected = interpreted(program, [np.arange(64, dtype=np.float32)])
        stored = [step.c.buffer for step in steps if type(step) is Gemm]
        assert all(np.array_equal(expected[n], memory[n]) for n in stored)
        return print_program(program).text

    shared = text(product("one", 0, 1), product("two", 0, 2, start=9), product("three", 0, 3, k=3))
    assert 1 == shared.count("static const al_product")
    assert 2 == shared.count("&run_product0, 1")
    assert "static const al_product" not in text(product("one", 0, 1), product("two", 0, 2, k=3))


def test_a_template_is_the_kernel_up_to_its_buffers() -> None:
    """Renamed to the buffers of an instance, a template is the kernel again; other buffers have the
    same template, and another dtype, address or number has another."""
    program, _ = drawn(3, 14)
    for kernel in _kernels(program):
        instance = instance_of(kernel)
        back = renamed(instance.template, dict(enumerate(instance.buffers)))
        assert kernel == attrs.evolve(back, name=kernel.name)
        other = renamed(kernel, {n: 7 * n + 100 for n in instance.buffers})
        assert instance.template == instance_of(other).template
    one, two = load(4, AT, float32), load(5, AT, float32)
    bodies = [one + two, two + one, one + one, two + two, one + 1.0, one + 2.0]
    templates = [
        instance_of(Kernel("k", (8,), 1, (Store(6, AT, each),))).template for each in bodies
    ]
    assert templates[0] == templates[1] and templates[2] == templates[3]
    assert 4 == len(set(templates))


def test_the_log_says_how_many_kernels_are_different(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same when the text comes from the cache of graphs."""
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path))
    heard: list[logs.LogEvent] = []

    def layers(x: al.Tensor, weights: list[al.Tensor]) -> al.Tensor:
        for weight in weights:
            x = (x @ weight).relu()
        return x.exp()

    logs.listen(heard.append)
    try:
        for _ in range(2):
            gc.collect()  # the library is unloaded, and found in the cache again
            al.compile(layers, backend="cpu")(al.ones(8, 8), [al.ones(8, 8)] * 4)
    finally:
        logs.stop(heard.append)
    found = [
        each.facts for each in heard if each.name == "kernel" and each.facts["name"] == "layers"
    ]
    assert [(4, 2)] * 2 == [(each["kernels"], each["different"]) for each in found]
    last = next(each for each in heard[::-1] if each.facts.get("name") == "layers")
    (said,) = [say() for _, _, say in loggers._lines(last)]
    assert said.startswith("kernels of layers, 2 different ones of 4, ")
