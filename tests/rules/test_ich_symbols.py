"""ICH-9, ONX-8: models of ONNX whose sizes are symbols, run at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.export import aot_export_module, load, program
from aotlite.interchange import OnnxProgram, to_onnx, to_stablehlo
from aotlite.interchange.onnx.printer import OnnxPrinter
from aotlite.interchange.sizes.program_sizes import value_of
from aotlite.ir import dtypes
from aotlite.ir.run.interpreter import run_graph

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

F: Any = al.nn.functional
WEIGHT = al.tensor(np.random.default_rng(1).normal(size=(4, 3)), dtype=al.float32)
SIZES = (6, 9, 3)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype("f4")


def halved(x: al.Tensor) -> al.Tensor:
    return x.reshape(x.shape[0] // 2, -1) * 2 if x.shape[0] % 2 == 0 else x * 3


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: (x + 1) * x.exp() + x.clamp(max=x.shape[0]),
    "sums": lambda x: (x.sum(0), x.mean(), x.var(0), x.amax(0), (x > 0).any(0), (x > 0).sum()),
    "softmax": lambda x: (x.softmax(0), x.logsumexp(0), F.layer_norm(x, (4,))),
    "products": lambda x: (x @ WEIGHT, x.t() @ x, x.reshape(-1, 2, 2) @ x.reshape(-1, 2, 2)),
    "views": lambda x: (x[1:] * 1, x[:-1] * 1, x[::2] * 1, x[-1] * 1, x.reshape(-1) * 1, x.t() * 1),
    "joined": lambda x: (al.cat([x, x[1:]], 0), al.stack([x, x], 1), F.pad(x, (1, 0, 1, 2))),
    "repeated": lambda x: (x[:, None].expand(-1, 5, -1) * 1, x.repeat(2, 1), x[:, :1] * x[:, 0]),
    "orders": lambda x: (x.sort(0)[0], x.topk(2, 0)[0], x.argmax(0), x.max(1)[1], x.flip(0)),
    "running": lambda x: (x.cumsum(0), al.arange(x.shape[0]) * 2, al.zeros(x.shape[0], 3)),
    "indices": lambda x: (
        x[al.tensor([0, 2])],
        F.embedding(x.argmax(1), x),
        x.gather(1, x.argmax(1, keepdim=True)),
    ),
    "written": lambda x: x.index_add(0, al.tensor([0]), x[:1]),
    "losses": lambda x: F.cross_entropy(x, x.argmax(1)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "convolution": lambda x: F.conv2d(x.reshape(-1, 1, 2, 2), al.ones(3, 1, 2, 2)),
    "integers": lambda x: (x * 4).to(al.int64).sum(0),
}


def model_of(function: Callable[..., Any], *args: al.Tensor) -> Any:
    """A compiled function whose first sizes are symbols, and its model."""
    names = {"x": {0: al.Dim("batch")}}
    compiled: Any = al.compile(function, backend="reference", dynamic_shapes=names)
    compiled(*args)
    return compiled, to_onnx(compiled)


def graph_at(function: Callable[..., Any], array: np.ndarray) -> Any:
    compiled: Any = al.compile(function, backend="reference", dynamic=False)
    compiled(al.from_numpy(array))
    return compiled.forward_graph


def check(mine: Any, its: Any) -> None:
    its = [each for each in (its if isinstance(its, tuple) else (its,)) if each is not None]
    assert [(x.shape, x.dtype) for x in mine] == [(y.shape, y.dtype) for y in its]
    assert len(mine)
    for x, y in zip(mine, its, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.rules("ICH-9", "ONX-8")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_model_with_symbols_computes_at_all_sizes(name: str) -> None:
    def body(x: al.Tensor) -> Any:
        return FUNCTIONS[name](x)

    compiled, model = model_of(body, al.from_numpy(numbers(SIZES[0], 4)))
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert [shape[0].dim_param, shape[1].dim_value] == ["s0", 4]
    onnx = OnnxProgram(model)
    places = compiled.entries[-1].hidden
    for size in SIZES:
        x = numbers(size, 4)
        graph = graph_at(body, x)
        roles = [node.role for node in compiled.forward_graph.placeholders]
        assert roles == [node.role for node in graph.placeholders]
        hidden = [np.asarray(places[role.index].resolve([])._data) for role in roles[1:]]
        found = onnx(dict(zip(onnx.convention["inputs"], [x, *hidden], strict=True)))
        check(list(found.values()), run_graph(graph, x, *hidden))


class Step(al.nn.Module):
    def __init__(self) -> None:
        self.inner = al.nn.Linear(4, 3)
        self.calls = al.nn.Buffer(al.zeros(()))

    def forward(self, x: Any, y: Any) -> Any:
        self.calls.add_(1)
        return F.cross_entropy(self.inner(x).tanh(), y), x[1:].detach()


@pytest.mark.rules("ICH-9", "ICH-8", "ONX-8")
def test_gradients_of_an_exported_step_are_for_all_sizes() -> None:
    def exported(size: int, **options: Any) -> Any:
        x, y = al.from_numpy(numbers(size, 4)), al.arange(size) % 3
        how: Any = {"trace_joint": True, "output_loss_index": 0, **options}
        return aot_export_module(module, (x, y), **how)

    module = Step()
    batch = al.Dim("batch", min=3, max=40)
    graph, signature = exported(5, dynamic_shapes=({0: batch}, {0: batch}))
    onnx = OnnxProgram(to_onnx(graph, signature=signature))
    state = [each.detach().numpy() for each in (*module.parameters(), *module.buffers())]
    for size in (5, 3, 17):
        arrays = [*state, numbers(size, 4), np.arange(size) % 3]
        found = onnx(dict(zip(onnx.convention["inputs"], arrays, strict=True)))
        check(list(found.values()), run_graph(exported(size)[0], *arrays))
    for size in (2, 41):
        arrays = [*state, numbers(size, 4), np.arange(size) % 3]
        with pytest.raises(al.ArgumentError, match=f"the sizes are s0 = {size}, expected s0 "):
            onnx(dict(zip(onnx.convention["inputs"], arrays, strict=True)))
    arrays = [*state, numbers(6, 4), np.arange(5) % 3]
    with pytest.raises(al.ArgumentError, match=r"is int64\[5\], expected int64\[6\]"):
        onnx(dict(zip(onnx.convention["inputs"], arrays, strict=True)))


@pytest.mark.rules("ICH-9", "ONX-8")
def test_a_loaded_program_leaves_with_its_symbols_and_conditions(tmp_path: Path) -> None:
    x = al.from_numpy(numbers(6, 4))
    made = program(halved, x, dynamic_shapes={"x": {0: al.Dim("batch")}})
    made.save(tmp_path / "halved.aotlite")
    onnx = OnnxProgram(to_onnx(load(tmp_path / "halved.aotlite"), tmp_path / "halved.onnx"))
    assert ["s0 % 2", "==", "0"] in onnx.convention["sizes"]["conditions"]
    for size in (6, 2, 10):
        array = numbers(size, 4)
        check(list(onnx({"primals_0": array}).values()), array.reshape(size // 2, 8) * 2)
    with pytest.raises(al.ArgumentError, match="the sizes are s0 = 7, expected s0 % 2 == 0"):
        onnx({"primals_0": numbers(7, 4)})


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: (x @ x.t()).tril(), r"ONNX: tril of f32\[s0, s0\] has an operand"),
        (lambda x: x.cumprod(0), "ONNX: cumprod of .* has another form where not s0 <= 8"),
        (lambda x: x.nonzero(), "has the size u0, which no input's size gives, expected sizes of"),
    ],
)
def test_what_needs_a_number_for_a_size_is_refused(function: Any, text: str) -> None:
    names = {"x": {0: al.Dim("batch")}}
    compiled: Any = al.compile(function, backend="reference", dynamic_shapes=names)
    compiled(al.from_numpy(numbers(6, 4)))
    with pytest.raises(al.UnsupportedError, match=text):
        to_onnx(compiled)


RANGES = (("softmax", 2), ("softmax", 3), ("pointwise", 1), ("sums", 1), ("sums", 2), ("views", 2))
EVERY: dict[str, Callable[[Any], Any]] = {name: FUNCTIONS[name] for name, _ in RANGES}
EVERY["every second"] = lambda x: x[::2].softmax(0)


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize(
    ("name", "least"), [*RANGES, ("every second", 2), ("every second", 3), ("every second", None)]
)
def test_a_model_has_the_range_of_its_dim_or_is_refused(name: str, least: int | None) -> None:
    """`x[::2]` of two rows has one, and another model: that of `Dim(min=2)` refused two rows."""
    x = al.from_numpy(numbers(6, 4))
    made = program(EVERY[name], x, dynamic_shapes={"x": {0: al.Dim("batch", min=least)}})
    try:
        onnx = OnnxProgram(to_onnx(made))
    except al.UnsupportedError as error:
        assert (name, least) in {("every second", 2), ("sums", 1)}
        text = f"which is false for s0 = {least}, expected a model for all sizes of the declared"
        assert text in str(error)
        assert "give the Dim a min or max that leaves this size out" in error.__notes__[0]
        return
    for size in (least, 5, 8) if least else (3, 8):
        found = onnx({"primals_0": numbers(size, 4)}).values()
        its = EVERY[name](al.from_numpy(numbers(size, 4)))
        check(list(found), tuple(np.asarray(y) for y in (its if type(its) is tuple else (its,))))


NARROWER: dict[str, Callable[[Any], Any]] = {
    "s0 < 8": lambda x: x * 2 if x.shape[0] < 8 else x,
    "s0 > 3": lambda x: x * 2 if x.shape[0] > 3 else x,
    "s0 != 6": lambda x: x if x.shape[0] == 6 else x * 2,
    "s0 % 2 == 0": lambda x: x * 2 if x.shape[0] % 2 == 0 else x,
    "s0 ** 2 < 64": lambda x: x * 2 if x.shape[0] ** 2 < 64 else x,
    "s0 <= 7": lambda x: x * min(x.shape[0], 7),
    "(s0 + 400) % 700 != 699": lambda x: x if (x.shape[0] + 400) % 700 == 699 else x * 2,
}


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize("condition", NARROWER)
def test_conditions_of_the_users_code_do_not_narrow_a_declared_range(condition: str) -> None:
    """Another runtime checks no condition: it computed the other branch's values for these."""
    most = 8 if "700" not in condition else 2000
    names = {"x": {0: al.Dim("n", min=3, max=most)}}
    made = program(NARROWER[condition], al.ones(4, 3), dynamic_shapes=names)
    with pytest.raises(al.UnsupportedError, match=r"needs .*s0.*, which is false for s0 = \d+, "):
        to_onnx(made)
    free = program(NARROWER[condition], al.ones(4, 3), dynamic_shapes={"x": {0: al.Dim("n")}})
    assert to_onnx(free).graph.node


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "an even number": lambda x: x * 2 if x.shape[0] * (x.shape[0] + 1) % 2 == 0 else x,
    "false in the middle": lambda x: x if (x.shape[0] + 400) % 7000 == 6999 else x * 2,
}


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_condition_that_is_neither_proved_nor_tried_is_refused(name: str) -> None:
    """`(s0 + 400) % 7000 != 6999` is false for 6599, which no end of the range shows."""
    for most, text in ((None, "not known whether that holds for all sizes s0"), (2000, "")):
        dims = {"x": {0: al.Dim("n", min=3, max=most)}}
        made = program(UNKNOWN[name], al.ones(4, 3), dynamic_shapes=dims)
        if not text:
            assert to_onnx(made).graph.node
            continue
        with pytest.raises(al.UnsupportedError, match=text) as caught:
            to_onnx(made)
        assert "give the Dims a max, with at most 2,048" in caught.value.__notes__[0]


PROVED: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x * 2 if 3 * x.shape[0] > 8 else x,
    "quotient": lambda x: x * 2 if x.shape[0] // 3 * 3 <= x.shape[0] else x,
    "remainder": lambda x: x * 2 if x.shape[0] % 7 < 7 else x,
    "square": lambda x: x * 2 if x.shape[0] ** 2 > 8 else x,
}


@pytest.mark.rules("ICH-9")
@pytest.mark.parametrize("name", PROVED)
def test_a_condition_that_is_proved_holds_for_a_range_without_end(name: str) -> None:
    names = {"x": {0: al.Dim("n", min=3)}}
    assert to_onnx(program(PROVED[name], al.ones(4, 3), dynamic_shapes=names)).graph.node


@pytest.mark.rules("ICH-9")
def test_conditions_on_two_declared_ranges_are_proved_or_tried_or_refused() -> None:
    def asks(x: Any, y: Any) -> Any:
        return x.sum() if (x.shape[0] * y.shape[0]) % 1000 != 899 else y.sum()

    for most, words in ((40, ""), (None, "not known whether .* all sizes s0 and s1")):
        dims = [{0: al.Dim(name, min=2, max=most)} for name in "ab"]
        made = program(asks, al.ones(4), al.ones(5), dynamic_shapes={"x": dims[0], "y": dims[1]})
        if words:
            with pytest.raises(al.UnsupportedError, match=words):
                to_onnx(made)
        else:  # 29 * 31 = 899
            with pytest.raises(al.UnsupportedError, match="which is false for s0 = 29, s1 = 31, e"):
                to_onnx(made)


@pytest.mark.rules("ICH-9")
def test_two_declared_ranges_are_not_narrowed_to_equal_sizes() -> None:
    def compared(x: Any, y: Any) -> Any:
        return x.sum() if x.shape[0] <= y.shape[0] else y.sum()

    dims = [al.Dim(name, min=2, max=9) for name in "ab"]
    for other in dims[0], al.Dim("c"), dims[1]:
        names = {"x": {0: dims[0]}, "y": {0: other}}
        made = program(compared, al.ones(4), al.ones(5 - (other is dims[0])), dynamic_shapes=names)
        if other is dims[1]:
            with pytest.raises(al.UnsupportedError, match="needs s0 <= s1, which is false for s0"):
                to_onnx(made)
        else:
            assert to_onnx(made).graph.node


@pytest.mark.rules("ICH-9")
def test_stablehlo_has_numbers_for_sizes() -> None:
    compiled, _ = model_of(lambda x: x * 2, al.ones(6, 4))
    with pytest.raises(al.UnsupportedError, match="whose sizes are symbols, expected numbers"):
        to_stablehlo(compiled)


# -------------------------------------------------------------------------- sizes as nodes
LEAVES = st.sampled_from(["s0", "s1", "1", "2", "7"])


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(parts, st.sampled_from(["+", "-", "*"]), parts)
    divided = st.tuples(parts, st.sampled_from(["//", "%"]), st.sampled_from(["2", "3", "s1"]))
    both = st.one_of(pairs, divided).map(lambda each: f"({each[0]}) {each[1]} ({each[2]})")
    met = st.tuples(st.sampled_from(["max", "min"]), parts, parts)
    return (
        both | met.map(lambda each: f"{each[0]}({each[1]}, {each[2]})") | parts.map("-({})".format)
    )


@pytest.mark.rules("ONX-8")
@settings(max_examples=40)
@given(st.recursive(LEAVES, combined, max_leaves=6), st.integers(1, 40), st.integers(1, 9))
def test_sizes_are_computed_as_python_does(text: str, first: int, second: int) -> None:
    """Remainders and quotients of negative numbers, too."""
    import onnxruntime
    from onnx import helper

    printer = OnnxPrinter(21)
    printer.input("x", dtypes.float32, (1, 1))
    printer.reserve("size")
    printer.sizes.bind([("s0", "x", 0, 1, "0"), ("s1", "x", 1, 1, "0")])
    printer.result(printer.sizes._of(text), "size")
    nodes, initializers = printer.used()
    shape = helper.make_tensor_value_info("x", 1, ["s0", "s1"])
    size = helper.make_tensor_value_info("size", 7, [])
    graph = helper.make_graph(nodes, "size", [shape], [size], initializers)
    imported = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imported, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (found,) = session.run(None, {"x": np.zeros((first, second), "f4")})
    assert found == value_of(text, {"s0": first, "s1": second})
