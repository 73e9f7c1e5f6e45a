"""The second calling convention, `compact`: contiguous values are passed as arrays (LOW-9).

A backend's callable takes and returns windows (`protocol`). Its callable may have an attribute
`compact` besides, a function in which a value whose memory is its elements in order is passed as an
array without a window around it, and inputs that nothing reads are left out:

    run([(x, 0), (unused, 0), (y, 5)])  ->  [(saved, 0), (z, 0)]     # windows
    run.compact([x, (y, 5)])            ->  [saved, (z, 0)]          # y is strided, z is a result

Stage 10 uses it, since making and taking apart windows costs more than a small kernel. Spec:
`specs/s9_lower.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.arrays import NUMPY
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import MutatedInput, Saved
from aotlite.ir.meta import TensorMeta

Value = Any
"""An array that has the meta's shape and strides, or a window."""


def travels_as_array(meta: TensorMeta) -> bool:
    """Whether a value of this meta is passed as an array. That array is its own buffer, start 0."""
    return (
        meta.contiguous
        and meta.numel > 0
        and meta.device.arrays is NUMPY
        and meta.dtype.numpy.kind != "V"  # an extension dtype exports no buffer
    )


def returned_as_arrays(graph: Graph) -> list[bool]:
    """Returns, for each output, whether `compact` returns it as an array.

    These are saved values and new values of inputs, which stage 10 only reads. Another output
    becomes the storage of a tensor, for which stage 10 needs a window.
    """
    return [
        isinstance(role, (Saved, MutatedInput)) and type(v) is Node and travels_as_array(v.meta)  # type: ignore[arg-type]
        for role, v in zip(graph.output_roles, graph.outputs, strict=True)
    ]


def is_read(graph: Graph) -> list[bool]:
    """Returns, for each placeholder, whether a node or an output reads it.

    `compact` takes the values of these placeholders and of no others.
    """
    read = {value for node in graph.nodes for value in node.inputs()}
    read |= {value for value in graph.outputs if type(value) is Node}
    return [node in read for node in graph.placeholders]
