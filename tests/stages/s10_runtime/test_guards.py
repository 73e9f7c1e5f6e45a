"""An entry is used where it is valid and nowhere else: sessions in which the world changes.

Each session is played eagerly and compiled. It calls its functions again after each change, often
enough for entries to be used in every form they have. Rules: GRD-1, GRD-2, DUP-5, CAP-3, CAP-12.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.tensor_facts import Mark, are_recognized, facts_of
from tests.stages.helpers.seen import Wrap, assert_same_session, outcome, seen

MANY = {"recompile_limit": 1000}


def fours() -> list[Any]:
    return [al.full((3,), float(i + 1)) for i in range(4)]


# ------------------------------------------------------------------------------- tensors change
def in_place(tensors: list[Any]) -> None:
    with al.no_grad():
        tensors[1].add_(1)


def viewed_without_grad(tensors: list[Any]) -> None:
    with al.no_grad():
        tensors[1] = tensors[0][:]


def put(index: int, made: Any) -> Any:
    def change(tensors: list[Any]) -> None:
        tensors[index] = made(tensors)

    return change


CHANGES: list[Any] = [
    lambda tensors: None,
    lambda tensors: tensors[0].requires_grad_(),
    lambda tensors: tensors[1].requires_grad_(),
    lambda tensors: tensors[0].requires_grad_(False),
    put(2, lambda tensors: tensors[3]),
    put(2, lambda tensors: tensors[1]),
    put(2, lambda tensors: tensors[1] * 2),
    in_place,
    put(3, lambda tensors: al.ones(6)[::2]),
    put(3, lambda tensors: al.ones(3, dtype=al.float64)),
    put(1, lambda tensors: tensors[1].detach()),
    put(0, lambda tensors: al.nn.Parameter(al.ones(3))),
    viewed_without_grad,
    put(3, lambda tensors: 2.0),
    put(3, lambda tensors: al.from_numpy(np.ones(3, np.float32))),
    lambda tensors: tensors.reverse(),
]


@pytest.mark.rules("GRD-1", "GRD-5", "GRD-6", "DUP-5")
@pytest.mark.parametrize("count", [2, 4])
def test_arguments_that_change_between_calls_are_told_apart(count: int) -> None:
    """With four tensors entries know them by their marks, with two by their facts."""

    def session(wrap: Wrap) -> list[Any]:
        function = wrap(lambda a, b, c=1.0, d=2.0: ((a + b + c * d) * 2).sum(), **MANY)
        notes = []
        tensors = fours()
        for change in CHANGES:
            change(tensors)
            for _ in range(3):
                result = function(*tensors[:count])
                notes.append(seen(result))
                if result.requires_grad:
                    result.backward(retain_graph=True)
                notes += [outcome(lambda each: each, tensor) for tensor in tensors[:count]]
        return notes

    assert_same_session(session)


@pytest.mark.rules("GRD-1", "GRD-5")
def test_geometry_that_changes_between_calls_is_noticed() -> None:
    def session(wrap: Wrap) -> list[Any]:
        function = wrap(lambda a, b, c, d: (a * 2, b.t(), c + d), **MANY)
        tensors = [al.arange(6, dtype=al.float32).view(2, 3).clone() for _ in range(4)]
        changes: list[Any] = [
            lambda: None,
            lambda: tensors[0].t_(),
            lambda: tensors[1][0].add_(1),
            lambda: (tensors[2].t_(), tensors[3].t_()),
            lambda: tensors[1].requires_grad_(),
            lambda: tensors.__setitem__(3, tensors[2].t().t()),
            lambda: tensors.__setitem__(2, tensors[0].detach()),
        ]
        notes = []
        for change in changes:
            change()
            notes += [outcome(function, *tensors) for _ in range(3)]
        return notes

    assert_same_session(session)


@pytest.mark.rules("GRD-6")
def test_two_functions_that_are_called_by_turns_keep_their_arguments_apart() -> None:
    """The marks of one are not the other's."""

    def session(wrap: Wrap) -> list[Any]:
        first = wrap(lambda a, b, c, d: (a - b, c.add_(d)), **MANY)
        second = wrap(lambda a, b, c, d: (a * b, d.mul_(c)), **MANY)
        tensors = fours()
        notes = []
        for _ in range(4):
            for function in (first, second):
                notes.append(outcome(function, *tensors))
                notes.append(outcome(function, *tensors[::-1]))
                notes.append(outcome(function, *tensors[:3], tensors[2]))
            tensors = tensors[1:] + tensors[:1]
        return [*notes, *map(seen, tensors)]

    assert_same_session(session)


ORDERS = [(0, 1, 2, 3, 4), (0, 0, 2, 3, 4), (0, 1, 2, 2, 4), (0, 0, 0, 0, 0), (4, 3, 2, 1, 0)]


@pytest.mark.rules("DUP-2", "DUP-5", "GRD-2")
def test_which_arguments_are_one_object_is_as_it_was() -> None:
    """DUP-5, of which the function can ask."""

    def session(wrap: Wrap) -> list[Any]:
        function = wrap(lambda a, b, c, d, e: (a.add_(b), c is d, a is b, c * e), **MANY)
        notes = []
        tensors = [al.full((3,), float(i + 1)) for i in range(5)]
        for order in ORDERS * 3:
            notes.append(outcome(function, *[tensors[i] for i in order]))
            notes += map(seen, tensors)
        return notes

    assert_same_session(session)


@pytest.mark.rules("GRD-1")
def test_stale_views_and_views_made_without_grad_have_entries_of_their_own() -> None:
    def session(wrap: Wrap) -> list[Any]:
        function = wrap(lambda a: (a * 2, a.sum()), **MANY)
        notes = []
        for _ in range(3):
            leaf = al.arange(4, dtype=al.float32).requires_grad_()
            base = leaf * 1
            with al.no_grad():
                views = [base[:2], leaf[:2]]
            views += [base.chunk(2)[0], base[:2]]
            notes += [outcome(function, view) for view in views]
            with al.no_grad():
                base.add_(1)
            notes += [outcome(function, view) for view in views]
            base.mul_(2)
            notes += [outcome(function, view) for view in views]
        return notes

    assert_same_session(session)


# -------------------------------------------------------------------------------- plain values
NUMBERS = [
    *(2**60, -1, True, 1, 1.0, 0.0, -0.0, 0, False, 2**63, 2**64, -(2**63), 10**5000),
    *(float("nan"), float("inf"), -float("inf"), 1j, complex(0, -0.0)),
    *(np.float32(2), np.int64(2), np.float64(2), np.float64("nan"), np.bool_(True), np.uint64(1)),
]


@pytest.mark.rules("GRD-1")
def test_numbers_that_differ_in_type_or_bits_have_entries_of_their_own() -> None:
    """10**5000 is more than Python writes in digits."""

    def session(wrap: Wrap) -> list[Any]:
        function = wrap(lambda x, number: (x * number, type(number).__name__), **MANY)
        return [outcome(function, al.ones(2), number) for number in NUMBERS * 2]

    assert_same_session(session)


def test_a_number_too_long_to_print_is_named_by_its_length() -> None:
    compiled = al.compile(lambda x, number: x + 1, recompile_limit=1, recompile_limit_is_error=True)
    compiled(al.ones(2), 10**5000)
    with pytest.raises(al.GuardError) as caught:
        compiled(al.ones(2), 2**20000)
    assert "argument 1 is an int of 20001 bits" in caught.value.__notes__[0]


# --------------------------------------------------------------------------------- the outside
@pytest.mark.rules("DUP-5")
def test_hidden_tensors_that_become_one_object_are_noticed() -> None:
    """Their gradients come together: an entry for two would give half to each."""

    def session(wrap: Wrap) -> list[Any]:
        w, v = al.ones(3).requires_grad_(), al.full((3,), 2.0).requires_grad_()
        box = [w, v]
        function = wrap(lambda x: (box[0] * x + box[1]).sum(), **MANY)
        notes = []
        for pair, x in [((w, v), al.ones(3)), ((w, w), w), ((v, w), w), ((v, v), v)] * 2:
            box[:] = pair
            for _ in range(2):
                function(x).backward()
                notes += [seen(w), seen(v)]
                grads = al.autograd.grad(function(x), [box[0], box[1]])
                notes += [repr(grad) for grad in grads]
        return notes

    assert_same_session(session)


def test_a_compiled_function_with_entries_is_part_of_a_capture() -> None:
    """CAP-11: its entries are not asked about tensors without data."""
    inner = al.compile(lambda x: x * 2 + 1)
    inner_of_many = al.compile(lambda *xs: xs[0] + xs[4])
    tensors = [al.full((3,), float(i)) for i in range(5)]
    for _ in range(3):
        inner(tensors[0])
        inner_of_many(*tensors)
    outer = al.compile(lambda *xs: inner(inner_of_many(*xs)).sum())
    for _ in range(3):
        assert 27.0 == outer(*tensors).item()


# ---------------------------------------------------------------------------------------- marks
@pytest.mark.rules("GRD-6", "DUP-5")
def test_marks_are_given_to_different_objects_only() -> None:
    tensors = fours()
    marks = [Mark(facts_of(tensor)) for tensor in tensors]
    twice = [tensors[0], tensors[1], tensors[2], tensors[0]]
    assert not are_recognized(twice, marks)
    assert [tensor.meta for tensor in tensors] == [tensor.facts for tensor in tensors]
    assert are_recognized(tensors, marks)
    assert marks == [tensor.facts for tensor in tensors]
    others = [Mark(facts_of(tensor)) for tensor in tensors]
    assert are_recognized(tensors, others)
    assert marks == [tensor.facts for tensor in tensors]


@pytest.mark.rules("GRD-5", "GRD-6")
def test_a_change_takes_the_mark_away() -> None:
    tensors = fours()
    compiled = al.compile(lambda a, b, c, d: a + b + c + d)
    for _ in range(2):
        compiled(*tensors)
    assert [Mark] * 4 == [type(tensor.facts) for tensor in tensors]
    tensors[0].requires_grad_()
    tensors[1].t_()
    tensors[2][0:1]
    assert [None] * 3 == [tensor.facts for tensor in tensors[:3]]


@pytest.mark.rules("GRD-6")
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_a_copy_of_a_marked_tensor_has_no_mark(copied: Any) -> None:
    """And collects its own gradient: what collects the original's is not copied."""
    tensors = [tensor.requires_grad_() for tensor in fours()]
    compiled = al.compile(lambda a, b, c, d: (a + b + c * d).sum())
    for _ in range(3):
        compiled(*tensors).backward()
    for tensor in tensors:
        tensor.grad = None
    others = [copied(tensor) for tensor in tensors]
    compiled(*others).backward()
    assert 1 == len(compiled.entries)
    assert [[4.0] * 3, [3.0] * 3] == [other.grad.tolist() for other in others[2:]]
    assert [None] * 4 == [tensor.grad for tensor in tensors]


def test_a_device_is_the_same_object_in_copies_and_pickles() -> None:
    device = al.ones(1).device
    assert device is copy.copy(device) is copy.deepcopy(device)
    assert device is pickle.loads(pickle.dumps(device))
    other = type(device)("elsewhere", device.arrays)
    assert other is copy.deepcopy(other)
    with pytest.raises(pickle.PicklingError, match="elsewhere"):
        pickle.dumps(other)
