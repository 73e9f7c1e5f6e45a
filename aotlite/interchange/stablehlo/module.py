"""`to_stablehlo`: a pure graph as the text of an MLIR module in StableHLO.

    // aotlite: {"inputs": ["primals_0"], "outputs": ["output_0"], ...}
    module @f {
      func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>) { ... }
    }

The first line, a comment, has the names of inputs and outputs and what they are
(`ProgramConvention`).
Spec: `specs/stablehlo.md`. Rules: HLO-1 to HLO-4.
"""

from __future__ import annotations

import json
import re
from typing import Any

from aotlite.interchange.arrays.convention import (
    HasForward,
    ProgramConvention,
    convention_of,
    graph_of,
)
from aotlite.interchange.arrays.lower import expanded, lower
from aotlite.interchange.arrays.target import Value
from aotlite.interchange.stablehlo.bindings import MlirBindings
from aotlite.interchange.stablehlo.printer import StableHloPrinter
from aotlite.ir.graph import Graph

MARK = "// aotlite: "
"""The beginning of the line that holds the convention, as JSON."""


def to_stablehlo(
    source: Graph | HasForward, *, signature: object = None, locations: bool = False
) -> str:
    """A pure graph as StableHLO: of `aot_export_module`, of a compiled function that
    has run, or of a captured program.

    The function `main` has the graph's inputs and outputs in order; behind them new values of
    inputs that the graph writes. MLIR's verifier has checked it. `locations`: the text has the
    user's lines.
    Raises UnsupportedError for an op that StableHLO does not express, by its name and line.

    >>> import aotlite as al
    >>> f = al.compile(lambda x: x * 2.0, backend="reference")
    >>> _ = f(al.ones(3))
    >>> print(*to_stablehlo(f).splitlines()[1:], sep="\\n")
    module @_lambda_ {
      func.func public @main(%arg0: tensor<3xf32>) -> tensor<3xf32> {
        %cst = stablehlo.constant dense<2.000000e+00> : tensor<3xf32>
        %0 = stablehlo.multiply %arg0, %cst : tensor<3xf32>
        return %0 : tensor<3xf32>
      }
    }
    """
    graph = graph_of(source)
    convention = convention_of(source, signature)
    mlir = MlirBindings()
    with mlir.entered():
        module = mlir.ir.Module.create()
        name = re.sub(r"\W", "_", graph.name or "graph")
        module.operation.attributes["sym_name"] = mlir.ir.StringAttr.get(name)
        _main(graph, convention, mlir, module)
        module.operation.verify()
        text = module.operation.get_asm(enable_debug_info=locations)
    return f"{MARK}{json.dumps(convention.as_json())}\n{text}"


def _main(graph: Graph, convention: ProgramConvention, mlir: MlirBindings, module: Any) -> None:
    """Adds the function. Its type is known when it is printed, since results are the graph's."""
    printer = StableHloPrinter(mlir)
    inputs: list[Any] = [node.meta for node in graph.placeholders]
    types = [mlir.tensor(meta.dtype, meta.shape) for meta in inputs]
    with mlir.ir.InsertionPoint(module.body):
        main = mlir.functions.FuncOp("main", (types, []), visibility="public")
    block = main.add_entry_block()
    simple = expanded(graph)
    with mlir.ir.InsertionPoint(block):
        arguments = zip(simple.placeholders, inputs, block.arguments, strict=True)
        given = {node: Value(value, m.dtype, m.shape) for node, m, value in arguments}
        values = lower(simple, printer, given)
        results = convention.values(simple, values)
        mlir.functions.ReturnOp([printer.handle(value) for _, value in results])
    mlir.erase_unused(block)
    made = [mlir.tensor(value.dtype, value.shape) for _, value in results]
    kind = mlir.ir.FunctionType.get(types, made)
    main.attributes["function_type"] = mlir.ir.TypeAttr.get(kind)
