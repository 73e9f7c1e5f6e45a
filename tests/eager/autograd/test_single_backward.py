"""A backward of one tape node does without an engine what the engine does with it.

Every session is played twice, the second time with the short way closed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.autograd import functional
from tests.stages.helpers.seen import outcome, seen

Session = Callable[[], list[Any]]


@pytest.fixture
def same_by_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Session], None]:
    """Asserts that a session notes the same where an engine runs every backward."""

    def check(session: Session) -> None:
        taken: list[Any] = []
        short, short_grad = functional.run_single, functional.grad_single

        def counted(*args: Any, **options: Any) -> Any:
            taken.append(args)
            return short(*args, **options)

        def counted_grad(*args: Any, **options: Any) -> Any:
            found = short_grad(*args, **options)
            taken.extend([args] if found is not None else [])
            return found

        monkeypatch.setattr(functional, "run_single", counted)
        monkeypatch.setattr(functional, "grad_single", counted_grad)
        found = session()
        assert taken, "the session never takes the short way"
        monkeypatch.setattr(functional, "single", lambda *args: None)
        monkeypatch.setattr(functional, "grad_single", lambda *args, **options: None)
        for step, (mine, its) in enumerate(zip(found, session(), strict=True)):
            assert its == mine, f"note {step}"

    return check


def pair() -> tuple[Any, Any]:
    x = al.tensor([[1.0, 2.0], [3.0, 4.0]]).requires_grad_()
    return x, al.full((2, 2), 2.0).requires_grad_()


product = al.compile(lambda x, w: (x * w).sum())
two = al.compile(lambda x, w: ((x * w).sum(), x + w))


def read_only() -> Any:
    array = np.ones((2, 2), np.float32)
    array.setflags(write=False)
    return al.from_numpy(array)


PRESETS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda x, w: None,
    "plain": lambda x, w: setattr(x, "grad", al.ones(2, 2)),
    "transposed": lambda x, w: setattr(x, "grad", al.ones(2, 2).t()),
    "a leaf": lambda x, w: setattr(x, "grad", al.ones(2, 2).requires_grad_()),
    "not a leaf": lambda x, w: setattr(x, "grad", al.ones(2, 2).requires_grad_() * 2),
    "read-only": lambda x, w: setattr(x, "grad", read_only()),
    "a part": lambda x, w: setattr(x, "grad", al.zeros(4, 4)[:2, :2]),
    "the other leaf": lambda x, w: setattr(x, "grad", w),
    "its memory": lambda x, w: setattr(x, "grad", w.detach()),
    "its own memory": lambda x, w: setattr(x, "grad", x.detach()),
    "a Parameter": lambda x, w: setattr(x, "grad", al.nn.Parameter(al.ones(2, 2))),
    "expanded": lambda x, w: setattr(x, "grad", al.ones(2, 1).expand(2, 2)),
    "an ndarray": lambda x, w: setattr(x, "grad", al.from_numpy(np.ones((2, 2), np.float32))),
}


@pytest.mark.rules("RT-11")
@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_collect_as_by_the_engine(preset: str, same_by_engine: Any) -> None:
    """Whatever `.grad` was before; values, layouts, versions, and which object it is."""

    def session() -> list[Any]:
        notes = []
        for _ in range(3):
            x, w = pair()
            PRESETS[preset](x, w)
            for _ in range(2):
                before = x.grad
                notes.append(outcome(product(x, w).backward))
                notes += [seen(x), seen(w), x.grad is before]
        return notes

    same_by_engine(session)


@pytest.mark.rules("RT-11")
def test_gradients_that_are_one_object_collect_as_by_the_engine(same_by_engine: Any) -> None:
    def session() -> list[Any]:
        x, w = pair()
        x.grad = w.grad = al.ones(2, 2)
        notes = []
        for _ in range(4):
            product(x, w).backward()
            notes += [seen(x), seen(w), x.grad is w.grad]
        return notes

    same_by_engine(session)


@pytest.mark.rules("RT-11")
@pytest.mark.parametrize("dtype", [al.float16, al.bfloat16, al.float32, al.float64, al.complex64])
def test_sums_of_gradients_are_the_engines_bit_for_bit(dtype: Any, same_by_engine: Any) -> None:
    def session() -> list[Any]:
        x = al.arange(7, dtype=al.float32).add(0.1).to(dtype).requires_grad_()
        compiled = al.compile(lambda x: x * 0.3)
        notes = []
        for i in range(5):
            compiled(x).backward(al.full((7,), 0.7 * i, dtype=dtype))
            notes.append(seen(x))
        return notes

    same_by_engine(session)


GRADIENTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "plain": lambda: al.full((2, 2), 3.0),
    "transposed": lambda: al.tensor([[1.0, 2.0], [3.0, 4.0]]).t(),
    "of another dtype": lambda: al.ones(2, 2, dtype=al.float64),
    "of another shape": lambda: al.ones(2),
    "with a history": lambda: al.ones(2, 2).requires_grad_(),
    "no tensor": lambda: 1.0,
    "in a list": lambda: [al.ones(2, 2)],
    "two": lambda: [al.ones(2, 2), al.ones(2, 2)],
}


@pytest.mark.rules("RT-11", "TAN-1")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_arrive_as_at_the_engine(gradient: str, same_by_engine: Any) -> None:
    def session() -> list[Any]:
        notes = []
        for index in (0, 1):
            x, w = pair()
            given = GRADIENTS[gradient]()
            notes.append(outcome(two(x, w)[index].backward, given))
            notes.append(outcome(al.autograd.backward, [two(x, w)[index]], given))
            notes.append(outcome(al.autograd.grad, two(x, w)[1], [x, w], given))
            notes += [seen(x), seen(w), seen(given)]
        notes.append(outcome(product(*pair()).backward))
        return notes

    same_by_engine(session)


INPUTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "in order": lambda x, w, y: [x, w],
    "turned": lambda x, w, y: (w, x),
    "one": lambda x, w, y: x,
    "twice": lambda x, w, y: [w, x, w],
    "an iterator": lambda x, w, y: iter([w, x]),
    "an iterator in order": lambda x, w, y: iter([x, w]),
    "none": lambda x, w, y: [],
    "another leaf": lambda x, w, y: [x, al.ones(2).requires_grad_()],
    "no leaf": lambda x, w, y: [x, al.ones(2)],
    "no tensor": lambda x, w, y: [x, 1],
    "nothing": lambda x, w, y: None,
    "the result": lambda x, w, y: [y],
}


@pytest.mark.parametrize("inputs", INPUTS)
def test_grad_gives_what_the_engine_gives(inputs: str, same_by_engine: Any) -> None:
    def session() -> list[Any]:
        notes = []
        for allow_unused in (False, True):
            x, w = pair()
            y = product(x, w)
            of = INPUTS[inputs](x, w, y)
            grad = partial(al.autograd.grad, allow_unused=allow_unused)
            notes += [outcome(grad, y, of), seen(x), seen(w)]
        product(*pair()).backward()
        return notes

    same_by_engine(session)


def test_grad_takes_inputs_from_an_iterator() -> None:
    x, w = pair()
    inputs: Any = iter([w, x])
    found = al.autograd.grad(product(x, w), inputs)
    assert [x.tolist(), w.tolist()] == [each.tolist() for each in found if each is not None]


@pytest.mark.rules("RT-11", "SAV-5")
def test_graphs_are_released_and_retained_as_by_the_engine(same_by_engine: Any) -> None:
    def session() -> list[Any]:
        x, w = pair()
        y = product(x, w)
        notes = [outcome(lambda: y.backward(retain_graph=True)) for _ in range(2)]
        notes += [outcome(y.backward), outcome(y.backward), seen(x), seen(w)]
        y = product(x, w)
        with al.no_grad():
            w.add_(1)
        notes += [outcome(y.backward), outcome(y.backward), seen(x)]
        y = product(x, w)
        with al.no_grad():
            x.t_()
        notes += [outcome(y.backward), seen(x), seen(w)]
        return notes

    same_by_engine(session)


def test_a_leaf_that_is_gone_gets_nothing(same_by_engine: Any) -> None:
    def session() -> list[Any]:
        x, w = pair()
        y = product(x, w)
        gone = weakref.ref(x)
        del x
        notes = [gone() is None]
        y.backward()
        return [*notes, seen(w)]

    same_by_engine(session)


def test_a_leaf_that_was_transposed_since_collects_in_its_new_geometry(same_by_engine: Any) -> None:
    """The node from before passes on, which takes an engine."""

    def session() -> list[Any]:
        notes = []
        for turned in (False, True):
            x, w = pair()
            y = al.compile(lambda x, w: (x + w * 2).sum())(x, w)
            if turned:
                with al.no_grad():
                    x.t_()
            y.backward()
            notes += [seen(x), seen(w)]
        return notes

    same_by_engine(session)


def test_grad_mode_is_off_while_gradients_collect(same_by_engine: Any) -> None:
    def session() -> list[Any]:
        notes = []
        for mode in (al.no_grad, al.enable_grad):
            x, w = pair()
            y = product(x, w)
            with mode():
                y.backward()
                notes += [al.is_grad_enabled(), seen(x), seen(w)]
        return notes

    same_by_engine(session)
