"""Graphs with symbols in files: read back the same, with the guards that they depend on."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

import aotlite as al
from aotlite.ir import serialize
from aotlite.ir.errors import ArgumentError, FormatError, GuardError, ShapeError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.symbolic.binding import bindings_of
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import table_in, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.table import SymbolTable
from tests.backends.loops.helpers.sized_graphs import drawn, programs, symbolized
from tests.backends.loops.test_sized import graphs_of
from tests.ir.helpers import strategies
from tests.ir.serialize.test_hostile import mutate, refusal, within
from tests.samples import samples_of
from tests.stages.helpers.journeys import journeys

pytestmark = pytest.mark.rules("SER-15", "SER-16", "SER-17")


def table_of(graph: Graph) -> SymbolTable:
    table = table_in([node.meta for node in graph.nodes])
    assert table is not None
    return table


def is_free(graph: Graph) -> bool:
    """Whether some symbol is the size of no input."""
    return bool(bindings_of(graph.placeholders, graph.symbols).free)


def read_back(graph: Graph) -> Graph:
    """The graph from its file: the same, with a table of its own; nothing new is assumed."""
    mine = table_of(graph)
    before = list(mine.log)
    text = serialize.dumps(graph)
    again = serialize.loads(text)
    assert serialize.dumps(again) == text
    table = table_of(again)
    assert table is not mine
    assert before == mine.log
    kept = [each.text for each in mine.log if names_in(each.fact) <= table.symbols.keys()]
    assert kept == [each.text for each in table.log]
    for name, symbol in table.symbols.items():
        original = mine.symbols[name]
        assert (symbol.hint, symbol.room) == (original.hint, original.room)
        assert symbol.sources == original.sources
    verify(again)
    return again


# ---------------------------------------------------------------------------------- round trips
def scores(x: al.Tensor, y: al.Tensor) -> Any:
    found = (x @ y).softmax(-1)
    if x.shape[0] > 3:
        found = found * 2
    return (found.reshape(-1) * 2).sum(), x[: max(x.shape[0] - 3, 1)], x[::3]


def halves(x: al.Tensor, y: al.Tensor) -> Any:
    return x.reshape(-1, 2).sum(1) * 2 if x.shape[0] % 2 == 0 else y * 2


@pytest.mark.parametrize("function", [scores, halves])
def test_graphs_of_a_region_are_read_back_with_its_guards(function: Callable[..., Any]) -> None:
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(al.ones(8, 4).requires_grad_(), al.ones(4, 6).requires_grad_())
    for graph in (compiled.forward_graph, compiled.backward_graph):
        assert graph is not None
        if is_free(graph):
            continue
        again = read_back(graph)
        assert str(again) == str(graph)
        expected = [repr(each) for each in table_of(graph).log]
        assert [repr(each) for each in table_of(again).log] == expected
    x, y = np.ones((6, 4), np.float32), np.ones((4, 6), np.float32)
    again = read_back(compiled.forward_graph)
    for found, wanted in zip(
        run_graph(again, x, y), run_graph(compiled.forward_graph, x, y), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(GuardError, match=r"expected s0 (> 3|% 2 == 0) \("):
        run_graph(again, np.ones((3, 4), np.float32), y)


CASES = {f"{case.name}, from {low}": case for low in (0, 2) for case in programs(low)}


@pytest.mark.parametrize("name", CASES)
def test_programs_are_read_back_the_same(name: str) -> None:
    assert str(read_back(CASES[name].graph)) == str(CASES[name].graph)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_ops_are_read_back_the_same(every: int) -> None:
    """Samples of ops, with symbols for sizes: whatever the rules ask is decided by the file."""
    done = 0
    for name in sorted(al.ir.op.OPS)[::every]:
        samples = samples_of(name)
        try:
            made = list(graphs_of(name, samples[: 2 * len(samples) // 3 : 13]))
        except (ArgumentError, UnsupportedError):  # of results of others, and with effects
            continue
        for k, each in enumerate(made):
            case = symbolized(each.name, each.graph, 2 * (k % 2), shared=k % 3 > 0)
            if case is not None:
                done += is_kept(case.graph)
    assert done > 300 // every


def is_kept(graph: Graph) -> bool:
    """Whether a file holds the graph; then it is read back."""
    try:
        serialize.dumps(graph)
    except UnsupportedError as error:
        known = "is a window on", "are not proved by its guards alone", "is the size of no input"
        assert any(words in str(error) for words in known), error
        return False
    read_back(graph)
    return True


def test_graphs_of_every_stage_are_read_back_the_same() -> None:
    done = 0
    for number, journey in enumerate(journeys(40)):
        cut = journey.partition
        stages = journey.captured, journey.joint, journey.pure, journey.simple
        for graph in (*stages, cut.forward, cut.backward):
            case = None if graph is None else symbolized("stage", graph, 2 * (number % 2))
            if case is not None:
                done += is_kept(case.graph)
    assert done > 50


@given(strategies.graphs(), st.sampled_from((0, 2)), st.booleans())
def test_random_graphs_print_run_save_and_load_equal(graph: Graph, less: int, shared: bool) -> None:
    case = symbolized("random", graph, less, shared=shared)
    assume(case is not None)
    assert case is not None
    made = case.graph
    assume(not is_free(made))
    try:
        again = read_back(made)
    except UnsupportedError as error:
        assert "is a window on" in str(error)
        return
    constants = made.constants
    for values in (case.table.hints, *case.values(2)):
        numbers, others = at_sizes(made, values), at_sizes(again, values)
        assert numbers.code == others.code
        printed = graph_from_source(again.code, constants=constants, sizes=values)
        assert structurally_equal(printed, at_sizes(made, values)) is None
        arrays = [drawn(node.meta, k) for k, node in enumerate(numbers.placeholders)]
        same_outcome(made, again, arrays)


def same_outcome(one: Graph, other: Graph, arrays: Any) -> None:
    """Both graphs give the same results, or the same error: that of a write of other sizes, which
    the rule of an in-place op does not ask about."""
    outcomes = []
    for graph in (one, other):
        try:
            outcomes.append(run_graph(graph, *arrays))
        except ShapeError as error:
            outcomes.append((str(error),))
    for found, wanted in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_guards_on_other_symbols_are_not_kept() -> None:
    table = SymbolTable()
    a, b, c = (symbolic_meta(table, tensor_meta((n,)), "x") for n in (4, 6, 3))
    rows, columns, rest = (each.shape[0] for each in (a, b, c))
    assert rows < columns
    assert rows > 3
    assert rest > 2
    build = Builder("kept")
    graph = build.finish([build.placeholder(a) * 2])
    again = read_back(graph)
    assert ["s0 > 3"] == [each.text for each in table_of(again).log]
    assert ["s0"] == list(table_of(again).symbols)


def test_pickle_keeps_symbols() -> None:
    graph = CASES["softmax, from 0"].graph
    assert str(pickle.loads(pickle.dumps(graph))) == str(graph)


def test_files_without_symbols_are_of_the_first_version() -> None:
    build = Builder("numbers")
    text = serialize.dumps(build.finish([build.placeholder(tensor_meta((2,))) * 2]))
    assert 1 == json.loads(text)["version"]
    assert "symbols" not in text
    assert 2 == DOCUMENT["version"]


# ------------------------------------------------------------------------- what no file can hold
def expanded() -> Graph:
    """A graph with a size that none of its inputs has."""
    build, table = Builder("expanded"), SymbolTable()
    x = build.placeholder(tensor_meta(()))
    return build.finish([x.expand(table.symbol(5, lower=2), 3)])


def test_symbol_that_nothing_binds_is_refused_and_nothing_is_written(tmp_path: Any) -> None:
    path, kept = tmp_path / "graph.json", tmp_path / "kept.json"
    kept.write_text("before")
    for each in (path, kept):
        with pytest.raises(UnsupportedError) as caught:
            serialize.save(expanded(), each)
        words = (
            "the symbol s0 is the size of no input, expected one that an input binds, that the "
            "graph computes, or that has a role"
        )
        assert f"serialize: {words}" == str(caught.value)
        assert "at_sizes" in caught.value.__notes__[0]
    assert not path.exists()
    assert "before" == kept.read_text()
    serialize.save(at_sizes(expanded(), {"s0": 4}), path)
    assert "f32[4, 3]" in str(serialize.load(path))


def test_file_with_a_symbol_that_nothing_binds_is_refused(tmp_path: Any) -> None:
    document = copy.deepcopy(DOCUMENT)
    for meta in document["metas"]:
        meta["shape"] = [4 if size == "s1" else size for size in meta["shape"]]
        meta["stride"] = [4 if size == "s1" else size for size in meta["stride"]]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError) as caught:
        serialize.load(path)
    assert "serialize: " in str(caught.value)
    free = copy.deepcopy(json.loads(serialize.dumps(at_sizes(expanded(), {"s0": 4}))))
    free |= {"version": 2, "sizes": [], "guards": [], "symbols": DOCUMENT["symbols"][:1]}
    free["metas"][1]["shape"][0] = free["nodes"][1]["args"][1][0] = "s0"
    words = "symbols is a list with s0, expected a size of an input for each, or a parameter"
    assert f"serialize: {words}" == str(refusal(json.dumps(free)))


FREE = {"symbol": "s9", "hint": 6, "least": 0, "most": None, "sources": []}


@pytest.mark.parametrize(
    "guards",
    [
        [],
        [("s9", ">", 2)],
        [("s9", "==", "s0")],
        [("s0", "==", "s9"), ("s9", "==", 6)],  # which say s0 == 6, and no run could check it
    ],
    ids=str,
)
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("sizes", [[], ["s9 + 1"], ["s0 + s9"]], ids=str)
def test_file_with_a_symbol_that_the_graph_has_not_is_refused(
    guards: list[tuple[object, str, object]], place: str, sizes: list[str], tmp_path: Any
) -> None:
    """Whatever is said of it beside the nodes."""
    document = copy.deepcopy(DOCUMENT)
    document["symbols"].insert(0 if place == "first" else len(DOCUMENT["symbols"]), FREE)
    document["sizes"] += sizes
    named = ("left", "relation", "right", "op", "place")
    entries = [dict(zip(named, (*each, None, None), strict=True)) for each in guards]
    document["guards"] += entries
    words = "symbols is a list with s9, expected a size of an input for each, or a parameter"
    assert f"serialize: {words}" == str(refusal(json.dumps(document)))
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError):
        serialize.load(path)


def test_guards_that_are_no_comparisons_are_refused() -> None:
    table, build = SymbolTable(), Builder("asked")
    x = symbolic_meta(table, tensor_meta((4, 6)), "x")
    assert table.ask(any_even, x.shape)
    with pytest.raises(UnsupportedError, match="serialize: a guard is any_even.*, expected a comp"):
        serialize.dumps(build.finish([build.placeholder(x) * 2]))


def any_even(shape: tuple[int, ...]) -> bool:
    return any(size % 2 == 0 for size in shape)


def test_sizes_of_two_traces_are_refused() -> None:
    build = Builder("mixed")
    metas = [symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x") for _ in range(2)]
    x, y = map(build.placeholder, metas)
    with pytest.raises(UnsupportedError, match="s0 of another trace, expected sizes of one trace"):
        serialize.dumps(build.finish([x * 2, y * 2]))


# ---------------------------------------------------------------------------------- hostile files
def sample() -> Graph:
    """A graph with everything of symbols that a file can hold."""
    table, build = SymbolTable(), Builder("sample")
    x = build.placeholder(symbolic_meta(table, tensor_meta((6, 4)), "x"))
    y = build.placeholder(symbolic_meta(table, tensor_meta((4,)), "y", ranges={0: (0, 99)}))
    rows, columns = x.shape
    top = x.narrow(0, 0, rows // 2) * columns
    joined = (top * y).view(rows // 2 * columns).sum() + columns
    return build.finish([joined, x.view(-1, 2), x.new_zeros((rows % 4, columns * rows - 1))])


TEXT = serialize.dumps(sample())
DOCUMENT = json.loads(TEXT)


def at(path: str, value: Any) -> str:
    """The text of the sample with another value at a path such as `guards[0].left`."""
    document = copy.deepcopy(DOCUMENT)
    words = path.replace("[", ".").replace("]", "").split(".")
    *keys, last = [int(word) if word.isdigit() else word for word in words]
    place: Any = document
    for key in keys:
        place = place[key]
    place[last] = value
    return json.dumps(document)


SIZE = "expected the text of a size, such as 2*s0 + 1, of symbols of the file"
WRONG: list[tuple[str, Any, str]] = [
    ("symbols[0].symbol", "s1", 'symbols[1].symbol is "s1", expected a name such as s0, which no'),
    ("symbols[0].symbol", "__class__", 'symbols[0].symbol is "__class__", expected a name such'),
    ("symbols[0].symbol", "nan", 'symbols[0].symbol is "nan", expected a name such as s0'),
    ("symbols[0].hint", -1, "symbols[0].hint is -1, expected one of 2 to None"),
    ("symbols[0].hint", 1, "symbols[0].hint is 1, expected one of 2 to None"),
    ("symbols[1].hint", 5, "expected a guard that holds for the hints"),
    ("symbols[0].least", "2", 'symbols[0].least is "2", expected an integer of less than 2**63'),
    ("symbols[0].sources", "x", 'symbols[0].sources is "x", expected a list'),
    ("symbols", [], "sizes[0] is"),
    ("sizes[0]", "s0 + q", SIZE),
    ("sizes[0]", "s0.__class__", SIZE),
    ("sizes[0]", "__import__('os')", SIZE),
    ("sizes[0]", "max(s0)", SIZE),
    ("sizes[0]", "open(s0, s1)", SIZE),
    ("sizes[0]", "s0 if s0 else 1", SIZE),
    ("sizes[0]", "s0 / 2", SIZE),
    ("sizes[0]", "7", SIZE),
    ("sizes[0]", "s0**3", SIZE),
    ("sizes[0]", "2**100000000", SIZE),
    ("sizes[0]", "(s0 + s1)*(s0 + 1)", SIZE),
    ("sizes[0]", "9" * 30 + "*s0", SIZE),
    ("sizes[0]", "s0//0", SIZE),
    ("sizes[0]", "(" * 150 + "s0" + ")" * 150, "expected "),
    ("sizes[0]", "-" * 900 + "s0", SIZE),
    ("sizes[0]", "s0 + " * 400 + "1", "sizes[0] is a text of 2001 characters, expected a text"),
    ("sizes[0]", "s0//(s1 - 4)", SIZE),
    ("sizes[0]", "s0//(s1 - 3)", "sizes is a size that assumes s1 != 3, expected no assumption"),
    ("sizes[1]", DOCUMENT["sizes"][0], "expected a size that no other entry has"),
    ("sizes[0]", 3, "sizes[0] is 3, expected a text of at most 1000 characters"),
    ("guards[0].relation", "=", 'guards[0].relation is "=", expected one of ==, !=, <, <=, >, >='),
    ("guards[0].left", 4, "guards[0].left is 4, expected a size with a symbol"),
    ("guards[0].left", "s7", 'guards[0].left is "s7", expected the text of one of the sizes of'),
    ("guards[0].right", "s0*s0", "expected the text of one of the sizes of the file"),
    ("guards[0].right", 1, "expected a guard that holds for the hints"),
    ("guards[0].place", 9, "guards[0].place is 9, expected the position of one of the"),
    ("guards", [], "nodes[4] is a call of mul that assumes s1 == s2, expected no assumption but"),
    ("metas[0].shape", ["s1", "s0"], "nodes[2].meta is f32[s0//2, s1], expected f32[min(s0"),
    ("metas[0].shape", ["s0", "s0 - s1"], "expected the text of one of the sizes of the file"),
    ("metas[0].shape", ["s0", {"size": "s1"}], "expected an integer of 0 to 2**63 - 1"),
    ("nodes[2].args", ["%0", 0, 0, "s0", 1], "meta is f32[s0//2, s1], expected f32[s0, s1]"),
    ("nodes[2].args", ["%0", 0, 0, "s0 + 1", 1], 'is "s0 + 1", expected the text of one of the'),
    ("version", 1, "the text is an object with the key '"),
    ("version", 3, "parameters is missing, expected a value"),
    ("version", 4, "version is 4, expected at most 3"),
]


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_wrong_value_is_refused_with_its_place(path: str, value: Any, message: str) -> None:
    found = str(refusal(at(path, value)))
    assert message in found
    assert found.startswith("serialize: ")


def test_numbers_file_with_tables_of_symbols_is_refused() -> None:
    build = Builder()
    document = json.loads(serialize.dumps(build.finish([build.placeholder(tensor_meta((2,)))])))
    document["guards"] = []
    assert "an object with the key 'guards', expected" in str(refusal(json.dumps(document)))


def test_sizes_with_many_terms_are_refused() -> None:
    """The number of elements would have millions of terms."""
    count = 30
    symbols = [dict(DOCUMENT["symbols"][0], symbol=f"s{k}") for k in range(count)]
    sizes = [" + ".join(f"s{(k + j) % count}" for j in range(4)) for k in range(count)]
    meta = {"dtype": "float32", "shape": sizes, "stride": [0] * count, "device": "cpu"}
    document = json.loads(serialize.dumps(at_sizes(expanded(), {"s0": 4})))
    document |= {"version": 2, "symbols": symbols, "sizes": sizes, "guards": []}
    document["metas"][0] = meta
    words = "metas[0] is a meta with sizes whose product has many terms, expected at most 1000"
    assert f"serialize: {words}" == str(refusal(json.dumps(document)))


def test_many_symbols_and_sizes_take_little_time() -> None:
    count = 3_000
    symbols = [dict(DOCUMENT["symbols"][0], symbol=f"s{k}", hint=4) for k in range(count)]
    sizes = [f"s{k}*s{k + 1} + {k}" for k in range(count - 1)]
    guards = [
        {"left": sizes[k], "relation": ">", "right": 3, "op": None, "place": None}
        for k in range(count - 1)
    ]
    document = copy.deepcopy(DOCUMENT) | {"symbols": symbols, "sizes": sizes, "guards": guards}
    refusal(json.dumps(document))


def check(text: str) -> None:
    """The file is refused, or its graph is sound: at the hints and at other sizes of its guards."""
    with within(30):
        try:
            graph = serialize.loads(text)
        except FormatError as error:
            assert str(error).startswith("serialize: ")
            assert ", expected " in str(error)
            return
        again = serialize.dumps(graph)
        assert again == serialize.dumps(serialize.loads(again))
        if not graph.symbols:
            return
        table = table_of(graph)
        for step in range(4):
            values = {name: hint + step for name, hint in table.hints.items()}
            rooms = [(table.symbols[name].room, value) for name, value in values.items()]
            fits = all(value <= (high or value) for (_, high), value in rooms)
            if fits and all(guard.holds(values) for guard in table.log):
                verify(at_sizes(graph, values))


def test_sample_is_sound() -> None:
    assert str(read_back(sample())) == str(sample())
    check(TEXT)


EXPRESSIONS = ["s0", "s1", "s2", "s0*s1", "s0//2", "s0 - 1", "max(s0, 1)", "s0 % 2", "-s0"]


@settings(max_examples=150)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_document_with_values_changed_is_refused_or_sound(draw: Any, times: int) -> None:
    document = copy.deepcopy(DOCUMENT)
    for _ in range(times):
        if draw.randrange(2):
            mutate(document, draw)
        else:
            exchange(document, draw)
    check(json.dumps(document))


def exchange(document: Any, draw: Any) -> None:
    """Puts another size somewhere."""
    kind = draw.randrange(4)
    words = [*EXPRESSIONS, *document.get("sizes", ()), 0, 1, 2, 4, 6]
    try:
        if kind == 0:
            meta = draw.choice(document["metas"])
            sizes = meta[draw.choice(["shape", "stride"])]
            sizes[draw.randrange(len(sizes))] = draw.choice(words)
        elif kind == 1:
            node = draw.choice(document["nodes"])
            node["args"][draw.randrange(1, len(node["args"]))] = draw.choice(words)
        elif kind == 2:
            guard = draw.choice(document["guards"])
            guard[draw.choice(["left", "right"])] = draw.choice(words)
        else:
            document["sizes"].append(draw.choice(EXPRESSIONS))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        pass  # an earlier change has left nothing there
