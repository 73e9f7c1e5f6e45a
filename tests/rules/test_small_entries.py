"""What an entry of a compiled function is told by, and what it leaves behind: all of a kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import inspect, nn
from aotlite.eager.tensor_facts import facts_of
from aotlite.stages.records.guards.access_paths import AccessPath
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex

Function = Callable[..., Any]


# --------------------------------------------------------------------------------------- containers
@pytest.mark.rules("GEN-7")
def test_empty_containers_beside_tensors_are_passed_and_given_back() -> None:
    kinds: list[Any] = [[], (), {}, [[]], [{}, ()]]
    for empty, place in product(kinds, range(3)):
        compiled = al.compile(
            lambda *args: (args, next(a for a in args if type(a) is al.Tensor) * 2)
        )
        args: list[Any] = [al.ones(2), 3]
        args.insert(place, empty)
        for _ in range(2):
            given, doubled = compiled(*args)
            assert args[place] == given[place]
            assert [2.0, 2.0] == doubled.tolist()
        assert 1 == len(compiled.entries)


# -------------------------------------------------------------------------------------- who is who
def _equal(count: int, *, hashed: bool) -> list[Any]:
    class Equal(nn.Module):
        """One that says that all of its kind are equal."""

        def __init__(self, factor: float) -> None:
            self.factor = al.full((2,), factor)

        def forward(self, x: Any) -> Any:
            return x * self.factor

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    if not hashed:
        Equal.__hash__ = None  # type: ignore[assignment]
    return [Equal(float(number)) for number in range(count)]


@pytest.mark.rules("DUP-5")
def test_modules_are_told_apart_by_what_they_are_not_by_what_they_equal() -> None:
    for count, hashed in product((2, 3, 4, 5), (True, False)):
        compiled = al.compile(lambda x, *parts: _sum(x, parts))
        parts = _equal(count, hashed=hashed)
        for order in (parts, parts[::-1], parts):
            assert _sum(al.ones(2), order).tolist() == compiled(al.ones(2), *order).tolist()


def _sum(x: Any, parts: Any) -> Any:
    return functools.reduce(lambda total, part: total * 2 + part(x), parts, x)


@pytest.mark.rules("ALI-2", "GRD-1")
def test_inputs_that_do_not_overlap_may_lie_anywhere_in_their_memory() -> None:
    """All are written; nothing is compiled again for another distance."""
    for count in range(2, 7):
        compiled = al.compile(_add_all)
        for gap in (0, 1, 3):
            memory = al.zeros(count * 5)
            parts = [memory[i * (2 + gap) : i * (2 + gap) + 2] for i in range(count)]
            compiled(*parts)
            assert [[i + 1.0] * 2 for i in range(count)] == [part.tolist() for part in parts]
        assert 1 == len(compiled.entries), count


def _add_all(*parts: Any) -> None:
    for number, part in enumerate(parts, 1):
        part.add_(number)


# --------------------------------------------------------------------------------------- gradients
def _read_gradient(x: Any) -> Any:
    if x.grad is None:
        return x * 2
    return x * x.grad if x.grad.grad is None else x * x.grad.grad


@pytest.mark.rules("CAP-3", "GRD-1")
def test_a_gradient_that_is_read_is_the_one_of_then_or_none() -> None:
    """Of an argument, and of a tensor outside; and so is the gradient of that gradient."""
    for states in product((None, 3.0, 5.0), repeat=3):
        outside: Any = al.ones(2)
        argument: Any = al.ones(2)
        compiled = al.compile(_read_gradient)
        of_outside = al.compile(functools.partial(_read_gradient, outside))
        for state in (*states, *states):
            for x in (outside, argument):
                x.grad = None if state is None else al.full((2,), state)
                if state == 5.0:
                    x.grad.grad = al.full((2,), 7.0)
            expected = _read_gradient(argument).tolist()
            assert expected == compiled(argument).tolist() == of_outside().tolist(), states
        assert len(set(states)) == len(compiled.entries)


class _Nothing(al.autograd.Function):
    """Gives no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None


@pytest.mark.rules("RT-9")
def test_a_backward_that_reaches_no_input_leaves_all_as_it_was() -> None:
    """Also where each node's gradients are looked at."""
    for watched, hooked, as_gradients in product((False, True), repeat=3):
        for function in (_Nothing.apply, al.compile(_Nothing.apply)):
            x = al.ones(2, requires_grad=True)
            with al.autograd.detect_anomaly() if watched else nullcontext():
                result = function(x)
                if hooked:
                    result.grad_fn.register_hook(lambda found, given: None)
                if as_gradients:
                    (found,) = al.autograd.grad(result.sum(), [x], allow_unused=True)
                    assert found is None
                else:
                    result.sum().backward()
            assert x.grad is None


# ------------------------------------------------------------------------------------------- names
@pytest.mark.rules("GEN-9")
def test_the_run_time_function_has_the_functions_name_where_python_takes_it() -> None:
    names = {"f": "f", "a_b1": "a_b1", "_": "_", "class": "call", "a b": "call", "1a": "call"}
    names |= {"__debug__": "call", "ﬁ": "call", "é": "call", "<lambda>": "call", "leaves": "leaves"}
    for name, expected in names.items():
        made: Any = eval("lambda x: x * 2")
        made.__name__ = name
        compiled = al.compile(made)
        assert [2.0] == compiled(al.ones(1)).tolist()
        assert f"def {expected}(leaves):" in compiled.source
        assert expected == compiled.entries[0].guarded.call.__name__


@pytest.mark.rules("CAP-4", "GRD-1")
def test_what_a_class_says_of_itself_is_not_what_its_objects_are_told_by() -> None:
    class Doubles:
        """Doubles."""

        factor = 2

        def __call__(self, x: Any) -> Any:
            return x * self.factor

    compiled = al.compile(Doubles())
    for name, value in (("__doc__", "Other words."), ("__module__", "elsewhere"), ("factor", 3)):
        compiled(al.ones(1))
        setattr(Doubles, name, value)
        assert [1.0 * Doubles.factor] == compiled(al.ones(1)).tolist()
        assert (2 if name == "factor" else 1) == len(compiled.entries), name


@pytest.mark.rules("CAP-4")
def test_what_aotlites_own_functions_read_is_none_of_the_functions_places() -> None:
    ours = (al.ones, al.from_numpy, al.compile, nn.functional.relu)
    for count in range(1, len(ours) + 1):
        called = {f"f{number}": function for number, function in enumerate(ours[:count])}
        names: dict[str, Any] = {"__name__": "elsewhere", **called}
        exec(f"def function(x):\n    return {' + '.join([f'{name}(x)' for name in called])}", names)
        places = [place.path for place in AccessPathIndex(names["function"], []).roots()]
        assert [(("global", name),) for name in called] == places


# ------------------------------------------------------------------------------- results as eager's
SOURCES: dict[str, Callable[[], Any]] = {
    "plain": lambda: al.ones(2, 3),
    "a leaf": lambda: al.ones(2, 3, requires_grad=True),
    "a result": lambda: al.ones(2, 3, requires_grad=True) * 1,
    "a view of a leaf": lambda: al.ones(6, requires_grad=True).view(2, 3),
    "a view of a result": lambda: (al.ones(6, requires_grad=True) * 1).view(2, 3),
    "a view of no_grad": lambda: _in_no_grad(al.ones(6, requires_grad=True)),
    "a view of no_grad of a result": lambda: _in_no_grad(al.ones(6, requires_grad=True) * 1),
    "one of several": lambda: (al.ones(2, 2, 3, requires_grad=True) * 1).unbind()[0],
    "a detached leaf": lambda: al.ones(2, 3, requires_grad=True).detach(),
    "a view that is a leaf": lambda: al.ones(6).view(2, 3).requires_grad_(),
}
TAKEN: dict[str, Function] = {
    "t": lambda x: x.t(),
    "a part": lambda x: x[1:],
    "two views": lambda x: x.t()[1:],
    "detached": lambda x: x.detach(),
    "a view, detached": lambda x: x.t().detach(),
    "of a detached one": lambda x: x.detach().t(),
    "one of several": lambda x: x.unbind()[0],
    "one of several, viewed": lambda x: x.unbind()[0].view(3, 1),
    "a window": lambda x: x.as_strided((2,), (1,), 0),
    "in no_grad": lambda x: _in_no_grad(x),
    "in no_grad, viewed": lambda x: _in_no_grad(x).t(),
}


def _in_no_grad(x: Any) -> Any:
    with al.no_grad():
        return x.view(*x.shape) if x.dim() == 2 else x.view(2, 3)


@pytest.mark.rules("RT-6", "GRD-1")
def test_views_that_are_given_back_have_the_facts_of_eagers() -> None:
    """By these entries know them; by quick ways and by general ones; with and without a write."""
    for (name, make), (how, take), fast in product(SOURCES.items(), TAKEN.items(), (True, False)):
        compiled = al.compile(take, fast_paths=fast)
        eager, mine = make(), make()
        if not eager.is_contiguous():
            continue
        expected, found = take(eager), compiled(mine)
        assert facts_of(expected) is facts_of(found), (name, how, fast)
        assert facts_of(expected.view_as(expected)) is facts_of(found.view_as(found)), (name, how)
        assert facts_of(eager) is facts_of(mine), (name, how)


# ------------------------------------------------------------------------------------ their memory
@pytest.mark.rules("ALI-1", "GEN-7")
def test_results_on_parts_of_one_array_lie_on_it_in_any_order() -> None:
    """Where a tensor is passed besides, too: what is taken of an ndarray is one."""

    def body(*xs: Any) -> Any:
        first = xs[0]
        first *= 2
        return [x[:1] for x in xs[:3]]

    for order in permutations(range(3)):
        owner = np.arange(6.0)
        parts = [owner, owner[1:4], owner[2:]]
        results = al.compile(body)(*[parts[i] for i in order], al.ones(1))
        assert [parts[i][:1].tolist() for i in order] == [each.tolist() for each in results]
        owner += 1.0
        assert [parts[i][:1].tolist() for i in order] == [each.tolist() for each in results]


OWNERS: dict[str, Callable[[], Any]] = {
    "rows": lambda: np.zeros((3, 4)),
    "columns": lambda: np.zeros((3, 4), order="F"),
    "gaps": lambda: np.ndarray((3, 4), np.float64, bytearray(400), 0, (96, 16)),
}


@pytest.mark.rules("ALI-1", "GEN-7")
def test_parts_of_an_array_in_rows_are_one_memory_and_of_others_none() -> None:
    for name, make in OWNERS.items():
        for columns in product(range(3), repeat=2):
            owner = make()
            parts = [owner[:, at : at + 2] for at in columns]
            met = abs(columns[0] - columns[1]) < 2
            if name != "rows" and met:
                with pytest.raises(al.AliasError, match="by ndarrays"):
                    al.compile(_writes)(*parts)
                assert not owner.any()
            else:
                compiled = al.compile(_writes)(*parts)
                expected = make()
                expected[:, columns[0] : columns[0] + 2] += 1
                assert expected.tolist() == owner.tolist()
                assert (expected[:, columns[1] : columns[1] + 2] * 2).tolist() == compiled.tolist()


def _writes(x: Any, y: Any) -> Any:
    x += 1
    return y * 2


@pytest.mark.rules("FUN-11", "TEN-1")
def test_a_window_on_gaps_of_memory_made_inside_is_refused() -> None:
    for shape, stride in (((2,), (2,)), ((2, 2), (3, 1)), ((3,), (3,))):
        span = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))

        def body(x: Any, shape: Any = shape, stride: Any = stride, span: int = span) -> Any:
            made = al.empty_strided(shape, stride)
            made.fill_(1.0)
            return made.as_strided((span,), (1,)) * x

        with pytest.raises(al.UnsupportedError, match="reaches outside"):
            al.compile(body)(al.ones(()))


CHAINS: dict[str, Function] = {
    "one view": lambda x: x[1:],
    "two": lambda x: x[1:].t(),
    "a window": lambda x: x.as_strided((2, 2), (2, 1), 1),
    "a view of a window": lambda x: x.as_strided((2, 2), (2, 1), 1)[0],
    "a window on a view": lambda x: x.t().as_strided((2, 2), (2, 1), 1).t(),
    "a view of no_grad": lambda x: _in_no_grad(x).t(),
}


@pytest.mark.rules("SYN-4")
def test_a_member_is_seen_in_its_base_by_the_views_by_which_it_was_taken() -> None:
    for (name, take), tracked in product(CHAINS.items(), (False, True)):
        base = al.ones(2, 3, requires_grad=True) * 1 if tracked else al.ones(2, 3)
        part = take(base)
        if tracked and name == "a view of no_grad":
            continue
        (found,) = inspect.stages_of(_writes, base, part)["convention"].bases
        chains = [[step.op.name for step in member.chain] for member in found.members]
        assert [[], [step.op.name for step in part._chain]] == chains, (name, tracked)


class _Writing(al.autograd.Function):
    """Its backward writes a number into a memory."""

    @staticmethod
    def forward(ctx: Any, x: Any, memory: Any) -> Any:
        ctx.memory = memory
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.memory.fill_(3.0)
        return grad * 2, None


@pytest.mark.rules("FUN-31")
def test_a_leaf_is_written_by_a_backward_only_with_grad_mode_off() -> None:
    for tracked, create in product((False, True), repeat=2):
        found: list[Any] = []
        for run in (_Writing.apply, al.compile(_Writing.apply)):
            x, memory = al.ones(2, requires_grad=True), al.ones(2, requires_grad=tracked)
            result = run(x, memory).sum()
            try:
                al.autograd.grad(result, x, create_graph=create)
            except al.AutogradError as error:
                found.append(type(error))
            found.append((memory.tolist(), memory.version))
        half = len(found) // 2
        assert found[:half] == found[half:], (tracked, create)
        assert (tracked and create) == (al.AutogradError in found)


@pytest.mark.rules("ALI-1", "FUN-31")
def test_memory_that_a_backward_writes_overlaps_nothing_by_ndarrays() -> None:
    def body(x: Any, one: Any, other: Any, first: bool) -> Any:
        return _Writing.apply(x, one if first else other) + one[0] + other[0]

    for at, first in product(range(4), (False, True)):
        array = np.ones(6)
        x = al.ones(2, dtype=al.float64, requires_grad=True)
        parts = [al.from_numpy(array[1:3]), al.from_numpy(array[at : at + 2])]
        compiled = al.compile(body)
        if abs(at - 1) < 2:
            with pytest.raises(al.AliasError, match="by ndarrays"):
                compiled(x, *parts, first)
        else:
            compiled(x, *parts, first).sum().backward()
            assert [3.0, 3.0] == parts[not first].tolist()


def _reads_what_was_left(x: Any, y: Any, w: Any, *others: Any) -> Any:
    before = x.view(3)
    x.set_(y)
    return sum([other * w for other in others], before * w)


@pytest.mark.rules("SAV-2", "TEN-5")
def test_memory_that_was_saved_is_watched_where_it_is_left_behind() -> None:
    """A write to the memory in its place is none; of few that are saved, and of many."""
    for count, written in product((0, 1, 20), (None, 0, 1)):
        for run in (_reads_what_was_left, al.compile(_reads_what_was_left)):
            w = al.ones(3, requires_grad=True)
            given = [al.ones(3), al.full((3,), 2.0)]
            result = run(*given, w, *[al.ones(3) for _ in range(count)])
            if written is not None:
                given[written].add_(1)
            result.sum().backward()
            assert w.grad is not None
            assert [count + 1.0] * 3 == w.grad.tolist(), (count, written)


MOVES: dict[str, Function] = {
    "put": lambda x, y: x.set_(y),
    "written, put": lambda x, y: x.mul_(2).set_(y),
    "put, written": lambda x, y: x.set_(y).mul_(2),
    "onto what was written": lambda x, y: x.set_(y.mul_(2)),
    "made to grow": lambda x, y: x.resize_(9),
    "onto new memory": lambda x, y: x.set_(y * 2),
    "onto new memory, written": lambda x, y: x.set_(y * 2).mul_(2),
}


@pytest.mark.rules("TEN-22", "TEN-26")
def test_writes_are_not_counted_of_inference_tensors_that_are_put_elsewhere() -> None:
    for name, move in MOVES.items():
        compiled = al.compile(lambda x, y, move=move: (move(x, y), None)[1])
        with al.inference_mode():
            x, y = al.ones(3), al.ones(3)
            given = (x, y, x.view(3), y.view(3))
            none = type(x.storage.version)
            compiled(x, y)
        assert [none] * 4 == [type(each.storage.version) for each in given], name


@pytest.mark.rules("FUN-18")
def test_what_is_put_onto_new_memory_has_the_history_that_is_written_there() -> None:
    for steps in range(1, 4):

        def body(x: Any, y: Any, w: Any, steps: int = steps) -> None:
            x.set_(y.neg())
            for _ in range(steps):
                x.mul_(w)

        for run in (body, al.compile(body)):
            x, y, w = al.ones(2), al.ones(2), al.full((2,), 3.0).requires_grad_()
            run(x, y, w)
            x.sum().backward()
            assert w.grad is not None
            assert [-steps * 3.0 ** (steps - 1)] * 2 == w.grad.tolist()


@pytest.mark.rules("CAP-4")
def test_places_are_named_as_a_program_reaches_them() -> None:
    """What wraps a function has that function's name."""
    root = AccessPath(None, _add_all)
    for key in ("__self__", "args", "keywords", "__wrapped__"):
        assert f"_add_all.{key}" == str(root.then("member", key))
    for key in ("__func__", "func"):
        assert "_add_all" == str(root.then("member", key))


@pytest.mark.rules("GRD-4")
def test_beside_many_tensors_outside_another_form_of_an_argument_is_named_alone() -> None:
    outside = [al.ones(3) for _ in range(3)]
    for shape, tracked in product(((2,), (1, 3), ()), (False, True)):
        compiled = al.compile(lambda x: sum(outside, x))
        compiled(al.ones(3))
        failure = compiled.entries[0].guarded.why_not([al.ones(*shape, requires_grad=tracked)])
        assert failure is not None
        assert f"argument 0 is {al.ones(*shape).meta}, expected f32[3]" == str(failure)
