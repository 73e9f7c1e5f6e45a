"""Random programs under saved-tensor hooks, and gradients that are differentiated: as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.autograd.graph import saved_tensors_hooks
from aotlite.ir.errors import AliasError, UnsupportedError
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program

Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]
HOOKS: tuple[Hooks, ...] = (
    (lambda t: t.clone(), lambda t: t),
    (lambda t: (t.tolist(), t.dtype, t.shape), lambda k: al.tensor(k[0], dtype=k[1]).view(k[2])),
    (lambda t: [t.clone().flatten(), t.shape], lambda kept: kept[0].view(kept[1])),
)
"""What they keep is a copy, and nothing is lost."""
seeds = st.integers(0, 10**9)


def played(program: Program, number: int, run: Any, hooks: Hooks | None) -> Observation:
    """The world after a call under hooks."""

    def under(*args: Any) -> Any:
        if hooks is None:
            return run(*args)
        with saved_tensors_hooks(*hooks):
            return run(*args)

    return observe_call(LIBRARY, program, number, under)


@pytest.mark.draws(long=240)
@pytest.mark.rules("SAV-7", "TEN-42")
@settings(max_examples=18)
@given(seeds, st.sampled_from(HOOKS))
def test_programs_under_hooks_that_lose_nothing_are_eagers(seed: int, hooks: Hooks) -> None:
    """But for writes to what is saved, which eager's backward meets without hooks, and not where
    copies were taken before: a compiled call packs what it saves at its end (docs/limits.md).
    """
    program = draw(seed)
    body = body_of(LIBRARY, program)
    compiled = al.compile(body)
    for number in range(len(program.calls)):
        its, mine = (played(program, number, run, hooks) for run in (body, compiled))
        if isinstance(mine.error, (AliasError, UnsupportedError)):
            continue
        if (its.backward, mine.backward) == (None, "AutogradError"):
            assert "AutogradError" == played(program, number, body, None).backward
        elif any(step.op == "hidden_alias" for step in program.body) and differences(mine, its):
            assert [] == differences(mine, played(program, number, body, None))  # not counted
        else:
            assert [] == differences(mine, its)


def gradients(run: Any, *, twice: bool) -> Any:
    """The gradient of a call's result, and that of the gradient; or what these raise."""
    x = al.tensor([1.0, 2.0, 3.0], requires_grad=True)
    w = al.tensor([2.0, 1.0, -1.0], requires_grad=True)
    results = [r for r in run(x * 1.0, w) if r.requires_grad]
    total = sum((r.sum() for r in results), al.zeros(()))
    if not total.requires_grad:
        return None
    found = al.autograd.grad(total, [x, w], create_graph=twice, allow_unused=True)
    values = [None if g is None else g.tolist() for g in found]
    tracked = [g for g in found if g is not None and g.requires_grad]
    if not (twice and tracked):
        return values
    whole = sum((g.sum() for g in tracked), al.zeros(()))
    second = al.autograd.grad(whole, [x, w], allow_unused=True)
    return values, [None if g is None else g.tolist() for g in second]


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda a, b: a * b,
    "sin": lambda a, b: a.sin(),
    "write": lambda a, b: a.mul_(b),
    "part": lambda a, b: (a[1:].mul_(2.0), a)[1],
    "sum": lambda a, b: a + b.sum(),
    "detach": lambda a, b: a.detach() * b,
}


@pytest.mark.draws(long=240)
@pytest.mark.rules("DBL-2")
@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.booleans()), max_size=4))
def test_gradients_with_a_graph_and_their_gradients_are_eagers(
    steps: list[tuple[str, bool]],
) -> None:
    def body(a: Any, w: Any) -> list[Any]:
        values = [a]
        for name, swapped in steps:
            one, other = values[-1], w
            values.append(OPS[name](w * 1.0, one) if swapped else OPS[name](one, other))
        return [values[-1], a]

    assert gradients(body, twice=False) == gradients(al.compile(body), twice=False)
    assert gradients(body, twice=True) == gradients(al.compile(body), twice=True)
