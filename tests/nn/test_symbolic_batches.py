"""Modules whose statistics count a batch, with a symbol for its size: bit for bit eager's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest

import aotlite as al
from aotlite import nn

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm": (lambda: nn.BatchNorm1d(5), (5,)),
    "batch norm of images": (lambda: nn.BatchNorm2d(3), (3, 4, 2)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (3, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_running_statistics_of_a_symbolic_batch(name: str) -> None:
    make, shape = MODULES[name]
    module = make()
    twin = deepcopy(module)
    compiled = al.compile(lambda x: module(x), dynamic_shapes={"x": {0: True}}, backend="reference")
    for n in (6, 5, 17, 3, 2):
        x = al.tensor(np.random.default_rng(n).standard_normal((n, *shape)).astype(np.float32))
        found, expected = compiled(x), twin(x)
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
        for ours, theirs in zip(module.buffers(), twin.buffers(), strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert len(compiled.entries) == 1
