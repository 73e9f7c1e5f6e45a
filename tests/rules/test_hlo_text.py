"""HLO-1 to HLO-4: the text, its first line, its locations, and XLA's numbers."""

import json

import numpy as np
import pytest

import aotlite as al
from aotlite.interchange import StableHloProgram, to_stablehlo, xla_backend

pytest.importorskip("jax")


def graph_of(function, *args, **options):
    compiled = al.compile(function, backend="reference", **options)
    compiled(*args)
    return compiled.forward_graph


def added(x, y):
    x.add_(y)
    return x.sum(), None


@pytest.mark.rules("HLO-1", "HLO-2")
@pytest.mark.parametrize("keep", [True, False])
def test_written_inputs_are_outputs(keep):
    """Whether the graph returns the new value, or writes it by a closing copy."""
    text = to_stablehlo(
        graph_of(added, al.ones(2), al.ones(2), keep_inference_input_mutations=keep)
    )
    first, rest = text.split("\n", 1)
    convention = json.loads(first.removeprefix("// aotlite: "))
    assert ["primals_0", "primals_1"] == convention["inputs"]
    assert {"updated_primals_0": "primals_0"} == convention["updates"]
    assert ["updated_primals_0"] * keep == convention["copies"]
    assert rest.startswith("module @added")
    found = StableHloProgram(text)({"primals_0": np.ones(2, "f4"), "primals_1": np.ones(2, "f4")})
    assert [2.0, 2.0] == found["updated_primals_0"].tolist()
    assert 4.0 == found["output_0"].item()


@pytest.mark.rules("HLO-2")
def test_operations_have_the_users_lines():
    graph = graph_of(lambda x: x * 2.0, al.ones(2))
    assert "test_hlo_text.py" not in to_stablehlo(graph)
    assert "test_hlo_text.py" in to_stablehlo(graph, locations=True)


@pytest.mark.rules("HLO-3")
def test_a_text_of_another_origin_is_refused():
    with pytest.raises(al.ArgumentError, match="a text that to_stablehlo made"):
        StableHloProgram("module {}")


@pytest.mark.rules("HLO-3")
def test_what_is_no_text_is_refused():
    with pytest.raises(al.ArgumentError, match="the text is a NoneType, expected a str that to_st"):
        StableHloProgram(None)


@pytest.mark.rules("HLO-4")
def test_denormal_floats_are_0_in_xla():
    program = StableHloProgram(to_stablehlo(graph_of(lambda x: x * 0.5, al.ones(1))))
    tiny = np.array([1e-40], "f4")
    assert 0.0 == program({"primals_0": tiny})["output_0"].item() != (tiny * 0.5).item()


@pytest.mark.rules("HLO-4")
def test_casts_to_narrow_integers_wrap_as_in_eager():
    x = al.tensor([-1.0, 300.0, -129.0, 70000.0, 3.9])
    for dtype in (al.uint8, al.int8, al.int16, al.uint16, al.uint32, al.int32):
        found = al.compile(lambda x, d=dtype: x.to(d), backend=xla_backend)(x)
        assert found.tolist() == x.to(dtype).tolist()


@pytest.mark.rules("ICH-8", "HLO-3")
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ones((2, 3), "i4"), r"input primals_0 is int32\[2, 3\], expected float32\[2, 3\]"),
        (np.ones((3, 2), "f4"), r"input primals_0 is float32\[3, 2\], expected float32\[2, 3\]"),
        (np.ones(12, "f2"), r"input primals_0 is float16\[12\], expected float32\[2, 3\]"),
        ([1.0], r"input primals_0 is list\[1\], expected float32\[2, 3\]"),
    ],
)
def test_an_input_of_another_type_is_refused(array, words):
    program = StableHloProgram(to_stablehlo(graph_of(lambda x: x * 2, al.ones(2, 3))))
    with pytest.raises(al.ArgumentError, match=words):
        program({"primals_0": array})
