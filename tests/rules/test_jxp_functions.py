"""JXP-1 to JXP-6: functions of JAX as graphs, their gradients, and what is refused.

`python -m tests.interchange.jax_functions` runs all of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from aotlite.interchange import from_jaxpr
from aotlite.ir.errors import ArgumentError, UnsupportedError
from aotlite.ir.run.interpreter import run_graph
from tests.interchange import jax_functions

NAMES = """trigonometry powers activations chosen signs integers dtypes selected reshaped
padded_between sliced split sums places softmax scans sorted taken taken_pairs taken_outside window
window_put put added raised matmul einsum loss convolution convolution_last dilated pooled jitted
checkpointed mapped constant""".split()


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.mark.thinned(6)
@pytest.mark.rules("JXP-1", "JXP-3", "JXP-4", "JXP-5")
@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_jax_is_a_graph_that_gives_the_same(jax, name):
    function, args = jax_functions.functions(jax)[name]
    assert "" == jax_functions.difference(jax, function, args)
    if name in ("loss", "taken", "convolution", "chosen"):
        gradient = jax_functions.gradient_of(jax, function)
        assert "" == jax_functions.difference(jax, gradient, args)


@pytest.mark.rules("JXP-1")
def test_a_jaxpr_is_a_graph_of_its_inputs_and_constants(jax):
    weight = jax.numpy.arange(3.0)
    closed = jax.make_jaxpr(lambda x: (x * weight, x.sum()))(np.ones((2, 3), np.float32))
    graph = from_jaxpr(closed)
    assert [3] == [array.size for array in graph.constants.values()]
    first, second = run_graph(graph, np.full((2, 3), 2, np.float32))
    assert ([[0.0, 2.0, 4.0]] * 2, 12.0) == (first.tolist(), second.item())


@pytest.mark.rules("JXP-3")
def test_a_wrong_number_is_found(jax, monkeypatch):
    """The comparison that the other tests rest on."""
    right = jax_functions.from_jaxpr
    monkeypatch.setattr(jax_functions, "from_jaxpr", lambda f, *a: right(lambda x: f(x) + 1, *a))
    x = jax_functions.numbers(2)
    assert "expected" in jax_functions.difference(jax, lambda x: x * 2, (x,))


@pytest.mark.rules("JXP-2")
def test_all_primitives_without_a_form_are_named_at_once(jax):
    def looped(x):
        key = jax.random.key(0)
        x = jax.lax.fori_loop(0, 3, lambda _, y: y * 2, x) + jax.random.uniform(key, x.shape)
        return jax.lax.cond(x.sum() > 0, lambda y: y, lambda y: -y, x)

    with pytest.raises(UnsupportedError, match="looped has primitives without a form") as raised:
        from_jaxpr(looped, np.ones(2, np.float32))
    assert "cond, " in str(raised.value) and "scan" in str(raised.value)
    assert "random_bits" in str(raised.value)
    assert any("unroll a loop" in note for note in raised.value.__notes__)


@pytest.mark.rules("JXP-2")
def test_parameters_without_a_form_are_named(jax):
    def grouped(x, k):
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", batch_group_count=2)

    images = np.ones((2, 1, 3, 3), np.float32), np.ones((2, 1, 2, 2), np.float32)
    with pytest.raises(UnsupportedError, match="conv_general_dilated with .*batch_group_count=2"):
        from_jaxpr(grouped, *images)


@pytest.mark.rules("JXP-1")
def test_what_is_no_function_is_refused(jax):
    with pytest.raises(ArgumentError, match="the source is a int, expected a ClosedJaxpr"):
        from_jaxpr(3)


@pytest.mark.rules("JXP-4")
def test_a_result_of_another_shape_is_an_error_with_the_equation(jax, monkeypatch):
    from aotlite.interchange.jaxpr import reader

    monkeypatch.setitem(reader.FORMS, "sin", lambda params, x: x.sum())
    with pytest.raises(
        ArgumentError, match=r"sin gives f32\[2\] in JAX, expected f32\[\]"
    ) as raised:
        from_jaxpr(jax.numpy.sin, np.ones(2, np.float32))
    assert any("while reading: " in note for note in raised.value.__notes__)


@pytest.mark.rules("JXP-6")
def test_places_out_of_range_are_filled_dropped_or_moved(jax):
    x, places = np.arange(3, dtype=np.float32), np.array([-9, 1, 7], np.int32)
    filled = from_jaxpr(lambda x, i: jax.numpy.take(x, i, mode="fill"), x, places)
    moved = from_jaxpr(lambda x, i: jax.numpy.take(x, i, mode="clip"), x, places)
    dropped = from_jaxpr(lambda x, i: x.at[i].add(10.0, mode="drop"), x, places)
    nan = float("nan")
    np.testing.assert_equal([nan, 1.0, nan], run_graph(filled, x, places)[0].tolist())
    assert [0.0, 1.0, 2.0] == run_graph(moved, x, places)[0].tolist()
    assert [0.0, 11.0, 2.0] == run_graph(dropped, x, places)[0].tolist()
