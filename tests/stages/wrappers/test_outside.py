"""Wrappers, and parts of wrappers, that compiled functions find outside their arguments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import nn
from aotlite.eager.subclass.protocol import flatten, inner_tensors, is_wrapper, unflatten
from aotlite.ir.errors import AotliteError
from aotlite.sharding import Mesh, Replicate, Shard, ShardedTensor
from aotlite.subclasses import MaskedTensor, QuantizedTensor, TwoTensor
from tests.stages.wrappers import test_attacks
from tests.stages.wrappers.helpers import cases
from tests.stages.wrappers.helpers.cases import Case, dense, nested, two
from tests.stages.wrappers.helpers.worlds import Pictures, world_after
from tests.stages.wrappers.test_programs import Program, programs

CASES: dict[str, Case] = {**cases.CASES, **test_attacks.CASES}
KEEP = al.tensor([True, False, True, True, False, True])
CLASSES: dict[str, Callable[[], Any]] = {
    "two": two,
    "nested": lambda: nested(6),
    "masked": lambda: MaskedTensor(dense(), KEEP.clone()),
    "sharded": lambda: ShardedTensor.from_dense(dense(), Mesh(2), Shard(0)),
    "replicated": lambda: ShardedTensor.from_dense(dense(), Mesh(2), Replicate()),
}


# ---------------------------------------------------------------------- programs, and their worlds
def from_parts(value: Any) -> Any:
    """A new wrapper of the parts that another one has, without its history."""
    if not is_wrapper(value):
        return value
    spec, meta = flatten(value)[1], value.meta
    return unflatten(type(value), inner_tensors(value), spec, meta.shape, meta.stride)


def ways(function: Callable[..., Any], kept: list[Any]) -> list[Callable[..., Any]]:
    """The function of what is kept outside: of it as it is, of other wrappers of its parts, both.

    The arguments are not looked at.
    """

    def whole(*_: Any) -> Any:
        return function(*kept)

    def parts(*_: Any) -> Any:
        return function(*map(from_parts, kept))

    def parts_last(*_: Any) -> Any:
        function(*kept)
        return function(*map(from_parts, kept))

    def parts_first(*_: Any) -> Any:
        function(*map(from_parts, kept))
        return function(*kept)

    return [whole, parts, parts_last, parts_first]


def world_outside(function: Callable[[], Any], make: Callable[[], Any], kept: list[Any]) -> Any:
    def made() -> tuple[Any, ...]:
        kept[:] = make()
        return tuple(kept)

    return world_after(lambda *_: function(), made)


@pytest.mark.rules("CAP-3", "SUB-3", "SUB-17")
@pytest.mark.thinned(11)
@pytest.mark.parametrize("name", CASES)
def test_programs_on_wrappers_and_parts_from_outside_leave_eagers_world(name: str) -> None:
    """A view of a wrapper that is made inside of tensors from outside is one of theirs."""
    function, make = CASES[name]
    kept: list[Any] = []
    for way in ways(function, kept):
        expected = world_outside(way, make, kept)
        compiled = al.compile(way, backend="reference")
        for _ in range(2):
            assert expected == world_outside(compiled, make, kept)
        assert len(compiled.entries) == 1


@pytest.mark.draws(long=400)
@pytest.mark.rules("CAP-3", "SUB-3", "SUB-17")
@settings(max_examples=120)
@given(programs, st.lists(st.booleans(), min_size=3, max_size=3))
def test_random_programs_on_wrappers_from_outside_leave_eagers_world(
    program: Program, passed: list[bool]
) -> None:
    """Some of the tensors are passed, the others kept outside: views of one base, and parts."""
    kept: list[Any] = []

    def function(*args: Any) -> Any:
        rest = iter(args)
        pairs = zip(passed, kept, strict=False)
        return program(*[next(rest) if is_passed else each for is_passed, each in pairs])

    def make() -> tuple[Any, ...]:
        kept[:] = program.arguments()
        return tuple(kept)

    def world(call: Callable[..., Any]) -> list[Any]:
        return world_after(lambda *args: call(*compress(args, passed)), make)

    try:
        expected = world(function)
    except AotliteError:
        return
    compiled = al.compile(function, backend="reference")
    assert expected == world(compiled)
    assert expected == world(compiled)


# ------------------------------------------------------------------- what only the backward touches
def hooked(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = x * 1
        y.register_hook(hook)
        return y * 2

    return function


class Own(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, read: Any, save: bool) -> Any:
        ctx.read = read
        ctx.save_for_backward(*([read()] if save else []))
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        factor = ctx.saved_tensors[0] if ctx.saved_tensors else ctx.read()
        return grad * factor, None, None


class Scaled(nn.Module):
    """Its backward reads what its forward does not."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Any) -> Any:
        return hooked(lambda grad: grad * self.weight.detach())(x)


def trained(function: Callable[[Any], Any], make: Callable[[], Any], kept: Any) -> list[Any]:
    """Results, gradients and what is outside, of two calls with their backwards."""
    pictures, seen = Pictures(), []
    for _ in range(2):
        x = make().requires_grad_()
        result = function(x)
        result.backward(al.ones_like(result.detach()))
        seen += [pictures.of(each) for each in (result.detach(), x.grad, kept)]
    return seen


def added(kept: Any, grad: Any) -> Any:
    kept.add_(1)
    return grad * 2


def with_default(kept: Any) -> Callable[[Any], Any]:
    def hook(grad: Any, factor: Any = kept) -> Any:
        return grad * factor

    return hooked(hook)


LATE: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "closure": lambda kept: hooked(lambda grad: grad * kept),
    "default": with_default,
    "written": lambda kept: hooked(lambda grad: added(kept, grad)),
    "written_and_read": lambda kept: hooked(lambda grad: added(kept, grad) * kept),
    "part": lambda kept: hooked(lambda grad: grad * next(iter(inner_tensors(kept).values())).sum()),
    "view": lambda kept: hooked(lambda grad: grad * from_parts(kept).view(2, 3).view(6)),
    "function": lambda kept: lambda x: Own.apply(x, lambda: kept, False),
    "saved": lambda kept: lambda x: Own.apply(x, lambda: kept, True),
    "saved_of_parts": lambda kept: lambda x: Own.apply(x, lambda: from_parts(kept), True),
}


@pytest.mark.rules("CAP-3", "SUB-4", "FUN-31")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize("kind", CLASSES)
def test_wrappers_that_only_a_backward_touches_are_inputs(kind: str, how: str) -> None:
    """They were once asked for their parts by no line, and their names were not defined."""
    make = CLASSES[kind]
    kept = make()
    expected = trained(LATE[how](kept), make, kept)
    kept = make()
    assert expected == trained(al.compile(LATE[how](kept), backend="reference"), make, kept)


@pytest.mark.parametrize("kind", CLASSES)
def test_parameters_that_only_a_backward_reads_are_inputs(kind: str) -> None:
    make = CLASSES[kind]
    expected = trained(Scaled(make()), make, None)
    assert expected == trained(al.compile(Scaled(make()), backend="reference"), make, None)


@pytest.mark.rules("FUN-31")
def test_a_saved_wrapper_of_tensors_from_outside_is_known_in_a_backward_with_hooks() -> None:
    kept = dense()

    def function(x: Any) -> Any:
        pair = TwoTensor(kept, kept)
        y = x * pair
        y.register_hook(lambda grad: grad * 3)
        return y.sin() * pair

    expected = trained(function, two, kept)
    assert expected == trained(al.compile(function, backend="reference"), two, kept)


# ------------------------------------------------------------------------- parts, wherever they lie
class Holder(nn.Module):
    shared = two(start=5.0)

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.read = read
        self.pair = nn.Parameter(two())
        self.register_buffer("quantized", QuantizedTensor.from_dense(dense()))
        self.sharded = CLASSES["sharded"]()
        self.masked = CLASSES["masked"]()
        self.several = [two(start=2.0), {"nested": (nested(6),)}]

    def forward(self, x: Any) -> Any:
        return x * self.read(self)


@pytest.mark.rules("CAP-3")
@pytest.mark.parametrize(
    "read",
    [
        lambda m: m.pair.a,
        lambda m: m.pair.a * m.pair,
        lambda m: m.quantized.scale,
        lambda m: m.quantized.values.to(al.float32) * m.quantized.scale,
        lambda m: m.sharded.to_local(1).sum(),
        lambda m: m.masked.filled(3.0) * m.masked.mask,
        lambda m: m.several[0].b + m.several[1]["nested"][0].a.b,
        lambda m: m.shared.a,
    ],
)
def test_parts_of_what_a_module_holds_are_found(read: Callable[[Any], Any]) -> None:
    """They were once said to be neither an argument nor found in a Module."""
    module = Holder(read)
    compiled = al.compile(module, backend="reference")
    for _ in range(2):
        expected, found = module(dense()), compiled(dense())
        assert Pictures().of(expected.detach()) == Pictures().of(found.detach())
        assert expected.requires_grad == found.requires_grad


@pytest.mark.rules("CAP-3")
def test_the_gradient_of_a_part_from_outside_is_its_own() -> None:
    leaf: Any = dense().requires_grad_()
    pair = TwoTensor(leaf, leaf * 2)

    def function(x: Any) -> Any:
        return x * pair.a + pair.b

    for run in (function, al.compile(function, backend="reference")):
        leaf.grad = None
        run(al.ones(6)).sum().backward(retain_graph=True)
        assert leaf.grad.tolist() == [3.0] * 6


# ----------------------------------------------------------------------------- what changes outside
Change = Callable[[dict[str, Any]], Any]


CHANGES: dict[str, tuple[Callable[[], dict[str, Any]], Callable[..., Any], list[Change]]] = {
    "another wrapper": (
        lambda: {"pair": two()},
        lambda d, x: x * d["pair"].a,
        [lambda d: d.update(pair=two(start=4.0)), lambda d: d.update(pair=nested(6).a)],
    ),
    "another part": (
        lambda: {"pair": two()},
        lambda d, x: x * d["pair"].a,
        [lambda d: setattr(d["pair"], "a", dense(start=3.0)), lambda d: _same_parts(d["pair"])],
    ),
    "another object that is a part": (
        lambda: {"pair": (pair := two()), "part": pair.a},
        lambda d, x: d["part"] * x + d["pair"].a,
        [lambda d: setattr(d["pair"], "a", dense(start=3.0)), lambda d: d.update(part=dense())],
    ),
    "a part that is the wrapper's no longer": (
        lambda: {"pair": (pair := two()), "part": pair.a},
        lambda d, x: d["part"] * x + d["pair"],
        [lambda d: setattr(d["pair"], "a", dense(start=3.0)), lambda d: d.update(part=dense())],
    ),
    "a part that two wrappers share": (
        lambda: {"pair": (pair := two()), "other": TwoTensor(pair.a, dense())},
        lambda d, x: d["pair"].a * x + d["other"],
        [lambda d: d.update(other=two(start=7.0)), lambda d: d.update(pair=two(start=8.0))],
    ),
    "a part in a part": (
        lambda: {"pair": nested(6)},
        lambda d, x: x * d["pair"].a.b,
        [
            lambda d: setattr(d["pair"], "a", two(start=3.0)),
            lambda d: setattr(d["pair"].a, "b", dense(start=9.0)),
        ],
    ),
    "a spec that Python reads": (
        lambda: {"pair": CLASSES["sharded"]()},
        lambda d, x: x * (2 if d["pair"].placement == Shard(0) else 3),
        [lambda d: d.update(pair=CLASSES["replicated"]())],
    ),
    "a spec that Python reads beside a part": (
        lambda: {"pair": CLASSES["sharded"]()},
        lambda d, x: x * d["pair"].to_local(0).sum() * len(str(d["pair"].placement)),
        [lambda d: d.update(pair=CLASSES["replicated"]())],
    ),
    "whether a part is an object": (
        lambda: {"pair": two(), "part": dense()},
        lambda d, x: x * (2 if d["pair"].a is d["part"] else 3),
        [lambda d: setattr(d["pair"], "a", d["part"]), lambda d: d.update(part=dense())],
    ),
    "a part that only the backward reads": (
        lambda: {"pair": two()},
        lambda d, x: hooked(lambda grad: grad * d["pair"].b)(x),
        [lambda d: d.update(pair=two(start=6.0)), lambda d: setattr(d["pair"], "b", dense())],
    ),
}


def _same_parts(pair: Any) -> None:
    pair.b = pair.a


@pytest.mark.rules("CAP-3", "CAP-12", "SUB-21")
@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_in_wrappers_outside_is_seen(name: str) -> None:
    make, function, changes = CHANGES[name]

    def run(compile: Callable[..., Any]) -> list[Any]:
        held = make()
        call = compile(lambda x: function(held, x))
        seen = trained(call, dense, None)
        for change in changes:
            change(held)
            seen += trained(call, dense, None)
        return seen

    assert run(lambda f: f) == run(lambda f: al.compile(f, backend="reference"))


@pytest.mark.rules("CAP-12", "SUB-21")
def test_another_wrapper_of_the_same_form_needs_no_other_entry() -> None:
    held = {"pair": two()}
    compiled = al.compile(lambda x: x * held["pair"].a, backend="reference")
    for start in (1.0, 2.0):
        held["pair"] = two(start=start)
        assert compiled(al.ones(6)).tolist() == held["pair"].a.tolist()
    assert len(compiled.entries) == 1


@pytest.mark.rules("CAP-8")
def test_a_part_of_an_argument_that_is_reached_past_it_is_refused_as_the_argument_is() -> None:
    """Where it is found again, if the next call has another argument, nobody can say."""

    class Bag:
        pair = two()

    bags = {id(Bag): Bag}
    compiled = al.compile(lambda x: x * vars(next(iter(bags.values())))["pair"].a)
    with pytest.raises(al.UnsupportedError, match="neither an argument nor found in"):
        compiled(Bag.pair)
