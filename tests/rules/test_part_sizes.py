"""Graphs that take, compute and return sizes, in files: PART-4, GRA-16, SER-16, SER-18, VER-18."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.ir import serialize
from aotlite.ir.errors import ArgumentError, FormatError, GraphError, GuardError, UnsupportedError
from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Output, Primal, Saved, SavedSize, Size, Tangent
from aotlite.ir.graph.symbolic.binding import parameters_of
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import table_in, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.symbols.table import SymbolTable

Arrays = list[Any]


def read_back(graph: Graph) -> Graph:
    """The graph from its file, which is written as the same text again."""
    text = serialize.dumps(graph)
    again = serialize.loads(text)
    assert serialize.dumps(again) == text
    assert again.code == graph.code
    return again


def values(*shape: int) -> Any:
    """Numbers of both signs, different at each place."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7) % 11 - 4).astype(np.float32).reshape(shape) / 4


# ----------------------------------------------------------------------- forward and backward files
def by_size(x: al.Tensor) -> al.Tensor:
    return x.sum() * x.shape[0]


def rows(x: al.Tensor) -> al.Tensor:
    return x.sum(0).exp() * x.shape[0]


def powers(x: al.Tensor, n: int) -> al.Tensor:
    return (x * n).exp().sum() * n


def reshaped(x: al.Tensor) -> al.Tensor:
    return x.mean() * (x.shape[0] * x.shape[1]) + x.reshape(-1)[: x.shape[1]].sum()


def masked(x: al.Tensor) -> al.Tensor:
    found = x[x > 0]
    return found.exp().sum() * found.shape[0]


def placed(x: al.Tensor) -> al.Tensor:
    places = (x[:, 0] > 0).nonzero()[:, 0]
    return x.index_select(0, places).sum(0) * x.shape[0]


SHAPES = [(3, 2), (5, 4), (2, 7), (8, 3)]
DIFFERENTIATED: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (by_size, ()),
    (rows, ()),
    (powers, (3,)),
    (reshaped, ()),
    (masked, ()),
    (placed, ()),
]


@pytest.mark.rules("PART-4", "SER-16", "GRA-16")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize(("function", "numbers"), DIFFERENTIATED)
def test_pair_of_files_gives_eagers_gradients_at_further_sizes(
    function: Callable[..., Any], numbers: tuple[int, ...], partition: str
) -> None:
    """What the forward returns is given to the backward by role: nothing else is needed."""
    options: Any = {"backend": "reference", "partition": partition}
    compiled = al.compile(function, dynamic=True, **options)
    compiled(al.tensor(values(*SHAPES[0])).requires_grad_(), *numbers).sum().backward()
    both = compiled.partition
    assert both.backward is not None
    forward, backward = read_back(both.forward), read_back(both.backward)
    assert backward.saved_sizes == both.saved_sizes
    for shape in SHAPES:
        for number in [(), *[(n,) for n in (2, 5)]][bool(numbers) : 1 + 2 * bool(numbers)]:
            x = al.tensor(values(*shape)).requires_grad_()
            expected = function(x, *number)
            (gradient,) = al.autograd.grad(expected.sum(), [x])
            assert gradient is not None
            names = dict(zip(parameters_of(forward), number, strict=True))
            results = run_graph(forward, values(*shape), sizes=names)
            np.testing.assert_allclose(results[0], expected.detach().numpy(), rtol=1e-5)
            saved = [np.asarray(each) for each in results[both.saved_slice]]
            sizes = dict(zip(backward.saved_sizes, results[both.saved_size_slice], strict=True))
            tangent = np.ones(expected.shape, np.float32)
            (found,) = run_graph(backward, *saved, tangent, sizes=sizes)
            np.testing.assert_allclose(found, gradient.numpy(), rtol=1e-5)


@pytest.mark.rules("PART-4")
def test_sizes_that_a_tensor_has_are_not_saved() -> None:
    """Counts and slices by role, and each saved size is one that the backward needs."""
    for function, numbers in DIFFERENTIATED:
        compiled = al.compile(function, dynamic=True, backend="reference")
        compiled(al.tensor(values(3, 2)).requires_grad_(), *numbers).sum().backward()
        both = compiled.partition
        forward, backward = both.forward, both.backward
        assert backward is not None
        roles = forward.output_roles
        names = both.saved_sizes
        assert list(roles[both.saved_size_slice]) == [SavedSize(k) for k in range(len(names))]
        assert list(roles[both.saved_slice]) == [Saved(k) for k in range(len(both.saved))]
        assert not any(isinstance(each, SavedSize) for each in roles[both.result_slice])
        assert tuple(parameters_of(backward)) == both.saved_sizes
        assert list(parameters_of(backward).values()) == list(roles[both.saved_size_slice])
        inputs = [node.meta for node in backward.placeholders]
        shown = {str(size) for meta in inputs for size in meta.shape}  # type: ignore[union-attr]
        assert not shown & set(both.saved_sizes)
        said = f"  As numbers, which no tensor of the backward has: {' and '.join(names)}.\n"
        assert (said in al.inspect.explain_partition(both)) is bool(names)


def test_functions_without_symbols_save_no_sizes() -> None:
    compiled = al.compile(by_size, dynamic=False, backend="reference")
    compiled(al.ones(3, 2).requires_grad_()).backward()
    assert () == compiled.partition.saved_sizes
    assert '"version":1' in serialize.dumps(compiled.forward_graph)


@pytest.mark.rules("GRA-16")
def test_sizes_inside_of_a_synthetic_base_are_parameters_with_the_argument() -> None:
    def written(x: al.Tensor, y: al.Tensor) -> al.Tensor:
        x.mul_(2.0)
        return y.sum(0) * y.shape[0] + x.shape[0]

    compiled = al.compile(written, dynamic=True, backend="reference")
    base = al.ones(9, 2)
    compiled(base[:5], base[4:])
    graph = compiled.forward_graph
    assert Size(0, Primal(0)) in parameters_of(graph).values()
    again = read_back(graph)
    memory = values(13, 2)
    at = al.tensor(memory)
    expected = written(at[:6], at[4:])
    shapes = at[:6].shape, at[4:].shape
    sizes = {Size(d, Primal(k)): n for k, each in enumerate(shapes) for d, n in enumerate(each)}
    given = {name: sizes[role] for name, role in parameters_of(again).items()}  # type: ignore[index]
    found = run_graph(again, memory.reshape(-1), sizes=given)
    results = dict(zip(again.output_roles, found, strict=True))
    np.testing.assert_allclose(results[Output(0)], expected.numpy(), rtol=1e-6)


# ------------------------------------------------------------------------------- computed sizes
def uniques(x: al.Tensor) -> Any:
    found = (x * 4).floor().unique()
    return found * found.shape[0]


def selected(x: al.Tensor) -> Any:
    return x.masked_select(x > 0) * 2


def repeated(x: al.Tensor) -> Any:
    return x.repeat_interleave((x[:, 0] > 0).to(al.int64) + 1, 0)


def twice(x: al.Tensor) -> Any:
    found = x[x > 0]
    return found[found > 0.5].sum() + found.shape[0], found


def itemized(x: al.Tensor) -> Any:
    n = (x > 0).sum().item()
    return x * n


COUNTED = [uniques, selected, repeated, twice, itemized, masked, placed]


@pytest.mark.rules("SER-16", "GRA-16", "DYN-5", "DYN-30")
@pytest.mark.thinned(6)
@pytest.mark.parametrize("function", COUNTED)
@pytest.mark.parametrize("dynamic", [None, True])
def test_files_compute_their_sizes(function: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = al.compile(function, dynamic=dynamic, backend="reference")
    compiled(al.tensor(values(3, 2)))
    graphs = [compiled.forward_graph]
    stages = al.inspect.stages_of(compiled, al.tensor(values(3, 2)))
    graphs += [stages[name] for name in ("capture", "joint", "functionalize", "simplify")]
    for graph in graphs:
        again = read_back(graph)
        assert not parameters_of(again)
        assert "ops.sym_item(" in again.code
        inputs = [values(3, 2), np.abs(values(3, 2)) + 1]
        inputs += [-np.abs(values(3, 2))] if function is not twice else []  # an index of nothing
        inputs += [values(*shape) for shape in SHAPES] if dynamic else []
        for each in inputs:
            expected = function(al.tensor(each))
            wanted: Sequence[Any] = expected if isinstance(expected, tuple) else (expected,)
            for found in (run_graph(again, each), executed(again, each)):
                for one, other in zip(found, wanted, strict=False):
                    np.testing.assert_allclose(one, other.numpy(), rtol=1e-5)


def executed(graph: Graph, array: Any) -> Arrays:
    """The results of the printed graph on tensors."""
    scope: dict[str, Any] = {"ops": al.ops}
    exec(graph.code, scope)
    (function,) = [each for name, each in scope.items() if name not in ("ops", "__builtins__")]
    found = function(al.tensor(array))
    return [each.numpy() if isinstance(each, al.Tensor) else each for each in found]


@pytest.mark.rules("SER-16", "DYN-31", "DYN-32")
def test_assumptions_on_computed_sizes_are_checked_by_each_run() -> None:
    def mean(x: al.Tensor) -> al.Tensor:
        found = x[x > 0]
        al.check(found.shape[0] > 1)
        al.size_hint(found.shape[0], 8)
        return found.mean() if found.shape[0] % 2 == 0 else found.sum()

    compiled = al.compile(mean, backend="reference")
    compiled(al.tensor(values(4)))
    again = read_back(compiled.forward_graph)
    counted = [each for each in table_of(again).log if "u0" in each.text]
    assert len(counted) == 2
    assert all("mean" in repr(each) for each in counted)
    positive = np.array([1, 2, -1, 3, 4][:4], np.float32)
    with pytest.raises(GuardError, match=r"its sizes are .*'u0': 3.*, expected u0 % 2 == 0 \("):
        run_graph(again, positive)
    with pytest.raises(GuardError, match=r"graph mean: its sizes are .*, expected u0 > 1 \("):
        run_graph(again, np.array([1, -2, -1, -3], np.float32))
    assert 1.5 == run_graph(again, np.array([1, 2, -1, -3], np.float32))[0].item()


def table_of(graph: Graph) -> SymbolTable:
    table = table_in([node.meta for node in graph.nodes])
    assert table is not None
    return table


# --------------------------------------------------------- hints, ranges, named dimensions, floats
@pytest.mark.rules("SER-16", "DYN-1", "DYN-26", "DYN-27")
def test_hints_ranges_names_and_floats_are_kept() -> None:
    def step(x: al.Tensor, w: al.Tensor, n: int, lr: float) -> al.Tensor:
        return (x @ w * (lr * 0.5) + n).reshape(-1)[: x.shape[0] - 1]

    batch, width = al.Dim("batch", min=2, max=64), al.Dim("width")
    shapes = {"x": {0: batch, 1: width}, "w": {0: width}, "n": True, "lr": True}
    compiled = al.compile(step, dynamic_shapes=shapes, backend="reference")
    compiled(al.ones(4, 3), al.ones(3, 2), -5, 0.25)
    graph = compiled.forward_graph
    again = read_back(graph)
    mine, other = table_of(graph), table_of(again)
    for name, symbol in other.symbols.items():
        given = mine.symbols[name]
        assert (symbol.hint, symbol.room, symbol.sources) == (given.hint, given.room, given.sources)
    (number,) = parameters_of(again)
    assert parameters_of(again) == {number: Primal(2)}
    assert other.symbols[number].hint == -5
    assert [(2, 64)] == [each.room for each in other.symbols.values() if each.room[1] == 64]
    assert "argument 3 * 0.5" in graph.code
    for rows, columns, n, lr in ((4, 3, -5, 0.25), (9, 2, 7, 3.0), (64, 5, 0, -1.5)):
        x, w = values(rows, columns), values(columns, 2)
        expected = step(al.tensor(x), al.tensor(w), n, lr)
        (found,) = run_graph(again, x, w, np.float32(lr * 0.5), sizes={number: n})
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)
    with pytest.raises(GuardError, match="graph step: the size s. is 65, expected 2 to 64"):
        run_graph(again, values(65, 3), values(3, 2), np.float32(1), sizes={number: 1})


# ---------------------------------------------------------------------- answers that are no sizes
def overlapped() -> Graph:
    """A graph with both kinds of answers among its guards."""
    table, build = SymbolTable(), Builder("windows")
    x = build.placeholder(symbolic_meta(table, tensor_meta((6, 5)), "x"))
    rows, columns = x.shape
    assert overlaps(((rows,), (columns,), 0), ((rows - 1,), (columns - 1,), 3))
    assert not has_internal_overlap((rows, columns), (columns + 1, 2 * rows + 10))
    return build.finish([x * 2])


@pytest.mark.rules("SER-18")
def test_answers_are_kept_and_checked() -> None:
    graph = overlapped()
    again = read_back(graph)
    texts = [[each.text for each in table_of(each).log] for each in (graph, again)]
    assert texts[0] == texts[1]
    assert 2 == len(texts[0])
    run_graph(again, values(6, 5))
    wrong = next(n for n in range(2, 40) if not table_of(graph).log[1].holds({"s0": n, "s1": 2}))
    with pytest.raises(GuardError, match="expected .*overlap"):
        run_graph(again, values(wrong, 2))


ANSWERS: list[tuple[str, Any, str]] = [
    ("function", "exec", 'guards[0].function is "exec", expected one of overlaps, has_internal'),
    ("function", ["overlaps"], "guards[0].function is"),
    ("value", False, "guards[0].value is false, expected an answer that holds for the hints"),
    ("value", 1, "guards[0].value is 1, expected true or false"),
    ("operands", [], "guards[0].operands is a list of 0, expected a list of 2"),
    ("operands", [[["s0"], ["s1"], 0], [[3], [1, 1], 0]], "1 sizes and 2 strides, expected as"),
    ("operands", [[["s0"], ["s1"], 0], [[3], [-1], 0]], "expected those of tensors"),
    ("operands", [[["s0"], ["s1"], 0], [[3], ["s9"], 0]], "expected the text of one of the sizes"),
    ("operands", [[[3], [1], 0], [[3], [1], 0]], "expected a size with a symbol"),
    ("operands", [[["s0"] * 65, [1] * 65, 0], [[3], [1], 0]], "expected at most 64 numbers"),
    (
        "operands",
        [[["s0", 9**6, 9**6], [9**6 + 1, 9**6 - 1, 9**6], 0], [[9**7], [8], 0]],
        "one that takes long, expected at most 5000000 steps",
    ),
]


@pytest.mark.rules("SER-18", "SER-9")
@pytest.mark.parametrize(("key", "value", "message"), ANSWERS)
def test_wrong_answers_are_refused(key: str, value: Any, message: str) -> None:
    document = json.loads(serialize.dumps(overlapped()))
    document["guards"][0][key] = value
    with pytest.raises(FormatError) as caught:
        serialize.loads(json.dumps(document))
    assert message in str(caught.value)


# -------------------------------------------------------------------------------------- bad input
def backward_of(function: Callable[..., Any]) -> Graph:
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(al.tensor(values(3, 2)).requires_grad_()).sum().backward()
    graph = compiled.backward_graph
    assert graph is not None
    return graph


@pytest.mark.rules("GRA-16", "PART-4")
def test_sizes_that_are_missing_or_wrong_are_refused() -> None:
    graph = read_back(backward_of(by_size))
    one = np.float32(1)
    words = r"graph by_size_backward: the size s1 is not given, .*sizes=: it is saved_size_1"
    with pytest.raises(ArgumentError, match=words):
        run_graph(graph, one, sizes={"s0": 3})
    with pytest.raises(ArgumentError, match="the size s1 is 2.5, expected an int"):
        run_graph(graph, one, sizes={"s0": 3, "s1": 2.5})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="sizes= has 's7', expected symbols of the graph: s0"):
        run_graph(graph, one, sizes={"s0": 3, "s1": 2, "s7": 1})
    with pytest.raises(GuardError, match="the size s1 is -2, expected at least 0"):
        run_graph(graph, one, sizes={"s0": 3, "s1": -2})
    graph = read_back(backward_of(rows))
    words = "sizes= has s1 as 7, expected 2 as the inputs have it"
    with pytest.raises(ArgumentError, match=words):
        run_graph(graph, values(2), values(2), sizes={"s0": 3, "s1": 7})


PARAMETERS: list[tuple[Any, str]] = [
    ([], "symbols is a list with s0, expected a size of an input for each, or a parameter"),
    ([("s0", "saved_size_0")], "symbols is a list with s1, expected a size of an input for each"),
    ([("s0", "saved_size_1"), ("s1", "saved_size_0")], "expected saved_size_0, the next one"),
    ([("s0", "saved_size_0"), ("s0", "saved_size_1")], 'parameters[1].symbol is "s0", expected'),
    ([("s0", "saved_size_0"), ("s7", "saved_size_1")], 'parameters[1].symbol is "s7", expected'),
    ([("s0", "tangents_output_0"), ("s1", "primals_0")], "expected the role of a size, which no"),
    ([("s0", "primals_0"), ("s1", "primals_0")], "expected the role of a size, which no other"),
    ([("s0", "size_0_output_0"), ("s1", "primals_0")], "expected the text of a role, such as pri"),
    ([("s0", "size_99_primals_0"), ("s1", "primals_0")], "expected the text of a role, such as"),
]


@pytest.mark.rules("SER-16")
@pytest.mark.parametrize(("entries", "message"), PARAMETERS)
def test_wrong_parameters_are_refused(entries: list[tuple[str, str]], message: str) -> None:
    document = json.loads(serialize.dumps(backward_of(by_size)))
    document["parameters"] = [{"symbol": name, "role": role} for name, role in entries]
    with pytest.raises(FormatError) as caught:
        serialize.loads(json.dumps(document))
    assert message in str(caught.value)


@pytest.mark.rules("SER-16")
def test_parameter_that_an_input_gives_is_refused() -> None:
    document = json.loads(serialize.dumps(backward_of(rows)))
    document["parameters"].append({"symbol": "s1", "role": "saved_size_1"})
    with pytest.raises(FormatError, match="expected a symbol that no input gives, and that the gr"):
        serialize.loads(json.dumps(document))


@pytest.mark.rules("VER-18")
def test_computed_sizes_that_are_wrong_are_refused() -> None:
    compiled = al.compile(selected, backend="reference")
    compiled(al.tensor(values(4)))
    good = json.loads(serialize.dumps(compiled.forward_graph))
    names = [node.get("target") for node in good["nodes"]]
    number = next(k for k, name in enumerate(names) if name and name.endswith("_count"))
    bad = copy.deepcopy(good)
    bad["nodes"][-1]["args"][1] = bad["nodes"][-1]["args"][0]
    with pytest.raises(FormatError, match="output_1, the value of u0, is .*, expected a 0-d"):
        serialize.loads(json.dumps(bad))
    bad = copy.deepcopy(good)
    bad["nodes"][-1]["role"][1] = "output_1"  # nothing gives u0 now
    with pytest.raises(FormatError, match="symbols is a list with u0, expected a size of an input"):
        serialize.loads(json.dumps(bad))
    bad = copy.deepcopy(good)
    fitted = next(k for k, node in enumerate(bad["nodes"]) if "u0" in node.get("args", ()))
    entries = bad["nodes"]
    entries.insert(fitted, entries.pop(number))

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(item) for item in value]
        later = {f"%{k}": f"%{k - 1}" for k in range(number + 1, fitted + 1)}
        places = {f"%{number}": f"%{fitted}", **later}
        return places.get(value, value) if isinstance(value, str) else value

    for node in entries:
        if "args" in node:
            node["args"] = moved(node["args"])
    with pytest.raises(FormatError, match="needs u0, expected a node behind .*, which computes it"):
        serialize.loads(json.dumps(bad))


@pytest.mark.rules("VER-18", "PART-4")
def test_outputs_that_say_wrong_things_of_sizes_are_refused() -> None:
    build, table = Builder("wrong"), SymbolTable()
    x = build.placeholder(symbolic_meta(table, tensor_meta((4,)), "x"))
    with pytest.raises(GraphError, match="output saved_size_0 is mul_1, expected a size"):
        verify(build.finish([x * 2, x * 2], [Output(0), SavedSize(0)]))
    build, table = Builder("wrong"), SymbolTable()
    x = build.placeholder(symbolic_meta(table, tensor_meta((4,)), "x"))
    count = table.named_symbol("u0", 2, (0, None))
    number = build.call(OPS["nonzero_count"], (x,))
    found = build.call(OPS["nonzero_fitted"], (x, count))
    same = build.call(OPS["nonzero_count"], (x,))
    graph = build.finish([found, number, same], [Output(0), Output(1, "u0"), Output(2, "u0")])
    with pytest.raises(GraphError, match="two outputs are the value of one symbol, expected one"):
        verify(graph)


@pytest.mark.rules("GRA-16")
def test_size_of_an_input_that_differs_from_the_computed_one_is_refused() -> None:
    """A tangent has the size that the forward half computes."""
    build, table = Builder("joint"), SymbolTable()
    x = build.placeholder(symbolic_meta(table, tensor_meta((4,)), "x"), Primal(0))
    count: Any = table.named_symbol("u0", 2, (0, None))
    tangent = build.placeholder(tensor_meta((count, 1), (1, 1)), Tangent(Output(0)))
    number = build.call(OPS["nonzero_count"], (x,))
    found = build.call(OPS["nonzero_fitted"], (x, count))
    graph = build.finish([found * tangent, number], [Output(0), Output(1, "u0")])
    run_graph(graph, np.array([1, 0, 2], np.float32), values(2, 1))
    with pytest.raises(GuardError, match="graph joint: an input gives u0 as 3, expected 2"):
        run_graph(graph, np.array([1, 0, 2], np.float32), values(3, 1))


@pytest.mark.rules("SER-16")
def test_a_symbol_without_a_role_is_refused() -> None:
    build, table = Builder("free"), SymbolTable()
    x = build.placeholder(tensor_meta(()))
    size: Any = table.symbol(5, lower=2)
    with pytest.raises(UnsupportedError, match="serialize: the symbol s0 is the size of no input"):
        serialize.dumps(build.finish([x.expand(size, 3)]))
