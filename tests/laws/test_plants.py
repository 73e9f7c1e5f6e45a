"""Each law rejects a planted mistake in every class of op that it applies to."""

import pytest

import tests.laws.helpers.plants_forward
import tests.laws.helpers.plants_gradient
import tests.laws.helpers.plants_sharding
import tests.laws.helpers.plants_symbolic  # noqa: F401  (they fill PLANTS)
from aotlite.ir.op import OPS
from aotlite.testing.laws.ops.table import LAWS, WITHOUT_SAMPLES, class_of
from tests.laws.helpers.planting import PLANTS
from tests.samples import samples_of
from tests.thinning import thinned


def rejecting(plant, laws=LAWS):
    """The names of these laws that reject the plant; each is given a fresh one."""
    names = set()
    for law in laws:
        op = plant.make()
        if law.applies(op):
            try:
                law(op, samples_of(op.name))
            except AssertionError:
                names.add(law.name)
    return names


@pytest.mark.parametrize("plant", thinned(PLANTS), ids=map(repr, PLANTS))
def test_a_planted_mistake_is_rejected_by_the_law_that_is_meant_for_it(plant):
    law = next(law for law in LAWS if law.name == plant.law)
    assert {plant.law} == rejecting(plant, [law])


@pytest.mark.parametrize("plant", thinned(PLANTS, 18), ids=map(repr, PLANTS))
def test_a_planted_mistake_is_rejected_by_the_law_that_is_meant_for_it_alone(plant):
    """`also` are laws that no such mistake can keep."""
    before = OPS[plant.make().name]
    assert {plant.law, *plant.also} == rejecting(plant)
    assert OPS[plant.make().name] is before


def test_every_law_has_a_plant_in_every_class_of_op_that_it_applies_to():
    classes = {
        (law.name, law_class)
        for law in LAWS
        for law_class in law.classes
        if any(law.applies(op) for op in _ops_of(law_class))
    }
    assert classes == {(plant.law, plant.op_class) for plant in PLANTS}


def _ops_of(law_class):
    return [
        op for op in OPS.values() if class_of(op) == law_class and op.name not in WITHOUT_SAMPLES
    ]
