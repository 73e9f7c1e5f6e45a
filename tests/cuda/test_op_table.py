"""Every op of the table on a CUDA device gives what it gives on the CPU.

On the emulated device NumPy computes both, and bits are compared; on a GPU values are. What every
run takes, a few samples of each op, needs 12 seconds; all of them (`-m long`) need a minute.
"""

import numpy as np
import pytest

import aotlite as al
import aotlite.ir.ops
from aotlite.ir.op import OPS, DataOp, GeometryOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.testing.laws.ops.runs import bound, run, tensor_of, tensors_in
from aotlite.testing.laws.samples.sample import Sample
from tests.cuda.helpers.places import facts_of, tensor_on, values_of
from tests.samples import samples_of

KINDS = (PureOp, ViewOp, MultiViewOp, InplaceOp, GeometryOp, DataOp)
NAMES = [name for name, op in OPS.items() if type(op) in KINDS and samples_of(name)]

NOT_BY_BITS = {
    **dict.fromkeys(("xlogy", "xlogy_"), "NumPy's log of a number is not that of an array"),
    "linalg_vector_norm": "NumPy's power of a number is not that of an array",
    **dict.fromkeys(("cummax", "cummin"), "of zeros of both signs either one is the largest"),
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), "products are formed in halves"),
    "batch_norm_train": "a sum's order depends on how CuPy's results lie",
    "logcumsumexp": "a sum's order depends on how CuPy's results lie",
    "linalg_cofactors": "a product's order depends on how CuPy's results lie",
}
"""Ops whose last bits are not the CPU's, and why."""

FEW = 5
TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5}


def outcome(op, sample, make):
    """(results, arguments) of a call, or the error's type and text."""
    try:
        args = bound(op, sample, make)
        return run(op, args), args
    except al.AotliteError as error:
        return type(error), str(error)


def assert_alike(name, sample, expected, found, exact):
    assert facts_of(expected) == facts_of(found), (name, sample)
    mine, its = values_of(expected), values_of(found)
    if exact:
        assert mine.tobytes() == its.tobytes(), (name, sample, mine, its)
        return
    mine, its = [a.astype(float) if a.dtype.kind == "V" else a for a in (mine, its)]
    near = TOLERANCES.get(expected.dtype.name, 1e-12)
    np.testing.assert_allclose(its, mine, near, near, err_msg=f"{name}{sample}")


def check(name, samples, device):
    op = OPS[name]
    emulated = device.name.startswith("emulated")
    takes_device = any(p.name == "device" for p in op.schema.parameters) and name != "to_device"
    for sample in samples:
        there = Sample(sample.args, {**sample.kwargs, "device": device}) if takes_device else sample
        expected = outcome(op, sample, tensor_of)
        found = outcome(op, there, lambda array: tensor_on(device, array))
        if isinstance(expected[0], type):
            assert expected == found, (name, sample)
            continue
        assert not isinstance(found[0], type), (name, sample, found)
        before, after = (tensors_in((results, args)) for results, args in (expected, found))
        assert len(before) == len(after)
        for mine, its in zip(before, after, strict=True):
            assert_alike(name, sample, mine, its, emulated and name not in NOT_BY_BITS)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", NAMES)
def test_an_op_gives_on_the_device_what_it_gives_on_the_cpu(name, device):
    samples = samples_of(name)
    check(name, samples[:: max(1, len(samples) // FEW)], device)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_op_gives_on_the_device_what_it_gives_on_the_cpu_on_all_samples(name, device):
    check(name, samples_of(name), device)


@pytest.mark.parametrize("part", range(8))
def test_results_are_on_the_device_of_the_operands(part, device):
    """Of all ops but those that give what the host needs, or are told a device."""
    elsewhere = {"advance_offset", "to_device"}
    for name in NAMES[part::8]:
        op = OPS[name]
        given = any(p.name == "device" for p in op.schema.parameters)
        if name in elsewhere or given:
            continue
        results, _ = outcome(op, samples_of(name)[0], lambda array: tensor_on(device, array))
        if not isinstance(results, type):
            assert {device} == {result.device for result in results}, name
