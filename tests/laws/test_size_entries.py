"""One entry serves the sizes of an op: `LEFT` has those of which nearly each size is an entry.

A function of the op is compiled with symbols for all sizes of a sample, and called with others in
their place, with gradients where the sample is smooth. What is fixed to a number by need is in the
list, with the reason; a new line in it is a limit of `docs/limits.md`.
"""

import pytest

import aotlite.ir.ops  # noqa: F401  (fills the tables)
from aotlite.eager.creation.from_data import call as call_op
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from tests.laws.helpers.composites import call, entry
from tests.laws.helpers.size_entries import entries_of, first_of
from tests.samples import samples_of

LEFT = {
    **dict.fromkeys(("split", "split_copy"), "the number of results depends on the size"),
    **dict.fromkeys(("unbind", "unbind_copy"), "the number of results is the size"),
    "interpolate": "a factor that is no short fraction is rounded with the size",
}
"""An op or composite of which nearly each size is an entry -> the reason."""
EVERY = [*OPS, *[entry(name) for name in COMPOSITES]]
MENDED = ("prod", "tensor_split", "cross_entropy", "linalg_matrix_rank")
SOME = [*MENDED, *[name for name in EVERY[::90] if name not in MENDED]]
"""What the usual run looks at, beside the list."""


def found(name):
    """The first sample of which nearly each size is an entry; None if there is none."""
    composite = name.removesuffix("()") if name.endswith("()") or name not in OPS else None

    def function(args, kwargs):
        if composite is not None:
            return call(composite, args, kwargs)
        return call_op(name, *args, **kwargs)

    return first_of(entries_of(function, samples_of(name)))


def rows(names):
    return [name for name in names if name not in LEFT]


@pytest.mark.rules("DYN-20")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", rows(SOME))
def test_an_op_is_one_entry_for_many_sizes(name):
    assert found(name) is None


@pytest.mark.long
@pytest.mark.rules("DYN-20")
@pytest.mark.parametrize("name", rows(EVERY))
def test_every_op_is_one_entry_for_many_sizes(name):
    assert found(name) is None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_is_an_entry_a_size(name):
    """A line that nothing needs would hide what comes later."""
    assert found(name) is not None
