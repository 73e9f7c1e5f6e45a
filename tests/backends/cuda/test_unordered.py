"""Stores in any order (K-12): the same memory as in order, from all threads at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cuda.backend import CudaBackend
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.emit.cuda_program import print_units
from aotlite.backends.cuda.passes.unordered_scatter import with_unordered
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.combiners import COMBINERS
from aotlite.backends.loops.program import Kernel, LoopProgram, Statement, Store, stores_of
from aotlite.backends.loops.verify import verify
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Affine, Scalar, axis, cast, const, load, where
from aotlite.testing import emulated_cuda
from tests.backends.cpu.helpers.chosen_kernels import program
from tests.backends.cpu.helpers.printing import interpreted, same_bits
from tests.backends.cuda.helpers.anywhere import Built
from tests.backends.cuda.helpers.cuda_cases import Cases, inputs_of
from tests.backends.cuda.helpers.hosted import ORDERS, compiler
from tests.thinning import thinned

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc"
)
TARGET = Target("sm_80", 2)
"""So few multiprocessors that looking for the last one is worth it early."""
REAL = (
    dtypes.bool_,
    dtypes.uint8,
    dtypes.int8,
    dtypes.int16,
    dtypes.int32,
    dtypes.int64,
    dtypes.uint16,
    dtypes.uint32,
    dtypes.uint64,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.float64,
)
COMBINES = ("sum", "prod", "max", "min", "any", "all", None)


def scattered(
    rows: int,
    inner: tuple[int, ...],
    dtype: DType,
    combine: str | None,
    *,
    along: bool = False,
    numbered: bool = True,
) -> LoopProgram:
    """Rows that are combined with, or put to, where positions say, which repeat; `along`: each row
    has positions of its own; `numbered`: the number of a point is part of its value."""
    axes, points = 1 + len(inner), int(np.prod(inner))
    steps = [int(np.prod(inner[k + 1 :])) for k in range(len(inner))]
    own = Affine((points if along else 0, *steps))
    read = load(1, own, dtypes.int64)
    # What lies outside goes to the first place, as lowering has it.
    place = where((read + 3 >= 0) & (read + 3 < 7), read + 3, 0)
    address = Affine((1, *[0] * (axes - 1)), 0, ((place, rows),))
    value: Scalar = load(0, Affine((1, *[step * rows for step in steps])), dtype)
    if numbered and dtype is not dtypes.bool_:
        value = value + cast(axis(axes - 1), dtype)
    body: list[Statement] = [Store(2, address, value, combine=combine)]
    inputs = {0: (dtype, rows * points), 1: (dtypes.int64, points * (rows if along else 1))}
    return program(((rows, *inner), 1, 0), body, inputs, {2: (dtype, 7 * rows)})


def is_meant(dtype: DType, combine: str | None) -> bool:
    """Whether there is such a combination."""
    if combine in ("any", "all"):
        return dtype is dtypes.bool_
    return combine is None or dtype is not dtypes.bool_


def every(*, numbered: bool = True) -> Iterator[tuple[str, LoopProgram]]:
    """All dtypes and combinations, in three shapes."""
    for dtype in REAL:
        for combine in COMBINES:
            if is_meant(dtype, combine):
                name, more = f"{dtype.name}_{combine}", {"numbered": numbered}
                yield f"{name}_one", scattered(1, (700,), dtype, combine, **more)
                yield f"{name}_rows", scattered(8, (5, 60), dtype, combine, **more)
                yield f"{name}_own", scattered(4, (130,), dtype, combine, along=True, **more)


def some(found: Cases, share: int) -> Cases:
    """Each `share`th: another shape, and other combinations, from one dtype to the next."""
    return dict(list(found.items())[::share])


def only(each: LoopProgram) -> Kernel:
    """Its one kernel."""
    (step,) = each.steps
    assert type(step) is Kernel
    return step


def marks(each: LoopProgram) -> list[bool]:
    """Of the stores to positions that are read, whether they are in any order."""
    stores = [s for step in each.steps if type(step) is Kernel for s in stores_of(step)]
    return [store.unordered for store in stores if store.address.dynamic]


def prepared(name: str, *, deterministic: bool) -> tuple[LoopProgram, list[Any]]:
    made = with_unordered(PROGRAMS[name], TARGET, deterministic=deterministic)
    (size,) = [buffer.size for buffer in made.buffers if buffer.number == 2]
    (dtype,) = [buffer.dtype for buffer in made.buffers if buffer.number == 2]
    filled = Kernel("filled", (size,), 1, (Store(2, Affine((1,)), const(1, dtype)),))
    verify(attrs.evolve(made, steps=(filled, *made.steps)))
    return made, inputs_of(name, PROGRAMS[name])


PROGRAMS = dict(every())


def changed_by(share: int) -> list[str]:
    """The programs that mean another thing, marked or with the last one found before."""
    wrong = []
    for name, each in list(PROGRAMS.items())[::share]:
        inputs = inputs_of(name, each)
        expected = interpreted(each, inputs)[2]
        made = with_unordered(each, TARGET)
        if "float" in name and "sum" in name:
            continue  # other bits: test_exact_sums
        wrong += [] if same_bits(expected, interpreted(made, inputs)[2]) else [name]
    return wrong


def test_the_program_means_the_same() -> None:
    assert [] == changed_by(8)


@pytest.mark.long
def test_the_program_means_the_same_for_every_dtype_and_combination() -> None:
    assert [] == changed_by(1)


def test_what_no_order_changes_is_in_any_order() -> None:
    counts = {True: 0, False: 0}
    for name in PROGRAMS:
        _, combine, _ = name.split("_")
        made, _ = prepared(name, deterministic=True)
        needs_order = "float" in name and combine in ("max", "min", "prod")
        assert all(marks(made)) is not needs_order, name
        steps = {"None": 3, "sum": 4 if "float" in name else 1}.get(combine, 1)
        assert len(made.steps) == steps, name
        counts[needs_order] += 1
        made, _ = prepared(name, deterministic=False)
        assert all(marks(made)) and len(made.steps) == 1, name
    assert counts[True] >= 30 and counts[False] >= 100


def test_the_last_is_looked_for_where_that_is_worth_it() -> None:
    """Few points, or a large memory, are looked at in stripes."""
    few = scattered(8, (6,), dtypes.float32, None)
    assert marks(with_unordered(few, TARGET)) == [False]
    step = only(few)
    (store,) = stores_of(step)
    wide = [attrs.evolve(b, size=1 << 28) if b.number == 2 else b for b in few.buffers]
    large = attrs.evolve(few, buffers=tuple(wide))
    assert marks(with_unordered(large, TARGET)) == [False]
    # All points store the same: no order changes that.
    same = attrs.evolve(store, value=load(0, Affine((1, 0)), dtypes.float32))
    alike = attrs.evolve(few, steps=(attrs.evolve(step, body=(same,)),))
    assert marks(with_unordered(alike, TARGET)) == [True]


def test_several_stores_are_in_any_order_together_or_not_at_all() -> None:
    def of(*combined: tuple[DType, str | None]) -> LoopProgram:
        parts = [scattered(4, (50,), dtype, combine) for dtype, combine in combined]
        stores = [stores_of(only(part))[0] for part in parts]
        body: list[Statement] = [
            attrs.evolve(store, buffer=2 + k, value=cast(axis(1), store.value.dtype))
            for k, store in enumerate(stores)
        ]
        outputs = {2 + k: (dtype, 28) for k, (dtype, _) in enumerate(combined)}
        return program(((4, 50), 1, 0), body, {1: (dtypes.int64, 50)}, outputs)

    both = with_unordered(of((dtypes.int32, "sum"), (dtypes.int64, "max")), TARGET)
    assert marks(both) == [True, True]
    mixed = of((dtypes.int32, "sum"), (dtypes.float32, "sum"))
    assert marks(with_unordered(mixed, TARGET)) == [False, False]
    assert marks(with_unordered(mixed, TARGET, deterministic=False)) == [True, True]


# ------------------------------------------------------------------------------------ as it prints
def cases(*, deterministic: bool) -> Cases:
    return {name: prepared(name, deterministic=deterministic) for name in PROGRAMS}


def wrong_at(folder: Path, share: int) -> list[str]:
    found = {k: v for k, v in cases(deterministic=True).items() if marks(v[0]) != [False]}
    found = some(found, share)
    assert len(found) >= 100 // share
    return Built(found, folder).differences()


@needs_compiler
def test_threads_in_any_order_leave_the_interpreters_memory(tmp_path: Path) -> None:
    assert [] == wrong_at(tmp_path, 4)


@pytest.mark.long
@needs_compiler
def test_threads_in_any_order_leave_it_for_every_dtype_and_combination(tmp_path: Path) -> None:
    assert [] == wrong_at(tmp_path, 1)


@needs_compiler
def test_sums_of_floats_in_any_order_are_the_same_where_none_is_rounded(tmp_path: Path) -> None:
    """-1, 0 and 1, of which even bfloat16 holds the sums."""
    found: Cases = {}
    for name, each in every(numbered=False):
        dtype, combine, _ = name.split("_")
        if "float" in dtype and combine in ("sum", "max", "min"):
            values, places = inputs_of(name, each)
            made = with_unordered(each, TARGET, deterministic=False)
            found[name] = made, [np.sign(np.rint(values)).astype(values.dtype), places]
    assert len(found) == 36
    assert [] == Built(some(found, 2), tmp_path).differences()


@needs_compiler
def test_one_of_what_is_put_in_any_order_stays(tmp_path: Path) -> None:
    found = {k: v for k, v in cases(deterministic=False).items() if k.endswith("None_one")}
    found = some(found, 2)
    built = Built(found, tmp_path)
    others = 0
    for name, (made, inputs) in found.items():
        values, places = inputs[0], np.where(inputs[1] + 3 < 7, inputs[1] + 3, 0)
        if values.dtype != bool:
            values = values + np.arange(len(values)).astype(values.dtype)
        expected = interpreted(made, inputs)[2]
        for order in ORDERS:
            memory = built.memory(name, order, 1 << 30, moved=False)[2]
            for place in np.flatnonzero(memory != expected):
                others += 1
                assert memory[place] in values[places == place], name
    assert others > 0


@needs_compiler
def test_what_is_no_atomic_operation_is_seen(tmp_path: Path) -> None:
    plants = {
        "int32_sum_one": ("atomicAdd((u32 *)&b2", "plain((u32 *)&b2"),
        "int32_max_rows": ("atomicMax(&b2", "larger(&b2"),
        "int32_None_one": ("settle(&b2", "stored(&b2"),
        "uint8_sum_own": ("combine_at(&b2", "combine_once(&b2"),
    }
    extra = """
template <class T> INLINE void plain(T *at, T value) { *at = *at + value; }
template <class T> INLINE void larger(T *at, T value) { *at = *at > value ? *at : value; }
template <class T> INLINE void stored(T *at, T value) { *at = value; }
template <class T, class F> INLINE void combine_once(T *at, F f) { *at = f(*at); }
"""
    found = {key: prepared(key, deterministic=True) for key in plants}
    built = Built(found, tmp_path, plants, extra)
    seen = [each for each in built.differences() if "race" in each]
    assert {each.split(",")[0] for each in seen} == set(plants)


@needs_nvrtc
@pytest.mark.parametrize("architecture", thinned(["sm_80", "sm_90"]))
def test_hardware_has_all_of_it(architecture: str) -> None:
    names = [name for name in PROGRAMS if name.endswith("_rows")]
    found = {
        f"{name}_{deterministic}": prepared(name, deterministic=deterministic)[0]
        for deterministic in (True, False)
        for name in names[deterministic::2]
    }
    text, _ = print_units(found, TARGET)
    assert text.count("atomic") > 20 and text.count("combine_at") > 15
    assert nvrtc.compile_cubin(text, architecture)


# -------------------------------------------------------------------------------------- as it runs
def functions() -> dict[str, Any]:
    """Each of values, positions that repeat, and what is there before."""
    return {
        "added": lambda x, i, v: x.index_add(0, i, v),
        "put": lambda x, i, v: al.index_put(x, (i,), v),
        "put_number": lambda x, i, v: al.index_put(x, (i,), al.tensor(2.5, device=x.device)),
        "scattered": lambda x, i, v: al.scatter(x, 0, i.unsqueeze(1).expand(-1, 6), v),
        "grad": lambda x, i, v: (x[i] * v).sum(),
    }


@needs_compiler
@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_compiled_function_gives_what_eager_gives(name: str, *, deterministic: bool) -> None:
    """Of whole numbers, whose sums no order changes."""
    draw = random.Random(name)
    device, function = emulated_cuda(), functions()[name]
    x = al.tensor([[float(draw.randint(-9, 9)) for _ in range(6)] for _ in range(9)])
    i = al.tensor([draw.randint(0, 8) for _ in range(400)] if deterministic else [*range(9)])
    v = al.tensor([[float(draw.randint(-9, 9)) for _ in range(6)] for _ in range(len(i))])
    x, i, v = (each.to(device) for each in (x, i, v))
    compiled = al.compile(function, backend=CudaBackend(deterministic=deterministic))
    if name == "grad":
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        function(a, i, v).backward()
        compiled(b, i, v).backward()
        assert np.array_equal(a.grad.cpu().numpy(), b.grad.cpu().numpy())
    else:
        expected, found = function(x, i, v), compiled(x, i, v)
        assert np.array_equal(expected.cpu().numpy(), found.cpu().numpy())


def test_combinations_that_no_order_changes() -> None:
    """Points in another order leave the same memory."""
    draw, count = random.Random(5), 0
    for dtype in REAL:
        for combine in sorted(each.name for each in COMBINERS.values() if each.is_exact):
            if is_meant(dtype, combine) and not dtype.is_floating_point:
                each = scattered(1, (700,), dtype, combine, numbered=False)
                inputs, order = inputs_of("any", each), draw.sample(range(700), 700)
                turned = [array[order] for array in inputs]
                assert same_bits(interpreted(each, inputs)[2], interpreted(each, turned)[2])
                count += 1
    assert count == 4 * 8 + 2
