"""Every op of the table on samples made from its schema: what nobody thought of when writing some.

This found that scatters lost the gradient of `src` where one tensor has no dimensions.
"""

import pytest

import aotlite as al
from aotlite.ir.op import OPS
from aotlite.testing import laws
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES

KNOWN = {
    "conj": "L1: of bools it is called by nobody: its face gives them back",
    "add_scaled": "L1: its face refuses a scale of another kind than the operands",
    "sub_scaled": "L1: its face refuses a scale of another kind than the operands",
    "polar": "L2: its gradient is PyTorch's, for lengths above 0",
    "linalg_svd": "L2: whole matrices of vectors are not one function of the matrix",
    "put": "L2: places are named twice, and which value stays is anybody's choice",
    "scatter": "L2: along the last dimension places are named twice, as for put",
    "linalg_slogdet": "L7: the sign matters for the gradient of complex matrices alone",
    "index_fill": "L7: places are all of the dimension, or none",
}
"""The law that an op breaks on such samples, and why that is no mistake."""


def known_of(name):
    return KNOWN.get(name) or KNOWN.get(name.removesuffix("_"))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in OPS if name not in WITHOUT_SAMPLES])
def test_ops_obey_their_laws_on_samples_made_from_their_schemas(name):
    known = known_of(name)
    try:
        found = laws.check_op(name)
    except al.ArgumentError as error:
        assert str(error).startswith("laws: ")
        return
    except laws.LawError as error:
        assert known is not None, error.report
        assert known.startswith(f"{error.law}: "), error.report
        return
    assert known is None
    assert found.laws == tuple(law.name for law in laws.of(name))
