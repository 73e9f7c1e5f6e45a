"""What a call is told by: values of any size, kinds that are refused, and the words for both."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.autograd.graph import saved_tensors_hooks
from aotlite.eager.tensor_facts import facts_of
from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph.role import Saved
from aotlite.stages.s10_runtime.forward.inputs import copy_line
from aotlite.stages.s10_runtime.source import FunctionSource

BITS = (0, 1, 63, 64, 65, 255, 256, 257, 265, 266, 300, 15_000)
"""Of ints: Python prints none of more than 14 thousand, and long ones are not written out."""


@pytest.mark.rules("GRD-1", "DUP-5")
@pytest.mark.parametrize(("dynamic", "shared"), [(False, 0), (None, 4)])
def test_whole_numbers_of_any_size_are_told_apart(dynamic: bool | None, shared: int) -> None:
    """And nothing is compiled again for one that was met."""
    compiled = al.compile(lambda x, n: x * (n % 1009), dynamic=dynamic, recompile_limit=100)
    numbers = [sign * ((1 << bits) + k) for bits in BITS for k in (0, 1) for sign in (1, -1)]
    for _ in range(2):
        for number in numbers:
            assert [number % 1009] == compiled(al.ones(1), number).tolist()
    assert len(set(numbers)) - shared == len(compiled.entries)


class Thing:
    """An object of a kind that cannot be guarded."""

    def __repr__(self) -> str:
        return "a thing"


FORMS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "[0]": lambda value: [value],
    "[1]": lambda value: (1, value),
    "['k']": lambda value: {"k": value},
    "['k'][0]['l']": lambda value: {"k": [{"l": value}]},
}


@pytest.mark.rules("GEN-7")
def test_what_cannot_be_guarded_is_refused_by_the_name_of_its_place() -> None:
    """By position and by keyword, alone and in containers, before anything runs."""
    ran: list[Any] = []
    compiled = al.compile(lambda *args, **kwargs: ran.append(args))
    for thing in (Thing(), len, {1}, Thing):
        for path, form in FORMS.items():
            with pytest.raises(al.ArgumentError) as first:
                compiled(al.ones(2), form(thing))
            with pytest.raises(al.ArgumentError) as second:
                compiled(al.ones(2), key=form(thing))
            for error, name in ((first, "1"), (second, "'key'")):
                text = f"compile: argument {name}{path} is {thing!r} of type {type(thing).__name__}"
                assert str(error.value).startswith(f"{text}, expected"), str(error.value)
    assert not ran


KINDS: tuple[Callable[[], Any], ...] = (
    lambda: al.ones(2),
    lambda: al.ones(2, requires_grad=True),
    lambda: al.ones(2, requires_grad=True) * 1,
    lambda: al.ones(2, 2).t(),
    lambda: al.ones(3, dtype=al.int64),
    lambda: 2,
    lambda: 2.5,
    lambda: None,
)


def _words(value: Any) -> str:
    return str(facts_of(value)) if isinstance(value, al.Tensor) else repr(value)


@pytest.mark.rules("GRD-4")
def test_an_entry_says_what_it_found_and_what_it_was_made_for() -> None:
    """For each pair of kinds; also where many tensors are known by marks."""
    for count, (before, now) in product((1, 4), permutations(KINDS, 2)):
        compiled = al.compile(lambda x, *rest: rest[0] * 2)
        rest = [al.ones(2) for _ in range(count)]
        compiled(before(), *rest)
        (entry,) = [each.guarded for each in compiled.entries]
        failure = entry.why_not([now(), *rest])
        assert failure is not None
        assert f"argument 0 is {_words(now())}, expected {_words(before())}" == str(failure)


BODIES: tuple[Callable[[Any], list[Any]], ...] = (
    lambda x: [x.sin() * x],
    lambda x: [x + 1],
    lambda x: [x.exp()],
    lambda x: [(x * 1).mul_(x)],
    lambda x: [x.sin(), x.cos() * x],
)


@pytest.mark.rules("SAV-7")
def test_hooks_are_asked_of_what_a_call_saves_once_each() -> None:
    """And what they give back is what the backward reads; no call is asked of outside of them."""
    packed: list[Any] = []
    unpacked: list[Any] = []

    def pack(value: Any) -> Any:
        packed.append(value.tolist())
        return value

    def unpack(value: Any) -> Any:
        unpacked.append(value.tolist())
        return value

    for body, hooked in product(BODIES, (False, True)):
        packed.clear()
        unpacked.clear()
        compiled = al.compile(body)
        compiled(al.ones(2, requires_grad=True))
        with saved_tensors_hooks(pack, unpack) if hooked else nullcontext():
            results = compiled(al.tensor([1.0, 2.0], requires_grad=True))
        roles = compiled.entries[0].partition.forward.output_roles
        saved = sum(isinstance(role, Saved) for role in roles)
        assert (saved if hooked else 0) == len(packed)
        sum((each.sum() for each in results), al.zeros(())).backward()
        assert packed == unpacked


@pytest.mark.rules("RT-1")
def test_the_source_of_a_run_time_function_is_what_python_finds() -> None:
    """Tracebacks and debuggers show these lines."""
    for body in BODIES:
        compiled = al.compile(body)
        compiled(al.ones(2))
        (entry,) = [each.guarded for each in compiled.entries]
        assert entry.source.endswith(inspect.getsource(entry.call))
        assert inspect.getsource(entry.call).startswith("def ")


class Recorded:
    """A library of arrays that is not NumPy."""

    def __init__(self) -> None:
        self.copies = 0

    def copy(self, target: Any, array: Any) -> None:
        self.copies += 1
        np.copyto(target, array)


@pytest.mark.rules("RT-4")
def test_the_line_that_writes_an_array_writes_it_with_any_library() -> None:
    for kind, shape in product((None, Recorded), ((), (0,), (3,), (2, 3))):
        library: Any = NUMPY if kind is None else kind()
        source, target = FunctionSource(), np.zeros(shape)
        line = copy_line(source, library, "target", "array")
        exec(line, {**source.scope, "target": target, "array": np.ones(shape)})
        assert np.ones(shape).tolist() == target.tolist(), line
        assert kind is None or library.copies == 1, line
