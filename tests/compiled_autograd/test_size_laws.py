"""CAG-5, laws: templates with numbers put in are what formulas record, and worlds the engine's."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.compiled_autograd import enable
from aotlite.ir.op import OPS, Op
from aotlite.testing.laws.ops.runs import bound, changes_first, has_gradient, run, tensors_in
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES
from aotlite.testing.laws.samples.sample import Sample
from tests.compiled_autograd.helpers.resized import checked, resized, resized_sample
from tests.compiled_autograd.helpers.worlds import picture, world
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Program
from tests.samples import samples_of

pytestmark = pytest.mark.rules("CAG-5")
NO_WORLD = (al.AotliteError, TypeError, ValueError, IndexError, AttributeError)
"""What a step raises that another size made illegal, or whose operands are others then."""


# ------------------------------------------------------------------------------- random programs
def check(program: Program, seed: int, sizes: Any, tally: Counter[str]) -> None:
    """Compares the engine's world with those of the program at other sizes."""
    tapes, templates = checked()
    for a, b in [*itertools.pairwise(sizes), (2, 2)]:
        sized = resized(program, a, b)
        try:
            expected = world(sized, seed, None)
        except NO_WORLD:
            continue
        assert world(sized, seed, tapes) == expected, (str(sized), seed)
        tally["ran"] += 1
    counters = tapes.counters
    tally["compared"] += templates.compared
    tally["resized"] += counters.resized
    known = counters.hits + counters.resized + counters.captures + counters.skipped
    assert counters.calls == known
    for family in [each for outline in templates.outlines for each in outline.families]:
        symbols = () if family.template is None else family.template.symbols.places
        assert len(family.samples) <= 1 + max(1, len(symbols))  # one for each new symbol


SIZES = st.permutations([2, 3, 4, 5, 7])


@settings(max_examples=60)
@given(programs(), st.integers(0, 1 << 20), SIZES)
def test_random_programs_of_many_sizes(program: Program, seed: int, sizes: Any) -> None:
    check(program, seed, sizes, Counter())


@pytest.mark.long
def test_many_random_programs_of_many_sizes() -> None:
    """20,000 programs, of which a fifth of the tapes are made of templates."""
    tally: Counter[str] = Counter()

    @settings(
        max_examples=20_000,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), st.integers(0, 1 << 20), SIZES)
    def run(program: Program, seed: int, sizes: Any) -> None:
        check(program, seed, sizes, tally)

    run()
    assert tally["ran"] > 50_000
    assert tally["resized"] > 5_000
    assert tally["compared"] > 10_000


# ---------------------------------------------------------------------------------------- all ops
def with_gradients() -> list[str]:
    """The ops whose backwards can be recorded."""
    return [name for name, op in OPS.items() if has_gradient(op) and name not in WITHOUT_SAMPLES]


def grads_of(op: Op, sample: Sample, tapes: Any) -> Any:
    """The gradients of a sample's tensors; None where there are none."""
    args = bound(op, sample)
    leaves = [x for x in tensors_in(args) if x.meta.dtype.is_differentiable]
    for x in leaves:
        x.requires_grad_()
    if changes_first(op):
        args = (args[0] * 1, *args[1:])
    outs = [out for out in run(op, args) if out.requires_grad]
    if not outs:
        return None
    with al.compiled_autograd.disable() if tapes is None else enable(tapes):
        al.autograd.backward(outs, [al.ones(out.shape, dtype=out.dtype) for out in outs])
    return [picture(x.grad) for x in leaves]


TAKES_NUMBERS = {
    "std": "2 is divided by the number of elements, as a float",
    "var": "as well",
    "cumprod": "the number of steps is that of the bits of the size",
    "cumprod_": "as well",
    "logcumsumexp": "as well",
    "prod": "as well, and whether the next one is even",
    "conv2d": "the number of groups is a size by chance",
}
"""Ops whose formulas ask for a size as a number, for some sizes."""


def check_op(op: Op, samples: list[Sample], *, ints: bool) -> int:
    """Compares gradients and recordings of samples at several sizes; how many were compared."""
    compared = 0
    for sample in samples:
        tapes, templates = checked()
        for a, b in [(2, 3), (4, 5), (3, 7), (6, 4)]:
            sized = resized_sample(op, sample, a, b, ints=ints)
            try:
                expected = grads_of(op, sized, None)
            except NO_WORLD:
                continue  # of these sizes there is no such call
            if expected is not None:
                assert repr(expected) == repr(grads_of(op, sized, tapes)), (op.name, sized)
        compared += templates.compared
        if op.name not in TAKES_NUMBERS:
            assert not any(each.fixed for each in templates.outlines), (op.name, sample)
        assert not any("takes no symbols" in reason for reason in tapes.reasons), tapes.reasons
    return compared


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_ops_record_with_symbols_what_they_record_without(every: int) -> None:
    """The first sample of each op."""
    compared = {}
    for name in [*with_gradients()][::every]:
        compared[name] = check_op(OPS[name], samples_of(name)[:1], ints=True)
    assert sum(map(bool, compared.values())) > 0.8 * len(compared), compared


@pytest.mark.long
@pytest.mark.parametrize("ints", [True, False])
def test_every_sample_of_every_op(ints: bool) -> None:
    samples = {name: {str(s): s for s in samples_of(name)} for name in with_gradients()}
    compared = {
        name: check_op(OPS[name], list(each.values()), ints=ints) for name, each in samples.items()
    }
    assert sum(compared.values()) > 15_000
