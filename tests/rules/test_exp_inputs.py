"""EXP-1, EXP-5, EXP-12, EXP-14, EXP-15: an input for each leaf, and what no exported graph says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.export import (
    FakeMode,
    aot_compile_joint_with_descriptors,
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
    aot_export_module,
    program,
    to_python,
)
from aotlite.interchange import OnnxProgram, to_onnx, to_stablehlo
from aotlite.ir.run.interpreter import run_graph
from aotlite.subclasses import QuantizedTensor, TwoTensor, unwrap_subclass_parameters


class Body(nn.Module):
    """A Module whose forward is a function of it and its arguments."""

    def __init__(self, body: Callable[..., Any], **held: Any) -> None:
        self._body = [body]
        for name, each in held.items():
            setattr(self, name, each)

    def forward(self, *args: Any) -> Any:
        return self._body[0](self, *args)


def ones(*, grad: bool = False) -> Any:
    return al.ones(2, requires_grad=grad)


# --------------------------------------------------------------------- an input for each leaf
def difference(self: Any, *args: Any) -> Any:
    leaves = [self.weight, *args[:2], *args[2]]
    total = leaves[0] * 1.0
    for place, each in enumerate(leaves[1:], 2):
        total = total - each * float(place)
    return (total.sum(),)


def exported(args: list[Any], joint: bool) -> Any:
    """The text of the graph of one Module, and its signature, for these arguments."""
    module = Body(difference, weight=nn.Parameter(ones()))
    how: Any = {"trace_joint": True, "output_loss_index": 0} if joint else {}
    graph, signature = aot_export_module(module, (*args[:2], args[2:]), **how)
    return graph.code, signature


@pytest.mark.rules("EXP-1", "EXP-10")
@given(
    shared=st.tuples(*[st.integers(0, 2)] * 4),
    grads=st.tuples(*[st.booleans()] * 3),
    joint=st.booleans(),
)
@settings(max_examples=12)
@example(shared=(0, 0, 1, 2), grads=(False,) * 3, joint=False)
def test_repeated_tensor_is_an_input_for_each_leaf(
    shared: tuple[int, ...], grads: tuple[bool, ...], joint: bool
) -> None:
    """The graph of arguments that are one tensor is that of clones of them."""
    tensors = [ones(grad=grad) for grad in grads]
    found = exported([tensors[k] for k in shared], joint)
    assert found == exported([ones(grad=grads[k]) for k in shared], joint)
    assert found[1].user_inputs == tuple(f"primals_{k}" for k in range(1, 5))


@pytest.mark.rules("EXP-1", "PYX-11")
def test_both_arguments_are_read_by_the_file_of_an_export() -> None:
    x = ones()
    text = to_python(*aot_export_module(Body(lambda self, a, b: (a - b,)), (x, x)))
    space: dict[str, Any] = {}
    exec(text, space)
    assert space["Body"](np.ones(2, np.float32), np.zeros(2, np.float32))[0].tolist() == [1, 1]


@pytest.mark.rules("EXP-1", "EXP-18", "EXP-19")
def test_repeated_fakes_and_arrays_are_inputs_each() -> None:
    fake = FakeMode().from_tensor(ones(grad=True), dynamic=(0,))
    array, body = np.ones(2, np.float32), lambda self, a, b: (al.as_tensor(a) - al.as_tensor(b),)
    for args in ((fake, fake), (array, array)):
        graph, signature = aot_export_module(Body(body), args)
        assert signature.user_inputs == ("primals_0", "primals_1")
        assert len(graph.placeholders) == 2
        symbolic = [not str(node.meta).endswith("[2]") for node in graph.placeholders]
        assert symbolic == [args[0] is fake] * 2


@pytest.mark.rules("EXP-14")
@pytest.mark.parametrize("joint", [False, True])
def test_simple_export_has_an_input_and_a_gradient_for_each_argument(joint: bool) -> None:
    z = ones(grad=True)
    graphs = [
        aot_export_joint_simple(lambda a, b: (a * b - a,), args, trace_joint=joint)
        for args in ((z, z), (z, ones(grad=True)))
    ]
    assert graphs[0].code == graphs[1].code
    assert len(graphs[0].placeholders) == 2 + joint


# ----------------------------------------------------------------- one tensor in several places
class Product(nn.Module):
    def __init__(self) -> None:
        self.weight = nn.Parameter(al.tensor([2.0, 3.0]))

    def forward(self, a: Any, b: Any, *, more: Any) -> Any:
        return self.weight * a * a * b * more[0], a, more


@pytest.mark.rules("EXP-14", "DUP-1")
@pytest.mark.parametrize("exported", [(0, 1, 2), (0, 0, 0), (0, 1, 1)])
@pytest.mark.parametrize("called", [(0, 1, 2), (0, 0, 0), (0, 1, 0)])
def test_joint_graph_has_an_input_and_a_gradient_for_each_place(
    exported: tuple[int, ...], called: tuple[int, ...]
) -> None:
    """The compile half takes tensors that are one or several, whatever the export's were."""
    tensors = [al.tensor([1.0, k + 2.0], requires_grad=True) for k in range(3)]
    a, b, c = (tensors[k] for k in exported)
    module: Any = Product()
    joint = aot_export_joint_with_descriptors(module, (a, b), {"more": [c]})
    words = ["argument a", "argument b", "argument more[0]"]
    assert [str(each) for each in joint.described.inputs[1:4]] == words
    assert [str(each) for each in joint.described.outputs[2:]] == [
        f"gradient of {x}" for x in words
    ]
    run = aot_compile_joint_with_descriptors(joint, backend="reference")
    a, b, c = (tensors[k] for k in called)
    found = []
    for body in (lambda *args, **how: run(module.weight, *args, **how), module):
        value, first, more = body(a, b, more=[c])
        assert first is a
        assert more[0] is c
        gradients = al.autograd.grad(value.sum(), [module.weight, *{a, b, c}])
        found.append([value.tolist(), *[None if g is None else g.tolist() for g in gradients]])
    assert found[0] == found[1]


@pytest.mark.rules("EXP-14")
def test_tensor_that_is_passed_twice_and_changed_is_refused() -> None:
    weight, z = nn.Parameter(ones()), ones() * 1
    for change in (lambda a: a.add_(1), lambda a: a.unsqueeze_(0), lambda a: a.requires_grad_()):
        body = Body(lambda self, a, b, of=change: (of(a).sum() * self.w, b), w=weight)
        with pytest.raises(al.ExportError, match=r"argument args\[0\] is passed twice and is"):
            aot_export_joint_with_descriptors(body, (z, z))
        joint = aot_export_joint_with_descriptors(body, (ones(), ones()))
        run = aot_compile_joint_with_descriptors(joint, backend="reference")
        with pytest.raises(al.ExportError, match="of the same shapes, .* none twice that is chang"):
            run(weight, z, z)
    joint = aot_export_joint_with_descriptors(
        Body(lambda self, a, b: (self.w * a * b,), w=weight), (ones(grad=True), ones())
    )
    run = aot_compile_joint_with_descriptors(joint, backend="reference")
    with pytest.raises(al.ExportError, match="the arguments are others than those of the exported"):
        run(weight, *[ones(grad=True)] * 2)


@pytest.mark.rules("EXP-10", "EXP-15")
def test_sizes_that_depend_on_values_are_in_the_signature() -> None:
    x, positive = al.tensor([1.0, -1.0, 2.0], requires_grad=True), lambda x: (x[x > 0] * 2,)
    body = Body(lambda self, x: (positive(x)[0].sum(), positive(x)[0].detach()))
    graph, signature = aot_export_module(body, (x,), trace_joint=True, output_loss_index=0)
    assert [str(role) for role in graph.output_roles] == [
        *signature.user_outputs,
        *signature.size_outputs,
        "grad_primals_0",
    ]
    found = run_graph(graph, x.detach().numpy())
    assert [each.tolist() for each in found] == [6, [2, 4], 2, [2, 0, 2]]
    with pytest.raises(al.ExportError, match="sizes depend on values, expected sizes of the arg"):
        aot_export_joint_simple(positive, (x,), trace_joint=True)


# ------------------------------------------------------------------------------------ refusals
@pytest.mark.rules("EXP-15")
def test_effects_of_a_simple_joint_graph_are_refused() -> None:
    def prints(x: Any) -> Any:
        al.effects.print("{}", x)
        return (x * 2,)

    assert len(aot_export_joint_simple(prints, (ones(),), trace_joint=True).placeholders) == 1
    with pytest.raises(al.ExportError, match="the function has effects, expected none in a joint"):
        aot_export_joint_simple(prints, (ones(grad=True),), trace_joint=True)


def writes(self: Any, x: Any, y: Any) -> Any:
    x.add_(1)
    return (x * y,)


@pytest.mark.rules("EXP-5")
def test_written_argument_that_is_there_twice_is_refused() -> None:
    x = ones()
    text = r"argument args\[0\] and argument args\[1\] share the memory f32\[2\], and one of"
    with pytest.raises(al.ExportError, match=text):
        aot_export_module(Body(writes), (x, x))
    module: Any = Body(lambda self, x: (self.b.add_(1) * x,), b=nn.Buffer(ones()))
    with pytest.raises(al.ExportError, match=r"buffer 'b' and argument args\[0\] share the memory"):
        aot_export_module(module, (module.b[:],))


def gets(value: Callable[[Any], Any]) -> Callable[..., Any]:
    def body(self: Any, x: Any) -> Any:
        self.b = value(x)
        return (x * 2,)

    return body


ASSIGNED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "None": (lambda x: None, "assigns None to buffer 'b', expected a Buffer of the dtype and sha"),
    "a number": (lambda x: 3, "assigns 3 to buffer 'b'"),
    "another dtype": (lambda x: nn.Buffer(x.to(al.int64)), r"i64\[2\] to buffer 'b', .* f32\[2\]"),
    "another shape": (lambda x: nn.Buffer(x[None]), r"assigns f32\[1, 2\] to buffer 'b', expected"),
    "another size": (lambda x: nn.Buffer(al.ones(5)), r"assigns f32\[5\] to buffer 'b', expected"),
    "a wrapper": (lambda x: nn.Buffer(TwoTensor(x, x)), "assigns TwoTensor to buffer 'b', expect"),
}


@pytest.mark.rules("EXP-12")
@pytest.mark.parametrize("name", ASSIGNED)
def test_assigned_value_that_is_no_next_input_is_refused(name: str) -> None:
    value, text = ASSIGNED[name]
    with pytest.raises(al.ExportError, match=text):
        aot_export_module(Body(gets(value), b=nn.Buffer(ones())), (ones(),))


@pytest.mark.rules("EXP-12")
def test_assigned_buffer_of_two_names_gets_one_value() -> None:
    def both(self: Any, x: Any) -> Any:
        self.a = self.b = nn.Buffer(self.a + x)
        return (x * 2,)

    tied = nn.Buffer(ones())
    with pytest.raises(al.ExportError, match="under one of its names and not under all of them, a"):
        aot_export_module(Body(gets(nn.Buffer), a=tied, b=tied), (ones(),))
    signature = aot_export_module(Body(both, a=tied, b=tied), (ones(),))[1]
    assert signature.buffers_to_mutate == {"updated_primals_0": "a"}


@pytest.mark.rules("EXP-5", "SUB-22")
def test_results_that_are_wrappers_are_refused() -> None:
    held = nn.Parameter(QuantizedTensor.from_dense(al.ones(2, 3)), requires_grad=False)
    module = unwrap_subclass_parameters(Body(lambda self, x: (x, self.by), by=held))
    with pytest.raises(al.ExportError, match="result 1 is a QuantizedTensor, expected plain ten"):
        aot_export_module(module, (ones(),))
    two: Any = TwoTensor(ones(), ones())
    with pytest.raises(al.ExportError, match="result 0 is a wrapper, expected plain tensors"):
        aot_export_joint_simple(lambda x: (TwoTensor(x, x) * 2,), (ones(),), trace_joint=False)
    with pytest.raises(al.ExportError, match="an argument is a TwoTensor, expected plain tensors"):
        aot_export_joint_simple(lambda x: (x * 2,), (two,), trace_joint=False)


def sets_grad(x: Any) -> Any:
    x.grad = x * 2
    return (x * 2,)


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "requires grad": (
        lambda x: (x.requires_grad_() * 2,),
        r"metadata of {}, f32\[2\]: its autograd state, by .requires_grad_\(\), expected no change",
    ),
    "memory": (
        lambda x: (x.set_(x * 2) + 1,),
        r"metadata of {}, f32\[2\]: its memory, by set_",
    ),
    "size": (lambda x: (x.resize_(4) + 1,), r"metadata of {} from f32\[2\] to f32\[4\], expected"),
    "a view": (
        lambda x: (x.unsqueeze_(0) + 1,),
        r"metadata of {} from f32\[2\] to f32\[1, 2\]",
    ),
    "a gradient": (sets_grad, r"sets the .grad of {}, expected gradients that are results"),
}


@pytest.mark.rules("EXP-5", "EXP-15")
@pytest.mark.parametrize("name", CHANGES)
def test_changes_besides_writes_are_refused_with_their_names(name: str) -> None:
    body, text = CHANGES[name]
    with pytest.raises(al.ExportError, match="forward .*" + text.format(r"argument args\[0\]")):
        aot_export_module(Body(lambda self, x: body(x)), (ones(),))
    with pytest.raises(al.ExportError, match="the function .*" + text.format("argument x")):
        aot_export_joint_simple(body, (ones(),), trace_joint=False)


@pytest.mark.rules("EXP-5", "EXP-15", "HOOK-1")
def test_hooks_are_in_the_gradients_of_an_export_or_refused() -> None:
    def doubles(x: Any) -> Any:
        x.register_hook(lambda gradient: gradient * 2)
        return ((x * 3).sum(),)

    def adds(self: Any, x: Any) -> Any:
        self.w.register_post_accumulate_grad_hook(lambda w: None)
        return ((x * self.w).sum(),)

    x, how = ones(grad=True), {"trace_joint": True, "output_loss_index": 0}
    graph, _ = aot_export_module(Body(lambda self, x: doubles(x)), (x,), **how)  # type: ignore[arg-type]
    assert [n.args[1] for n in graph.calls if n.target.name == "mul"] == [3, 3, 2]
    with pytest.raises(al.ExportError, match="registers hook .* on parameter 'w', expected none"):
        aot_export_module(Body(adds, w=nn.Parameter(ones())), (x,), **how)  # type: ignore[arg-type]
    with pytest.raises(al.ExportError, match="the function registers hook .* on argument x, expe"):
        aot_export_joint_simple(doubles, (x,), trace_joint=True)


@pytest.mark.rules("EXP-15")
@pytest.mark.parametrize("joint", [False, True])
def test_tensor_from_outside_of_a_simple_export_is_refused(joint: bool) -> None:
    outside = ones(grad=True)
    with pytest.raises(al.ExportError, match="reads closure of .*, cell 0, a tensor that is no ar"):
        aot_export_joint_simple(lambda x: (x * outside,), (ones(grad=True),), trace_joint=joint)


@pytest.mark.rules("EXP-4", "EXP-1")
def test_arguments_of_other_types_are_refused() -> None:
    module, x = Body(lambda self, x: (x.sum(),)), ones(grad=True)
    for index in ("0", True, 1.0):
        with pytest.raises(al.ArgumentError, match="output_loss_index is .*, expected the index o"):
            aot_export_module(module, (x,), trace_joint=True, output_loss_index=index)  # type: ignore[arg-type]
    aot_export_module(module, (x,), trace_joint=True, output_loss_index=np.int64(0))  # type: ignore[arg-type]
    calls: list[Callable[[], object]] = [
        lambda: aot_export_module(module, x),
        lambda: aot_export_joint_simple(lambda x: (x * 2,), x, trace_joint=False),
        lambda: aot_export_joint_with_descriptors(module, x),
    ]
    for call in calls:
        with pytest.raises(al.ArgumentError, match="args is a Tensor, expected a tuple or list"):
            call()


def test_programs_that_leave_name_what_they_take(tmp_path: Any) -> None:
    """Words of the library for a function that is not compiled, a path, and unknown options."""
    pytest.importorskip("onnxruntime")
    double: Any = al.compile(lambda x: x * 2, backend="reference")
    double(ones())
    printers: list[Callable[..., object]] = [to_onnx, to_stablehlo]
    for to in printers:
        with pytest.raises(al.ArgumentError, match="the program is <function .*, expected the gra"):
            to(lambda x: x * 2)
    path = tmp_path / "double.onnx"
    to_onnx(double, path)
    found = OnnxProgram(path)({"primals_0": np.ones(2, np.float32)})
    assert found["output_0"].tolist() == [2, 2]
    with pytest.raises(
        al.ArgumentError, match="the model is 3, expected a model that to_onnx made"
    ):
        OnnxProgram(3)
    calls: list[Callable[..., object]] = [double.to_python, program(double, ones()).to_python]
    for call in calls:
        with pytest.raises(al.ArgumentError, match="to_python: 'foo' is no option, expected backw"):
            call(foo=1)
    with pytest.raises(al.ArgumentError, match="to_python: args is a Tensor, expected a tuple or"):
        double.to_python(args=ones())
