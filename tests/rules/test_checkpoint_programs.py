"""CKP-8: any program as a region leaves the same world, eager and compiled."""

import pytest
from hypothesis import given, settings

import aotlite as al
from tests.end_to_end.helpers.cases import cases
from tests.end_to_end.helpers.worlds import body_of, differences, run_call
from tests.rules.test_rng_recompute import PARTITIONS


@pytest.mark.draws(long=160)
@pytest.mark.rules("CKP-5", "CKP-8", "GEN-1", "GEN-2")
@pytest.mark.parametrize("partition", PARTITIONS)
@given(case=cases())
@settings(max_examples=20)
def test_any_program_may_be_a_region(partition, case):
    """With views, writes of inputs and of results, errors, and several backwards."""
    body = body_of(case)

    def region(*inputs):
        return al.checkpoint(body, *inputs)

    compiled = al.compile(region, partition=PARTITIONS[partition], backend="reference")
    for number in range(len(case.calls)):
        mine = run_call(case, number, compiled)
        assert [] == differences(mine, run_call(case, number, region))
