"""A scalar function is one row, and an op one declaration: all that follows from them is there.

A package that aotlite does not know has two files: one enters a function, one an op that uses it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu.emit.c_program import print_program
from aotlite.backends.cuda.emit import cuda_program
from aotlite.backends.loops.backend import program_of
from aotlite.ir import scalar
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.op import OPS
from aotlite.ir.scalar.functions import FUNCTIONS, declared
from aotlite.ir.symbols.table import SymbolTable
from aotlite.testing import laws
from benchmarks import functions as table_of_functions
from tests.backends.cuda.helpers.hosted import compiler
from tests.backends.cuda.helpers.single_kernels import TARGETS, cases_of_graphs, check
from tests.helpers.own_ops import taken_out
from tests.laws.test_ops_table import generated

FUNCTION = """
import numpy as np
from aotlite.ir import scalar
from aotlite.ir.scalar import body, function

@body(lambda dtype: dtype.name in ("float32", "float64"), ulp=4.0)
def logistic(x):
    return 1.0 / (scalar.exp(-x) + 1.0)

function("logistic", lambda x: 1 / (1 + np.exp(-x)), floating=True, bodies=[logistic])
"""
OP = """
import aotlite as al
from aotlite.ir import scalar
from newcomer import functions

gated = al.register_op(
    "gated(Tensor self, Tensor gate) -> Tensor",
    kernel=lambda xp, a, gate: a / (1 + xp.exp(-gate)),
    scalar=lambda a, gate: a * scalar.logistic(gate),
    vjp={
        "self": lambda grad, gate: grad * gate.sigmoid(),
        "gate": lambda grad, self, gate: grad * self * gate.sigmoid() * (-gate).sigmoid(),
    },
    result="float",
    inplace=True,
)
"""


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package's module of ops."""
    folder = tmp_path_factory.mktemp("packages")
    package = folder / "newcomer"
    package.mkdir()
    for name, text in (("__init__", ""), ("functions", FUNCTION), ("ops", OP)):
        (package / f"{name}.py").write_text(text)
    known = set(FUNCTIONS)
    sys.path.insert(0, str(folder))
    try:
        with taken_out():
            yield importlib.import_module("newcomer.ops")
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("newcomer")]:
            del sys.modules[name]
        for name in set(FUNCTIONS) - known:
            del FUNCTIONS[name]


def numbers(dtype: Any = np.float32) -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(5, 7)).astype(dtype), draw.normal(size=7).astype(dtype)


def right(a: Any, gate: Any) -> Any:
    return a / (1 + np.exp(-gate))


def graph_of_gated(ops: ModuleType) -> Graph:
    a, gate = map(al.tensor, numbers())
    found: Graph = al.capture(lambda a, gate: ops.gated(a, gate) + 1.0)(a, gate)
    return found


def test_the_kernel_runs_in_eager(ops: ModuleType) -> None:
    a, gate = numbers()
    np.testing.assert_array_equal(right(a, gate), ops.gated(al.tensor(a), al.tensor(gate)).numpy())
    x = al.tensor(a)
    assert x.gated_(al.tensor(gate)) is x


def test_it_has_a_gradient_eager_and_compiled(ops: ModuleType) -> None:
    grads = []
    for run in (ops.gated, al.compile(ops.gated, backend="loops")):
        a, gate = [al.tensor(each, requires_grad=True) for each in numbers(np.float64)]
        run(a, gate).sum().backward()
        assert a.grad is not None and gate.grad is not None
        grads.append((a.grad.numpy(), gate.grad.numpy()))
    for eager, compiled in zip(*grads, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-14)


def test_the_interpreter_computes_the_body(ops: ModuleType) -> None:
    a, gate = numbers()
    run = al.compile(ops.gated, backend="loops")
    np.testing.assert_allclose(
        run(al.tensor(a), al.tensor(gate)).numpy(), right(a, gate), rtol=1e-6
    )


def test_c_text_calls_the_function(ops: ModuleType) -> None:
    text = print_program(program_of(graph_of_gated(ops))).text
    assert "fn_logistic_f32_f32(f32 x0)" in text and "fn_exp_f32_f32(" in text


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_c_computes_it(ops: ModuleType) -> None:
    a, gate = numbers()
    run = al.compile(ops.gated, backend="cpu")
    np.testing.assert_allclose(
        run(al.tensor(a), al.tensor(gate)).numpy(), right(a, gate), rtol=1e-6
    )


def test_cuda_text_calls_the_function(ops: ModuleType) -> None:
    text = cuda_program.print_program(program_of(graph_of_gated(ops))).text
    assert "fn_logistic_f32_f32(f32 x0)" in text and "fn_exp_f32_f32(" in text


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_cuda_text_computes_it_on_fibers(ops: ModuleType, tmp_path: Path) -> None:
    cases = list(cases_of_graphs([("gated", graph_of_gated(ops), None)], TARGETS[0]))
    assert cases
    assert [] == check(cases, TARGETS[0], tmp_path)


def test_shapes_are_symbolic(ops: ModuleType) -> None:
    table, build = SymbolTable(), Builder("symbolic")
    a, gate = [
        build.placeholder(symbolic_meta(table, tensor_meta(shape), "x"))
        for shape in ((5, 7), (1, 7))
    ]
    assert "f32[s0, s1]" == str(build.emit(OPS["gated"], (a, gate)).meta)


def test_it_obeys_the_laws(ops: ModuleType) -> None:
    found = laws.check_op(ops.gated)
    assert {"L1", "L6", "L8", "L12"} <= set(found.laws)


def test_the_law_compares_the_kernel_with_the_row(ops: ModuleType) -> None:
    """L6 evaluates the function by the row's NumPy function, not by its body, nor by a kernel."""
    row = FUNCTIONS["logistic"]
    try:
        FUNCTIONS["logistic"] = attrs.evolve(row, numpy=np.tanh)
        with pytest.raises(laws.LawError, match="by the scalar expression"):
            laws.check_op(ops.gated, laws=["L6"])
    finally:
        FUNCTIONS["logistic"] = row


def test_it_is_documented(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gated(Tensor self, Tensor gate) -> Tensor" in (ops.gated.__doc__ or "")
    assert "| `gated(Tensor self, Tensor gate) -> Tensor` |" in generated(monkeypatch)
    assert "| `logistic_f32` | all | 4.0 | float32 |" in table_of_functions.stated(
        table_of_functions.floating()
    )


def test_the_function_has_its_name(ops: ModuleType) -> None:
    x = scalar.parameter(0, al.float32)
    assert "(logistic(x0) * 2.0)" == str(scalar.logistic(x) * 2)
    assert 0.5 == scalar.logistic(0)
    assert ("logistic", 1) in [entry[:2] for entry in declared()]
    assert "gated" in OPS
