"""Combiners that select: points that come at once are combined in few operations, to the bits that
they have one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotlite.backends.loops.combiners import COMBINERS
from aotlite.backends.loops.interpreter import partial_reductions
from aotlite.backends.loops.interpreter.partial_reductions import Partials
from aotlite.ir.dtypes import DType, float32, int64

SELECTING = [name for name, each in COMBINERS.items() if each.selects]
NANS = np.array([0x7FC00001, 0xFFC00002], np.uint32).view(np.float32)
VALUES = np.array([*NANS, -np.inf, np.inf, 0.0, -0.0, 1.0, 1.0, 2.0], np.float32)
DRAWS = 60


def drawn(name: str, seed: int) -> tuple[list[Any], list[DType], int]:
    """Values of few kinds for each part of a combiner, their dtypes, and a number of lanes."""
    draw = np.random.default_rng(seed)
    lanes = int(draw.choice([1, 2, 8]))
    shape = int(draw.integers(1, 4)), int(draw.integers(1, 60))
    of = VALUES[draw.integers(0, 2) * 2 :]  # with nans or without
    values = draw.choice(of, shape)
    places = np.broadcast_to(np.arange(shape[1]), shape)
    whole = COMBINERS[name].parts == 1
    return ([values], [float32], lanes) if whole else ([values, places], [float32, int64], lanes)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SELECTING)
def test_points_at_once_have_the_bits_of_points_one_after_the_other(name: str) -> None:
    for seed in range(DRAWS):
        arrays, kinds, lanes = drawn(name, seed)
        rows, count = arrays[0].shape
        each, whole = (Partials(COMBINERS[name], rows, kinds, lanes) for _ in range(2))
        for place in range(count):
            each.add([array[:, place : place + 1] for array in arrays])
        cut = seed % (count + 1)
        whole.add([array[:, :cut] for array in arrays])
        whole.add([array[:, cut:] for array in arrays])
        expected, found = each.results(1), whole.results(1)
        assert [a.tobytes() for a in expected] == [a.tobytes() for a in found], f"seed {seed}"


@pytest.mark.parametrize("name", SELECTING)
def test_operations_grow_with_the_logarithm_of_the_points(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated = []
    own = partial_reductions.evaluate

    def counted(root: Any, parameters: Any) -> Any:
        evaluated.append(root)
        return own(root, parameters)

    monkeypatch.setattr(partial_reductions, "evaluate", counted)
    kind = COMBINERS[name]
    kinds = [float32, int64][: kind.parts]
    Partials(kind, 1, kinds, 8).add([np.zeros((1, 1 << 15), each.numpy) for each in kinds])
    assert (12 + 1) * kind.parts == len(evaluated)


@pytest.mark.parametrize("name", [*SELECTING, "sum", "moments"])
def test_a_reduction_may_be_left_between_its_operations(name: str) -> None:
    asked: list[None] = []
    kind = COMBINERS[name]
    kinds = [float32, int64][: kind.parts] if kind.selects else [float32] * kind.parts
    arrays = [np.zeros((1, 64), each.numpy) for each in kinds]
    with np.errstate(invalid="ignore"):
        Partials(kind, 1, kinds, 8, lambda: asked.append(None)).add(arrays)
    assert {"sum": 1, "moments": 8}.get(name, 1 + 3) == len(asked)
