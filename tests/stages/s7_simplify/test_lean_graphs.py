"""What graphs must not have: copies, windows and writes that nothing asks for; and where nodes come
from. All small graphs of a kind, and random programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder, Proxy
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.role import Primal
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import InplaceOp, ViewOp
from aotlite.ir.ops.creation.factories import FULL
from aotlite.stages.s6_functionalize import functionalize
from aotlite.stages.s7_simplify import simplify
from aotlite.stages.s8_partition.closing_copies import (
    may_stay,
    with_closing_copies,
)
from tests.stages.helpers.journeys import run_graph, same_results, values_for

Body = Callable[[Any], Any]


def stage(name: str, body: Body, x: Any) -> Graph:
    graph: Graph = al.inspect.stages_of(body, x)[name]
    return graph


def ops_of(graph: Graph) -> list[str]:
    return [node.target.name for node in graph.calls]


# --------------------------------------------------------------------------------- 6 functionalize
WHOLE: dict[str, Body] = {
    "view": lambda x: x.view(x.shape),
    "slice": lambda x: x[:],
    "expand": lambda x: x.expand(x.shape),
    "permute": lambda x: x.permute(*range(x.dim())),
    "alias": lambda x: x.view_as(x),
}
"""Views that show their operand as it is."""
VIEWS: dict[str, Body] = {
    "row": lambda x: x[0],
    "column": lambda x: x[:, 1],
    "part": lambda x: x[1:],
    "turned": lambda x: x.t(),
    "every other": lambda x: x[:, ::2],
    "flat": lambda x: x.view(-1),
    "diagonal": lambda x: x.diagonal(),
}
BASES: dict[str, Callable[[], Any]] = {
    "dense": lambda: al.arange(12.0).view(3, 4),
    "turned": lambda: al.arange(12.0).view(4, 3).t(),
    "with gaps": lambda: al.arange(24.0).view(3, 8)[:, ::2],
}


def bodies() -> Iterator[tuple[str, Body, Any]]:
    """A view, a write through it or to what it shows, and another view; bases take turns."""
    for number, (view, other, whole) in enumerate(product(VIEWS, VIEWS, (False, True))):
        base = "dense" if "flat" in (view, other) else list(BASES)[number % 5 % 3]

        def body(x: Any, view: str = view, other: str = other, whole: bool = whole) -> Any:
            y = x * 1.0
            part = VIEWS[view](y)
            (y if whole else part).mul_(2.0)
            x.add_(1.0)
            return VIEWS[other](y) + 1.0, VIEWS[view](x) * 3.0, part.exp()

        yield f"{view}, {other}, {base}, {whole}", body, BASES[base]()


@pytest.mark.rules("FUN-11", "FUN-12", "FUN-7")
def test_windows_on_memory_and_copies_for_strides_are_made_only_where_the_program_asks() -> None:
    """No as_strided in the program, so none in the graph; views that no strides speak of."""
    for name, body, x in bodies():
        graph = stage("functionalize", body, x)
        assert not [op for op in ops_of(graph) if op.startswith("as_strided")], name
        assert not [copy for copy in graph.copies if "speaks of strides" in copy.reason], name


@pytest.mark.rules("FUN-35")
def test_each_view_of_a_pure_graph_has_the_place_of_a_view_of_the_program() -> None:
    lines: dict[str, Body] = {"before": lambda y: None, "after": lambda y: y.exp()}
    for (name, take), (when, between) in product(VIEWS.items(), lines.items()):

        def body(x: Any, take: Body = take, between: Body = between) -> Any:
            y = x * 1.0
            part = take(y)
            y.mul_(2.0)
            between(y)
            return part + 1.0

        stages = al.inspect.stages_of(body, BASES["dense"]())
        asked = [n for n in stages["capture"].calls if isinstance(n.target, ViewOp)]
        made = [n for n in stages["functionalize"].calls if isinstance(n.target, ViewOp)]
        assert {str(n.location) for n in made} <= {str(n.location) for n in asked}, (name, when)


@pytest.mark.rules("FUN-7", "FUN-6")
def test_a_view_of_everything_changes_no_pure_graph() -> None:
    """Of a part that was written, before and after the whole is read."""
    for name, reads in product(VIEWS, (False, True)):

        def body(x: Any, show: Body, name: str = name, reads: bool = reads) -> Any:
            y = x * 1.0
            part = VIEWS[name](y)
            part.mul_(2.0)
            total = y.sum() if reads else x.sum()
            return show(part) + 1.0, total

        graphs = [
            stage("functionalize", partial(body, show=show), BASES["dense"]())
            for show in (lambda part: part, *WHOLE.values())
        ]
        for whole, graph in zip(WHOLE, graphs[1:], strict=True):
            assert structurally_equal(graphs[0], graph) is None, (whole, name, reads)


@pytest.mark.rules("FUN-11", "FUN-34")
def test_as_strided_on_a_value_that_was_copied_from_a_part() -> None:
    """It counts in the memory of what was written, wherever the value comes from."""
    sources: dict[str, Body] = {
        "a part": lambda x: x.view(-1)[4:8],
        "every third": lambda x: x.view(-1)[::3],
        "one for all": lambda x: x[1, 1].expand(4),
        "a column": lambda x: x.view(4, 3)[:, 1],
    }
    for (name, source), start in product(sources.items(), (0, 1, 2)):

        def body(x: Any, source: Body = source, start: int = start) -> Any:
            y = x.new_zeros((4,))
            y.copy_(source(x))
            return y.as_strided((2,), (1,), start) * 1.0

        x = BASES["dense"]()
        assert body(x).tolist() == al.compile(body)(x).tolist(), (name, start)
        pure = stage("functionalize", body, x)
        assert structurally_equal(pure, functionalize(pure)) is None, (name, start)


@pytest.mark.rules("FUN-12", "FUN-7")
def test_bytes_as_another_dtype_are_copied_so_that_views_of_them_can_be_taken() -> None:
    """Of memory that is written, or not: in another order than the copy would have."""
    recasts: tuple[Body, ...] = (
        lambda x: x.view(al.int32),
        lambda x: x.t().view(al.int32).t(),
        lambda x: al.view_as_complex(x.view(3, 2, 2)),
        lambda x: al.view_as_complex(x.view(3, 2, 2).transpose(0, 1)).t(),
        lambda x: al.view_as_complex(x[:1].expand(2, 4).view(2, 2, 2)),
    )
    for recast, writes in product(recasts, (False, True)):

        def body(x: Any, recast: Body = recast, writes: bool = writes) -> Any:
            y = x * 1.0
            if writes:
                y.mul_(2.0)
            seen = recast(y)
            flat = seen.view(-1) if seen.is_contiguous() else seen[:1].view(-1)
            return flat * 1, seen[0, 1:] * 2, recast(y) * 3

        x = BASES["dense"]()
        eager = [each.tolist() for each in body(x)]
        assert eager == [each.tolist() for each in al.compile(body)(x)]
        graph = stage("functionalize", body, x)
        views = [node.target for node in graph.calls if isinstance(node.target, ViewOp)]
        assert all(op.shown is op for op in views)


@pytest.mark.rules("FUN-7")
def test_a_complex_value_is_written_through_its_parts_by_one_of_several_that_show_them() -> None:
    parts: tuple[Body, ...] = (
        lambda x: al.view_as_real(x),
        lambda x: x.real,
        lambda x: x.imag,
        lambda x: al.view_as_real(x)[:, :1],
    )
    for part, which, inside in product(parts, (0, 1), (False, True)):

        def body(x: Any, part: Body = part, which: int = which, inside: bool = inside) -> Any:
            y = x * 1.0 if inside else x
            seen = part(y)
            seen.unsqueeze(0).expand(2, *seen.shape)[which].mul_(3.0)
            return y * 1.0, part(y) * 1.0

        told = []
        for run in (body, al.compile(body)):
            x = al.view_as_complex(al.arange(6.0).view(3, 2))
            told.append([*(each.tolist() for each in run(x)), x.tolist()])
        assert told[0] == told[1]


# ------------------------------------------------------------------------------------- 7 simplify
def _input(*shape: int) -> tuple[Builder, Proxy]:
    build = Builder("lean")
    return build, build.placeholder(tensor_meta(shape), Primal(0))


@pytest.mark.rules("SIM-4")
def test_of_writes_to_a_few_places_the_last_one_of_each_is_left() -> None:
    """Between them, views of what was written that end in nothing but the chain."""
    for places, turned in product(product(range(3), repeat=3), (False, True)):
        build, value = _input(3, 3)
        for number, place in enumerate(places):
            source = build.emit(FULL, ((3,), float(number), value.meta.dtype, value.meta.device))
            value = value._do("select_scatter", Proxy(build, source), 0, place)
            value = value.t().t() if turned else value
        graph = simplify(build.finish([value + 1.0, value.sum()]))
        assert ops_of(graph).count("select_scatter") == len(set(places)), places


@pytest.mark.rules("SIM-5", "SIM-6")
def test_nothing_is_left_of_a_view_of_everything() -> None:
    """By whatever ops: directly, or by a view of a view."""
    whole: tuple[Callable[[Proxy], Any], ...] = (
        lambda x: x._do("view", (3, 4)),
        lambda x: x._do("slice", 0, 0, 3, 1),
        lambda x: x.t().t(),
        lambda x: x._do("permute", (0, 1)),
        lambda x: x._do("as_strided", (3, 4), (4, 1), 0),
    )
    for show in whole:
        build, x = _input(3, 4)
        assert ops_of(simplify(build.finish([show(x).exp()]))) == ["exp"]


@pytest.mark.rules("SIM-2")
def test_what_is_written_to_one_place_twice_is_read_from_there() -> None:
    """Windows that overlap themselves: which value stays is told by the write alone."""
    for scatter, args, shape in (
        ("unfold", (0, 2, 1), (3, 2)),
        ("as_strided", ((3, 2), (1, 1), 0), (3, 2)),
        ("as_strided", ((2, 3), (0, 1), 0), (2, 3)),
    ):
        build, x = _input(4)
        source = build.placeholder(tensor_meta(shape), Primal(1))
        copy = x._do(f"{scatter}_scatter", source, *args)
        graph = build.finish([copy._do(scatter, *args) * 1.0])
        simple = simplify(graph)
        verify(simple, functional=True)
        values = values_for(graph)
        values[Primal(1)] = values[Primal(1)] * 0 + _counted(shape)
        assert same_results(run_graph(graph, values), run_graph(simple, values)), scatter


def _counted(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# ------------------------------------------------------------------------------- records of writes
def _no_grad(write: Body) -> Body:
    def run(x: Any) -> None:
        with al.no_grad():
            write(x)

    return run


WRITES: dict[str, Body] = {
    "data": lambda x: x.mul_(2.0),
    "a part": lambda x: x[:1].mul_(2.0),
    "geometry": lambda x: x.unsqueeze_(0),
    "data without": _no_grad(lambda x: x.mul_(2.0)),
    "geometry without": _no_grad(lambda x: x.unsqueeze_(0)),
    "hidden": lambda x: x.hidden_alias().mul_(2.0),
}


@pytest.mark.rules("META-2", "META-3", "FUN-21")
def test_the_record_of_an_argument_says_of_its_writes_what_they_are() -> None:
    """None, one or two of the kinds, to an argument without and with a history."""
    for names, tracked in product(product(("", *WRITES), repeat=2), (False, True)):

        def body(x: Any, names: Any = names) -> Any:
            for name in filter(None, names):
                WRITES[name](x)
            return x.shape[0] * al.ones(1)

        x = al.ones(3, requires_grad=tracked) * 1.0
        stages = al.inspect.stages_of(body, x)
        record = stages["analyze"].inputs[0]
        nodes = stages["capture"].nodes
        root = nodes[0]
        data = [n for n in nodes if isinstance(n.target, InplaceOp) and storage_root(n) is root]
        assert record.writes_data == bool(data), names
        assert record.under_no_grad == (bool(data) and not any(n.grad_mode for n in data)), names
        assert record.writes == (record.writes_data or record.writes_metadata), names
        changed = attrs.evolve(stages["analyze"], training=False)
        _, closed = with_closing_copies(stages["simplify"], changed)
        assert closed.inputs[0].in_graph == (record.writes and may_stay(record)), names
