"""Saved graphs: what is written is read back as the same program, by the same text."""

from __future__ import annotations

import gc
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from aotlite.ir import dtypes, serialize
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DTYPES
from aotlite.ir.errors import ArgumentError, FormatError, GraphError, UnsupportedError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.files.writer import in_file_order
from aotlite.ir.graph.role import Gradient, Hidden, MutatedInput, Output, Saved, Tangent
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.provenance.location import Place, Places, place_of
from tests.ir.helpers.strategies import graphs
from tests.stages.helpers.journeys import journeys, values_for
from tests.stages.helpers.journeys import run_graph as run_by_role

RECORDS = ("op", "grad_mode", "phase", "sequence", "recompute")


def difference(graph: Graph, again: Graph) -> str | None:
    """The first difference between a graph and the one read back, records and constants too."""
    for x, y in zip(graph.nodes, again.nodes, strict=True):
        for name in RECORDS:
            if getattr(x, name) != getattr(y, name):
                return f"{name} is {getattr(x, name)} and {getattr(y, name)}"
        if repr(x.role) != repr(y.role):  # == does not see all fields
            return f"the role is {x.role!r} and {y.role!r}"
        if x.op == "get_attr":
            if not same_array(x.target.value, y.target.value):
                return f"the constant {x.target.name} differs"
            y.target = x.target  # structurally_equal compares values by identity
    return structurally_equal(graph, again)


def same_array(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check_round_trip(graph: Graph) -> None:
    text = serialize.dumps(graph)
    again = serialize.loads(text)
    assert graph.name == again.name
    assert str(graph) == str(again)
    assert difference(graph, again) is None
    assert text == serialize.dumps(again)
    json.loads(text, parse_constant=pytest.fail)


def built(make: Any, *metas: Any) -> Graph:
    build = Builder("f")
    return build.finish([make(*[build.placeholder(meta) for meta in metas])])


# ------------------------------------------------------------------------------------ round trips
@given(graphs())
def test_graph_read_back_is_the_same(graph: Graph) -> None:
    check_round_trip(graph)


def test_graphs_of_every_stage_are_read_back_the_same() -> None:
    for journey in journeys(60):
        halves = journey.partition
        stages = (journey.captured, journey.joint, journey.pure, journey.simple)
        for graph in (*stages, halves.forward, halves.backward):
            if graph is not None:
                check_round_trip(graph)


def test_graph_read_back_computes_the_same() -> None:
    for journey in journeys(60)[:20]:
        graph = journey.pure
        again = serialize.loads(serialize.dumps(graph))
        values = values_for(graph)
        before, after = run_by_role(graph, values), run_by_role(again, values)
        assert before.keys() == after.keys()
        assert all(same_array(before[role], after[role]) for role in before)


NUMBERS = [
    0.0,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    5e-324,
    0.1,
    1e300,
    0,
    1,
    True,
    False,
    -(2**63),
    2**64 - 1,
    1j,
    complex(-0.0, math.nan),
    complex(math.inf, -0.0),
]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_number_keeps_value_and_type(number: Any) -> None:
    meta = tensor_meta((2,), dtype=dtypes.complex128)
    again = serialize.loads(serialize.dumps(built(lambda x: x * number, meta)))
    found = again.nodes[1].args[1]
    assert type(number) is type(found)
    assert repr(number) == repr(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constant_keeps_its_bytes(dtype: Any) -> None:
    most = 2 if dtype is dtypes.bool_ else 256
    data = bytes([index * 37 % most for index in range(4 * dtype.itemsize)])
    value = np.frombuffer(data, dtype.numpy).reshape(2, 2)
    build = Builder()
    graph = build.finish([build.constant("w", value, tensor_meta((2, 2), dtype=dtype))])
    check_round_trip(graph)


def test_constant_with_strides_is_written_row_by_row() -> None:
    value = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    build = Builder()
    graph = build.finish([build.constant("w", value, tensor_meta((3, 2), (1, 3)))])
    again = serialize.loads(serialize.dumps(graph))
    assert same_array(value, again.nodes[0].target.value)
    assert graph.nodes[0].meta is again.nodes[0].meta


def test_empty_and_0d_constants() -> None:
    for shape in ((), (0,), (2, 0, 3), (1, 1)):
        build = Builder()
        meta = tensor_meta(shape)
        check_round_trip(build.finish([build.constant("w", np.ones(shape, np.float32), meta)]))


def test_constant_read_cannot_be_written() -> None:
    build = Builder()
    graph = build.finish([build.constant("w", np.ones(2, np.float32), tensor_meta((2,)))])
    value = serialize.loads(serialize.dumps(graph)).nodes[0].target.value
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 2


def test_nodes_of_one_constant_share_it_again() -> None:
    build = Builder()
    value = np.ones(2, np.float32)
    nodes = [build.constant("w", value, tensor_meta((2,))) for _ in range(2)]
    again = serialize.loads(serialize.dumps(build.finish([nodes[0] + nodes[1]])))
    assert again.nodes[0].target is again.nodes[1].target


@pytest.mark.parametrize(
    ("dtype", "data", "expected"),
    [
        (dtypes.int32, b"\1\2\3\4", b"\4\3\2\1"),
        (dtypes.complex64, bytes(range(8)), b"\3\2\1\0\7\6\5\4"),
        (dtypes.bfloat16, b"\1\2\3\4", b"\2\1\4\3"),
        (dtypes.uint8, b"\1\2", b"\1\2"),
    ],
)
def test_bytes_of_a_big_endian_machine_are_turned(dtype: Any, data: bytes, expected: bytes) -> None:
    assert expected == in_file_order(data, dtype, "big")
    assert data == in_file_order(data, dtype, "little")


ROLES = [
    Hidden(3, "model.layers[0].weight"),
    Saved(1, "mul"),
    Saved(0, "3"),
    Saved(2),
    Tangent(MutatedInput(Hidden(0, "x.y"))),
    Tangent(Output(2)),
]


@pytest.mark.parametrize("role", ROLES, ids=repr)
def test_role_of_an_input_keeps_all_its_fields(role: Any) -> None:
    build = Builder()
    graph = build.finish([build.placeholder(tensor_meta(()), role)], [Gradient(Hidden(1, "w"))])
    again = serialize.loads(serialize.dumps(graph))
    assert repr(role) == repr(again.nodes[0].role) == repr(again.nodes[0].target)
    assert repr(graph.output_roles) == repr(again.output_roles)


def test_every_device_given_can_be_named() -> None:
    other = Device("gpu:1", CPU.arrays)
    graph = built(lambda x: x.new_zeros((2,)), tensor_meta((2,), device=other))
    text = serialize.dumps(graph)
    again = serialize.loads(text, devices={"gpu:1": other})
    assert again.nodes[0].meta is graph.nodes[0].meta
    assert again.nodes[1].args[3] is other
    assert text == serialize.dumps(again)
    with pytest.raises(FormatError, match='"gpu:1", expected one of the devices given: cpu'):
        serialize.loads(text)


# ------------------------------------------------------------------------------------- the places
def doubled(x: Any) -> Any:
    return x * 2.0


def located() -> Graph:
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    build.source = Node("call", None, location=(doubled.__code__, 0))
    return build.finish([doubled(doubled(x))])


def test_place_is_kept_as_the_text_it_resolves_to() -> None:
    graph = located()
    again = serialize.loads(serialize.dumps(graph))
    before, place = graph.nodes[1].location, again.nodes[1].location
    assert before is not None
    assert type(place) is Place
    assert place == place_of(before) == place_of(place) == Places()(place)
    assert "test_serialize.py" in str(again)
    assert str(graph) == str(again)


def test_place_is_named_by_errors_of_a_graph_read_back() -> None:
    graph = serialize.loads(serialize.dumps(located()))
    edited = graph.nodes[1].with_args(graph.nodes[1].args, tensor_meta((3,)))
    broken = Graph((graph.nodes[0], edited, graph.output_node.with_args(((edited,),), None)))
    with pytest.raises(GraphError) as caught:
        verify(broken)
    assert any("in doubled" in note for note in caught.value.__notes__)


def test_places_may_be_left_out() -> None:
    text = serialize.dumps(located(), places=False)
    assert "test_serialize" not in text
    assert structurally_equal(located(), serialize.loads(text)) is None


def test_place_that_no_file_holds_is_cut() -> None:
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    place = Place("caf\udce9.py", 1, "f", "y" * 2_000)
    build.source = Node("call", None, location=place)
    again = serialize.loads(serialize.dumps(build.finish([x * 2.0])))
    assert Place("caf?.py", 1, "f", "y" * 1_000) == again.nodes[1].location


# --------------------------------------------------------------------------------------- the text
def test_text_has_a_line_for_each_node() -> None:
    lines = serialize.dumps(located(), places=False).splitlines()
    at = lines.index('"nodes":[')
    assert '{"op":"call","target":"mul","args":["%0",2.0],"meta":0},' == lines[at + 2]
    assert 4 == len(lines) - at - 1


@pytest.mark.parametrize("name", ['},{"op":', '{"op":', '"nodes":', ',"metas":', "\\", "é\n", ""])
def test_line_breaks_tear_no_name(name: str) -> None:
    build = Builder(name)
    x = build.placeholder(tensor_meta((2,)), Hidden(0, name))
    w = build.constant(name, np.ones(2, np.float32), tensor_meta((2,)))
    check_round_trip(build.finish([x * w], [Saved(0, "mul")]))


@pytest.mark.parametrize("name", ["a b", "x\n    import os\n", "a.b", "(1)"])
def test_the_name_of_a_saved_value_can_be_part_of_a_variables(name: str) -> None:
    """It becomes a variable's in printed graphs, and in files of NumPy."""
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    text = serialize.dumps(build.finish([x * 2.0], [Saved(0, name)]))
    with pytest.raises(FormatError, match="expected a name of Python's"):
        serialize.loads(text)


def test_text_is_the_same_for_equal_graphs() -> None:
    assert serialize.dumps(located()) == serialize.dumps(located())


def test_spaces_and_order_of_keys_do_not_matter() -> None:
    text = serialize.dumps(located())
    document = json.loads(text)
    document["nodes"] = [dict(reversed(node.items())) for node in document["nodes"]]
    other = json.dumps(dict(reversed(document.items())), indent=3)
    assert (
        text
        == serialize.dumps(serialize.loads(other))
        == serialize.dumps(serialize.loads(other.encode()))
    )


def test_graph_is_saved_to_a_file_and_loaded(tmp_path: Any) -> None:
    path = tmp_path / "graph.json"
    path.write_text("something longer " * 1_000)
    serialize.save(located(), path, places=False)
    assert serialize.dumps(located(), places=False) == path.read_text()
    assert structurally_equal(located(), serialize.load(path)) is None
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FormatError) as caught:
        serialize.load(str(path))
    assert f"in the file {str(path)!r}" == caught.value.__notes__[-1]


def test_graph_that_cannot_be_written_leaves_the_file_alone(tmp_path: Any) -> None:
    path = tmp_path / "graph.json"
    path.write_text("before")
    with pytest.raises(UnsupportedError):
        serialize.save(emitted("slice", 0, 0, 10**600, 1), path)
    assert "before" == path.read_text()


# ------------------------------------------------------------------------------ what is not written
def constant_graph(value: Any, shape: Any = (2,), name: str = "w") -> Graph:
    build = Builder()
    return build.finish([build.constant(name, value, tensor_meta(shape))])


ONES = np.ones(2, np.float32)
REFUSED = {
    "the constant 'w' is a list, expected an array of NumPy's": lambda: constant_graph([1.0, 2.0]),
    "the constant 'w' is of dtype >f4, expected a dtype of aotlite": lambda: constant_graph(
        np.ones(2, ">f4")
    ),
    "the shape of the constant 'w' is (), expected (2,), its meta's": lambda: constant_graph(
        np.float32(1)
    ),
    "the name of a constant is a text of 1001 characters, expected at most 1000": lambda: (
        constant_graph(ONES, name="w" * 1_001)
    ),
    "the name of a constant is '\\udc80', expected text without surrogates": lambda: constant_graph(
        ONES, name="\udc80"
    ),
    "a role is Gradient(of=Seed()), expected one whose text says what it is": lambda: odd_role(),
    "the meta of node 0 is one with the number -1, expected none below 0": lambda: built(
        lambda x: x, tensor_meta((2,), (-1,))
    ),
    "node 2 is a call of select_scatter with a rule that takes long, expected at most 5000400 "
    "steps for all rules": lambda: built(
        lambda x, y: x.select_scatter(y, 0, 0),
        tensor_meta((99, 99, 99), (1001, 1002, 1003)),
        tensor_meta((99, 99)),
    ),
    "node 1 is a call of slice with the number 9223372036854775808, expected numbers of less "
    "than 2**63": lambda: emitted("slice", 0, 0, 1 << 63, 1),
    "node 1 is a call of constant_pad_nd with a list of 66 numbers, expected at most 64": lambda: (
        built(lambda x: x._do("constant_pad_nd", (0,) * 66), tensor_meta((1,) * 33))
    ),
}


def odd_role() -> Graph:
    from aotlite.ir.graph.role import Seed

    build = Builder()
    return build.finish([build.placeholder(tensor_meta(()))], [Gradient(of=Seed())])  # type: ignore[arg-type]


def emitted(name: str, *args: Any) -> Graph:
    build = Builder()
    x = build.placeholder(tensor_meta((1,)))
    return build.finish([build.emit(OPS[name], (x.node, *args))])


@pytest.mark.parametrize("message", REFUSED)
def test_what_no_file_holds_is_refused(message: str) -> None:
    graph = REFUSED[message]()
    with pytest.raises(UnsupportedError) as caught:
        serialize.dumps(graph)
    assert f"serialize: {message}" == str(caught.value)


def test_op_of_somebody_elses_is_refused() -> None:
    mul: Any = OPS["mul"]
    other = PureOp(
        mul.schema, mul.rule, cost=mul.cost, kernel=mul.kernel, vjp=mul.vjp, scalar=mul.scalar
    )
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    graph = build.finish([build.emit(other, (x.node, 2.0))])
    expected = "the target of node 1 is ops.mul, expected an op of the table"
    with pytest.raises(UnsupportedError, match=expected):
        serialize.dumps(graph)


def test_broken_graph_is_not_written() -> None:
    graph = located()
    edited = graph.nodes[1].with_args(graph.nodes[1].args, tensor_meta((3,)))
    broken = Graph((graph.nodes[0], edited, graph.output_node.with_args(((edited,),), None)))
    with pytest.raises(GraphError, match=r"serialize: the meta of mul is f32\[3\], expected"):
        serialize.dumps(broken)


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_collector_is_left_as_it_was(was_on: bool) -> None:
    """It is paused, also where an error is raised."""
    text, before = serialize.dumps(located()), gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        serialize.loads(text)
        assert was_on == gc.isenabled()
        with pytest.raises(FormatError):
            serialize.loads(text[:-9])
        assert was_on == gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()


def test_text_of_another_type_is_refused() -> None:
    with pytest.raises(ArgumentError, match="loads: the text is a dict, expected str or bytes"):
        serialize.loads({})  # type: ignore[arg-type]
