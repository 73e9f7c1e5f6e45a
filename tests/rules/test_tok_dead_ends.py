"""What a backward does on its way to no input: to leaves made inside, and to nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.subclasses import TwoTensor

SEEN: list[Any] = []
Step = tuple[str, int]


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def tell(grad: Any) -> None:
    """An effect that a hook can be: the gradient stays as it is."""
    al.effects.callback(note, grad.sum())


def note(array: Any) -> None:
    SEEN.append(array.item())


class Noisy(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * al.randint(1, 4, (4,))


class Loud(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x + x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        tell(grad * ctx.saved_tensors[0])
        return grad * 2


class Twice(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


class Broken(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise NotImplementedError("there is none")


def leaf(x: Any) -> Any:
    return x.detach().requires_grad_()


def unseen(x: Any) -> Any:
    """A view that requires grad if `x` does, and has no history (TEN-21)."""
    with al.no_grad():
        return x[:]


def hooked(x: Any, hook: Callable[[Any], Any] = tell) -> Any:
    y = x * 1
    y.register_hook(hook)
    return y * 1


def watched(x: Any, hook: Callable[[Any], Any] = tell) -> Any:
    """The value with a hook, where it can have one."""
    return hooked(x, hook) if x.requires_grad else x * 1


def dropped(x: Any) -> Any:
    return al.checkpoint(lambda z: z * al.randint(1, 4, (4,)) * z, x)


def derived(x: Any) -> Any:
    """A gradient with a history, of what draws in its backward."""
    inside = leaf(x)
    return al.autograd.grad((Noisy.apply(inside) * inside).sum(), inside, create_graph=True)[0]


STEPS: dict[str, Callable[[Any], Any]] = {
    "leaf": leaf,
    "unseen": unseen,
    "fresh": lambda x: al.full((4,), 2.0).requires_grad_(),
    "double": lambda x: x * 2,
    "square": lambda x: x * x,
    "tell": watched,
    "draw": lambda x: watched(x, lambda grad: grad * al.randint(1, 4, (4,))),
    "noisy": Noisy.apply,
    "loud": Loud.apply,
    "twice": Twice.apply,
    "checkpoint": dropped,
    "derived": derived,
}


def function(program: list[Step], results: list[int]) -> Callable[..., Any]:
    """Results are sums of two values each: some of their ways lead to inputs, some do not."""

    def f(x: Any, w: Any) -> Any:
        values = [x, w]
        for kind, of in program:
            values.append(STEPS[kind](values[of % len(values)]))
        made = values[2:]
        pairs = [(made[k % len(made)], made[k // 3 % len(made)]) for k in results]
        return tuple([one * 2 if one is other else one + other for one, other in pairs])

    return f


def story(run: Callable[..., Any], requires: tuple[bool, bool], how: str) -> Any:
    """What two calls and their backwards give and do."""
    SEEN.clear()
    al.manual_seed(5)
    inputs = [al.arange(4.0).add_(k).requires_grad_(yes) for k, yes in enumerate(requires)]
    told: list[Any] = []
    for _ in range(2):
        outs = [out for out in run(*inputs) if isinstance(out, al.Tensor)]
        told.append([(out.tolist(), out.requires_grad) for out in outs])
        told.append(_backward([out for out in outs if out.requires_grad], inputs, how))
        told.append([None if each.grad is None else each.grad.tolist() for each in inputs])
        told.append([al.get_rng_state(), list(SEEN)])
    return told


def _backward(outs: list[Any], inputs: list[Any], how: str) -> Any:
    ones = [al.ones(4) for _ in outs]
    wanted = [each for each in inputs if each.requires_grad]
    if how == "one":
        outs, ones = outs[-1:], ones[-1:]
    if how == "each":
        for out, one in zip(outs, ones, strict=True):
            out.backward(one, retain_graph=True)
    elif how == "asked" and outs and wanted:
        grads = al.autograd.grad(outs, wanted[:1], ones, allow_unused=True)
        return [None if grad is None else grad.tolist() for grad in grads]
    elif outs:
        al.autograd.backward(outs, ones)
    return None


@pytest.mark.draws(long=300)
@pytest.mark.rules("TOK-4", "TOK-6", "RNG-5", "RNG-11")
@settings(max_examples=45)
@given(
    st.lists(st.tuples(st.sampled_from(tuple(STEPS)), st.integers(0, 6)), min_size=1, max_size=5),
    st.lists(st.integers(0, 8), min_size=1, max_size=3),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(("all", "each", "one", "asked")),
    st.sampled_from(({}, {"partition": "min_cut"}, {"backend": "loops"})),
)
@example([("leaf", 0), ("tell", 2)], [3], (False, False), "all", {})
@example([("leaf", 0), ("noisy", 2)], [3], (False, False), "all", {})
@example([("fresh", 0), ("loud", 2)], [3], (False, False), "each", {})
@example([("leaf", 0), ("checkpoint", 2)], [3], (False, False), "all", {})
@example([("derived", 0)], [0], (False, False), "all", {})
@example([("unseen", 0), ("noisy", 2)], [3], (True, False), "all", {})
@example([("unseen", 0), ("loud", 2), ("double", 0)], [1, 2], (True, False), "each", {})
@example([("unseen", 0), ("noisy", 2), ("double", 0)], [7], (True, True), "asked", {})
@example([("leaf", 0), ("loud", 2), ("loud", 0)], [5], (True, False), "asked", {})
@example([("checkpoint", 0), ("leaf", 2), ("twice", 3)], [0, 1, 2], (False, False), "all", {})
def test_what_leads_to_no_input_happens_as_in_eager(
    program: list[Step],
    results: list[int],
    requires: tuple[bool, bool],
    how: str,
    options: dict[str, Any],
) -> None:
    """Whether it tells, draws or does nothing, and whether other ways lead to inputs or not."""
    f = function(program, results)
    options = {"backend": "reference", **options}
    assert story(f, requires, how) == story(al.compile(f, **options), requires, how)


@pytest.mark.rules("FUN-31", "TOK-4")
@pytest.mark.parametrize("requires", [False, True])
def test_a_hook_on_the_way_to_a_leaf_made_inside_writes(requires: bool) -> None:
    def f(x: Any, buffer: Any) -> Any:
        return hooked(leaf(x) * 2, lambda grad: (buffer.add_(grad), None)[1])

    run = al.compile(f, backend="reference")
    x, buffer = al.ones(3).requires_grad_(requires), al.zeros(3)
    for count in (1.0, 2.0):
        run(x, buffer).sum().backward()
        assert [count] * 3 == buffer.tolist()
    assert x.grad is None


@pytest.mark.rules("RNG-5", "RNG-6")
def test_a_hook_on_the_way_to_a_leaf_made_inside_sets_the_seed() -> None:
    run = al.compile(lambda x: hooked(leaf(x), lambda grad: (al.manual_seed(7), None)[1]))
    al.manual_seed(1)
    result = run(al.ones(2))
    assert (1, 0) == al.get_rng_state()
    result.sum().backward()
    assert (7, 0) == al.get_rng_state()


@pytest.mark.rules("TOK-4", "SUB-11")
@pytest.mark.parametrize("requires", [False, True])
def test_hooks_on_the_way_to_a_wrapper_made_a_leaf_inside_run(requires: bool) -> None:
    def hook(grad: Any) -> Any:
        tell(grad.a)
        return grad * al.rand(4)

    def f(x: Any) -> Any:
        return hooked(leaf(TwoTensor(x, x * 2)), hook)

    al.manual_seed(2)
    result = al.compile(f, backend="reference")(al.ones(4).requires_grad_(requires))
    result.backward(TwoTensor(al.ones(4), al.zeros(4)))
    assert [4.0] == SEEN
    assert (2, 4) == al.get_rng_state()


@pytest.mark.rules("TOK-4", "FUN-31")
def test_what_the_backward_alone_reaches_is_read_when_it_runs() -> None:
    """An input of the call that no op of the forward reads."""
    run = al.compile(
        lambda x, scale: hooked(leaf(x), lambda grad: tell(grad * scale)), backend="reference"
    )
    scale = al.ones(3)
    result = run(al.ones(3), scale)
    scale.mul_(5)
    result.sum().backward()
    assert [15.0] == SEEN


@pytest.mark.rules("JNT-15")
def test_a_backward_to_no_input_raises_what_eagers_raises() -> None:
    """When it runs, and not before, whatever the error is."""

    def f(x: Any) -> Any:
        return Broken.apply(leaf(x))

    for run in (f, al.compile(f, backend="reference")):
        result = run(al.ones(3))
        assert [2.0] * 3 == result.tolist()
        with pytest.raises(NotImplementedError, match="there is none"):
            result.sum().backward()


@pytest.mark.rules("TEN-41", "CAP-6")
def test_leaves_made_inside_are_refused_where_more_than_their_hooks_is_asked_for() -> None:
    """As results, and where `register_post_accumulate_grad_hook` shows them with their gradient."""
    returned = al.compile(lambda x: (lambda inside: (inside * 2, inside))(leaf(x)))
    with pytest.raises(al.UnsupportedError, match="a leaf that the function makes and returns"):
        returned(al.ones(2))

    def f(x: Any) -> Any:
        inside = leaf(x)
        inside.register_post_accumulate_grad_hook(lambda grown: tell(inside.grad))
        return inside * 2

    with pytest.raises(al.UnsupportedError, match="a leaf that the function makes, with a hook"):
        al.compile(f)(al.ones(2))


@pytest.mark.rules("GEN-5")
def test_a_backward_to_no_input_is_made_only_for_what_happens_in_it() -> None:
    def training(function: Callable[..., Any], *inputs: Any) -> bool:
        compiled = al.compile(function, backend="reference")
        compiled(*inputs)
        assert bool(compiled.meta.training) == (compiled.backward_graph is not None)
        return bool(compiled.meta.training)

    def told_before(x: Any) -> Any:
        tell(x)
        return leaf(x).exp()

    x = al.ones(4)
    assert not training(lambda x: leaf(x) * 2, x)
    assert not training(lambda x: hooked(leaf(x), lambda grad: grad * 2), x)
    assert not training(lambda x: dropped(leaf(x)) * al.rand(4), x)
    assert not training(told_before, x)
    assert not training(lambda x: Broken.apply(leaf(x)), x)
    assert training(lambda x: hooked(leaf(x)), x)
    assert training(lambda x: Noisy.apply(leaf(x)), x)
    assert training(lambda x: Noisy.apply(unseen(x)), al.ones(4).requires_grad_())
