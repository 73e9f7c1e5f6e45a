"""Bad input: every op refuses it with an error of ours that says what to do, and writes nothing."""

import warnings

import pytest

from aotlite.eager.dispatch import dispatch
from aotlite.ir.op import OPS
from aotlite.ir.op.composite import COMPOSITES
from aotlite.testing.laws.ops.table import WITHOUT_SAMPLES
from tests.laws.helpers import bad_input
from tests.laws.helpers.composites import arguments, entry


def run_op(op):
    return lambda args, kwargs: dispatch(op, op.bind(args, kwargs))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("name", "is_composite"),
    [target for target in bad_input.targets() if target[0] not in WITHOUT_SAMPLES],
    ids=lambda value: value if isinstance(value, str) else "composite" if value else "op",
)
def test_bad_input_is_refused(name, is_composite):
    op = COMPOSITES[name] if is_composite else OPS[name]
    call = (lambda args, kwargs: op(*args, **kwargs)) if is_composite else run_op(op)
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for broken in bad_input.breaks(op, entry(name) if is_composite else name):
            args, kwargs = arguments(broken.sample)
            found = bad_input.check(name, call, broken, args, kwargs)
            if found:
                wrong.append(f"{broken.what}: {broken.sample}: {found}")
    assert [] == wrong
