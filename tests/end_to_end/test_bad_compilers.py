"""Compilers, partitioners and passes that fail: named, and nothing is half done.

Each is tried on a function that writes an input, draws a random number and has a backward.
"""

import numpy as np
import pytest

import aotlite as al
from aotlite.compilers import nop
from aotlite.eager.base.modes import STATE
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Gradient, Saved
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import Interpreter
from aotlite.partition import Partition, SavedValue, cut, default_partition


def loss(x, w):
    x.mul_(2.0)
    return ((x + al.rand(2)) * w).exp().sum()


def tensors():
    return al.ones(2), al.ones(2, requires_grad=True)


def untouched(x, w):
    """Bytes, versions, gradients, modes and the generator are as before the call."""
    state = ([1.0, 1.0], 0, [1.0, 1.0], 0, None)
    assert state == (x.tolist(), x.version, w.tolist(), w.version, w.grad)
    assert (7, 0) == al.get_rng_state()
    assert STATE.recorder is None
    assert al.is_grad_enabled()


def refused(text, kind=al.AotliteError, **options):
    """Calls the function, which fails with this text and leaves all as it was."""
    al.manual_seed(7)
    x, w = tensors()
    compiled = al.compile(loss, **options)
    for _ in range(2):
        with pytest.raises(kind, match=text) as caught:
            compiled(x, w)
        untouched(x, w)
    return caught.value, compiled


def notes(error):
    return "\n".join(getattr(error, "__notes__", ()))


# ------------------------------------------------------------------------- compilers, at compile
class Raising:
    """A backend that compiles nothing."""

    name = "raising"

    def compile(self, graph):
        raise LookupError("out of registers")


def raises(graph, inputs):
    raise LookupError("out of registers")


def unnamed_input(graph):
    """A graph of other inputs, which returns nothing."""
    build = Builder(graph.name)
    for _ in graph.placeholders:
        build.placeholder(tensor_meta((2,)))
    return build.finish([])


def without_last_result(graph):
    output = output_node(graph.outputs[:-1], graph.output_roles[:-1])
    return Graph((*graph.nodes[:-1], output), graph.name)


def halved(graph):
    """The graph whose first result has half the elements."""
    build = Builder(graph.name)
    build.nodes.extend(graph.nodes[:-1])
    first = build.emit(OPS["slice"], (graph.outputs[0], 0, 0, 1, 1))
    return build.finish([first, *graph.outputs[1:]], graph.output_roles)


def writing(graph):
    """The graph that writes a value in the middle."""
    build = Builder(graph.name)
    build.nodes.extend(graph.nodes[:-1])
    build.emit(OPS["mul_"], (graph.calls[0], 2.0))
    return build.finish(graph.outputs, graph.output_roles)


@pytest.mark.parametrize("option", ["fw_compiler", "backend"])
@pytest.mark.parametrize(
    ("compiler", "text"),
    [
        (Raising(), "^lower: backend 'raising' raised LookupError on graph loss_forward, expected"),
        (raises, "^lower: backend 'raises' raised LookupError on graph loss_forward, expected a c"),
        (lambda graph: None, "^backend: '<lambda>' gave None for graph loss_forward, expected a f"),
        (lambda graph, inputs: 3, "^backend: '<lambda>' gave 3 for graph loss_forward, expected"),
        (
            unnamed_input,
            "^backend: 'unnamed_input' gave a graph with other inputs for graph loss_f",
        ),
        (
            without_last_result,
            "^backend: 'without_last_result' gave a graph with other results for",
        ),
        (halved, "^backend: 'halved' gave a graph with other results for graph loss_forward"),
        (writing, "^graph of 'writing': mul_.* is not pure, expected a functional graph"),
    ],
)
def test_a_compiler_that_fails_is_named(option, compiler, text):
    _, compiled = refused(text, **{option: compiler})
    assert [] == compiled.entries


def test_an_error_of_ours_in_a_compiler_says_whose_it_is():
    error, _ = refused("view: ", al.ShapeError, fw_compiler=lambda graph: shape_error(graph))
    assert "raised by backend '<lambda>' on graph loss_forward" in notes(error)


@pytest.mark.parametrize(
    ("compiler", "text"),
    [
        (lambda: None, "fw_compiler '<lambda>' requires 0 arguments, expected a graph, or a graph"),
        (lambda a, b, c: a, "fw_compiler '<lambda>' requires 3 arguments, expected a graph, or"),
        (lambda a, *, b: a, "fw_compiler '<lambda>' requires 2 arguments, expected a graph, or"),
        ("nonsense", "fw_compiler is 'nonsense', expected 'auto', 'cpu', 'cuda', 'loops'"),
        (3, "fw_compiler is 3, expected a name, a Backend or a function"),
    ],
)
def test_what_is_no_compiler_is_refused_when_it_is_given(compiler, text):
    with pytest.raises(al.ArgumentError, match=f"^compile: {text}"):
        al.aot_function(loss, compiler)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_params_buffers": -1}, "num_params_buffers is -1, expected a number of arguments"),
        ({"num_params_buffers": True}, "num_params_buffers is True, expected a number of arg"),
        ({"keep_inference_input_mutations": 1}, "keep_inference_input_mutations is 1, expected T"),
        ({"inference_compiler": 3}, "inference_compiler is 3, expected a name, a Backend"),
        ({"partitionn": 3}, "'partitionn' is no option, expected partition"),
        (
            {"precompile_backend_id": 3},
            "'precompile_backend_id' is no option, expected backend, wait, partition",
        ),
        ({"fullgrap": True}, "'fullgrap' is no option, expected backend, wait, partition"),
        ({"bw_compiler": 3}, "bw_compiler is 3, expected a name, a Backend or a function"),
    ],
)
def test_wrong_options_are_refused_when_they_are_given(options, text):
    with pytest.raises(al.ArgumentError, match=f"^compile: {text}"):
        al.aot_function(loss, nop, **options)


# ------------------------------------------------------------------------- compilers, at run time
def returning(change):
    """A compiler of functions whose results are changed; every graph has three or more."""

    def compiler(graph):
        def run(*arrays):
            return change([np.array(value) for value in Interpreter(graph).run(*arrays)])

        return run

    return compiler


def of_windows(change):
    """A backend whose windows are changed."""

    class Windows:
        name = "windows"

        def compile(self, graph):
            run = nop(graph, []).run
            return lambda windows: change(run(windows))

    return Windows()


def failing(values):
    raise FloatingPointError("broken kernel")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: None, "returned NoneType for graph loss_forward, expected a list or tuple of 5"),
        (lambda v: v[:-1], "returned 4 for graph loss_forward, expected a list or tuple of 5"),
        (lambda v: [*v, v[0]], "returned 6 for graph loss_forward, expected a list or tuple of 5"),
        (lambda v: v[0], "returned ndarray for graph loss_forward, expected a list or tuple of 5"),
        (
            lambda v: [v[0][:1], *v[1:]],
            r"returned shape \(1,\) as result 0 for graph loss_forward, ",
        ),
        (
            lambda v: [v[0], v[1][None], *v[2:]],
            r"returned shape \(1,\) as result 1 .* expected \(\)",
        ),
        (lambda v: [v[0].astype("f8"), *v[1:]], "returned dtype float64 as result 0 .* float32"),
        (lambda v: [v[0], 3.0, *v[2:]], r"returned float as result 1 .*, expected an array of f32"),
        (lambda v: [v[0], None, *v[2:]], r"returned NoneType as result 1 .*, expected an array"),
        (lambda v: [al.tensor(v[0]), *v[1:]], r"returned Tensor as result 0 .*, expected an array"),
        (lambda v: "four", "returned str for graph loss_forward, expected a list or tuple of 5"),
    ],
)
def test_a_function_of_arrays_that_computes_something_else_is_named(change, text):
    refused(f"^backend: 'compiler' {text}", al.BackendError, fw_compiler=returning(change))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: None, "returned NoneType for graph loss_forward, expected a list of 5 results"),
        (lambda v: v[:-1], "returned 4 for graph loss_forward, expected a list of 5 results"),
        (lambda v: [None, *v[1:]], r"returned NoneType as result 0 .* expected \(buffer, start\)"),
        (
            lambda v: [v[0][0], *v[1:]],
            r"returned ndarray as result 0 .* expected \(buffer, start\)",
        ),
        (lambda v: [(v[0][0], -1), *v[1:]], "returned tuple as result 0 of graph loss_forward"),
    ],
)
def test_a_backend_of_windows_that_computes_something_else_is_named(change, text):
    refused(f"^backend: 'windows' {text}", al.BackendError, fw_compiler=of_windows(change))


@pytest.mark.parametrize("make", [returning, of_windows])
def test_an_error_of_compiled_code_says_whose_it_is(make):
    """Its class stays."""
    compiler = make(failing)
    error, _ = refused("broken kernel", FloatingPointError, fw_compiler=compiler)
    name = getattr(compiler, "name", "compiler")
    assert f"raised by what '{name}' made of graph loss_forward" in notes(error)


def test_results_that_cannot_be_written_are_copied():
    """As those of libraries whose arrays never can; a tensor can."""

    def frozen(values):
        for value in values:
            value.flags.writeable = False
        return values

    x, w = tensors()
    compiled = al.compile(lambda x, w: (x.exp() * w, x + 1), fw_compiler=returning(frozen))
    for result in compiled(x, w):
        before = result.detach().tolist()
        assert [2 * value for value in before] == result.detach().mul_(2.0).tolist()


def in_place(graph, inputs):
    """A compiler of functions that compute in place."""

    def run(*arrays):
        for array in arrays:
            array *= 2
        return Interpreter(graph).run(*arrays)

    return run


def test_a_function_that_writes_its_inputs_is_stopped():
    """LOW-5: the caller's memory, in the forward, and what is saved, in the backward."""
    error, _ = refused("read-only", ValueError, fw_compiler=in_place)
    assert "raised by what 'in_place' made of graph loss_forward" in notes(error)
    x, w = tensors()
    value = al.aot_function(loss, nop, in_place)(x, w)
    with pytest.raises(ValueError, match="read-only") as caught:
        value.backward()
    assert "raised by what 'in_place' made of graph loss_backward" in notes(caught.value)
    assert ([2.0, 2.0], [1.0, 1.0], None) == (x.tolist(), w.tolist(), w.grad)


@pytest.mark.rules("BOX-3")
@pytest.mark.parametrize(
    ("compiler", "kind", "text"),
    [
        (raises, al.BackendError, "lower: backend 'raises' raised LookupError on graph loss_backw"),
        (lambda graph: 3, al.BackendError, "backend: '<lambda>' gave 3 for graph loss_backward"),
        (returning(lambda v: []), al.BackendError, "'compiler' returned 0 for graph loss_backward"),
        (returning(failing), FloatingPointError, "broken kernel"),
    ],
)
def test_a_backward_that_fails_can_be_run_again(compiler, kind, text):
    """No gradient is there by then; what was saved still is."""
    broken = [True]

    def sometimes(graph, inputs):
        bad = compiler(graph, inputs) if compiler is raises else compiler(graph)
        if not callable(bad):
            return bad if broken[0] else nop(graph, inputs)
        return lambda *arrays: bad(*arrays) if broken[0] else Interpreter(graph).run(*arrays)

    sometimes.__name__ = getattr(compiler, "__name__", "compiler")
    x, w = tensors()
    aot = al.aot_function(loss, nop, compiler if compiler is raises else sometimes)
    value = aot(x, w)
    for _ in range(2):
        with pytest.raises(kind, match=text):
            value.backward()
        assert w.grad is None
    assert [2.0, 2.0] == x.tolist()
    if compiler is not raises:
        broken[0] = False
        value.backward()
        assert w.grad is not None


@pytest.mark.rules("RT-10", "FUN-22")
def test_an_inference_graph_that_fails_has_written_nothing():
    """FUN-22: its copies come last."""

    def broken(graph, inputs):
        run = nop(graph, inputs)

        def go(args):
            args[0] = args[0][:1]
            return run(args)

        go._boxed_call = True
        return go

    x = al.ones(2)
    aot = al.aot_function(lambda x: x.mul_(2.0).sum(), broken, keep_inference_input_mutations=True)
    with pytest.raises(ValueError, match="broadcast|shape") as caught:
        aot(x)
    assert "raised by what 'broken' made of graph <lambda>" in notes(caught.value)
    assert ([1.0, 1.0], 0) == (x.tolist(), x.version)


# ---------------------------------------------------------------------------------- partitioners
def lost(graph, role):
    """The default partition without one output."""
    partition = default_partition(graph)
    halves = []
    for half in (partition.forward, partition.backward):
        pairs = [p for p in zip(half.output_roles, half.outputs, strict=True) if p[0] != role]
        output = output_node([value for _, value in pairs], [role for role, _ in pairs])
        halves.append(Graph((*half.nodes[:-1], output), half.name))
    return Partition(*halves, partition.saved)


def with_forward(graph, change):
    partition = default_partition(graph)
    return Partition(change(partition.forward), partition.backward, partition.saved)


def with_backward(graph, change):
    partition = default_partition(graph)
    return Partition(partition.forward, change(partition.backward), partition.saved)


def reordered(graph):
    """The results in another order."""
    output = output_node(graph.outputs[::-1], graph.output_roles[::-1])
    return Graph((*graph.nodes[:-1], output), graph.name)


def fewer_inputs(graph):
    """An unused first input is left out."""
    return Graph(graph.nodes[1:], graph.name)


def no_gradient(graph):
    roles = graph.output_roles
    return Graph((*graph.nodes[:-1], output_node([None] * len(roles), roles)), graph.name)


def misnamed(graph):
    partition = default_partition(graph)
    first = partition.saved[0]
    other = SavedValue(first.name, tensor_meta((7,)), first.owner, first.reason)
    return Partition(partition.forward, partition.backward, (other, *partition.saved[1:]))


def raising_partition(graph):
    raise KeyError("no idea")


PARTITIONERS = {
    "nonsense": (lambda g: 3, "^partition: '<lambda>' returned 3, expected a Partition"),
    "nothing": (lambda g: None, "^partition: '<lambda>' returned None, expected a Partition"),
    "no graphs": (
        lambda g: Partition(3, None, ()),  # type: ignore[arg-type]
        r"^partition: '<lambda>' returned Partition\(forward=3.*, expected a Partition",
    ),
    "a list": (
        lambda g: Partition(default_partition(g).forward, None, []),  # type: ignore[arg-type]
        r"^partition: '<lambda>' returned Partition\(.*, expected a Partition",
    ),
    "raises": (
        raising_partition,
        "^partition: 'raising_partition' raised KeyError, expected a Partition",
    ),
    "no gradients": (
        lambda g: Partition(default_partition(g).forward, None, default_partition(g).saved),
        "^partition: the output grad_primals_1 of the joint graph is in neither half",
    ),
    "a result is lost": (
        lambda g: lost(g, g.output_roles[0]),
        "^partition: the output updated_primals_0 of the joint graph is in neither half",
    ),
    "a gradient is lost": (
        lambda g: lost(g, g.output_roles[-1]),
        "^partition: the output grad_primals_1 of the joint graph is in neither half",
    ),
    "a saved value is lost": (
        lambda g: lost(g, Saved(0)),
        "^partition: the results of the forward are .*, expected .*saved_0",
    ),
    "another order": (
        lambda g: with_forward(g, reordered),
        "^partition: the results of the forward are saved_.*, expected updated_primals_0, output_0",
    ),
    "inputs of the forward": (
        lambda g: with_forward(g, fewer_inputs),
        "^partition: the inputs of the forward are primals_1.*, expected primals_0, primals_1",
    ),
    "inputs of the backward": (
        lambda g: with_backward(g, fewer_inputs),
        "^partition: the inputs of the backward are .*, expected saved_0",
    ),
    "shape": (
        lambda g: with_forward(g, halved),
        r"^partition: updated_primals_0 is f32\[1\], expected f32\[2\] as in the graph it took",
    ),
    "an absent gradient": (
        lambda g: with_backward(g, no_gradient),
        r"^partition: grad_primals_1 is None, expected f32\[2\] as in the graph it took",
    ),
    "a wrong record": (
        misnamed,
        r"^partition: .* is saved as f32\[7\], expected f32\[2\] as in the forward",
    ),
    "too little saved": (
        lambda g: cut(g, []),
        "^partition: a gradient needs the input .*, which is not saved",
    ),
}


@pytest.mark.parametrize("kind", PARTITIONERS)
def test_a_wrong_partitioner_is_refused(kind):
    partitioner, text = PARTITIONERS[kind]
    _, compiled = refused(f"(?s){text}", al.ArgumentError, partition=partitioner)
    assert [] == compiled.entries


def test_an_error_of_a_partitioner_says_whose_it_is():
    error, _ = refused("needs the input", partition=lambda g: cut(g, []))
    assert "raised by '<lambda>'" in notes(error)


# ----------------------------------------------------------------------------------------- passes
def raising_pass(graph):
    raise KeyError("no idea")


def shape_error(graph):
    build = Builder(graph.name)
    build.nodes.extend(graph.nodes[:-1])
    build.emit(OPS["view"], (graph.calls[0], (99,)))
    return graph


def without_role(graph):
    kept = [
        (role, value)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if not isinstance(role, Gradient)
    ]
    output = output_node([value for _, value in kept], [role for role, _ in kept])
    return Graph((*graph.nodes[:-1], output), graph.name)


PASSES = {
    "nonsense": (lambda g: 3, "^pass '<lambda>': it returned 3, expected a Graph"),
    "nothing": (lambda g: None, "^pass '<lambda>': it returned None, expected a Graph"),
    "raises": (raising_pass, "^pass 'raising_pass': it raised KeyError, expected a Graph"),
    "loses a gradient": (
        without_role,
        "^pass 'without_role': it changed the roles of the outputs, expected the same",
    ),
    "inputs": (fewer_inputs, "^pass 'fewer_inputs': it changed the inputs, expected the same"),
    "shape": (
        halved,
        r"^pass 'halved': updated_primals_0 is f32\[1\], expected f32\[2\] as in the graph it took",
    ),
    "absent": (no_gradient, "^pass 'no_gradient': updated_primals_0 is None, expected f32"),
    "writes": (writing, "^pass 'writing': .*mul_.* is not pure, expected a functional graph"),
    "order": (
        lambda g: Graph((*g.nodes[:-4], g.nodes[-3], g.nodes[-4], *g.nodes[-2:]), g.name),
        "^pass '<lambda>': an operand of .* expected an earlier node",
    ),
}


@pytest.mark.parametrize("kind", PASSES)
def test_a_wrong_pass_is_named(kind):
    function, text = PASSES[kind]
    _, compiled = refused(f"(?s){text}", passes=[function])
    assert [] == compiled.entries


def test_an_error_of_a_pass_says_whose_it_is():
    error, _ = refused("view: ", al.ShapeError, passes=[shape_error])
    assert "raised by pass 'shape_error'" in notes(error)
