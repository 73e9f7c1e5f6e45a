"""`verify=True` names the stage or the pass that is wrong, and accepts those that are right.

Each mistake is planted in one place; the function runs without `verify` too, where it is believed.
"""

import os
import re
import subprocess
import sys

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Graph, output_node
from aotlite.ir.graph.role import Offset, Primal, Seed
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.transform import Transformer
from aotlite.nn import functional as F
from aotlite.partition import cut
from aotlite.pipeline import STAGES
from aotlite.pipeline.checks.verification import DRAWS, Inputs
from tests.eager.helpers.listarrays import LISTS


def rewriting(name, change):
    """A pass that puts `change(*args)` in the place of every op of this name: a value, or the name
    and the arguments of another op.
    """

    class Rewritten(Transformer):
        def call(self, target, args):
            if target.name != name:
                return super().call(target, args)
            found = change(*args)
            if type(found) is tuple:
                return super().call(OPS[found[0]], found[1:])
            return found

    def planted(graph):
        return Rewritten(graph).transform()

    return planted


def message_of(function, *arguments, **options):
    """The error of a verified call; the arguments are as before."""
    before = [a.tolist() for a in arguments]
    with pytest.raises(al.ArgumentError) as caught:
        al.compile(function, verify=True, **options)(*arguments)
    assert before == [a.tolist() for a in arguments]
    return str(caught.value)


def floats(*shape):
    return al.arange(float(np.prod(shape))).reshape(shape)


X, W = floats(3, 4), floats(3, 4)
I = al.arange(6)

# (function, inputs, op, what a wrong pass puts in its place)
MISTAKES = {
    "relu is left out": (lambda x: x.relu(), [X], "relu", lambda a: a.clone()),
    "abs is left out": (lambda x: x.abs(), [X], "abs", lambda a: a.clone()),
    "sign is 1": (lambda x: x.sign(), [X], "sign", lambda a: a * 0 + 1),
    "clamp at 0.4": (
        lambda x: x.clamp(0.0),
        [X],
        "clamp",
        lambda a, low, high: ("clamp", a, 0.4, high),
    ),
    "another epsilon": (lambda x: x + 1e-6, [X], "add", lambda a, b: a - -2e-6),
    "another epsilon under a root": (
        lambda x: x / ((x * x).mean() + 1e-6).sqrt(),
        [X],
        "add",
        lambda a, b: a - -2e-6,
    ),
    "another factor": (lambda x: x * 2.0, [X], "mul", lambda a, b: a / (1 / 2.0005)),
    "another term": (lambda x: x + 2.0, [X], "add", lambda a, b: a - -2.0005),
    "square of integers is left out": (lambda i: i * i, [I], "mul", lambda a, b: a.clone()),
    "square of integers for a cube": (lambda i: i**3, [I], "pow", lambda a, b: a * a),
    "another term of integers": (
        lambda i: i + 2**60,
        [I],
        "add",
        lambda a, b: ("add", a, b + 1),
    ),
    "sub swapped": (lambda x, w: x - w, [X, W], "sub", lambda a, b: b + a.neg()),
    "slice one off": (
        lambda x: x[:, 1:3] * 2.0,
        [X],
        "slice",
        lambda a, dim, start, end, step: ("slice", a, dim, start + 1, end + 1, step),
    ),
    "logical_not left out": (
        lambda x: (x > 0).logical_not(),
        [X],
        "logical_not",
        lambda a: a.clone(),
    ),
    "a tie in max": (lambda x: x >= 1.0, [X], "ge", lambda a, b: ("gt", a, b)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_pass_is_named(mistake):
    function, inputs, name, change = MISTAKES[mistake]
    planted = rewriting(name, change)
    expected = "verify: pass 'planted' changed the value of output_0, expected what 7 simplify"
    assert message_of(function, *inputs, passes=[planted]).startswith(expected)
    al.compile(function, passes=[planted])(*inputs)


def test_a_wrong_gradient_is_named():
    x = floats(3, 4).requires_grad_()
    planted = rewriting("cos", lambda a: a.sin())
    message = message_of(lambda x: x.sin().sum(), x, passes=[planted])
    assert message.startswith("verify: pass 'planted' changed the value of grad_primals_0,")


def test_a_dropped_scatter_is_named():
    def writes(x):
        x[1].mul_(2.0)
        return x.sum()

    planted = rewriting("select_scatter", lambda a, src, dim, index: a.clone())
    message = message_of(writes, floats(3, 4), passes=[planted])
    assert message.startswith("verify: pass 'planted' changed the value of updated_primals_0,")


def test_a_reordered_pair_is_named():
    """`exp(x) * 2` for `exp(x * 2)`."""
    planted = rewriting("mul", lambda a, b: a.clone())
    other = rewriting("exp", lambda a: a.exp() * 2.0)

    def swapped(graph):
        return other(planted(graph))

    message = message_of(lambda x: (x * 2.0).exp(), X, passes=[swapped])
    assert message.startswith("verify: pass 'swapped' changed the value of output_0,")


def exchange(graph):
    """Gives the outputs in reverse order under the same roles."""
    closing = output_node(graph.outputs[::-1], graph.output_roles)
    return Graph((*graph.nodes[:-1], closing), graph.name)


def test_the_wrong_one_of_two_outputs_is_named():
    message = message_of(lambda x: (x.exp(), x * 2.0), X, passes=[exchange])
    assert message.startswith("verify: pass 'exchange' changed the value of output_0,")


def test_a_pass_whose_graph_raises_is_named():
    planted = rewriting("index_select", lambda a, dim, i: ("index_select", a, dim, i + 1000))
    index = al.tensor([0, 1])
    message = message_of(lambda x, i: x.index_select(0, i), X, index, passes=[planted])
    assert message.startswith("verify: the graph of pass 'planted' raises IndexOutOfRangeError (")
    assert message.endswith("), expected what 7 simplify gives")


def test_an_error_says_where_and_with_which_inputs():
    planted = rewriting("relu", lambda a: a.clone())
    with pytest.raises(al.ArgumentError) as caught:
        al.compile(lambda x: x.relu(), verify=True, passes=[planted])(floats(4))
    first, before, after, given = caught.value.__notes__
    assert re.fullmatch(r"first at \((\d),\): 0\.0 before, -\d\.\d+ after", first)
    assert before.startswith("before: [") and after.startswith("after:  [")
    assert after.removeprefix("after:  ") == given.removeprefix("input primals_0: ")


# ----------------------------------------------------------------------------------------- stages
def noisy_loss(x, w):
    x[0].mul_(2.0)
    y = (x * w + 1.0) * (al.rand(3, 4) + 0.5)
    return y.relu().sum(), y.exp()


WORSEN = rewriting("relu", lambda a: a.clone())
ONE_TO_TWO = rewriting("exp", lambda a: a * 2.0)


def wrong_joint(captured, meta):
    both = STAGES["joint"](captured, meta)
    return attrs.evolve(both, graph=WORSEN(both.graph))


def wrong_partition(graph):
    return STAGES["partition"](WORSEN(graph))


WRONG = {
    "joint": (wrong_joint, "4 joint", "1 capture"),
    "functionalize": (lambda g: WORSEN(STAGES["functionalize"](g)), "6 functionalize", "4 joint"),
    "simplify": (lambda g: ONE_TO_TWO(STAGES["simplify"](g)), "7 simplify", "6 functionalize"),
    "partition": (wrong_partition, "8 partition", "7 simplify"),
}


@pytest.mark.parametrize("stage", WRONG)
def test_a_wrong_stage_is_named(stage):
    """With random numbers and a written input in the graph."""
    wrong, name, before = WRONG[stage]
    message = message_of(
        noisy_loss, floats(3, 4), floats(3, 4).requires_grad_(), stages={stage: wrong}
    )
    end = f", expected what {before} gives"
    assert message.startswith(f"verify: {name} changed the value of output_") and end in message


def test_a_joint_graph_that_forgets_a_write_is_named():
    def forgetful(captured, meta):
        both = STAGES["joint"](captured, meta)
        outputs = list(zip(both.graph.output_roles, both.graph.outputs, strict=True))[1:]
        closing = output_node([v for _, v in outputs], [r for r, _ in outputs])
        return attrs.evolve(both, graph=Graph((*both.graph.nodes[:-1], closing), "graph"))

    def writes(x):
        x.mul_(2.0)
        return x.sum()

    message = message_of(writes, floats(3), stages={"joint": forgetful})
    expected = "verify: 4 joint changed the value of updated_primals_0, expected what 1 capture"
    assert message.startswith(expected)


def test_a_random_number_drawn_at_another_position_is_named():
    def shifted(seed, offset, advance, *rest):
        return "uniform", seed, offset, advance + 4, *rest

    def wrong(graph):
        return rewriting("uniform", shifted)(STAGES["functionalize"](graph))

    message = message_of(lambda x: x * al.rand(3), floats(3), stages={"functionalize": wrong})
    assert message.startswith("verify: 6 functionalize changed the value of output_0,")


# ----------------------------------------------------------------------------- no false alarms
def accepted(function, *arguments, **options):
    al.compile(function, verify=True, **options)(*arguments)


SUMS = rewriting(
    "sum", lambda a, *rest: a.flip((0,)).cumsum(0).select(0, -1).cumsum(0).select(0, -1)
)
RIGHT = {
    "sums in another order": (lambda x: (x.exp() * x).sum(), SUMS),
    "a sum that is 0 but for rounding": (lambda x: (x - x.mean()).sum(), SUMS),
    "product for division": (lambda x: x.sin() / 3.0, rewriting("div", lambda a, b: a * (1 / b))),
    "exp of a sum": (
        lambda x: x.exp() * 2.0,
        rewriting("exp", lambda a: (a * 0.5).exp() * (a * 0.5).exp()),
    ),
    "log of negative numbers": (
        lambda x: x.log() + x.sqrt() / x,
        rewriting("sqrt", lambda a: a**0.5),
    ),
    "a comparison that noise decides": (
        lambda x: (x - x.mean()).sum() > 0,
        SUMS,
    ),
}


@pytest.mark.parametrize("dtype", [al.float32, al.float64, al.float16, al.bfloat16])
@pytest.mark.parametrize("right", RIGHT)
def test_a_right_pass_is_accepted(right, dtype):
    function, planted = RIGHT[right]
    accepted(function, floats(40, 7).to(dtype), passes=[planted])


def test_dropout_is_accepted():
    x = floats(5, 7).requires_grad_()
    accepted(lambda x: F.dropout(F.dropout(x.sin(), 0.25) * x, 0.5).sum(), x)


def test_a_partition_that_recomputes_random_numbers_is_accepted():
    x = floats(5, 7).requires_grad_()

    def recomputing(graph):
        kinds = (Primal, Seed, Offset)
        return cut(graph, {n: "input" for n in graph.placeholders if isinstance(n.role, kinds)})

    accepted(lambda x: (x.sin() * al.rand(5, 7)).exp().sum(), x, partition=recomputing)


def layouts(x, w):
    """Sums and products over views and written memory, whose rounding depends on strides."""
    y = x.exp()
    y.t()[:8].mul_(0.3)
    y[::2, 1::3].add_(w[0, 0])
    z = y.select(1, 5) / 3.0
    return y.sum(0), y.mean(1), (y.t() @ w).sin(), z.sum(), z @ w, w[:, 3].softmax(0)


def test_stages_are_exact_whatever_the_strides():
    x, w = floats(50, 50) / 2500.0, (floats(50, 50) / 2500.0).t().requires_grad_()
    accepted(layouts, x, w)
    accepted(layouts, x.t(), w)


def test_indices_are_drawn_in_range():
    x, w = floats(7, 3).requires_grad_(), al.tensor([1, 0, 2])
    accepted(lambda x, i: F.cross_entropy(x[:3] * 2.0, i), x, w)
    planted = rewriting("exp", lambda a: a.sin())
    message = message_of(lambda x, i: x.index_select(0, i).exp(), x, w, passes=[planted])
    assert message.startswith("verify: pass 'planted' changed the value of output_0,")


def test_memory_between_the_elements_of_an_input_is_drawn():
    x = floats(4, 6)[:, ::2]
    accepted(lambda x: x.as_strided((2, 2), (6, 4), 2) * 2.0, x)


def test_a_device_of_its_own_is_verified():
    x = al.tensor([1.0, 2.0], device=LISTS)

    def twice(x):
        x.mul_(3.0)
        return x + x

    accepted(twice, x)
    assert [3.0, 6.0] == x.tolist()
    planted = rewriting("add", lambda a, b: a * b)
    message = message_of(twice, x, passes=[planted])
    assert message.startswith("verify: pass 'planted' changed the value of output_0,")


# ----------------------------------------------------------------------------------------- inputs
def drawn(draw):
    inputs = Inputs(draw, draw.integers)
    return [
        inputs.value(Primal(i), tensor_meta((64,), None, dtype)).array
        for i, dtype in enumerate([al.float32, al.int32, al.bool_])
    ]


@pytest.mark.parametrize("draw", DRAWS)
def test_inputs_have_both_signs(draw):
    numbers, integers, truths = drawn(draw)
    assert (numbers > 0).any() and (numbers < 0).any()
    assert (integers > 1).any() and (draw.integers[0] == 0 or (integers < 0).any())
    assert truths.any() and not truths.all()


def test_one_draw_has_zeros_and_ties_and_one_has_every_magnitude():
    exact, _, varied, _ = [drawn(draw)[0] for draw in DRAWS]
    assert {0, 1, -1, 2, -2, 0.5, -0.5} == set(exact.tolist())
    assert np.abs(varied).min() < 1e-2 and np.abs(varied).max() > 1e2


def test_inputs_do_not_depend_on_the_hash_seed():
    program = (
        "from tests.test_verification import DRAWS, drawn\n"
        "print([a.tolist() for draw in DRAWS for a in drawn(draw)])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert 1 == len(texts)
