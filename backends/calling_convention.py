"""How values travel between stage 10 and a backend that has a compact face.

A backend's callable takes and returns windows (`protocol`). It may offer `compact` besides: a
callable for which values whose memory is just their elements in order travel as arrays, with no
window around them. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import MutatedInput, Saved
from aotlite.ir.meta import TensorMeta

Value = Any
"""An array with exactly the meta's geometry, or a window."""


def travels_as_array(meta: TensorMeta) -> bool:
    """Whether a value of this meta is passed as an array, which is its own buffer, start 0."""
    return (
        meta.contiguous
        and meta.numel > 0
        and meta.device.arrays is NUMPY
        and meta.dtype.numpy.kind != "V"  # an extension dtype exports no buffer
    )


def returned_as_arrays(graph: Graph) -> list[bool]:
    """Which outputs the compact face returns as arrays.

    Saved values and new values of inputs are only read. Others become storages: windows.
    """
    return [
        isinstance(role, (Saved, MutatedInput)) and type(v) is Node and travels_as_array(v.meta)  # type: ignore[arg-type]
        for role, v in zip(graph.output_roles, graph.outputs, strict=True)
    ]


def is_read(graph: Graph) -> list[bool]:
    """Which placeholders anything reads; the compact face takes these alone."""
    read = {value for node in graph.nodes for value in node.inputs()}
    read |= {value for value in graph.outputs if type(value) is Node}
    return [node in read for node in graph.placeholders]
