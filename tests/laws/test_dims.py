"""What L13 and L14 need: samples that show something, and the pointwise ops that L14 leaves out."""

import pytest

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import OPS
from aotlite.sharding.parts import cuts_of, linear_groups
from aotlite.testing.laws.ops.runs import bound
from aotlite.testing.laws.ops.sharding import claims_dims, claims_linearity
from aotlite.testing.laws.ops.sharding import dims_cut_the_op as check_dims
from aotlite.testing.laws.ops.table import class_of
from tests.samples import samples_of

CUT = [op.name for op in OPS.values() if claims_dims(op)]
POINTWISE = [name for name in CUT if class_of(OPS[name]) == "pointwise"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", POINTWISE)
def test_parts_of_a_pointwise_call_make_up_the_whole(name):
    """OPS-23. `pointwise` gives each of these ops the same dims."""
    check_dims(OPS[name], samples_of(name))


@pytest.mark.parametrize("name", CUT)
def test_some_sample_can_be_cut(name):
    op = OPS[name]
    calls = [bound(op, sample) for sample in samples_of(name)]
    whole = [args for args in calls if all(each.numel() for each in op.operands(args))]
    assert any(list(cuts_of(op, args, count)) for args in whole for count in (2, 3))


@pytest.mark.parametrize("name", [op.name for op in OPS.values() if claims_linearity(op)])
def test_some_smooth_sample_has_the_operands_that_are_declared_linear(name):
    op = OPS[name]
    smooth = [sample for sample in samples_of(name) if sample.smooth]
    assert any(list(linear_groups(op, bound(op, sample))) for sample in smooth)
