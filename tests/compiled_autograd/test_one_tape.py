"""CAG-25 to CAG-28: a tape with hooks is one graph, and does what the engine does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable
from tests.compiled_autograd.one_graph import compared, compared_with_python

pytestmark = pytest.mark.rules("CAG-25", "CAG-26")

Program = Callable[[list[Any]], Any]


def outcome(program: Program, tapes: Any) -> Any:
    """What a program gives or raises, and its log."""
    log: list[Any] = []
    try:
        if tapes is None:
            return program(log), log
        with enable(tapes):
            return program(log), log
    except Exception as error:
        return (type(error), str(error), type(error.__cause__)), log


def alike(program: Program, times: int = 3, backend: Any = "reference") -> CompiledAutograd:
    """The compiler after it has run a program as often, each time as the engine."""
    expected = outcome(program, None)
    tapes = CompiledAutograd.of(backend, hooks="call")
    for _ in range(times):
        assert expected == outcome(program, tapes)
    return tapes


def one_graph(program: Program, backend: Any = "reference") -> None:
    """A program whose tape is one graph, captured once."""
    tapes = alike(program, backend=backend)
    assert not tapes.fallbacks
    assert tapes.counters.whole == tapes.counters.calls
    assert tapes.counters.captures == 1
    assert len(tapes.graphs) == 1


def numbers(*values: float) -> Any:
    return al.tensor(values or (1.0, 2.0), requires_grad=True)


def listed(grads: Any) -> Any:
    return [None if grad is None else grad.tolist() for grad in grads]


def _noted(log: list[Any], name: str, grad: Any) -> None:
    log.append((name, grad.tolist()))


def _noted_leaf(log: list[Any], name: str, leaf: Any) -> None:
    log.append((name, leaf.grad.tolist()))


def _unpacked(log: list[Any], packed: Any) -> Any:
    log.append("unpack")
    return al.tensor(packed)


# ------------------------------------------------------------------------------- random tapes
def test_random_tapes_with_many_hooks() -> None:
    """∀ 12 kinds of hooks: no backward differs from the engine's, and most are one graph."""
    tally = compared(70, 0)
    left = sum(count for name, count in tally.items() if "changed hooks" in name)
    assert tally["one graph with calls"] > left


def test_random_tapes_with_what_only_python_can_do() -> None:
    """∀ custom functions, packed values, regions; hooks that keep, write and return gradients."""
    tally = compared_with_python(25, 0)
    assert tally["one graph with calls"] > tally["backwards"] // 2


@pytest.mark.long
def test_many_random_tapes() -> None:
    """∀ 20,000 tapes of programs, and 3,000 with what only Python can do."""
    assert compared(20_000, 0)["one graph with calls"] > 10_000
    assert compared_with_python(3_000, 1)["one graph with calls"] > 10_000


def test_random_tapes_in_c() -> None:
    """∀ calls are steps of the programs in C."""
    assert compared(6, 1, "cpu")["one graph with calls"] > 0


# ---------------------------------------------------------------------------------- one graph
def test_a_compiler_sees_one_graph_of_a_module() -> None:
    """Hooks on inputs, intermediates and parameters."""
    seen: list[Any] = []

    def compiler(graph: Any) -> Any:
        seen.append([node.args[2] for node in graph.calls if "with_effect" in node.target.name])
        return graph

    al.manual_seed(0)
    model = al.nn.Sequential(al.nn.Linear(3, 4), al.nn.Tanh(), al.nn.Linear(4, 2))
    log: list[Any] = []
    for name, parameter in model.named_parameters():
        parameter.register_hook(partial(_noted, log, name))
        parameter.register_post_accumulate_grad_hook(partial(_noted_leaf, log, name))

    def step() -> Any:
        log.clear()
        x: Any = al.ones(5, 3).requires_grad_()
        x.register_hook(lambda grad: grad * 2)
        hidden: Any = model[1](model[0](x))
        hidden.register_hook(lambda grad: log.append(("hidden", grad.tolist())))
        hidden.retain_grad()
        model.zero_grad()
        model[2](hidden).square().mean().backward()
        return x.grad.tolist(), hidden.grad.tolist(), log[:]

    expected = step()
    with enable(compiler, hooks="call") as tapes:
        for _ in range(3):
            assert expected == step()
    (kinds,) = seen
    assert kinds.count("tensor_pre_hook") == 6
    assert kinds.count("post_acc_grad_hook") == 4
    assert tapes.counters.whole == 3


def test_the_next_hooks_run_by_the_same_graph() -> None:
    """Hooks are inputs: other functions of the same kinds need no capture."""
    tapes = CompiledAutograd.of("reference", hooks="call")
    found = []
    with enable(tapes):
        for factor in (1.0, 2.0, 3.0):
            w = numbers()
            y = w * w
            y.register_hook(lambda grad, factor=factor: grad * factor)
            (y * y).sum().backward()
            found.append(w.grad.tolist()[0])
    assert found == [4.0, 8.0, 12.0]
    assert (tapes.counters.captures, tapes.counters.hits) == (1, 2)


def test_all_kinds_of_hooks_of_one_node_and_one_leaf() -> None:
    def program(log: list[Any]) -> Any:
        w = numbers()
        leaf = al.autograd.graph.get_gradient_edge(w).node
        w.register_post_accumulate_grad_hook(lambda p: log.append(("post", p.grad.tolist())))
        leaf.register_hook(lambda i, o: log.append(("leaf behind", listed(i), listed(o))))
        leaf.register_prehook(lambda o: log.append(("leaf before", listed(o))))
        w.register_hook(lambda g: log.append(("tensor", g.tolist(), w.grad is None)))
        y = w * w
        y.retain_grad()
        y.register_hook(lambda g: g + 1)
        y.grad_fn.register_prehook(lambda o: (o[0] * 2,))
        y.grad_fn.register_hook(lambda i, o: (i[0] * 3, i[1]))
        y.grad_fn.register_hook(lambda i, o: log.append(("behind", listed(i), listed(o))))
        y.exp().sum().backward()
        return w.grad.tolist(), y.grad.tolist()

    for backend in ("reference", "cpu"):
        one_graph(program, backend)


def test_a_hook_may_write_gradients_that_it_has_seen() -> None:
    """The gradients of both operands of `add` are one tensor; a hook keeps one, and writes it."""

    def program(log: list[Any]) -> Any:
        a, b = numbers(), numbers(3.0, 4.0)
        kept: list[Any] = []
        x, y = a * 2, b * 3
        both = x.t() + y
        both.register_hook(lambda g: kept.append(g))
        y.register_hook(lambda g: log.append(g.tolist()))
        x.register_hook(lambda g: (kept[0].mul_(10), None)[1])
        both.exp().sum().backward()
        return a.grad.tolist(), b.grad.tolist(), kept[0].tolist()

    alike(program)


def test_custom_functions_and_packed_values_are_called() -> None:
    class Custom(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, log: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.log = log
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            ctx.log.append(("custom", grad.tolist()))
            return grad * ctx.saved_tensors[0] * 2, None

    def program(log: list[Any]) -> Any:
        w = numbers()
        y = Custom.apply(w * 2, log)
        with al.autograd.graph.saved_tensors_hooks(lambda x: x.tolist(), partial(_unpacked, log)):
            z = y.sin()
        (al.checkpoint(lambda t: t.exp().tanh(), z) * y).sum().backward()
        return w.grad.tolist()

    one_graph(program)


def test_a_compiled_function_is_part_of_the_graph() -> None:
    layer = al.compile(lambda x, w: (x * w).exp(), backend="reference")

    def program(log: list[Any]) -> Any:
        w, x = numbers(), numbers(0.5, 0.25)
        y = layer(x, w)
        y.register_hook(lambda g: log.append(g.tolist()))
        layer(y, w).sum().backward()
        return w.grad.tolist(), x.grad.tolist()

    one_graph(program)


@pytest.mark.rules("CAG-22")
def test_printed_graphs_name_the_tape_nodes(capsys: Any) -> None:
    layer = al.compile(lambda x: x.exp(), backend="reference")
    w = numbers()
    w.register_hook(lambda g: None)
    with enable("reference", hooks="call", observer=lambda stage, graph: graph.print_readable()):
        layer(w.sin()).sum().backward()
    printed = capsys.readouterr().out
    number = layer.entries[0].number
    for line in (
        "# SumBackward (NodeCall 0)",
        f"# CompiledBackward (NodeCall 1) of compilation {number}",
        "# SinBackward (NodeCall 2)",
        "# AccumulateGrad (NodeCall 3)",
    ):
        assert line in printed


def test_gradients_of_inputs_are_collected() -> None:
    def program(log: list[Any]) -> Any:
        w, v = numbers(), numbers(2.0, 3.0)
        y = w * v
        y.register_hook(lambda g: g * 2)
        w.register_hook(lambda g: log.append(g.tolist()))
        found = al.autograd.grad((y * w).sum(), [y, w], retain_graph=True)
        return listed(found), v.grad is None

    one_graph(program)


# ------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("backend", ["reference", "cpu", lambda graph: graph])
def test_a_hook_that_raises_leaves_the_state_of_the_engine(backend: Any) -> None:
    """Leaves before it have their gradients, nodes before it have released their values."""

    def program(log: list[Any]) -> Any:
        w, v = numbers(), numbers(2.0, 3.0)
        first = w * v
        second = first * numbers(5.0, 6.0)

        def fails(grad: Any) -> None:
            raise ValueError("by a hook") from KeyError("its cause")

        first.register_hook(fails)
        v.register_hook(lambda g: log.append(g.tolist()))
        for _ in range(2):
            try:
                (second + v).sum().backward()
            except ValueError as error:
                log.append((str(error), repr(error.__cause__), w.grad, listed([v.grad])))
        second.sum().backward()

    tapes = alike(program, backend=backend)
    assert tapes.counters.whole > 0


@pytest.mark.rules("CAG-27")
def test_a_written_saved_value_is_an_error_at_the_node_of_the_engine() -> None:
    def program(log: list[Any]) -> Any:
        w, v = numbers(), numbers(2.0, 3.0)
        y = w * v
        w.register_hook(lambda g: log.append(g.tolist()))
        v.register_hook(lambda g: log.append(g.tolist()))

        def writes(grad: Any) -> None:
            log.append("writes")
            v.detach().add_(1)

        y.sin().register_hook(lambda g: log.append(g.tolist()))
        y.register_hook(writes)
        y.exp().sum().backward()

    tapes = alike(program)
    (reason,) = tapes.fallbacks
    assert reason == "tensor_pre_hook of MulBackward: it wrote or freed a saved value"


@pytest.mark.rules("CAG-27")
def test_a_hook_that_changes_later_hooks_leaves_the_graph() -> None:
    def program(log: list[Any]) -> Any:
        w = numbers()
        late = w.register_hook(lambda g: log.append("late"))
        y = w.exp()
        y.register_hook(lambda g: late.remove())
        y.register_hook(lambda g: w.register_hook(lambda g: log.append("new")) and None)
        y.sin().sum().backward()
        return w.grad.tolist()

    tapes = alike(program)
    assert tapes.counters.whole == 0
    assert sum(tapes.fallbacks.values()) == 3


@pytest.mark.rules("CAG-27")
def test_a_formula_that_draws_leaves_the_tape_to_segments() -> None:
    """Nothing has happened then: no hook is called twice."""

    def program(log: list[Any]) -> Any:
        w = numbers()
        w.register_hook(lambda g: log.append(g.tolist()))
        with al.compiled_autograd.disable():
            y = al.nn.functional.dropout(w, 0.5)
        (y * 0).sum().backward()
        return w.grad.tolist()

    alike(program)


@pytest.mark.rules("CAG-28")
def test_another_layout_is_expected_from_the_second_time_on() -> None:
    """`sum` gives an expanded gradient, what a hook makes of it is dense."""

    def program(log: list[Any]) -> Any:
        w: Any = al.ones(2, 3).requires_grad_()
        y = w.exp()
        y.register_hook(lambda g: g * 2)
        y.register_hook(lambda g: log.append(g.stride()))
        y.sum().backward()
        return w.grad.tolist()

    tapes = alike(program, 4)
    assert tapes.counters.captures == 2
    assert tapes.counters.whole == 3
    assert list(tapes.fallbacks.values()) == [1]


@pytest.mark.rules("CAG-28")
def test_a_hook_that_gives_now_this_now_that() -> None:
    """At most four further captures."""
    tapes = CompiledAutograd.of("reference", hooks="call")
    calls = [0]

    def hook(grad: Any) -> Any:
        calls[0] += 1
        return grad * 2 if calls[0] % 2 else None

    found = []
    with enable(tapes):
        for _ in range(12):
            w: Any = al.ones(2, 3).requires_grad_()
            y = w * 1
            y.register_hook(hook)
            y.sum().backward()
            found.append(w.grad[0, 0].item())
    assert found == [2.0, 1.0] * 6
    assert tapes.counters.captures == 5


def test_mistakes_are_named() -> None:
    with pytest.raises(al.ArgumentError, match="hooks is 'calls', expected 'segments' or 'call'"):
        enable("reference", hooks="calls")
    with pytest.raises(al.ArgumentError, match="it is called outside of a backward"):
        al.ops.call_hook("tensor_pre_hook", al.tensor(0), (al.ones(2),), (), "f32[2]")
