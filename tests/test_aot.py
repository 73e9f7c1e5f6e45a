"""aot_function: forms of compilers, writes that stay in the graph, static arguments."""

import enum
import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.compilers import boxed_nop, debug_nop, make_boxed_compiler, make_boxed_func, nop
from aotlite.ir.op import InplaceOp
from aotlite.ir.run.interpreter import Interpreter
from tests.end_to_end.helpers.cases import cases
from tests.end_to_end.helpers.worlds import check


# ------------------------------------------------------------------------------ forms of compilers
def arrays(graph):
    """One argument; a function of arrays."""
    return Interpreter(graph).run


def with_inputs(graph, example_inputs):
    """Two arguments; a boxed function of arrays."""

    def run(args):
        given = list(args)
        args.clear()
        return Interpreter(graph).run(*given)

    run._boxed_call = True
    return run


def around_nop(graph, example_inputs):
    """A compiler that calls what another made."""
    run = nop(graph, example_inputs)
    return make_boxed_func(lambda *args: run(list(args)))


def itself(graph, example_inputs):
    """As PyTorch's documentation does."""
    return graph


def other_graph(graph):
    """An equal graph."""
    return graph.edit().graph()


class OfWindows:
    """A backend of the long form."""

    name = "windows"

    def compile(self, graph):
        return debug_nop(graph, []).run


FORMS = {
    "arrays": arrays,
    "with_inputs": with_inputs,
    "around_nop": around_nop,
    "itself": itself,
    "other_graph": other_graph,
    "windows": OfWindows(),
    "nop": nop,
    "boxed_nop": boxed_nop,
    "debug_nop": debug_nop,
    "made boxed": make_boxed_compiler(lambda graph, inputs: Interpreter(graph).run),
    "made boxed, of the graph alone": make_boxed_compiler(arrays),
}
WRITES = {
    name: f
    for name, f in FORMS.items()
    if name not in ("arrays", "with_inputs", "made boxed", "made boxed, of the graph alone")
}
"""Those that write the arrays they are given: an Interpreter copies them."""


def step(x, w):
    x[0].mul_(2.0)
    hidden = (x @ w).relu()
    return hidden.t(), (hidden * hidden).sum()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_compiler_computes_what_eager_does(form):
    x, y = al.arange(6.0).view(2, 3), al.arange(6.0).view(2, 3)
    w, v = (al.arange(6.0).view(3, 2).requires_grad_() for _ in range(2))
    aot = al.aot_function(step, FORMS[form])
    for _ in range(2):
        (mine, loss), (its, eager) = aot(x, w), step(y, v)
        loss.backward()
        eager.backward()
    assert (its.tolist(), y.tolist(), y.version) == (mine.tolist(), x.tolist(), x.version)
    assert (its.stride(), v.grad.tolist()) == (mine.stride(), w.grad.tolist())


@pytest.mark.rules("FUN-22", "FUN-23")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", WRITES)
@settings(max_examples=20, deadline=None)
@given(case=cases())
def test_graphs_that_write_their_inputs_leave_eagers_world(form, case):
    """FUN-22, FUN-23: bytes, geometry, versions, aliases and gradients are as in eager."""
    options = {"fw_compiler": FORMS[form], "bw_compiler": FORMS[form], "verify": 1}
    found, _ = check(case, keep_inference_input_mutations=True, **options)
    assert [] == found


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", sorted(FORMS.keys() - WRITES.keys()))
@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_graphs_on_arrays_leave_eagers_world(form, case):
    """LOW-5: whatever the function of arrays does with the list it is given."""
    found, _ = check(case, fw_compiler=FORMS[form], bw_compiler=FORMS[form], verify=1)
    assert [] == found


# ----------------------------------------------------------------------------------- who is called
def test_each_graph_goes_to_its_compiler():
    called = []

    def named(name):
        def compiler(graph, inputs):
            called.append((name, graph.name))
            return nop(graph, inputs)

        return compiler

    def f(x):
        return (x * x).sum()

    aot = al.aot_function(f, named("fw"), named("bw"), inference_compiler=named("inference"))
    aot(al.ones(2, requires_grad=True)).backward()
    aot(al.ones(2))
    assert [("fw", "f_forward"), ("bw", "f_backward"), ("inference", "f")] == called
    called.clear()
    aot = al.aot_function(f, named("fw"))
    aot(al.ones(2))
    aot(al.ones(2, requires_grad=True)).backward()
    assert [("fw", "f"), ("fw", "f_forward"), ("fw", "f_backward")] == called


def test_example_inputs_say_all_but_the_data():
    """LOW-7."""
    seen = []
    aot = al.aot_function(lambda x: x.t().exp(), lambda graph, inputs: seen.extend(inputs) or graph)
    aot(al.ones(2, 3).t())
    (example,) = seen
    assert ((3, 2), (1, 3), al.float32) == (example.shape, example.stride(), example.dtype)
    assert (2, 6, False, "primals_0") == (
        example.ndim,
        example.numel(),
        example.static,
        str(example.role),
    )
    with pytest.raises(
        al.UnsupportedError, match="exp: the operand is the example input primals_0"
    ):
        example.exp()
    assert "ExampleInput(primals_0: f32[3, 2][1, 3])" == repr(example)


def test_static_inputs_are_told_in_both_halves():
    """LOW-7: a parameter, and what is saved of it; a written one is memory that changes."""
    seen = {}

    def compiler(graph, inputs):
        seen[graph.name] = {str(each.role) for each in inputs if each.static}
        return graph

    def f(w, b, x):
        b.add_(1.0)
        return (x.exp() @ w.t() + b).exp().sum()

    aot = al.aot_function(f, compiler, num_params_buffers=2)
    aot(al.ones(2, 3).requires_grad_(), al.ones(2), al.ones(4, 3).requires_grad_()).backward()
    assert {"primals_0", "primals_1"} == seen["f_forward"]
    assert 1 == len(seen["f_backward"])


@pytest.mark.rules("BOX-1", "BOX-2")
def test_inputs_die_when_the_boxed_function_lets_them_go():
    """BOX-1, BOX-2: nobody else holds them."""
    alive = []

    def compiler(graph, inputs):
        def run(args):
            refs = [weakref.ref(each) for each in args]
            (result,) = Interpreter(graph).run(*args)
            args.clear()
            gc.collect()
            alive.extend(ref() is not None for ref in refs)
            return [result]

        run._boxed_call = True
        return run

    al.aot_function(lambda x, y: x + y, compiler)(al.ones(2), al.ones(2))
    assert [False, False] == alive


def test_a_single_result_may_come_without_a_list():
    aot = al.aot_function(lambda x: x * 2.0, lambda graph: lambda x: x * np.float32(2))
    assert [2.0, 2.0] == aot(al.ones(2)).tolist()


@pytest.mark.parametrize("keep", [lambda a: a, lambda a: a[:], lambda a: [a]])
def test_what_a_compiled_function_keeps_is_not_the_callers(keep):
    """Another result is written without the function's own array changing."""
    kept = []

    def compiler(graph):
        def run(x):
            if not kept:
                kept.append(keep(np.float32(2) * x))
            owner = kept[0] if isinstance(kept[0], list) else [kept[0]]
            return owner if owner[0].base is None else [owner[0].base]

        return run

    aot = al.aot_function(lambda x: x * 2.0, compiler)
    first = aot(al.ones(2))
    first.mul_(100.0)
    second = aot(al.ones(2))
    assert [2.0, 2.0] == second.tolist()
    assert first.storage is not second.storage


def test_one_array_returned_twice_is_two_results():
    def compiler(graph):
        def run(x):
            y = x * np.float32(2)
            return [y, y]

        return run

    y, z = al.aot_function(lambda x: (x * 2.0, x * 2.0), compiler)(al.ones(2))
    y.mul_(3.0)
    assert ([6.0, 6.0], [2.0, 2.0]) == (y.tolist(), z.tolist())


def test_fresh_results_are_taken_over_without_a_copy():
    made = []

    def compiler(graph):
        def run(x):
            y = x * np.float32(2)
            made.append(y.__array_interface__["data"][0])
            return [y]

        return run

    y = al.aot_function(lambda x: x * 2.0, compiler)(al.ones(2))
    assert made == [y.numpy().__array_interface__["data"][0]]


def test_partitioners_and_decompositions_have_pytorchs_names():
    aot = al.aot_function(
        lambda x: x.softmax(0).sum(),
        nop,
        partition_fn=al.partition.default_partition,
        decompositions={al.ops.softmax: lambda x, dim: x.exp() / x.exp().sum(dim, True)},
    )
    aot(al.ones(2, requires_grad=True)).backward()
    assert "softmax" not in {node.target.name for node in aot.forward_graph.calls}


# -------------------------------------------------------------------------- writes that stay in
def graphs_of(f, *args, **options):
    graphs = []
    options = {"keep_inference_input_mutations": True, **options}
    aot = al.aot_function(f, lambda graph: graphs.append(graph) or graph, **options)
    aot(*args)
    return graphs


def writes(graph):
    return [str(n.args[0].role) for n in graph.calls if isinstance(n.target, InplaceOp)]


def no_grad_write(x):
    with al.no_grad():
        x.mul_(2.0)
    return x.sum().detach()


@pytest.mark.rules("FUN-21", "FUN-22", "META-3")
@pytest.mark.parametrize(
    ("f", "args", "written"),
    [
        (lambda x: x.mul_(2.0), (al.ones(2),), ["primals_0"]),
        (lambda x, y: (x.mul_(2.0), y.add_(x)), (al.ones(2), al.ones(2)), 2),
        (lambda x: x[0].mul_(2.0), (al.ones(2),), ["primals_0"]),
        (lambda x: (x.mul_(2.0).t_(), None), (al.ones(2, 3),), []),
        (lambda x: x.t_(), (al.ones(2, 3),), []),
        (no_grad_write, (al.ones(2, requires_grad=True),), ["primals_0"]),
        (lambda x: x.copy_(x), (al.ones(2),), []),
        (lambda x: x.sum(), (al.ones(2),), []),
    ],
)
def test_which_writes_stay_in_the_graph(f, args, written):
    """FUN-21: bytes alone, and out of sight of the tape."""
    (graph,) = graphs_of(f, *args)
    expected = ["primals_0", "primals_1"] if written == 2 else written
    assert expected == writes(graph)


@pytest.mark.rules("FUN-22")
def test_a_write_in_the_graph_is_shown_and_explained():
    seen = {}
    f = al.compile(
        lambda x: x.mul_(2.0), keep_inference_input_mutations=True, observer=seen.__setitem__
    )
    f(al.ones(2))
    assert ["primals_0"] == writes(seen["8 partition, forward"])
    assert "Its bytes are written in place, by the graph itself" in f.meta.explain()


@pytest.mark.rules("FUN-21")
def test_training_graphs_write_nothing():
    f = al.aot_function(
        lambda x, w: (x.mul_(2.0) * w).sum(), nop, keep_inference_input_mutations=True
    )
    f(al.ones(2), al.ones(2, requires_grad=True))
    assert [] == writes(f.forward_graph)


@pytest.mark.rules("FUN-22")
def test_inputs_that_swap_their_values_are_written_from_the_old_ones():
    def swap(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    for _ in range(4):
        x, y = al.zeros(3), al.ones(3)
        al.aot_function(swap, nop, keep_inference_input_mutations=True)(x, y)
        assert ([1.0] * 3, [0.0] * 3, 1, 1) == (x.tolist(), y.tolist(), x.version, y.version)


@pytest.mark.rules("FUN-26")
def test_a_closing_copy_is_of_the_line_that_wrote():
    """FUN-26."""
    (graph,) = graphs_of(lambda x: x.mul_(2.0), al.ones(2))
    mul, copy = graph.calls
    assert mul.location is not None
    assert mul.location == copy.location


# ------------------------------------------------------------------------------ static arguments
@dataclass(frozen=True)
class Config:
    factor: float
    name: str = "plain"


class Mode(enum.Enum):
    ADD = "add"
    MUL = "mul"


def test_static_arguments_are_constants_of_any_hashable_kind():
    def f(config, x, mode, *, shift=0.0):
        y = x + config.factor if mode is Mode.ADD else x * config.factor
        return y + shift

    aot = al.aot_function(f, nop, static_argnums=(0, 2))
    x = al.ones(2)
    for config in (Config(2.0), Config(3.0), Config(2.0)):
        for mode in Mode:
            assert f(config, x, mode).tolist() == aot(config, x, mode).tolist()
            assert (
                f(config, x, mode, shift=1.0).tolist() == aot(config, x, mode, shift=1.0).tolist()
            )
    assert 4 == len(aot.variants)
    assert "f" == aot.__name__
    assert "<compiled f: 4 variants by static arguments>" == repr(aot)


def test_static_numbers_of_other_types_are_others():
    seen = []
    aot = al.aot_function(lambda n, x: seen.append(n) or x * n, nop, static_argnums=0)
    for n in (1, 1.0, True, (1,), (True,), 0.0, -0.0, float("nan"), float("nan")):
        if not isinstance(n, tuple):
            aot(n, al.ones(2))
    assert 6 == len(aot.variants)
    aot = al.aot_function(lambda n, x: x * n[0], nop, static_argnums=[0])
    for n in ((1,), (1.0,), (1,)):
        aot(n, al.ones(2))
    assert 2 == len(aot.variants)


def test_a_method_may_have_static_arguments():
    class Scale:
        factor = 3.0

        def __call__(self, x, n):
            return self.apply(x, n)

    Scale.apply = al.aot_function(lambda self, x, n: x * n, nop, static_argnums=(0, 2))
    assert [2.0] == Scale()(al.ones(1), 2).tolist()


@pytest.mark.parametrize(
    ("argnums", "args", "text"),
    [
        (-1, None, "static_argnums is -1, expected different positions from 0 on"),
        ((0, 0), None, r"static_argnums is \(0, 0\), expected different"),
        ((True,), None, "static_argnums is .*expected different"),
        (1, (1,), "argument 1 is static and missing among 1 positional arguments"),
        (0, ([], 1), r"argument 0 is static and is \[\], which has no hash, expected a hashable"),
        (0, (al.ones(2), 1), "argument 0 is static and is a Tensor, expected a constant"),
    ],
)
def test_wrong_static_arguments_are_refused(argnums, args, text):
    with pytest.raises(al.ArgumentError, match=f"^aot_function: {text}"):
        al.aot_function(lambda a, b: b, nop, static_argnums=argnums)(*args)
