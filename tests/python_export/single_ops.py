"""Each op on its samples, as a file of NumPy, against its kernel.

    python -m tests.python_export.single_ops

Prints the ops whose calls are refused or differ; exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.graph import output_node
from aotlite.ir.graph.role import Argument, Output
from aotlite.ir.op import OPS, Op, PureOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import run_graph
from aotlite.python_export.file_parts import FileParts
from aotlite.python_export.graph_text import FunctionText, Leaving
from tests.python_export.comparison import module_of
from tests.samples import samples_of


def exported_ops() -> list[Op]:
    """The ops that pure graphs hold."""
    return [op for op in OPS.values() if isinstance(op, (PureOp, ViewOp))]


@attrs.frozen
class Made:
    """A call of an op as a graph, with the arrays for its inputs."""

    graph: Graph
    arrays: list[np.ndarray]


def calls_of(op: Op, most: int | None = None) -> Iterator[Made]:
    """Calls of an op on its samples of NumPy's dtypes, as far as its rule and kernel take them."""
    for sample in samples_of(op.name)[:most]:
        try:
            made = _made(op, sample)
            if made is not None:
                run_graph(made.graph, *made.arrays)
        except (AotliteError, ValueError):  # of a window on memory that the array lacks
            continue
        if made is not None:
            yield made


def _made(op: Op, sample: Any) -> Made | None:
    kwargs = {name: _tensors(value) for name, value in sample.kwargs.items()}
    args = op.bind(tuple(map(_tensors, sample.args)), kwargs)
    nodes, arrays = list[Node](), list[np.ndarray]()

    def placed(value: Any) -> Any:
        if isinstance(value, Tensor):
            arrays.append(value._data)
            role = Argument(len(nodes))
            nodes.append(Node("placeholder", role, meta=value.meta, role=role))
            return nodes[-1]
        return tuple(map(placed, value)) if type(value) is tuple else value

    given = tuple(map(placed, args))
    if any(array.dtype.kind == "V" for array in arrays):
        return None
    meta: Any = op.infer(args)
    metas = meta if type(meta) is tuple else (meta,)
    if any(each.dtype.numpy.kind == "V" for each in metas):
        return None
    call = Node("call", op, given, meta)
    found = [call]
    if type(meta) is tuple:
        found = [Node("call", GETITEM, (call, i), each) for i, each in enumerate(metas)]
        nodes.append(call)
    nodes += found
    end = output_node(found, [Output(i) for i in range(len(found))])
    return Made(Graph((*nodes, end), "call"), arrays)


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return al.from_numpy(np.array(value))
    return tuple(map(_tensors, value)) if isinstance(value, tuple) else value


def text_of(graph: Graph) -> str:
    """A file with the graph's function."""
    parts = FileParts(ml_dtypes=False)
    function = FunctionText(graph, "forward", parts, laid_out=True)
    function.body()
    leaving = Leaving(function, ())
    main = function.text([leaving.own(value) for value in graph.outputs], "One op.")
    pieces = ["import base64, zlib\nimport numpy as np", *parts.helper_texts()]
    return "\n\n\n".join([*pieces, *parts.function_texts(), *parts.constants, main])


def differences(made: Made, tolerance: float = 0.0) -> list[str]:
    """How the file's results differ from the kernel's: in dtype, shape, strides or bits."""
    with np.errstate(all="ignore"):
        its = run_graph(made.graph, *made.arrays)
        mine = module_of(text_of(made.graph)).forward(*made.arrays)
    found = []
    for place, (a, b) in enumerate(zip(mine, its, strict=True)):
        if type(a) is not np.ndarray or (a.shape, a.dtype) != (b.shape, b.dtype):
            got = f"{type(a).__name__} {a.dtype}{a.shape}"
            found.append(f"result {place} is {got}, expected {b.dtype}{b.shape}")
        elif a.tobytes() != b.tobytes() and not _is_near(a, b, tolerance):
            found.append(f"result {place} is {a.tolist()}, expected {b.tolist()}")
        elif any(np.shares_memory(a, each) for each in made.arrays):
            found.append(f"result {place} lies in the memory of an argument")
    return found


def _is_near(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    if not tolerance or a.dtype.kind not in "fc":
        return False
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for op in exported_ops():
        if given.ops and op.name not in given.ops:
            continue
        kinds: Counter[str] = Counter()
        shown = ""
        for made in calls_of(op):
            try:
                found = differences(made)
                if found and not differences(made, 1e-5):
                    kinds["near"] += 1
                    continue
                kinds["different" if found else "equal"] += 1
                shown = shown or "".join(found)[:300] + (
                    text_of(made.graph)[-900:] if found else ""
                )
            except AotliteError as error:
                kinds["refused"] += 1
                shown = shown or str(error)
            except Exception as error:  # of the written file
                kinds["raised"] += 1
                shown = shown or repr(error)[:200]
        counts.update(kinds)
        if kinds.keys() - {"equal"}:
            print(op.name, dict(kinds), shown)
        elif not kinds:
            print(op.name, "has no call")
    print(dict(counts))
    return int(bool(counts["different"] or counts["raised"]))


if __name__ == "__main__":
    sys.exit(main())
