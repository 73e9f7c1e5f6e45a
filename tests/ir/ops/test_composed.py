"""Ops that are compositions: the kernel is the composition, called on arrays."""

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS
from aotlite.testing.laws.ops.runs import same_bits
from tests.samples import samples_of

COMPOSED = ["layer_norm", "group_norm", "rms_norm", "batch_norm_train", "softmax", "log_softmax"]
COMPOSED += ["var", "std", "linalg_cross"]


def of(value):
    return al.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("name", COMPOSED)
def test_a_composed_op_gives_what_its_composition_gives(name):
    """Bit for bit: both call the same functions of the array library, in the same order."""
    checked = 0
    for sample in samples_of(name):
        args = [of(each) for each in sample.args]
        expected = OPS[name].expands(*args, **sample.kwargs)
        found = call(name, *args, **sample.kwargs)
        pairs = zip(found, expected, strict=True) if type(found) is tuple else [(found, expected)]
        for one, other in pairs:
            assert one.dtype is other.dtype
            assert same_bits(one.contiguous().array, other.contiguous().array)
        checked += 1
    assert checked
