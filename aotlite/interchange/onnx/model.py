"""`to_onnx`: the ONNX model of a pure graph.

    graph                          model
    primals_0: f32[2, 3]           input primals_0
    output_0 = primals_0           output output_0, an Identity node
    copy_(primals_0, mul)          output updated_primals_0

Names are those of the graph's roles. Spec: `specs/onnx.md`. Rules: ONX-1 to ONX-7.
"""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.interchange.arrays.convention import (
    HasForward,
    ProgramConvention,
    convention_of,
    graph_of,
    guards_of,
    input_name,
)
from aotlite.interchange.arrays.lower import expanded, lower
from aotlite.interchange.arrays.target import Value
from aotlite.interchange.onnx import kernels
from aotlite.interchange.onnx.printer import OnnxPrinter
from aotlite.interchange.sizes.program_sizes import (
    demands_of,
    table_in,
    with_demands,
)
from aotlite.interchange.sizes.size_proofs import check_range
from aotlite.ir.errors import ArgumentError, MissingExtraError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.proving import proving
from aotlite.ir.symbols.symint import SymInt

if TYPE_CHECKING:
    from onnx import ModelProto

KEY = "aotlite"
"""The key of the model's metadata that holds the convention, as JSON."""
IR_VERSION = 13
"""The version of the format that opset 26 came with."""


def to_onnx(
    source: Graph | HasForward,
    path: str | PathLike[str] | None = None,
    *,
    signature: object = None,
    opset: int = kernels.NEWEST,
) -> ModelProto:
    """The ONNX model of a pure graph: of `aot_export_module`, of a compiled function
    that has run, or of a captured program.

    Inputs and outputs have the names of the graph's roles. Gradients, new values of inputs and the
    generator's state are outputs like others. The model's metadata say which output updates which
    input, and, with `signature`, the names of parameters. `path`: it is also written there. `opset`
    is from 21 on; operators of later ones are refused.
    Raises UnsupportedError for an op that ONNX does not express, by its name and the user's line,
    and where the model would hold for fewer sizes than the range of a `Dim`.

    >>> import aotlite as al
    >>> f = al.compile(lambda x, y: x @ y + 1.0, backend="reference")
    >>> _ = f(al.ones(2, 3), al.ones(3, 4))
    >>> model = to_onnx(f)
    >>> [node.op_type for node in model.graph.node]
    ['MatMul', 'Add', 'Identity']
    """
    helper, checker = _onnx()
    if not kernels.OLDEST <= opset <= kernels.NEWEST:
        raise ArgumentError(
            f"to_onnx: opset is {opset}, expected {kernels.OLDEST} to {kernels.NEWEST}"
        )
    graph = graph_of(source)
    convention = convention_of(source, signature)
    printer, outputs, convention = _printed(graph, convention, opset)
    check_range(graph, guards_of(source), convention.sizes)
    nodes, initializers = printer.used()
    imported = [helper.make_opsetid("", opset)]
    made = helper.make_model(
        helper.make_graph(
            nodes,
            graph.name or "graph",
            [_info(helper, value, str(value.handle)) for value in printer.inputs],
            [_info(helper, value, name) for name, value in outputs],
            initializers,
        ),
        producer_name="aotlite",
        opset_imports=imported,
        ir_version=min(IR_VERSION, helper.find_min_ir_version_for(imported)),
    )
    helper.set_model_props(made, {KEY: json.dumps(convention.as_json())})
    checker.check_model(made, full_check=True)
    if path is not None:
        with open(path, "wb") as file:
            file.write(made.SerializeToString())
    return made


def _onnx() -> tuple[Any, Any]:
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise MissingExtraError(
            "to_onnx: onnx is not installed, expected it; install aotlite[onnx]"
        ) from error
    return helper, checker


def loaded(path: str | PathLike[str]) -> ModelProto:
    """The model in a file that `to_onnx` wrote."""
    _onnx()
    from onnx import load

    return load(path)


def _printed(
    graph: Graph, convention: ProgramConvention, opset: int
) -> tuple[OnnxPrinter, list[tuple[str, Value]], ProgramConvention]:
    printer = OnnxPrinter(opset)
    inputs: dict[Any, Value] = {}
    for node in graph.placeholders:
        meta: Any = node.meta
        inputs[node] = printer.input(input_name(node.role), meta.dtype, meta.shape)
    for name in convention.names:
        printer.reserve(name)
    table = table_in(graph)
    demands = demands_of(table)
    with proving(table, demands=demands):
        printer.sizes.bind(convention.sizes.bindings)
        simple = expanded(graph, symbols=True)
        given = dict(zip(simple.placeholders, inputs.values(), strict=True))
        values = lower(simple, printer, given, demands)
        results = convention.values(simple, values)
        sizes = with_demands(convention.sizes, demands)
    for name, value in results:
        printer.result(value, name)
    return printer, results, attrs.evolve(convention, sizes=sizes)


def _info(helper: Any, value: Value, name: str) -> Any:
    if value.dtype.is_complex:
        raise UnsupportedError(
            f"ONNX: {name} is {value.dtype.name}, expected real numbers: onnxruntime computes "
            "with no complex ones"
        )
    kind = helper.np_dtype_to_tensor_dtype(value.dtype.numpy)
    shape = [str(size) if isinstance(size, SymInt) else size for size in value.shape]
    return helper.make_tensor_value_info(name, kind, shape)
