"""Inputs that take over each other's values: what is written last must not be read by then."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al

Move = tuple[str, int, int]


@attrs.frozen
class Program:
    """Moves among a few inputs of one shape, of which some are views of one memory."""

    moves: tuple[Move, ...]
    shared: tuple[bool, ...]
    """Which inputs are rows of one memory."""
    tracked: bool
    returned: tuple[int, ...]

    def body(self, *xs: Any) -> list[Any]:
        kept: list[Any] = list(xs)
        for how, i, j in self.moves:
            x, y = xs[i % len(xs)], kept[j % len(kept)]
            match how:
                case "copy":
                    x.copy_(y)
                case "copy a part":
                    x[:1].copy_(y[1:])
                case "keep":
                    kept.append(y.clone())
                case "keep a view":
                    kept.append(y.view(-1))
                case "write":
                    x.mul_(2.0)
                case "add":
                    x.add_(y)
                case "copy bytes":
                    x.detach().copy_(y.detach())
        return [kept[place % len(kept)] for place in self.returned]

    def given(self) -> tuple[Any, list[Any]]:
        """A leaf, and the inputs that are made of it."""
        leaf = al.arange(10.0).requires_grad_(self.tracked)
        memory = leaf.view(5, 2) * 1.0
        rows = [memory[i] if row else memory[i].clone() for i, row in enumerate(self.shared)]
        return leaf, rows

    def seen(self, run: Any) -> Any:
        """What is seen of a call: values, versions, objects, gradients."""
        leaf, xs = self.given()
        results = run(*xs)
        values = [(t.tolist(), t.version, t.requires_grad, t.is_leaf) for t in (*xs, *results)]
        objects = [[a is b for b in (*xs, *results)] for a in results]
        tracked = [t for t in (*xs, *results) if t.requires_grad]
        if not tracked:
            return values, objects
        weighted = [(t * (i + 1.0)).sum() for i, t in enumerate(tracked)]
        (found,) = al.autograd.grad(sum(weighted, al.zeros(())), [leaf])
        assert found is not None
        return values, objects, found.tolist()


HOW = (
    *(("copy",) * 4 + ("write",) * 3),
    *("copy a part", "keep", "keep a view", "add", "copy bytes"),
)
moves = st.tuples(st.sampled_from(HOW), st.integers(0, 2), st.integers(0, 4))
programs = st.builds(
    Program,
    st.lists(moves, min_size=2, max_size=5).map(tuple),
    st.lists(st.sampled_from([False, False, True]), min_size=2, max_size=3).map(tuple),
    st.sampled_from([False, False, True]),
    st.lists(st.integers(0, 5), max_size=2).map(tuple),
)


@pytest.mark.draws(long=400)
@pytest.mark.rules("FUN-12", "FUN-21", "FUN-22", "RT-2")
@settings(max_examples=46)
@given(programs, st.booleans(), st.booleans())
def test_values_that_move_between_inputs_are_eagers(
    program: Program, kept: bool, fast: bool
) -> None:
    compiled = al.compile(program.body, keep_inference_input_mutations=kept, fast_paths=fast)
    assert program.seen(program.body) == program.seen(compiled)
    assert program.seen(program.body) == program.seen(compiled)
