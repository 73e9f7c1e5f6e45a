"""CKP-1 to CKP-9: regions that are computed again in the backward, eager and compiled."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.subclass.protocol import inner_tensors
from aotlite.ir.graph import Phase
from aotlite.ir.op import Cost
from tests.rules.helpers.rng_programs import Drawing
from tests.rules.test_rng_recompute import PARTITIONS, random_ops

F = al.nn.functional


def plainly(function, *args):
    return function(*args)


def _written(x, w):
    y = x * w
    y.mul_(0.5)
    return y.sin_()


def _gathered(x, w):
    first, rest = x[:1], x[1:]
    return al.cat([rest, first * w[:1]])


def test_a_region_fills_a_list_of_its_caller_once():
    """It got a copy of the list. The second run, in the backward, gets one."""

    def region(x, out):
        out.append(x * 2)
        return x.exp()

    for compile in (plainly, lambda f, *args: al.compile(f, backend="reference")(*args)):
        x, out = al.ones(2, requires_grad=True), []
        y = compile(lambda x, out: al.checkpoint(region, x, out), x, out)
        y.sum().backward()
        assert [[2.0, 2.0]] == [each.tolist() for each in out]
        assert np.allclose(y.tolist(), x.grad.tolist())


LAYERS = {
    "matmul": lambda x, w: x @ w,
    "exp": lambda x, w: (x * 0.1).exp(),
    "softmax": lambda x, w: x.softmax(-1) * w,
    "norm": lambda x, w: F.layer_norm(x, (3,)) + w,
    "dropout": lambda x, w: F.dropout(x, 0.4),
    "bernoulli": lambda x, w: x * al.ones(3, 3).bernoulli_(0.6),
    "written": _written,
    "turned": lambda x, w: x.t().sigmoid().t() * w.t(),
    "gathered": _gathered,
    "alone": lambda x, w: x * al.rand(3, 3),
}

_layer = st.sampled_from(sorted(LAYERS))
_inner = st.lists(_layer, min_size=1, max_size=2).map(tuple)
_region = st.lists(st.one_of(_layer, _inner), min_size=1, max_size=3).map(tuple)
networks = st.lists(st.one_of(_layer, _region), min_size=1, max_size=3).map(tuple)
"""Layers in order; tuples of them are regions, which may have regions inside."""


def network(layers, region, *, closed):
    """The function of a network; `region` calls what a tuple of layers is."""

    def run(layers, x, w):
        for layer in layers:
            if isinstance(layer, str):
                x = LAYERS[layer](x, w)
            elif closed:  # the weight is reached by the closure
                x = region(lambda x, layer=layer: run(layer, x, w), x)
            else:
                x = region(lambda x, w, layer=layer: run(layer, x, w), x, w)
        return x

    return lambda x, w: run(layers, x, w)


def leaves():
    w = ((al.arange(9.0) - 3) / 7).view(3, 3)
    return (al.arange(9.0).view(3, 3) / 9 + 0.1).requires_grad_(), w.clone().requires_grad_()


def trained(function, seed=7, between=lambda: None, retain=False):
    inputs = leaves()
    al.manual_seed(seed)
    y = function(*inputs)
    between()
    if y.requires_grad:
        loss = (y * y).sum()
        loss.backward(retain_graph=retain)
        if retain:
            loss.backward()
    grads = [None if t.grad is None else t.grad.tolist() for t in inputs]
    return y.tolist(), grads, al.get_rng_state()


@pytest.mark.rules("CKP-1", "CKP-3", "CKP-6", "RNG-8")
@given(layers=networks, closed=st.booleans(), retain=st.booleans())
@example(layers=(("dropout", ("dropout",)), "dropout"), closed=True, retain=True)
def test_eager_regions_change_nothing_that_can_be_seen(layers, closed, retain):
    plain = network(layers, plainly, closed=closed)
    kept = network(layers, al.checkpoint, closed=closed)
    assert trained(plain, retain=retain) == trained(kept, retain=retain)


@pytest.mark.draws(long=80)
@pytest.mark.rules("CKP-1", "CKP-3", "CKP-8", "RNG-8", "RNG-11")
@pytest.mark.parametrize("partition", PARTITIONS)
@given(layers=networks, closed=st.booleans())
@settings(max_examples=12)
@example(layers=(("dropout", ("dropout",)), ("dropout", "matmul")), closed=True)
@example(layers=(("written",), ("written", "norm")), closed=False)
def test_compiled_regions_are_eagers_to_the_bit(partition, layers, closed):
    eager = network(layers, al.checkpoint, closed=closed)
    compiled = al.compile(eager, partition=PARTITIONS[partition], backend="reference")
    expected = trained(eager)
    assert expected == trained(compiled)
    assert expected[:2] == trained(compiled, between=lambda: al.manual_seed(99))[:2]


@pytest.mark.rules("CKP-3", "CKP-8", "RNG-8")
def test_masks_of_regions_are_equal_in_compiled_code():
    layers = (("dropout", "alone"), "matmul", ("dropout",))
    eager = network(layers, al.checkpoint, closed=False)
    found = [trained(f) for f in (eager, al.compile(eager, backend="cpu"))]
    zeros = [[v == 0 for row in y for v in row] for y, _, _ in found]
    assert zeros[0] == zeros[1]
    assert found[0][2] == found[1][2]
    np.testing.assert_allclose(*[np.array(grads) for _, grads, _ in found], rtol=1e-5)


# ------------------------------------------------------------------------------ what is kept, when
@pytest.mark.rules("CKP-1", "CKP-2")
@pytest.mark.parametrize("retain", [False, True])
def test_what_a_region_computes_is_alive_while_it_runs_and_in_the_backward(retain):
    alive = []

    def region(x):
        h = x.exp()
        alive.append(weakref.ref(h.storage))
        return h.sin() * h

    def count():
        gc.collect()
        return sum(each() is not None for each in alive)

    x = al.ones(4).requires_grad_()
    seen = []
    x.register_hook(lambda grad: seen.append(count()))
    y = al.checkpoint(region, x)
    assert (1, 0) == (len(alive), count())
    y.sum().backward(retain_graph=retain)
    assert (2, 0) == (len(alive), count())
    assert len(seen) == 1


@pytest.mark.rules("CKP-2")
@pytest.mark.parametrize("compiles", [False, True])
def test_a_region_is_computed_again_once_in_each_backward(compiles):
    runs = []

    def inner(x):
        return x.sin() * x.exp() * x

    if compiles:
        inner = al.compile(inner, backend="reference")

    def region(x):
        runs.append(1)
        return inner(x)

    x = al.ones(3).requires_grad_()
    y = al.checkpoint(region, x).sum()
    assert 1 == len(runs)
    for expected in (2, 3):
        y.backward(retain_graph=True)
        assert expected == len(runs)
    al.autograd.grad(y, [x])
    assert 4 == len(runs)


@pytest.mark.rules("CKP-1")
def test_a_region_whose_backward_needs_nothing_is_not_computed_again():
    runs = []
    x = al.ones(3).requires_grad_()
    al.checkpoint(lambda x: (runs.append(1), x + 1)[1], x).sum().backward()
    assert 1 == len(runs)


@pytest.mark.rules("CKP-1")
def test_a_region_without_grad_mode_is_a_plain_call():
    with al.no_grad():
        y = al.checkpoint(lambda x: x.exp(), al.ones(2).requires_grad_())
    assert not y.requires_grad
    with al.inference_mode():
        assert al.checkpoint(lambda x: x.exp(), al.ones(2)).is_inference()


@pytest.mark.rules("CKP-9")
def test_gradients_of_a_region_can_be_differentiated():
    def cube(x):
        return al.checkpoint(lambda x: x * x * x, x)

    x = al.full((2,), 2.0).requires_grad_()
    (first,) = al.autograd.grad(cube(x).sum(), [x], create_graph=True)
    (second,) = al.autograd.grad(first.sum(), [x])
    assert ([12.0, 12.0], [12.0, 12.0]) == (first.tolist(), second.tolist())


@pytest.mark.rules("CKP-9")
def test_a_region_may_ask_for_gradients_itself():
    def region(x):
        (grad,) = al.autograd.grad(x.exp().sum(), [x], create_graph=True)
        return grad * x

    found = []
    for call in (plainly, al.checkpoint):
        x = al.ones(2).requires_grad_()
        call(region, x).sum().backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]


@pytest.mark.rules("CKP-3")
def test_generators_of_ones_own_are_replayed_too():
    found = []
    for call in (plainly, al.checkpoint):
        generator = al.Generator().manual_seed(4)
        x = al.ones(6).requires_grad_()
        y = call(lambda x, own: x.exp() * al.rand(6, generator=own), x, generator)
        al.rand(3, generator=generator)
        y.sum().backward()
        found.append((y.tolist(), x.grad.tolist(), generator.get_state()))
    assert found[0] == found[1]


@pytest.mark.rules("CKP-3")
@pytest.mark.parametrize("compiles", [False, True])
def test_a_region_that_preserves_no_state_draws_anew(compiles):
    def function(x):
        return al.checkpoint(lambda x: x.exp() * al.rand(8), x, preserve_rng_state=False)

    run = al.compile(function, backend="reference") if compiles else function
    x = al.zeros(8).requires_grad_()
    al.manual_seed(5)
    y = run(x)
    y.sum().backward()
    first, second = al.ops.uniform(5, 0, 0, (8,)), al.ops.uniform(5, 8, 0, (8,))
    assert first.tolist() == y.tolist()
    assert second.tolist() == x.grad.tolist()
    assert (5, 16) == al.get_rng_state()


@pytest.mark.rules("CKP-6", "TEN-42")
def test_hooks_around_a_region_pack_its_arguments_and_nothing_else():
    packed = []

    def pack(tensor):
        packed.append(tensor.tolist())
        return tensor

    x = al.full((2,), 3.0).requires_grad_()
    with al.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        y = al.checkpoint(lambda x: x.exp().sin() * x, x)
    assert [[3.0, 3.0]] == packed
    y.sum().backward()
    assert [[3.0, 3.0]] == packed


# ----------------------------------------------------------------------------------- what changed
def changed(act, region, *, compiles=False, where="after"):
    """Runs a region on x and b, changes something, and runs the backward."""

    def function(x, b):
        if where == "before the end":
            y = al.checkpoint(region, x, b)
            act(b)
            return y
        return al.checkpoint(region, x, b)

    run = al.compile(function, backend="reference") if compiles else function
    x, b = al.ones(2).requires_grad_(), al.ones(2)
    y = run(x, b)
    if where == "after":
        act(b)
    y.sum().backward()
    return x.grad.tolist()


@pytest.mark.rules("CKP-5", "SAV-2")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("where", ["after", "before the end"])
def test_an_argument_that_was_written_since_is_an_error(compiles, where):
    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        changed(lambda b: b.mul_(2), lambda x, b: x * b, compiles=compiles, where=where)


@pytest.mark.rules("CKP-5", "SAV-2")
@pytest.mark.parametrize("compiles", [False, True])
def test_an_argument_that_the_region_writes_is_an_error_in_the_backward(compiles):
    def region(x, b):
        b.mul_(2)
        return x * b

    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        changed(lambda b: None, region, compiles=compiles)


@pytest.mark.rules("CKP-5", "SAV-2")
@pytest.mark.parametrize("compiles", [False, True])
def test_a_weight_of_the_closure_that_was_written_since_is_an_error(compiles):
    w = al.ones(2).requires_grad_()

    def act(b):
        with al.no_grad():
            w.mul_(2)

    with pytest.raises(al.AutogradError, match="is at version 1, expected version 0"):
        changed(act, lambda x, b: x * w, compiles=compiles)


@pytest.mark.rules("CKP-5", "SAV-3")
@pytest.mark.parametrize("compiles", [False, True])
def test_what_nothing_has_saved_is_read_as_it_is_then(compiles):
    """As in PyTorch: a sum saves nothing of what it adds, and sees a later value."""
    shift = al.zeros(2)
    found = changed(lambda b: shift.fill_(1.0), lambda x, b: (x + shift).exp(), compiles=compiles)
    assert (al.ones(2) * 2).exp().tolist() == found


@pytest.mark.rules("CKP-5")
@pytest.mark.parametrize("compiles", [False, True])
def test_results_of_a_region_may_be_written(compiles):
    def function(x):
        y = al.checkpoint(lambda x: x.exp(), x)
        y.mul_(2)
        return y

    run = al.compile(function, backend="reference") if compiles else function
    x = al.ones(2).requires_grad_()
    y = run(x)
    with al.no_grad():
        y.mul_(5)
    y.sum().backward()
    assert (al.ones(2).exp() * 2).tolist() == x.grad.tolist()


@pytest.mark.rules("CKP-5")
def test_statistics_are_written_in_both_runs_eager_and_compiled():
    """As in PyTorch: what a region does to memory outside, it does again."""
    found = []
    layer = al.nn.BatchNorm1d(3)
    for compiles in (False, True):
        layer.running_mean.zero_()
        layer.running_var.fill_(1.0)
        layer.num_batches_tracked.zero_()
        layer.zero_grad()
        function = lambda x: al.checkpoint(layer, x).sin().sum()
        run = al.compile(function, backend="reference") if compiles else function
        y = run(al.arange(12.0).view(4, 3).requires_grad_())
        counts = [layer.num_batches_tracked.item()]
        y.backward()
        counts.append(layer.num_batches_tracked.item())
        assert [1, 2] == counts
        found.append((layer.running_mean.tolist(), layer.weight.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.rules("CKP-5", "CKP-8", "TAN-8")
@pytest.mark.parametrize("arrived", [1, 2, 3, 4, 5, 6, 7])
def test_a_region_writes_again_if_any_of_its_results_is_asked_for(arrived):
    """Also where it stands in another, and where another result needs nothing of it."""
    count = al.zeros(())

    def region(x):
        count.add_(1)
        return x.exp(), x.sin()

    def outer(x):
        count.mul_(2)
        first, second = al.checkpoint(region, x * 2)
        return first.exp(), second

    def function(x, y):
        return (*al.checkpoint(outer, x), (x * y).sin())

    found = []
    compiled = al.compile(function, backend="reference")
    for run in (function, compiled, compiled):
        count.zero_()
        x, y = al.ones(2).requires_grad_(), al.ones(2).requires_grad_()
        results = run(x, y)
        sum(r.sum() for k, r in enumerate(results) if arrived >> k & 1).backward()
        found.append((count.item(), x.grad.tolist()))
    assert found[0] == found[1] == found[2]


@pytest.mark.rules("CKP-3", "CKP-8")
def test_a_new_draw_for_some_results_alone_is_refused():
    def function(x):
        again = al.checkpoint(lambda x: x.exp() * al.rand(2), x, preserve_rng_state=False)
        return again, x.sin()

    with pytest.raises(al.UnsupportedError, match="a new draw in a region"):
        al.compile(function)(al.ones(2).requires_grad_())


@pytest.mark.rules("CKP-4")
def test_a_region_that_computes_something_else_the_second_time_is_an_error():
    turns = []

    def more(x):
        turns.append(1)
        return x.exp().sin() if len(turns) == 1 else x.exp()

    def larger(x):
        turns.append(1)
        return (x.expand(len(turns), 2) * 1.0).exp().sum(0)

    for region, message in (
        (more, "saves 1 tensors when it is computed again, expected 2 as in the forward"),
        (larger, r"number 0 of what the region saves is f32\[2, 2\] when it is computed again"),
    ):
        turns.clear()
        x = al.ones(2).requires_grad_()
        y = al.checkpoint(region, x).sum()
        state = al.get_rng_state()
        with pytest.raises(al.AutogradError, match=message) as caught:
            y.backward()
        assert "CKP-4" in "".join(caught.value.__notes__)
        assert x.grad is None
        assert state == al.get_rng_state()
        assert al.is_grad_enabled()


@pytest.mark.rules("CKP-3")
def test_an_exception_in_the_second_run_leaves_modes_and_generators_as_they_were():
    turns = []

    def region(x):
        turns.append(al.rand(2))
        if len(turns) > 1:
            raise ValueError("no second time")
        return x.exp()

    x = al.ones(2).requires_grad_()
    al.manual_seed(1)
    y = al.checkpoint(region, x).sum()
    with pytest.raises(ValueError, match="no second time"):
        y.backward()
    assert turns[0].tolist() == turns[1].tolist()
    assert (1, 4) == al.get_rng_state()
    assert 4 == len(al.rand(4)), "the generator draws on"
    assert (1, 8) == al.get_rng_state()
    assert al.is_grad_enabled()


# ---------------------------------------------------------------------------------------- refusals
@pytest.mark.rules("CKP-7")
@pytest.mark.parametrize("compiles", [False, True])
def test_an_effect_in_a_region_is_refused_before_it_happens(compiles, capsys):
    def region(x):
        al.effects.print("x is {}", x)
        return x.exp()

    def function(x, b):
        b.mul_(2)
        return al.checkpoint(region, x)

    run = al.compile(function) if compiles else function
    x, b = al.ones(2).requires_grad_(), al.ones(2)
    with pytest.raises(al.TokenError, match="the effect 'print' is in a region") as caught:
        run(x, b)
    assert "(TOK-6, CKP-7)" in "".join(caught.value.__notes__)
    assert "" == capsys.readouterr().out
    assert (b.tolist() == [1.0, 1.0]) == compiles
    with al.no_grad():
        region(x)
    assert "x is [1. 1.]\n" == capsys.readouterr().out


@pytest.mark.rules("CKP-7")
def test_a_compiled_function_with_effects_is_refused_in_a_region(capsys):
    @al.compile
    def inner(x):
        al.effects.print("x is {}", x)
        return x.exp()

    x = al.ones(2).requires_grad_()
    with pytest.raises(al.TokenError, match="the effect 'print' is in a region"):
        al.checkpoint(inner, x)
    inner(x)
    with pytest.raises(al.TokenError, match="the effect 'print' is in a region"):
        al.checkpoint(inner, x)
    assert "x is [1. 1.]\n" == capsys.readouterr().out


@pytest.mark.rules("CKP-1")
def test_bad_arguments_are_named():
    with pytest.raises(al.ArgumentError, match="argument 'function' is 3, expected a function"):
        al.checkpoint(3)
    with pytest.raises(al.UnsupportedError, match="use_reentrant is True, expected False"):
        al.checkpoint(lambda x: x, al.ones(1), use_reentrant=True)


# ------------------------------------------------------------------------------------- the graphs
def _compiled(layers, partition="default", closed=False):
    compiled = al.compile(
        network(layers, al.checkpoint, closed=closed), partition=partition, backend="reference"
    )
    compiled(*leaves())
    return compiled


@pytest.mark.rules("CKP-8", "PART-17")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_the_arguments_of_regions_are_what_is_saved(partition):
    """Of three blocks in a row: the inputs of each, one weight, and the state of the draws."""
    block = ("matmul", "exp", "dropout", "softmax")
    compiled = _compiled((block, block, block), partition)
    saved = [value.name for value in compiled.partition.saved]
    owners = {str(value.owner) for value in compiled.partition.saved}
    assert {"primals_0", "primals_1", "seed", "offset"} <= set(saved)
    assert 6 == len(saved), "and what the first two blocks gave"
    assert {"primals_0", "primals_1", "None"} == owners
    again = random_ops(compiled.backward_graph)
    assert 3 == len(again)
    assert all(node.recompute is True and node.phase is Phase.BACKWARD for node in again)
    forward = [n.args[2] for n in random_ops(compiled.forward_graph)]
    assert sorted(forward) == sorted(n.args[2] for n in again), "the same places in the stream"


@pytest.mark.rules("CKP-8")
def test_nothing_of_a_region_is_merged_with_the_forward():
    compiled = _compiled((("matmul", "exp"),))
    dear = lambda graph: [n for n in graph.calls if n.target.cost is Cost.CONTRACTION]
    assert 1 == len(dear(compiled.forward_graph))
    assert 3 == len(dear(compiled.backward_graph)), "computed again, and two gradients"


@pytest.mark.rules("CKP-8")
def test_the_explanation_names_what_is_computed_again():
    from aotlite.inspect import explain_partition, stages_of
    from aotlite.partition import min_cut

    compiled = _compiled((("matmul", "exp", "dropout"),))
    text = explain_partition(compiled.partition)
    assert "Recomputed, as a checkpoint asks: matmul (contraction)" in text
    stages = stages_of(network((("matmul", "exp"),), al.checkpoint, closed=False), *leaves())
    tagged = [n for n in stages["simplify"].calls if n.recompute is True]
    reasons = {min_cut(stages["simplify"]).reason(n) for n in tagged}
    assert {"it is recomputed, as a checkpoint asks, from primals_0, primals_1"} == reasons


@pytest.mark.rules("CKP-9")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("kind", ["two", "masked"])
def test_regions_take_and_give_wrapper_subclasses(kind, compiles):
    from aotlite.subclasses.masked import MaskedTensor
    from aotlite.subclasses.two_tensor import TwoTensor

    made: Any = {
        "two": lambda: TwoTensor(al.ones(2), al.arange(2.0)),
        "masked": lambda: MaskedTensor(al.ones(2), al.tensor([True, False])),
    }[kind]
    found = []
    for call in (plainly, al.checkpoint):
        function = lambda x, call=call: call(lambda x: (x * al.rand(2)).exp() * x, x)
        run = al.compile(function, backend="reference") if compiles else function
        x = made().requires_grad_()
        al.manual_seed(2)
        y = run(x)
        y.sum().backward()
        grad: Any = x.grad
        parts = [part.tolist() for each in (y, grad) for part in inner_tensors(each).values()]
        found.append((parts, al.get_rng_state()))
    assert found[0] == found[1]


# --------------------------------------------------------------------------------- all that may be
def _keywords(x):
    made = al.checkpoint(
        lambda x, *, scale: {"a": (x * scale).exp(), "n": 3, "l": [x.sin(), None]}, x, scale=2.0
    )
    return made["a"] + made["l"][0] * made["n"]


def _hooked(x):
    y = x.exp()
    y.register_hook(lambda grad: grad * al.rand(3))
    return y.sin()


def _restoring(x, state):
    al.rand(2)
    al.set_rng_state(state)
    return x.exp() * al.rand(3)


def _asking(x):
    y = Drawing.apply(x * 2, DRAW, DRAW)
    (grad,) = al.autograd.grad(y.exp().sum(), [x], create_graph=True)
    return grad * al.rand(3) * x


def _asked(x):
    y = al.checkpoint(lambda x: x.exp() * al.rand(3), x)
    (grad,) = al.autograd.grad(y.sum(), [x], create_graph=True)
    return grad * al.rand(3) * x


LINEAR = al.nn.Linear(3, 3)
DRAW = (("draw", "rand"),)
KINDS = {
    "keywords and containers": _keywords,
    "containers of arguments": lambda x: al.checkpoint(
        lambda d: d["k"][0] * d["k"][1].exp(), {"k": [x, x * 2]}
    ),
    "a module": lambda x: al.checkpoint(LINEAR, x.view(1, 3)).tanh(),
    "a custom function": lambda x: al.checkpoint(lambda x: Drawing.apply(x.exp(), DRAW, DRAW), x),
    "a hook": lambda x: al.checkpoint(_hooked, x),
    "asks for a gradient": lambda x: al.checkpoint(_asking, x),
    "is asked for a gradient": _asked,
    "its argument": lambda x: al.checkpoint(lambda x: x, x) * 2,
    "a view of its argument": lambda x: al.checkpoint(lambda x: x.view(-1)[1:], x).exp(),
    "two results": lambda x: al.prod(
        al.stack(al.checkpoint(lambda x: (x.exp(), x.sin() * al.rand(3)), x)), 0
    ),
    "sets the seed": lambda x: al.checkpoint(
        lambda x: (al.manual_seed(4), x.exp() * al.rand(3))[1], x
    ),
    "restores a state": lambda x: al.checkpoint(_restoring, x, al.get_rng_state()),
}


@pytest.mark.rules("CKP-1", "CKP-3", "CKP-8", "CKP-9")
@pytest.mark.parametrize("kind", KINDS)
def test_regions_of_many_kinds_are_plain_calls_and_compile(kind, monkeypatch):
    function = KINDS[kind]

    def seen(run):
        LINEAR.zero_grad()
        x = al.ones(3).requires_grad_()
        al.manual_seed(2)
        y = run(x)
        between = al.get_rng_state()
        y.sum().backward()
        weight = LINEAR.weight.grad
        grads = [None if g is None else g.tolist() for g in (x.grad, weight)]
        return y.tolist(), grads, between, al.get_rng_state()

    found = [seen(function)]
    for options in ({"verify": True}, {"partition": "min_cut"}):
        found.append(seen(al.compile(function, backend="reference", **options)))
    monkeypatch.setattr(al, "checkpoint", lambda function, *args, **kw: function(*args, **kw))
    found.append(seen(function))
    assert found[0] == found[1] == found[2] == found[3]
