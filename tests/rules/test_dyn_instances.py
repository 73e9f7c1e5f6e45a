"""Instances of a region share its text, graphs and kernels (DYN-41), up to a limit (DYN-42)."""

from __future__ import annotations

import gc
import math
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic import numbers
from aotlite.ir.symbols.proving import proving
from aotlite.subclasses import TwoTensor
from benchmarks.sizes import Transformer

pytestmark = pytest.mark.rules("DYN-41")
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
BACKENDS = ["reference", "loops", pytest.param("cpu", marks=needs_compiler)]


def values(*shape: int, seed: int = 0) -> al.Tensor:
    """Random numbers."""
    return al.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def agree(compiled: Any, function: Callable[..., al.Tensor], *shapes: tuple[int, ...]) -> None:
    """Compares results and gradients with eager's."""
    found: list[Any] = []
    for each in (compiled, function):
        inputs: list[Any] = [
            values(*shape, seed=k).requires_grad_() for k, shape in enumerate(shapes)
        ]
        result = each(*inputs)
        result.sum().backward()
        found.append([result.tolist(), *[x.grad.tolist() for x in inputs]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def region_of(compiled: Any) -> Any:
    """The region of the last entry."""
    return compiled.entries[-1].guarded


@contextmanager
def counted_graphs() -> Iterator[list[Graph]]:
    """A block in which graphs that get numbers are noted."""
    found: list[Graph] = []
    inner = numbers.with_sizes

    def noted(graph: Graph, *rest: Any) -> Graph:
        found.append(graph)
        return inner(graph, *rest)

    places = [each for each in sys.modules.values() if getattr(each, "with_sizes", None) is inner]
    for each in places:
        each.with_sizes = noted  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        for each in places:
            each.with_sizes = inner  # type: ignore[attr-defined]


def block(x: al.Tensor, w: al.Tensor) -> al.Tensor:
    """A function with results, saved values, and views of symbolic sizes."""
    y = (x.view(x.shape[0] * x.shape[1], -1) @ w).relu()
    return (y - y.mean(0, True)).view(x.shape[0], x.shape[1], -1).transpose(0, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_instances_have_one_text_and_one_code(backend: str) -> None:
    compiled = al.compile(block, dynamic=True, backend=backend)
    for n in (3, 5, 2, 8):
        agree(compiled, block, (n, 2, 4), (4, 3))
    assert len(compiled.entries) == 1
    made = [each.guarded for each in region_of(compiled).instances.values()]
    assert len({each.source for each in made}) == len({each.call.__code__ for each in made}) == 1
    assert len({id(each.call) for each in made}) == len(made) == 4


@needs_compiler
def test_a_further_size_makes_no_graph() -> None:
    compiled = al.compile(block, dynamic=True, backend="cpu")
    for n in (3, 5):
        agree(compiled, block, (n, 2, 4), (4, 3))
    with counted_graphs() as graphs:
        agree(compiled, block, (7, 2, 4), (4, 3))
    assert graphs == []


@needs_compiler
def test_graphs_and_loops_get_numbers_when_somebody_looks() -> None:
    seen: list[tuple[str, str]] = []
    compiled = al.compile(
        block,
        dynamic=True,
        backend="cpu",
        observer=lambda stage, made: seen.append((stage, str(made))),
    )
    for n in (3, 5):
        agree(compiled, block, (n, 2, 4), (4, 3))
    loops = [text for stage, text in seen if stage == "9 lower, forward_kernels"]
    assert "f32[24] input" in loops[0] and "f32[40] input" in loops[-1]


def _calls(function: Callable[[], object]) -> int:
    """How many functions a call calls."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@needs_compiler
def test_a_further_size_costs_little_more_for_a_larger_model() -> None:
    """Functions that are called for it, and bytes that it keeps: 2 and 12 blocks of a transformer.
    It took 100,000 calls and 1.2 MB for 12 blocks where each size had graphs of its own."""
    calls, kept = [], []
    for blocks in (2, 12):
        model = Transformer(blocks, 16, heads=2)
        step: Any = al.compile(model.loss, dynamic_shapes={"x": {1: True}}, backend="cpu")

        def train(n: int, step: Any = step, model: Transformer = model) -> None:
            al.autograd.grad(step(al.ones(2, n, 16), model.parameters), model.parameters)

        for n in (4, 5, 6):
            train(n)
        new = _calls(partial(train, 7))
        calls.append(new - _calls(partial(train, 7)))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for n in range(8, 18):
            train(n)
        gc.collect()
        kept.append((tracemalloc.get_traced_memory()[0] - before) / 10)
        tracemalloc.stop()
    assert calls[1] < 6000 and kept[1] < 50_000, (calls, kept)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_with_other_answers_have_another_text(backend: str) -> None:
    """A tensor without elements travels as a window, another one as an array."""

    def scaled(x: al.Tensor) -> al.Tensor:
        return (x * 2).exp()

    compiled = al.compile(scaled, dynamic=True, backend=backend)
    for n in (3, 0, 4, 1, 0, 7):
        agree(compiled, scaled, (n, 2))
    entries = region_of(compiled)._entries
    assert len(compiled.entries) == 1 and len(entries._texts) == 2 and entries.why_not == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_depends_on_sizes_otherwise_has_records_of_its_own(backend: str) -> None:
    """Inputs that share memory are compared by their distances, which sizes change."""

    def written(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        x.mul_(2)
        return x + y

    compiled = al.compile(written, dynamic=True, backend=backend)
    for n in (3, 5, 4):
        found = []
        for each in (compiled, written):
            base = values(2 * n)
            found.append([each(base[:n], base[n:]).tolist(), base.tolist()])
        assert found[0] == found[1]
    assert "memory that inputs share, at each size" in region_of(compiled)._entries.why_not


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_may_have_the_name_of_one_that_its_call_uses(backend: str) -> None:
    def tensor_over(x: al.Tensor) -> al.Tensor:
        return x * 2

    compiled = al.compile(tensor_over, dynamic=True, backend=backend)
    for n in (3, 5):
        agree(compiled, tensor_over, (n, 2))
    assert region_of(compiled)._entries.why_not == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_of_sizes_are_those_of_each_instance(backend: str) -> None:
    def scaled(x: al.Tensor) -> al.Tensor:
        return x * (x.shape[0] / 3) + math.ceil(x.shape[0] * 0.3)

    compiled = al.compile(scaled, dynamic=True, backend=backend)
    for n in (3, 5, 8, 4):
        agree(compiled, scaled, (n, 2))


def test_wrappers_have_records_of_their_own() -> None:
    compiled = al.compile(lambda x: x * 2, dynamic=True, backend="reference")
    for n in (3, 5):
        made: Any = compiled(TwoTensor(values(n), values(n, seed=1)))
        assert made.a.tolist() == (values(n) * 2).tolist()
    assert region_of(compiled)._entries.why_not == ["wrappers at each size"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_double_backward_is_made_of_the_numbers_of_its_size(backend: str) -> None:
    def cubed(x: al.Tensor) -> al.Tensor:
        return (x * x * x * x.shape[0]).sum()

    compiled = al.compile(cubed, dynamic=True, backend=backend)
    for n in (3, 5, 4):
        found: list[Any] = []
        for each in (compiled, cubed):
            x: Any = values(n).requires_grad_()
            grad: Any = al.autograd.grad(each(x), x, create_graph=True)[0]
            (grad * grad).sum().backward()
            found.append(x.grad.tolist())
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_for_some_results_is_that_of_its_size(backend: str) -> None:
    def two(x: al.Tensor, w: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
        return (x @ w).sin(), (x * x.shape[0]).exp()

    compiled = al.compile(two, dynamic=True, backend=backend)
    for n in (3, 5, 4):
        for place in (0, 1):
            found: list[Any] = []
            for each in (compiled, two):
                x, w = values(n, 2).requires_grad_(), values(2, 3, seed=1).requires_grad_()
                each(x, w)[place].sum().backward()
                grads = [t.grad for t in (x, w)]
                found.append([None if grad is None else grad.tolist() for grad in grads])
            assert (found[0][1] is None) == (found[1][1] is None)
            np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)


@needs_compiler
def test_compilers_of_users_compile_each_size_once() -> None:
    """Also where an instance takes records of its own after the forward is compiled."""
    seen: list[str] = []

    def compiler(graph: Graph, examples: Any) -> Any:
        seen.append(str(graph.placeholders[0].meta))
        return al.compilers.nop(graph, examples)

    def written(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        return x.mul_(2) + y

    compiled = al.compile(written, dynamic=True, backend=compiler)
    for n in (3, 5, 3):
        base = values(2 * n)
        compiled(base[:n], base[n:])
    assert seen == ["f32[3]", "f32[5]"]


@pytest.mark.rules("DYN-42")
@pytest.mark.parametrize("limit", [0, -1, True, 2.5, "many"])
def test_the_limit_is_a_number_of_sizes(limit: Any) -> None:
    with pytest.raises(
        al.ArgumentError, match="instance_limit is .*, expected a number of vectors"
    ):
        al.compile(lambda x: x, instance_limit=limit)


@pytest.mark.rules("DYN-42")
def test_counts_that_were_used_longest_ago_go_first() -> None:
    """What computes the counts is used by each call, and stays."""
    made: list[int] = []

    def compiler(graph: Graph, examples: Any) -> Any:
        made.append(1)
        return al.compilers.nop(graph, examples)

    compiled = al.compile(lambda x: x[x > 0] * 2, backend=compiler, instance_limit=3)
    counts = []
    for n in (1, 2, 1, 3, 1):
        before = len(made)
        assert compiled(al.tensor([1.0] * n + [-1.0] * (5 - n))).tolist() == [2.0] * n
        counts.append(len(made) > before)
    assert counts == [True, True, False, True, False]


@pytest.mark.rules("DYN-31", "DYN-42")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("limit", [1, 2])
def test_what_computes_counts_guards_each_call_when_it_is_made_anew(
    limit: int, dynamic: bool | None
) -> None:
    """Of few entries the first segment's is dropped, too; the next call may be of other sizes,
    dtypes or histories."""

    def function(x: al.Tensor, y: al.Tensor) -> Any:
        found = (x + y).masked_select(x > 0)
        return found[found > 1] * 2.0

    compiled = al.compile(function, dynamic=dynamic, backend="reference", instance_limit=limit)
    for m, n in ((1, 5), (3, 5), (2, 5), (0, 0), (1, 0), (2, 0), (1, 5), (5, 5), (5, 4)):
        for dtype in (al.float32, al.float64):
            x, y = al.ones(m, 5).to(dtype), al.ones(1, n).requires_grad_(m != 2)
            seen = [_outcome(each, x, y) for each in (function, compiled)]
            assert seen[0] == seen[1], (m, n, dtype)


def _outcome(function: Any, *arguments: al.Tensor) -> Any:
    try:
        found = function(*arguments)
    except al.AotliteError as error:
        return str(error)
    return found.shape, found.dtype, found.requires_grad, found.tolist()


@pytest.mark.rules("DYN-8")
def test_why_a_region_does_not_serve_is_said_with_its_symbols() -> None:
    """Also while another thread makes an instance, whose text has names for sizes."""

    def halves(x: al.Tensor) -> al.Tensor:
        return x.reshape(2, -1).sum(0) if x.shape[0] % 2 == 0 else x

    compiled = al.compile(halves, dynamic=True, backend="reference")
    compiled(al.ones(4))
    region: Any = compiled.entries[0].guarded
    names: list[object] = []
    started = threading.Event()

    def spelled(size: object) -> str:
        names.append(size)
        return "n"

    def why() -> str:
        started.set()
        return str(region.why_not([al.ones(5)]))

    with ThreadPoolExecutor(1) as pool:
        with region.sizes.lock, proving(region.sizes.table, spelled):
            asked = pool.submit(why)
            started.wait()
            with pytest.raises(TimeoutError):
                asked.result(0.1)
        assert "s0 % 2 == 0" in asked.result()
    assert not names
