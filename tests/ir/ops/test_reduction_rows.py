"""Rows of reductions and scans: one row in one file gives everything that is asked of an op."""

import importlib
import sys

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.eager.creation.from_data import call
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import Operand, install_method
from aotlite.subclasses.masked import MaskedTensor
from aotlite.testing.laws import check_op
from aotlite.testing.laws.samples.sample import Sample
from tests.backends.cpu.helpers.printing import interpreted
from tests.backends.cuda.helpers.cuda_cases import written
from tests.backends.cuda.helpers.hosted import FORWARD, Hosted, compiler
from tests.laws.test_ops_table import generated

ROWS = '''
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.reduce.dims import spread
from aotlite.ir.ops.reduction_rows import BY_MAX, BY_SUM, reduction, scan

PEAK = scan(
    "peak_of_a_test",
    result=require_real,
    combiner=BY_MAX,
    vjp=lambda grad, self, dim: (
        grad.new_zeros(self.shape).scatter_add(dim, self.cummax(dim)[1], grad)
    ),
)
"""The greatest element so far."""
ENERGY = reduction(
    "energy_of_a_test",
    result=require_inexact,
    as_=lambda self, dim=None, keepdim=False: (self * self).sum(dim, keepdim),
    vjp=lambda grad, self, dim, keepdim: spread(grad, self.meta, dim, keepdim) * self * 2,
    joins="sum",
)
"""The sum of the squares."""
'''


NAMES = ("peak_of_a_test", "energy_of_a_test")
ARGS = {"peak_of_a_test": (1,), "energy_of_a_test": ((1,), True)}
EXPECTED = {
    "peak_of_a_test": lambda a: np.maximum.accumulate(a, axis=1),
    "energy_of_a_test": lambda a: np.sum(a * a, axis=1, keepdims=True),
}
DATA = np.array([[1.0, 3.0, 2.0, 4.0], [-1.0, -2.0, 0.5, 0.25]], np.float32)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A package with one file of two rows; its ops are gone when the tests end."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "rows_of_a_test").mkdir()
    (folder / "rows_of_a_test" / "__init__.py").write_text("")
    (folder / "rows_of_a_test" / "energies.py").write_text(ROWS)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("rows_of_a_test.energies")
    finally:
        sys.path.remove(str(folder))
        for name in NAMES:
            del OPS[name]


@pytest.fixture(params=NAMES)
def name(request, rows):
    """The name of an op, which is a method, too."""
    install_method(OPS[request.param])
    yield request.param
    delattr(Operand, request.param)


def run(name):
    return lambda x: getattr(x, name)(*ARGS[name])


def test_a_row_gives_a_kernel_and_a_gradient(name):
    x = al.tensor(DATA, requires_grad=True)
    found = call(name, x, *ARGS[name])
    np.testing.assert_array_equal(EXPECTED[name](DATA), found.detach().numpy())
    found.sum().backward()
    counts = {"peak_of_a_test": [[1, 2, 0, 1], [2, 0, 2, 0]], "energy_of_a_test": 2 * DATA}
    np.testing.assert_array_equal(counts[name], x.grad.numpy())


@pytest.mark.slow("compiles a kernel in C")
def test_a_row_gives_compiled_kernels_with_gradients(name):
    x = al.tensor(DATA, requires_grad=True)
    y = al.tensor(DATA, requires_grad=True)
    compiled = al.compile(run(name), backend="cpu")(x)
    compiled.sum().backward()
    run(name)(y).sum().backward()
    np.testing.assert_array_equal(EXPECTED[name](DATA), compiled.detach().numpy())
    np.testing.assert_array_equal(y.grad.numpy(), x.grad.numpy())


@pytest.mark.slow("compiles a kernel in CUDA's language for the CPU")
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_a_row_gives_a_kernel_in_cuda(name, tmp_path):
    program = program_of(al.capture(run(name))(al.tensor(DATA)))
    memory = Hosted({"kernel": program}, tmp_path).run("kernel", [DATA.ravel()], FORWARD)
    (output,) = program.outputs
    expected = interpreted(program, [DATA.ravel()])
    assert written(program)
    for number in written(program):
        np.testing.assert_array_equal(expected[number], memory[number])
    np.testing.assert_array_equal(
        EXPECTED[name](DATA).reshape(-1), memory[output.buffer].view(np.float32).reshape(-1)
    )


def test_a_row_keeps_the_laws(name):
    """Among them: the rule of symbolic sizes, cuts of dimensions, kernels in loops, gradients."""
    smooth = Sample((DATA.astype(np.float64), *ARGS[name]), smooth=True)
    samples = [smooth, (DATA, *ARGS[name]), (np.array([[True, False]] * 2) * DATA[:, :2], 0)]
    checked = check_op(name, samples=samples if name == NAMES[0] else samples[:2])
    assert {"L1", "L3", "L7", "L9", "L14"} <= set(checked.laws)


def test_a_row_has_a_line_on_the_page_of_ops(name, monkeypatch):
    assert f"`{name}(" in generated(monkeypatch)


def test_masks_ask_a_row_for_the_element_that_changes_nothing(rows):
    mask = al.tensor([[False, True, True, False]] * 2)
    found = call("peak_of_a_test", MaskedTensor(al.tensor(DATA), mask), 1)
    assert found.tolist() == [[None, 3.0, 3.0, None], [None, -2.0, 0.5, None]]
