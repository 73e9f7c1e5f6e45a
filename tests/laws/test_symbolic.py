"""The exceptions of L12 are needed."""

import pytest

from aotlite.ir.op import OPS
from tests.laws import symbolic
from tests.samples import samples_of


@pytest.mark.parametrize("name", symbolic.SPECIALIZES)
def test_op_that_may_specialize_does(name, monkeypatch):
    """An exception that nothing needs would hide what comes later."""
    monkeypatch.delitem(symbolic.SPECIALIZES, name)
    with pytest.raises(AssertionError, match=f"^{name}.* it assumes .* == .*, expected nothing"):
        symbolic.symbolic_is_concrete(OPS[name], samples_of(name))
