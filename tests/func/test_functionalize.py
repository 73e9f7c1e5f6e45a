"""`functionalize(f)` does what `f` does, by ops that write nothing (FNT-1 to FNT-14)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.autograd import functional
from aotlite.func import functionalize, make_fx
from aotlite.ir.op import InplaceOp
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.ir.run.interpreter import ArrayValue
from benchmarks.alias_programs import PROGRAMS
from tests.func.random_programs import BOTH, survey
from tests.fx.test_reinplace import agree, allocated

BOTH_REMOVES = pytest.mark.parametrize("remove", BOTH)


FOUND = (10018, 30483, 51060, 51293, 142, 20078, 22284, 24910)
"""Seeds of programs that differed once: `resize_` before a write with a gradient, a result that the
tape saves, two writes without history through views, a hidden alias of a saved result; views of
leaves whose base is written, before and after that; a value that is saved behind a `resize_`."""


def test_random_programs_are_equal_with_both_remove() -> None:
    """The same that `python -m tests.func.random_programs` runs, of fewer programs."""
    tally = survey([*range(30), *FOUND])
    assert [] == tally.found
    assert tally.calls > 90
    assert sum(tally.refused.values()) < 0.2 * tally.calls


# ------------------------------------------------------------------------------- each rule
def tracked(*shape: int, factor: float = 1.0) -> Any:
    size = int(np.prod(shape))
    values = al.arange(1, size + 1, dtype=al.float32).reshape(shape) * factor
    return values.requires_grad_()


def scaled(x: Any, w: Any) -> Any:
    y = x * 2
    with al.no_grad():
        y[1].mul_(3)
    y[0].mul_(w)
    return y, y.t()


def gradients(function: Any) -> Any:
    x, w = tracked(2, 3), tracked(3, factor=2.0)
    first, second = function(x, w)
    (first * first).sum().backward()
    return first.tolist(), second.base is first, x.grad.tolist(), w.grad.tolist()


@pytest.mark.parametrize(
    "form",
    [
        functionalize,
        lambda f: functionalize(functionalize(f)),
        lambda f: al.compile(functionalize(f), backend="reference"),
        lambda f: functionalize(al.compile(f, backend="reference")),
        lambda f: functionalize(f, remove="mutations_and_views"),
    ],
    ids=["itself", "twice", "compiled", "of a compiled one", "views"],
)
def test_functionalize_composes(form: Any) -> None:
    assert gradients(scaled) == gradients(form(scaled))


def test_vjp_and_derivatives_inside_are_those_of_eager() -> None:
    def loss(x: Any) -> Any:
        y = x.clone()
        y[0].mul_(x[1])
        return y.sum()

    x, v = al.ones(2, 3) * 2, al.tensor(1.0)
    expected, found = functional.vjp(loss, x, v), functional.vjp(functionalize(loss), x, v)
    assert expected[1].tolist() == found[1].tolist()

    def inner(x: Any) -> Any:
        return al.autograd.grad(loss(x), x)[0]

    given = tracked(2, 3)
    assert inner(given).tolist() == functionalize(inner)(given).tolist()


@BOTH_REMOVES
def test_arguments_that_overlap_are_written_as_one_memory(remove: str) -> None:
    def write(a: Any, b: Any) -> Any:
        a.add_(10)
        b.mul_(2)
        return a + b

    for make in (
        lambda: (al.arange(6.0)[:4], al.arange(6.0)[2:]),
        lambda: (lambda base: (base[:4], base[2:]))(al.arange(6.0)),
        lambda: (lambda base: (base[:4], base.as_strided((4,), (1,), 1)))(al.arange(6.0)),
        lambda: (lambda base: (base[1:5], base.view(al.int32)[2:6]))(al.arange(6.0)),
        lambda: (lambda base: (base[1:5], base.detach()[2:6]))(al.arange(6.0)),
    ):
        pairs = [make(), make()]
        try:
            expected = write(*pairs[0])
        except al.AliasError:
            with pytest.raises(al.AliasError):
                functionalize(write, remove=remove)(*pairs[1])
            continue
        found = functionalize(write, remove=remove)(*pairs[1])
        assert expected.tolist() == found.tolist()
        assert [x.tolist() for x in pairs[0]] == [x.tolist() for x in pairs[1]]


@pytest.mark.parametrize("mode", ["eager", "compiled", "real", "fake"])
def test_storages_that_share_memory_are_one(mode: str) -> None:
    def write(x: Any, y: Any) -> Any:
        x[0] = 2
        y.mul_(3)
        return x + y

    x = al.ones(3)
    given = x, x.hidden_alias()
    pure = functionalize(write)
    if mode in ("real", "fake"):
        traced = make_fx(pure, tracing_mode=mode)(*given)
        x = al.ones(3)
        given, pure = (x, x.hidden_alias()), traced
    elif mode == "compiled":
        pure = al.compile(pure, backend="reference")
    assert [12.0, 6.0, 6.0] == pure(*given).tolist()
    assert [6.0, 3.0, 3.0] == x.tolist()


def test_nothing_is_written_if_the_function_raises() -> None:
    x = al.ones(3)

    def fails(x: Any) -> None:
        x.mul_(2)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        functionalize(fails)(x)
    assert ([1.0, 1.0, 1.0], 0) == (x.tolist(), x.version)


def test_writes_that_autograd_does_not_see_keep_the_history() -> None:
    def f(x: Any) -> Any:
        y = x * 3
        with al.no_grad():
            y.mul_(5)
        y.detach()[0].zero_()
        return y * x

    expected, found = tracked(3), tracked(3)
    for function, x in ((f, expected), (functionalize(f), found)):
        function(x).sum().backward()
    assert expected.grad.tolist() == found.grad.tolist()


def test_what_the_tape_saves_has_the_version_of_its_time() -> None:
    def f(x: Any) -> Any:
        y, t = x * 2, x * 1
        y.add_(1)
        t.exp_()
        return y, y * y, t

    found: list[Any] = []
    for function in (f, functionalize(f)):
        x = tracked(3)
        results = function(x)
        sum(each.sum() for each in results).backward()
        found.append(([each.version for each in results], x.grad.tolist()))
    assert ([1, 0, 1], found[0]) == (found[0][0], found[1])


def test_results_alias_as_in_eager() -> None:
    def f(x: Any) -> Any:
        y = x.t() + 1
        y[0].zero_()
        first, second = y.split(1)
        return x, x[0], y, y[1:], first, second, x.detach()

    x = al.ones(3, 2)
    same, row, y, rest, first, _, apart = functionalize(f)(x)
    assert (True, True, True) == (same is x, row.base is x, rest.base is y)
    assert (True, True) == (first.storage is y.storage, apart.storage is x.storage)
    assert (1, 2) == y.stride()
    first.add_(7)
    assert [7.0, 7.0, 7.0] == y[0].tolist()


def test_changes_of_objects_and_containers_are_the_callers() -> None:
    def f(x: Any, held: list[Any], named: dict[str, Any]) -> None:
        x.t_()
        held.append(held[0] * 2)
        held[0].add_(1)
        named["sum"] = held[0].sum()
        named["leaf"].requires_grad_()

    x, held, named = al.ones(2, 3), [al.ones(2)], {"leaf": al.ones(1)}
    functionalize(f)(x, held, named)
    assert (3, 2) == x.shape
    assert [[2.0, 2.0], [2.0, 2.0]] == [each.tolist() for each in held]
    assert (4.0, True) == (named["sum"].item(), named["leaf"].requires_grad)


def test_gradients_that_the_function_accumulates_are_the_callers() -> None:
    def f(x: Any) -> None:
        y = x.clone()
        y[0].mul_(3)
        y.sum().backward()

    x = tracked(2)
    functionalize(f)(x)
    functionalize(f)(x)
    assert [6.0, 2.0] == x.grad.tolist()


def test_numbers_and_draws_come_from_outside() -> None:
    def f(x: Any) -> Any:
        x.add_(1)
        if x.sum() > 3:
            x.mul_(int(x[0]))
        al.manual_seed(5)
        own = al.rand(1, generator=al.Generator().manual_seed(2)).item()
        return x[x > 1].tolist(), al.rand(2), float(x[0]), x.nonzero().shape, own

    expected, found = f(al.ones(3)), functionalize(f)(al.ones(3))
    assert expected[0] == found[0]
    assert expected[1].tolist() == found[1].tolist()
    assert expected[2:] == found[2:]


def test_modules_and_optimizers_are_written() -> None:
    def trained(form: Any) -> Any:
        al.manual_seed(0)
        model = al.nn.Sequential(al.nn.Linear(3, 2), al.nn.BatchNorm1d(2))
        optimizer = al.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        form(model)(al.rand(4, 3)).sum().backward()
        form(optimizer.step)()
        return [value.tolist() for value in model.state_dict().values()]

    assert trained(lambda f: f) == trained(functionalize)


def test_regions_of_checkpoint_have_the_gradients_of_eager() -> None:
    def region(y: Any) -> Any:
        z = y * 2
        z[0].sin_()
        return z.exp()

    expected, found = tracked(2, 3), tracked(2, 3)
    for function, x in ((lambda x: x, expected), (functionalize, found)):
        function(lambda x: al.checkpoint(region, x * 1))(x).sum().backward()
    assert expected.grad.tolist() == found.grad.tolist()


class Doubled(al.autograd.Function):
    """Its gradient is not that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 100


class Written(al.autograd.Function):
    """Writes its operand."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def test_custom_functions_keep_their_gradients() -> None:
    def f(x: Any) -> Any:
        y = Doubled.apply(x * 1)
        y[0].zero_()
        return y

    x = tracked(2)
    functionalize(f)(x).sum().backward()
    assert [0.0, 100.0] == x.grad.tolist()


def overlapping_written(x: Any, w: Any, log: list[Any]) -> Any:
    memory = x.detach()
    low, high = al.as_strided(memory, (3,), (1,), 0), al.as_strided(memory, (3,), (1,), 1)
    low, high = low.detach(), high.detach()
    low.mul_(w[:3])
    high.add_(w[1:])
    return low, high, memory


def written_through_detach(x: Any, w: Any, log: list[Any]) -> Any:
    y = x * 1
    apart = y.detach()
    apart.mul_(w)
    y.add_(1)
    return apart * w, apart, y


def put_onto_other_memory(x: Any, w: Any, log: list[Any]) -> Any:
    y = x * 5
    with al.no_grad():
        y.set_(w.detach())
    y.mul_(3)
    return y, w + 2


def grown(x: Any, w: Any, log: list[Any]) -> Any:
    y, z = x.detach(), w.detach().clone()
    row = z[1:]
    y.resize_(2, 3)
    z.resize_(5)
    y[1].add_(2)
    z.mul_(3)
    log.append(y.view(al.int32))
    return y, z, row, x


def written_where_empty(x: Any, w: Any, log: list[Any]) -> Any:
    y = x.detach() * 1
    y[0:0].add_(w.sum())
    return y, y.requires_grad


def hooked(x: Any, w: Any, log: list[Any]) -> Any:
    y = x * w
    y.register_hook(lambda grad: grad * len(log))
    y.register_hook(log.append).remove()
    x.register_hook(lambda grad: log.append(grad.tolist()))
    w.register_post_accumulate_grad_hook(lambda leaf: log.append(leaf.grad.tolist()))
    y[0].mul_(3)
    y.retain_grad()
    log.append(y)
    return y + y, y


def leaf_of_a_view(x: Any, w: Any, log: list[Any]) -> Any:
    y = x.detach().requires_grad_()
    y.register_hook(lambda grad: log.append(grad.tolist()))
    log.append(y)
    return y * y * w, y[1]


ALLOWED = [
    overlapping_written,
    written_through_detach,
    put_onto_other_memory,
    grown,
    written_where_empty,
    hooked,
    leaf_of_a_view,
]


@BOTH_REMOVES
@pytest.mark.parametrize("f", ALLOWED, ids=lambda f: f.__name__)
def test_histories_hooks_and_growing_memory_are_those_of_eager(f: Any, remove: str) -> None:
    def seen(function: Any) -> list[Any]:
        x, w = tracked(4), tracked(4)
        log: list[Any] = []
        found = [y for y in function(x, w, log) if isinstance(y, al.Tensor)]
        sum([y.sum() for y in found if y.requires_grad], al.zeros(())).backward()
        outs = [*found, x, w, *[each for each in log if isinstance(each, al.Tensor)]]
        grads = [None if y.grad is None else y.grad.tolist() for y in outs]
        memory = [y.untyped_storage().nbytes() for y in outs]
        shared = [[a.version, *[is_one(a, b) for b in outs]] for a in outs]
        told = [each for each in log if not isinstance(each, al.Tensor)]
        return [[y.tolist() for y in outs], grads, memory, shared, told]

    def is_one(a: Any, b: Any) -> bool:
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()

    assert seen(f) == seen(functionalize(f, remove=remove))


def test_a_list_that_a_hook_keeps_is_the_callers() -> None:
    """Also while the function runs: so it is given back as it was, if that raises."""
    found = [al.ones(2)]

    def f(x: Any, log: list[Any]) -> Any:
        assert log is found and isinstance(log[0], al.Tensor)
        x.register_hook(lambda grad: log.append(grad))
        log.append(x)
        if x.numel() == 1:
            raise KeyError
        return x * 2

    x = tracked(2)
    functionalize(f)(x, found).sum().backward()
    assert [1.0, 1.0] == found[0].tolist() and found[1] is x and [2.0, 2.0] == found[2].tolist()
    with pytest.raises(KeyError):
        functionalize(f)(x[:1], found)
    assert 3 == len(found) and found[1] is x


REFUSED: list[tuple[str, Any, str]] = [
    (
        "a hook of a node",
        lambda x, w: (x * 1).grad_fn.register_hook(print),
        "a hook of a tape node",
    ),
    ("a hook of a view", lambda x, w: (x * 1)[0].register_hook(print), "a hook of a view"),
    ("numpy", lambda x, w: x.detach().numpy(), "numpy"),
    ("custom", lambda x, w: Written.apply(x * 1), "a custom Function, Written"),
]


@pytest.mark.parametrize(("f", "words"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_no_value_says_is_refused(f: Any, words: str) -> None:
    x, w = tracked(2), tracked(2)
    with pytest.raises(al.UnsupportedError, match=words) as caught:
        functionalize(f)(x, w)
    assert any("Instead: " in note for note in caught.value.__notes__)
    assert ([1.0, 2.0], 0) == (x.tolist(), x.version)


def test_a_refusal_that_the_function_catches_is_raised() -> None:
    def f(x: Any) -> Any:
        try:
            return x.numpy()
        except RuntimeError:
            return x

    with pytest.raises(al.UnsupportedError, match="numpy"):
        functionalize(f)(al.ones(2))


def test_the_state_of_a_functional_tensor_can_be_read() -> None:
    states: list[Any] = []

    def f(x: Any) -> Any:
        row, made = x.t()[0], al.ones(2)
        row.mul_(2)
        for tensor in (x, row, made):
            states.append(al.func.functional_state(tensor))
        assert al.func.is_functional_tensor(x)
        al.func.sync(x)
        states.append(al.func.functional_state(x))
        return x[1]

    x = al.ones(2, 3)
    functionalize(f)(x)
    whole, row, made, after = states
    assert (True, (), 1, (("t", "select"),), False) == (
        whole.is_from_outside, whole.views, whole.writes, whole.pending, whole.is_synced,
    )  # fmt: skip
    assert (("t", "select"), True) == (row.views, row.is_synced)
    assert (False, 0, True) == (made.is_from_outside, made.writes, made.is_synced)
    assert ((), True) == (after.pending, after.is_synced)
    assert (False, None) == (al.func.is_functional_tensor(x), al.func.functional_state(x))
    with pytest.raises(al.ArgumentError, match="sync: the tensor is"):
        al.func.sync(x)


@pytest.mark.parametrize("given", [3, "mutation"])
def test_wrong_arguments_are_named(given: Any) -> None:
    with pytest.raises(al.ArgumentError, match="functionalize: "):
        functionalize(given) if given == 3 else functionalize(print, remove=given)


# ------------------------------------------------------------------------------- whole graphs
def overlapping_values(graph: Any) -> list[ArrayValue]:
    """Two inputs on one memory, the second one element behind the first."""
    buffer = np.arange(1.0, 13.0, dtype="float32").view("uint8")
    return [ArrayValue(buffer, node.meta, 4 + k) for k, node in enumerate(graph.placeholders)]


@BOTH_REMOVES
@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_have_no_writes_but_the_closing_copies(name: str, remove: str) -> None:
    """`reinplace` of them gives equal graphs, which allocate no more than eager does."""
    program = PROGRAMS[name]
    with al.no_grad():
        pure = functionalize(partial(program.body, al), remove=remove)
        traced = make_fx(pure, tracing_mode="fake")(*program.arguments(al))
    graph = traced.graph.ir_graph()
    writes = [node.target for node in graph.calls if isinstance(node.target, InplaceOp)]
    assert {COPY_} >= set(writes)
    with al.no_grad():
        captured = al.capture(partial(program.body, al))(*program.arguments(al))
    given = partial(overlapping_values, graph) if name.startswith("overlapping_arguments") else None
    assert allocated(agree(graph, given)) <= allocated(captured)
