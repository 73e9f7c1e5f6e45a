"""PYX-4 to PYX-6: each op, printed from its kernel, gives the kernel's bits."""

from __future__ import annotations

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.errors import UnsupportedError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, Op
from aotlite.python_export.kernels.kernel_text import recorded
from aotlite.python_export.kernels.op_text import FORMS, refusal_of
from aotlite.python_export.kernels.traced_arrays import DataDependentError
from tests.python_export.comparison import module_of
from tests.python_export.single_ops import calls_of, differences, exported_ops, text_of

SAMPLES = 2


@pytest.mark.rules("PYX-4", "PYX-6")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("op", [op for op in exported_ops() if refusal_of(op) is None], ids=str)
def test_an_op_has_the_bits_of_its_kernel(op: Op) -> None:
    calls = list(calls_of(op, SAMPLES)) or list(calls_of(op))[:1]
    assert calls, f"{op.name} has no sample"
    for made in calls:
        assert differences(made) == []


@pytest.mark.rules("PYX-4", "PYX-6")
@pytest.mark.long
@pytest.mark.parametrize("op", [op for op in exported_ops() if refusal_of(op) is None], ids=str)
def test_an_op_has_the_bits_of_its_kernel_on_all_samples(op: Op) -> None:
    for made in calls_of(op):
        try:
            assert differences(made) == []
        except DataDependentError:
            assert op.name == "nll_loss"  # of no class, where every label is refused


@pytest.mark.rules("PYX-9")
@pytest.mark.parametrize("name", [op.name for op in exported_ops() if refusal_of(op)])
def test_a_collective_is_refused_by_name(name: str) -> None:
    made = next(calls_of(OPS[name]))
    with pytest.raises(UnsupportedError, match=f"{name} joins the arrays of several devices"):
        text_of(made.graph)


@pytest.mark.rules("PYX-5")
def test_a_check_of_a_kernel_is_in_the_file() -> None:
    made = next(m for m in calls_of(OPS["index_select"]) if m.arrays[0].ndim and m.arrays[1].size)
    forward = module_of(text_of(made.graph)).forward
    rows, index = made.arrays
    with pytest.raises(IndexError, match="index_select: a value is refused, expected 0 <= index <"):
        forward(rows, np.full_like(index, -1))


@pytest.mark.rules("PYX-5")
@pytest.mark.parametrize("name", ["searchsorted", "linalg_matrix_exp", "masked_take", "histc"])
def test_a_kernel_that_depends_on_values_has_a_form_of_its_own(name: str) -> None:
    assert name in FORMS
    made = next(m for m in calls_of(OPS[name]) if all(a.size > 1 for a in m.arrays))
    call = next(iter(made.graph.calls))
    names = [f"x{i}" for i in range(len(made.arrays))]
    args = [getattr(a, "meta", a) if not isinstance(a, tuple) else a for a in call.args]
    with pytest.raises(DataDependentError, match="to_python: "):
        recorded(OPS[name], names, args, call.meta)


@pytest.mark.rules("PYX-4")
def test_calls_of_a_kernel_with_the_same_lines_share_a_function() -> None:
    def twice(x: al.Tensor) -> al.Tensor:
        return x.erf() + (x + 1).erf()

    text = al.compile(twice).to_python(args=(al.ones(3),))
    assert text.count("def _erf") == 1
    assert text.count(" = _erf(") == 2


@pytest.mark.rules("PYX-4")
def test_a_float_of_16_bits_is_computed_in_32() -> None:
    meta = tensor_meta((3,), None, al.float16)
    text = recorded(OPS["exp"], ["x"], [meta], OPS["exp"].rule(meta))
    assert text.results == ("np.exp(x.astype(np.float32)).astype(np.float16)",)
