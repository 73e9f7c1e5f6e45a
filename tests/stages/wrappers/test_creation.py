"""Creation records: wrappers taken apart into flat lists and made again (SUB-2..SUB-6, SUB-18)."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.base.storage import Storage
from aotlite.ir.errors import SubclassError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.symbols.table import SymbolTable
from aotlite.subclasses import (
    CreationRecord,
    TwoTensor,
    creation_records,
    inner_mutated_indices,
    inner_tensors,
    leaves_of,
    records_of_inputs,
    requires_subclass_dispatch,
    static_indices,
    unwrap,
    unwrap_joint,
    wrap,
)
from tests.stages.wrappers.helpers.cases import dense, nested, two

Shape = tuple[Any, ...]
"""None for a dense tensor, a pair for a wrapper of two."""

shapes = st.recursive(st.none(), lambda inner: st.tuples(inner, inner), max_leaves=6)


def made(shape: Any) -> Any:
    return dense() if shape is None else TwoTensor(*map(made, shape))


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) or a.meta is not b.meta:
        return False
    if not isinstance(a, TwoTensor):
        return a is b
    return all(map(same, inner_tensors(a).values(), inner_tensors(b).values()))


@pytest.mark.rules("SUB-4", "SUB-5", "SUB-9")
@given(st.lists(shapes, max_size=4))
def test_what_is_taken_apart_is_made_again(forms: list[Any]) -> None:
    """SUB-4, SUB-5, SUB-9: unwrapping and wrapping undo each other, at any depth."""
    values = [made(form) for form in forms]
    flat, records = unwrap(values), creation_records(values)
    assert [id(each) for value in values for each in leaves_of(value)] == [*map(id, flat)]
    again = wrap(flat, records)
    assert all(map(same, values, again))
    assert [*map(id, unwrap(again))] == [*map(id, flat)]


@pytest.mark.rules("SUB-6")
@given(st.lists(shapes, max_size=4), st.integers(0, 3))
def test_saved_values_follow_as_they_are(forms: list[Any], saved: int) -> None:
    """SUB-6."""
    values = [made(form) for form in forms]
    kept = [dense() for _ in range(saved)]
    found = wrap([*unwrap(values), *kept], creation_records(values), saved=saved)
    assert len(found) == len(values) + saved
    assert all(a is b for a, b in zip(found[len(values) :], kept, strict=True))


@pytest.mark.rules("SUB-3")
def test_records_say_where_parts_stand() -> None:
    """SUB-3: a plain value, a pair, a plain value."""
    first, pair, last = creation_records([dense(), two(), dense()])
    assert (first, last) == (0, 3)
    assert isinstance(pair, CreationRecord)
    assert (pair.start, pair.count, pair.kind, pair.spec) == (1, 2, TwoTensor, None)
    assert pair.parts == (("a", 1), ("b", 2))
    assert (pair.outer_size, pair.outer_stride) == ((6,), (1,))
    (deep,) = creation_records([nested()])
    assert isinstance(deep, CreationRecord)
    assert deep.count == 4


@pytest.mark.rules("SUB-5")
def test_a_list_that_does_not_fit_is_refused_with_three_numbers() -> None:
    """SUB-5."""
    records = creation_records([dense(), two()])
    with pytest.raises(SubclassError, match="take 3 values and 1 are saved, expected 3, all"):
        wrap(unwrap([dense(), two()]), records, saved=1)


@pytest.mark.rules("SUB-2")
def test_wrappers_are_asked_for_only_where_there_are_some() -> None:
    """SUB-2."""
    assert not requires_subclass_dispatch([dense(), 3], [dense()])
    assert requires_subclass_dispatch([dense()], [two()])
    assert requires_subclass_dispatch([two()], [])


@pytest.mark.rules("SUB-8")
def test_prototypes_lend_their_autograd_state_and_are_dropped() -> None:
    """SUB-8."""
    leaf, other = two(grad=True), two(grad=True) * 2
    records = creation_records([leaf, other])
    first, second = wrap(unwrap([leaf, other]), records)
    assert (first.requires_grad, first.is_leaf) == (True, True)
    assert (second.requires_grad, second.is_leaf) == (True, False)
    kept = weakref.ref(leaf)
    plain = tuple([record.at_run_time() for record in records])  # type: ignore[union-attr]
    del leaf, records, first, second, other
    gc.collect()
    assert kept() is None
    (again, _) = wrap(unwrap([two(), two()]), plain)
    assert not again.requires_grad


@pytest.mark.rules("SUB-18", "SUB-12")
def test_symbolic_sizes_follow_the_parts() -> None:
    """SUB-18, SUB-12: sizes, then strides, and only the symbolic ones; tangents have none."""
    table = SymbolTable()
    meta = symbolic_meta(table, tensor_meta((6, 5)), "x")

    def fake() -> al.Tensor:
        return al.Tensor(Storage(None), meta)

    x = TwoTensor(TwoTensor(fake(), fake()), TwoTensor(fake(), fake()))
    rows, columns = x.shape
    flat, records = unwrap([x]), creation_records([x])
    inner = [rows, columns, columns]  # a stride of 1 has no place
    assert flat[2:5] == inner
    assert flat[7:] == [*inner, *inner]
    assert wrap(flat, records)[0].meta is meta
    primals, tangents = unwrap_joint([x], [x])
    assert (len(primals), len(tangents)) == (13, 4)
    without = creation_records([x], sizes=False)
    assert wrap(tangents, without, like=[x])[0].meta is meta


@pytest.mark.rules("SUB-3")
def test_graphs_are_called_by_hand() -> None:
    """SUB-3: the records of a compiled function are those of its graph's inputs."""
    compiled = al.compile(lambda x, d, y: (x * d.sum(), y.a + y.b), backend="reference")
    args = two(), dense(), nested()
    pattern = compiled(*args)
    graph = compiled.forward_graph
    records = records_of_inputs(compiled.meta, graph)
    assert records[1] == 2
    flat = unwrap(args)
    assert all(map(same, args, wrap(flat, records)))
    values = run_graph(graph, *[each.array for each in flat])
    found = dict(zip(map(str, graph.output_roles), values, strict=True))
    assert found["output_0__b"].tolist() == pattern[0].b.tolist()
    assert found["output_1__a"].tolist() == pattern[1].a.tolist()


@pytest.mark.rules("SUB-14", "SUB-19")
def test_what_is_written_is_said_of_wrappers() -> None:
    """SUB-14, SUB-19: parts do not require grad where their wrappers do."""
    compiled = al.compile(lambda x, d, y: (y.mul_(x), d * 2))
    compiled(two(grad=True), dense(), two())
    records = records_of_inputs(compiled.meta, compiled.forward_graph)
    assert inner_mutated_indices(compiled.meta, compiled.forward_graph) == (3, 4)
    assert static_indices(records, [1, 2]) == (2, 3, 4)
    written = [str(each.role) for each in compiled.meta.inputs if each.writes_data]
    assert written == ["primals_2__a", "primals_2__b", "primals_2"]
