"""Sharded tensors obey the laws of wrapper subclasses, in every placement, alone and nested."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import attrs
import pytest

from aotlite.eager.base.modes import no_grad
from aotlite.ir.errors import AotliteError, DTypeError
from aotlite.ir.op import OPS
from aotlite.sharding import Partial, Replicate, Shard, ShardedTensor
from aotlite.subclasses import TwoTensor
from aotlite.testing import subclass_laws
from aotlite.testing.sharding import PoisonedMesh
from aotlite.testing.subclasses import (
    SHIPPED,
    Meanings,
    Refused,
    draw_program,
    drawn_nesting,
    eager_differences,
    making,
)
from aotlite.testing.subclasses.wrapper_models import SHARDED, forms_of, maker
from tests.samples import samples_of

MESH = PoisonedMesh(2)
ROUNDED = 1e-5
"""What sums over ranks may be off, as a part of the largest number: they go in another order."""


def made(placement: Any) -> Any:
    """What makes sharded tensors of dense ones: SHD-9 says why sums are of finite numbers."""

    def make(x: Any) -> Any:
        finite = not x.dtype.is_differentiable or bool(x.isfinite().all().item())
        if isinstance(placement, Partial) and not finite:
            raise DTypeError("made: the tensor has infinities, expected finite numbers")
        return ShardedTensor.from_dense(x.detach(), MESH, placement)

    return make


@pytest.mark.slow("the laws over the op table")
@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("placement", "tolerance", "cases", "ops"),
    [
        (Replicate(), 0.0, 1200, None),
        (Shard(0), ROUNDED, 900, None),
        (Shard(-1), ROUNDED, 120, [*OPS][::2]),
        (Partial(), ROUNDED, 400, [*OPS][1::2]),
        (Partial("max"), ROUNDED, 400, [*OPS][::2]),
        *[
            pytest.param(placement, ROUNDED, cases, None, marks=pytest.mark.long)
            for placement, cases in ((Shard(-1), 350), (Partial(), 1000), (Partial("max"), 1000))
        ],
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.rules("SUB-1", "SUB-7", "SUB-15", "SUB-17", "SUB-23")
def test_sharded_tensors_obey_the_laws(
    placement: Any, tolerance: float, cases: int, ops: list[str] | None
) -> None:
    """Over the whole op table, on a mesh whose ranks see themselves alone; half of it, in turn, for
    placements that are like another."""
    found = subclass_laws(
        made(placement),
        SHARDED.meaning,
        tolerance=tolerance,
        ops=ops,
        samples=samples_of,
        most=1,
        programs=8,
        compiled=2,
    )
    assert found.laws == ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8")
    assert found.cases > cases


PLACEMENTS: list[Any] = [Replicate(), Shard(0), Shard(1)]


def sharded_nesting(random: Random) -> tuple[Any, Any]:
    """A way to make wrappers, and how it is called: sharded of what ships, or pairs of sharded."""
    placement = random.choice(PLACEMENTS)
    nesting = drawn_nesting(random, 2)
    while "masked" in forms_of(nesting):  # gradients of masked ones need them outermost
        nesting = drawn_nesting(random, 2)
    inside = maker(nesting)

    def shard(x: Any) -> Any:
        with no_grad():
            try:
                return ShardedTensor.from_dense(inside(x), MESH, placement)
            except AotliteError:
                return inside(x)

    if random.random() < 0.3:
        return (lambda x: TwoTensor(shard(x), shard(x * 1))), ("pair of", placement, nesting)
    return shard, (placement, nesting)


def check_nestings(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    meanings = Meanings(SHIPPED)
    for seed in seeds:
        make, name = sharded_nesting(Random(seed))
        how = making(name[-1], meanings)
        worlds = how.worlds * (2 if name[0] == "pair of" else 1)
        how = attrs.evolve(how, make=make, worlds=worlds)
        program = draw_program(seed, how)
        if program is None:
            found["none"] += 1
            continue
        try:
            differences = eager_differences(program, how)
        except Refused:
            found["refused"] += 1
            continue
        assert not differences, (seed, name, differences, program)
        found["ran"] += 1
    return found


@pytest.mark.long
@pytest.mark.rules("SUB-9")
@pytest.mark.filterwarnings("ignore")
def test_many_random_programs_on_nestings_with_sharded_tensors_do_what_they_mean() -> None:
    """2,000 of them."""
    found = check_nestings(range(1000, 3000))
    assert found["ran"] > 1700


@pytest.mark.slow("eight programs on nested wrappers over two ranks")
@pytest.mark.rules("SUB-9")
@pytest.mark.filterwarnings("ignore")
def test_random_programs_on_nestings_with_sharded_tensors_do_what_they_mean() -> None:
    """Seed by seed."""
    found = check_nestings(range(8))
    assert found["ran"] > 4
