"""Which ops a graph has: those that eager runs, and ops of the user's own as they are declared."""

import sys
from functools import partial

import pytest

import aotlite as al
from aotlite.eager.dispatch import _apply
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, DataOp
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.runs import bound, run
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES
from tests.helpers.own_ops import taken_out
from tests.laws.helpers.composites import arguments, call, entry, runs_data_op
from tests.samples import samples_of


@pytest.fixture
def registered():
    with taken_out():
        yield al.register_op


CAPTURED = [n for n, op in OPS.items() if not isinstance(op, DataOp) and n not in WITHOUT_SAMPLES]


@pytest.mark.rules("FUN-29")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CAPTURED)
def test_an_op_with_a_kernel_is_captured_as_itself(name):
    """Whatever it could be made of."""
    op = OPS[name]
    for sample in samples_of(name)[:3]:
        args = bound(op, sample)

        def function(*tensors, args=args):
            rest = iter(tensors)
            return run(op, tuple(next(rest) if isinstance(a, al.Tensor) else a for a in args))

        graph = al.capture(function)(*[each for each in args if isinstance(each, al.Tensor)])
        assert [name] == [n.target.name for n in graph.calls if n.target.name != "getitem"]


@pytest.mark.rules("FUN-29")
@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", sorted(COMPOSITES))
def test_a_composite_is_captured_as_ops_with_kernels(name):
    """Those that it runs eagerly: it is Python, and no op of the table."""
    sample = samples_of(entry(name))[0]
    if runs_data_op(name, *arguments(sample)):
        return
    args, kwargs = arguments(sample)
    first = args[:1] if args and isinstance(args[0], al.Tensor) else ()
    rest = args[len(first) :]

    def function(*first):
        return call(name, (*first, *rest), kwargs)

    graph = al.capture(function)(*first)
    assert eager_ops(lambda: function(*first)) == [
        node.target.name for node in graph.calls if node.target.name != "getitem"
    ]


def test_most_composites_run_ops():
    """Few give their argument, and make no graph in the test before."""
    samples = {name: samples_of(entry(name))[0] for name in sorted(COMPOSITES)}
    calls = {name: arguments(sample) for name, sample in samples.items()}
    run_none = [name for name, given in calls.items() if not eager_ops(partial(call, name, *given))]
    assert {"contiguous", "cpu", "positive", "to"} <= set(run_none)
    assert len(run_none) <= len(COMPOSITES) // 20


def eager_ops(action):
    """The names of the ops of the eager engine that an action runs, in order."""
    ran = []

    def heard(frame, event, _):
        if event == "call" and frame.f_code is _apply.__code__:
            ran.append(frame.f_locals["op"].name)

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        action()
    finally:
        sys.setprofile(before)
    return ran


@pytest.mark.rules("FUN-28")
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_an_own_op_that_gives_its_argument_has_results_of_their_own(registered, part, compiles):
    """It is declared to compute; that its kernel returns the operand's memory is not passed on."""
    keep = registered(
        "my_keep(Tensor self) -> Tensor",
        meta=lambda self: tensor_meta((len(range(3)[part]),), None, self.dtype, self.device),
        kernel=lambda xp, meta, a: a[part],
        vjp=None,
    )
    function = al.compile(lambda x: keep(x)) if compiles else keep
    for _ in range(5):  # straight-line code from the third call on
        x = al.ones(3)
        y = function(x)
        y.mul_(5)
        assert ([1.0] * 3, 0) == (x.tolist(), x.version)
        assert y.storage is not x.storage


@pytest.mark.rules("FUN-28")
def test_an_own_op_that_is_declared_to_write_does(registered):
    """Its in-place form is functionalized as any other: bases and views see the write."""
    registered(
        "my_negated(Tensor self) -> Tensor",
        meta=lambda self: self,
        kernel=lambda xp, meta, a: -a,
        vjp={"self": lambda grad: -grad},
        inplace=True,
    )

    def function(x):
        y = x * 1
        y[1:].my_negated_()
        x.t()[0].my_negated_()
        return y

    found = []
    for each in (function, al.compile(function)):
        leaf = al.arange(4, dtype=al.float64).view(2, 2).clone().requires_grad_()
        x = leaf * 1
        y = each(x)
        (y.sum() + x.sum()).backward()
        found.append((y.tolist(), x.tolist(), x.version, y.version, leaf.grad.tolist()))
    assert found[0] == found[1]
    assert [[0.0, 1.0], [-2.0, -3.0]] == found[0][0]
