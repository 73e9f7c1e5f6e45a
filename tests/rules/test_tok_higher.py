"""Effects of a forward happen once, however often what it gives is differentiated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers.tok_programs import LOG, happen, registered

KINDS = ("log", "callback", "print")
Step = tuple[str, int, int]
steps = st.tuples(
    st.sampled_from(("mul", "add", "tell", "give", "cube")), st.integers(0, 5), st.integers(0, 5)
)


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        yield


def _doubled(array: Any) -> Any:
    LOG.note("callback", "doubled", array)
    return array * 2


def function(program: list[Step]) -> Any:
    """The sum of the last value: `give` is one that a callback gives, which has no gradient."""

    def f(x: Any, w: Any) -> Any:
        values = [x, w]
        for number, (kind, one, other) in enumerate(program):
            value, second = values[one % len(values)], values[other % len(values)]
            if kind == "tell":
                happen(KINDS[other % 2], f"step {number}", value)
            elif kind == "give":
                values.append(al.effects.callback(_doubled, value, results="f32[2]"))
            elif kind == "cube":
                values.append(value * value * value)
            else:
                values.append(getattr(value, kind)(second))
        return (values[-1] * x * x).sum()

    return f


def story(run: Any) -> Any:
    """Gradients of three orders, where there are any, and what has happened."""
    LOG.entries = []
    leaves = [al.tensor([1.0, 2.0]).requires_grad_(), al.tensor([3.0, -1.0]).requires_grad_()]
    value, found = run(*leaves), []
    for _ in range(3):
        if not value.requires_grad:
            break
        grads = al.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
        found.append([None if grad is None else grad.tolist() for grad in grads])
        value = sum(grad.sum() * (k + 1) for k, grad in enumerate(grads) if grad is not None)
    return found, LOG.entries


@pytest.mark.draws(long=120)
@pytest.mark.rules("TOK-6", "DBL-2")
@settings(max_examples=20)
@given(
    st.lists(steps, min_size=1, max_size=6),
    st.sampled_from(("default", "min_cut")),
    st.sampled_from(("reference", "loops")),
    st.booleans(),
)
@example([("give", 0, 0), ("mul", 0, 2), ("tell", 3, 0)], "min_cut", "reference", True)
@example([("give", 0, 0), ("give", 0, 0), ("mul", 2, 3)], "default", "loops", False)
def test_what_an_effect_gave_serves_derivatives_of_every_order(
    program: list[Step], partition: str, backend: str, unlifts: bool
) -> None:
    """Its results are known again in later graphs by its number, and it does not happen again."""
    f = function(program)
    compiled = al.compile(f, partition=partition, backend=backend, unlift_tokens=unlifts)
    assert story(f) == story(compiled)
