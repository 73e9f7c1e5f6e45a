"""SAV-2, TEN-12: of several saved tensors that were written, the error names the one read first."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al
from aotlite.eager.autograd.nodes.op_nodes import OpNode
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.ir.op import OPS
from aotlite.testing.laws.ops.gradient import forward, leaves_of
from aotlite.testing.laws.ops.runs import bound, is_viewing, vjp_of
from tests.samples import samples_of

DIFFERENTIABLE = [op for op in OPS.values() if vjp_of(op) is not None and not is_viewing(op)]


@pytest.mark.rules("TEN-12")
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_a_node_has_its_records_in_the_order_in_which_it_reads_them(
    op: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[SavedTensor] = []
    unpack = SavedTensor.unpack

    def noted(self: SavedTensor, node: Any) -> al.Tensor:
        if self not in read:
            read.append(self)
        return unpack(self, node)

    for sample in [each for each in samples_of(op.name) if each.smooth][:3]:
        args = bound(op, sample)
        if not leaves_of(args):
            continue
        outs = forward(op, args)
        node = outs[0].grad_fn if outs else None
        if type(node) is not OpNode or node.op is not op:
            continue
        records = node.kept_records()
        read.clear()
        with monkeypatch.context() as patch, al.no_grad():
            patch.setattr(SavedTensor, "unpack", noted)
            node.run([al.ones_like(out) for out in outs])
        assert records == read


def transposed(a: al.Tensor) -> al.Tensor:
    v = a.clone()
    r = v.T @ v
    v.relu_()
    return r


def summed(a: al.Tensor) -> al.Tensor:
    v = a.clone()
    r = al.einsum("i...,i...->...", v, v)
    v.relu_()
    return r


def scaled(a: al.Tensor) -> al.Tensor:
    v = a.clone()
    r = v.T * v[:1, :1]
    v.relu_()
    return r


def late(a: al.Tensor) -> Any:
    v = a.clone()
    return v, v.T @ v


@pytest.mark.rules("SAV-2")
@pytest.mark.parametrize("function", [transposed, summed, scaled])
def test_the_error_of_a_write_inside_is_eagers(function: Any) -> None:
    found = []
    for run in (function, al.compile(function, backend="reference")):
        with pytest.raises(al.AutogradError) as raised:
            run(al.ones(5, 2, requires_grad=True)).sum().backward()
        found.append(str(raised.value))
    assert found[0] == found[1]


@pytest.mark.rules("SAV-2")
def test_the_error_of_a_write_to_a_result_names_the_same_tensor() -> None:
    found = []
    for run in (late, al.compile(late, backend="reference")):
        v, r = run(al.ones(5, 2, requires_grad=True))
        with al.no_grad():
            v.relu_()
        with pytest.raises(al.AutogradError, match=r"a saved tensor f32\[5, 2\]") as raised:
            r.sum().backward()
        found.append(type(raised.value))
    assert found[0] == found[1]
