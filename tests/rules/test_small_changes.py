"""Short programs that change an argument, or what is behind it, and then use it: all of a kind.

What compiles is eager's (GEN-1), and what is refused is refused by the rule that says so, and by no
other: a refusal too many is a mistake as well.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import pytest

import aotlite as al
from aotlite import autograd
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import Setting, observe
from tests.rules.helpers.small_programs import REFUSED

Make = Callable[[], list[Any]]


def numbers(count: int = 4, start: int = 1) -> Any:
    return al.arange(start, start + count, dtype=al.float64)


def leaf(count: int = 4) -> Any:
    return numbers(count).requires_grad_()


def refusal(body: Callable[..., Any], make: Make, places: tuple[int, ...] = (0,)) -> str | None:
    """What a compiled program says as it is refused; else it does what the eager one does.

    `places` are the values that are passed; all of them live on, and are looked at.
    """
    worlds = []
    for run in (body, al.compile(body)):
        values = make()
        given = [values[place] for place in places]
        worlds.append(observe(LIBRARY, Setting(values, given, True, (0, "mul_")), run))
    eager, compiled = worlds
    if isinstance(compiled.error, REFUSED) and eager.error is None:
        assert compiled.untouched
        return str(compiled.error)
    assert not differences(compiled, eager)
    return None


def shrunk(x: Any, *window: Any) -> None:
    with al.no_grad():
        x.as_strided_(*window)


def grown(x: Any) -> None:
    with al.no_grad():
        x.resize_(6)


def put(x: Any, window: Any) -> None:
    with al.no_grad():
        x.set_(window)


# ------------------------------------------------------------------------------------- what grows
@pytest.mark.rules("TEN-25", "FUN-18")
def test_windows_are_refused_on_memory_from_before_it_grew_and_on_no_other() -> None:
    """as_strided on what was resized, on a view of before, and on what lies elsewhere."""
    for inside, which in product((False, True), ("resized", "old", "other")):

        def body(x: Any, y: Any, inside: bool = inside, which: str = which) -> Any:
            memory, other = (x * 1, y * 1) if inside else (x, y)
            old = memory[:2]
            grown(memory)
            shown = {"resized": memory, "old": old, "other": other}[which]
            return shown.as_strided((2,), (1,), 1) * 1

        reason = refusal(body, lambda: [numbers(), numbers(start=5)], (0, 1))
        assert reason is None or "resize_" in reason
        if which == "other" or inside:
            assert (reason is not None) == (which == "old")


@pytest.mark.rules("TEN-25")
def test_reading_what_was_taken_before_is_refused_only_with_a_write_after_growing() -> None:
    for writes in (False, True):

        def body(x: Any, writes: bool = writes) -> Any:
            memory = x * 1
            old = memory[:2]
            grown(memory)
            part = memory[:3]
            if writes:
                part.mul_(2)
            return old * 3, part * 2

        assert (refusal(body, lambda: [numbers()]) is not None) == writes


# --------------------------------------------------------------------------------- what is a leaf
@pytest.mark.rules("FUN-36")
def test_a_leaf_that_is_switched_off_and_on_is_the_leaf_that_it_was() -> None:
    """Results of before and after get their gradients; of a net change of none none is noted."""
    for starts, switches, before in product((False, True), range(4), (False, True)):

        def body(x: Any, starts: bool = starts, switches: int = switches, b: bool = before) -> Any:
            early = x * 3
            for number in range(switches):
                x.requires_grad_(starts == bool(number % 2))
            return (x * x, early) if b else x * x

        def make(starts: bool = starts) -> list[Any]:
            return [numbers().requires_grad_(starts)]

        assert refusal(body, make) is None
        compiled = al.compile(body)
        compiled(*make())
        assert bool(compiled.meta.inputs[0].changes) == bool(switches % 2)


@pytest.mark.rules("TEN-14", "TEN-21", "FUN-36")
def test_a_view_with_a_history_does_not_become_a_leaf() -> None:
    """Of a leaf or not, whose history is to be made anew since its geometry changed."""
    for turned, of_leaf in product((False, True), repeat=2):

        def body(x: Any, turned: bool = turned) -> Any:
            with al.no_grad():
                if turned:
                    x.t_()
            return x.requires_grad_() * 2

        def make(of_leaf: bool = of_leaf) -> list[Any]:
            base = al.ones(2, 3, dtype=al.float64).requires_grad_()
            base = base if of_leaf else base * 1
            return [base, base[:2]]

        assert refusal(body, make, (1,)) is None
        compiled = al.compile(body)
        compiled(make()[1])
        assert not compiled.meta.inputs[0].changes


@pytest.mark.rules("FUN-36", "FUN-18")
def test_a_view_is_of_the_argument_as_it_was_when_it_was_taken() -> None:
    """A change, a write and a view, in every order; twice, with the other kind of change."""
    changes: dict[str, Callable[[Any], Any]] = {
        "leaf": lambda x: x.requires_grad_(),
        "detach": lambda x: x.detach_(),
        "other memory": lambda x: put(x, numbers(4, 20)),
        "its own memory": lambda x: put(x, x[1:]),
        "larger": grown,
    }
    for name, order in product(changes, permutations(("change", "write", "view"))):

        def body(x: Any, name: str = name, order: Any = order) -> Any:
            for what in order:
                if what == "change":
                    changes[name](x)
                elif what == "write":
                    with al.no_grad():
                        x.mul_(2)
                else:
                    view = x[:1]
            return view

        with_history = name in ("leaf", "detach")
        assert refusal(body, lambda: [numbers()]) is None
        if with_history:
            assert refusal(body, lambda: [leaf() * 1]) is None


# ----------------------------------------------------------------------------- what lies elsewhere
@pytest.mark.rules("FUN-18", "FUN-11")
def test_windows_on_the_memory_that_an_argument_was_put_onto() -> None:
    """as_strided counts from that memory's beginning; the argument starts somewhere in it."""
    for start, first, returned in product((1, 2), (0, 1, 3), (False, True)):

        def body(x: Any, y: Any, s: int = start, f: int = first, r: bool = returned) -> Any:
            put(x, y[s:])
            window = x.as_strided((2,), (1,), f)
            return (window, y) if r else window

        assert refusal(body, lambda: [numbers(), numbers(6, 9)], (0, 1)) is None


@pytest.mark.rules("FUN-18", "TEN-25")
def test_windows_on_what_grew_of_one_element_for_all() -> None:
    """An argument that is such a view itself: what it is a view of stays as it is."""
    for start, writes in product((0, 1, 4), (False, True)):

        def body(x: Any, start: int = start, writes: bool = writes) -> Any:
            grown(x)
            if writes:
                x.add_(1)
            return x.as_strided((2,), (1,), start), x[1:4].as_strided((2,), (1,), start)

        assert refusal(body, lambda: [base := numbers(1), base.expand(4)], (1,)) is None


@pytest.mark.rules("FUN-18")
def test_a_refused_history_names_the_argument_that_has_it() -> None:
    """Of two that are put onto other memory, the one whose old memory was written with one."""
    for which in (0, 1):

        def body(x: Any, y: Any, w: Any, which: int = which) -> Any:
            views = x[:2], y[:2]
            put(x, numbers(3, 5))
            put(y, numbers(3, 7))
            views[which].mul_(w)
            return w * 2

        reason = refusal(body, lambda: [numbers(), numbers(), leaf(2)], (0, 1, 2))
        assert reason is not None and f"argument {which} is put" in reason


@pytest.mark.rules("TEN-24", "META-8")
def test_a_view_of_a_leaf_in_another_window_is_refused() -> None:
    """Whether the window overlaps itself or not: its gradient would be that of the old one."""
    for size, stride in (((2,), (1,)), ((2,), (0,)), ((2, 2), (1, 1))):

        def body(x: Any, size: Any = size, stride: Any = stride) -> Any:
            shrunk(x, size, stride, 0)
            return x[:1]

        reason = refusal(body, lambda: [leaf()])
        assert reason is not None and "after as_strided_" in reason
        assert refusal(body, lambda: [numbers()]) is None


@pytest.mark.rules("FUN-18", "TEN-26")
def test_what_is_written_with_a_history_on_new_memory_is_the_arguments() -> None:
    """Whatever is returned beside it, and of whatever the memory was made."""
    results: tuple[Callable[[Any, Any], Any], ...] = (
        lambda x, w: w * 2,
        lambda x, w: x,
        lambda x, w: x[:2],
        lambda x, w: x * 3,
    )
    for result, made, part in product(results, (False, True), (False, True)):

        def body(x: Any, w: Any, result: Any = result, made: bool = made, p: bool = part) -> Any:
            put(x, (w * 5).detach() if made else numbers(4, 3))
            (x[1:] if p else x).mul_(w[1:] if p else w)
            return result(x, w)

        assert refusal(body, lambda: [numbers(), leaf()], (0, 1)) is None


@pytest.mark.rules("TEN-26")
def test_counts_of_memory_that_tensors_of_its_own_were_put_onto_are_eagers() -> None:
    """Onto the argument's memory, that of a result, or both; the argument was written before."""
    for order, count, write in product(product("xr-", repeat=2), (0, 5), (False, True)):

        def body(x: Any, order: Any = order, write: bool = write) -> Any:
            result, other = x * 2, x * 1
            for name in order:
                if name != "-":
                    put(other, x if name == "x" else result)
            if write:
                result.mul_(2)
            return result, other

        def make(count: int = count) -> list[Any]:
            x = numbers()
            for _ in range(count):
                x.mul_(1)
            return [x]

        assert refusal(body, make) is None


@pytest.mark.rules("TEN-26", "GEN-2")
def test_a_view_of_a_leaf_that_is_put_elsewhere_is_refused_only_beside_its_family() -> None:
    """With a gradient; the argument and a view of it, or another tensor, are passed."""
    for tracked, beside, moves in product((False, True), repeat=3):

        def body(x: Any, y: Any, moves: bool = moves) -> Any:
            view = x[:2]
            if moves:
                put(x, numbers(3, 5))
            return view, y * 1

        def make(tracked: bool = tracked) -> list[Any]:
            x = numbers().requires_grad_(tracked)
            return [x, x[1:], numbers(3)]

        reason = refusal(body, make, (0, 1 if beside else 2))
        assert (reason is not None) == (tracked and beside and moves), reason
        assert reason is None or "shares its base with other inputs" in reason


@pytest.mark.rules("SYN-3", "FUN-12", "RT-4")
def test_what_is_copied_from_memory_that_is_written_later_is_what_was_there() -> None:
    """Of a view, seen beyond its elements or beside one that overlaps it, in every order."""
    for order, start, keep in product(permutations(range(3)), (None, 0, 1, 2), (False, True)):

        def body(*given: Any, order: Any = order, start: Any = start) -> Any:
            part, other, x = (given[order.index(i)] for i in range(3))
            x.copy_(part if start is None else part.as_strided((2,), (1,), start))
            part.copy_(x * 9)
            return other * 1

        found = []
        for run in (body, al.compile(body, keep_inference_input_mutations=keep)):
            memory, x = numbers(8), numbers(2, 30)
            values = memory[1:3], memory[2:5], x
            result = run(*[values[i] for i in order])
            found.append((memory.tolist(), x.tolist(), result.tolist()))
        assert found[0] == found[1], (order, start, keep)


# ---------------------------------------------------------------------------------------- histories
@pytest.mark.rules("TEN-23", "META-8")
def test_views_of_a_leaf_on_memory_that_gets_a_history_have_the_one_that_they_had() -> None:
    """Taken before the write, or after it, of the leaf or of a view of it."""
    takes: tuple[Callable[[Any], Any], ...] = (lambda v: v[:2], lambda v: v[:])
    for take, which in product(takes, ("before", "after", "both")):

        def body(base: Any, part: Any, w: Any, take: Any = take, which: str = which) -> Any:
            taken = take(part)
            base.mul_(w)
            before = [] if which == "after" else [taken, taken[:1]]
            after = [] if which == "before" else [part[:2], part[1:][:1]]
            return [*before, *after, w * 1]

        def make() -> list[Any]:
            base = numbers(6)
            return [base, base[:4].requires_grad_(), leaf(6)]

        assert refusal(body, make, (0, 1, 2)) is None


@pytest.mark.rules("META-8")
def test_a_view_of_what_detach_gave_is_refused_only_without_it() -> None:
    """Both are written through one of them, with a history."""
    for of_argument, through, results in product((0, 1), (0, 1), ((0, 1), (1, 0), (1,))):

        def body(x: Any, w: Any, of: int = of_argument, t: int = through, r: Any = results) -> Any:
            detached = (x if of else x * 1).detach()
            both = detached, detached[:2]
            both[t].mul_(w[: both[t].shape[0]])
            return [both[i] for i in r]

        for make in (lambda: [leaf(), leaf()], lambda: [numbers(), leaf()]):
            reason = refusal(body, make, (0, 1))
            assert reason is None or results == (1,) and "what detach() gave" in reason


@pytest.mark.rules("META-8")
def test_hooks_on_views_are_run_however_far_the_result_is_from_its_base() -> None:
    """Hooks on the first view, or on the second; the base is a result, or an argument."""
    for of_argument, hooked, returned in product((0, 1, 2), (0, 1), (0, 1)):

        def body(x: Any, of: int = of_argument, hooked: int = hooked, r: int = returned) -> Any:
            base = x if of else x * 2
            views = [base[:3]]
            views.append(views[0][:2])
            views[hooked].register_hook(lambda grad: grad * 7)
            return views[r] if of else (base, views[r])

        make = (lambda: [leaf() * 1]) if of_argument == 2 else (lambda: [leaf()])
        assert refusal(body, make) is None


@pytest.mark.rules("TEN-7")
def test_a_history_for_memory_that_overlaps_itself_is_refused_wherever_it_stands() -> None:
    """Its base and a column, beside other views of one memory, in every order."""

    def make() -> list[Any]:
        rows = numbers(4).unsqueeze(1).expand(4, 2).detach()
        memory = leaf(6) * 1
        return [rows, rows[:, 0], memory[:4], memory[2:], numbers().unsqueeze(1).requires_grad_()]

    for order in ((0, 1, 2, 3, 4), (2, 3, 0, 1, 4), (2, 3, 1, 0, 4), (0, 4), (4, 0)):
        place = order.index(0), order.index(4)

        def body(*xs: Any, place: Any = place) -> Any:
            xs[place[0]].copy_(xs[place[1]])
            return xs[0] * 2

        values = make()
        world = observe(LIBRARY, Setting(values, [values[i] for i in order]), al.compile(body))
        assert isinstance(world.error, al.AliasError) and world.untouched


# ----------------------------------------------------------------------------- gradients inside
@pytest.mark.rules("GEN-2")
def test_a_gradient_is_asked_for_inside_of_what_is_computed_inside() -> None:
    """Of y by x is refused if y was computed from x outside, and only then."""

    def made() -> list[Any]:
        first = leaf()
        return [first, first * 3, leaf() * numbers(), numbers()]

    for x, y, both in product((0, 1, 2), (0, 1, 2, 3), (False, True)):
        if x == y:
            continue

        def body(x: Any, y: Any, both: bool = both) -> Any:
            return autograd.grad((x * y * y if both else y * y + 0 * x).sum(), x)[0]

        reason = refusal(body, made, (x, y))
        assert (reason is not None) == ((x, y) == (0, 1)), reason
