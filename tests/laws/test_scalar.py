"""L6 of functions that no library of NumPy's has: compared with mpmath's, not with themselves."""

import attrs
import pytest

from aotlite.ir.op import OPS
from aotlite.testing.laws import LawError, check_op
from tests.samples import samples_of


@pytest.mark.parametrize("name", ["lgamma", "digamma", "polygamma_of", "erfinv"])
@pytest.mark.parametrize("factor", [1 + 1e-4, -1.0], ids=["a ten-thousandth", "the sign"])
def test_a_kernel_that_is_off_is_found(name, factor):
    op = OPS[name]

    def off(xp, meta, *args):
        return (op.kernel(xp, meta, *args) * factor).astype(meta.dtype.numpy)

    check_op(name, samples_of(name), laws=["L6"])
    with pytest.raises(LawError, match=f"{name}.* by the scalar expression"):
        check_op(attrs.evolve(op, kernel=off), samples_of(name), laws=["L6"])
