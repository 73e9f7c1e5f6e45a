"""CAG-5: a size that changes is a symbol, and no formula runs for the next one."""

from __future__ import annotations

import gc
import weakref
from threading import Thread
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable
from tests.compiled_autograd.helpers.resized import checked
from tests.compiled_autograd.test_structures import VARIANTS, Several, leaf

pytestmark = pytest.mark.rules("CAG-5")


def grads_of(function: Any, leaves: Any, tapes: Any) -> Any:
    """What a backward leaves: by the engine where `tapes` is None."""
    fresh = [x.detach().clone().requires_grad_(x.requires_grad) for x in leaves]
    switch = al.compiled_autograd.disable() if tapes is None else enable(tapes)
    try:
        result = function(*fresh)
        if not result.requires_grad:
            return "none"
        with switch:
            result.backward(al.ones(result.shape, dtype=result.dtype))
    except (al.AotliteError, ValueError) as error:
        return type(error).__name__
    return [None if x.grad is None else (str(x.grad.meta), repr(x.grad.tolist())) for x in fresh]


def run(function: Any, shapes: Any, tapes: Any) -> None:
    """A backward of leaves of these shapes, compared with the engine's."""
    leaves = [leaf(*shape) for shape in shapes]
    assert grads_of(function, leaves, tapes) == grads_of(function, leaves, None), shapes


def batches(function: Any, sizes: Any) -> CompiledAutograd:
    """Backwards of a function of a batch and a matrix, of these sizes of batches."""
    tapes, templates = checked()
    for size in sizes:
        run(function, [(size, 3), (3, 3)], tapes)
    assert templates.compared >= tapes.counters.resized
    return tapes


def test_ten_sizes_are_two_captures() -> None:
    """The second size is recorded with a symbol; the others put a number there."""
    tapes = batches(lambda x, w: ((x @ w).relu() * x).mean(), range(2, 12))
    counters = tapes.counters
    assert (2, 8, 0, 10) == (
        counters.captures,
        counters.resized,
        counters.hits,
        counters.compiles,
    )
    first, second = tapes.reasons
    assert "it is the first one" in first
    assert "NodeCall 0: a size was 2 and is 3: it is a symbol from now on" in second


APART = {
    "turned in place": "it raises, and what raises is not kept",
    "split": "the number of results is another one",
    "split and seen": "as well",
    "both halves": "as well",
}
"""Variants of which each size is a structure of its own."""


def test_every_variant_at_many_sizes() -> None:
    """Templates are what formulas record, whatever came before; captures are counted."""
    for name, variant in VARIANTS.items():
        tapes, _ = checked()
        for size in (4, 6, 5, 2, 4, 7, 3, 9):
            run(variant, [(size, size), (size, size)], tapes)
        if name not in APART:
            assert tapes.counters.captures <= 2, (name, list(tapes.reasons))


# ------------------------------------------------------------------------------- which sizes vary
def test_sizes_that_were_equal_by_chance() -> None:
    """They share a symbol until they differ; then each has its own."""
    tapes, _ = checked()
    shapes = [(4, 4), (6, 6), (5, 7), (9, 2), (3, 3)]
    for n, m in shapes:
        run(lambda x, y: (x * x).sum(0) * y, [(n, m), (m,)], tapes)
    assert (3, 2) == (tapes.counters.captures, tapes.counters.resized)
    assert "a size was 7 and is 5: it is a symbol" in tapes.reasons[-1]


def test_a_size_that_was_constant_by_chance() -> None:
    tapes, _ = checked()
    for n, m in [(2, 5), (3, 5), (4, 5), (4, 6), (7, 8), (9, 3)]:
        run(lambda x, w: (x @ w).relu(), [(n, m), (m, 4)], tapes)
    assert (3, 3) == (tapes.counters.captures, tapes.counters.resized)


def test_a_product_that_was_constant_by_chance() -> None:
    """It is no symbol, but two symbols; what is a size at all is found by what changes."""
    tapes, _ = checked()
    for n, m in [(3, 4), (4, 3), (2, 6), (5, 7), (7, 2), (11, 3)]:
        run(lambda x: x.sin().reshape(-1) * 2, [(n, m)], tapes)
    assert tapes.counters.captures <= 3
    assert tapes.counters.resized >= 3


def test_sizes_of_0_and_1_are_structures_of_their_own() -> None:
    """Broadcasting takes 1 for another case, and layouts take both (DYN-1)."""
    tapes, _ = checked()
    for n in (5, 6, 1, 7, 0, 8, 1, 0, 2):
        run(lambda x, w: ((x + w) * w).exp(), [(n, 3), (5 if n == 5 else n, 3)], tapes)
    assert (4, 3, 2) == (
        tapes.counters.captures,
        tapes.counters.resized,
        tapes.counters.hits,
    )


def test_broadcasting_that_flips() -> None:
    tapes, _ = checked()
    for n, m in [(4, 1), (6, 1), (1, 4), (1, 6), (5, 5), (7, 7), (8, 1), (1, 8), (8, 8)]:
        run(lambda x, y: x.sin() * y.cos(), [(n, 3), (m, 3)], tapes)
    assert (6, 3) == (tapes.counters.captures, tapes.counters.resized)


def test_a_dimension_is_no_size() -> None:
    """The number that says which dimension is summed is that of the size, by chance."""
    tapes, templates = checked()
    for n in (2, 3):
        run(lambda x: x.sin().sum(x.shape[0]), [(n, 5, 5, 5)], tapes)
    assert [1, 1] == [len(outline.families) for outline in templates.outlines]


def test_every_variant_at_many_sizes_behind_every_other() -> None:
    """Edges, orders and sinks are no sizes."""
    tapes, templates = checked()
    for size in (4, 6, 5, 7):
        for variant in VARIANTS.values():
            run(variant, [(size, size), (size, size)], tapes)
    assert tapes.counters.resized > 60
    assert templates.compared > 100


LAYOUTS = {
    "turned": lambda x, w: (x.t().sin() @ x).relu() @ w,
    "flat": lambda x, w: x.sin().view(-1) * 2,
    "from behind": lambda x, w: x[-2:].sin(),
    "but the last": lambda x, w: x[:-1].cos() * x[1:].sin(),
    "up to a size": lambda x, w: x.sin()[: x.shape[0] - 1].exp(),
    "the last one": lambda x, w: x.sin()[x.shape[0] - 1],
    "expanded": lambda x, w: w[0].sin().expand(x.shape[0], 3) * x,
    "diagonal": lambda x, w: (x.sin() @ x.t()).diagonal() * 2,
    "every other": lambda x, w: x.sin()[::2].exp(),
    "joined": lambda x, w: al.cat([x.sin(), w, x]).cos(),
    "padded": lambda x, w: al.nn.functional.pad(x.sin(), (0, 0, 1, 2)).exp(),
    "stacked": lambda x, w: al.stack([x, x.sin()], 1).flatten(0, 1),
    "mean": lambda x, w: (x.mean(0) * w).mean(1),
    "norm": lambda x, w: al.nn.functional.layer_norm(x, (3,)) @ w,
    "soft": lambda x, w: (x @ w).softmax(0).log(),
    "of a column": lambda x, w: x[:, 1].sin() * x.shape[0],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str) -> None:
    captures = batches(LAYOUTS[name], (4, 6, 8, 5, 7, 12, 9, 10)).counters.captures
    limit = {"of a column": 8, "every other": 4, "padded": 8}.get(name, 2)
    assert captures <= limit


def test_a_size_that_a_formula_divides_by_is_a_symbol() -> None:
    """`std` divides by the number of elements less one."""
    tapes = batches(lambda x, w: x.std(0) @ w, (4, 6, 8, 10, 4, 8))
    assert (2, 2, 2) == (
        tapes.counters.captures,
        tapes.counters.resized,
        tapes.counters.hits,
    )
    tapes, _ = checked()
    for n, m in [(4, 2), (6, 2), (6, 3), (6, 4), (6, 5), (8, 2), (8, 3), (8, 4), (6, 7), (8, 9)]:
        run(lambda x, w: x.std(0) * w, [(n, m), (m,)], tapes)
    assert (3, 7) == (tapes.counters.captures, tapes.counters.resized)


def test_a_size_that_decides_something_has_a_template_for_each_answer() -> None:
    """The shorter side is that of the factors: sizes on the other side are recorded apart."""
    tapes, _ = checked()
    for n, m in [(2, 5), (3, 6), (4, 7), (5, 2), (6, 3), (7, 4), (3, 8), (9, 2)]:
        run(lambda x: al.linalg.qr(x)[1] if x.shape[0] >= x.shape[1] else x, [(n, m)], tapes)
    assert tapes.counters.captures <= 4


# ----------------------------------------------------------------------------------- what is near
def test_views_that_are_written() -> None:
    def function(x: Any, w: Any) -> Any:
        y = x * 1
        y[1:].mul_(w[0])
        y.t()[1].sin_()
        return y @ w

    assert batches(function, range(3, 9)).counters.captures == 2


def test_gradients_that_arrive_in_other_layouts() -> None:
    tapes, _ = checked()
    for size in (3, 4, 5, 6, 7):
        for turned in (False, True):
            x = leaf(size, 3)
            y = x.sin()
            grad = al.ones(3, size, dtype=al.float64).t() if turned else al.ones_like(y)
            with enable(tapes):
                y.backward(grad)
            assert x.grad.tolist() == x.detach().cos().tolist()
    assert (4, 6) == (tapes.counters.captures, tapes.counters.resized)


def test_sinks() -> None:
    tapes, _ = checked()
    w = leaf(3, 3)
    for size in (3, 4, 5, 6, 7):
        x = leaf(size, 3)
        y = x @ w
        flat = y.view(-1)
        loss = flat.sin().sum()
        expected: Any = al.autograd.grad(loss, [y, flat, w], retain_graph=True)
        with enable(tapes):
            found: Any = al.autograd.grad(loss, [y, flat, w])
        assert list(map(repr, expected)) == list(map(repr, found))
        assert found[0].storage is found[1].storage
    assert tapes.counters.captures == 2


def test_segments_between_hooks() -> None:
    """Each has a template of its own, also behind a hook that gives another gradient."""
    tapes, _ = checked()
    w, seen = leaf(3, 3), []
    w.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.shape))
    for size in range(2, 10):
        x = leaf(size, 3)
        x.register_hook(lambda grad: grad * 2)
        y = (x @ w).sin()
        y.register_hook(lambda grad: grad.t().clone().t() + 1)
        with enable(tapes):
            (y * y).mean().backward()
    assert (2, 6, 8) == (tapes.counters.captures, tapes.counters.resized, len(seen))


def test_segments_in_which_no_size_changes() -> None:
    """A graph for each parameter: that of a bias has the same sizes for each batch."""
    model = al.nn.Sequential(al.nn.Linear(4, 8), al.nn.ReLU(), al.nn.Linear(8, 2))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: None)
    tapes, _ = checked()
    for size in range(2, 10):
        with enable(tapes):
            model(al.ones(size, 4)).sin().mean().backward()
    assert (2, 6) == (tapes.counters.captures, tapes.counters.resized)


def test_many_segments() -> None:
    """Of a tape, however many it has, all are kept."""
    tapes = CompiledAutograd.of("reference")
    leaves = [leaf(3) for _ in range(400)]
    for x in leaves:
        x.register_post_accumulate_grad_hook(lambda x: None)
    for size in range(2, 6):
        total = leaf(size, 3).detach()
        for x in leaves:
            total = total * x
        with enable(tapes):
            total.sum().backward()
    assert "it is a symbol from now on; 397 more" in tapes.reasons[-1]
    assert (2, 2) == (tapes.counters.captures, tapes.counters.resized)


def test_a_segment_ends_at_nodes_of_several_gradients() -> None:
    """How many gradients the node takes that a segment leads to is no size."""
    tapes, _ = checked()
    for number in range(12):
        x = leaf(2 + number // 3, 3)
        with enable(tapes):
            Several.apply(x, 2 + number % 3)[0].sin().sum().backward()
        assert x.grad.tolist() == (x.detach().cos() * (2 + number % 3)).tolist()
    assert (6, 6) == (tapes.counters.captures, tapes.counters.resized)


def test_a_compiled_function_of_other_operands() -> None:
    """Its graph is of fixed sizes, which may stand beside symbols."""
    turned = al.compile(lambda w: (w.t() @ w).sin(), backend="reference")
    tapes = batches(lambda x, w: (x @ turned(w)).cos(), (2, 3, 4, 5, 6))
    assert (2, 3) == (tapes.counters.captures, tapes.counters.resized)


def test_a_value_that_was_written_raises_behind_what_the_engine_has_done() -> None:
    """A gradient has arrived at a leaf by then."""

    def world(size: int, tapes: Any) -> Any:
        x, w = leaf(size), leaf(size)
        y = (x * 1).sin()
        loss = (y * y * w).sum()
        if size > 3:
            y.mul_(2)
        try:
            with al.compiled_autograd.disable() if tapes is None else enable(tapes):
                loss.backward()
        except al.AutogradError as error:
            return str(error), repr(w.grad), repr(x.grad)
        return repr(w.grad), repr(x.grad)

    tapes = CompiledAutograd.of("reference")
    for size in (2, 3, 4, 5, 2):
        assert world(size, None) == world(size, tapes)
    assert (4, 0) == (tapes.counters.captures, tapes.counters.resized)


def test_memory_of_a_compiled_call_that_was_written() -> None:
    """The engine's error, and nothing of it before: the call stands between two sizes."""
    turned = al.compile(lambda w: w.sin() * w, backend="reference")

    def world(size: int, tapes: Any) -> Any:
        w, x, v = leaf(3), leaf(size, 3), leaf(size, 3)
        u = w * 1
        y = turned(u)
        loss = ((x * y) * v).sum()
        if size > 4:
            with al.no_grad():
                u.detach().mul_(2)
        try:
            with al.compiled_autograd.disable() if tapes is None else enable(tapes):
                loss.backward()
        except al.AutogradError as error:
            return str(error), repr(v.grad), repr(x.grad), repr(w.grad)
        return repr(v.grad), repr(x.grad), repr(w.grad)

    tapes = CompiledAutograd.of("reference")
    for size in (2, 3, 4, 5, 6):
        assert world(size, None) == world(size, tapes)
    assert tapes.counters.resized == 1


def test_nothing_of_a_tape_is_kept() -> None:
    tapes, refs = CompiledAutograd.of("reference"), []
    for size in range(2, 6):
        x = leaf(size, 3)
        y = (x * x).sin()
        refs += [weakref.ref(x), weakref.ref(y)]
        with enable(tapes):
            y.sum().backward()
        del x, y
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_another_thread_uses_what_was_recorded() -> None:
    tapes = CompiledAutograd.of("reference")
    for size in (2, 3):
        run(lambda x: (x * x).sin(), [(size, 3)], tapes)
    thread = Thread(target=lambda: run(lambda x: (x * x).sin(), [(7, 3)], tapes))
    thread.start()
    thread.join()
    assert (2, 1) == (tapes.counters.captures, tapes.counters.resized)


NUMBERS = {
    "a mean by hand": (lambda x, w: (x @ w).sum() / x.shape[0], 2),
    "a product with a size": (lambda x, w: (x @ w) * x.shape[0], 2),
    "a quotient by a multiple": (lambda x, w: (x @ w).sin() / (x.shape[0] * 3), 2),
    "a size and one": (lambda x, w: (x @ w) / (x.shape[0] + 1), 2),
    "the second half": (lambda x, w: (x @ w)[x.shape[0] // 2 :].sin(), 2),
    "all but the first half": (lambda x, w: (x @ w)[: -(x.shape[0] // 2)].sin(), 2),
    "a reversed quotient": (lambda x, w: x.shape[0] / (x @ w + 30.0), 2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_made_of_sizes_are_symbols(name: str) -> None:
    """An int in place of a tensor is an item like any size; other sizes are no captures."""
    function, captures = NUMBERS[name]
    tapes = batches(function, (4, 9, 6, 17, 8, 30, 12, 5, 11))
    assert tapes.counters.captures == captures


def test_int_that_has_nothing_to_do_with_sizes_is_captured() -> None:
    """Also where one of its values is a size by chance: the next one does not fit, and is told."""
    tapes, _ = checked()
    for size, factor in ((4, 4), (6, 6), (8, 3), (8, 5), (9, 9), (10, 3)):
        run(lambda x, w, by=factor: (x @ w).sin() * by, [(size, 3), (3, 3)], tapes)
    assert tapes.counters.captures >= 4
