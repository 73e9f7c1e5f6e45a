"""ICH-1, ICH-2, ICH-6, ICH-9: what is refused, by op, operands and line; what is not checked."""

import numpy as np
import pytest

import aotlite as al
from aotlite.interchange import OnnxProgram, to_onnx, to_stablehlo
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta

PRINTERS = {"ONNX": (to_onnx, "onnx"), "StableHLO": (to_stablehlo, "jaxlib")}


def graph_of(function, *args, **options):
    compiled = al.compile(function, backend="reference", **options)
    compiled(*args)
    return compiled.forward_graph


@pytest.fixture(params=PRINTERS)
def printer(request):
    print_graph, package = PRINTERS[request.param]
    pytest.importorskip(package)
    return request.param, print_graph


@pytest.mark.rules("ICH-1")
def test_an_op_without_a_form_is_named_with_its_line(printer):
    name, print_graph = printer
    graph = graph_of(lambda x: al.linalg.inv(x) + 1.0, al.eye(2))
    with pytest.raises(al.UnsupportedError) as caught:
        print_graph(graph)
    expected = f"an op that {name} expresses"
    text = f"{name}: linalg_inv of f32[2, 2] has no form in array operations, expected {expected}"
    assert text == str(caught.value)
    place, instead = caught.value.__notes__
    assert "al.linalg.inv(x) + 1.0" in place and __file__ in place
    assert instead.startswith("Instead: keep this op out of what is exported")


@pytest.mark.rules("ICH-1")
@pytest.mark.parametrize(
    ("function", "args", "words"),
    [
        (lambda x: x * x, (al.ones(2, dtype=al.complex64),), "mul of c64[2], c64[2] computes with"),
        (lambda x: x.gcd(x), (al.ones(2, dtype=al.int64),), "computes gcd of int64, which"),
    ],
)
def test_what_the_target_lacks_is_refused(printer, function, args, words):
    with pytest.raises(al.UnsupportedError) as caught:
        printer[1](graph_of(function, *args))
    assert words in str(caught.value)


@pytest.mark.rules("ICH-2")
def test_a_view_of_memory_between_elements_is_refused(printer):
    build = Builder("between")
    x = build.placeholder(tensor_meta((3, 3), (6, 2)))
    graph = build.finish([x.as_strided((3,), (1,))])
    with pytest.raises(al.UnsupportedError) as caught:
        printer[1](graph)
    assert "shows memory between the elements of f32[3, 3][6, 2]" in str(caught.value)


@pytest.mark.rules("ICH-6")
def test_a_division_by_0_does_not_end_the_process():
    """The processor traps: onnxruntime divides without a look at the divisor."""
    pytest.importorskip("onnxruntime")
    graph = graph_of(lambda x, y: x // y, *[al.ones(3, dtype=al.int64) for _ in range(2)])
    program = OnnxProgram(to_onnx(graph))
    found = program({"primals_0": np.array([7, -7, 7]), "primals_1": np.array([0, 2, -2])})
    assert [-4, -4] == found["output_0"].tolist()[1:]
