"""TAN-8, DBL-1, DBL-2: some gradients arrive, and users' Python runs in the backward.

A backward that is recorded again, for another set of gradients or for a derivative, runs users'
Python again. These are the programs that see a difference (decision 0021).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.role import Gradient
from aotlite.stages.s4_joint import joint

VALUES = [0.5, 2.0]
OUTSIDE = al.tensor([5.0, 6.0])
OTHER = al.tensor([7.0, 8.0])


class Settings(al.nn.Module):
    """A number that a backward reads in one of its branches."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0


SETTINGS = Settings()


class Identity(al.autograd.Function):
    """The identity; subclasses have the backwards."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.seen, ctx.buffer = [], x.detach() * 1
        return x * 1


class Caches(Identity):
    """Keeps a value on the context for the next backward."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if not hasattr(ctx, "factor"):
            ctx.factor = ctx.saved_tensors[0].cos()
        return grad * ctx.factor


class Counts(Identity):
    """Counts its backwards in a list on the context."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.seen.append(1)
        return grad * len(ctx.seen)


class Writes(Identity):
    """Writes memory that the forward made."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.buffer.add_(1)
        return grad * ctx.buffer


class Draws(Identity):
    """Draws where a gradient arrives."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * al.rand(2)


class Restores(al.autograd.Function):
    """Sets the generator in the backward to its state in the forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.state = al.get_rng_state()
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        al.set_rng_state(ctx.state)
        return grad * 2


class Seeds(Identity):
    """Sets the generator to a seed of its own."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        al.manual_seed(0)
        return grad * 3


class ReadsOutside(Identity):
    """Reads a tensor that is no argument."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * OUTSIDE


class Pair(al.autograd.Function):
    """Two results, whose backward gets None for an absent gradient; subclasses have it."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, x.detach().cos())
        ctx.seen = []
        return x * 1, x * 2


class OutsideOfABranch(Pair):
    """Reads a tensor from outside, if only the first gradient arrives."""

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        if second is None:
            return first * OTHER
        return second if first is None else first + second


class AttributeOfABranch(Pair):
    """Reads an attribute of a Module, if only the first gradient arrives."""

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        if second is None:
            return first * SETTINGS.scale
        return second if first is None else first + second


class SavedOfABranch(Pair):
    """Reads a saved tensor, if only the first gradient arrives."""

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        if second is None:
            return first * ctx.saved_tensors[1]
        return second if first is None else first + second


class CachesOfPair(Pair):
    """`Caches`, recorded for each set of gradients."""

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        if not hasattr(ctx, "factor"):
            ctx.factor = ctx.saved_tensors[0].cos()
        return (first if second is None else second) * ctx.factor


class CountsOfPair(Pair):
    """`Counts`, recorded for each set of gradients."""

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        ctx.seen.append(1)
        return (first if second is None else second) * len(ctx.seen)


SINGLE = (Caches, Counts, Writes, Draws, Restores, Seeds, ReadsOutside)
PAIRS = (OutsideOfABranch, AttributeOfABranch, SavedOfABranch, CachesOfPair, CountsOfPair)


def leaf() -> Any:
    return al.tensor(VALUES).requires_grad_()


def gradient_of(run: Any, arriving: int, *, create_graph: bool = False) -> Any:
    """The gradient of one leaf for some of the results, as bits, and the generator after it."""
    al.manual_seed(3)
    x = leaf()
    chosen = [r.sum() for k, r in enumerate(run(x)) if arriving >> k & 1]
    grad: Any = al.autograd.grad(sum(chosen), [x], create_graph=create_graph)[0]
    return grad.detach().numpy().round(4).tolist(), al.get_rng_state()


# ----------------------------------------------------------------------------- one set at a time
@pytest.mark.rules("TAN-8", "RNG-5", "FUN-31")
@pytest.mark.parametrize("custom", SINGLE)
@pytest.mark.parametrize("arriving", [1, 2, 3])
def test_what_runs_beside_an_absent_gradient_is_eagers(custom: Any, arriving: int) -> None:
    """The backward of all gradients was recorded first, and has changed what the context holds."""

    def function(x: Any) -> Any:
        return custom.apply(x) * OUTSIDE, x * 2

    compiled = al.compile(function, backend="reference")
    eager = gradient_of(function, arriving)
    assert eager == gradient_of(compiled, arriving) == gradient_of(compiled, arriving)


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize("custom", PAIRS)
@pytest.mark.parametrize("arriving", [1, 2, 3])
def test_what_sees_an_absent_gradient_is_eagers(custom: Any, arriving: int) -> None:
    """Each set of gradients has a recording, and none sees what another one has left behind."""
    compiled = al.compile(custom.apply, backend="reference")
    eager = gradient_of(custom.apply, arriving)
    assert eager == gradient_of(compiled, arriving) == gradient_of(compiled, arriving)


@pytest.mark.rules("TAN-8", "CAP-5")
def test_an_attribute_that_one_set_of_gradients_reads_is_guarded() -> None:
    """The call asks for it, before it is known which gradients arrive."""
    compiled, found = al.compile(AttributeOfABranch.apply, backend="reference"), []
    try:
        for SETTINGS.scale in (3.0, 7.0, 3.0):
            found.append(gradient_of(compiled, 1)[0])
    finally:
        SETTINGS.scale = 2.0
    assert [[3.0, 3.0], [7.0, 7.0], [3.0, 3.0]] == found
    assert 2 == len(compiled.entries)


@pytest.mark.rules("RNG-6", "TAN-8")
def test_a_state_that_one_set_of_gradients_sets_is_saved() -> None:
    """With both gradients the seed of the second backward is the last, and no state is read."""

    def function(x: Any) -> Any:
        first = al.rand(2) * x
        return Seeds.apply(first), Restores.apply(x)

    compiled = al.compile(function, backend="reference")
    for arriving in (3, 2, 1):
        assert gradient_of(function, arriving) == gradient_of(compiled, arriving)


# ------------------------------------------------------------------------- the user's own stages
def scaled(graph: Any) -> Any:
    """The graph with ten times each gradient."""
    from aotlite.ir.graph.builder import Builder
    from aotlite.ir.op import OPS

    build = Builder(graph.name)
    build.nodes = list(graph.nodes[:-1])
    build.source = graph.nodes[-2]
    values = [
        build.emit(OPS["mul"], (value, 10)) if isinstance(role, Gradient) else value
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
    ]
    return build.finish(values, graph.output_roles)


def once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A pass that rewrites the first graph that it gets, and returns all others as they are."""
    calls: list[Any] = []

    def changed(graph: Any) -> Any:
        calls.append(graph)
        return function(graph) if len(calls) == 1 else graph

    return changed


@pytest.mark.rules("TAN-8")
@pytest.mark.parametrize("how", ["stage", "pass"])
@pytest.mark.parametrize("arriving", [1, 2, 3])
def test_what_a_users_stage_made_of_the_graph_holds_for_each_set(how: str, arriving: int) -> None:
    """A replaced stage 4, and a pass, make one graph, from which each set's backward follows."""

    def mine(captured: Any, meta: Any) -> Any:
        both = joint(captured, meta)
        return attrs.evolve(both, graph=scaled(both.graph))

    def function(x: Any) -> Any:
        return x * 3, x * 2

    options: dict[str, Any] = {"stages": {"joint": mine}}
    if how == "pass":
        options = {"passes": [once(scaled)]}
    compiled = al.compile(function, backend="reference", **options)
    plain = gradient_of(function, arriving)[0]
    assert [10 * value for value in plain] == gradient_of(compiled, arriving)[0]


# ------------------------------------------------------------------------------------ derivatives
@pytest.mark.rules("DBL-1", "DBL-2")
@pytest.mark.parametrize("custom", [Caches, Counts])
@pytest.mark.parametrize("arriving", [1, 3])
def test_a_derivative_finds_contexts_as_the_forward_left_them(custom: Any, arriving: int) -> None:
    """Its recording is the second one: a value of the first one is none of its own, and a list on
    the context is not longer than in the first backward."""

    def function(x: Any) -> Any:
        return custom.apply(x * x), x.exp()

    def three(run: Any) -> list[Any]:
        x, found = leaf(), []
        value = sum(r.sum() for k, r in enumerate(run(x)) if arriving >> k & 1)
        for _ in range(3):
            grad: Any = al.autograd.grad(value, [x], create_graph=True)[0]
            found.append(grad.detach().numpy().round(3).tolist())
            if not grad.requires_grad:
                break
            value = grad.sum()
        return found

    compiled = al.compile(function, backend="reference")
    assert three(function) == three(compiled) == three(compiled)


@pytest.mark.rules("DBL-2")
def test_containers_on_a_context_are_put_back_as_they_were() -> None:
    """At any depth, and what is one list in two places is one list again."""

    class Nested(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            log: list[Any] = []
            log.append(log)
            ctx.seen, ctx.nested, ctx.gone = log, (log, {"log": log}, {1}), 1
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            assert ctx.seen is ctx.nested[0] is ctx.nested[1]["log"] is ctx.seen[0]
            ctx.seen.append(grad)
            ctx.nested[1][len(ctx.nested[1])] = grad
            ctx.nested[2].add(len(ctx.nested[2]) + 1)
            del ctx.gone
            return grad * (len(ctx.seen) + 10 * len(ctx.nested[1]) + 100 * len(ctx.nested[2]))

    compiled = al.compile(lambda x: Nested.apply(x), backend="reference")
    x = leaf()
    result = compiled(x).sum()
    for _ in range(2):
        grad: Any = al.autograd.grad(result, [x], create_graph=True)[0]
        assert [222.0, 222.0] == grad.tolist()


CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": list,
    "deque": deque,
    "bounded deque": lambda: deque(maxlen=2),
    "dict": dict,
    "ordered": OrderedDict,
    "default": lambda: defaultdict(list),
}


@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("kind", CONTAINERS)
def test_what_a_backward_adds_to_a_container_on_a_context_is_gone_at_the_next(kind: str) -> None:
    class Kept(al.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.kept = CONTAINERS[kind]()
            return x * x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            kept = ctx.kept[0] if kind == "default" else ctx.kept
            if isinstance(kept, dict):
                kept.setdefault("squared", x * x)
                return grad * 3.0 * kept["squared"]
            if not kept:
                kept.append(x * x)
            assert getattr(kept, "maxlen", None) in (None, 2)
            return grad * 3.0 * kept[0]

    x = leaf()
    found = al.compile(lambda x: Kept.apply(x), backend="reference")(x).sum()
    for factor, power in ((3.0, 2), (6.0, 1), (6.0, 0)):
        grad: Any = al.autograd.grad(found, [x], create_graph=True)[0]
        assert (factor * x.detach() ** power).tolist() == grad.tolist()
        found = grad.sum()


class Scales(Identity):
    """Multiplies by a tensor from outside, in both halves."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * OUTSIDE

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_tensors[0] * OUTSIDE


@pytest.mark.rules("DBL-1", "DBL-2", "SAV-3")
@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("is_written", [True, False])
def test_a_derivative_finds_tensors_from_outside(outer: bool, is_written: bool) -> None:
    """A backward that reads a global, which is an input of the call, is recorded after the call."""

    def function(x: Any) -> Any:
        return Scales.apply(x * x) * OUTSIDE if outer else Scales.apply(x * x)

    def two(run: Any) -> list[Any]:
        x, found = leaf(), []
        value = run(x).sum()
        if is_written:
            OUTSIDE.mul_(2.0)
        try:
            for _ in range(2):
                grad: Any = al.autograd.grad(value, [x], create_graph=True)[0]
                found.append(grad.tolist())
                value = grad.sum()
        except al.AutogradError:
            found.append("refused")
        finally:
            if is_written:
                OUTSIDE.div_(2.0)
        return found

    eager, compiled = two(function), two(al.compile(function, backend="reference"))
    if is_written and not outer:  # eager reads the new values at every order (SAV-3)
        assert [eager[0], "refused"] == compiled
    else:
        assert eager == compiled


# ----------------------------------------------------------------------------- random programs
KINDS = ("caches", "counts", "draws", "writes", "pair", "hook", "tell", "mul", "add_", "exp")
SEEN: list[Any] = []


def note(array: Any) -> None:
    SEEN.append(array.round(3).tolist())


class Tells(Identity):
    """Has an effect where a gradient arrives."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        al.effects.callback(note, grad)
        return grad * 2


CUSTOM = {"caches": Caches, "counts": Counts, "draws": Draws, "writes": Writes, "tell": Tells}


def step(kind: str, one: Any, other: Any) -> Any:
    if kind in CUSTOM:
        return CUSTOM[kind].apply(one)
    if kind == "hook":
        hooked = one * 1
        hooked.register_hook(lambda grad: grad + 0.5)
        return hooked
    if kind == "pair":
        first, second = CachesOfPair.apply(one)
        return first * second
    if kind == "add_":
        return (one * 1).add_(other)
    return one * other if kind == "mul" else (one * 0.25).exp()


def program_of(steps: list[tuple[str, int, int]], results: list[int]) -> Callable[..., Any]:
    def function(x: Any, w: Any) -> Any:
        values = [x, w]
        for kind, one, other in steps:
            values.append(step(kind, values[one % len(values)], values[other % len(values)]))
        return tuple([values[-1 - k % (len(values) - 2)] * 1 for k in results])

    return function


def story(run: Any, arriving: list[int]) -> Any:
    """For each set of gradients what the leaves get, the generator, and the effects."""
    SEEN.clear()
    al.manual_seed(5)
    leaves = [al.tensor(VALUES).requires_grad_(), al.tensor([-1.0, 0.25]).requires_grad_()]
    results, found = run(*leaves), []
    for bits in arriving:
        chosen = [r.sum() for k, r in enumerate(results) if bits >> k & 1 and r.requires_grad]
        if chosen:
            grads = al.autograd.grad(sum(chosen), leaves, retain_graph=True, allow_unused=True)
            shown = [None if g is None else g.numpy().round(3).tolist() for g in grads]
            found.append((shown, al.get_rng_state()))
        results = run(*leaves)
    return found, list(SEEN)


@pytest.mark.draws(long=300)
@pytest.mark.rules("TAN-8", "TOK-6", "RNG-5", "FUN-31")
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 4), st.integers(0, 4)),
        min_size=1,
        max_size=5,
    ),
    results=st.lists(st.integers(0, 3), min_size=2, max_size=3),
    arriving=st.lists(st.integers(1, 7), min_size=1, max_size=3),
)
@example(steps=[("caches", 0, 0), ("exp", 0, 0)], results=[0, 1], arriving=[1, 2, 3])
@example(steps=[("pair", 0, 0), ("counts", 0, 0)], results=[0, 1], arriving=[3, 1, 2])
def test_any_set_of_gradients_of_a_random_program_is_eagers(
    steps: list[tuple[str, int, int]], results: list[int], arriving: list[int]
) -> None:
    """Custom functions with state, draws, effects, hooks and writes, and results in drawn sets."""
    function = program_of(steps, results)
    compiled = al.compile(function, backend="reference")
    assert story(function, arriving) == story(compiled, arriving)
