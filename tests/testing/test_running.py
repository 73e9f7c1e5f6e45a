"""What laws compare results with."""

import numpy as np
import pytest

from aotlite.ir.dtypes import DTYPES
from aotlite.testing.laws.ops.runs import same_bits

FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_one_nan_is_as_good_as_another(dtype):
    """Devices give nan in bits of their own; each other number has to be the same."""
    array = np.array([1.0, np.nan, 2.0]).astype(dtype.numpy)
    other = array.copy()
    other.view(f"u{dtype.itemsize}")[1] ^= 1 << 8 * dtype.itemsize - 1
    assert np.isnan(other[1]) and other.tobytes() != array.tobytes()
    assert same_bits(array, other)
    other[2] = -other[2]
    assert not same_bits(array, other)
    assert not same_bits(array, np.zeros_like(array))
