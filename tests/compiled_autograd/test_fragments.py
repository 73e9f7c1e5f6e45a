"""CAG-2, CAG-7: what is copied of a node of the same form is what its own formula records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.compiled_autograd import CompiledAutograd, enable, recorder
from aotlite.compiled_autograd.recorder import TapeRecorder
from tests.compiled_autograd.helpers.worlds import world
from tests.compiled_autograd.test_structures import VARIANTS, leaf
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Program

pytestmark = pytest.mark.rules("CAG-2", "CAG-7")


@contextmanager
def counted() -> Iterator[list[Any]]:
    """The fragments that are copied meanwhile."""
    copied: list[Any] = []
    original = TapeRecorder._copied_fragment

    def noted(self: Any, fragment: Any, *args: Any) -> Any:
        copied.append(fragment)
        return original(self, fragment, *args)

    with patch.object(TapeRecorder, "_copied_fragment", noted):
        yield copied


def recorded(run: Any) -> tuple[list[str], Any]:
    """The graphs as they are recorded, and what `run(tapes)` gives."""
    seen: list[str] = []

    def observer(stage: str, graph: Any) -> None:
        if stage == "1 capture":
            nodes = [(n.phase, n.sequence, n.grad_mode, n.tags, n.location) for n in graph.nodes]
            seen.append(f"{graph.code}\n{nodes}")

    found = run(CompiledAutograd.of("reference", observer=observer))
    return seen, found


def check(run: Any) -> int:
    """How many fragments were copied for the graphs that formulas record."""
    with patch.object(recorder, "key_of", lambda *args: None):
        expected = recorded(run)
    with counted() as copied:
        assert recorded(run) == expected
    return len(copied)


def pair(name: str) -> Any:
    """A program in which each node of a variant has one of the same form."""

    def run(tapes: Any) -> Any:
        x, w = leaf(2, 2), leaf(2, 2)
        try:
            loss: Any = sum((VARIANTS[name](x, w) * k).sum() for k in (w, w.detach(), w))
            with enable(tapes):
                loss.backward()
        except (al.AotliteError, ValueError) as error:
            return type(error).__name__
        return [None if t.grad is None else (t.grad.meta, repr(t.grad.tolist())) for t in (x, w)]

    return run


@pytest.mark.parametrize(
    "names", [[*VARIANTS][::4], pytest.param([*VARIANTS], marks=pytest.mark.long)]
)
def test_copies_of_every_variant_are_what_is_recorded(names: list[str]) -> None:
    copied = {name: check(pair(name)) for name in names}
    assert sum(map(bool, copied.values())) > 0.6 * len(names), copied


def test_views_that_leave_are_views_of_what_arrived() -> None:
    """Each hook sees a view, of another gradient, which the next one sees written."""

    def run(tapes: Any) -> Any:
        x, seen = leaf(2, 3), []

        def hook(grad: Any) -> None:
            seen.append((grad._base is None, grad._version, grad.tolist()))
            grad.mul_(3)

        hooked = [x * 1 for _ in range(3)]
        for y in hooked:
            y.register_hook(hook)
        turned = [y.t() for y in hooked]
        total: Any = sum((z * (k + 2)).sum() for k, z in enumerate(turned + turned))
        with enable(tapes):
            total.backward()
        assert [False] * 3 == [is_base for is_base, _, _ in seen]
        return seen, x.grad.tolist()

    assert check(run) == 2


@pytest.mark.draws(long=60)
@settings(max_examples=15)
@given(programs(), st.integers(0, 1 << 20))
def test_random_programs_record_the_same_graphs(program: Program, seed: int) -> None:
    def run(tapes: Any) -> Any:
        try:
            return world(program, seed, tapes)
        except (al.AotliteError, TypeError, ValueError) as error:
            return type(error).__name__

    check(run)


def test_a_formula_of_a_form_runs_once() -> None:
    """Of ten equal layers, but for the last tanh, whose gradient lies otherwise."""
    w = leaf(3)

    def run(tapes: Any) -> Any:
        x = leaf(3)
        y = x
        for _ in range(10):
            y = (y * w).tanh()
        with enable(tapes):
            y.sum().backward()
        return x.grad.tolist()

    assert check(run) == 8 + 9
