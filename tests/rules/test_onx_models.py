"""ONX-1 to ONX-7: opsets, dtypes without kernels, the convention, the sign of zero."""

import json

import numpy as np
import pytest

import aotlite as al
from aotlite.interchange import OnnxProgram, onnxruntime_backend, to_onnx
from aotlite.interchange.onnx import kernels

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def graph_of(function, *args):
    compiled = al.compile(function, backend="reference")
    compiled(*args)
    return compiled.forward_graph


def both(function, *args):
    """The result in eager and in onnxruntime."""
    expected = function(*args)
    return expected, al.compile(function, backend=onnxruntime_backend)(*args)


@pytest.mark.rules("ONX-1")
def test_an_operator_of_a_later_opset_is_refused():
    graph = graph_of(lambda x: x.sort()[0], al.ones(3))
    assert to_onnx(graph, opset=26).opset_import[0].version == 26
    with pytest.raises(al.UnsupportedError) as caught:
        to_onnx(graph, opset=21)
    assert "sort of f32[3] needs BitCast, which opset 26 has (opset=21)" in str(caught.value)
    with pytest.raises(al.ArgumentError) as caught:
        to_onnx(graph, opset=12)
    assert str(caught.value) == "to_onnx: opset is 12, expected 21 to 26"


@pytest.mark.rules("ONX-1")
def test_an_older_opset_runs():
    graph = graph_of(lambda x: (x * 2.0).sum(0), al.ones(3, 2))
    model = to_onnx(graph, opset=21)
    assert model.opset_import[0].version == 21
    found = OnnxProgram(model)({"primals_0": np.ones((3, 2), "f4")})
    assert [6.0, 6.0] == found["output_0"].tolist()


@pytest.mark.rules("ONX-2", "ONX-6")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_keep_every_bit(dtype):
    """The ends of each dtype: sums, products and shifts wrap as in eager, orders are exact."""
    limits = np.iinfo(dtype)
    ends = [limits.min, limits.max, limits.max - 1, 3, 0, limits.max // 2 + 1]
    x = al.from_numpy(np.array(ends, dtype))
    y = al.from_numpy(np.array([limits.max, 7, 3, 5, 1, limits.max], dtype))
    wide = dtype in ("uint16", "uint32", "uint64")  # arithmetic that eager has for all of them
    function = (lambda x, y: (x.clone(), al.cat([x, y]).flip(0), x[1:])) if wide else arithmetic
    expected, found = both(function, x, y)
    for wanted, got in zip(expected, found, strict=True):
        assert wanted.dtype is got.dtype
        assert wanted.numpy().tobytes() == got.numpy().tobytes()


@pytest.mark.rules("ONX-7")
def test_one_element_repeated_to_none_is_none():
    """Found by a drawn program: the gradient of the sum of no elements."""
    expected, found = both(lambda x: -x.reshape(1).expand(0), al.ones(()))
    assert expected.shape == found.shape == (0,)


def arithmetic(x, y):
    return (
        x + y,
        x * y - x,
        x // y,
        x % y,
        (x < y).where(x, y),
        x & y,
        x << 1,
        x >> 1,
        x.sum(),
        x.prod(),
        x.amax(0),
        x.sort()[0],
        x.float(),
    )


@pytest.mark.rules("ONX-2")
@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16])
def test_16_bit_floats_round_once(dtype):
    x = al.linspace(-3.0, 3.0, 13).to(dtype)
    expected, found = both(lambda x: (x * 1.1 + x, (x > 0).where(x, 0.5), x.expand(2, 13)), x)
    for wanted, got in zip(expected, found, strict=True):
        assert wanted.dtype is got.dtype
        assert wanted.numpy().tobytes() == got.numpy().tobytes()


@pytest.mark.rules("ONX-2")
def test_a_carrier_holds_every_value():
    """Of each operator and dtype: the carrier has a kernel, and casting there and back is exact."""
    for kind, known in kernels.KERNELS.items():
        for dtype in al.int8, al.uint16, al.uint32, al.float16, al.bfloat16, al.bool_:
            try:
                carrier = kernels.carrier(kind, dtype)
            except kernels.NotPrinted:
                continue
            assert carrier in known
            bits = np.arange(1 << 8 * min(dtype.itemsize, 2), dtype=f"u{min(dtype.itemsize, 2)}")
            values = bits.astype(dtype.numpy) if dtype.itemsize == 4 else bits.view(dtype.numpy)
            if dtype is al.bool_:
                values = np.array([False, True])
            with np.errstate(invalid="ignore"):
                back = values.astype(carrier.numpy).astype(dtype.numpy)
                np.testing.assert_array_equal(back.astype("f8"), values.astype("f8"))


@pytest.mark.rules("ONX-3")
def test_the_metadata_say_what_each_output_is():
    def f(x, y):
        x.mul_(2.0)
        return y.sum(), None, 3

    model = to_onnx(graph_of(f, al.ones(2), al.ones(2)))
    (entry,) = [each for each in model.metadata_props if each.key == "aotlite"]
    convention = json.loads(entry.value)
    assert ["primals_0", "primals_1"] == convention["inputs"]
    assert {"updated_primals_0": "primals_0"} == convention["updates"]
    names = [each.name for each in model.graph.output]
    assert set(names) == {"updated_primals_0", "output_0"}
    assert "test_onx_models.py" in model.graph.node[0].doc_string


@pytest.mark.rules("ONX-4")
def test_wrong_inputs_and_models_are_refused():
    import onnx

    program = OnnxProgram(to_onnx(graph_of(lambda x: x * 2.0, al.ones(2))))
    with pytest.raises(al.ArgumentError) as caught:
        program({"x": np.ones(2, "f4")})
    assert str(caught.value) == "onnx: the inputs are x, expected ['primals_0']"
    empty = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    with pytest.raises(al.ArgumentError, match="a model that to_onnx made"):
        OnnxProgram(empty)


@pytest.mark.rules("ONX-4")
def test_a_model_is_written_to_a_file(tmp_path):
    import onnx

    path = tmp_path / "model.onnx"
    made = to_onnx(graph_of(lambda x: x * 2.0, al.ones(2)), path)
    assert onnx.load(path) == made


@pytest.mark.rules("ONX-5")
def test_moved_elements_keep_the_sign_of_zero():
    def f(x, index):
        x[0] = -0.0
        x.as_strided((2,), (2,)).neg_()
        x[index] = -0.0
        return al.stack([x, x.roll(1)], 1)

    given = al.zeros(4, dtype=al.float64), al.tensor([1, 1])
    expected = f(given[0].clone(), given[1])
    found = al.compile(f, backend=onnxruntime_backend)(*given)
    assert np.signbit(expected.numpy()).any()
    assert expected.numpy().tobytes() == found.numpy().tobytes()
