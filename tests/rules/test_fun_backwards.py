"""FUN-31 to FUN-33, SAV-3: what users' Python does to memory while a backward runs is eager's."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers.backwards import REFUSED, Forward, Program, Step, story

A, B, C = 0, 1, 2
"""Numbers of memories: the first two are inputs, the last is what the forward makes."""

WRITES = ("add", "mul", "copy_grad", "zero", "add_row", "add_to_view", "add_current")

STEPS = st.builds(
    Step,
    memory=st.sampled_from((A, B, C)),
    write=st.sampled_from((None, *WRITES)),
    reads=st.sampled_from((None, "stashed", "saved", "view")),
    materialize=st.booleans(),
    hook=st.booleans(),
)


@st.composite
def programs(draw: Any) -> Program:
    """One to three custom functions in a row or side by side, and what is done around them."""
    steps = tuple(draw(st.lists(STEPS, min_size=1, max_size=3)))
    places = st.sets(st.integers(0, len(steps) - 1), min_size=1)
    return Program(
        steps=steps,
        forward=Forward(
            chained=draw(st.booleans()),
            writes=draw(st.sampled_from((None, A, B, C))),
            before=draw(st.booleans()),
            returns=draw(st.sampled_from(("none", "memory", "view"))),
        ),
        between=draw(st.sampled_from((None, A, B))),
        arriving=tuple(sorted(draw(places))),
        again=draw(st.booleans()),
        partition=draw(st.booleans()),
    )


@pytest.mark.draws(long=500)
@pytest.mark.rules("FUN-31", "FUN-32", "FUN-33", "SAV-3", "TAN-8", "SAV-5")
@settings(max_examples=55)
@example(Program((Step(A, "add", None),)))
@example(Program((Step(A, "add", None),), Forward(writes=A), again=True))
@example(Program((Step(C, "add", None),), Forward(returns="memory"), again=True))
@example(Program((Step(A, "add", "stashed"), Step(A, "mul", "stashed")), arriving=(1,)))
@example(Program((Step(A, None, "stashed"),), between=A, partition=True))
@example(Program((Step(A, None, "stashed"),), Forward(writes=A), between=A))
@example(Program((Step(A, None, "view"),), Forward(writes=A, before=True), between=A))
@given(program=programs())
def test_backwards_that_write_memory_are_those_of_eager(program: Program) -> None:
    """Values, versions, gradients, errors; after the call, after a backward, after a second one."""
    eager, compiled = story(program, compiled=False), story(program, compiled=True)
    assert compiled in (eager, [REFUSED])
    if compiled == [REFUSED]:  # eager fails, too, where all gradients arrive
        everything = attrs.evolve(program, arriving=tuple(range(len(program.steps))))
        assert "AutogradError" == story(everything, compiled=False)[-1]


class Written(al.autograd.Function):
    """Calls what it is given on a tensor in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, tensor: Any, how: Any) -> Any:
        ctx.tensor, ctx.how = tensor, how
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.how(ctx.tensor, grad)
        return grad * 3, None, None


def _both(how: Any, buffer: Any, use: Any = None) -> list[Any]:
    """What is seen of a backward that does this to a buffer, eager and compiled."""

    def f(x: Any, buffer: Any) -> Any:
        return Written.apply(x, buffer, how)

    found: list[Any] = []
    for run in (f, al.compile(f)):
        x, mine = al.ones(2).requires_grad_(), buffer()
        try:
            out = run(x, mine)
            (use or (lambda out, x: out.sum().backward()))(out, x)
            found.append((mine.tolist(), mine._version, mine.requires_grad, x.grad is not None))
        except al.AotliteError as error:
            found.append((mine.tolist(), mine._version, type(error)))
    return found


@pytest.mark.rules("FUN-31")
def test_a_backward_writes_a_leaf_that_requires_grad():
    """Data only: its history does not change."""
    eager, compiled = _both(lambda t, grad: t.add_(1), lambda: al.ones(2).requires_grad_())
    assert eager == compiled == ([2.0, 2.0], 1, True, True)


@pytest.mark.rules("FUN-31")
def test_a_backward_with_grad_mode_on_writes_no_leaf_that_requires_grad():
    def use(out: Any, x: Any) -> None:
        al.autograd.grad(out.sum(), x, create_graph=True)

    eager, compiled = _both(lambda t, g: t.add_(1), lambda: al.ones(2).requires_grad_(), use)
    assert eager == compiled == ([1.0, 1.0], 0, al.AutogradError)


@pytest.mark.rules("FUN-31")
def test_a_backward_with_grad_mode_on_writes_constants_and_nothing_with_a_history():
    def use(out: Any, x: Any) -> None:
        (grad,) = al.autograd.grad(out.sum(), x, create_graph=True)
        assert grad is not None
        x.grad = grad.detach()

    eager, compiled = _both(lambda t, grad: t.add_(1), lambda: al.ones(2), use)
    assert eager == compiled == ([2.0, 2.0], 1, False, True)
    _, compiled = _both(lambda t, grad: t.add_(grad), lambda: al.ones(2), use)
    assert ([1.0, 1.0], 0, al.UnsupportedError) == compiled


@pytest.mark.rules("FUN-31", "GEN-2")
@pytest.mark.parametrize(
    "how", [lambda t, g: t.t_(), lambda t, g: t.squeeze_(0), lambda t, g: g.mul_(2)]
)
def test_a_backward_that_changes_a_geometry_or_its_gradient_is_refused_when_it_is_compiled(how):
    """Inputs are as they were, and nothing is lost silently."""
    buffer = al.ones(2, 3)
    compiled = al.compile(lambda x, buffer: Written.apply(x, buffer, how))
    with pytest.raises((al.UnsupportedError, al.AutogradError)):
        compiled(al.ones(2).requires_grad_(), buffer).sum().backward()
    assert ((2, 3), 0) == (buffer.shape, buffer._version)


@pytest.mark.rules("FUN-31", "TEN-31", "GEN-2")
def test_a_hook_that_writes_the_gradient_it_is_given_is_refused():
    """It may be the caller's own tensor."""

    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad.mul_(5))
        return y + 0

    with pytest.raises(al.UnsupportedError, match="^joint: mul_ in a backward on the gradient"):
        al.compile(f)(al.ones(2).requires_grad_())


@pytest.mark.rules("FUN-31", "RT-10")
def test_a_backward_that_cannot_write_leaves_all_as_it_was():
    """Eager writes the first buffer before it meets the read-only one."""
    import numpy as np

    class Two(al.autograd.Function):
        @staticmethod
        def forward(ctx, x, a, b):
            ctx.buffers = a, b
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            for buffer in ctx.buffers:
                buffer.add_(1)
            return grad, None, None

    fixed = np.ones(2, np.float32)
    fixed.flags.writeable = False
    x, a, b = al.ones(2).requires_grad_(), al.ones(2), al.from_numpy(fixed)
    y = al.compile(Two.apply)(x, a, b)
    with pytest.raises(al.ArgumentError, match="argument 2 is read-only memory"):
        y.sum().backward()
    assert ([1.0, 1.0], 0, None) == (a.tolist(), a._version, x.grad)


BUFFER = al.zeros(2)


class Counting(al.autograd.Function):
    """Reaches a buffer that its forward does not know."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        BUFFER.add_(grad)
        return grad * BUFFER


@pytest.mark.rules("FUN-31")
def test_a_backward_reads_and_writes_a_tensor_that_only_it_reaches():
    found = []
    for run in (Counting.apply, al.compile(Counting.apply)):
        BUFFER.zero_()
        before, x = BUFFER._version, al.ones(2).requires_grad_()
        y = run(x).sum()
        seen = [BUFFER.tolist()]
        y.backward(retain_graph=True)
        y.backward()
        found.append((*seen, BUFFER.tolist(), BUFFER._version - before, x.grad.tolist()))
    assert found[0] == found[1] == ([0.0, 0.0], [2.0, 2.0], 2, [3.0, 3.0])


@pytest.mark.rules("FUN-31", "ALI-1", "GEN-2")
def test_an_input_that_a_backward_writes_overlaps_no_other():
    memory = al.ones(3)
    compiled = al.compile(lambda x, a, b: Written.apply(x, a, lambda t, g: t.add_(1)) + b)
    with pytest.raises(al.AliasError, match="overlap in memory and a backward writes argument 1"):
        compiled(al.ones(2).requires_grad_(), memory[:2], memory[1:])
    assert ([1.0, 1.0, 1.0], 0) == (memory.tolist(), memory._version)


@pytest.mark.rules("FUN-31", "GRD-2")
def test_an_entry_whose_backward_writes_is_not_valid_for_inputs_that_share_memory():
    """What it writes would be seen through the other input."""
    compiled = al.compile(lambda x, a, b: Written.apply(x, a, lambda t, g: t.add_(1)) + b)
    compiled(al.ones(2).requires_grad_(), al.ones(2), al.ones(2))
    memory = al.ones(3)
    with pytest.raises(al.AliasError):
        compiled(al.ones(2).requires_grad_(), memory[:2], memory[1:])


@pytest.mark.rules("FUN-31", "PART-8")
def test_what_a_backward_finds_and_leaves_are_inputs_and_outputs_of_its_graph():
    """By roles: the forward knows nothing of them, and saves no window on such memory."""
    compiled = al.compile(lambda x, b: Written.apply(x, b, lambda t, g: t.add_(1)))
    compiled(al.ones(2).requires_grad_(), al.ones(2))
    forward, backward = compiled.partition.forward, compiled.partition.backward
    assert ["primals_0", "primals_1"] == [str(node.role) for node in forward.placeholders]
    assert "current_primals_1" in [str(node.role) for node in backward.placeholders]
    assert ["grad_primals_0", "rewritten_primals_1"] == [str(r) for r in backward.output_roles]
    assert () == compiled.partition.saved


class Stashing(al.autograd.Function):
    """Its backward reads a tensor that it kept, unchecked."""

    @staticmethod
    def forward(ctx: Any, x: Any, tensor: Any) -> Any:
        ctx.tensor = tensor
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.tensor, None


def put(tensor: Any) -> None:
    with al.no_grad():
        tensor.set_(al.full((2, 2), 7.0))


@pytest.mark.rules("SAV-3", "GEN-2")
@pytest.mark.parametrize("change", [lambda t: t.t_(), put, lambda t: t.resize_(3, 2)])
def test_a_tensor_that_a_backward_reads_has_the_form_that_it_had(change: Any) -> None:
    """Eager's backward sees the object's new form, for which another graph would be needed."""
    x, tensor = al.ones(2, 2).requires_grad_(), al.arange(4.0).view(2, 2).clone()
    y = al.compile(Stashing.apply)(x, tensor)
    change(tensor)
    with pytest.raises(al.UnsupportedError, match="a tensor that the backward reads was"):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.rules("SAV-3")
def test_a_tensor_whose_form_the_function_changes_is_read_in_that_form() -> None:
    def f(x: Any, tensor: Any) -> Any:
        y = Stashing.apply(x, tensor)
        tensor.t_()
        return y

    found = []
    for run in (f, al.compile(f)):
        x, tensor = al.ones(2, 2).requires_grad_(), al.arange(4.0).view(2, 2).clone()
        y = run(x, tensor)
        tensor.mul_(2)
        y.sum().backward()
        assert x.grad is not None
        found.append((x.grad.tolist(), tensor.tolist()))
    assert found[0] == found[1]


@pytest.mark.rules("FUN-31", "RNG-5")
def test_a_backward_writes_what_it_draws():
    def f(x, b):
        return Written.apply(x, b, lambda t, g: t.add_(al.rand(2)))

    found = []
    for run in (f, al.compile(f), al.compile(f)):
        x, buffer = al.ones(2).requires_grad_(), al.ones(2)
        al.manual_seed(3)
        run(x, buffer).sum().backward()
        found.append((buffer.tolist(), al.get_rng_state()))
    assert found[0] == found[1] == found[2]
    assert (3, 4) == found[0][1]
