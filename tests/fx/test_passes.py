"""`split_module`, `PassManager`, `ShapeProp`, the drawer (FXG-23 to FXG-28)."""

from __future__ import annotations

import copy
import pickle
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import fx, ops
from aotlite.fx.passes.graph_drawer import FxGraphDrawer
from aotlite.fx.passes.infra.pass_base import PassBase, PassResult
from aotlite.fx.passes.infra.pass_manager import PassManager, this_before_that_pass_constraint
from aotlite.fx.passes.shape_prop import ShapeProp, shape_prop
from aotlite.fx.passes.split_module import SplitModule, split_module
from aotlite.ir.errors import ArgumentError
from tests.fx.test_tracer import Net


def given_back(value: Any, node: fx.Node) -> Any:
    """The value, whatever the node is."""
    return value


def halves(module: fx.GraphModule, count: int = 2) -> Any:
    """The module in parts of equally many calls."""
    calls = module.graph.find_nodes(op="call_function")
    return split_module(module, None, lambda node: calls.index(node) * count // len(calls))


@pytest.mark.rules("FXG-26")
def test_a_split_module_computes_and_trains_as_the_whole() -> None:
    whole = fx.symbolic_trace(Net(), "f32[5, 3]")
    names: dict[str, str] = {}
    calls = whole.graph.find_nodes(op="call_function")
    twin = copy.deepcopy(whole)
    split: Any = split_module(whole, whole, lambda node: calls.index(node) // 6, names)
    x = al.randn(5, 3)
    expected, found = twin(x), split(x)
    assert expected["y"].tolist() == found["y"].tolist()
    assert found["x"] == (x, None)
    expected["y"].sum().backward()
    found["y"].sum().backward()
    old = dict(twin.named_parameters())
    new = dict(split.named_parameters())
    assert {names[name] for name in new} == set(old)
    for name, value in new.items():
        other: Any = old[names[name]]
        assert value.grad.tolist() == other.grad.tolist()
    buffers = dict(twin.named_buffers())
    for name, value in split.named_buffers():
        assert value.tolist() == buffers[names[name]].tolist()
    assert [name for name, _ in split.named_children()] == [part.name for part in split.parts]
    assert split.compile()(x)["y"].shape == (5, 2)


def test_a_split_module_is_pickled_copied_edited_and_split_again() -> None:
    split: Any = halves(fx.symbolic_trace(lambda x: (x * 2.0).exp().sin() + 1, "f32[3]"))
    x = al.ones(3)
    copies: list[Any] = [pickle.loads(pickle.dumps(split)), copy.deepcopy(split)]
    for made in copies:
        assert type(made).__name__ == SplitModule.__name__
        assert (made.code, made.submod_1.code) == (split.code, split.submod_1.code)
        assert made(x).tolist() == split(x).tolist()
    weighted: Any = halves(fx.symbolic_trace(Net(), "f32[5, 3]"))
    old = list(weighted.parameters())
    assert old
    for twin in (copy.deepcopy(weighted), pickle.loads(pickle.dumps(weighted))):
        new = list(twin.parameters())
        assert [value.tolist() for value in old] == [value.tolist() for value in new]
        assert not any(value is other for value in old for other in new)
    mul = split.graph.find_nodes(op="call_function", target=ops.mul)[0]
    with split.graph.inserting_after(mul):
        neg = split.graph.call_function(ops.neg, (mul,))
    mul.replace_all_uses_with(neg, delete_user_cb=lambda user: user is not neg)
    split.recompile()
    assert "neg" in split.submod_0.code
    np.testing.assert_allclose(split(x).numpy(), np.sin(np.exp(-2 * np.ones(3))) + 1, rtol=1e-6)


@pytest.mark.rules("FXG-27")
def test_parts_run_in_an_order_in_which_each_has_what_it_needs() -> None:
    module = fx.symbolic_trace(lambda x: (x.exp() + 1).sin(), "f32[2]")
    parts = {"exp": "b", "add": "a", "sin": "a"}
    split: Any = split_module(
        module, None, lambda node: parts[node.name], partition_affix="p", tuple_return=True
    )
    assert [part.name for part in split.parts] == ["submod_p_b", "submod_p_a"]
    assert "submod_p_b[0]" in split.code
    assert "(add,)" not in split.submod_p_a.code
    with pytest.raises(ArgumentError, match="parts 0, 1 need each other") as got:
        split_module(module, None, lambda node: int(node.name == "add"))
    assert "part 1 needs 0: add takes exp" in got.value.__notes__


@pytest.mark.rules("FXG-27")
def test_a_split_that_would_move_a_write_is_refused() -> None:
    def function(x: Any) -> Any:
        first = x.exp()
        x.add_(1.0)
        return first, x.sin()

    module = fx.symbolic_trace(function, "f32[2]")
    split = split_module(module, None, lambda node: int(node.name != "exp"))
    one, two = al.zeros(2), al.zeros(2)
    assert [t.tolist() for t in split(one)] == [t.tolist() for t in function(two)]
    assert one.tolist() == two.tolist()
    with pytest.raises(ArgumentError, match="need each other") as got:
        split_module(module, None, lambda node: int(node.name == "add_"))
    assert any("add_, which writes" in note for note in got.value.__notes__)


def test_results_of_several_stay_in_one_part() -> None:
    module = fx.symbolic_trace(lambda x: al.cat(x.split(2), 0).neg(), "f32[4]")
    split: Any = split_module(module, None, lambda node: int(node.name != "split"))
    assert "getitem" in split.submod_0.code
    assert split(al.arange(4.0)).tolist() == [0.0, -1.0, -2.0, -3.0]


def test_what_is_no_split_is_refused() -> None:
    module = fx.symbolic_trace(lambda x: x.exp(), "f32[2]")
    for wrong, text in ((None, "is None"), (1.5, "is 1.5"), ("a b", "no part of an identifier")):
        with pytest.raises(ArgumentError, match=text):
            split_module(module, None, partial(given_back, wrong))
    with pytest.raises(ArgumentError, match="expected a GraphModule"):
        split_module(3, None, lambda node: 0)  # type: ignore[arg-type]
    weight = al.ones(2)
    constant = fx.symbolic_trace(lambda x: (x.exp(), weight), "f32[2]")
    with pytest.raises(ArgumentError, match="is a result of no part"):
        split_module(constant, None, lambda node: 0)


@pytest.mark.draws(long=2000)
@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_random_splits_compute_what_the_whole_computes(seed: int) -> None:
    rng = random.Random(seed)

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for _ in range(rng.randrange(2, 12)):
            a, b = rng.choice(values), rng.choice(values)
            if rng.random() < 0.15:
                a.mul_(0.5)
            values.append(rng.choice([a + b, -a, a * b, a[:], (a * 2.0).t()]))
        return values[-1], {"k": rng.choice(values)}

    module = fx.symbolic_trace(program, "f32[3, 3]", "f32[3, 3]")
    calls = module.graph.find_nodes(op="call_function")
    cuts = sorted(rng.randrange(len(calls) + 1) for _ in range(3))
    part = {node: sum(place >= cut for cut in cuts) for place, node in enumerate(calls)}
    if rng.random() < 0.3:
        part[rng.choice(calls)] = rng.randrange(4)
    try:
        split = split_module(module, None, part.__getitem__)
    except ArgumentError as error:
        assert "need each other" in str(error)
        return
    results = []
    for run in (module, split):
        x, y = al.arange(9.0).reshape(3, 3), al.ones(3, 3)
        first, second = run(x, y)
        tensors = (first, second["k"], x, y)
        results.append([(t.tolist(), t.stride()) for t in tensors])
    assert results[0] == results[1]
    assert len(calls) <= sum(len(p.nodes) for p in split.parts)


# --------------------------------------------------------------------------------- pass managers
def named(name: str, log: list[str], *, modified: bool = False) -> Any:
    def run(gm: fx.GraphModule) -> PassResult:
        log.append(name)
        return PassResult(gm, modified)

    run.__name__ = name
    return run


@pytest.mark.rules("FXG-24")
def test_passes_run_in_an_order_that_the_constraints_allow() -> None:
    log: list[str] = []
    a, b, c = (named(each, log) for each in "abc")
    module = fx.symbolic_trace(lambda x: x.exp(), "f32[2]")
    manager = PassManager([c, a])
    manager.add_pass(b)
    manager.add_constraint(this_before_that_pass_constraint(a, c))
    manager.add_constraint(this_before_that_pass_constraint(b, c))
    with pytest.raises(ArgumentError, match="c stands before a"):
        manager.validate_constraints()
    assert not manager(module).modified
    assert log == ["a", "b", "c"]
    manager.validate_constraints()
    manager.add_constraint(this_before_that_pass_constraint(c, a))
    with pytest.raises(ArgumentError, match="has to run behind another one"):
        manager(module)


@pytest.mark.rules("FXG-24")
def test_rounds_end_when_nothing_changes_and_errors_name_the_pass() -> None:
    log: list[str] = []
    module = fx.symbolic_trace(lambda x: x.exp(), "f32[2]")
    assert PassManager([named("a", log, modified=True)], steps=3)(module).modified
    assert log == ["a"] * 3
    assert not PassManager([named("b", log)], steps=3)(module).modified
    assert log == [*["a"] * 3, "b"]

    def broken(gm: fx.GraphModule) -> None:
        gm.graph.output_node().prepend(gm.graph.find_nodes(op="call_function")[0])
        raise ValueError("mine")

    def wrong(gm: fx.GraphModule) -> Any:
        return 3

    for fail, kind in ((broken, ValueError), (wrong, ArgumentError)):
        with pytest.raises(kind) as got:
            PassManager([named("a", log), fail])(module)
        assert f"in the pass {fail.__name__}; passes before it: a" in got.value.__notes__
    manager = PassManager([named("a", log)], run_checks_after_each_pass=True)
    manager.add_checks(lambda gm: getattr(gm, "no_such_attribute"))  # noqa: B009
    with pytest.raises(AttributeError):
        manager(module)
    manager.suppress_check_failures = True
    manager(module)


@pytest.mark.rules("FXG-24")
def test_a_pass_as_a_class_checks_before_and_after() -> None:
    log: list[str] = []

    class Mine(PassBase):
        def requires(self, graph_module: fx.GraphModule) -> None:
            log.append("requires")

        def call(self, graph_module: fx.GraphModule) -> PassResult:
            log.append("call")
            return PassResult(graph_module, False)

        def ensures(self, graph_module: fx.GraphModule) -> None:
            log.append("ensures")

    PassManager([Mine()])(fx.symbolic_trace(lambda x: x.exp(), "f32[2]"))
    assert log == ["requires", "call", "ensures"]


# ------------------------------------------------------------------------------------------ rest
@pytest.mark.rules("FXG-23")
def test_shape_prop_checks_and_changes_nothing() -> None:
    module = fx.symbolic_trace(lambda x: x.split(1)[0] + 1, "f32[2, 3]")
    before = str(module.graph)
    shape_prop(module, al.ones(2, 3))
    shape_prop(module, np.ones((2, 3), np.float32))
    assert before == str(module.graph)
    with pytest.raises(ArgumentError, match=r"an input is float32\[3\]"):
        shape_prop(module, np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match=r"x is .*\[3\], expected f32\[2, 3\]"):
        shape_prop(module, al.ones(3))

    class Wrong(ShapeProp):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            found = super().call_function(target, args, kwargs)
            return found[0] if target is ops.add else found

    with pytest.raises(ArgumentError, match="shape_prop: add is"):
        Wrong(module).propagate(al.ones(2, 3))


@pytest.mark.rules("FXG-25")
def test_a_drawing_has_each_node_and_edge(tmp_path: Path) -> None:
    module = fx.symbolic_trace(Net(), "f32[5, 3]")
    drawer = FxGraphDrawer(module, 'a "net"')
    text = drawer.get_dot_graph()
    nodes = list(module.graph.nodes)
    edges = sum(len(node.all_input_nodes) for node in nodes)
    assert text.count("fillcolor=") == len(nodes)
    assert text.count(" -> ") == edges
    assert text.startswith('digraph "a \\"net\\"" {')
    assert text.count("MistyRose") == sum(
        n.target is ops.mul_ or n.target is ops.add_ for n in nodes
    )
    assert "f32[5, 4]" in text
    drawer.write(tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text() == text + "\n"
    hidden = FxGraphDrawer(module, "net", ignore_getattr=True).get_dot_graph()
    assert "get_attr" in text
    assert "get_attr" not in hidden
    with pytest.raises(ArgumentError, match="expected a GraphModule"):
        FxGraphDrawer(3, "net")  # type: ignore[arg-type]
