"""What graphs have no more of than the program asks for, and what lies in no result's memory.

Small graphs and programs of a kind; those that take long are taken a few at a time, by a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.role import MutatedInput, Output, Primal
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from tests.stages.s7_simplify.test_lean_graphs import BASES, VIEWS, ops_of, stage

Body = Callable[..., Any]

# --------------------------------------------------------------------------------- 6 functionalize
PARTS: dict[str, Body] = {
    "all": lambda v: v,
    "part": lambda v: v[1:],
    "rows": lambda v: v.unsqueeze(0),
}
SHARDS = 14


def _written(number: int) -> Iterator[tuple[str, Body, Any]]:
    """A write through one or two views of new memory and of an argument; then other views."""
    names = list(VIEWS)
    for place, (view, part) in enumerate(product(VIEWS, PARTS)):
        other = names[(place + 1 + place // 3) % len(names)]
        if place % SHARDS != number:
            continue

        def body(x: Any, view: str = view, part: str = part, other: str = other) -> Any:
            y = x * 1.0
            seen = PARTS[part](VIEWS[view](y))
            seen.mul_(2.0)
            x.add_(1.0)
            reads = y.sum(), VIEWS[other](y) + 1.0, VIEWS["part"](y) * 3.0
            return *reads, seen.exp(), VIEWS["part"](x) * 3.0

        base = "dense" if "flat" in (view, other) else list(BASES)[place % 3]
        yield f"{view}, {part}, {other}, {base}", body, BASES[base]()


def check_written_views(number: int) -> None:
    """No as_strided and no copy for strides; and a write is put back once, however often read."""
    for name, body, x in _written(number):
        graph = stage("functionalize", body, x)
        ops = ops_of(graph)
        assert not [op for op in ops if op.startswith("as_strided")], name
        reasons = [copy.reason for copy in graph.copies]
        assert not [r for r in reasons if "strides" in r or "that is written lies so" in r], name
        views, part, *_ = name.split(", ")
        narrowing = (views not in ("turned", "flat")) + (part == "part")
        assert sum(op.endswith("_scatter") for op in ops) <= narrowing, name


@pytest.mark.rules("FUN-12", "FUN-6", "FUN-7")
def test_what_is_written_through_views_is_put_back_once_and_without_copies() -> None:
    for number in range(SHARDS):
        check_written_views(number)


@pytest.mark.rules("FUN-5")
def test_what_is_copied_is_cast_and_expanded_only_where_it_differs() -> None:
    kinds = al.float32, al.float64, al.int32
    for to, of, shape in product(kinds, kinds, ((3, 4), (4,), (1, 4))):

        def body(x: Any, y: Any) -> Any:
            memory = x * 1
            memory.copy_(y)
            return memory * 3

        ops = ops_of(stage_of(body, al.ones(3, 4, dtype=to), al.ones(*shape, dtype=of)))
        assert ops.count("cast") == (to is not of), (to, of)
        assert ops.count("expand") == (shape != (3, 4)), shape


def stage_of(body: Body, *args: Any) -> Graph:
    graph: Graph = al.inspect.stages_of(body, *args)["functionalize"]
    return graph


@pytest.mark.rules("FUN-12")
def test_each_result_of_an_op_with_several_is_memory_of_its_own() -> None:
    bodies: tuple[Body, ...] = (
        lambda x: x.max(0),
        lambda x: x.sort(0),
        lambda x: al.topk(x, 1, 0),
        lambda x: al.aminmax(x),
    )
    for body in bodies:
        graph = stage_of(body, al.arange(6.0).view(2, 3))
        assert graph.copies == ()
        roots = [storage_root(value) for value in graph.outputs]
        assert all(root.op == "call" for root in roots) and len(set(roots)) == len(roots)


@pytest.mark.rules("FUN-11", "GEN-2")
def test_windows_on_written_memory_are_refused_if_they_leave_it() -> None:
    """In graphs of whatever making: what is captured stays inside."""
    for size, stride, start in product(range(4), range(4), range(5)):
        build = Builder("window")
        x = build.placeholder(tensor_meta((4,)), Primal(0))
        window = build.emit(AS_STRIDED, (x.node, (size,), (stride,), start))
        build.emit(OPS["mul_"], (x.node, 2.0))
        result = build.emit(OPS["exp"], (window,))
        graph = build.finish([x.node, result], [MutatedInput(Primal(0)), Output(0)])
        leaves = bool(size) and start + (size - 1) * stride >= 4
        try:
            functionalize(graph)
        except UnsupportedError as error:
            assert leaves and "reaches outside" in str(error), (size, stride, start)
        else:
            assert not leaves, (size, stride, start)


# ------------------------------------------------------------------------------------- 7 simplify
def _input(build: Builder, number: int, *shape: int) -> Proxy:
    return build.placeholder(tensor_meta(shape), Primal(number))


@pytest.mark.rules("SIM-4")
def test_writes_are_dropped_behind_views_through_which_later_ones_go() -> None:
    """Rows of a matrix, which are columns of what shows it turned."""
    for places in product(range(2), repeat=3):
        build = Builder("turned")
        value = _input(build, 0, 2, 2)
        for number, place in enumerate(places):
            source = build.emit(FULL, ((2,), float(number), value.meta.dtype, value.meta.device))
            value = value._do("select_scatter", Proxy(build, source), number % 2, place).t()
        graph = simplify(build.finish([value + 1.0, value.sum()]))
        assert ops_of(graph).count("select_scatter") == len(set(places)), places


TURNS: tuple[Body, ...] = (
    lambda x: x.t(),
    lambda x: x._do("permute", (1, 0)),
    lambda x: x._do("transpose", 0, 1),
    lambda x: x._do("as_strided", (3, 3), (1, 3), 0),
)


@pytest.mark.rules("SIM-5", "SIM-3", "SIM-7")
def test_no_two_views_show_the_same() -> None:
    """By whatever ops, of a value and of what is a copy of it but for a part."""
    for first, second, index, alive in product(TURNS, TURNS, range(3), (False, True)):
        build = Builder("same")
        x, source = _input(build, 0, 3, 3), _input(build, 1, 3)
        copy = x._do("select_scatter", source, 0, 0)
        results = [first(x).exp(), second(x).sin(), second(copy)._do("select", 1, index) * 2.0]
        results += [copy.exp(), second(copy).cos()] if alive else []
        graph = simplify(build.finish(results))
        shown = [_place(n) for n in graph.calls if isinstance(n.target, ViewOp)]
        assert len(set(shown)) == len(shown), graph.code
        assert simplify(graph) is graph or len(simplify(graph).nodes) == len(graph.nodes)


@pytest.mark.rules("SIM-5")
def test_two_views_that_show_the_same_are_one_where_nothing_else_is_to_do() -> None:
    for first, second in product(TURNS, TURNS):
        build = Builder("two")
        x = _input(build, 0, 3, 3)
        graph = simplify(build.finish([first(x).exp(), second(x).sin()]))
        assert sum(isinstance(node.target, ViewOp) for node in graph.calls) == 1


def _place(node: Node) -> tuple[Any, ...]:
    start, value = 0, node
    while isinstance(value.target, ViewOp):
        start, value = start + value.target.result(value.args)[1], value.args[0]
    return value, start, node.meta


@pytest.mark.rules("PART-15")
def test_what_is_copied_from_a_result_does_not_come_to_lie_in_it() -> None:
    """The result is made of a value that is found behind a write, and is seen as other numbers."""
    for renewed, parts in product((False, True), repeat=2):
        build = Builder("result")
        dtype = al.complex64 if parts else al.float32
        x = build.placeholder(tensor_meta((2, 3), None, dtype), Primal(0))
        y = build.placeholder(tensor_meta((3,), None, dtype), Primal(1))
        w = _input(build, 2, 2, 3, 2) if parts else _input(build, 2, 2, 3)
        made = x._do("select_scatter", y, 0, 0)._do("select", 0, 0) if renewed else y
        result = made.exp()
        shown = result._do("view_as_real") if parts else result
        copy = w._do("select_scatter", shown, 0, 1)
        graph = simplify(build.finish([result, copy._do("select", 0, 1) * 2.0]))
        held = graph.outputs[0]
        for node in graph.calls:
            if any(storage_root(value) is held for value in node.inputs()):
                assert isinstance(node.target, ViewOp) or node.target.name == "select_scatter"


@pytest.mark.rules("SIM-2", "SIM-3", "FUN-8")
def test_parts_of_complex_numbers_are_told_apart_from_other_numbers() -> None:
    """Places are counted in complex numbers, and in the numbers that these are made of."""
    parts: tuple[Body, ...] = (
        lambda z: z[1:].real,
        lambda z: z[:2].imag,
        lambda z: z.imag[1:],
        lambda z: z.real[:2],
    )
    for first, second, writes in product(parts, parts, (False, True)):

        def body(x: Any, first: Body = first, second: Body = second, w: bool = writes) -> Any:
            y = x * 1.0
            if w:
                first(y).mul_(3.0)
            return first(y) * 2.0, second(y) * 5.0, y.imag * 7.0

        x = al.view_as_complex(al.arange(6.0).view(3, 2))
        assert [v.tolist() for v in body(x)] == [v.tolist() for v in al.compile(body)(x)]


@pytest.mark.rules("SIM-3", "FUN-11")
def test_gaps_are_not_looked_through() -> None:
    """A copy of memory with gaps has gaps of its own: as_strided may look there."""
    for stride, place, start in product(((4, 2), (8, 2), (8, 1)), range(2), range(8)):
        build = Builder("gaps")
        x = build.placeholder(tensor_meta((2, 2), stride), Primal(0))
        copy = x._do("select_scatter", _input(build, 1, 2), 0, place)
        graph = build.finish([copy._do("as_strided", (2,), (1,), start).exp(), x.exp()])
        shown = next(node for node in simplify(graph).calls if node.target is AS_STRIDED)
        assert x.meta.dense or storage_root(shown) is not x.node, (stride, place, start)


# ------------------------------------------------------------------------------------ the records
@pytest.mark.rules("PART-1")
def test_the_record_of_a_partition_has_the_gradients_that_there_are() -> None:
    for tracked in product((False, True), repeat=2):
        x, y = (al.ones(3).requires_grad_(each) for each in tracked)
        partition = al.inspect.stages_of(lambda x, y: x * y, x, y)["partition"]
        assert partition.gradients == tuple([Primal(i) for i in (0, 1) if tracked[i]])


@pytest.mark.rules("META-5", "TEN-21")
def test_the_record_of_a_view_says_in_which_mode_it_was_taken() -> None:
    """Of one without gradient, too; and of a view of one that was taken under no_grad."""
    for tracked, modes in product((False, True), product((False, True), repeat=2)):

        def body(x: Any, modes: Any = modes) -> Any:
            base = seen = x * 1.0
            for mode in modes:
                with al.set_grad_enabled(mode):
                    seen = seen[:-1]
            return base, seen

        stages = al.inspect.stages_of(body, al.ones(4).requires_grad_(tracked))
        view = stages["analyze"].outputs[1].view
        assert view.under_grad == (all(modes) or tracked and modes[1]), (tracked, modes)
