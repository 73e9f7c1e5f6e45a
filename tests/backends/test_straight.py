"""The reference backend's straight-line form does what its interpreter does, bit for bit.

On every op's samples, alone and behind and before other ops, and on the graphs of random programs.
Also: it keeps nothing alive, writes no operand, and gives no memory away that it was only lent.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.calling_convention import is_read, returned_as_arrays, travels_as_array
from aotlite.backends.generated_python import CHUNK, straight
from aotlite.backends.reference import REFERENCE
from aotlite.ir.arrays import NUMPY
from aotlite.ir.geometry.layout import span
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Output, Saved
from aotlite.ir.op import OPS, Op, PureOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE
from aotlite.testing.laws.ops.runs import bound, same_bits, tensors_in, with_kernel
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys, values_for
from tests.thinning import thinned


def lent(graph: Graph, arrays: Iterable[Any]) -> list[Any]:
    """A value for each input that is read, as stage 10 passes them, with these elements."""
    values: list[Any] = []
    pairs = zip(graph.placeholders, is_read(graph), arrays, strict=True)
    for node, read, array in pairs:
        meta: Any = node.meta
        start = 0 if travels_as_array(meta) else 4
        buffer = NUMPY.allocate(meta.span + start, meta.dtype)
        buffer[...] = 0
        whole = NUMPY.strided(buffer, meta.dtype, meta.shape, meta.stride, start)
        NUMPY.copy(whole, array)
        if isinstance(node.role, Saved) and travels_as_array(meta):
            whole = np.copy(whole)  # an array that owns its memory, as functions return them
        if read:
            values.append(whole if travels_as_array(meta) else (buffer, start))
    return values


def buffer_of(value: Any) -> Any:
    return value[0] if type(value) is tuple else value


def results(graph: Graph, values: Sequence[Any]) -> list[Any]:
    """What a run returned: array, steps, bytes of the buffer, where in it it starts."""
    found: list[Any] = []
    for node, as_array, value in zip(graph.outputs, returned_as_arrays(graph), values, strict=True):
        if value is None:
            found.append(None)
        elif as_array:
            found.append((value, _steps(value)))
        else:
            meta, (buffer, start) = node.meta, value
            array = NUMPY.strided(buffer, meta.dtype, meta.shape, meta.stride, start)
            found.append((array, _steps(array), start, buffer.nbytes))
    return found


def _steps(array: Any) -> tuple[int, ...]:
    """The strides of the dimensions along which there is a step to take."""
    pairs = zip(array.shape, array.strides, strict=True)
    return tuple(step for size, step in pairs if size != 1)


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return same_bits(a[0], b[0]) and a[1:] == b[1:]


def assert_both_forms_agree(graph: Graph, arrays: Sequence[Any], label: str) -> None:
    by_nodes: Any = REFERENCE.compile(graph)
    its = lent(graph, arrays)
    expected = results(graph, NUMPY.quiet(by_nodes.call, its))
    for chunk in (CHUNK, 2) if len(graph.nodes) > 4 else (CHUNK,):
        _assert_straight(graph, arrays, label, expected, chunk)


def _assert_straight(
    graph: Graph, arrays: Sequence[Any], label: str, expected: list[Any], chunk: int
) -> None:
    run, source = straight(graph, chunk)
    mine = lent(graph, arrays)
    before = [np.copy(buffer_of(value)) for value in mine]
    kept = list(mine)
    found = NUMPY.quiet(run, mine)
    pairs = zip(expected, results(graph, found), strict=True)
    for number, (a, b) in enumerate(pairs):
        assert same(a, b), f"{label}: result {number}\n{a}\n{b}\n{source}"
    for value, bytes_ in zip(kept, before, strict=True):
        assert same_bits(bytes_, buffer_of(value)), f"{label}: an input is written\n{source}"
    _check_memory(graph, kept, found, label)


def _check_memory(graph: Graph, given: list[Any], found: list[Any], label: str) -> None:
    """Only views, and inputs that are results, lie in the memory of inputs."""
    lone = [not _is_window(value) for value in graph.outputs]
    for value, own in zip(found, lone, strict=True):
        if own and value is not None:
            for each in given:
                shared = np.may_share_memory(buffer_of(value), buffer_of(each))
                assert not shared, f"{label}: a result lies in the memory of an input"


def _is_window(value: Any) -> bool:
    while type(value) is Node and isinstance(value.target, ViewOp):
        value = value.args[0]
    return type(value) is Node and value.op != "call"


def proxied(value: Any, proxies: Any) -> Any:
    if isinstance(value, al.Tensor):
        return next(proxies)
    return tuple(proxied(item, proxies) for item in value) if type(value) is tuple else value


def graphs_of(op: Op, args: tuple[Any, ...]) -> Iterable[Graph]:
    """The op alone; from saved values to saved values; and between two copies."""
    kinds = ("alone", "saved", "between")
    # A copy of a tensor with gaps has less memory for a window to look at.
    for kind in kinds[:2] if op.name.startswith("as_strided") else kinds:
        build = Builder(kind)
        metas = [tensor.meta for tensor in tensors_in(args)]
        saved = [Saved(i) if kind == "saved" else None for i in range(len(metas))]
        read = [build.placeholder(*each) for each in zip(metas, saved, strict=True)]
        if kind == "between":
            read = [build.call(CLONE, (each,)) for each in read]
        made = build.call(op, proxied(args, iter(read)))
        outs = list(made) if type(made) is tuple else [made]
        roles: list[Any] = [Output(i) for i in range(len(outs))]
        if kind == "saved":
            roles += [Saved(i) for i in range(len(outs))]
            outs += outs
        elif kind == "between":
            outs = [build.call(CLONE, (out,)) for out in outs]
        yield build.finish(outs, roles)


def stays_inside(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether a window reaches no memory but the operand's: no other is known to a graph."""
    if not op.name.startswith("as_strided"):
        return True
    size, stride, start = args[-3:]
    return bool(start >= 0 and start + span(size, stride) <= args[0].meta.span)


PURE = [name for name, op in sorted(OPS.items()) if isinstance(op, (PureOp, ViewOp))]


@pytest.mark.parametrize("name", thinned(PURE, 9))
def test_an_op_gives_the_same_in_both_forms(name: str) -> None:
    op = OPS[name]
    for sample in samples_of(name):
        args = bound(op, sample)
        if not stays_inside(op, args):
            continue
        arrays = [tensor.array for tensor in tensors_in(args)]
        for graph in graphs_of(op, args):
            assert_both_forms_agree(graph, arrays, f"{name}{sample}, {graph.name}")


@pytest.mark.parametrize("every", [32, pytest.param(1, marks=pytest.mark.long)])
def test_random_graphs_give_the_same_in_both_forms(every: int) -> None:
    """Of the graphs of some random programs."""
    count = 0
    for journey in journeys()[::every]:
        for graph in (journey.partition.forward, journey.partition.backward):
            if graph is not None:
                values = values_for(graph)
                arrays = [values[node.role] for node in graph.placeholders]  # type: ignore[index]
                assert_both_forms_agree(graph, arrays, "a random program")
                count += 1
    assert count > 80 // every


@pytest.mark.parametrize("chunk", [CHUNK, 2, 1])
def test_values_are_dropped_after_their_last_use(chunk: int) -> None:
    """BOX-1: inputs too, whose list is emptied; what a call made lives as long as its results."""
    meta = al.ones(1000).meta
    build = Builder()
    x = build.placeholder(meta)
    alive: list[int] = []
    probe = with_kernel(CLONE, _counting(alive))
    value = x
    for _ in range(5):
        value = build.call(probe, (value,))
    run, source = straight(build.finish([value]), chunk)
    assert -(-5 // chunk) == source.count("try:")
    array = np.ones(1000, np.float32)
    _LIVING.clear()
    _LIVING.append(weakref.ref(array))
    values = [array]
    del array
    (result,) = run(values)
    assert [] == values
    assert [1, 1, 1, 1, 1] == alive
    assert 1 == _living()
    del result
    assert 0 == _living()


_LIVING: list[weakref.ref[Any]] = []


def _living() -> int:
    return sum(each() is not None for each in _LIVING)


def _counting(alive: list[int]) -> Any:
    """A kernel that copies, and notes how many of the arrays seen so far are alive."""

    def kernel(arrays: Any, meta: Any, operand: Any) -> Any:
        alive.append(_living())
        result = np.copy(operand)
        _LIVING.append(weakref.ref(result))
        return result

    return kernel


def test_an_error_in_a_long_graph_names_its_node() -> None:
    """Whichever function of the text its line is in."""

    def failing(arrays: Any, meta: Any, operand: Any) -> Any:
        raise ValueError("at the end")

    build = Builder()
    value = build.placeholder(al.ones(3).meta)
    for _ in range(2500):
        value = build.call(CLONE, (value,))
    value = build.call(with_kernel(CLONE, failing), (value,))
    run, source = straight(build.finish([build.call(CLONE, (value,))]))
    assert 3 == source.count("try:")
    values = [np.ones(3, np.float32)]
    with pytest.raises(ValueError) as caught:
        run(values)
    assert [] == values
    assert ["while running: clone_2500 = ops.clone(clone_2499)"] == caught.value.__notes__
