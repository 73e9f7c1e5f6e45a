"""FRZ-5: frozen factors of matrix products are read by rows, and results keep eager's strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.freezing.frozen_layouts import laid_out
from aotlite.ir.graph.role import Primal
from aotlite.ir.graph.verify import verify


def folded_ops(frozen: Any) -> list[str]:
    return [node.target.name for graph in frozen.fold_graphs for node in graph.calls]


SHAPES = [(3, 5), (4, 4), (1, 7)]


@pytest.mark.rules("FRZ-5")
@pytest.mark.parametrize(("inner", "columns"), SHAPES)
@pytest.mark.parametrize("rows", [(), (2,), (2, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_with_a_frozen_weight_has_eagers_results_and_strides(inner, columns, rows, bias):
    layer = nn.Linear(inner, columns, bias=bias)
    frozen = al.freeze(layer, backend="cpu", dynamic=False)
    with al.no_grad():
        for step in range(3):
            x = al.rand(*rows, inner)
            mine, its = frozen(x), layer(x)
            np.testing.assert_allclose(mine.numpy(), its.numpy(), rtol=1e-5, atol=1e-6)
            assert its.stride() == mine.stride()
            layer.weight.mul_(1.5)
            assert step or ("restride" in folded_ops(frozen)) == (columns >= inner > 1)


LAST = al.channels_last


@pytest.mark.rules("FRZ-5")
@pytest.mark.parametrize(
    ("groups", "channels", "size"),
    [(1, 512, 3), (2, 512, 3), (1, 511, 3), (1, 512, 2), (2, 256, 3)],
)
@pytest.mark.parametrize("of_image", [al.contiguous_format, LAST])
@pytest.mark.parametrize("of_weight", [al.contiguous_format, LAST])
def test_a_convolution_with_a_frozen_weight_has_eagers_results_and_strides(
    groups, channels, size, of_image, of_weight
):
    """Of images with channels last a weight of many channels is copied to that layout once, and not
    at each call. The result of others would have other strides, and few channels do not gain."""
    layer = nn.Conv2d(channels * groups, 2, size, padding=1, groups=groups)
    layer.weight = nn.Parameter(layer.weight.detach().contiguous(memory_format=of_weight))
    frozen = al.freeze(layer, backend="cpu", dynamic=False)
    with al.no_grad():
        for step in range(2):
            x = al.rand(2, channels * groups, 3, 3).contiguous(memory_format=of_image)
            mine, its = frozen(x), layer(x)
            np.testing.assert_allclose(mine.numpy(), its.numpy(), rtol=1e-4, atol=1e-5)
            assert its.stride() == mine.stride()
            layer.weight.mul_(1.5)
            last = size * size * channels, 1, size * channels, channels
            gains = channels >= 512 and size >= 3
            is_turned = gains and of_image is LAST and layer.weight.stride() != last
            assert step or ("restride" in folded_ops(frozen)) == is_turned


@pytest.mark.rules("FRZ-5")
def test_the_reference_backend_and_training_keep_the_layout():
    layer = nn.Linear(3, 5).requires_grad_(False)
    reference = al.freeze(layer, backend="reference")
    training = al.freeze(layer, backend="auto")
    reference(al.ones(2, 3))
    training(al.ones(2, 3).requires_grad_()).sum().backward()
    assert [] == folded_ops(reference) == folded_ops(training)


@pytest.mark.rules("FRZ-5")
def test_a_layout_pass_changes_the_factor_alone():
    compiled = al.compile(lambda w, x: x.relu() @ w.t() + (x @ w.t()).sum(), backend="reference")
    compiled(al.ones(4, 3), al.ones(2, 3))
    graph = compiled.forward_graph
    found = laid_out(graph, {Primal(0)})
    verify(found, functional=True)
    before = [node.target.name for node in graph.calls]
    after = [node.target.name for node in found.calls]
    assert ["restride"] == [name for name in after if name not in before]
    assert sorted([*before, "restride"]) == sorted(after)
    assert [each.meta for each in graph.outputs] == [each.meta for each in found.outputs]
    assert graph is laid_out(graph, {Primal(1)})
