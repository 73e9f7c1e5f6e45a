"""ICH-1 to ICH-7: ops in onnxruntime and XLA give what the reference interpreter gives.

`python -m tests.interchange.op_samples` runs every op on many samples; here are some of them.
"""

import pytest

from aotlite.interchange.arrays.registry import LOWERINGS
from aotlite.ir.op import OPS, MultiViewOp, PureOp, op_named
from aotlite.testing import laws
from tests.interchange import op_samples

NEEDED = {"onnx": ("onnx", "onnxruntime"), "stablehlo": ("jax", "jaxlib")}
CHOSEN = """pow sum argmax logcumsumexp sort gather index_put scatter_reduce as_strided unfold
as_strided_scatter strided_accumulate view_dtype matmul conv2d_input conv2d_weight
max_pool2d_with_indices avg_pool2d bernoulli_at masked_scatter bitwise_right_shift
floor_divide erfinv reflection_pad_backward split batch_norm_train cummax"""
"""Ops of each way of lowering, and of each construction."""


def needs(runtime):
    for package in NEEDED[runtime]:
        pytest.importorskip(package)


@pytest.mark.rules("ICH-1", "ICH-2", "ICH-3", "ICH-4", "ICH-5", "ICH-6", "ICH-7")
@pytest.mark.parametrize("name", CHOSEN.split())
def test_an_op_in_onnxruntime_gives_what_the_interpreter_gives(name):
    needs("onnx")
    result = op_samples.result_of(op_named(name), "onnx", 1)
    assert [] == result.found
    assert result.counts["agree"]


@pytest.mark.rules("ICH-1", "ICH-2", "ICH-3", "ICH-4", "ICH-5", "ICH-7")
@pytest.mark.parametrize("name", CHOSEN.split()[1::5])
def test_an_op_in_xla_gives_what_the_interpreter_gives(name):
    needs("stablehlo")
    result = op_samples.result_of(op_named(name), "stablehlo", 1)
    assert [] == result.found
    assert result.counts["agree"]


@pytest.mark.rules("ICH-1")
def test_a_wrong_result_is_found(monkeypatch):
    """The comparison that the other tests rest on."""
    needs("onnx")
    case = laws.graphs_of("neg")[-1]
    assert [] == op_samples.differences(case, "onnx")
    right = op_samples.PROGRAMS["onnx"]

    def wrong(graph):
        program = right(graph)
        return lambda arrays: {name: -value for name, value in program(arrays).items()}

    monkeypatch.setitem(op_samples.PROGRAMS, "onnx", wrong)
    assert "output_0 is" in op_samples.differences(case, "onnx")[0]


@pytest.mark.rules("ICH-1")
def test_ops_with_a_lowering_are_those_of_pure_graphs():
    """An entry for an op that no graph holds would never run."""
    assert set(LOWERINGS) <= {op for op in OPS.values() if op.pure}
    assert not [op for op in LOWERINGS if isinstance(op, MultiViewOp)]
    assert {PureOp} < {type(op) for op in LOWERINGS}
