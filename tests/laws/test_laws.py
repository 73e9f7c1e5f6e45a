"""Every op runs through every law, from the table."""

import pytest

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.op import OPS, InplaceOp
from aotlite.testing.laws.ops.table import LAWS, WITHOUT_SAMPLES, laws_of
from tests.samples import samples_of

CASES = [(law, op) for op in OPS.values() for law in laws_of(op) if op.name not in WITHOUT_SAMPLES]


PLACES = {name: place for place, name in enumerate(OPS)}


def row(law, op):
    """L12 is about the rule, which an op that writes has from another; of the others, a sixth."""
    again = law.name == "L12" and (isinstance(op, InplaceOp) or PLACES[op.name] % 6 != 0)
    return pytest.param(
        law, op, marks=[pytest.mark.long] if again else [], id=f"{law.name}-{op.name}"
    )


@pytest.mark.parametrize("name", OPS)
def test_every_op_has_samples(name):
    """A new op fails here until somebody says on what it is to be tried."""
    assert bool(samples_of(name)) != (name in WITHOUT_SAMPLES)


@pytest.mark.parametrize(
    "name", [name for name, op in OPS.items() if any(law.name == "L2" for law in laws_of(op))]
)
def test_every_op_with_operands_that_has_a_gradient_has_smooth_samples(name):
    op = OPS[name]
    differentiable = any(law.name == "L8" for law in laws_of(op))
    assert not differentiable or any(sample.smooth for sample in samples_of(name))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("law", "op"), [row(law, op) for law, op in CASES])
def test_the_op_obeys_the_law(law, op):
    law(op, samples_of(op.name))


def test_ops_that_write_have_the_rule_of_an_op_of_the_table():
    writing = [op for op in OPS.values() if isinstance(op, InplaceOp)]
    assert len(writing) > 100
    assert all(OPS[op.functional.name] is op.functional for op in writing)


def test_every_law_applies_to_some_op():
    used = {law.name for law, _ in CASES}
    assert [law.name for law in LAWS if law.name not in used] == []
