"""XFX-1 to XFX-6, XFX-11: ops in torch.fx, by their samples.

`python -m tests.interchange.torch_fx` runs random graphs as well.
"""

from __future__ import annotations

import pytest

from aotlite.ir.effects import EffectOp, TokenOp
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.op import OPS, DataOp, RandomOp
from tests.interchange import op_samples, torch_fx
from tests.samples import samples_of

pytestmark = pytest.mark.torch
CHOSEN = """add_scaled lt div_floor clamp where cast angle_of_real pow sort sum amax squeeze index
index_put_ as_strided as_strided_scatter restride conv2d_input nll_loss batch_norm_eval
reflection_pad_backward view_dtype split t_ unfold_scatter strided_accumulate arange_of gelu"""
"""Ops of each way of crossing."""
CHOICES = {
    "kthvalue": "positions of equal elements",
    "median_dim": "positions of equal elements",
    "nanmedian_dim": "positions of equal elements",
    "mode": "positions of equal elements, and of NaN",
    "topk": "positions of equal elements",
    "linalg_svd": "signs of vectors",
    "linalg_eigh": "signs of vectors",
    "linalg_qr": "signs of vectors",
    "polygamma_of": "limits at infinities",
    "polygamma_of_": "limits at infinities",
    "gelu": "the limit at infinity: PyTorch's vector code gives nan",
}
"""Ops whose results have a choice, or a limit, that PyTorch makes otherwise."""
ABSENT = set(
    """all_reduce all_reduce_nonlinear all_gather reduce_scatter reduce_scatter_nonlinear all_to_all
broadcast wait masked_take linalg_cofactors advance_offset""".split()
)
"""Ops that PyTorch lacks, beside effects, random ops, and those whose shapes depend on values."""


def crossed(name, most):
    """(samples that crossed, differences, refusals) of an op."""
    count, found, refused = 0, [], []
    for case in op_samples.cases_of(OPS[name], most):
        try:
            differences = list(torch_fx.differences(case.graph, list(case.arrays or ())))
        except UnsupportedError as error:
            refused.append(str(error))
            continue
        count += 1
        found += [f"{case.name}: {each}" for each in differences]
    return count, found, refused


@pytest.mark.rules("XFX-1", "XFX-3", "XFX-4", "XFX-5", "XFX-11")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [name for name in CHOSEN.split() if name in OPS])
def test_an_op_crosses_and_gives_what_the_interpreter_gives(torch, name):
    count, found, refused = crossed(name, 2)
    assert ([], []) == (found, refused)
    assert count


@pytest.mark.long
@pytest.mark.rules("XFX-1", "XFX-3", "XFX-4", "XFX-5", "XFX-11")
@pytest.mark.parametrize("name", [name for name in OPS if samples_of(name)])
def test_every_op_crosses_or_is_refused(torch, name):
    count, found, refused = crossed(name, 40)
    if is_absent(name):
        assert (0, []) == (count, found)
        assert all("has no" in each or "draws" in each or "depends" in each for each in refused)
    elif name in CHOICES:
        assert count
    else:
        assert [] == found
        assert count


def is_absent(name):
    op = OPS[name]
    if isinstance(op, (EffectOp, TokenOp)):
        return True
    drawn = isinstance(op, RandomOp) or (op.pure and op.cost.name == "RANDOM")
    counted = any(op in (each.number, each.fitted) for each in OPS.values() if type(each) is DataOp)
    known = name == "nonzero_fitted"
    return name in ABSENT or drawn or isinstance(op, DataOp) or (counted and not known)


@pytest.mark.rules("XFX-2")
def test_every_op_has_a_row_a_form_or_a_reason(torch):
    """The table is whole: nothing is refused but what is listed here."""
    from aotlite.interchange.torch_fx.matcher import the_table
    from aotlite.interchange.torch_fx.normalize import is_rewritten
    from aotlite.interchange.torch_fx.special import WRITERS

    missing = [
        name
        for name, op in OPS.items()
        if op not in the_table().of_op and name not in WRITERS and not is_rewritten(op)
    ]
    assert [] == [name for name in missing if not is_absent(name)]


@pytest.mark.rules("XFX-5")
def test_a_wrong_number_is_found(torch, monkeypatch):
    """The comparison that the other tests rest on."""
    (case, *_) = op_samples.cases_of(OPS["mul"], 1)
    assert [] == list(torch_fx.differences(case.graph, list(case.arrays)))
    right = torch_fx.to_fx

    def wrong(graph):
        module = right(graph)
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = torch.ops.aten.add.Tensor
        module.recompile()
        return module

    monkeypatch.setattr(torch_fx, "to_fx", wrong)
    first, second = torch_fx.differences(case.graph, list(case.arrays))
    assert first.startswith("back: node 2 (mul): its target is ops.mul")
    assert second.startswith("output_0 is")
