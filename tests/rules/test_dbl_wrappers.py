"""DBL: derivatives of compiled functions of wrappers, to the third order, are eager's."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper
from aotlite.sharding import Mesh, Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor
from tests.rules.helpers.towers import ORDERS, close, gradients, history_of, many, weighted
from tests.subclasses.helpers.toys import Boxed, scaled

MESH = Mesh(2)


# ------------------------------------------------------------------------------------ operands
def dense(seed: int) -> Any:
    drawn = np.random.default_rng(seed).normal(size=(4, 4))
    return al.tensor((drawn * 0.5).tolist(), dtype=al.float64)


def masked(seed: int) -> Any:
    return MaskedTensor(dense(seed), dense(seed + 7) > -0.4)


def quantized(seed: int) -> Any:
    drawn = np.random.default_rng(seed).integers(-9, 9, size=(4, 4))
    values = al.tensor(drawn.tolist(), dtype=al.int8)
    return QuantizedTensor(values, al.tensor(0.125, dtype=al.float64))


def sharded(placement: Any) -> Callable[[int], Any]:
    return lambda seed: ShardedTensor.from_dense(dense(seed), MESH, placement)


MAKERS: dict[str, Callable[[int], Any]] = {
    "pair": lambda seed: TwoTensor(dense(seed), dense(seed + 3)),
    "masked": masked,
    "quantized": quantized,
    "rows": sharded(Shard(0)),
    "columns": sharded(Shard(1)),
    "replicated": sharded(Replicate()),
    "partial": sharded(Partial()),
    "scaled": lambda seed: scaled(dense(seed)),
    "boxed": lambda seed: Boxed(dense(seed)),
    "dense": dense,
}
"""Operands of 4 by 4."""

OTHERS = {
    "pair": ("pair",),
    "masked": ("masked", "dense"),
    "quantized": ("quantized", "dense"),
    "rows": ("rows", "columns", "partial", "dense"),
    "columns": ("columns", "replicated"),
    "replicated": ("replicated", "dense"),
    "partial": ("partial", "rows"),
    "scaled": ("scaled", "dense"),
    "boxed": ("boxed", "dense"),
}
"""What each goes together with."""


# ------------------------------------------------------------------------------------ programs
def renewed(x: Any, y: Any) -> Any:
    z = x * y
    z.mul_(0.5)
    return z


def row_written(x: Any, y: Any) -> Any:
    z = x * 1
    z[1].mul_(y[0])
    return z


ONE: dict[str, Callable[[Any], Any]] = {
    "sin": lambda x: x.sin(),
    "tanh": lambda x: x.tanh(),
    "turned": lambda x: x.t(),
    "detached": lambda x: x.detach() * x,
    "summed": lambda x: x * x.sum(0, keepdim=True),
    "reduced": lambda x: x * x.sum(),
    "softmax": lambda x: al.softmax(x, -1),
    "rows": lambda x: al.cat([x[2:], x[:2]]),
    "a column": lambda x: x[:, :1].expand(4, 4) * 1,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda x, y: x * y,
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y,
    "in place": renewed,
    "a row": row_written,
}

Program = tuple[tuple[Any, ...], ...]


@st.composite
def programs(draw: Any, first: str) -> tuple[str, str, Program, tuple[int, ...], bool]:
    """The first operand's kind and another's, steps with the places of their operands, results, and
    whether the operands are leaves."""
    second = draw(st.sampled_from(OTHERS[first]))
    steps: list[tuple[Any, ...]] = []
    for number in range(draw(st.integers(1, 4))):
        places = st.integers(0, number + 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(sorted(ONE))), draw(places)))
        else:
            steps.append((draw(st.sampled_from(sorted(TWO))), draw(places), draw(places)))
    count = len(steps)
    results = draw(st.lists(st.integers(2, count + 1), min_size=1, max_size=3, unique=True))
    return first, second, tuple(steps), tuple(results), draw(st.booleans())


def function_of(steps: Program, results: Sequence[int]) -> Callable[..., Any]:
    def function(*operands: Any) -> Any:
        values = list(operands)
        for name, *places in steps:
            table: dict[str, Any] = ONE if name in ONE else TWO
            values.append(table[name](*[values[place] for place in places]))
        return tuple([values[place] for place in results])

    return function


# ---------------------------------------------------------------------------------- derivatives
def shown(tensor: Any) -> Any:
    """A gradient by its class, its spec and its parts."""
    if tensor is None:
        return None
    if not is_wrapper(tensor):
        return tensor.tolist()
    names, spec = flatten(tensor)
    parts = [shown(getattr(tensor, name)) for name in names]
    return type(tensor).__name__, [*names], str(spec), parts, tensor.shape, str(tensor.dtype)


class Refused(Exception):
    """By DBL-1, or by TAN-5."""


Write = Callable[[int, Sequence[Any]], None]
"""Given the order that comes next, and the results."""


def tower(
    results: Sequence[Any],
    leaves: Sequence[Any],
    bits: int = -1,
    write: Write = lambda order, results: None,
) -> list[Any]:
    """Gradients of the results, of these, and so on; of those at the places that are set."""
    found: list[Any] = []
    current = [each for each in results if each.requires_grad]
    for order in range(ORDERS):
        write(order, results)
        current = [each for k, each in enumerate(current) if bits >> k & 1] or current[:1]
        if not current:
            break
        try:
            terms = list(weighted(current))
            ones = [al.ones_like(term.detach()) for term in terms]
            grads = gradients(terms, leaves, ones, create_graph=True, allow_unused=True)
        except al.AotliteError as error:
            assert not isinstance(error, al.GraphError), error
            if "(DBL-1)" in str(getattr(error, "__notes__", "")):
                raise Refused("DBL-1") from error
            if isinstance(error, al.TangentError):  # gradients of a class that has no other form
                raise Refused("TAN-5") from error
            return [*found, (order, type(error).__name__)]
        found.append([(shown(g), g is not None and g.requires_grad) for g in grads])
        current = history_of(grads)
    return found


def derivatives(
    function: Callable[..., Any],
    kinds: Sequence[str],
    *,
    leaves: bool = True,
    bits: int = -1,
    written: tuple[int, int] = (-1, 0),
) -> list[Any]:
    """The tower of a function; `written` says before which order what is written by the caller."""
    given_ = [MAKERS[kind](seed).requires_grad_() for seed, kind in enumerate(kinds)]
    pairs = zip(given_, kinds, strict=True)
    inner = [x if kind == "quantized" else x * 1 for x, kind in pairs]
    results = function(*(given_ if leaves else inner))
    results = results if isinstance(results, tuple) else (results,)

    def write(order: int, results: Sequence[Any]) -> None:
        targets = [*inner, *results]
        if order == written[0]:
            with al.no_grad():
                targets[written[1] % len(targets)].detach().mul_(1.25)

    return tower(results, given_, bits, write)


def check_programs(count: int, **options: Any) -> Counter[str]:
    """Checks as many programs of each kind of operand."""
    seen: Counter[str] = Counter()
    for kind in OTHERS:
        check_kind(kind, -(-count // len(OTHERS)), seen, options)
    return seen


def check_kind(kind: str, count: int, seen: Counter[str], options: dict[str, Any]) -> None:
    @many(count)
    @given(programs(kind), st.sampled_from([-1, 1, 2]), st.integers(-ORDERS, 2), st.integers(0, 4))
    def check(program: Any, bits: int, when: int, which: int) -> None:
        first, second, steps, results, leaves = program
        function, kinds = function_of(steps, results), (first, second)
        how: dict[str, Any] = {"leaves": leaves, "bits": bits, "written": (when, which)}
        seen["all"] += 1
        try:
            eager = derivatives(function, kinds, **how)
        except al.AotliteError:
            seen["refused in eager"] += 1
            return
        try:
            compiled = al.compile(function, **options)
            found = derivatives(compiled, kinds, **how)
        except (al.UnsupportedError, al.SubclassError):
            seen["not compiled"] += 1
            return
        except Refused as refused:
            seen[str(refused)] += 1
            return
        assert close(eager, found), f"{program} {how}\n{eager}\n{found}"
        seen[first] += len(eager) == ORDERS and type(eager[-1]) is list

    check()


@pytest.mark.slow("a few programs of each of nine kinds, to the third order")
@pytest.mark.rules("DBL-2", "SUB-24", "TAN-5", "TAN-6")
def test_derivatives_of_random_programs_of_wrappers_are_eagers() -> None:
    """Classes, specs, parts, Nones, whether they require grad, and errors."""
    seen = check_programs(45, backend="reference")
    assert seen["DBL-1"] + seen["not compiled"] == 0
    assert all(seen[kind] >= 2 for kind in OTHERS), seen


@pytest.mark.long
@pytest.mark.rules("DBL-2", "SUB-24")
@pytest.mark.parametrize(("backend", "count"), [("reference", 5000), ("auto", 500)])
def test_derivatives_of_many_random_programs_of_wrappers_are_eagers(
    backend: str, count: int
) -> None:
    seen = check_programs(count, backend=backend)
    print(f"{backend}: {dict(seen)}")
    assert seen["DBL-1"] + seen["not compiled"] == 0


# ---------------------------------------------------------------------------------- hand cases
class Cubed(al.autograd.Function):
    """Saves a part of a wrapper beside the wrapper."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x * x * 3


def hooked(x: Any) -> Any:
    y = x.sin()
    y.register_hook(lambda grad: grad * 2.0)
    return y * x


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "a user's function": lambda x, y: Cubed.apply(x.sin()) * y,
    "a hook": lambda x, y: hooked(x) + y,
    "a checkpoint": lambda x, y: al.checkpoint(lambda z: z.sin() * z, x) * y,
    "a dropout": lambda x, y: al.nn.functional.dropout(x.exp(), 0.5) * y,
    "a gradient inside": lambda x, y: gradients(
        (x * x * x * y), [x], al.ones_like(x.detach()), create_graph=True
    )[0],
    "two results and a view": lambda x, y: (x.t(), (x * y).exp(), x[1:].sum()),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "reference": {"backend": "reference"},
    "verified": {"verify": True},
    "general ways": {"fast_paths": False, "backend": "reference"},
    "min-cut": {"partition": "min_cut", "backend": "reference"},
    "decomposed": {"decompositions": al.decompositions.core_table(), "backend": "reference"},
}


def triples() -> Iterator[Any]:
    """A third of them without the long ones: each two of kind, function and option meet there."""
    all_of = [*map(enumerate, (["pair", "masked", "columns", "boxed"], FUNCTIONS, OPTIONS))]
    for triple in product(*all_of):
        marks = [pytest.mark.long] if sum(number for number, _ in triple) % 3 else []
        yield pytest.param(*[name for _, name in triple], marks=marks)


@pytest.mark.rules("DBL-2", "SUB-7")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(("kind", "name", "option"), list(triples()))
def test_third_derivatives_of_wrappers_are_eagers(kind: str, name: str, option: str) -> None:
    function = FUNCTIONS[name]

    def found(called: Callable[..., Any]) -> Any:
        al.manual_seed(5)
        return derivatives(called, (kind, kind)), al.get_rng_state()

    eager = found(function)
    assert len(eager[0]) == ORDERS
    assert close(eager, found(al.compile(function, **OPTIONS[option])))


@pytest.mark.rules("DBL-2")
def test_wrappers_that_are_only_made_inside_are_differentiated_with_the_rest() -> None:
    def found(called: Callable[..., Any]) -> Any:
        return derivatives(called, ("dense",))

    def function(x: Any) -> Any:
        kept = MaskedTensor(x.detach() * 1, x.detach() > 0.0)
        return (kept * x).filled(0.0) * x

    assert len(found(function)) == ORDERS
    assert close(found(function), found(al.compile(function)))


@pytest.mark.rules("DBL-2", "SUB-14")
def test_parts_that_require_grad_themselves_have_derivatives_of_their_own() -> None:
    def found(function: Callable[..., Any]) -> Any:
        a, b = dense(1).requires_grad_(), dense(2).requires_grad_()
        x = TwoTensor(a.detach(), b.detach()).requires_grad_()
        return tower([function(x, a)], [x, a])

    def function(x: Any, a: Any) -> Any:
        return x.sin() * TwoTensor(a * a, a.exp())

    try:
        eager = found(function)
    except al.AotliteError as error:
        pytest.fail(str(error))
    assert close(eager, found(al.compile(function)))


@pytest.mark.rules("DBL-2", "SAV-2", "SUB-15")
@pytest.mark.parametrize("kind", ["pair", "masked", "boxed"])
def test_wrappers_that_a_later_order_reads_and_are_written_are_an_error(kind: str) -> None:
    def error(function: Callable[..., Any], place: str) -> str | None:
        x = MAKERS[kind](1).requires_grad_()
        y = x * 1
        result = function(y)
        given_ = al.ones_like(result.detach()).requires_grad_() * 1
        [grad] = gradients([result], [x], [given_], create_graph=True)
        with al.no_grad():
            {"input": y, "result": result, "tangent": given_, "gradient": grad}[place].mul_(2)
        try:
            gradients([grad], [x], [al.ones_like(grad.detach())])
        except al.AutogradError as found:
            return str(found).partition("modified")[1]
        return None

    for function in (lambda x: x * x * x, al.exp, lambda x: x.sin() * 2.0):
        for place in ("input", "result", "tangent", "gradient"):
            assert error(function, place) == error(al.compile(function), place), place


@pytest.mark.rules("DBL-2")
@pytest.mark.parametrize("kind", ["pair", "masked", "columns"])
def test_nothing_of_the_callers_wrappers_is_kept_alive(kind: str) -> None:
    compiled = al.compile(lambda x, y: (x * y).tanh())
    x, y = (MAKERS[kind](seed).requires_grad_() for seed in (1, 2))
    out = compiled(x, y)
    [grad] = gradients([out], [x], [al.ones_like(out.detach())], create_graph=True)
    [second] = gradients([grad], [x], [al.ones_like(grad.detach())])
    things = (x, y, grad, out, second, *inner_tensors(x).values())
    alive = [weakref.ref(each) for each in things]
    del x, y, grad, out, second, things
    gc.collect()
    assert [None] * len(alive) == [each() for each in alive]


@pytest.mark.rules("DBL-2", "TAN-5")
def test_a_gradient_that_arrives_in_another_form_keeps_its_history() -> None:
    """A masked gradient of what expects a dense one, and the other way round."""

    def found(function: Callable[..., Any], weight: Callable[[int], Any]) -> Any:
        x = masked(1).requires_grad_()
        w = weight(2).requires_grad_()
        [grad] = gradients([function(x)], [x], [w * 1], create_graph=True)
        return tower([grad], [x, w])

    function: Callable[..., Any] = lambda x: x.sin() * x
    for weight in (masked, dense):
        eager = found(function, weight)
        assert len(eager) == ORDERS
        assert close(eager, found(al.compile(function), weight))


class Mute(Boxed):
    """Says what its gradients are in another form, without a history."""

    def __coerce_same_metadata_as_tangent__(self, spec: Any, kind: Any = None) -> Any:
        with al.no_grad():
            return self.inner * 1


@pytest.mark.rules("DBL-1", "TAN-5")
def test_a_form_that_loses_the_history_is_refused() -> None:
    x, w = dense(1).requires_grad_(), Mute(dense(2)).requires_grad_()
    out = al.compile(lambda x: x * x)(x)
    [grad] = gradients([out], [x], [w * 1], create_graph=True)
    assert grad.requires_grad
    with pytest.raises(al.AutogradError, match="first derivatives only") as caught:
        gradients([grad.sum()], [w])
    assert "arrived in another form" in caught.value.__notes__[0]


class Uneven(Boxed):
    """Its products are not linear: they are clamped."""

    @classmethod
    def __tensor_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        found = super().__tensor_dispatch__(func, types, args, kwargs)
        return cls(found.inner.clamp(-0.5, 0.5)) if func is al.ops.mul else found


@pytest.mark.rules("DBL-1")
def test_a_class_that_is_not_linear_takes_gradients_at_once_or_not_at_all() -> None:
    def found(function: Callable[..., Any], *, both: bool) -> Any:
        x = Uneven(dense(1)).requires_grad_()
        result = function(x)
        ones = Uneven(al.ones(4, 4, dtype=al.float64))
        [grad] = gradients([result], [x], [ones], create_graph=True)
        terms = [grad.sin(), result] if both else [grad.sin()]
        return shown(gradients(terms, [x], [ones] * len(terms))[0])

    def function(x: Any) -> Any:
        return x.sin() * x

    compiled = al.compile(function)
    assert close(found(function, both=False), found(compiled, both=False))
    with pytest.raises(al.AutogradError, match="arrive at a compiled call in two parts"):
        found(compiled, both=True)
