"""CAG-5: kernels of a template are compiled once, and serve every size for which it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu import compiled_program, sized_program
from aotlite.backends.loops.backend import LOOPS
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.compiled_autograd import CompiledAutograd, disable, enable
from aotlite.ir.meta import table_in
from aotlite.stages.s7_simplify import simplify
from tests.compiled_autograd.test_sizes import LAYOUTS
from tests.compiled_autograd.test_structures import VARIANTS, leaf

pytestmark = pytest.mark.rules("CAG-5")

TEN = (2, 3, 4, 7, 8, 9, 16, 31, 32, 33)


def grads_of(function: Any, shapes: Any, tapes: Any) -> list[Any]:
    """The gradients of a backward; by the engine where `tapes` is None."""
    leaves = [leaf(*shape) for shape in shapes]
    try:
        result = function(*leaves)
        with disable() if tapes is None else enable(tapes):
            result.backward(al.ones(result.shape, dtype=result.dtype))
    except (al.AutogradError, al.ShapeError) as error:
        return [np.frombuffer(str(error).encode(), np.uint8)]
    return [None if x.grad is None else np.array(x.grad.tolist()) for x in leaves]


def run(function: Any, shapes: Any, tapes: Any) -> None:
    """A backward of leaves of these shapes, compared with the engine's."""
    pairs = zip(grads_of(function, shapes, None), grads_of(function, shapes, tapes), strict=True)
    for expected, found in pairs:
        assert (expected is None) == (found is None), shapes
        if found is not None:
            np.testing.assert_allclose(found, expected, 1e-5, 1e-5, err_msg=str(shapes))


def nothing_asked_late(tapes: CompiledAutograd) -> bool:
    """Whether no question about sizes came after the assumptions of its template were complete."""
    families = [each for outline in tapes._templates.outlines for each in outline.families]
    templates = [each.template for each in families if each.template is not None]
    return not any(each.symbols.table.late for each in templates)


def mlp(x: Any, w: Any) -> Any:
    return (((x @ w).relu() @ w).softmax(-1) * x).mean()


@contextmanager
def libraries() -> Iterator[list[str]]:
    """A block in which the texts of the libraries that are loaded are listed."""
    with pytest.MonkeyPatch.context() as patch:
        texts: list[str] = []
        for module in (compiled_program, sized_program):

            def load(text: str, *rest: Any, of: Any = module.load_c, **how: Any) -> Any:
                texts.append(text)
                return of(text, *rest, **how)

            patch.setattr(module, "load_c", load)
        yield texts


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
def test_ten_sizes_are_two_captures_and_two_libraries() -> None:
    tapes = CompiledAutograd.of("cpu")
    with libraries() as texts:
        for size in TEN:
            run(mlp, [(size, 8), (8, 8)], tapes)
    counters = tapes.counters
    assert (2, 8, 2, 0) == (
        counters.captures,
        counters.resized,
        counters.compiles,
        counters.skipped,
    )
    assert 2 == len(texts)
    assert "sizes[0]" in texts[1]
    assert nothing_asked_late(tapes)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", [*VARIANTS, *LAYOUTS])
def test_every_variant_at_ten_sizes(name: str) -> None:
    """Of kernels for all sizes the gradients are the engine's; no size is compiled by itself but
    for a reason."""
    tapes = CompiledAutograd.of("loops")
    function, square = (VARIANTS[name], True) if name in VARIANTS else (LAYOUTS[name], False)
    for size in TEN:
        run(function, [(size, size), (size, size)] if square else [(size, 3), (3, 3)], tapes)
    counters = tapes.counters
    assert counters.compiles <= counters.captures or not has_kernels(tapes), name
    assert nothing_asked_late(tapes)


def has_kernels(tapes: CompiledAutograd) -> bool:
    """Whether each template has kernels for all sizes."""
    families = [each for outline in tapes._templates.outlines for each in outline.families]
    templates = [each.template for each in families if each.template is not None]
    return all(each.kernels is not None for each in templates if each.symbols.places)


class Refusing:
    """A backend that makes kernels for numbers only."""

    name = "refusing"
    trusted = True

    def __init__(self, *, asks: bool) -> None:
        self.graphs: list[Any] = []
        if asks:
            self.compile_sized = self._compile_sized

    def compile(self, graph: Any) -> Any:
        self.graphs.append(graph)
        return LOOPS.compile(graph)

    def _compile_sized(self, graph: Any, refused: Any) -> None:
        refused("no kernels")


@pytest.mark.parametrize("asks", [True, False])
def test_a_backend_without_kernels_for_all_sizes_gets_numbers(
    asks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Refusing(asks=asks)
    tapes = CompiledAutograd.of(backend)
    with caplog.at_level("INFO", "aotlite.compiled_autograd"):
        for size in TEN:
            run(mlp, [(size, 8), (8, 8)], tapes)
    assert (2, 8, 10) == (tapes.counters.captures, tapes.counters.resized, tapes.counters.compiles)
    assert all(table_in([n.meta for n in graph.nodes]) is None for graph in backend.graphs)
    why = "no kernels" if asks else "tape: backend 'refusing' takes numbers only"
    assert f"each size has its own kernels: {why}" in caplog.text


def test_stages_and_passes_see_a_template_once() -> None:
    seen = []

    def keep(graph: Any) -> Any:
        seen.append(graph)
        return graph

    tapes = CompiledAutograd.of("loops", passes=[keep])
    for size in TEN:
        run(mlp, [(size, 8), (8, 8)], tapes)
    assert [False, True] == [table_in([n.meta for n in g.nodes]) is not None for g in seen]
    assert 10 == len(tapes.graphs)
    assert all(table_in([n.meta for n in graph.nodes]) is None for graph in tapes.graphs)


def test_a_pass_that_needs_a_number_has_each_size_captured() -> None:
    def asks(graph: Any) -> Any:
        assert int(graph.placeholders[-1].meta.shape[0]) >= 2
        return graph

    tapes = CompiledAutograd.of("loops", passes=[asks])
    for size in (*TEN, *TEN):
        run(lambda x: x.sin().exp(), [(size, 3)], tapes)
    assert (10, 0, 10) == (
        tapes.counters.captures,
        tapes.counters.resized,
        tapes.counters.hits,
    )


def test_a_template_whose_facts_do_not_follow_is_an_error() -> None:
    def wrong(graph: Any) -> Any:
        table = table_in([node.meta for node in graph.nodes])
        if table is not None:
            size = table.named("s0")
            table.said("==", size * 2, size + 2, True)  # of size 2 alone
        return simplify(graph)

    tapes = CompiledAutograd.of("loops", stages={"simplify": wrong})
    run(lambda x: x.sin(), [(5, 3)], tapes)
    with pytest.raises(al.GuardError, match=r"2\*s0"):
        run(lambda x: x.sin(), [(6, 3)], tapes)
    unproved = CompiledAutograd.of("loops", stages={"simplify": wrong}, verify=0)
    for size in (5, 6):
        run(lambda x: x.sin(), [(size, 3)], unproved)
